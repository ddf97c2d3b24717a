#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 }; /* PIPE_BUF on Linux: one write of this size is not mixed with others in a pipe */

static atomic_int log_level = KOLO_LOG_INFO;
static int log_rank, log_size;
static char log_host[256];

void kolo_log_identity(int rank, int size, const char *host)
{
    log_rank = rank;
    log_size = size;
    snprintf(log_host, sizeof log_host, "%s", host ? host : "");
}

void kolo_log_set_level(enum kolo_log_level level) { atomic_store(&log_level, (int)level); }

static bool is_silent(enum kolo_log_level level) { return (int)level > atomic_load(&log_level); }

static void write_whole(const char *line, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, line, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody reads stderr any more */
        line += n;
        bytes -= (size_t)n;
    }
}

static size_t line_head(char *line, enum kolo_log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t used = strftime(line, LINE_BYTES, "[%Y-%m-%d %H:%M:%S] ", &local);
    int n = log_size > 0
                ? snprintf(line + used, LINE_BYTES - used, "[%d %s] %s: ", log_rank, log_host, names[level])
                : snprintf(line + used, LINE_BYTES - used, "%s: ", names[level]);
    return used + (size_t)n;
}

char *kolo_plain(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        const bool wide = at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0; /* U+0080 to U+009F */
        if (wide) *at++ = '?';
        if (wide || (iscntrl(*at) && *at != '\n')) *at = *at == '\t' ? ' ' : '?';
    }
    return text;
}

__attribute__((format(printf, 2, 0))) static void log_line(enum kolo_log_level level, const char *format,
                                                           va_list list)
{
    char line[LINE_BYTES];
    int saved = errno;
    size_t used = line_head(line, level);
    errno = saved; /* the format may hold %m */
    int n = vsnprintf(line + used, sizeof line - used, format, list);
    if (n > 0) used += (size_t)n;
    if (used > sizeof line - 2) used = sizeof line - 2;
    if (line[used - 1] == '\n') used--;
    /* names of files and tensors may hold anything: no line of their own, no word to the terminal */
    for (size_t i = 0; i < used; i++)
        if (iscntrl((unsigned char)line[i])) line[i] = line[i] == '\n' || line[i] == '\t' ? ' ' : '?';
    line[used++] = '\n';
    write_whole(line, used);
    errno = saved;
}

void kolo_log(enum kolo_log_level level, const char *format, ...)
{
    if (is_silent(level)) return;
    va_list list;
    va_start(list, format);
    log_line(level, format, list);
    va_end(list);
}

void kolo_log0(enum kolo_log_level level, const char *format, ...)
{
    if (log_rank != 0 || is_silent(level)) return;
    va_list list;
    va_start(list, format);
    log_line(level, format, list);
    va_end(list);
}
