/* delayed [launch="srun -n"] [slots=N] [slow=N] [wrong=NAME] [--list] DIR: every case of DIR/delayed, each on
 * as many processes as it asks for, which this program starts of itself (mpiexec -n N, or what launch= says,
 * words that are followed by the number of ranks); TAP, a line a case. slots: micro-batches that a batch is
 * cut into. slow: in every case a rank that the number chooses sleeps at random. wrong: a mistake that must
 * show, a name that the mode knows. --list: names and numbers of ranks alone. */
#include <dirent.h>
#include <sys/wait.h>

#include "delayed_case.h"
#include "delayed_pipeline.h"
#include "delayed_ranks.h"

/* A row for every mode. */
static const delayed_mode *const modes[] = {&delayed_pipedream, &delayed_vertical,  &delayed_two_buffered,
                                            &delayed_pipelined, &delayed_local_sgd, &delayed_swap,
                                            &delayed_stale};

static const delayed_mode *mode_of(const cJSON *json)
{
    const char *name = golden_text(golden_at(json, "config"), "mode", "");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i]->name, name)) return modes[i];
    return NULL;
}

static delayed_how how;
static const char *launcher = "mpiexec -n";

/* ---- a rank -------------------------------------------------------------------------------------------- */

static int rank_case(kolo_launch *launch, const char *path)
{
    cJSON *json = golden_read(path);
    const delayed_mode *mode = json ? mode_of(json) : NULL;
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (!mode) return kolo_fail(KOLO_EINPUT, "%s: no case that this program knows", path);
    delayed_case c = {.name = golden_text(json, "case", path),
                      .json = json,
                      .config = golden_at(json, "config"),
                      .how = how,
                      .launch = launch};
    c.seed = golden_seed(json);
    c.steps = (int)golden_number(c.config, "steps", 0);
    const kolo_model *model = golden_model(c.config);
    const char *why = golden_optimizer(golden_at(c.config, "optimizer"), &c.options);
    if (!model) why = "this build lacks the network";
    if (c.steps > DELAYED_STEPS) why = "too many steps";
    int rc = why ? kolo_fail(KOLO_ECONFIG, "%s: %s", c.name, why) : 0;
    if (rc == 0) rc = kolo_backend_create(&c.backend, "cpu", &config);
    if (rc == 0) rc = delayed_carry_out(&c, mode, model);
    if (rc == 0) delayed_close(&c, mode);
    kolo_backend_destroy(&c.backend);
    kolo_options_free(&c.options);
    cJSON_Delete(json);
    return rc;
}

static int rank_main(const char *path)
{
    static kolo_launch launch;
    const kolo_launch_limits limits = {.start = 60, .later = 60};
    int rc = kolo_launch_start(&launch, "auto", &limits);
    if (rc == 0 && launch.rank > 0) rc = freopen("/dev/null", "w", stdout) ? 0 : KOLO_EIO;
    if (rc == 0) rc = rank_case(&launch, path);
    if (rc < 0) {
        fprintf(stderr, "rank %d: %s\n", launch.rank, kolo_error_text());
        kolo_launch_abort(&launch, 1);
    }
    kolo_launch_finish(&launch);
    return launch.rank == 0 && tap_failed ? 1 : 0;
}

/* ---- the program that starts them ---------------------------------------------------------------------- */

/* A launcher within a job of Slurm would take that for its own. */
static void leave_job(void)
{
    extern char **environ;
    for (char **at = environ; *at;) {
        char name[128];
        const size_t length = strcspn(*at, "=");
        const bool job = !strncmp(*at, "SLURM_", 6) || !strncmp(*at, "PMI", 3);
        snprintf(name, sizeof name, "%.*s", (int)length, *at);
        if (job && length < sizeof name) unsetenv(name), at = environ;
        else at++;
    }
}

/* Starts the ranks and reads what they say, to `said`. Their exit status. */
static int start_ranks(const char *self, const char *path, int ranks, char *said, size_t size)
{
    char command[4096];
    size_t length = 0;
    snprintf(command, sizeof command,
             "OMP_NUM_THREADS=1 %s %d '%s' slots=%d slow=%llu wrong=%s --rank '%s' 2>&1", launcher, ranks,
             self, how.slots, (unsigned long long)how.slow, how.wrong, path);
    fflush(stdout);
    FILE *pipe = popen(command, "r");
    if (!pipe) return -1;
    for (size_t n; length < size - 1 && (n = fread(said + length, 1, size - 1 - length, pipe)) > 0;)
        length += n;
    said[length] = 0;
    return pclose(pipe);
}

/* Lines of `said` that begin with one of the words; their number. The last is kept in `line`. */
static int lines_with(const char *said, const char *word)
{
    int n = 0;
    for (const char *at = said; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        n += !strncmp(at, word, strlen(word));
    return n;
}

static void report_case(const char *name, int ranks, int status, char *said)
{
    const int good = lines_with(said, "ok "), bad = lines_with(said, "not ok ");
    const bool passed = status == 0 && good > 0 && bad == 0;
    ok(passed, "%s: %d ranks, %d of %d quantities as they should be", name, ranks, good, good + bad);
    for (char *line = strtok(said, "\n"); line; line = strtok(NULL, "\n"))
        if (!passed || !strncmp(line, "ok ", 3)) diag("  %s", line);
}

static void start_case(const char *self, const char *path, bool list)
{
    static char said[1 << 16];
    cJSON *json = golden_read(path);
    const delayed_mode *mode = json ? mode_of(json) : NULL;
    const char *name = json ? golden_text(json, "case", path) : path;
    const int ranks = mode ? mode->ranks(golden_at(json, "config"), &how) : 0;
    if (list) {
        if (ranks > 0) printf("%s %d\n", name, ranks);
    } else if (!json) ok(0, "%s: no JSON that can be read", path);
    else if (ranks < 1)
        skip("%s: no mode \"%s\" here", name, golden_text(golden_at(json, "config"), "mode", ""));
    else report_case(name, ranks, start_ranks(self, path, ranks, said, sizeof said), said);
    cJSON_Delete(json);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}
static int is_json(const struct dirent *entry) { return golden_ends(entry->d_name, ".json"); }

static int start_all(const char *self, const char *folder, bool list)
{
    struct dirent **entry = NULL;
    char path[3000];
    snprintf(path, sizeof path, "%.2000s/delayed", folder);
    const int n = scandir(path, &entry, is_json, by_name);
    if (n <= 0) ok(0, "%s: no cases there", path);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.2000s/delayed/%.500s", folder, entry[i]->d_name);
        start_case(self, path, list);
        free(entry[i]);
    }
    free(entry);
    return list && !tap_failed ? 0 : done_testing();
}

int main(int count, char **words)
{
    static char self[2048];
    bool list = false, rank = false;
    const char *path = NULL;
    how.wrong = "";
    for (int i = 1; i < count; i++) {
        const char *w = words[i];
        if (!strncmp(w, "launch=", 7)) launcher = w + 7;
        else if (!strncmp(w, "slots=", 6)) how.slots = atoi(w + 6);
        else if (!strncmp(w, "slow=", 5)) how.slow = strtoull(w + 5, NULL, 10);
        else if (!strncmp(w, "wrong=", 6)) how.wrong = w + 6;
        else if (!strcmp(w, "--list")) list = true;
        else if (!strcmp(w, "--rank")) rank = true;
        else path = w;
    }
    if (!path) {
        fprintf(stderr, "usage: delayed [launch=\"srun -n\"] [slots=N] [slow=N] [wrong=NAME] [--list] DIR\n");
        return 2;
    }
    if (rank) return rank_main(path);
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    if (!strncmp(launcher, "mpiexec", 7)) leave_job();
    return start_all(self, path, list);
}
