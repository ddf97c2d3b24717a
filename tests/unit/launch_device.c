/* Which GPU a rank takes: the rule by itself, what counts as being given GPUs, and distances
 * on a recorded machine. */
#include "launch/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kolo/error.h"
#include "tap.h"

enum { RANKS = 8 };
static kolo_device_view view[RANKS];
static int pick[RANKS];

/* Every rank sees GPUs 0 to gpus - 1, numbered alike. */
static void all_see(int ranks, int gpus)
{
    memset(view, 0, sizeof view);
    for (int r = 0; r < ranks; r++) {
        view[r].status = gpus;
        for (int i = 0; i < gpus; i++) view[r].uuid[i] = 100 + (uint32_t)i;
    }
}

/* "0 1 2 3": the picks as a line. */
static const char *picks(int ranks)
{
    static char line[64];
    int n = 0;
    kolo_device_assign(view, ranks, pick);
    for (int r = 0; r < ranks; r++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", r ? " " : "", pick[r]);
    return line;
}

static void test_rule(void)
{
    all_see(1, 1);
    is_text(picks(1), "0", "one GPU, one rank");
    all_see(4, 4);
    is_text(picks(4), "0 1 2 3", "as many GPUs as ranks, nothing known of distance: by local rank");
    all_see(2, 4);
    is_text(picks(2), "0 1", "more GPUs than ranks");
    all_see(4, 2);
    is_text(picks(4), "0 1 0 1", "fewer: each is used twice");
    for (int r = 0; r < 4; r++) {
        view[r].status = 1;
        view[r].uuid[0] = 100 + (uint32_t)r;
    }
    is_text(picks(4), "0 0 0 0", "a step that shows each rank its own: number 0 for all");
    all_see(2, 2);
    view[1].uuid[0] = 101, view[1].uuid[1] = 100;
    is_text(picks(2), "0 0", "the same GPU has another number in another rank's list");
    all_see(2, 2);
    view[1].status = 1;
    is_text(picks(2), "1 0", "who sees only one gets it");
    all_see(2, 2);
    view[0].status = KOLO_ELAUNCH;
    is_text(picks(2), "-1 0", "a rank without a driver gets none");
}

static void test_distance_in_rule(void)
{
    all_see(4, 4); /* two sockets; GPUs 2 and 3 hang on the first one, ranks in blocks */
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 4; i++) view[r].distance[i] = (r < 2) == (i >= 2) ? 1 : 2;
    is_text(picks(4), "2 3 0 1", "near ones are taken, each once");
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 4; i++) view[r].distance[i] = (r % 2 == 0) == (i >= 2) ? 1 : 2;
    is_text(picks(4), "2 0 3 1", "also where ranks go around the sockets");
    all_see(3, 3); /* all nearest to GPU 0 */
    for (int r = 0; r < 3; r++) view[r].distance[0] = 1, view[r].distance[1] = 3, view[r].distance[2] = 2;
    is_text(picks(3), "0 2 1", "no GPU twice while one is free, however far");
}

static int granted(const char *visible, const char *job, const char *count)
{
    unsetenv("SLURM_STEP_GPUS");
    unsetenv("GPU_DEVICE_ORDINAL");
    const char *const name[] = {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"};
    const char *const value[] = {visible, job, count};
    for (int i = 0; i < 3; i++)
        if (value[i]) setenv(name[i], value[i], 1);
        else unsetenv(name[i]);
    return kolo_device_granted();
}

static void test_granted(void)
{
    is_int(granted(NULL, NULL, NULL), 0, "an empty environment gives no GPU");
    is_int(granted("0,1", NULL, NULL), 1, "CUDA_VISIBLE_DEVICES=0,1 does");
    is_int(granted("GPU-12ab", NULL, NULL), 1, "and a uuid");
    is_int(granted("", "0,1", "2"), 0, "an empty one hides what the job has");
    is_int(granted("-1", "0,1", "2"), 0, "so does -1");
    is_int(granted("NoDevFiles", "0,1", "2"), 0, "and Slurm's word in a step without GPUs");
    is_int(granted(NULL, "0,1", NULL), 1, "SLURM_JOB_GPUS counts");
    is_int(granted(NULL, "", "0"), 0, "an empty list and a count of 0 do not");
    is_int(granted(NULL, NULL, "4"), 1, "SLURM_GPUS_ON_NODE=4 counts");
    granted(NULL, NULL, NULL);
    setenv("SLURM_STEP_GPUS", "3", 1);
    is_int(kolo_device_granted(), 1, "SLURM_STEP_GPUS counts");
}

/* Two packages of one processor each, a GPU on either, as hwloc writes such a machine. */
static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
    "version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\" "
    "nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n"
    "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" "
    "gp_index=\"2\" local_memory=\"1073741824\"><page_type size=\"4096\" count=\"262144\"/></object>\n"
    "<object type=\"Package\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"3\">\n"
    "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
    "<object type=\"Bridge\" gp_index=\"5\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-1f]\">\n"
    "<object type=\"PCIDev\" gp_index=\"6\" pci_busid=\"0000:1b:00.0\" pci_type=\"0302 [10de:2335] "
    "[10de:18be] a1\" "
    "pci_link_speed=\"0.0\"/>"
    "</object>\n</object>\n"
    "<object type=\"Package\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"7\">\n"
    "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"8\"/>\n"
    "<object type=\"Bridge\" gp_index=\"9\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[80-9f]\">\n"
    "<object type=\"PCIDev\" gp_index=\"10\" pci_busid=\"0000:9d:00.0\" pci_type=\"0302 [10de:2335] "
    "[10de:18be] a1\" "
    "pci_link_speed=\"0.0\"/>"
    "</object>\n</object>\n</object>\n</topology>\n";

static int bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static void test_distance(void)
{
    kolo_device gpu[2] = {{.bus = "0000:1b:00.0"}, {.bus = "0000:9d:00.0"}};
    uint8_t distance[2] = {9, 9};
    char path[] = "/tmp/kolo-machine-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, machine, strlen(machine)) != (ssize_t)strlen(machine)) {
        ok(0, "the machine's description is written");
        return;
    }
    close(fd);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    kolo_device_distances(gpu, 2, distance);
    if (bind_to(0) == 0) {
        kolo_device_distances(gpu, 2, distance);
        ok(distance[0] == 1 && distance[1] == 2, "on the first package, its GPU is the near one (%d %d)",
           distance[0], distance[1]);
    } else skip("processor 0 is not ours");
    if (bind_to(1) == 0) {
        kolo_device_distances(gpu, 2, distance);
        ok(distance[0] == 2 && distance[1] == 1, "on the second one, the other (%d %d)", distance[0],
           distance[1]);
        strcpy(gpu[1].bus, "0000:77:00.0");
        kolo_device_distances(gpu, 2, distance);
        ok(distance[0] == 0 && distance[1] == 0, "of a GPU that hwloc does not know nothing is said of any");
        strcpy(gpu[1].bus, "0000:9d:00.0");
    } else skip("processor 1 is not ours"), skip("processor 1 is not ours");
    sched_setaffinity(0, sizeof before, &before);
    if (CPU_ISSET(0, &before) && CPU_ISSET(1, &before)) {
        kolo_device_distances(gpu, 2, distance);
        ok(distance[0] == 2 && distance[1] == 2, "cores of both packages: equally far (%d %d)", distance[0],
           distance[1]);
    } else skip("processors 0 and 1 are not ours");
    unlink(path);
    unsetenv("HWLOC_XMLFILE");
}

static void test_no_library(void)
{
    kolo_launch launch;
    int index = 5;
    setenv("KOLO_CUDA_LIBRARY", "/nonexistent/libkolo_cuda.so", 1);
    is_int(kolo_launch_start(&launch, "single", NULL), 0, "alone");
    is_int(kolo_device_choose(&launch, &index, NULL), KOLO_ELAUNCH,
           "without the CUDA library no GPU can be chosen");
    ok(strstr(kolo_error_text(), launch.host) && strstr(kolo_error_text(), "KOLO_CUDA_LIBRARY"),
       "the text names node and cause: %s", kolo_error_text());
    is_int(kolo_device_choose(&launch, &index, NULL), KOLO_ELAUNCH, "and again");
    kolo_launch_finish(&launch);
}

int main(void)
{
    test_rule();
    test_distance_in_rule();
    test_granted();
    test_distance();
    test_no_library();
    return done_testing();
}
