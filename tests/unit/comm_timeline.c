/* The timeline of a rank: many threads, odd names, a full ring, an end by SIGKILL; read by cJSON, after what Perfetto does about a missing end. */
#include "comm/library/timeline.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "tap.h"

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
    cJSON_ArrayForEach(event, array) count += strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, kind) == 0;
    return count;
}

static void test_events(void)
{
    struct lib_timeline *t;
    if (lib_timeline_open(&t, folder, 3, "node \"7\"") < 0) return (void)ok(0, "open: %s", kolo_error_text());
    lib_timeline_clock(t, 1.5, 1e-6);
    lib_timeline_add(t, "pack", "a \"quoted\"\n\xff name", 1.0, 1.5, 4096);
    lib_timeline_add(t, "pack", NULL, 2.0, 2.25, 0);
    lib_timeline_add(t, "allreduce",
                     "much longer than any place that was made for a name, which is cut off where it ends", 2.0, 3.0,
                     1);
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
           cJSON_GetObjectItem(last, "dur")->valuedouble == 5e5 && cJSON_GetObjectItem(last, "pid")->valueint == 3 &&
           cJSON_GetObjectItem(cJSON_GetObjectItem(last, "args"), "bytes")->valueint == 4096,
       "microseconds, the rank, bytes");
    is_int(rows, 3, "what overlaps stands in a row of its own");
    cJSON_Delete(array);
    lib_timeline_add(NULL, "pack", "x", 0, 1, 0);
    ok(1, "without a timeline an event is nothing");
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
    if (lib_timeline_open(&t, folder, 0, "n") < 0) return (void)ok(0, "open: %s", kolo_error_text());
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
            if (lib_timeline_open(&t, folder, 9, "n") < 0) _exit(1);
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

static void test_refused(void)
{
    struct lib_timeline *t = NULL;
    is_int(lib_timeline_open(&t, "/dev/null/x", 0, "n"), KOLO_EIO, "a folder that cannot be made is an error");
    ok(!t && strstr(kolo_error_text(), "/dev/null"), "that names it: %s", kolo_error_text());
}

int main(void)
{
    if (!mkdtemp(folder)) skip_all("no temporary folder");
    snprintf(path, sizeof path, "%s/rank-3.json", folder);
    test_events();
    test_threads();
    test_killed();
    test_refused();
    kolo_folder_remove(folder);
    return done_testing();
}
