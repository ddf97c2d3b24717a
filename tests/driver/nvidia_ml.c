/* libnvidia-ml.so.1 as far as kolo doctor asks it, for tests: GPUs of any name at 67 degrees that take 350 W
 * of 700 W. NVML_REASONS (a number): what holds their clocks down; NVML_LIMIT: watts. */
#include <stdlib.h>

int nvmlInit_v2(void);
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)uuid;
    return 0;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device;
    *celsius = 67;
    return sensor;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 350000;
    return 0;
}
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 700000;
    return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    const char *limit = getenv("NVML_LIMIT");
    (void)device;
    *milliwatts = limit ? (unsigned)atoi(limit) * 1000 : 700000;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits)
{
    const char *reasons = getenv("NVML_REASONS");
    (void)device;
    *bits = reasons ? strtoull(reasons, NULL, 0) : 0;
    return 0;
}
