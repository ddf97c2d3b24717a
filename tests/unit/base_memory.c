#include "base/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include "base/cgroup.h"
#include "base/failure.h"
#include "base/file.h"
#include "tap.h"

static char root[] = "/tmp/kolo-cgroup-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[512], *slash;
    snprintf(path, sizeof path, "%s/%s", root, name);
    slash = strrchr(path, '/');
    *slash = 0;
    kolo_folder_make(path);
    *slash = '/';
    if (kolo_file_write_atomic(path, text, strlen(text)) < 0) diag("%s", kolo_error_text());
}

static void test_cgroups(void)
{
    ok(kolo_cgroup_memory(root) == INT64_MAX, "without /proc there is no limit");
    is_near(kolo_cgroup_cpus(root), 0, 0, "nor a quota");

    put("proc/self/cgroup", "0::/slurm/job_1/step_0\n");
    put("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
    put("sys/fs/cgroup/slurm/job_1/memory.max", "4294967296\n");
    put("sys/fs/cgroup/slurm/memory.max", "8589934592\n");
    put("sys/fs/cgroup/slurm/job_1/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/slurm/cpu.max", "max 100000\n");
    is_int(kolo_cgroup_memory(root), 4294967296, "v2: the tightest ancestor decides");
    is_near(kolo_cgroup_cpus(root), 1.5, 0, "v2: quota over period");

    is_int(kolo_cgroup_kills(root), -1, "v2: no events, no count of kills");
    put("sys/fs/cgroup/slurm/job_1/step_0/memory.events", "low 0\nmax 3\noom 1\noom_kill 0\n");
    put("sys/fs/cgroup/slurm/job_1/memory.events", "oom 9\noom_kill 2\n");
    put("sys/fs/cgroup/slurm/memory.events", "oom_kill 77\n");
    is_int(kolo_cgroup_kills(root), 2, "v2: kills of the step's job, not of other jobs");

    put("proc/self/cgroup",
        "9:name=systemd:/\n4:memory:/box/7\n2:cpu,cpuacct:/box/7\n1:cpuset:/other\n0::/nowhere\n");
    put("sys/fs/cgroup/memory/box/7/memory.limit_in_bytes", "9223372036854771712\n");
    is_int(kolo_cgroup_memory(root), INT64_MAX, "v1: LONG_MAX in pages means no limit");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
    is_int(kolo_cgroup_memory(root), 1000000, "v1: in a container the visible root carries the limit");
    put("sys/fs/cgroup/cpu,cpuacct/box/7/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/7/cpu.cfs_period_us", "100000\n");
    is_near(kolo_cgroup_cpus(root), 0, 0, "v1: quota -1 is none");
    put("sys/fs/cgroup/cpu,cpuacct/box/7/cpu.cfs_quota_us", "250000\n");
    is_near(kolo_cgroup_cpus(root), 2.5, 0, "v1: quota over period");
    put("proc/self/cgroup", "3:cpuset:/box/7\n");
    is_near(kolo_cgroup_cpus(root), 0, 0, "cpuset is not cpu");
}

static void test_limit(void)
{
    const char *source = NULL;
    unsetenv("SLURM_MEM_PER_CPU");
    unsetenv("SLURM_MEM_PER_NODE");
    size_t machine = kolo_memory_limit(&source);
    ok(machine > 1 << 20 && source && !strstr(source, "Slurm"), "outside Slurm the machine decides (%s)",
       source);
    setenv("SLURM_MEM_PER_NODE", "100", 1);
    is_int(kolo_memory_limit(&source), 100 << 20, "Slurm's memory a node, in MiB");
    ok(strstr(source, "Slurm"), "is named as the source");
    setenv("SLURM_MEM_PER_NODE", "0", 1);
    is_int(kolo_memory_limit(NULL) > 200 << 20, 1, "0 asks for the whole node: no limit");
    unsetenv("SLURM_MEM_PER_NODE");
    setenv("SLURM_MEM_PER_CPU", "30", 1);
    setenv("SLURM_CPUS_ON_NODE", "4", 1);
    is_int(kolo_memory_limit(NULL), 120 << 20, "Slurm's memory a CPU, times the CPUs here");
    unsetenv("SLURM_CPUS_ON_NODE");
    setenv("SLURM_JOB_CPUS_PER_NODE", "2(x3)", 1);
    is_int(kolo_memory_limit(NULL), 60 << 20, "CPUs written as 2(x3)");
}

static void test_pages(void)
{
    size_t bytes = (5 << 20) + 123, before = kolo_memory_resident(), beside = kolo_memory_beside_pages();
    char *pages = kolo_pages_alloc(bytes), sum = 0;
    ok(pages && (uintptr_t)pages % (2 << 20) == 0, "a large mapping starts on a huge page");
    ok(kolo_memory_resident() >= before + bytes, "and is resident before anybody writes to it");
    ok(kolo_memory_beside_pages() < beside + (1 << 20), "what is beside pages is no more than before");
    size_t resident = kolo_memory_resident(), peak = kolo_memory_peak();
    ok(peak >= resident, "the peak is no less than now");
    for (size_t i = 0; i < bytes; i++) sum |= pages[i];
    is_int(sum, 0, "it is zero");
    memset(pages, 7, bytes);
    kolo_pages_touch(pages, bytes);
    kolo_pages_touch(pages + 1, bytes - 1);
    for (size_t i = 0; i < bytes; i++) sum |= pages[i] != 7;
    is_int(sum, 0, "touching changes nothing");
    kolo_pages_free(&pages, bytes);
    ok(!pages, "freeing leaves NULL");
    kolo_pages_free(&pages, bytes);
    char *small = kolo_pages_alloc(0);
    ok(small, "no bytes are a page");
    kolo_pages_free(&small, 0);
    int *list = NULL;
    int64_t capacity = INT64_C(1) << 50;
    is_int(kolo_grow(&list, &capacity, capacity, (size_t)1 << 9), KOLO_ENOMEM,
           "an array that cannot grow: 71");
    ok(!kolo_alloc((size_t)1 << 62) && strstr(kolo_error_text(), "smaller micro_batch"),
       "an allocation that fails says what to do: %s", kolo_error_text());
    is_int(kolo_error_status(), KOLO_ENOMEM, "and its status is out of memory");
    ok(!kolo_pages_alloc((size_t)1 << 62) && strstr(kolo_error_text(), "out of memory"),
       "too many bytes are refused in words");
}

static void test_small(void)
{
    int64_t capacity = 0, *array = NULL;
    int rc = 0;
    for (int64_t i = 0; i < 1000; i++) {
        rc |= kolo_grow(&array, &capacity, i, sizeof *array);
        array[i] = i;
    }
    ok(rc == 0 && capacity == 1024 && array[999] == 999 && array[0] == 0,
       "an array grows by doubling and keeps its elements");
    is_int(array[1023], 0, "what is new is zero");
    is_int(kolo_grow(&array, &capacity, INT64_MAX / 2, sizeof *array), KOLO_ENOMEM,
           "growing beyond memory is an error");
    is_int(array[999], 999, "that leaves the array as it was");
    free(array);
    char *text = kolo_format("%s-%d", "a", 5), *zero = kolo_alloc(100);
    is_text(text, "a-5", "kolo_format");
    int sum = 0;
    for (int i = 0; i < 100; i++) sum |= zero[i];
    is_int(sum, 0, "kolo_alloc gives zeros");
    free(text);
    free(zero);
    is_int(kolo_round_up(65, KOLO_ALIGN), 128, "kolo_round_up");
}

/* What glibc does with 10 MB that come and go between small things: it keeps them after the first time. */
static void test_return(void)
{
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    enum { TIMES = 8, LARGE = 10 << 20 };
    void *small[TIMES];
    kolo_return_freed();
    for (int i = 0; i < TIMES; i++) {
        char *large = kolo_alloc(LARGE);
        memset(large, 1, LARGE);
        small[i] = kolo_alloc(100);
        free(large);
    }
    const size_t kept = mallinfo2().arena;
    ok(kept < 4 << 20, "of eight times 10 MB nothing is kept: %zu bytes of heap", kept);
    for (int i = 0; i < TIMES; i++) free(small[i]);
#endif
}

int main(void)
{
    if (!mkdtemp(root)) skip_all("no temporary folder");
    test_cgroups();
    test_limit();
    test_pages();
    test_small();
    kolo_folder_remove(root);
    test_return();
    return done_testing();
}
