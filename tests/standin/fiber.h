/* Stacks to change between: our own switch on x86-64, ucontext elsewhere. */
#ifndef TESTS_STANDIN_FIBER_H
#define TESTS_STANDIN_FIBER_H

#include <stddef.h>
#include <ucontext.h>

typedef struct standin_fiber {
    void *stack_pointer;
    void *stack;
    size_t bytes;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
    void *shadow; /* AddressSanitizer's */
} standin_fiber;

/* A fiber that will begin with main(), which never returns. Its stack is kept and used again when made
 * anew. */
void standin_fiber_make(standin_fiber *fiber, size_t stack_bytes, void (*begin)(void));
/* `from` is the fiber that runs (the thread itself has one too, made by nobody); returns when somebody
 * switches back to it. */
void standin_fiber_switch(standin_fiber *from, standin_fiber *to);

#endif
