#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"
#include "pack/pack.h"

int pack_agree(packing *p, int status)
{
    /* kept: what is agreed on later, also after a failure, needs no memory */
    if (!p->agreed) p->agreed = kolo_alloc(sizeof *p->agreed * (size_t)p->launch.size);
    int *all = p->agreed;
    if (!all) return KOLO_ENOMEM;
    int rc = kolo_launch_exchange(&p->launch, &status, sizeof status, all), worst = 0;
    for (int r = 0; rc == 0 && r < p->launch.size; r++)
        if (all[r] < 0 && (worst == 0 || worst == KOLO_EREQUEUE)) worst = all[r];
    if (rc < 0 || worst == 0) return rc;
    /* stopped because of another rank's error, or by a signal, which rank 0 reports */
    if (status == worst && (worst != KOLO_EREQUEUE || p->launch.rank == 0)) return worst;
    return kolo_fail(worst, "%s", "");
}

static void make_fingerprint(packing *p)
{
    uint64_t h[2] = {0xCBF29CE484222325ull, 0x9E3779B97F4A7C15ull};
    source_mix(h, p->options_text, strlen(p->options_text));
    source_list_mix(&p->source, h);
    source_mix(h, p->order, sizeof *p->order * (size_t)p->slot_count);
    memcpy(p->fingerprint, h, sizeof h);
}

static int read_training(packing *p)
{
    kolo_manifest m;
    char **names = NULL;
    if (!p->options.stats_from) return 0;
    KOLO_TRY(kolo_manifest_read(p->options.stats_from, &m));
    char *path = kolo_format("%s/%s", p->options.stats_from, m.shards[0].file);
    kolo_shard_arrays checked = {0};
    int rc = path ? kolo_shard_inspect(path, NULL, NULL, &checked) : KOLO_ENOMEM;
    kolo_shard_arrays_free(&checked);
    if (rc == 0) rc = kolo_shard_read_classes(path, m.info.classes, &names, NULL);
    if (rc == 0) rc = kolo_shard_read_stats(path, &p->stats);
    int64_t *ids = kolo_alloc(sizeof *ids * (size_t)m.info.classes + 8);
    if (rc == 0) rc = ids ? kolo_shard_read_class_ids(path, m.info.classes, ids) : KOLO_ENOMEM;
    for (int c = 0; c < m.info.classes && rc == 0; c++) rc = source_add_class(&p->source, names[c], ids[c]);
    free(ids);
    p->stats_given = true;
    p->source.class_rule = p->options.classes ? SOURCE_CLASSES_CHOSEN : SOURCE_CLASSES_FIXED;
    free(names);
    free(path);
    kolo_manifest_free(&m);
    return rc;
}

/* --classes: one name a line, in the order of their labels. */
static int read_classes(packing *p)
{
    char *text = NULL;
    if (!p->options.classes || p->stats_given) return 0;
    KOLO_TRY(kolo_file_read(p->options.classes, &text, NULL));
    int rc = 0;
    for (char *line = text; *line && rc == 0;) {
        char *end = line + strcspn(line, "\r\n"), *next = end + strspn(end, "\r\n");
        *end = 0;
        if (*line) rc = source_add_class(&p->source, line, p->source.classes);
        line = next;
    }
    free(text);
    if (rc == 0 && p->source.classes == 0)
        rc = kolo_fail(KOLO_EINPUT, "--classes %s: the file is empty; write one class name a line",
                       p->options.classes);
    p->source.class_rule = SOURCE_CLASSES_CHOSEN;
    return rc;
}

static char *list_path(const packing *p) { return kolo_format("%s/list", p->work); }

static int write_list(const packing *p)
{
    char *path = list_path(p);
    int rc = path ? source_list_write(&p->source, path) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static int map_list(packing *p)
{
    char *path = list_path(p);
    int rc = path ? source_list_map(&p->source, path) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static int open_source(packing *p)
{
    KOLO_TRY(read_training(p));
    KOLO_TRY(read_classes(p));
    return source_open(&p->source, p->options.kind, &p->options);
}

static bool is_output(const char *name)
{
    const size_t n = strlen(name);
    if (n > 6 && strcmp(name + n - 6, ".index") == 0) return true;
    if (n > 8 && strcmp(name + n - 8, ".rejects") == 0) return true;
    return n > 3 && strcmp(name + n - 3, ".h5") == 0 && strstr(name, "-of-");
}

static int clear_output(const packing *p)
{
    DIR *dir = opendir(p->options.out);
    struct dirent *entry;
    if (!dir) return errno == ENOENT ? 0 : kolo_fail(KOLO_EIO, "%s: %s", p->options.out, strerror(errno));
    int rc = 0;
    while (rc == 0 && (entry = readdir(dir))) {
        if (!is_output(entry->d_name)) continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            rc = kolo_fail(KOLO_EIO, "%s/%s: %s", p->options.out, entry->d_name, strerror(errno));
    }
    closedir(dir);
    if (rc == 0 && kolo_file_exists(p->work)) rc = kolo_folder_remove(p->work);
    return rc;
}

static bool has_output(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    bool found = false;
    if (!dir) return false;
    while (!found && (entry = readdir(dir))) found = is_output(entry->d_name);
    closedir(dir);
    return found;
}

static char *fingerprint_text(const packing *p)
{
    return kolo_format("kolo-plan 1 %016" PRIx64 "%016" PRIx64 "\n%s\nsamples=%" PRId64 " classes=%d\n",
                       p->fingerprint[0], p->fingerprint[1], p->options_text, p->slot_count,
                       p->source.classes);
}

static int compare_plan(packing *p, const char *path, const char *want)
{
    char *have;
    KOLO_TRY(kolo_file_read(path, &have, NULL));
    const bool same = strcmp(have, want) == 0;
    const char *was = strchr(have, '\n'), *now = strchr(want, '\n');
    int rc =
        same ? 0
             : kolo_fail(KOLO_ECONFIG,
                         "%s was begun from another source or with other options. Begun with:%s  asked now:%s"
                         "Give --resume the first run's options, or --force to start again",
                         p->options.out, was ? was : "\n", now);
    free(have);
    p->resumed = same;
    return rc;
}

/* --resume of what is complete: 1 if it was made from the same source with the same options. */
static int compare_output(const packing *p)
{
    kolo_manifest m;
    char have[40], want[40];
    KOLO_TRY(kolo_manifest_read(p->options.out, &m));
    char *path = kolo_format("%s/%s", p->options.out, m.shards[0].file);
    int rc = path ? kolo_shard_read_note(path, "fingerprint", have, sizeof have) : KOLO_ENOMEM;
    free(path);
    kolo_manifest_free(&m);
    snprintf(want, sizeof want, "%016" PRIx64 "%016" PRIx64, p->fingerprint[0], p->fingerprint[1]);
    if (rc < 0) return rc;
    if (strcmp(have, want) == 0) return 1;
    return kolo_fail(
        KOLO_ECONFIG,
        "%s is complete, but was made from another source or with other options; --force replaces it",
        p->options.out);
}

/* A shard that was already renamed when the last run ended goes back to work. */
static int move_back_shards(packing *p)
{
    DIR *dir = opendir(p->options.out);
    struct dirent *entry;
    if (!dir) return kolo_fail(KOLO_EIO, "%s: %s", p->options.out, strerror(errno));
    int rc = 0;
    while (rc == 0 && (entry = readdir(dir))) {
        const size_t n = strlen(entry->d_name);
        if (!is_output(entry->d_name) || strcmp(entry->d_name + n - 3, ".h5") != 0) continue;
        char *from = kolo_format("%s/%s", p->options.out, entry->d_name),
             *to = kolo_format("%s/%s", p->work, entry->d_name);
        if (!from || !to) rc = KOLO_ENOMEM;
        else if (rename(from, to) != 0) rc = kolo_fail(KOLO_EIO, "%s: %s", from, strerror(errno));
        free(from);
        free(to);
    }
    closedir(dir);
    return rc;
}

/* Shards within the source would be listed with it the next time. */
static int check_apart(const pack_options *o)
{
    char *out = kolo_strdup(o->out), *real = NULL;
    int rc = out ? 0 : KOLO_ENOMEM;
    while (rc == 0 && !(real = realpath(out, NULL))) { /* the nearest folder that is there */
        if (errno == ENOMEM) {
            rc = kolo_no_memory(PATH_MAX);
            break;
        }
        char *slash = strrchr(out, '/');
        if (slash && slash != out) {
            *slash = 0;
            continue;
        }
        free(out);
        out = kolo_strdup(slash ? "/" : ".");
        if (!out) rc = KOLO_ENOMEM;
    }
    for (int i = 0; i < o->in_count && rc == 0; i++) {
        struct stat info;
        const bool folder = stat(o->in[i], &info) == 0 && S_ISDIR(info.st_mode);
        char *in = folder ? realpath(o->in[i], NULL) : NULL;
        if (folder && !in && errno == ENOMEM) rc = kolo_no_memory(PATH_MAX);
        const size_t n = in ? strlen(in) : 0;
        if (in && real && strncmp(real, in, n) == 0 && (real[n] == '/' || real[n] == 0))
            rc = kolo_fail(KOLO_ECONFIG, "--out %s lies within --in %s; choose a folder beside it", o->out,
                           o->in[i]);
        free(in);
    }
    free(real);
    free(out);
    return rc;
}

/* Rank 0: is the folder ours to write? */
static int claim_output(packing *p)
{
    const pack_options *o = &p->options;
    char *plan = kolo_format("%s/plan", p->work), *text = fingerprint_text(p);
    int rc = plan && text ? kolo_folder_make(o->out) : KOLO_ENOMEM;
    if (rc == 0) rc = kolo_lock_take(&p->lock, o->out, ".pack-lock", "--out");
    const bool begun = rc == 0 && kolo_file_exists(plan);
    if (rc == 0 && o->force) rc = clear_output(p);
    else if (rc == 0 && begun && o->resume) rc = compare_plan(p, plan, text);
    else if (rc == 0 && begun)
        rc = kolo_fail(KOLO_ECONFIG,
                       "%s holds an unfinished packing; --resume goes on with it, --force starts again",
                       o->out);
    else if (rc == 0 && o->resume && has_output(o->out)) rc = compare_output(p);
    else if (rc == 0 && has_output(o->out))
        rc = kolo_fail(KOLO_ECONFIG, "%s already holds shards or a manifest; --force replaces them", o->out);
    p->claimed = rc == 0;
    if (rc == 0 && p->resumed) rc = move_back_shards(p);
    if (rc == 0 && !p->resumed) {
        rc = kolo_folder_make_own(p->work);
        if (rc == 0 && !o->kind->load) rc = write_list(p);
        if (rc == 0) rc = kolo_file_write_atomic(plan, text, strlen(text));
    }
    free(plan);
    free(text);
    return rc;
}

/* Size of the output where every sample has the same: from the options, else the first readable image's. */
static int choose_shape(packing *p)
{
    const pack_options *o = &p->options;
    const source *s = &p->source;
    p->channels = o->color == PACK_COLOR_RGB ? 3 : o->color == PACK_COLOR_GRAY ? 1 : s->channels;
    if (o->encoding != KOLO_ENCODING_RAW) return 0;
    if (o->crop || o->resize == PACK_RESIZE_EXACT || o->resize == PACK_RESIZE_LETTERBOX) {
        p->height = p->width = o->size;
        return 0;
    }
    converter *c;
    KOLO_TRY(converter_create(&c, p));
    int rc = 0;
    int64_t i = 0;
    for (; i < p->slot_count; i++) {
        rc = converter_shape(c, p->order[i], &p->height, &p->width);
        if (rc == 0 || !o->skip) break;
    }
    converter_destroy(&c);
    if (rc == 0) return 0;
    char path[4096];
    source_full_path(s, p->order[i < p->slot_count ? i : 0], path, sizeof path);
    return kolo_fail_in(rc, "%s: ", path);
}

/* Rank 0's flag to all. */
static int share_flag(packing *p, int mine, bool *flag)
{
    int *all = kolo_alloc(sizeof *all * (size_t)p->launch.size);
    if (!all) return KOLO_ENOMEM;
    int rc = kolo_launch_exchange(&p->launch, &mine, sizeof mine, all);
    *flag = all[0];
    free(all);
    return rc;
}

static char *beats_path(const packing *p) { return kolo_format("%s/beats", p->work); }

/* Rank 0: where the ranks show that they live. */
static int make_beats(const packing *p)
{
    char *path = beats_path(p);
    const int rc = path ? kolo_file_write_atomic(path, "", 0) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static int beat_there(packing *p)
{
    char *path = beats_path(p);
    if (path) kolo_launch_beat_at(&p->launch, path);
    free(path);
    return path ? 0 : KOLO_ENOMEM;
}

/* Rank 0: what there is to pack, and may it be written? 1: it has been. */
static int plan_begin(packing *p)
{
    if (p->options.out) KOLO_TRY(check_apart(&p->options));
    KOLO_TRY(open_source(p));
    KOLO_TRY(pack_choose(p));
    KOLO_TRY(pack_check_shards(p->options.shards, p->slot_count));
    make_fingerprint(p);
    return p->options.dry_run ? 0 : claim_output(p);
}

/* The other ranks take over what rank 0 has found. */
static int follow(packing *p)
{
    p->source.kind = p->options.kind;
    KOLO_TRY(p->options.kind->load ? open_source(p) : map_list(p));
    KOLO_TRY(pack_choose(p));
    make_fingerprint(p);
    return 0;
}

static int plan_prepare(packing *p)
{
    const int cpus = kolo_cpu_count() / (p->launch.local_size > 0 ? p->launch.local_size : 1);
    p->threads = p->options.threads ? p->options.threads : cpus > 1 ? cpus : 1;
    KOLO_TRY(source_prepare(&p->source));
    KOLO_TRY(choose_shape(p));
    return p->options.dry_run ? 0 : pack_journal_open(p);
}

int pack_plan(packing *p)
{
    const bool first = p->launch.rank == 0;
    p->lock.fd = -1;
    p->options_text = pack_options_text(&p->options);
    p->work = kolo_format("%s/.pack", p->options.out ? p->options.out : ".");
    int rc = !p->options_text || !p->work ? KOLO_ENOMEM : first ? plan_begin(p) : 0;
    if (rc == 0 && first && !p->options.dry_run) rc = make_beats(p);
    KOLO_TRY(pack_agree(p, rc));
    KOLO_TRY(share_flag(p, rc == 1, &p->complete));
    KOLO_TRY(share_flag(p, p->resumed, &p->resumed));
    if (p->complete) return 0;
    if (p->options.dry_run) return first ? plan_prepare(p) : 0;
    rc = beat_there(p);
    if (rc == 0 && !first) rc = follow(p);
    if (rc == 0) rc = plan_prepare(p);
    KOLO_TRY(pack_agree(p, rc));
    return pack_agree(p, pack_journal_brief(p));
}
