/* events.jsonl: every line is JSON, and a resumed run continues the file as if it had never stopped. */
#include <cjson/cJSON.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "kolo/error.h"
#include "report/report.h"
#include "tap.h"

static char folder[] = "/tmp/kolo_events_XXXXXX";
static char path[128];

static kolo_step_event step_event(int64_t step)
{
    return (kolo_step_event){.step = step,
                             .epoch = step / 4,
                             .loss = 1.0 / (double)step,
                             .lr = .1,
                             .top1 = .5,
                             .grad_norm = 2,
                             .seconds = .25,
                             .wait = 0};
}

static void write_steps(int64_t after, int64_t from, int64_t to, int64_t *repeated)
{
    kolo_events *e = NULL;
    if (kolo_events_open(&e, folder, after, repeated) < 0) diag("%s", kolo_error_text());
    kolo_events_write(e, "start", "\"step\":%lld", (long long)after);
    for (int64_t s = from; s <= to; s++) {
        kolo_step_event event = step_event(s);
        kolo_events_step(e, &event);
    }
    kolo_events_close(&e);
}

/* Lines that are JSON objects with "event"; the others are counted in *bad. */
static int count_lines(int *bad, int *steps)
{
    char line[4096];
    int good = 0;
    FILE *f = fopen(path, "r");
    *bad = *steps = 0;
    while (f && fgets(line, sizeof line, f)) {
        cJSON *o = cJSON_Parse(line);
        const cJSON *event = cJSON_GetObjectItem(o, "event");
        int fine = cJSON_IsString(event) && strchr(line, '\n') && o->child == event;
        good += fine;
        *bad += !fine;
        *steps += fine && !strcmp(event->valuestring, "step");
        cJSON_Delete(o);
    }
    if (f) fclose(f);
    return good;
}

static char *contents(void)
{
    char *text = NULL;
    kolo_file_read(path, &text, NULL);
    return text;
}

static void append(const char *text, size_t bytes)
{
    FILE *f = fopen(path, "a");
    fwrite(text, 1, bytes, f);
    fclose(f);
}

static void lines(void)
{
    int bad, steps;
    int64_t repeated = -1;
    write_steps(0, 1, 10, &repeated);
    is_int(repeated, 0, "a new file repeats nothing");
    is_int(count_lines(&bad, &steps), 11, "one line an event");
    ok(bad == 0 && steps == 10, "each of them a JSON object with \"event\" first");
    char *text = contents();
    ok(strstr(text, "{\"event\":\"step\",\"step\":3,\"epoch\":0,\"loss\":0.333333333,\"lr\":0.1,"),
       "the loss has 9 digits");
    free(text);
}

static void cut(void)
{
    int bad, steps;
    int64_t repeated = -1;
    char *before = NULL; /* in place: gcc 12 mistakes what contents() returns for its variable */
    kolo_file_read(path, &before, NULL);
    const char *end = strstr(before, "{\"event\":\"step\",\"step\":7,");
    size_t kept = end ? (size_t)(end - before) : 0;
    write_steps(6, 7, 10, &repeated);
    char *after = contents();
    is_int(repeated, 4, "resumed after step 6: steps 7 to 10 are cut");
    ok(kept > 0 && !strncmp(before, after, kept), "everything before stays");
    free(after);
    free(before);
    ok(count_lines(&bad, &steps) == 12 && steps == 10 && bad == 0, "and each step is there once");

    append("{\"event\":\"step\",\"step\":11,\"lo", 29);
    write_steps(10, 11, 12, &repeated);
    ok(count_lines(&bad, &steps) == 15 && steps == 12 && bad == 0 && repeated == 0,
       "a torn last line is dropped");
    append("{\"event\":\"ev\0\0\0\0\0\0\n", 20);
    write_steps(12, 13, 13, &repeated);
    ok(count_lines(&bad, &steps) == 17 && steps == 13 && bad == 0, "and one that a crash filled with zeros");
    append("{\"step\": 14, \"event\": \"step\"}\n{\"event\":\"eval\",\"step\":14}\n", 58);
    write_steps(13, 14, 14, &repeated);
    ok(repeated == 1 && count_lines(&bad, &steps) == 19 && steps == 14,
       "events of other writers and what follows a cut step go too");
    write_steps(0, 1, 2, &repeated);
    ok(repeated == 14 && count_lines(&bad, &steps) == 3 && steps == 2,
       "a run that begins anew keeps nothing and says what it repeats");
}

static void texts(void)
{
    kolo_events *e = NULL;
    int bad, steps;
    kolo_events_open(&e, folder, 2, NULL);
    kolo_events_write(e, "eval \"x\"", "\"top1\":%.9g,\"loss\":%g,\"worst\":%f,\"name\":\"nan and inf\"", .5,
                      (double)NAN, -(double)INFINITY);
    kolo_events_write(e, "none", "%s", "");
    kolo_events_write(e, "note", "\"text\":\"%s\"", "two\nlines\tand a tab");
    kolo_events_write(e, "slip", "\"text\": %s", "unquoted \"text\"");
    kolo_step_event event = {.step = 3, .loss = NAN, .lr = INFINITY};
    kolo_events_step(e, &event);
    is_int(kolo_events_flush(e), 0, "flushed (%s)", kolo_error_text());
    is_int(count_lines(&bad, &steps), 8, "five more lines on the disk before the file is closed");
    is_int(bad, 0, "all of them JSON, whatever was in them");
    char *text = contents();
    ok(strstr(text, "\"loss\":null,\"worst\":null,\"name\":\"nan and inf\""),
       "nan and inf are null, but not within a text");
    ok(strstr(text, "\"loss\":null,\"lr\":null"), "in steps too");
    free(text);
    kolo_events_close(&e);
}

static void full_disk(void)
{
    kolo_events *e = NULL;
    int bad, steps, rc = 0;
    kolo_events_open(&e, folder, 2, NULL);
    kolo_events_write(e, "start", "\"x\":1");
    struct rlimit old, small = {.rlim_cur = (rlim_t)kolo_file_size(path) + 40, .rlim_max = RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 3; i < 6; i++) {
        kolo_step_event event = step_event(i);
        kolo_events_step(e, &event);
    }
    rc = kolo_events_flush(e);
    count_lines(&bad, &steps);
    setrlimit(RLIMIT_FSIZE, &old); /* before a word on stdout, which may be a file too */
    is_int(rc, KOLO_EIO, "no room for the next lines (%s)", kolo_error_text());
    is_int(bad, 0, "no half line is left behind");
    is_int(kolo_events_flush(e), 0, "and when there is room again");
    count_lines(&bad, &steps);
    ok(steps == 5 && bad == 0, "nothing is lost");
    kolo_events_close(&e);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/events.jsonl", folder);
    kolo_events *none = NULL;
    lines();
    cut();
    texts();
    full_disk();
    is_int(kolo_events_open(&none, "/nonexistent", 0, NULL), KOLO_EIO, "a folder that is not there (%s)",
           kolo_error_text());
    kolo_folder_remove(folder);
    return done_testing();
}
