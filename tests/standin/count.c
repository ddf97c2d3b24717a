/* Every call is counted by name and by kind, traced if wanted, and fails where STANDIN_FAIL says so. What is
 * alive at exit is a leak. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/standin.h"
#include "standin/tell.h"

static const char *const kind_name[STANDIN_KINDS] = {
    "other",   "allocations", "synchronisations", "launches", "copies",         "pageable",      "events",
    "queries", "awaited",     "creations",        "captures", "graph_launches", "host_functions"};

typedef struct entry {
    char name[96];
    bool kernel;
    int64_t count;
} entry;

typedef struct thing {
    const char *what;
    const void *object;
    uint64_t number;
} thing;

enum { ENTRIES = 1024, DEFECTS = 64, STEPS = 4096 };
/* of this file alone: nothing is called with it held */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry entries[ENTRIES];
static int64_t kinds[STANDIN_KINDS], step_kinds[STANDIN_KINDS];
static int64_t steps[STEPS][STANDIN_KINDS];
static int step_count = -1; /* the first graph launch only begins the count */
static char defect[DEFECTS][256];
static int defects;
static thing *things;
static int64_t things_alive, things_capacity;
static uint64_t things_made;
static FILE *trace;
static bool trace_opened;

int64_t standin_setting(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

uint64_t standin_random(uint64_t *state)
{
    if (*state == 0) *state = ((uint64_t)standin_setting("STANDIN_SEED", 1) + 1) * 0x9E3779B97F4A7C15ull;
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* ---- counts and injected failures ---- */

static entry *entry_of(const char *name, bool kernel, bool make)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (!entries[i].name[0]) {
            if (!make) return NULL;
            snprintf(entries[i].name, sizeof entries[i].name, "%s", name);
            entries[i].kernel = kernel;
            return &entries[i];
        }
        if (entries[i].kernel == kernel && !strncmp(entries[i].name, name, sizeof entries[i].name - 1))
            return &entries[i];
    }
    return &entries[ENTRIES - 1];
}

/* STANDIN_FAIL=CALL:NUMBER[:CODE],...: the NUMBER-th call, from 1. */
static bool wanted_to_fail(const char *call, int64_t number, int *code)
{
    const char *at = getenv("STANDIN_FAIL");
    size_t length = strlen(call);
    while (at && *at) {
        if (!strncmp(at, call, length) && at[length] == ':') {
            char *end;
            int64_t wanted = strtoll(at + length + 1, &end, 10);
            if (wanted == number) {
                *code = *end == ':' ? atoi(end + 1) : 0;
                return true;
            }
        }
        at = strchr(at, ',');
        if (at) at++;
    }
    return false;
}

bool standin_begin(const char *call, enum standin_kind kind, int *code)
{
    *code = 0;
    pthread_mutex_lock(&lock);
    int64_t number = ++entry_of(call, false, true)->count;
    kinds[kind]++;
    pthread_mutex_unlock(&lock);
    bool fails = wanted_to_fail(call, number, code);
    standin_log("call %s%s", call, fails ? " FAILS" : "");
    return fails;
}

void standin_count_more(enum standin_kind kind)
{
    pthread_mutex_lock(&lock);
    kinds[kind]++;
    pthread_mutex_unlock(&lock);
}

void standin_count_kernel(const char *name)
{
    pthread_mutex_lock(&lock);
    entry_of(name, true, true)->count++;
    pthread_mutex_unlock(&lock);
}

void standin_mark_step(void)
{
    pthread_mutex_lock(&lock);
    for (int k = 0; k < STANDIN_KINDS; k++) {
        if (step_count >= 0 && step_count < STEPS) steps[step_count][k] = kinds[k] - step_kinds[k];
        step_kinds[k] = kinds[k];
    }
    step_count++;
    pthread_mutex_unlock(&lock);
}

void standin_log(const char *format, ...)
{
    pthread_mutex_lock(&lock);
    if (!trace_opened) {
        const char *path = getenv("STANDIN_LOG");
        trace_opened = true;
        if (path && *path) trace = fopen(path, "ae");
        if (trace) setvbuf(trace, NULL, _IOLBF, 0);
    }
    if (trace) {
        va_list list;
        fprintf(trace, "%d ", (int)getpid());
        va_start(list, format);
        vfprintf(trace, format, list);
        va_end(list);
        fputc('\n', trace);
    }
    pthread_mutex_unlock(&lock);
}

void standin_defect(const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    pthread_mutex_lock(&lock);
    bool known = false;
    for (int i = 0; i < defects && i < DEFECTS; i++) known |= !strcmp(defect[i], text);
    if (!known && defects < DEFECTS) {
        memcpy(defect[defects], text, sizeof text);
        fprintf(stderr, "stand-in GPU: defect: %s\n", text);
    }
    defects += !known;
    pthread_mutex_unlock(&lock);
    standin_log("defect %s", text);
}

/* ---- what is alive ---- */

void standin_track(const char *what, const void *object)
{
    pthread_mutex_lock(&lock);
    if (things_alive == things_capacity) {
        things_capacity = things_capacity ? 2 * things_capacity : 256;
        things = realloc(things, (size_t)things_capacity * sizeof *things);
        if (!things) abort();
    }
    things[things_alive++] = (thing){what, object, ++things_made};
    pthread_mutex_unlock(&lock);
}

static bool thing_is(int64_t i, const char *what, const void *object)
{
    return things[i].object == object && !strcmp(things[i].what, what);
}

/* Most are asked for again and again: first where one of its hash was found the last time. */
static int64_t find_thing(const char *what, const void *object)
{
    enum { HINTS = 4096 };
    static int64_t hints[HINTS];
    int64_t *hint = &hints[((uintptr_t)object >> 4) % HINTS];
    if (*hint < things_alive && thing_is(*hint, what, object)) return *hint;
    for (int64_t i = things_alive - 1; i >= 0; i--)
        if (thing_is(i, what, object)) return *hint = i;
    return -1;
}

bool standin_is(const char *what, const void *object)
{
    pthread_mutex_lock(&lock);
    int64_t i = find_thing(what, object);
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

bool standin_untrack(const char *what, const void *object)
{
    pthread_mutex_lock(&lock);
    int64_t i = find_thing(what, object);
    if (i >= 0) things[i] = things[--things_alive];
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

/* ---- what tests may ask (tell.h) ---- */

int64_t standin_count(const char *what)
{
    int64_t n = 0;
    pthread_mutex_lock(&lock);
    const entry *e = entry_of(what, false, false);
    if (e) n = e->count;
    e = entry_of(what, true, false);
    if (e) n += e->count;
    for (int k = 0; k < STANDIN_KINDS; k++)
        if (!strcmp(kind_name[k], what)) n = kinds[k];
    if (!strcmp(what, "alive")) n = things_alive;
    if (!strcmp(what, "defects")) n = defects;
    pthread_mutex_unlock(&lock);
    return n;
}

const char *standin_defect_text(int i) { return i >= 0 && i < defects && i < DEFECTS ? defect[i] : NULL; }

void standin_forgive(void)
{
    pthread_mutex_lock(&lock);
    defects = 0;
    memset(defect, 0, sizeof defect);
    pthread_mutex_unlock(&lock);
}

static void report_steps(FILE *f)
{
    for (int s = 0; s < step_count && s < STEPS; s++) {
        fprintf(f, "step %d", s + 1);
        for (int k = 1; k < STANDIN_KINDS; k++) fprintf(f, " %s=%" PRId64, kind_name[k], steps[s][k]);
        fputc('\n', f);
    }
}

void standin_report(const char *path)
{
    char name[512];
    const char *number = strstr(path, "%p");
    if (number)
        snprintf(name, sizeof name, "%.*s%d%s", (int)(number - path), path, (int)getpid(), number + 2);
    else snprintf(name, sizeof name, "%s", path);
    FILE *f = fopen(name, "we");
    if (!f) return;
    pthread_mutex_lock(&lock);
    for (int k = 1; k < STANDIN_KINDS; k++) fprintf(f, "kind %s %" PRId64 "\n", kind_name[k], kinds[k]);
    for (int i = 0; i < ENTRIES && entries[i].name[0]; i++)
        fprintf(f, "%s %s %" PRId64 "\n", entries[i].kernel ? "kernel" : "call", entries[i].name,
                entries[i].count);
    report_steps(f);
    for (int i = 0; i < defects && i < DEFECTS; i++) fprintf(f, "defect %s\n", defect[i]);
    for (int64_t i = 0; i < things_alive; i++)
        fprintf(f, "leak %s %p, object number %" PRIu64 "\n", things[i].what, things[i].object,
                things[i].number);
    fprintf(f, "defects %d\nleaks %" PRId64 "\n", defects, things_alive);
    pthread_mutex_unlock(&lock);
    fclose(f);
}

__attribute__((destructor)) static void at_exit(void)
{
    const char *path = getenv("STANDIN_REPORT");
    standin_stop();
    if (path && *path) standin_report(path);
}
