/* What is read of recorded /proc and /sys: a node with two RDMA ports, a bridge and a loopback, mounts of
 * several kinds, hyper-threads. */
#include "base/machine.h"

#include <unistd.h>

#include "base/file.h"
#include "tap.h"

static char root[] = "/tmp/kolo-machine-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[512], *slash;
    snprintf(path, sizeof path, "%s/%s", root, name);
    slash = strrchr(path, '/');
    *slash = 0;
    kolo_folder_make(path);
    *slash = '/';
    if (kolo_file_write_atomic(path, text, strlen(text)) < 0) diag("%s", path);
}

static void put_interface(const char *name, const char *type, const char *state, const char *speed,
                          bool device)
{
    char path[256];
    snprintf(path, sizeof path, "sys/class/net/%s/type", name);
    put(path, type);
    snprintf(path, sizeof path, "sys/class/net/%s/operstate", name);
    put(path, state);
    snprintf(path, sizeof path, "sys/class/net/%s/speed", name);
    put(path, speed);
    snprintf(path, sizeof path, "sys/class/net/%s/device/vendor", name);
    if (device) put(path, "0x15b3\n");
}

static void test_interfaces(void)
{
    kolo_interface list[8];
    is_int(kolo_machine_interfaces(root, list, 8), 0, "without /sys there are no interfaces");
    put_interface("lo", "772\n", "unknown\n", "", false);
    put_interface("eth0", "1\n", "up\n", "25000\n", true);
    put_interface("docker0", "1\n", "down\n", "-1\n", false);
    put_interface("ib0", "32\n", "up\n", "200000\n", true);
    put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    put("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    put("sys/class/infiniband/mlx5_1/ports/1/rate", "40 Gb/sec (4X QDR)\n");
    put("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n");
    put("proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                          "ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
                          "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n");
    is_int(kolo_machine_interfaces(root, list, 8), 5, "two ports and three interfaces; not the loopback");
    ok(!strcmp(list[0].name, "mlx5_0/1") && list[0].rdma && list[0].up && list[0].gbits == 400 &&
           !strcmp(list[0].kind, "InfiniBand"),
       "an active port of 400 Gb/s");
    ok(!strcmp(list[1].name, "mlx5_1/1") && !list[1].up && !strcmp(list[1].kind, "Ethernet"),
       "a port that is down, of RoCE");
    ok(!strcmp(list[2].name, "docker0") && !list[2].up && !strcmp(list[2].kind, "virtual") &&
           list[2].gbits == 0,
       "a bridge is virtual, and a speed of -1 is none");
    ok(!strcmp(list[3].name, "eth0") && list[3].route && list[3].gbits == 25, "the default route, 25 Gb/s");
    ok(!strcmp(list[4].kind, "InfiniBand") && !list[4].route,
       "IP over InfiniBand; a route to a subnet is no default");
    is_int(kolo_machine_interfaces(root, list, 2), 2, "no more than there is room for");
}

static void test_mounts(void)
{
    char type[64], source[256];
    ok(!kolo_machine_mount(root, "/data", type, source), "without a list of mounts nothing is known");
    put("proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                               "30 22 0:40 / /scratch rw,noatime shared:9 - lustre 10.0.0.1@o2ib:/fs rw\n"
                               "31 22 0:41 / /scratch/my\\040disk rw - xfs /dev/nvme0n1 rw\n"
                               "32 22 0:42 / /home rw - nfs4 server:/home rw\n"
                               "33 32 0:43 / /home rw - fuse.sshfs me@far: rw\n");
    ok(kolo_machine_mount(root, "/scratch/set/train", type, source) && !strcmp(type, "lustre") &&
           !strcmp(source, "10.0.0.1@o2ib:/fs"),
       "Lustre, and its server");
    ok(kolo_machine_mount(root, "/scratch/my disk/train", type, source) && !strcmp(type, "xfs"),
       "the deeper mount counts, its name with a blank");
    ok(kolo_machine_mount(root, "/scratchy", type, source) && !strcmp(type, "ext4"),
       "a name that only begins alike is on the root");
    ok(kolo_machine_mount(root, "/home", type, source) && !strcmp(type, "fuse.sshfs"),
       "of two on one folder the later one");
    put("proc/self/mountinfo", "");
    ok(!kolo_machine_mount(root, "/scratch/set", type, source), "no path, and no list: nothing is known");
    ok(kolo_machine_mount(root, "/", type, source) && *type && !strcmp(source, "a mount that is not listed"),
       "a root that was entered by chroot: its type, %s", type);
    ok(kolo_machine_mount_shared("lustre") && kolo_machine_mount_shared("nfs4") &&
           kolo_machine_mount_shared("fuse.sshfs") && !kolo_machine_mount_shared("xfs") &&
           !kolo_machine_mount_shared("tmpfs"),
       "which of them nodes share");
}

static void test_processors(void)
{
    char path[128], text[16];
    cpu_set_t allowed;
    kolo_processors p;
    CPU_ZERO(&allowed);
    for (int cpu = 0; cpu < 3; cpu++) CPU_SET(cpu, &allowed);
    kolo_machine_processors(root, &allowed, &p);
    ok(p.cpus == 3 && p.cores == 3 && p.threads == 0 && p.throttled == -1 && p.numa == 0 && !*p.governor,
       "without /sys every processor is a core");
    for (int cpu = 0; cpu < 4; cpu++) {
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        snprintf(text, sizeof text, "%d,%d\n", cpu % 2, cpu % 2 + 2);
        put(path, text);
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/node%d/x", cpu, cpu % 2);
        put(path, "");
    }
    put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    put("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2000000\n");
    put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n");
    put("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "17\n");
    put("sys/devices/system/cpu/cpu3/thermal_throttle/package_throttle_count", "99\n");
    kolo_machine_processors(root, &allowed, &p);
    ok(p.cpus == 3 && p.cores == 2 && p.threads == 2, "three hyper-threads of two cores");
    is_int(p.numa, 2, "on two NUMA nodes");
    ok(!strcmp(p.governor, "powersave") && p.mhz == 2000 && p.most_mhz == 3500, "their frequency is limited");
    is_int(p.throttled, 17, "throttled 17 times; not those of a processor that is not ours");
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    test_interfaces();
    test_mounts();
    test_processors();
    kolo_folder_remove(root);
    return done_testing();
}
