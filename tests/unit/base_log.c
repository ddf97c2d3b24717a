#include "base/log.h"

#include <regex.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

/* What `speak` writes to stderr; caller frees. */
static char *heard(void (*speak)(void))
{
    int ends[2], saved = dup(2);
    char *text = calloc(1, 1 << 20);
    if (pipe(ends) < 0 || !text) return text;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        speak();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n, used = 0; (n = read(ends[0], text + used, (1 << 20) - 1 - (size_t)used)) > 0;) used += n;
    close(ends[0]);
    close(saved);
    waitpid(child, NULL, 0);
    return text;
}

static int matches(const char *pattern, const char *text)
{
    regex_t re;
    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB)) return 0;
    int rc = regexec(&re, text, 0, NULL, 0);
    regfree(&re);
    return rc == 0;
}

static void expect(void (*speak)(void), const char *pattern, const char *name)
{
    char *text = heard(speak);
    if (!ok(matches(pattern, text), "%s", name)) diag("got: %s", text);
    free(text);
}

static void early(void) { kolo_info("%d bottles", 3); }

static void later(void)
{
    kolo_log_identity(3, 4, "node7");
    kolo_warn("low");
}

static void info_of_rank_3(void)
{
    kolo_log_identity(3, 4, "node7");
    kolo_info("not for this rank");
}

static void debug_unasked(void) { kolo_debug("hidden"); }

static void debug_asked(void)
{
    kolo_log_set_level(KOLO_LOG_DEBUG);
    kolo_debug("shown");
}

static void only_errors(void)
{
    kolo_log_set_level(KOLO_LOG_ERROR);
    kolo_warn("hidden");
    kolo_error("seen");
}

static void forged(void) { kolo_warn("a\nb\tc\033[31m%s", "\n"); }

static void huge(void)
{
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    kolo_warn("%s", text);
    kolo_warn("after");
}

static void many_processes(void)
{
    for (int p = 0; p < 4; p++)
        if (fork() == 0) {
            kolo_log_identity(p, 4, "h");
            for (int i = 0; i < 200; i++)
                kolo_warn("line %d of the same length ............................", i % 10);
            _exit(0);
        }
    while (wait(NULL) > 0) continue;
}

#define TIME "^\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "

int main(void)
{
    expect(early, TIME "info: 3 bottles\n$", "before the launch a line has time and level");
    expect(later, TIME "\\[3 node7\\] warning: low\n$", "after the launch it has rank and host");
    expect(info_of_rank_3, "^$", "information comes from rank 0 only");
    expect(debug_unasked, "^$", "debug lines are off");
    expect(debug_asked, "debug: shown\n$", "and on when asked for");
    expect(only_errors, "^[^\n]*error: seen\n$", "a level hides what is below it");
    expect(forged, "^[^\n]*warning: a b c[?].31m *\n$",
           "what a name holds makes no line of its own, and tells the terminal nothing");
    expect(huge, "^[^\n]*xxx\n[^\n]*warning: after\n$", "a line too long is cut and ends");
    char *text = heard(many_processes);
    int lines = 0, whole = 0;
    for (char *line = strtok_r(text, "\n", &(char *){NULL}); line;) {
        lines++;
        whole += matches(TIME "\\[[0-3] h\\] warning: line [0-9] of the same length \\.+$", line);
        line += strlen(line) + 1;
        if (!*line) break;
        char *end = strchr(line, '\n');
        if (end) *end = 0;
    }
    is_int(lines, 800, "four processes write 800 lines");
    is_int(whole, 800, "and none is mixed with another");
    free(text);
    return done_testing();
}
