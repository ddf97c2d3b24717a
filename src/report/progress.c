/* The progress line: at a terminal rewritten in place, in a log a line now and then. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "report/report.h"

enum { LINE = 512, LOG_FACTOR = 10, BAR = 24, BAR_LEAST = 8, WIDTH = 80, TIME = 32 };
static const double memory_seconds = 15; /* of the moving average of img/s */

struct kolo_progress {
    int64_t total, per_epoch, batch, begin, epoch, epochs; /* begin, epoch: of this phase */
    double interval;                                       /* between lines */
    bool in_place, colour, blocks;
    bool painted;    /* a line stands at the cursor */
    char text[LINE]; /* what was said last, without bar */
    double fraction;
    double printed_at;      /* when the last line was printed; negative: never */
    int64_t step, first;    /* last seen; first of this start */
    double began, last;     /* time of the first and of the last step */
    double images, seconds; /* fading sums: img/s is their ratio */
    bool paused;
};

static void write_out(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody left to tell */
        text += n;
        bytes -= (size_t)n;
    }
}

static bool locale_is_utf8(void)
{
    const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

int kolo_progress_create(kolo_progress **progress, const kolo_options *options, int64_t steps_total)
{
    kolo_progress *p = *progress = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
    p->total = steps_total;
    p->per_epoch = steps_total > 0 ? steps_total : 1;
    p->epochs = 1;
    p->in_place = options->color == KOLO_color_always || (options->color == KOLO_color_auto && terminal);
    p->colour = p->in_place && (options->color == KOLO_color_always || !(no_color && *no_color));
    p->blocks = p->in_place && locale_is_utf8();
    p->interval = options->progress * (p->in_place ? 1 : LOG_FACTOR);
    p->printed_at = -1;
    return 0;
}

void kolo_progress_phase(kolo_progress *p, int64_t first, int64_t epoch, int64_t epochs,
                         int64_t steps_per_epoch, int64_t batch)
{
    p->begin = first;
    p->epoch = epoch;
    p->epochs = epochs;
    p->per_epoch = steps_per_epoch > 0 ? steps_per_epoch : p->total > 0 ? p->total : 1;
    p->batch = batch;
}

/* Adds to a line of LINE bytes. */
static void progress_add(char *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void progress_add(char *line, const char *format, ...)
{
    size_t used = strlen(line);
    va_list list;
    va_start(list, format);
    vsnprintf(line + used, LINE - used, format, list);
    va_end(list);
}

static void add_duration(char *line, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        progress_add(line, "--");
        return;
    }
    long s = lround(seconds);
    if (s >= 86400)
        progress_add(line, "%ldd %02ld:%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
    else progress_add(line, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

static void form_text(kolo_progress *p, double loss, double lr, double wait_share, double useful, double now)
{
    char *line = p->text;
    int64_t epoch = p->epoch + (p->step > p->begin ? p->step - 1 - p->begin : 0) / p->per_epoch + 1,
            done = p->step - p->first;
    double rate = p->seconds > 0 ? p->images / p->seconds : NAN;
    *line = 0;
    p->fraction = p->total > 0 ? (double)p->step / (double)p->total : 0;
    progress_add(line, "%3.0f%%  epoch %lld/%lld  step %lld/%lld  loss %.4f  lr %.4g",
                 floor(100 * p->fraction), (long long)epoch, (long long)p->epochs, (long long)p->step,
                 (long long)p->total, loss, lr);
    if (isfinite(rate)) progress_add(line, rate < 10 ? "  %.2f img/s" : "  %.0f img/s", rate);
    else progress_add(line, "  -- img/s");
    if (useful > 0) progress_add(line, "  useful batch %.3g", useful);
    progress_add(line, "  wait %.1f%%  ETA ", 100 * (isfinite(wait_share) ? wait_share : 0));
    add_duration(line, done > 0              ? (now - p->began) / (double)done * (double)(p->total - p->step)
                       : p->step >= p->total ? 0
                                             : -1);
}

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : WIDTH;
}

static void add_bar(const kolo_progress *p, char *line, int cells)
{
    int full = (int)(p->fraction * cells + 1e-9);
    progress_add(line, "%s", p->blocks ? "" : "[");
    if (p->colour) progress_add(line, "\033[36m");
    for (int i = 0; i < full && i < cells; i++) progress_add(line, "%s", p->blocks ? "\xE2\x96\x88" : "#");
    if (p->colour) progress_add(line, "\033[90m");
    for (int i = full; i < cells; i++) progress_add(line, "%s", p->blocks ? "\xE2\x96\x91" : ".");
    if (p->colour) progress_add(line, "\033[0m");
    progress_add(line, "%s", p->blocks ? " " : "] ");
}

/* The cursor goes back to the first column, so that a log line of somebody else overwrites and does
 * not lengthen this one. */
static void paint(kolo_progress *p)
{
    char line[LINE] = "\r\033[K";
    int width = terminal_width() - 1, room = width - (int)strlen(p->text) - (p->blocks ? 1 : 3);
    if (room >= BAR_LEAST) add_bar(p, line, room < BAR ? room : BAR);
    progress_add(line, "%.*s\r", width > 0 ? width : 0, p->text);
    write_out(line, strlen(line));
    p->painted = true;
}

/* What other lines of a log begin with, too. */
static size_t put_time(char line[static TIME])
{
    const time_t now = time(NULL);
    struct tm local;
    return strftime(line, TIME, "[%Y-%m-%d %H:%M:%S] ", localtime_r(&now, &local));
}

static void progress_print(kolo_progress *p, double now)
{
    p->printed_at = now;
    if (p->in_place) {
        paint(p);
        return;
    }
    char line[TIME + LINE + 1];
    const size_t n = put_time(line);
    write_out(line, n + (size_t)snprintf(line + n, sizeof line - n, "%s\n", p->text));
}

static void progress_measure(kolo_progress *p, int64_t step, double now)
{
    if (p->printed_at < 0) {
        p->first = step;
        p->began = now;
    } else if (!p->paused && now > p->last) {
        double fade = exp((p->last - now) / memory_seconds);
        p->images = p->images * fade + (double)(step - p->step) * (double)p->batch;
        p->seconds = p->seconds * fade + (now - p->last);
    }
    p->paused = false;
    p->step = step;
    p->last = now;
}

void kolo_progress_step(kolo_progress *progress, int64_t step, double loss, double lr, double wait_share,
                        double useful_batch)
{
    kolo_progress *p = progress;
    double now = kolo_time();
    bool first = p->printed_at < 0;
    progress_measure(p, step, now);
    if (!first && now - p->printed_at < p->interval && step != p->total) return;
    form_text(p, loss, lr, wait_share, useful_batch, now);
    progress_print(p, now);
}

const char *kolo_progress_text(const kolo_progress *progress) { return progress->text; }

void kolo_progress_pause(kolo_progress *progress) { progress->paused = true; }

void kolo_progress_note(kolo_progress *progress, const char *format, ...)
{
    char line[2 * LINE] = "";
    va_list list;
    size_t n = 0;
    if (progress->painted) n = (size_t)snprintf(line, sizeof line, "\r\033[K");
    else if (!progress->in_place) n = put_time(line);
    va_start(list, format);
    vsnprintf(line + n, sizeof line - n - 1, format, list);
    va_end(list);
    size_t length = strlen(line);
    line[length++] = '\n';
    write_out(line, length);
    if (progress->painted) paint(progress);
}

/* The last line stays on the screen. */
void kolo_progress_destroy(kolo_progress **progress)
{
    if (*progress && (*progress)->painted) write_out("\n", 1);
    free(*progress);
    *progress = NULL;
}
