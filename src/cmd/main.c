/* kolo: finds the subcommand, runs it, ends the process (and, on an error, the job) with the
 * documented exit code. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"

const kolo_command kolo_command_table[] = {
#define COMMAND(name, word, takes, usage, help) {word, takes, usage, help, kolo_command_##name},
#include "cmd/commands.def"
#undef COMMAND
};
const int kolo_command_count = sizeof kolo_command_table / sizeof *kolo_command_table;

/* A scheduler may send them to a program that is still starting, and this one starts twice
 * (set_wait_policy). */
KOLO_HOLD_SIGNALS(SIGUSR1, SIGTERM, SIGINT);

volatile sig_atomic_t kolo_command_stop;
static volatile sig_atomic_t orderly; /* somebody looks at kolo_command_stop */
static kolo_launch launch;
static bool launching, launched;

/* As the launcher says it before the launch. */
static int rank_here(void)
{
    const char *rank = getenv("PMIX_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (!rank) rank = getenv("SLURM_PROCID");
    return launched ? launch.rank : rank ? atoi(rank) : 0;
}

static void stop(int signal)
{
    static const char text[] =
        "kolo: stopped by a signal before the first step: nothing is lost; the same command starts again\n";
    if (kolo_command_stop != KOLO_STOP_END)
        kolo_command_stop = signal == SIGUSR1 ? KOLO_STOP_REQUEUE : KOLO_STOP_END;
    if (signal == SIGUSR1 || orderly) return;
    const ssize_t said = rank_here() == 0 ? write(STDERR_FILENO, text, sizeof text - 1) : 0;
    (void)said;
    _exit(-KOLO_EREQUEUE);
}

/* On a stack of its own: oneDNN's matrix products keep numbers further below the stack pointer than the frame
 * of a signal leaves alone. */
void kolo_command_catch(void)
{
    static char own[1 << 16];
    const stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    kolo_release_signals();
}

/* Has the command handlers of its own, by kolo_command_catch? Others are ended by signals as any program
 * is. */
static bool command_catches(const kolo_command *command)
{
    return command->run == kolo_command_train || command->run == kolo_command_serve_data;
}

enum kolo_stop kolo_command_asked(void)
{
    orderly = 1;
    return (enum kolo_stop)kolo_command_stop;
}

static const char *running = "";

/* From the launch's watchdog; it never returns where the launch has failed to start. */
static void end_stuck(kolo_launch *stuck, const char *text)
{
    kolo_error("kolo %s: %s", running, text);
    usleep(100000); /* or a launcher may end all before it has passed the message on */
    kolo_launch_abort(stuck, -KOLO_ELAUNCH);
}

int kolo_command_launch(const kolo_options *options, kolo_launch **result)
{
    const kolo_launch_limits limits = {.start = options->comm_timeout,
                                       .later = options->comm_timeout,
                                       .heartbeat_timeout = options->heartbeat_timeout,
                                       .end = end_stuck};
    static const char *const method[] = {
#define METHOD(key, choice) #choice,
        KOLO_CHOICES_launch(METHOD)
#undef METHOD
    };
    launching = true;
    KOLO_TRY(kolo_launch_start(&launch, method[options->launch], &limits));
    launched = true;
    if (launch.rank == 0) kolo_options_report_renamed();
    *result = &launch;
    return 0;
}

int kolo_command_alone(kolo_launch **result)
{
    launching = true;
    KOLO_TRY(kolo_launch_start(&launch, "single", NULL));
    launched = true;
    *result = &launch;
    return 0;
}

/* libgomp and UCX read their settings when they are loaded, so this process starts itself once more with them
 * set. Idle threads spin short enough that reader and progress threads get the cores, long enough for
 * operations that follow each other. */
static void set_wait_policy(char **argv)
{
    if (getenv("KOLO_STARTED") || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    setenv("KOLO_STARTED", "1", 1);
    setenv("GOMP_SPINCOUNT", "10000", 1);
    /* a crash is a crash: MPI's transport need not print its own story first */
    setenv("UCX_ERROR_SIGNALS", "", 0);
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length < 0) return;
    exe[length] = 0;
    execv(exe, argv); /* on failure go on as we are */
}

bool kolo_command_flag(int *n, char **words, const char *word)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(words[i], word)) continue;
        memmove(&words[i], &words[i + 1], (size_t)(*n - i - 1) * sizeof *words);
        --*n;
        return true;
    }
    return false;
}

const char *kolo_command_share(void)
{
    static char path[4096];
    char exe[3072];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length < 0) return ".";
    exe[length] = 0;
    /* installed: PREFIX/bin; built: build/bin beside share */
    static const char *const below[] = {"share/kolo", "share"};
    for (int up = 0; up < 3 && strrchr(exe, '/'); up++) {
        *strrchr(exe, '/') = 0;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s/recipes", exe, below[i]);
            if (!kolo_file_exists(path)) continue;
            *strrchr(path, '/') = 0;
            return path;
        }
    }
    return ".";
}

static volatile sig_atomic_t status_of_end;
static void end_at_once(int signal)
{
    (void)signal;
    _exit(status_of_end);
}

/* Ranks that fail alike say it once: the others wait a moment, and rank 0's end, or its abort, ends them.
 * Being ended by the launcher is then no crash: the status is that of the error. */
static void wait_for_rank_0(int exit_status)
{
    status_of_end = exit_status;
    signal(SIGTERM, end_at_once);
    usleep(launched ? 400000 : 2000000);
}

static int end(const char *command, int status)
{
    kolo_failure failure;
    if (rank_here() == 0) kolo_options_report_renamed(); /* of a command that launches nothing */
    if (status == 0) status = kolo_stdout_flush();
    kolo_error_keep(&failure);
    if (status == 0 || status == KOLO_EREQUEUE) {
        if (status < 0 && (!launched || launch.rank == 0)) kolo_info("%s", failure.text);
        if (launched) kolo_launch_finish(&launch);
        if (status == 0 || !launched || launch.size == 1) return -status;
        /* A launcher may kill the others at the first bad exit: one rank reports 75, after
         * the others have left. */
        if (launch.rank != 0) return 0;
        usleep(300000);
        return -status;
    }
    const bool many = getenv("PMIX_RANK") || getenv("PMI_RANK") || getenv("SLURM_PROCID");
    if (rank_here() > 0) wait_for_rank_0(-status);
    kolo_error("kolo %s: %s", command, failure.text);
    if (launched && launch.size > 1) {
        usleep(100000); /* or a launcher may end all before it has passed the message on */
        kolo_launch_abort(&launch, -status);
    }
    if (launched) kolo_launch_finish(&launch);
    /* ranks that are still being started would be ended before they can say why they go */
    else if (many) usleep(700000);
    if (!launching && many) kolo_launch_abort_unstarted(-status);
    return -status;
}

static bool wants_help(int n, char **words)
{
    for (int i = 0; i < n && strcmp(words[i], "--"); i++)
        if (!strcmp(words[i], "--help") || !strcmp(words[i], "-h")) return true;
    return false;
}

int main(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return end("help", kolo_command_help(0, NULL));
    const char *names[sizeof kolo_command_table / sizeof *kolo_command_table];
    for (int i = 0; i < kolo_command_count; i++) names[i] = kolo_command_table[i].name;
    const char *name = !strcmp(argv[1], "--version") ? "version" : argv[1];
    for (int i = 0; i < kolo_command_count; i++) {
        if (strcmp(name, names[i])) continue;
        if (wants_help(argc - 2, argv + 2)) return end("help", kolo_command_help(1, &argv[1]));
        set_wait_policy(argv);
        kolo_return_freed();
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write, not the end */
        if (!command_catches(&kolo_command_table[i])) kolo_release_signals();
        kolo_command_letters = kolo_command_table[i].letters;
        running = name;
        return end(name, kolo_command_table[i].run(argc - 2, argv + 2));
    }
    const char *near = kolo_nearest(name, names, kolo_command_count);
    kolo_fail(KOLO_ECONFIG, "unknown command%s%s%s; `kolo help` lists them", near ? ": did you mean `" : "",
              near ? near : "", near ? "`?" : "");
    return end(name, KOLO_ECONFIG);
}
