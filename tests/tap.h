/* TAP for C tests: plan at the end, one line a behaviour. Returns of main: done_testing(). */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int tap_count, tap_failed;

static inline int tap_line(int pass, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static inline int tap_line(int pass, const char *file, int line, const char *format, ...)
{
    va_list list;
    printf("%sok %d - ", pass ? "" : "not ", ++tap_count);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    if (!pass) {
        tap_failed++;
        printf("#   at %s:%d\n", file, line);
    }
    fflush(stdout);
    return pass;
}

#define ok(condition, ...) tap_line(!!(condition), __FILE__, __LINE__, __VA_ARGS__)
#define diag(...) (printf("# "), printf(__VA_ARGS__), printf("\n"), fflush(stdout))
#define is_int(got, want, ...)                                         \
    do {                                                               \
        long long got_ = (long long)(got), want_ = (long long)(want);  \
        if (!tap_line(got_ == want_, __FILE__, __LINE__, __VA_ARGS__)) \
            diag("  got %lld, want %lld", got_, want_);                \
    } while (0)
#define is_text(got, want, ...)                                                                  \
    do {                                                                                         \
        const char *got_ = (got), *want_ = (want);                                               \
        if (!tap_line(got_ && want_ && !strcmp(got_, want_), __FILE__, __LINE__, __VA_ARGS__))   \
            diag("  got \"%s\", want \"%s\"", got_ ? got_ : "(null)", want_ ? want_ : "(null)"); \
    } while (0)
#define is_near(got, want, tolerance, ...)                                                             \
    do {                                                                                               \
        double got_ = (got), want_ = (want), tol_ = (tolerance);                                       \
        if (!tap_line(fabs(got_ - want_) <= tol_, __FILE__, __LINE__, __VA_ARGS__))                    \
            diag("  got %.17g, want %.17g, apart %.3g, allowed %.3g", got_, want_, fabs(got_ - want_), \
                 tol_);                                                                                \
    } while (0)
#define skip_all(...) (printf("1..0 # SKIP "), printf(__VA_ARGS__), printf("\n"), exit(0))
#define skip(...) (printf("ok %d # SKIP ", ++tap_count), printf(__VA_ARGS__), printf("\n"))

/* Processor time of this thread in seconds: what a loaded machine does not stretch. */
static inline double tap_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int done_testing(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}

#endif
