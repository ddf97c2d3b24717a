#include "base/failure.h"

#include <pthread.h>

#include "tap.h"

static int fails(int status) { return kolo_fail(status, "%s: number %d", "here", 7); }

static int tries(int status, int *after)
{
    KOLO_TRY(fails(status));
    *after = 1;
    return 0;
}

static int tries_goto(int status, int *cleaned)
{
    int rc;
    KOLO_TRY_GOTO(rc, status < 0 ? fails(status) : 0);
    return 1;
fail:
    *cleaned = 1;
    return rc;
}

static void *other_thread(void *text)
{
    snprintf(text, 64, "%s", kolo_error_text());
    kolo_fail(KOLO_EIO, "of the other thread");
    return NULL;
}

/* As functions end that failed: what is undone may fail too. */
static int undo(int rc)
{
    kolo_failure first;
    kolo_error_keep(&first);
    kolo_fail(KOLO_EIO, "the disk is gone as well");
    return kolo_error_restore(&first, rc);
}

static void *fails_here(void *kept)
{
    kolo_fail(KOLO_EINPUT, "found by a worker");
    kolo_error_keep(kept);
    return NULL;
}

static void test_kept(void)
{
    kolo_fail(KOLO_EINPUT, "the first error");
    is_int(undo(KOLO_EINPUT), KOLO_EINPUT, "a restored failure returns its status");
    is_text(kolo_error_text(), "the first error", "an error of cleaning up does not replace the first text");
    is_int(kolo_error_status(), KOLO_EINPUT, "nor its status");
    is_int(undo(0), 0, "success stays success");
    is_text(kolo_error_text(), "the disk is gone as well", "and then the text is that of the later error");

    kolo_failure of_worker;
    pthread_t thread;
    pthread_create(&thread, NULL, fails_here, &of_worker);
    pthread_join(thread, NULL);
    is_int(kolo_error_restore(&of_worker, of_worker.status), KOLO_EINPUT,
           "a worker's status goes to its waiter");
    is_text(kolo_error_text(), "found by a worker", "and so does its text");
}

int main(void)
{
    is_int(kolo_error_status(), KOLO_EINTERNAL,
           "a status before the first error: that there is none is a defect");
    int after = 0, cleaned = 0;
    is_text(kolo_error_text(), "", "no text before the first error");
    is_int(tries(KOLO_EIO, &after), KOLO_EIO, "KOLO_TRY hands the status on");
    is_int(after, 0, "KOLO_TRY leaves at once");
    is_text(kolo_error_text(), "here: number 7", "the text is formatted");
    is_int(tries_goto(KOLO_EINPUT, &cleaned), KOLO_EINPUT, "KOLO_TRY_GOTO hands the status on");
    is_int(cleaned, 1, "KOLO_TRY_GOTO goes to fail");
    is_int(tries_goto(0, &cleaned), 1, "KOLO_TRY_GOTO goes on without an error");
    is_int(kolo_fail_in(KOLO_EINPUT, "reading %s: ", "x"), KOLO_EINPUT, "kolo_fail_in returns the status");
    is_text(kolo_error_text(), "reading x: here: number 7", "kolo_fail_in puts its words in front");
    kolo_fail(KOLO_EIO, "again: %s", kolo_error_text());
    is_text(kolo_error_text(), "again: reading x: here: number 7",
            "the old text can be an argument of the new one");

    char seen[64] = "?";
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, seen);
    pthread_join(thread, NULL);
    is_text(seen, "", "another thread has a text of its own");
    is_text(kolo_error_text(), "again: reading x: here: number 7", "and does not change this one");

    kolo_fail(KOLO_EIO, "%s",
              "a\033[31mred\007\xc2\x9b"
              "1m\tend\nnext \xc3\xa9");
    is_text(kolo_error_text(), "a?[31mred???1m end\nnext \xc3\xa9",
            "control characters of a name do not reach the terminal");

    char *large = malloc(100001);
    memset(large, 'x', 100000);
    large[100000] = 0;
    kolo_fail(KOLO_EIO, "%s", large);
    kolo_fail_in(KOLO_EIO, "%s", large);
    ok(strlen(kolo_error_text()) > 1000 && strlen(kolo_error_text()) < 100000, "a text without end is cut");
    free(large);
    test_kept();
    is_int(-KOLO_ECONFIG, 78, "the negated status is the exit code");
    is_int(-KOLO_ENOMEM, 71, "and so is that of memory that lacks");
    return done_testing();
}
