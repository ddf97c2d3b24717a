#include "standin/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define LEAVING(from, to) __sanitizer_start_switch_fiber(&(from)->shadow, (to)->stack, (to)->bytes)
#define FRESH(stack, bytes) __asan_unpoison_memory_region((stack), (bytes)) /* given up with frames on it */
#define ARRIVED(shadow) __sanitizer_finish_switch_fiber((shadow), NULL, NULL)
#else
#define LEAVING(from, to) (void)0
#define FRESH(stack, bytes) (void)0
#define ARRIVED(shadow) (void)0
#endif

static void (*first)(void);

#if defined(__x86_64__)
/* Keeps what a function must keep for its caller on the stack, then changes stacks. */
void standin_fiber_jump(void **save, void *load);
__asm__(".text\n"
        ".globl standin_fiber_jump\n"
        ".hidden standin_fiber_jump\n"
        ".type standin_fiber_jump, @function\n"
        "standin_fiber_jump:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size standin_fiber_jump, .-standin_fiber_jump\n");
#endif

static void begin(void)
{
    ARRIVED(NULL);
    first();
    abort();
}

void standin_fiber_make(standin_fiber *f, size_t stack_bytes, void (*main)(void))
{
    first = main;
    if (!f->stack) { /* with a closed page at its end */
        char *map = mmap(NULL, stack_bytes + 4096, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED || mprotect(map, 4096, PROT_NONE)) abort();
        f->stack = map + 4096;
        f->bytes = stack_bytes;
    }
    FRESH(f->stack, f->bytes);
#if defined(__x86_64__)
    uintptr_t *top = (uintptr_t *)((char *)f->stack + f->bytes) - 2;
    top[0] = (uintptr_t)begin; /* where `ret` goes, with the stack as a call leaves it */
    top[1] = 0;
    f->stack_pointer = top - 6;
    for (int i = 1; i <= 6; i++) top[-i] = 0;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->bytes;
    f->context.uc_link = NULL;
    makecontext(&f->context, begin, 0);
#endif
    f->shadow = NULL;
}

/* The thread's own stack, for AddressSanitizer. */
static void know_own_stack(standin_fiber *f)
{
    pthread_attr_t attributes;
    if (f->stack || pthread_getattr_np(pthread_self(), &attributes)) return;
    pthread_attr_getstack(&attributes, &f->stack, &f->bytes);
    pthread_attr_destroy(&attributes);
}

void standin_fiber_switch(standin_fiber *from, standin_fiber *to)
{
    if (!from->stack) know_own_stack(from);
    LEAVING(from, to);
#if defined(__x86_64__)
    standin_fiber_jump(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
    ARRIVED(from->shadow);
}
