/* Checkpoints: what is saved comes back bit for bit, and whatever happens while writing,
 * a whole one is found. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt_rig.h"
#include "tap.h"

static char top[] = "/tmp/kolo_checkpoint_XXXXXX";
static const rig_config lenet = {"lenet5", 28, 1, 1, true, true, false},
                        lenet_wide = {"lenet5", 28, 1, 2, false, true, false},
                        resnet = {"resnet20", 32, 3, 1, true, false, false};

static kolo_position rig_position(int64_t step)
{
    return (kolo_position){.step = step,
                           .epoch = step / 3,
                           .epoch_step = step % 3,
                           .batch = 4,
                           .samples = 12,
                           .restarts = 2,
                           .seed = UINT64_MAX - 4,
                           .wall_seconds = 12.5,
                           .metric = "ap",
                           .best = 1.0 / 3,
                           .best_step = 2,
                           .data_uuid = "0000-test",
                           .model = "a \"model\"",
                           .plan_hash = 0xFEDCBA9876543210};
}

static int64_t best_step = 2; /* of what is saved */

static int rig_save(rig *r, kolo_run *run, int64_t step)
{
    kolo_position p = rig_position(step);
    p.best_step = best_step;
    return kolo_checkpoint_save(run, r->exec, r->plan, r->backend, &r->options, &p);
}

static char *place(const char *run, const char *rest) { return kolo_format("%s/%s%s", top, run, rest); }

static int same_files(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    int same = kolo_file_read(a, &x, &n) == 0 && kolo_file_read(b, &y, &m) == 0 && n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

/* Names of the checkpoints of a run, sorted, with a blank between: "5 6.tmp". */
static char *list(const char *run, char text[256])
{
    struct dirent **entry;
    char *folder = place(run, "/checkpoints");
    int n = scandir(folder, &entry, NULL, alphasort);
    *text = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        if (*name != '.')
            snprintf(text + strlen(text), 256 - strlen(text), "%s%s", *text ? " " : "",
                     name + 5 + strspn(name + 5, "0"));
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    free(folder);
    return text;
}

static int64_t find(const char *run, char *path)
{
    kolo_position p = {.step = -1};
    char *folder = place(run, "");
    int rc = kolo_checkpoint_find(folder, &p, path, 512);
    free(folder);
    return rc == 1 ? p.step : rc;
}

static kolo_run *open_run(const char *name)
{
    kolo_run *run = NULL;
    char *folder = place(name, "");
    if (kolo_run_open(&run, folder) < 0) diag("%s", kolo_error_text());
    free(folder);
    return run;
}

/* Parameters, buffers, momentum and averages of two executors, as canonical values. */
static int same_values(rig *a, rig *b)
{
    static const char *const kind[] = {"param", "momentum", "ema"};
    int same = 1, seen = 0;
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < a->graph->tensors; t++) {
            enum kolo_role role = a->graph->tensor[t].role;
            if (role != KOLO_ROLE_PARAM && (role != KOLO_ROLE_BUFFER || k == 1)) continue;
            if (k == 2 && !a->plan->config.ema) continue;
            int64_t n = kolo_tensor_count(&a->graph->tensor[t]);
            float *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
            int other = kolo_graph_find(b->graph, a->graph->tensor[t].name);
            same &= kolo_exec_get(a->exec, kind[k], t, x) == 0 &&
                    kolo_exec_get(b->exec, kind[k], other, y) == 0 && !memcmp(x, y, (size_t)n * sizeof *x);
            seen++;
            free(x);
            free(y);
        }
    return same && seen > 0;
}

static char *without_start(const char *path)
{
    char *text = NULL;
    kolo_file_read(path, &text, NULL);
    char *start = text ? strstr(text, "\"this_start\"") : NULL;
    if (start) *start = 0;
    return text;
}

static void round_trip(const rig_config *from, const rig_config *to, const char *what)
{
    rig a, b;
    char path[512] = "", *one = place("one", ""),
         *first = place("one", "/checkpoints/step-0000000003/tensors.safetensors");
    char *second = place("two", "/checkpoints/step-0000000003/tensors.safetensors");
    char *first_list = place("one", "/checkpoints/step-0000000003/manifest.json"),
         *second_list = place("two", "/checkpoints/step-0000000003/manifest.json");
    ok(rig_open(&a, from) == 0 && rig_open(&b, to) == 0, "%s: made (%s)", what, kolo_error_text());
    for (int s = 0; s < 3; s++) rig_step(&a, s);
    kolo_run *run = open_run("one");
    kolo_position p = {.step = 0}, want = rig_position(3);
    is_int(kolo_checkpoint_find(one, &p, path, sizeof path), 0, "nothing to be found yet");
    is_int(rig_save(&a, run, 3), 0, "saved (%s)", kolo_error_text());
    rig_step(&a, 3); /* the thread has its own copy */
    is_int(kolo_checkpoint_wait(run), 0, "written (%s)", kolo_error_text());
    kolo_run_close(&run);
    is_int(kolo_checkpoint_find(one, &p, path, sizeof path), 1, "found: %s", path);
    ok(p.step == 3 && p.epoch == want.epoch && p.epoch_step == want.epoch_step && p.batch == 4 &&
           p.samples == 12 && p.restarts == 2 && p.seed == want.seed && p.wall_seconds == 12.5 &&
           p.best == want.best && !strcmp(p.metric, "ap") && p.best_step == 2 &&
           !strcmp(p.data_uuid, want.data_uuid) && !strcmp(p.model, want.model) &&
           p.plan_hash == want.plan_hash,
       "the position comes back whole");
    is_int(kolo_checkpoint_load(path, b.exec, b.plan), 0, "loaded (%s)", kolo_error_text());
    run = open_run("two");
    rig_save(&b, run, 3);
    kolo_run_close(&run);
    ok(same_files(first, second), "saved again: the same bytes");
    char *x = without_start(first_list), *y = without_start(second_list);
    ok(x && y && !strcmp(x, y), "and the same manifest before \"this_start\"");
    free(x);
    free(y);
    if (from->threads == to->threads) {
        rig_step(&b, 3);
        ok(same_values(&a, &b),
           "the loaded one goes on as if it had never stopped: weights, statistics, momentum, averages");
    }
    rig_close(&a);
    rig_close(&b);
    kolo_folder_remove(one);
    char *two = place("two", "");
    kolo_folder_remove(two);
    free(two), free(one), free(first), free(second), free(first_list), free(second_list);
}

/* The manifest as a version wrote it that knew nothing of loss scaling, runs, files, nor of a manifest's own
 * checksum. */
static void forget_scale(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    kolo_file_read(path, &text, &bytes);
    char *line = text ? strstr(text, "  \"loss_scale\"") : NULL, *next = line ? strchr(line, '\n') : NULL;
    ok(next != NULL, "the manifest has a line of the loss scale");
    if (next) memmove(line, next + 1, strlen(next));
    char *seal = text && strstr(text, "  },\n  \"crc32c\"") ? strstr(text, "  },\n  \"run\"") : NULL;
    ok(seal != NULL, "its run, and its own checksum at its end");
    if (seal) memcpy(seal, "  }\n}\n", 7);
    if (next) kolo_file_write_atomic(path, text, strlen(text));
    free(text);
}

static void loss_scale(void)
{
    rig a, b;
    rig_config c = lenet;
    char path[512] = "", *list = place("scale", "/checkpoints/step-0000000002/manifest.json");
    const kolo_scaler odd = {.scale = 512, .good = 1234, .skipped = 7},
                      other = {.scale = 64, .good = 1, .skipped = 2};
    kolo_scaler s = {.scale = 0};
    c.scaled = true;
    ok(rig_open(&a, &c) == 0 && rig_open(&b, &c) == 0, "made with loss scaling (%s)", kolo_error_text());
    kolo_exec_set_scaler(a.exec, &odd);
    kolo_run *run = open_run("scale");
    rig_save(&a, run, 2);
    kolo_run_close(&run);
    find("scale", path);
    is_int(kolo_checkpoint_load(path, b.exec, b.plan), 0, "loaded (%s)", kolo_error_text());
    kolo_exec_get_scaler(b.exec, &s);
    ok(s.scale == 512 && s.good == 1234 && s.skipped == 7, "scale, count and skipped updates come back");
    forget_scale(list);
    kolo_exec_set_scaler(b.exec, &other);
    is_int(kolo_checkpoint_load(path, b.exec, b.plan), 0, "a manifest without it can be loaded (%s)",
           kolo_error_text());
    kolo_exec_get_scaler(b.exec, &s);
    ok(s.scale == 64 && s.good == 1 && s.skipped == 2, "and leaves the scale alone");
    rig_close(&a);
    rig_close(&b);
    free(list);
}

static void other_model(void)
{
    rig a, b;
    char path[512];
    rig_open(&a, &resnet);
    rig_open(&b, &lenet);
    kolo_run *run = open_run("other");
    rig_save(&a, run, 1);
    kolo_run_close(&run);
    find("other", path);
    is_int(kolo_checkpoint_load(path, b.exec, b.plan), KOLO_ECONFIG, "ResNet-20 into LeNet-5 is refused");
    const char *text = kolo_error_text();
    ok(strstr(text, "missing: conv1.") && strstr(text, "unknown: ") && strstr(text, "layer1.0") &&
           strstr(text, "more") && strstr(text, "lenet5"),
       "with the tensors, some of them: %.300s", text);
    rig_close(&a);
    rig_close(&b);
}

/* Of the run "keep": 7, the best, and 8. */
static void picking(void)
{
    kolo_position p = {.step = -1};
    char path[512], *keep = place("keep", ""), *one = place("one", "");
    ok(kolo_checkpoint_pick(keep, "newest", &p, path, sizeof path) == 1 && p.step == 8, "checkpoint=newest");
    ok(kolo_checkpoint_pick(keep, "best", &p, path, sizeof path) == 1 && p.step == 7, "checkpoint=best");
    ok(kolo_checkpoint_pick(keep, "8", &p, path, sizeof path) == 1 && p.step == 8, "checkpoint=8");
    is_int(kolo_checkpoint_pick(keep, "5", &p, path, sizeof path), KOLO_EINPUT, "one that is gone");
    ok(strstr(kolo_error_text(), "there are: 7 8"), "those that are there are told: %s", kolo_error_text());
    is_int(kolo_checkpoint_pick(keep, "last", &p, path, sizeof path), KOLO_ECONFIG,
           "a word that says nothing (%s)", kolo_error_text());
    is_int(kolo_checkpoint_pick(keep, "99999999999999999999", &p, path, sizeof path), KOLO_ECONFIG,
           "a number that is none of a step");
    is_int(kolo_checkpoint_pick(one, "best", &p, path, sizeof path), KOLO_EINPUT,
           "no best where nothing was validated (%s)", kolo_error_text());
    free(keep);
    free(one);
}

static void keeping(void)
{
    rig a;
    char text[256], path[512];
    rig_open(&a, &lenet);
    kolo_run *run = open_run("keep");
    for (int s = 1; s <= 3; s++) rig_save(&a, run, s);
    kolo_checkpoint_wait(run);
    is_text(list("keep", text), "2 3", "the last two are kept");
    for (int s = 4; s <= 6; s++) rig_save(&a, run, s);
    kolo_checkpoint_wait(run);
    is_text(list("keep", text), "2 5 6", "the best stays beside the last two");
    best_step = 7;
    for (int s = 7; s <= 8; s++) rig_save(&a, run, s);
    kolo_checkpoint_wait(run);
    char *best = place("keep", "/best"), *name = NULL;
    kolo_file_read(best, &name, NULL);
    is_text(name, "step-0000000007\n", "the one being written is the best, once it is whole");
    is_text(list("keep", text), "7 8", "the former best goes");
    picking();
    rig_step(&a, 0);
    rig_save(&a, run, 8);
    is_int(kolo_checkpoint_wait(run), 0, "a step is saved a second time (%s)", kolo_error_text());
    is_int(find("keep", path), 8, "and found");
    best_step = 4;
    rig_save(&a, run, 5);
    is_int(kolo_checkpoint_wait(run), 0, "a run went on from before step 5 (%s)", kolo_error_text());
    is_text(list("keep", text), "5", "it drops what lies ahead");
    ok(!kolo_file_exists(best), "which is not taken for its best when it comes there again; its own is gone");
    for (int s = 6; s <= 7; s++) rig_save(&a, run, s);
    kolo_run_close(&run);
    ok(!kolo_file_exists(best), "nor is the one that it then writes");
    best_step = 2;
    free(best);
    free(name);
    rig_close(&a);
}

static void flip_byte(const char *path, off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    if (pread(fd, &byte, 1, at) == 1) {
        byte ^= 1;
        if (pwrite(fd, &byte, 1, at) != 1) diag("cannot write %s", path);
    }
    close(fd);
}

static void damaged(void)
{
    rig a;
    char path[512];
    rig_open(&a, &lenet);
    kolo_run *run = open_run("hurt");
    for (int s = 1; s <= 2; s++) rig_save(&a, run, s);
    kolo_checkpoint_wait(run);
    char *tensors = place("hurt", "/checkpoints/step-0000000002/tensors.safetensors"),
         *manifest = place("hurt", "/checkpoints/step-0000000002/manifest.json");
    char *folder = place("hurt", "/checkpoints/step-0000000002"), *hurt = place("hurt", "");
    flip_byte(tensors, 100000);
    kolo_position p = {.step = -1};
    ok(kolo_checkpoint_position(hurt, &p) == 1 && p.step == 2,
       "one changed bit: where the run stands is told without reading tensors");
    is_int(find("hurt", path), 1, "but the checkpoint before is taken");
    is_int(kolo_checkpoint_pick(hurt, "2", &p, path, sizeof path), KOLO_EINPUT,
           "asked for by its step it is refused (%s)", kolo_error_text());
    flip_byte(tensors, 100000);
    is_int(find("hurt", path), 2, "changed back: it is good");
    off_t size = (off_t)kolo_file_size(tensors);
    ok(truncate(tensors, size + 1) == 0 && find("hurt", path) == 1, "one byte too long: passed over");
    is_int(kolo_checkpoint_load(folder, a.exec, a.plan), KOLO_EINPUT, "and it cannot be loaded by hand (%s)",
           kolo_error_text());
    ok(truncate(tensors, size) == 0 && find("hurt", path) == 2, "cut back: good again");
    flip_byte(manifest, 30);
    is_int(find("hurt", path), 1, "a changed manifest: passed over");
    flip_byte(manifest, 30);
    int changed = 0, noticed = 0;
    /* up to its last line */
    for (off_t at = 0; at < (off_t)kolo_file_size(manifest) - 30; at += 61, changed++) {
        flip_byte(manifest, at);
        noticed += kolo_checkpoint_position(hurt, &p) == 1 && p.step == 1;
        flip_byte(manifest, at);
    }
    ok(changed > 50 && noticed == changed, "whatever byte it is: %d of %d", noticed, changed);
    ok(truncate(manifest, kolo_file_size(manifest) / 2) == 0 && find("hurt", path) == 1,
       "half a manifest: passed over");
    ok(unlink(manifest) == 0 && find("hurt", path) == 1, "no manifest: passed over");
    kolo_folder_remove(folder);
    char *first = place("hurt", "/checkpoints/step-0000000001");
    ok(rename(first, folder) == 0 && find("hurt", path) == KOLO_EINPUT &&
           strstr(kolo_error_text(), "none of the 1"),
       "a manifest of another step: passed over, and as no other is left, nothing is begun over it");
    kolo_run_close(&run);
    free(tensors), free(manifest), free(folder), free(first), free(hurt);
    rig_close(&a);
}

/* A limit on file sizes ends a write as a full disk does. SIGXFSZ, which would end the process, is
 * left at its default. */
static void full_disk(void)
{
    rig a;
    char text[256], path[512];
    rig_open(&a, &lenet);
    char *best = place("full", "/best");
    kolo_run *run = open_run("full");
    rig_save(&a, run, 1);
    kolo_checkpoint_wait(run);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 150000, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    best_step = 2;
    int saved = rig_save(&a, run, 2), waited = kolo_checkpoint_wait(run);
    char *why = kolo_strdup(kolo_error_text());
    int again = rig_save(&a, run, 3), next = rig_save(&a, run, 4);
    setrlimit(RLIMIT_FSIZE, &old); /* before a word on stdout, which may be a file too */
    ok(saved == 0 && waited == KOLO_EIO, "no room: the save is begun, the wait tells: %s", why);
    ok(again == 0 && next == KOLO_EIO, "or the next save does");
    is_text(list("full", text), "1", "nothing half-written is left");
    ok(!kolo_file_exists(best), "nor named the best");
    is_int(find("full", path), 1, "the older checkpoint stands");
    ok(rig_save(&a, run, 5) == 0 && kolo_checkpoint_wait(run) == 0, "with room again it goes on (%s)",
       kolo_error_text());
    is_int(find("full", path), 5, "and the new one is found");
    kolo_run_close(&run);
    free(best);
    free(why);
    rig_close(&a);
}

/* Saves for ever; another process's part of `killed`. */
static int save_for_ever(const char *folder, int64_t step)
{
    rig a;
    kolo_run *run = NULL;
    if (rig_open(&a, &lenet) < 0 || kolo_run_open(&run, folder) < 0) {
        fprintf(stderr, "%s\n", kolo_error_text());
        return 1;
    }
    for (;; step++)
        if (rig_save(&a, run, step) < 0) return 1;
}

static pid_t start_saver(int64_t step)
{
    char *folder = place("kill", ""), number[32];
    snprintf(number, sizeof number, "%lld", (long long)step);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "saver", folder, number, (char *)NULL);
        _exit(127);
    }
    free(folder);
    return pid;
}

static void killed(void)
{
    enum { ROUNDS = 12 };
    char path[512], text[256];
    int whole = 0, grew = 0, leftovers = 0;
    int64_t last = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = start_saver(last + 1);
        int64_t before = last;
        for (int wait = 0; wait < 1000 && find("kill", path) <= before; wait++) usleep(5000);
        usleep((useconds_t)(kolo_philox(3, 0, (uint64_t)i).v[0] % 30000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        leftovers += strstr(list("kill", text), ".tmp") != NULL;
        last = find("kill", path);
        whole += last > 0;
        grew += last > before;
    }
    ok(whole == ROUNDS && grew == ROUNDS,
       "killed %d times while saving: a whole checkpoint %d times, a newer one %d times", ROUNDS, whole,
       grew);
    diag("%d times a half-written one lay beside it; the last is step %lld", leftovers, (long long)last);
    rig a;
    rig_open(&a, &lenet);
    is_int(kolo_checkpoint_load(path, a.exec, a.plan), 0, "it can be loaded (%s)", kolo_error_text());
    kolo_run *run = open_run("kill");
    ok(run && !strstr(list("kill", text), "."), "the next start takes the folder over and sweeps it");
    kolo_run_close(&run);
    rig_close(&a);
}

/* Steps go on while the thread writes. */
static void beside_the_step(void)
{
    rig a, b;
    char path[512];
    rig_open(&a, &lenet);
    rig_open(&b, &lenet);
    kolo_run *run = open_run("beside");
    int good = 1;
    for (int s = 0; s < 20; s++) {
        good &= rig_step(&a, s) == 0;
        if (s % 2) good &= rig_save(&a, run, s + 1) == 0;
    }
    kolo_run_close(&run);
    ok(good && find("beside", path) == 20, "a save every second step, none waited for");
    ok(kolo_checkpoint_load(path, b.exec, b.plan) == 0 && same_values(&a, &b),
       "the last one holds the last step");
    rig_close(&a);
    rig_close(&b);
}

/* Figures, not a test: ckpt_checkpoint time resnet50 224 */
static int measure(const char *model, int64_t size)
{
    rig a;
    rig_config c = {model, size, 3, 2, false, false, false};
    char path[512];
    if (rig_open(&a, &c) < 0) {
        diag("%s", kolo_error_text());
        return 1;
    }
    kolo_run *run = open_run("time");
    double start = kolo_time();
    int prepared = kolo_checkpoint_prepare(run, a.plan, a.backend);
    diag("%s: rc %d, memory reserved in %.3f s", model, prepared, kolo_time() - start);
    for (int i = 1; i <= 4; i++) {
        double begin = kolo_time();
        int rc = rig_save(&a, run, i);
        double saved = kolo_time();
        if (rc == 0) rc = kolo_checkpoint_wait(run);
        double written = kolo_time();
        find("time", path);
        double found = kolo_time();
        if (rc == 0) rc = kolo_checkpoint_load(path, a.exec, a.plan);
        diag("%s: rc %d, the step waits %.3f s, written %.3f s later, found (crc) %.3f s, loaded %.3f s",
             model, rc, saved - begin, written - saved, found - written, kolo_time() - found);
    }
    kolo_run_close(&run);
    rig_close(&a);
    kolo_folder_remove(top);
    return 0;
}

int main(int argc, char **argv)
{
    kolo_log_set_level(KOLO_LOG_ERROR);
    if (!strcmp(argv[0], "saver") && argc == 3) return save_for_ever(argv[1], atoll(argv[2]));
    if (!mkdtemp(top)) return 1;
    if (argc == 4 && !strcmp(argv[1], "time")) return measure(argv[2], atoll(argv[3]));
    round_trip(&lenet, &lenet, "LeNet-5");
    round_trip(&lenet, &lenet_wide, "LeNet-5, other threads and layouts");
    round_trip(&resnet, &resnet, "ResNet-20");
    loss_scale();
    other_model();
    keeping();
    damaged();
    full_disk();
    killed();
    beside_the_step();
    kolo_folder_remove(top);
    return done_testing();
}
