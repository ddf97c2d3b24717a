/* The progress line, in a log and at a terminal. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "report/report.h"
#include "tap.h"

static int saved_stderr;
static char path[] = "/tmp/kolo_progress_XXXXXX";

static void to_file(void)
{
    fflush(stderr);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static char *back(void)
{
    char *text = NULL;
    dup2(saved_stderr, STDERR_FILENO);
    kolo_file_read(path, &text, NULL);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
    return n;
}

static void in_a_log(void)
{
    kolo_options o;
    kolo_progress *p = NULL;
    kolo_options_default(&o);
    to_file();
    kolo_progress_create(&p, &o, 1000);
    kolo_progress_phase(p, 0, 0, 10, 100, 32);
    kolo_progress_step(p, 1, 2.5, .1, .25, -1);
    char *text = back();
    ok(count(text, "\n") == 1 &&
           strstr(text, "epoch 1/10  step 1/1000  loss 2.5000  lr 0.1  -- img/s  wait 25.0%  ETA --"),
       "the first step says a line at once: %.90s", text);
    ok(!strchr(text, '\033') && !strchr(text, '\r'), "without control characters");
    free(text);
    to_file();
    for (int step = 2; step < 1000; step++) kolo_progress_step(p, step, 2, .1, 0, -1);
    kolo_progress_note(p, "step %d: validation", 999);
    kolo_progress_step(p, 1000, 1.5, .05, NAN, -1);
    text = back();
    ok(count(text, "\n") == 2 && strstr(text, "step 999: validation\n"),
       "then the interval is kept, and notes are lines of their own");
    ok(strstr(text, "100%  epoch 10/10  step 1000/1000  loss 1.5000") && strstr(text, "ETA 0:00:00"),
       "the last step is told");
    free(text);
    kolo_progress_destroy(&p);
    kolo_options_free(&o);
}

static void rate(void)
{
    kolo_options o;
    kolo_progress *p = NULL;
    kolo_options_default(&o);
    o.progress = 0;
    to_file();
    kolo_progress_create(&p, &o, 100);
    kolo_progress_phase(p, 0, 0, 10, 10, 10);
    const double begin = kolo_time();
    kolo_progress_step(p, 41, 1, 1, 0, -1);
    for (int i = 0; i < 5; i++) {
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        kolo_progress_step(p, 42 + i, 1, 1, 0, -1);
    }
    const double slowest = 50 / (kolo_time() - begin); /* 200, but for what a loaded machine takes */
    char *text = back();
    const char *last = strstr(text, "step 46/");
    double got = 0;
    ok(last && sscanf(last, "step 46/100 loss 1.0000 lr 1 %lf img/s", &got) == 1,
       "a line a step at progress=0");
    ok(got > slowest * 0.95 - 1 && got <= 201, "10 images every 50 ms are %.0f img/s, at least %.0f", got,
       slowest);
    free(text);
    to_file();
    kolo_progress_pause(p);
    nanosleep(&(struct timespec){0, 500000000}, NULL);
    kolo_progress_step(p, 47, 1, 1, 0, -1);
    text = back();
    double after = 0;
    last = strstr(text, "step 47/");
    ok(last && sscanf(last, "step 47/100 loss 1.0000 lr 1 %lf img/s", &after) == 1 && fabs(after - got) < 1,
       "a pause is not training time");
    free(text);
    kolo_progress_destroy(&p);
    kolo_options_free(&o);
}

/* What is written comes in pieces, some later: until there is none for a moment. */
static ssize_t read_terminal(int master, char *text, size_t size)
{
    struct pollfd p = {.fd = master, .events = POLLIN};
    size_t used = 0;
    while (used + 1 < size && poll(&p, 1, used ? 200 : 10000) > 0) {
        const ssize_t n = read(master, text + used, size - 1 - used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    text[used] = 0;
    return (ssize_t)used;
}

static void at_a_terminal(void)
{
    kolo_options o;
    kolo_progress *p = NULL;
    char text[8192];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        skip("no pseudo-terminal here");
        return;
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = 132};
    ioctl(slave, TIOCSWINSZ, &size);
    kolo_options_default(&o);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("NO_COLOR");
    o.progress = 0;
    dup2(slave, STDERR_FILENO);
    kolo_progress_create(&p, &o, 100);
    kolo_progress_phase(p, 0, 0, 10, 10, 8);
    kolo_progress_step(p, 50, 1, 1, 0, -1);
    dup2(saved_stderr, STDERR_FILENO);
    ssize_t n = read_terminal(master, text, sizeof text);
    ok(strstr(text, "\033[K") && strchr(text, '[') && count(text, "#") == 12 && count(text, "\n") == 0,
       "one line in place with half a bar of 24");
    ok(strstr(text, "\033[36m"), "in colour");
    size.ws_col = 40;
    ioctl(slave, TIOCSWINSZ, &size);
    setenv("LC_ALL", "C.UTF-8", 1);
    dup2(slave, STDERR_FILENO);
    kolo_progress_step(p, 51, 1, 1, 0, -1);
    dup2(saved_stderr, STDERR_FILENO);
    n = read_terminal(master, text, sizeof text);
    ok(n > 0 && n < 50 && strstr(text, "51%"), "a narrow terminal gets a short line (%d bytes)", (int)n);
    dup2(slave, STDERR_FILENO);
    kolo_progress_note(p, "hello");
    dup2(saved_stderr, STDERR_FILENO);
    n = read_terminal(master, text, sizeof text);
    const char *note = strstr(text, "\r\033[Khello");
    ok(note && strstr(note, "51%"), "a note takes the line's place, which comes back below");
    kolo_progress_destroy(&p);
    o.color = KOLO_color_never;
    dup2(slave, STDERR_FILENO);
    kolo_progress_create(&p, &o, 100);
    kolo_progress_phase(p, 0, 0, 10, 10, 8);
    kolo_progress_step(p, 1, 1, 1, 0, -1);
    dup2(saved_stderr, STDERR_FILENO);
    n = read_terminal(master, text, sizeof text);
    ok(!strchr(text, '\033'), "color=never is plain");
    kolo_progress_destroy(&p);
    kolo_options_free(&o);
    close(slave);
    close(master);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    saved_stderr = dup(STDERR_FILENO);
    in_a_log();
    rate();
    at_a_terminal();
    unlink(path);
    return done_testing();
}
