#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"
#include "pack.h"

enum field {
    SOURCE,
    IN,
    ANNOTATIONS,
    SPLIT,
    OUT,
    NAME,
    ENCODING,
    SIZE,
    RESIZE,
    CROP,
    QUALITY,
    SHARDS,
    SHUFFLE,
    ON_ERROR,
    MAX_BAD,
    COUNT,
    COLOR,
    THREADS,
    STATS_FROM,
    RESUME,
    FORCE,
    DRY_RUN,
    JSON,
    HELP,
    VERSION
};

typedef struct option {
    const char *name;
    enum field field;
    const char *value, *help; /* value NULL: a switch */
} option;

static const option table[] = {
    {"--source", SOURCE, "KIND", "what --in is (below)"},
    {"--in", IN, "PATH", "folder or file of the source; may be given several times (not for shapes)"},
    {"--annotations", ANNOTATIONS, "FILE", "file of labels or boxes, where a source asks for one; may be given several times"},
    {"--split", SPLIT, "train|val|test", "which split this is [train]"},
    {"--out", OUT, "DIR", "where the shards go; one folder is one split"},
    {"--name", NAME, "X", "name of the data set [from --in]"},
    {"--encoding", ENCODING, "raw|jpeg",
     "store pixels, or JPEG files (JPEG sources keep their bytes unless resized) [raw with --size, for mnist-idx and "
     "cifar-bin; else jpeg]"},
    {"--size", SIZE, "N", "side in pixels for --resize and --crop"},
    {"--resize", RESIZE, "shorter|longer|exact|none",
     "what --size sets: short side, long side, both sides [shorter with --size]"},
    {"--crop", CROP, "center|none", "cut the middle N x N [center for raw with --resize shorter]"},
    {"--quality", QUALITY, "Q", "of JPEG that is made here, 1 to 100 [90]"},
    {"--color", COLOR, "rgb|gray|keep",
     "keep: gray if every picture is gray [rgb for files, as they are for mnist-idx and cifar-bin]"},
    {"--shards", SHARDS, "N", "files to make [one per 2 GiB]"},
    {"--shuffle-seed", SHUFFLE, "N", "order of the samples; 0: as in the source [42 for train, else 0]"},
    {"--on-error", ON_ERROR, "fail|skip", "a picture that cannot be read: stop, or leave it out and list it [fail]"},
    {"--max-bad", MAX_BAD, "N", "with --on-error skip: stop when more than N are bad [no limit]"},
    {"--stats-from", STATS_FROM, "DIR",
     "packed training split: mean, standard deviation and class list are taken from there"},
    {"--count", COUNT, "N", "shapes: how many [4000 for train, else 1000]"},
    {"--threads", THREADS, "T", "threads per rank [CPUs / ranks on the node]"},
    {"--resume", RESUME, NULL, "go on with an interrupted packing of the same source and options"},
    {"--force", FORCE, NULL, "replace what is in DIR"},
    {"--dry-run", DRY_RUN, NULL, "list the source, say what would be written, write nothing"},
    {"--json", JSON, NULL, "progress and result as JSON lines on standard output"},
    {"--help", HELP, NULL, "this text"},
    {"--version", VERSION, NULL, "the version"},
};
#define OPTIONS ((int)(sizeof table / sizeof *table))

void pack_options_help(void)
{
    printf(
        "usage: kolo-pack --source KIND --in PATH --out DIR [options]\n\n"
        "Packs pictures into HDF5 shards for kolo. Runs alone, under mpiexec or srun; any number of ranks and threads\n"
        "writes the same bytes. Ctrl-C, SIGTERM and SIGUSR1 stop it cleanly (exit 75); --resume goes on.\n\n");
    for (int i = 0; i < OPTIONS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].value ? " " : "",
                 table[i].value ? table[i].value : "");
        printf(strlen(left) > 26 ? "  %s\n  %-26s %s\n" : "  %-26s%.0s %s\n", left, "", table[i].help);
    }
    printf("\nsources:\n");
    for (int i = 0; i < source_kind_count; i++) printf("  %-14s %s\n", source_kinds[i]->name, source_kinds[i]->help);
    printf("\nexit status: 0 done, 2 bad input, 3 reading or writing failed, 69 launcher, 75 stopped (use --resume), "
           "78 usage\n");
}

static int unknown(const char *word)
{
    const char *names[OPTIONS];
    for (int i = 0; i < OPTIONS; i++) names[i] = table[i].name;
    const char *near = kolo_nearest(word, names, OPTIONS);
    return kolo_fail(KOLO_ECONFIG, "unknown option %s%s%s; kolo-pack --help lists them", word,
                     near ? ", did you mean " : "", near ? near : "");
}

static int number(const char *name, const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < low || n > high)
        return kolo_fail(KOLO_ECONFIG, "%s %s: a number from %lld to %lld is wanted", name, text, (long long)low,
                         (long long)high);
    *value = n;
    return 0;
}

static int small(const char *name, const char *text, int low, int high, int *value)
{
    int64_t n = 0;
    KOLO_TRY(number(name, text, low, high, &n));
    *value = (int)n;
    return 0;
}

/* words: names separated by '|', as in the table. */
static int choose(const char *name, const char *words, const char *text, int *value)
{
    const size_t length = strlen(text);
    int i = 0;
    for (const char *at = words; *at; i++) {
        const size_t n = strcspn(at, "|");
        if (n == length && strncmp(at, text, n) == 0) {
            *value = i;
            return 0;
        }
        at += n + (at[n] == '|');
    }
    return kolo_fail(KOLO_ECONFIG, "%s %s: one of %s is wanted", name, text, words);
}

static int word_of(const char *name, const char *text, char *to, size_t size)
{
    size_t n = strlen(text);
    bool fine = n > 0 && n < size && text[0] != '.' && text[0] != '-';
    for (size_t i = 0; i < n; i++) fine &= isalnum((unsigned char)text[i]) || strchr("._-", text[i]);
    if (!fine)
        return kolo_fail(KOLO_ECONFIG, "%s %s: a word of letters, digits, `.`, `_`, `-` is wanted, at most %zu long",
                         name, text, size - 1);
    memcpy(to, text, n + 1);
    return 0;
}

static int set(pack_options *o, const option *e, const char *v, bool *encoded, bool *cropped, bool *resized)
{
    char names[512];
    int i = 0;
    switch (e->field) {
    case SOURCE:
        o->kind = source_find(v);
        if (o->kind) return 0;
        source_names(names, sizeof names);
        return kolo_fail(KOLO_ECONFIG, "--source %s: unknown; %s are known", v, names);
    case IN:
        if (o->in_count == PACK_MOST_INPUTS) return kolo_fail(KOLO_ECONFIG, "--in: at most %d", PACK_MOST_INPUTS);
        o->in[o->in_count++] = v;
        return 0;
    case ANNOTATIONS:
        if (o->annotation_count == PACK_MOST_INPUTS)
            return kolo_fail(KOLO_ECONFIG, "--annotations: at most %d", PACK_MOST_INPUTS);
        o->annotations[o->annotation_count++] = v;
        return 0;
    case SPLIT: KOLO_TRY(choose(e->name, e->value, v, &i)); return word_of(e->name, v, o->split, sizeof o->split);
    case OUT: o->out = v; return 0;
    case NAME: return word_of(e->name, v, o->name, sizeof o->name);
    case ENCODING:
        KOLO_TRY(choose(e->name, e->value, v, &i));
        o->encoding = i == 0 ? KOLO_ENCODING_RAW : KOLO_ENCODING_JPEG;
        *encoded = true;
        return 0;
    case SIZE: return small(e->name, v, 1, 8192, &o->size);
    case RESIZE:
        KOLO_TRY(choose(e->name, e->value, v, &i));
        o->resize =
            (enum pack_resize[]){PACK_RESIZE_SHORTER, PACK_RESIZE_LONGER, PACK_RESIZE_EXACT, PACK_RESIZE_NONE}[i];
        *resized = true;
        return 0;
    case CROP:
        KOLO_TRY(choose(e->name, e->value, v, &i));
        o->crop = i == 0;
        *cropped = true;
        return 0;
    case QUALITY: return small(e->name, v, 1, 100, &o->quality);
    case SHARDS: return small(e->name, v, 1, 99999, &o->shards);
    case SHUFFLE: return number(e->name, v, 0, INT64_MAX, &o->shuffle_seed);
    case ON_ERROR:
        KOLO_TRY(choose(e->name, e->value, v, &i));
        o->skip = i == 1;
        return 0;
    case MAX_BAD: return number(e->name, v, 0, INT64_MAX, &o->max_bad);
    case COUNT: return number(e->name, v, 1, 100000000, &o->count);
    case COLOR:
        KOLO_TRY(choose(e->name, e->value, v, &i));
        o->color = (enum pack_color[]){PACK_COLOR_RGB, PACK_COLOR_GRAY, PACK_COLOR_KEEP}[i];
        return 0;
    case THREADS: return small(e->name, v, 1, 1024, &o->threads);
    case STATS_FROM: o->stats_from = v; return 0;
    case RESUME: o->resume = true; return 0;
    case FORCE: o->force = true; return 0;
    case DRY_RUN: o->dry_run = true; return 0;
    case JSON: o->json = true; return 0;
    case HELP: o->help = true; return 0;
    case VERSION: o->version = true; return 0;
    }
    return 0;
}

/* The last part of the path that is not the split; characters that file names dislike become '_'. */
static void name_from(pack_options *o)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", o->in_count ? o->in[0] : o->kind->name);
    if (o->kind->pixels) snprintf(path, sizeof path, "%s", strcmp(o->kind->name, "mnist-idx") == 0 ? "mnist" : "cifar");
    for (;;) {
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/') path[--n] = 0;
        char *slash = strrchr(path, '/');
        const char *last = slash ? slash + 1 : path;
        if (slash && slash != path && (strcmp(last, o->split) == 0 || strcmp(last, ".") == 0)) {
            *slash = 0;
            continue;
        }
        snprintf(o->name, sizeof o->name, "%.60s", last);
        break;
    }
    for (char *c = o->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) *c = '_';
    if (o->name[0] == 0 || o->name[0] == '.' || o->name[0] == '-') snprintf(o->name, sizeof o->name, "data");
}

static int complete(pack_options *o, bool encoded, bool cropped, bool resized)
{
    if (!o->kind) return kolo_fail(KOLO_ECONFIG, "--source is missing; kolo-pack --help lists them");
    if (!o->out && !o->dry_run) return kolo_fail(KOLO_ECONFIG, "--out is missing: the folder for the shards");
    const bool shapes = strcmp(o->kind->name, "shapes") == 0;
    if (o->in_count == 0 && !shapes)
        return kolo_fail(KOLO_ECONFIG, "--in is missing: the folder or file(s) of the source");
    if (o->in_count > 0 && shapes) return kolo_fail(KOLO_ECONFIG, "--source shapes reads nothing; leave --in away");
    if (o->count && !shapes) return kolo_fail(KOLO_ECONFIG, "--count belongs to --source shapes");
    if (o->resume && o->force)
        return kolo_fail(KOLO_ECONFIG, "--resume keeps what is there, --force replaces it; give one of them");
    if (!resized) o->resize = o->size ? PACK_RESIZE_SHORTER : PACK_RESIZE_NONE;
    if (o->resize != PACK_RESIZE_NONE && !o->size) return kolo_fail(KOLO_ECONFIG, "--resize needs --size");
    if (!encoded) o->encoding = o->kind->pixels || o->size ? KOLO_ENCODING_RAW : KOLO_ENCODING_JPEG;
    if (!cropped) o->crop = o->size && o->encoding == KOLO_ENCODING_RAW && o->resize == PACK_RESIZE_SHORTER;
    if (o->crop && !o->size) return kolo_fail(KOLO_ECONFIG, "--crop needs --size");
    if (o->shuffle_seed < 0) o->shuffle_seed = strcmp(o->split, "train") == 0 ? 42 : 0;
    if (o->color == PACK_COLOR_AUTO) o->color = o->kind->pixels ? PACK_COLOR_KEEP : PACK_COLOR_RGB;
    if (o->quality == 0) o->quality = 90;
    if (o->name[0] == 0) name_from(o);
    return 0;
}

int pack_options_read(pack_options *o, int argc, char **argv)
{
    bool encoded = false, cropped = false, resized = false;
    *o = (pack_options){.shuffle_seed = -1, .max_bad = -1, .split = "train"};
    for (int i = 1; i < argc; i++) {
        char name[32];
        const char *equal = strchr(argv[i], '='), *value = equal ? equal + 1 : NULL;
        const option *e = NULL;
        snprintf(name, sizeof name, "%.*s", equal ? (int)(equal - argv[i]) : (int)strlen(argv[i]), argv[i]);
        for (int k = 0; k < OPTIONS && !e; k++)
            if (strcmp(name, table[k].name) == 0) e = &table[k];
        if (!e) return unknown(argv[i]);
        if (e->value && !value) {
            if (i + 1 == argc) return kolo_fail(KOLO_ECONFIG, "%s: a value is missing (%s)", name, e->value);
            value = argv[++i];
        }
        if (!e->value && value) return kolo_fail(KOLO_ECONFIG, "%s takes no value", name);
        KOLO_TRY(set(o, e, value, &encoded, &cropped, &resized));
        if (o->help || o->version) return 0;
    }
    return complete(o, encoded, cropped, resized);
}

char *pack_options_text(const pack_options *o)
{
    static const char *const resizes[] = {"none", "shorter", "longer", "exact"}, *const colors[] = {"auto", "rgb",
                                                                                                    "gray", "keep"};
    return kolo_format("source=%s split=%s name=%s encoding=%s size=%d resize=%s crop=%s quality=%d color=%s shards=%d "
                       "shuffle_seed=%lld on_error=%s",
                       o->kind->name, o->split, o->name, o->encoding == KOLO_ENCODING_RAW ? "raw" : "jpeg", o->size,
                       resizes[o->resize], o->crop ? "center" : "none", o->quality, colors[o->color], o->shards,
                       (long long)o->shuffle_seed, o->skip ? "skip" : "fail");
}
