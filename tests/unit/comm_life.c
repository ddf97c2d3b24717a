/* What broke a job is said by one rank, which may lose its CPU, or die, before it has written it down. */
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/core/transport/life.h"
#include "kolo/error.h"
#include "tap.h"

static comm_life leader;

static void *write_late(void *of)
{
    usleep(200000);
    snprintf(leader.head.text, sizeof leader.head.text, "%s", (const char *)of);
    atomic_store(&leader.broken, 2);
    return NULL;
}

/* What whoever asks in the meantime is told. */
static void ask_early(void)
{
    static char text[] = "rank 3 has no data any more";
    pthread_t writer;
    atomic_store(&leader.broken, 1);
    if (!ok(kolo_thread_start(&writer, write_late, text, "test") == 0, "a rank is at saying why")) return;
    is_int(comm_life_text(&leader), KOLO_ELAUNCH, "broken, although nobody has said why yet");
    ok(strcmp(kolo_error_text(), text) == 0, "the text is waited for: \"%s\"", kolo_error_text());
    pthread_join(writer, NULL);
    ok(!comm_life_break(&leader, "rank 4 died"), "the first one counts");
    comm_life_text(&leader);
    ok(strcmp(kolo_error_text(), text) == 0, "so the text stays: \"%s\"", kolo_error_text());
}

static void ask_nobody(void)
{
    memset(&leader, 0, sizeof leader);
    atomic_store(&leader.broken, 1);
    const double begin = kolo_time();
    is_int(comm_life_text(&leader), KOLO_ELAUNCH, "broken by a rank that died at it");
    const double seconds = kolo_time() - begin;
    ok(seconds < 5, "the wait ends (%.2f s)", seconds);
    ok(strstr(kolo_error_text(), "died before it said why"), "and there is a text: \"%s\"",
       kolo_error_text());
}

int main(void)
{
    ask_early();
    ask_nobody();
    return done_testing();
}
