#include "base/owner.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"

static void copy_environment(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);
    snprintf(to, size, "%s", value ? value : "");
}

/* A file of /proc, without its last newline; "" if it cannot be read. */
static void read_small(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

/* Fields of /proc/PID/stat that distinguish a process from a later one of the same number. */
static bool process_read(long pid, char *state, unsigned *flags, unsigned long long *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_small(path, text, sizeof text);
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    return rest &&
           sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  state, flags, start) == 3;
}

bool kolo_owner_process_runs(const owner *o)
{
    enum { EXITING = 4 }; /* PF_EXITING: killed, and busy giving back its memory */
    char state;
    unsigned flags;
    unsigned long long start;
    return process_read(o->pid, &state, &flags, &start) && start == o->start && state != 'Z' &&
           state != 'X' && !(flags & EXITING);
}

void kolo_owner_self(owner *me)
{
    char state;
    unsigned flags;
    time_t now = time(NULL);
    struct tm utc;
    *me = (owner){.pid = (long)getpid()};
    copy_environment(me->host, sizeof me->host, "SLURMD_NODENAME");
    if (!*me->host) gethostname(me->host, sizeof me->host - 1);
    read_small("/proc/sys/kernel/random/boot_id", me->boot, sizeof me->boot);
    process_read(me->pid, &state, &flags, &me->start);
    copy_environment(me->job, sizeof me->job, "SLURM_JOB_ID");
    copy_environment(me->restart, sizeof me->restart, "SLURM_RESTART_COUNT");
    copy_environment(me->step, sizeof me->step, "SLURM_STEP_ID");
    strftime(me->since, sizeof me->since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

char *kolo_owner_write(const owner *o)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return NULL;
    const struct {
        const char *key, *value;
    } member[] = {{"host", o->host},       {"boot", o->boot}, {"job", o->job},
                  {"restart", o->restart}, {"step", o->step}, {"since", o->since}};
    fprintf(f, "{\"pid\": %ld, \"start\": \"%llu\"", o->pid, o->start);
    for (size_t i = 0; i < sizeof member / sizeof *member; i++) {
        fprintf(f, ", \"%s\": ", member[i].key);
        kolo_json_string(f, member[i].value);
    }
    fputs("}\n", f);
    fclose(f);
    return text;
}

static void read_member(const cJSON *object, const char *key, char *to, size_t size)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    snprintf(to, size, "%s", cJSON_IsString(value) ? value->valuestring : "");
}

bool kolo_owner_read(owner *o, const char *text)
{
    char start[32];
    cJSON *object = cJSON_Parse(text);
    const cJSON *pid = cJSON_GetObjectItemCaseSensitive(object, "pid");
    bool good = cJSON_IsNumber(pid);
    if (good) {
        *o = (owner){.pid = pid->valueint};
        read_member(object, "start", start, sizeof start);
        o->start = strtoull(start, NULL, 10);
        read_member(object, "host", o->host, sizeof o->host);
        read_member(object, "boot", o->boot, sizeof o->boot);
        read_member(object, "job", o->job, sizeof o->job);
        read_member(object, "restart", o->restart, sizeof o->restart);
        read_member(object, "step", o->step, sizeof o->step);
        read_member(object, "since", o->since, sizeof o->since);
        good = *o->host;
    }
    cJSON_Delete(object);
    return good;
}

bool kolo_owner_equal(const owner *a, const owner *b)
{
    return a->pid == b->pid && a->start == b->start && !strcmp(a->boot, b->boot) && !strcmp(a->host, b->host);
}

/* Asks Slurm's queue. 1: it prints the line `wanted` (NULL: any); 0: it does not; -1: it cannot be asked.
 * answer: its first line. */
static int query_slurm(const char *question, const char *wanted, char *answer, size_t size)
{
    char line[256], first[256] = "";
    bool invalid = false, found = false;
    char *command = kolo_format("timeout 10 squeue -h %s 2>&1", question);
    FILE *p = command ? popen(command, "re") : NULL;
    free(command);
    if (!p) return -1;
    while (fgets(line, sizeof line, p)) {
        if (strstr(line, "Invalid job id")) invalid = true; /* exit code 1, as when Slurm cannot be reached */
        line[strcspn(line, " \n")] = 0;
        if (!*first) snprintf(first, sizeof first, "%s", line);
        if (wanted ? !strcmp(line, wanted) : *line != 0) found = true;
    }
    int status = pclose(p);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 124 || WEXITSTATUS(status) >= 126) return -1;
    if (WEXITSTATUS(status) != 0) return invalid ? 0 : -1;
    if (answer) snprintf(answer, size, "%s", first);
    return found;
}

static bool number(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!isdigit((unsigned char)*p)) return false;
    return *text;
}

/* Another job: the queue knows the unfinished ones. */
static enum owner_state state_by_queue(const owner *o, char *state, size_t size)
{
    if (!number(o->job)) return OWNER_UNKNOWN;
    char question[96];
    snprintf(question, sizeof question, "-j %s -o %%T", o->job);
    int known = query_slurm(question, NULL, state, size);
    return known < 0 ? OWNER_UNKNOWN : known ? OWNER_ALIVE : OWNER_GONE;
}

/* An earlier life of this job, or another step of it, which may still run on another node. */
static enum owner_state state_by_step(const owner *o, const owner *me)
{
    if (strcmp(o->restart, me->restart) || !number(o->step) || !number(o->job)) return OWNER_SELF;
    char question[96], name[80];
    snprintf(question, sizeof question, "-s -j %s -o %%i", o->job);
    snprintf(name, sizeof name, "%s.%s", o->job, o->step);
    return query_slurm(question, name, NULL, 0) == 1 ? OWNER_ALIVE : OWNER_SELF;
}

enum owner_state kolo_owner_look(const owner *o, const owner *me, char *state, size_t size)
{
    if (state && size) *state = 0;
    if (*me->boot && !strcmp(o->boot, me->boot)) return kolo_owner_process_runs(o) ? OWNER_ALIVE : OWNER_GONE;
    if (*o->job && !strcmp(o->job, me->job)) return state_by_step(o, me);
    enum owner_state by_job = *o->job ? state_by_queue(o, state, size) : OWNER_UNKNOWN;
    if (by_job != OWNER_UNKNOWN) return by_job;
    /* this machine, before its last start */
    bool rebooted = *o->boot && *me->boot && !strcmp(o->host, me->host);
    return rebooted ? OWNER_GONE : OWNER_UNKNOWN;
}

void kolo_owner_text(const owner *o, char *text, size_t size)
{
    int n = *o->job ? snprintf(text, size, "job %s, ", o->job) : 0;
    if (n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "process %ld on %s, since %s", o->pid, o->host, o->since);
}
