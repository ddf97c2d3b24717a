/* Whose memory is whose. What lies on a GPU alone goes another way (gpu.h): a processor that reached for it
 * would end the program. Pinned and managed memory are the host's, too. Nothing of CUDA is needed to build or
 * run this: the driver is asked only where the program has loaded it, and whether it has is looked at again
 * only when something else was loaded. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

#include "comm/library/gpu.h"

/* CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer), of
 * CUDA's driver interface. */
typedef int pointer_attribute(void *data, int attribute, unsigned long long pointer);
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, ORDINAL = 9, DEVICE = 2 };

static _Atomic(pointer_attribute *) ask;
static _Atomic unsigned long long loads; /* of shared objects by this process, when it was looked at last */

static int count_loads(struct dl_phdr_info *info, size_t bytes, void *count)
{
    (void)bytes;
    *(unsigned long long *)count = info->dlpi_adds;
    return 1; /* the first knows it */
}

/* Some 20 ns where nothing was loaded since. */
static void device_look(void)
{
    unsigned long long now = 0;
    dl_iterate_phdr(count_loads, &now);
    if (atomic_exchange(&loads, now) == now) return;
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY); /* kept, so it stays */
    if (driver) atomic_store(&ask, (pointer_attribute *)dlsym(driver, "cuPointerGetAttribute"));
}

bool lib_gpu_any(void)
{
    if (!atomic_load_explicit(&ask, memory_order_acquire)) device_look();
    return atomic_load_explicit(&ask, memory_order_acquire) != NULL;
}

int lib_gpu_of(const void *memory)
{
    uint64_t type = 0, managed = 0, number = 0; /* of 32 bits, or fewer */
    pointer_attribute *driver = atomic_load_explicit(&ask, memory_order_acquire);
    if (!memory || !driver) return -1;
    const unsigned long long at = (unsigned long long)(uintptr_t)memory;
    /* an error: the driver does not know it */
    if (driver(&type, MEMORY_TYPE, at) != 0 || type != DEVICE) return -1;
    if (driver(&managed, IS_MANAGED, at) == 0 && managed) return -1;
    return driver(&number, ORDINAL, at) == 0 ? (int)number : 0;
}
