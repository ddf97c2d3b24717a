/* The GPUs that this process may see, asked of the CUDA runtime without making a context on any of them. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
#include "launch/device.h"

int kolo_cuda_devices(kolo_device *list, int *driver, int *runtime);
int kolo_cuda_peer(int a, int b);

static void write_uuid(char *text, size_t size, const char bytes[16])
{
    size_t n = (size_t)snprintf(text, size, "GPU-");
    for (int i = 0; i < 16 && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              (unsigned)(unsigned char)bytes[i]);
}

/* Versions are 1000 major + 10 minor. Within one major version any driver goes with any runtime. */
static int explain(cudaError_t rc, int driver, int runtime)
{
    if (driver == 0)
        return kolo_fail(KOLO_ELAUNCH,
                         "no NVIDIA driver here (%s): start on a node with GPUs (srun --gpus-per-node=N), "
                         "load the driver, or use device=cpu",
                         cudaGetErrorString(rc));
    if (driver / 1000 < runtime / 1000)
        return kolo_fail(
            KOLO_ELAUNCH,
            "the NVIDIA driver knows CUDA up to %d.%d, and kolo was built with CUDA %d.%d: update the "
            "driver, or build kolo with an older CUDA, 12.0 at least (make CUDA=1 CUDA_HOME=...)",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return kolo_fail(
        KOLO_ELAUNCH,
        "the GPUs of this node cannot be used: %s (%s); see `nvidia-smi` there, or use device=cpu",
        cudaGetErrorString(rc), cudaGetErrorName(rc));
}

int kolo_cuda_devices(kolo_device *list, int *driver, int *runtime)
{
    int n = 0;
    *driver = *runtime = 0;
    cudaDriverGetVersion(driver); /* 0 where there is none */
    cudaRuntimeGetVersion(runtime);
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaErrorNoDevice) n = 0;
    else if (rc != cudaSuccess) {
        cudaGetLastError();
        return explain(rc, *driver, *runtime);
    }
    if (n > KOLO_MAX_DEVICES) n = KOLO_MAX_DEVICES;
    for (int i = 0; i < n; i++) {
        struct cudaDeviceProp p;
        rc = cudaGetDeviceProperties(&p, i);
        if (rc != cudaSuccess) return explain(rc, *driver, *runtime);
        kolo_device *d = memset(&list[i], 0, sizeof *d);
        snprintf(d->name, sizeof d->name, "%.63s", p.name);
        write_uuid(d->uuid, sizeof d->uuid, p.uuid.bytes);
        snprintf(d->bus, sizeof d->bus, "%04x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
                 (unsigned)p.pciDeviceID);
        d->major = p.major;
        d->minor = p.minor;
        d->memory_bytes = p.totalGlobalMem;
    }
    return n;
}

int kolo_cuda_peer(int a, int b)
{
    int can = 0;
    const cudaError_t rc = cudaDeviceCanAccessPeer(&can, a, b);
    if (rc == cudaSuccess) return can;
    cudaGetLastError();
    return kolo_fail(KOLO_ELAUNCH, "GPUs %d and %d: %s", a, b, cudaGetErrorString(rc));
}
