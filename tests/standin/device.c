/* Which GPUs there are: STANDIN_DEVICES of them (1), seen through CUDA_VISIBLE_DEVICES; STANDIN_UUID makes
 * other GPUs of them, STANDIN_DRIVER (13000; 0: none installed), STANDIN_CAPABILITY (90) and
 * STANDIN_MEMORY other kinds. STANDIN_PEERS=0: none reads another's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

enum { MOST = 16 };
static __thread int current_device;

static int existing(void)
{
    int64_t n = standin_setting("STANDIN_DEVICES", 1);
    return n < 0 ? 0 : n > MOST ? MOST : (int)n;
}

static void uuid_bytes(int physical, unsigned char *bytes)
{
    int64_t family = standin_setting("STANDIN_UUID", 0);
    memcpy(bytes, "stand-in GPU\0\0\0", 16);
    bytes[13] = (unsigned char)(family >> 8);
    bytes[14] = (unsigned char)family;
    bytes[15] = (unsigned char)physical;
}

static void uuid_text(int physical, char *text)
{
    unsigned char b[16];
    uuid_bytes(physical, b);
    text += sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

/* The visible GPUs as indices of existing ones; the first bad name ends the list, as with CUDA. */
static int visible(int *physical)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int all = existing(), n = 0;
    char uuid[48];
    if (!text) {
        for (; n < all; n++) physical[n] = n;
        return n;
    }
    while (*text && n < MOST) {
        size_t length = strcspn(text, ",");
        int found = -1;
        for (int i = 0; i < all; i++) {
            uuid_text(i, uuid);
            if (length > 4 && length <= strlen(uuid) && !strncmp(uuid, text, length)) found = i;
        }
        char *end;
        long index = strtol(text, &end, 10);
        if (end == text + length && index >= 0 && index < all) found = (int)index;
        if (found < 0) break;
        physical[n++] = found;
        text += length + (text[length] == ',');
    }
    return n;
}

int standin_devices(void)
{
    int physical[MOST];
    return visible(physical);
}

int standin_device(void) { return current_device; }

const char *standin_device_uuid(int device)
{
    static __thread char text[48];
    int physical[MOST], n = visible(physical);
    if (device < 0 || device >= n) return "";
    uuid_text(physical[device], text);
    return text;
}

static cudaError_t driver_state(void)
{
    if (standin_setting("STANDIN_DRIVER", 13000) < CUDART_VERSION / 1000 * 1000)
        return cudaErrorInsufficientDriver;
    return standin_devices() > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *version = (int)standin_setting("STANDIN_DRIVER", 13000);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    STANDIN_ENTER(STANDIN_OTHER);
    cudaError_t rc = driver_state();
    *count = rc == cudaSuccess ? standin_devices() : 0;
    return standin_set_error(rc);
}

cudaError_t cudaSetDevice(int device)
{
    STANDIN_ENTER(STANDIN_OTHER);
    cudaError_t rc = driver_state();
    if (rc == cudaSuccess && (device < 0 || device >= standin_devices())) rc = cudaErrorInvalidDevice;
    if (rc == cudaSuccess) current_device = device;
    return standin_set_error(rc);
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    STANDIN_ENTER(STANDIN_OTHER);
    (void)device_flags, (void)flags;
    cudaError_t rc = driver_state();
    if (rc == cudaSuccess && (device < 0 || device >= standin_devices())) rc = cudaErrorInvalidDevice;
    return standin_set_error(rc);
}

cudaError_t cudaGetDevice(int *device)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *device = current_device;
    return standin_set_error(driver_state());
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    STANDIN_ENTER(STANDIN_OTHER);
    cudaError_t rc = driver_state();
    const int n = standin_devices();
    if (rc == cudaSuccess && (device < 0 || device >= n || peer < 0 || peer >= n))
        rc = cudaErrorInvalidDevice;
    *can = rc == cudaSuccess && device != peer && standin_setting("STANDIN_PEERS", 1) != 0;
    return standin_set_error(rc);
}

static int capability(void) { return (int)standin_setting("STANDIN_CAPABILITY", 90); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    STANDIN_ENTER(STANDIN_OTHER);
    int physical[MOST], n = visible(physical);
    if (driver_state() != cudaSuccess) return standin_set_error(driver_state());
    if (device < 0 || device >= n) return standin_set_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Stand-in GPU");
    uuid_bytes(physical[device], (unsigned char *)&p->uuid);
    p->totalGlobalMem = standin_memory_limit();
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->multiProcessorCount = 132;
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120;
    p->pciBusID = 0x10 + physical[device];
    p->asyncEngineCount = 3;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = 1;
    p->textureAlignment = 512;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t rc = cudaGetDeviceProperties(&p, device);
    if (rc != cudaSuccess) return rc;
    switch ((int)attribute) {
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrMemoryClockRate: *value = 2619000; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrPciDeviceId: *value = p.pciDeviceID; break;
    case cudaDevAttrPciDomainId: *value = p.pciDomainID; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrHostRegisterSupported: *value = 1; break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode: *value = 0; break;
    default:
        standin_defect("the stand-in does not know device attribute %d", (int)attribute);
        return standin_set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
