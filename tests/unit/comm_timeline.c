/* The timeline of a rank: many threads, odd names, a full ring, a full disk, an end by SIGKILL, halves; read
 * by cJSON, after what Perfetto does about a missing end. */
#include "comm/library/timeline.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "tap.h"

enum { PLENTY = 256 << 20 };
static char folder[] = "/tmp/kolo-timeline-XXXXXX", path[64];

/* The array, or NULL. repair: what stands behind the last whole event goes, and the end is added. */
static cJSON *read_events(bool repair)
{
    char *text = NULL;
    size_t bytes = 0;
    if (kolo_file_read(path, &text, &bytes) < 0) return NULL;
    char *end = repair ? strrchr(text, '\n') : NULL;
    if (end) { /* the last line may be torn */
        char *last = end + 1;
        cJSON *whole = cJSON_Parse(last);
        if (whole) end = text + bytes;
        cJSON_Delete(whole);
        while (end > text && strchr(",\n\r ", end[-1])) end--;
        *end = 0;
        text = realloc(text, strlen(text) + 3);
        strcat(text, "]");
    }
    cJSON *array = cJSON_ParseWithOpts(text, NULL, true);
    free(text);
    return array;
}

static int count_of(const cJSON *array, const char *kind)
{
    const cJSON *event;
    int count = 0;
    cJSON_ArrayForEach(event, array) count +=
        strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, kind) == 0;
    return count;
}

static void test_events(void)
{
    struct lib_timeline *t;
    if (lib_timeline_open(&t, folder, PLENTY, 3, "node \"7\"") < 0)
        return (void)ok(0, "open: %s", kolo_error_text());
    lib_timeline_clock(t, 1.5, 1e-6);
    lib_timeline_add(t, "pack", "a \"quoted\"\n\xff name", 1.0, 1.5, 4096);
    lib_timeline_add(t, "pack", NULL, 2.0, 2.25, 0);
    lib_timeline_add(t, "allreduce",
                     "much longer than any place that was made for a name, which is cut off where it ends",
                     2.0, 3.0, 1);
    lib_timeline_add(t, "pack", "overlaps", 2.1, 2.5, 0);
    lib_timeline_close(&t);
    cJSON *array = read_events(false), *event = NULL, *last = NULL;
    ok(array && count_of(array, "X") == 4, "an ended file is JSON as it is");
    int rows = 0;
    cJSON_ArrayForEach(event, array)
    {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") == 0 && !last) last = event;
        rows += strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "thread_name") == 0;
    }
    ok(last && cJSON_GetObjectItem(last, "ts")->valuedouble == 1e6 &&
           cJSON_GetObjectItem(last, "dur")->valuedouble == 5e5 &&
           cJSON_GetObjectItem(last, "pid")->valueint == 3 &&
           cJSON_GetObjectItem(cJSON_GetObjectItem(last, "args"), "bytes")->valueint == 4096,
       "microseconds, the rank, bytes");
    is_int(rows, 3, "what overlaps stands in a row of its own");
    cJSON_Delete(array);
    lib_timeline_add(NULL, "pack", "x", 0, 1, 0); /* without a timeline an event is nothing */
}

/* More at once than a phase has rows: of two that overlap in one viewers would drop one. */
static void test_crowd(void)
{
    enum { CROWD = LIB_EVENT_ROWS + 20 };
    struct lib_timeline *t;
    int of_row[2 * LIB_EVENT_ROWS] = {0}, most = 0;
    if (lib_timeline_open(&t, folder, PLENTY, 0, "n") < 0) return (void)ok(0, "open: %s", kolo_error_text());
    snprintf(path, sizeof path, "%s/rank-0.json", folder);
    for (int i = 0; i < CROWD; i++) lib_timeline_add(t, "negotiate", "layer.weight", 1 + i * 1e-3, 9, 0);
    lib_timeline_close(&t);
    cJSON *array = read_events(false), *event = NULL;
    cJSON_ArrayForEach(event, array)
    {
        const int row = cJSON_GetObjectItem(event, "tid")->valueint;
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0) continue;
        if (row >= 0 && row < 2 * LIB_EVENT_ROWS && ++of_row[row] > most) most = of_row[row];
    }
    is_int(most, 1, "%d events at once: no two in a row", (int)CROWD);
    is_int(count_of(array, "X"), LIB_EVENT_ROWS, "  as many as there are rows");
    is_int(count_of(array, "i"), CROWD - LIB_EVENT_ROWS, "  and marks for the others");
    cJSON_Delete(array);
}

enum { THREADS = 4, EACH = 3000 };
static void *many(void *of)
{
    for (int i = 0; i < EACH; i++) {
        lib_timeline_add(of, "allreduce", "layer.weight", i, i + .5, 8);
        if (i % 500 == 0) usleep(2000);
    }
    return NULL;
}

static void test_threads(void)
{
    struct lib_timeline *t;
    pthread_t thread[THREADS];
    if (lib_timeline_open(&t, folder, PLENTY, 0, "n") < 0) return (void)ok(0, "open: %s", kolo_error_text());
    snprintf(path, sizeof path, "%s/rank-0.json", folder);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, many, t);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    lib_timeline_close(&t);
    cJSON *array = read_events(false);
    is_int(count_of(array, "X"), THREADS * EACH, "every event of %d threads", THREADS);
    cJSON_Delete(array);
}

static void test_killed(void)
{
    int good = 0, events = 0;
    snprintf(path, sizeof path, "%s/rank-9.json", folder);
    for (int round = 0; round < 6; round++) {
        fflush(stdout);
        remove(path);
        pid_t child = fork();
        if (child == 0) {
            struct lib_timeline *t;
            if (lib_timeline_open(&t, folder, PLENTY, 9, "n") < 0) _exit(1);
            for (double now = kolo_time();; now = kolo_time())
                lib_timeline_add(t, "allreduce", "killed in the middle", now, now + 1e-6, 8);
        }
        while (kolo_file_size(path) < 2000 + 3000 * round) usleep(1000);
        usleep(1000 * (unsigned)round);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        cJSON *array = read_events(true);
        good += array && count_of(array, "M") >= 2;
        events += array ? count_of(array, "X") : 0;
        cJSON_Delete(array);
    }
    ok(good == 6 && events > 100, "killed at any time: readable up to the end (%d events)", events);
}

/* ---- files that do not keep up ------------------------------------------------------------------------- */

static char *taken; /* of the pipe */
static size_t taken_bytes;

static void *take(void *of)
{
    int fd = *(int *)of;
    taken = malloc(16 << 20);
    for (ssize_t n; (n = read(fd, taken + taken_bytes, (16 << 20) - 1 - taken_bytes)) > 0;) {
        taken_bytes += (size_t)n;
        if (taken[taken_bytes - 2] == ']') break;
    }
    taken[taken_bytes] = 0;
    return NULL;
}

/* The file is a pipe that nobody reads until the ring is full. */
static void test_lost(void)
{
    enum { EVENTS = 60000 };
    struct lib_timeline *t;
    pthread_t reader;
    snprintf(path, sizeof path, "%s/rank-5.json", folder);
    int fd = mkfifo(path, 0600) < 0 ? -1 : open(path, O_RDWR);
    if (lib_timeline_open(&t, folder, PLENTY, 5, "n") < 0) return (void)ok(0, "open: %s", kolo_error_text());
    for (int i = 0; i < EVENTS; i++) lib_timeline_add(t, "allreduce", "faster than the disk", i, i + .5, 8);
    pthread_create(&reader, NULL, take, &fd);
    lib_timeline_close(&t);
    pthread_join(reader, NULL);
    close(fd);
    cJSON *array = cJSON_ParseWithOpts(taken, NULL, true), *event;
    double lost = 0;
    cJSON_ArrayForEach(event, array)
    {
        if (strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "kolo_lost") == 0)
            lost += cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), "events")->valuedouble;
    }
    ok(lost > 0 && count_of(array, "X") + (int)lost == EVENTS,
       "the file says what a full ring lost: %.0f of %d events", lost, EVENTS);
    cJSON_Delete(array);
    free(taken);
}

static void test_full(void)
{
    snprintf(path, sizeof path, "%s/rank-6.json", folder);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct lib_timeline *t;
        const struct rlimit most = {5000, 5000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &most);
        dup2(open("/dev/null", O_WRONLY), 2);
        if (lib_timeline_open(&t, folder, PLENTY, 6, "n") < 0) _exit(1);
        for (int i = 0; i < 1000; i++) lib_timeline_add(t, "allreduce", "too much", i, i + .5, 8);
        lib_timeline_close(&t);
        _exit(t ? 2 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    cJSON *array = read_events(true);
    ok(status == 0 && array && count_of(array, "X") > 10 && kolo_file_size(path) <= 5000,
       "a full disk ends the timeline, and nothing else");
    cJSON_Delete(array);
}

/* Whether the file is whole, has a head with the clock, and names the rows of its events. */
static bool stands_alone(const char *file, double *first, double *last)
{
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cJSON *array = read_events(false), *event;
    bool clock = false, row = false;
    *first = -1;
    cJSON_ArrayForEach(event, array)
    {
        const char *name = cJSON_GetObjectItem(event, "name")->valuestring;
        clock |= strcmp(name, "kolo_clock") == 0;
        row |= strcmp(name, "thread_name") == 0;
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0) continue;
        *last = cJSON_GetObjectItem(event, "ts")->valuedouble * 1e-6;
        if (*first < 0) *first = *last;
    }
    cJSON_Delete(array);
    return clock && row;
}

static void test_halves(void)
{
    enum { MOST = 400000, EVENTS = 12000 }; /* a ring holds them */
    struct lib_timeline *t;
    double first[2], last[2];
    if (lib_timeline_open(&t, folder, MOST, 7, "n") < 0) return (void)ok(0, "open: %s", kolo_error_text());
    lib_timeline_clock(t, 1.5, 1e-6);
    for (int i = 0; i < EVENTS; i++) lib_timeline_add(t, "allreduce", "layer.weight", i + 1, i + 1.5, 8);
    lib_timeline_close(&t);
    bool new = stands_alone("rank-7.json", &first[1], &last[1]);
    int64_t bytes = kolo_file_size(path);
    ok(stands_alone("rank-7.older.json", &first[0], &last[0]) && new,
       "a file that is long enough becomes the older half: both stand alone");
    bytes += kolo_file_size(path);
    ok(last[1] == EVENTS && first[1] == last[0] + 1 && first[0] > 1,
       "the last events are kept, the oldest are not: %.0f to %.0f, %.0f to %.0f", first[0], last[0],
       first[1], last[1]);
    ok(bytes <= MOST, "in bounded bytes: %ld", (long)bytes);
    is_int(lib_timeline_open(&t, folder, MOST, 7, "n"), 0, "another timeline there");
    lib_timeline_close(&t);
    ok(kolo_file_size(path) < 0, "has no older half");
}

static void test_refused(void)
{
    struct lib_timeline *t = NULL;
    is_int(lib_timeline_open(&t, "/dev/null/x", PLENTY, 0, "n"), KOLO_EIO,
           "a folder that cannot be made is an error");
    ok(!t && strstr(kolo_error_text(), "/dev/null"), "that names it: %s", kolo_error_text());
}

int main(void)
{
    if (!mkdtemp(folder)) skip_all("no temporary folder");
    snprintf(path, sizeof path, "%s/rank-3.json", folder);
    test_events();
    test_crowd();
    test_threads();
    test_killed();
    test_lost();
    test_full();
    test_halves();
    test_refused();
    kolo_folder_remove(folder);
    return done_testing();
}
