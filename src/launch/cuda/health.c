/* Temperature, power and what holds clocks down, of NVML: the library comes with the driver and is opened
 * when somebody asks, by its names alone, so that no header of it is needed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
#include "launch/device.h"

int kolo_cuda_health(const char *uuid, kolo_device_health *health);

/* nvml.h: nvmlClocksThrottleReason..., NVML_TEMPERATURE_GPU */
enum { HARDWARE = 0x8, HEAT = 0x20, HARDWARE_HEAT = 0x40, POWER_BRAKE = 0x80, SENSOR_GPU = 0 };

typedef struct nvml_calls {
    int (*init)(void);
    int (*find)(const char *uuid, void **device);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*usage)(void *device, unsigned *milliwatts);
    int (*limit)(void *device, unsigned *milliwatts);
    int (*usual)(void *device, unsigned *milliwatts);
    int (*reasons)(void *device, unsigned long long *bits);
    int ready;
} nvml_calls;

static nvml_calls nvml;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    static const struct {
        const char *name;
        void *call;
    } entry[] = {{"nvmlInit_v2", &nvml.init},
                 {"nvmlDeviceGetHandleByUUID", &nvml.find},
                 {"nvmlDeviceGetTemperature", &nvml.temperature},
                 {"nvmlDeviceGetPowerUsage", &nvml.usage},
                 {"nvmlDeviceGetEnforcedPowerLimit", &nvml.limit},
                 {"nvmlDeviceGetPowerManagementDefaultLimit", &nvml.usual},
                 {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.reasons}};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml.ready = library ? 0 : -1;
    for (size_t i = 0; library && i < sizeof entry / sizeof *entry; i++) {
        void *call = dlsym(library, entry[i].name);
        if (!call) nvml.ready = -1;
        memcpy(entry[i].call, &call, sizeof call);
    }
    if (nvml.ready == 0 && nvml.init() != 0) nvml.ready = -2;
}

static double watts_of(int (*call)(void *device, unsigned *milliwatts), void *device)
{
    unsigned milliwatts = 0;
    return call(device, &milliwatts) == 0 ? milliwatts / 1e3 : 0;
}

int kolo_cuda_health(const char *uuid, kolo_device_health *health)
{
    void *device = NULL;
    unsigned celsius = 0;
    unsigned long long reasons = 0;
    pthread_once(&opened, open_library);
    if (nvml.ready < 0)
        return kolo_fail(KOLO_ELAUNCH, nvml.ready == -1 ? "no libnvidia-ml.so.1 of this driver here"
                                                        : "NVML cannot be started");
    if (nvml.find(uuid, &device) != 0) return kolo_fail(KOLO_ELAUNCH, "NVML does not show %s", uuid);
    nvml.temperature(device, SENSOR_GPU, &celsius);
    nvml.reasons(device, &reasons);
    *health = (kolo_device_health){.celsius = (int)celsius,
                                   .watts = watts_of(nvml.usage, device),
                                   .limit = watts_of(nvml.limit, device),
                                   .usual = watts_of(nvml.usual, device),
                                   .hot = (reasons & (HEAT | HARDWARE_HEAT)) != 0,
                                   .slowed = (reasons & POWER_BRAKE) != 0 ||
                                             (reasons & (HARDWARE | HARDWARE_HEAT)) == HARDWARE};
    return 0;
}
