#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"
#include "pack/pack.h"

enum field {
    SOURCE_KIND,
    IN,
    DATA,
    ANNOTATIONS,
    SPLIT,
    OUT,
    NAME,
    CLASSES,
    SUBSET,
    MIN_FACES,
    LIMIT,
    HOLDOUT,
    GROUP,
    ENCODING,
    SIZE,
    RESIZE,
    CROP,
    FILTER,
    QUALITY,
    COLOR,
    SHARDS,
    SHUFFLE,
    NO_SHUFFLE,
    ON_ERROR,
    MAX_BAD,
    CHECK,
    STATS_FROM,
    COUNT,
    THREADS,
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
    {"--source", SOURCE_KIND, "KIND", "what --in is (below)"},
    {"--in", IN, "PATH", "folder or file of the source; may be given several times"},
    {"--data", DATA, "DIR",
     "folder with folders train and val (or valid, validation, test), in each a folder a class: packs both, "
     "to train and val in --out; the same as --source imagefolder --in DIR, once for each --split"},
    {"--annotations", ANNOTATIONS, "FILE",
     "file of labels or boxes, for sources that ask for one; may be given several times"},
    {"--split", SPLIT, "train|val|test", "which split this is [train]"},
    {"--out", OUT, "DIR", "where the shards go; one folder is one split"},
    {"--name", NAME, "X", "name of the data set [from --in]"},
    {"--classes", CLASSES, "FILE", "only these classes, one name a line, in this order"},
    {"--subset", SUBSET, "FILE", "only these images, one path a line as the source names them"},
    {"--min-faces", MIN_FACES, "N", "lfw: only people of whom there are N images or more"},
    {"--limit", LIMIT, "N", "only N images, spread evenly over the source"},
    {"--holdout", HOLDOUT, "val|test=PART",
     "hold out a part (0.1: a tenth) of every class: without --split packs both, to DIR/train and DIR/val; "
     "with --split train or val only that one, to DIR"},
    {"--group", GROUP, "REGEX",
     "with --holdout: images for whose path the expression (or its first parenthesis) matches the same text "
     "stay together, as those of one patient or one video"},
    {"--encoding", ENCODING, "raw|jpeg|mixed",
     "raw: pixels, all of one size. jpeg: JPEG files; those of the source keep their bytes unless resized, "
     "the others are encoded here. mixed: JPEG files that keep their bytes, everything else as pixels of its "
     "own size: nothing loses by encoding [raw with --size, for mnist-idx and cifar-bin; else jpeg]"},
    {"--size", SIZE, "N", "side in pixels for --resize and --crop"},
    {"--resize", RESIZE, "shorter|longer|exact|letterbox|none",
     "what --size sets: short side, long side, both sides, long side with gray bars [shorter with --size]"},
    {"--crop", CROP, "center|none", "cut the middle N x N [center for raw with --resize shorter]"},
    {"--filter", FILTER, "bilinear|bicubic|lanczos3|area",
     "how images are resized, all with antialias [bilinear]"},
    {"--quality", QUALITY, "Q", "of JPEG that is made here, 1 to 100 [90]"},
    {"--color", COLOR, "rgb|gray|keep",
     "keep: gray if every image is gray [rgb for files, as they are for mnist-idx and cifar-bin]"},
    {"--shards", SHARDS, "N", "files to make [one per 2 GiB]"},
    {"--shuffle-seed", SHUFFLE, "N", "order of the samples; 0: as in the source [42 for train, else 0]"},
    {"--no-shuffle", NO_SHUFFLE, NULL, "as --shuffle-seed 0"},
    {"--on-error", ON_ERROR, "fail|skip",
     "an image that cannot be read, an annotation that is wrong (malformed, of an unknown class, a box "
     "outside of its image): stop, or leave it out and list it, with file, line and cause, in "
     "NAME-SPLIT.rejects [fail]"},
    {"--max-bad", MAX_BAD, "N",
     "with --on-error skip: stop when more than N images, or N annotations, are bad [no limit]"},
    {"--check", CHECK, "headers|decode",
     "JPEG files that keep their bytes: look at headers and end, and decode 512 or so, from which mean and "
     "standard deviation are taken; or decode all [headers]"},
    {"--stats-from", STATS_FROM, "DIR",
     "packed training split: mean, standard deviation and class list are taken from there"},
    {"--count", COUNT, "N", "sources that make their images: how many [4000 for train, else 1000]"},
    {"--threads", THREADS, "T", "threads per rank [CPUs / ranks on the node]"},
    {"--resume", RESUME, NULL, "go on with an interrupted packing of the same source and options"},
    {"--force", FORCE, NULL, "replace what is in DIR"},
    {"--dry-run", DRY_RUN, NULL, "list the source, say what would be written, write nothing"},
    {"--json", JSON, NULL, "progress and result as JSON lines on standard output"},
    {"--help", HELP, NULL, "this text"},
    {"--version", VERSION, NULL, "the version"},
};
const char *const pack_filter_names[] = {"bilinear", "bicubic", "lanczos3", "area"};

#define OPTIONS ((int)(sizeof table / sizeof *table))

/* Words of `text` beside `left`, in lines of 120 columns. */
static void print_wrapped(const char *left, int column, const char *text)
{
    int at = printf("  %-*s ", column, left);
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (at + n > 119) at = printf("\n  %-*s ", column, "") - 1;
        at += printf("%.*s%s", n, text, text[n] ? " " : "");
        text += n + (text[n] == ' ');
    }
    printf("\n");
}

void pack_options_help(void)
{
    printf("usage: kolo-pack --source KIND --in PATH --out DIR [options]\n"
           "       kolo-pack data=FOLDER out=DIR [options]      (key=value is --key value)\n\n"
           "Packs images into HDF5 shards for kolo. Runs alone, under mpiexec or srun; any number of ranks "
           "and threads\n"
           "writes the same bytes. Ctrl-C, SIGTERM and SIGUSR1 stop it cleanly (exit 75); --resume goes "
           "on.\n\n");
    for (int i = 0; i < OPTIONS; i++) {
        char left[64];
        const int n = snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].value ? " " : "",
                               table[i].value ? table[i].value : "");
        if (n > 26) printf("  %s\n", left);
        print_wrapped(n > 26 ? "" : left, 26, table[i].help);
    }
    printf("\nsources:\n");
    for (int i = 0; i < source_kind_count; i++) {
        char text[512];
        const char *files = source_kinds[i]->annotations;
        snprintf(text, sizeof text, "%s%s%s", source_kinds[i]->help, files ? ". --annotations: " : "",
                 files ? files : "");
        print_wrapped(source_kinds[i]->name, 14, text);
    }
    printf("\nexit status: 0 done, 2 bad input, 3 reading or writing failed, 69 launcher or a lost rank, 71 "
           "out of memory (use fewer --threads, or ask for more), 75 stopped (use --resume), 78 usage\n");
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
        return kolo_fail(KOLO_ECONFIG, "%s %s: must be a number from %lld to %lld", name, text,
                         (long long)low, (long long)high);
    *value = n;
    return 0;
}

/* words: names separated by '|', as in the table. */
static int options_choose(const char *name, const char *words, const char *text, int *value)
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
    return kolo_fail(KOLO_ECONFIG, "%s %s: must be one of %s", name, text, words);
}

static int word_of(const char *name, const char *text, char *to, size_t size)
{
    size_t n = strlen(text);
    bool fine = n > 0 && n < size && text[0] != '.' && text[0] != '-';
    for (size_t i = 0; i < n; i++) fine &= isalnum((unsigned char)text[i]) || strchr("._-", text[i]);
    if (!fine)
        return kolo_fail(KOLO_ECONFIG,
                         "%s %s: must be a word of letters, digits, `.`, `_`, `-`, at most %zu long", name,
                         text, size - 1);
    memcpy(to, text, n + 1);
    return 0;
}

static int holdout(pack_options *o, const char *name, const char *v)
{
    char part[16], *end;
    const char *equal = strchr(v, '=');
    snprintf(part, sizeof part, "%.*s", equal ? (int)(equal - v) : 0, v);
    o->holdout_part = equal ? strtod(equal + 1, &end) : 0;
    if ((strcmp(part, "val") != 0 && strcmp(part, "test") != 0) || *end || !(o->holdout_part > 0) ||
        !(o->holdout_part < 1))
        return kolo_fail(KOLO_ECONFIG, "%s %s: must be val=PART or test=PART, with a part between 0 and 1",
                         name, v);
    snprintf(o->holdout, sizeof o->holdout, "%s", part);
    return 0;
}

typedef struct given { /* what the command line said itself */
    bool encoding, crop, resize, split, seed, unshuffled;
} given;

/* Options that only put down what is said: FLAG bool, TEXT const char *, SHORT int and LONG int64_t from low
 * to high, PICK the number of a word. */
typedef struct plain {
    enum { NOT_PLAIN, FLAG, TEXT, SHORT, LONG, PICK } type;
    size_t offset; /* in pack_options */
    int64_t low, high;
} plain;
#define PLAIN(type, member, ...)                          \
    {                                                     \
        type, offsetof(pack_options, member), __VA_ARGS__ \
    }
static const plain plains[] = {
    [CLASSES] = PLAIN(TEXT, classes, 0, 0),
    [SUBSET] = PLAIN(TEXT, subset, 0, 0),
    [GROUP] = PLAIN(TEXT, group, 0, 0),
    [OUT] = PLAIN(TEXT, out, 0, 0),
    [STATS_FROM] = PLAIN(TEXT, stats_from, 0, 0),
    [LIMIT] = PLAIN(LONG, limit, 1, INT64_MAX),
    [MIN_FACES] = PLAIN(LONG, min_faces, 1, INT32_MAX),
    [SHUFFLE] = PLAIN(LONG, shuffle_seed, 0, INT64_MAX),
    [MAX_BAD] = PLAIN(LONG, max_bad, 0, INT64_MAX),
    [COUNT] = PLAIN(LONG, count, 1, 100000000),
    [SIZE] = PLAIN(SHORT, size, 1, 8192),
    [QUALITY] = PLAIN(SHORT, quality, 1, 100),
    [SHARDS] = PLAIN(SHORT, shards, 1, 99999),
    [THREADS] = PLAIN(SHORT, threads, 1, 1024),
    [FILTER] = PLAIN(PICK, filter, 0, 0),
    [RESUME] = PLAIN(FLAG, resume, 0, 0),
    [FORCE] = PLAIN(FLAG, force, 0, 0),
    [DRY_RUN] = PLAIN(FLAG, dry_run, 0, 0),
    [JSON] = PLAIN(FLAG, json, 0, 0),
    [HELP] = PLAIN(FLAG, help, 0, 0),
    [VERSION] = PLAIN(FLAG, version, 0, 0),
};

static int set_plain(pack_options *o, const option *e, const plain *p, const char *v)
{
    char *to = (char *)o + p->offset;
    int64_t n = 0;
    int i = 0;
    if (p->type == SHORT || p->type == LONG) KOLO_TRY(number(e->name, v, p->low, p->high, &n));
    if (p->type == PICK) KOLO_TRY(options_choose(e->name, e->value, v, &i));
    switch (p->type) {
    case NOT_PLAIN: break;
    case FLAG: *(bool *)to = true; break;
    case TEXT: memcpy(to, &v, sizeof v); break;
    case LONG: memcpy(to, &n, sizeof n); break;
    case SHORT: i = (int)n; /* fall through */
    case PICK: memcpy(to, &i, sizeof i); break;
    }
    return 0;
}

static int add_input(const char *name, const char **list, int *count, const char *v)
{
    if (*count == PACK_MOST_INPUTS) return kolo_fail(KOLO_ECONFIG, "%s: at most %d", name, PACK_MOST_INPUTS);
    list[(*count)++] = v;
    return 0;
}

static int set_kind(pack_options *o, const char *v)
{
    char names[512];
    o->kind = source_find(v);
    if (o->kind) return 0;
    source_names(names, sizeof names);
    return kolo_fail(KOLO_ECONFIG, "--source %s: unknown; %s are known", v, names);
}

/* What is a word of a few, number i. */
static void set_choice(pack_options *o, enum field field, int i, given *g)
{
    static const enum pack_resize resize[] = {PACK_RESIZE_SHORTER, PACK_RESIZE_LONGER, PACK_RESIZE_EXACT,
                                              PACK_RESIZE_LETTERBOX, PACK_RESIZE_NONE};
    static const enum pack_color color[] = {PACK_COLOR_RGB, PACK_COLOR_GRAY, PACK_COLOR_KEEP};
    if (field == ENCODING) o->encoding = (enum kolo_encoding)i, g->encoding = true;
    if (field == RESIZE) o->resize = resize[i], g->resize = true;
    if (field == CROP) o->crop = i == 0, g->crop = true;
    if (field == CHECK) o->decode_all = i == 1;
    if (field == ON_ERROR) o->skip = i == 1;
    if (field == COLOR) o->color = color[i];
}

static int options_set(pack_options *o, const option *e, const char *v, given *g)
{
    const plain *p =
        (size_t)e->field < sizeof plains / sizeof *plains ? &plains[e->field] : &plains[SOURCE_KIND];
    int i = 0;
    g->seed |= e->field == SHUFFLE;
    if (p->type != NOT_PLAIN) return set_plain(o, e, p, v);
    switch (e->field) {
    case SOURCE_KIND: return set_kind(o, v);
    case DATA: o->data = true; /* fall through */
    case IN: return add_input(e->name, o->in, &o->in_count, v);
    case ANNOTATIONS: return add_input(e->name, o->annotations, &o->annotation_count, v);
    case HOLDOUT: return holdout(o, e->name, v);
    case NAME: return word_of(e->name, v, o->name, sizeof o->name);
    case SPLIT:
        KOLO_TRY(options_choose(e->name, e->value, v, &i));
        g->split = true;
        return word_of(e->name, v, o->split, sizeof o->split);
    case NO_SHUFFLE:
        g->unshuffled = true;
        o->shuffle_seed = 0;
        return 0;
    default: break;
    }
    KOLO_TRY(options_choose(e->name, e->value, v, &i));
    set_choice(o, e->field, i, g);
    return 0;
}

/* The last part of the path that is not the split; characters that file names dislike become '_'. */
static void name_from(pack_options *o)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", o->in_count ? o->in[0] : o->kind->name);
    if (o->kind->data_name) snprintf(path, sizeof path, "%s", o->kind->data_name);
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

/* Of --data: both parts are there, before one of them is packed. */
static int check_parts(const pack_options *o)
{
    static const char *const val[] = {"val", "valid", "validation", "test"};
    char path[4096];
    bool there = false;
    snprintf(path, sizeof path, "%s/train", o->in[0]);
    const bool train = kolo_folder_exists(path);
    for (int i = 0; i < 4 && !there; i++) {
        snprintf(path, sizeof path, "%s/%s", o->in[0], val[i]);
        there = kolo_folder_exists(path);
    }
    if (train && there) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "--data %s: there is no folder %s in it; it packs train and val, each with a folder a "
                     "class. Of a folder of classes --holdout val=0.1 holds out a tenth",
                     o->in[0], train ? "val" : "train");
}

static int check_source(const pack_options *o)
{
    if (o->data && (o->in_count != 1 || strcmp(o->kind->name, "imagefolder") != 0))
        return kolo_fail(KOLO_ECONFIG, "--data is one folder of --source imagefolder; for other sources say "
                                       "--source, --in and --split");
    if (!o->kind) return kolo_fail(KOLO_ECONFIG, "--source is missing; kolo-pack --help lists them");
    if (!o->out && !o->dry_run) return kolo_fail(KOLO_ECONFIG, "--out is missing: the folder for the shards");
    if (o->in_count == 0 && !o->kind->made)
        return kolo_fail(KOLO_ECONFIG, "--in is missing: the folder or file(s) of the source");
    if (o->in_count > 0 && o->kind->made)
        return kolo_fail(KOLO_ECONFIG, "--source %s reads no files; leave --in out", o->kind->name);
    if (o->count && !o->kind->made)
        return kolo_fail(KOLO_ECONFIG,
                         "--count belongs to sources that make their images; --limit takes a part");
    if (o->min_faces && !o->kind->people)
        return kolo_fail(KOLO_ECONFIG, "--source %s has no people for --min-faces", o->kind->name);
    if (o->annotation_count && !o->kind->annotations)
        return kolo_fail(KOLO_ECONFIG, "--source %s takes no --annotations", o->kind->name);
    return 0;
}

static int check_together(const pack_options *o, const given *g)
{
    if (o->resume && o->force)
        return kolo_fail(KOLO_ECONFIG, "--resume keeps what is there, --force replaces it; give one of them");
    if (o->resize != PACK_RESIZE_NONE && !o->size) return kolo_fail(KOLO_ECONFIG, "--resize needs --size");
    if (o->crop && !o->size) return kolo_fail(KOLO_ECONFIG, "--crop needs --size");
    if (o->crop && o->resize == PACK_RESIZE_LETTERBOX)
        return kolo_fail(KOLO_ECONFIG, "--resize letterbox keeps the whole image; leave --crop out");
    if (o->size && o->resize == PACK_RESIZE_NONE && !o->crop)
        return kolo_fail(KOLO_ECONFIG,
                         "--size with --resize none and no --crop changes nothing; leave it out");
    if (g->seed && g->unshuffled)
        return kolo_fail(KOLO_ECONFIG, "--shuffle-seed and --no-shuffle: give one of them");
    if (o->classes && o->stats_from)
        return kolo_fail(KOLO_ECONFIG, "--stats-from uses the training split's classes; leave --classes out");
    if (o->group && !o->holdout[0]) return kolo_fail(KOLO_ECONFIG, "--group belongs to --holdout");
    if (o->max_bad >= 0 && !o->skip) return kolo_fail(KOLO_ECONFIG, "--max-bad belongs to --on-error skip");
    if (o->holdout[0] && g->split && strcmp(o->split, "train") != 0 && strcmp(o->split, o->holdout) != 0)
        return kolo_fail(KOLO_ECONFIG, "--split %s: --holdout %s makes the splits train and %s", o->split,
                         o->holdout, o->holdout);
    return 0;
}

static int options_complete(pack_options *o, const given *g)
{
    if (o->data && !o->kind) o->kind = source_find("imagefolder");
    KOLO_TRY(check_source(o));
    if (!g->resize) o->resize = o->size ? PACK_RESIZE_SHORTER : PACK_RESIZE_NONE;
    if (!g->encoding) o->encoding = o->kind->pixels || o->size ? KOLO_ENCODING_RAW : KOLO_ENCODING_JPEG;
    if (!g->crop) o->crop = o->size && o->encoding == KOLO_ENCODING_RAW && o->resize == PACK_RESIZE_SHORTER;
    KOLO_TRY(check_together(o, g));
    snprintf(o->out_split, sizeof o->out_split, "%s", o->split);
    if (o->holdout[0]) { /* both parts are cut from the same samples */
        snprintf(o->split, sizeof o->split, "train");
        o->both = !g->split;
        o->holdout_seed = o->shuffle_seed >= 0 ? o->shuffle_seed : 42;
    }
    if (o->data && !o->holdout[0] && !g->split) {
        KOLO_TRY(check_parts(o));
        o->both = true;
    }
    o->default_seed = o->shuffle_seed < 0;
    if (o->shuffle_seed < 0) o->shuffle_seed = strcmp(o->out_split, "train") == 0 ? 42 : 0;
    if (o->color == PACK_COLOR_AUTO) o->color = o->kind->pixels ? PACK_COLOR_KEEP : PACK_COLOR_RGB;
    if (o->quality == 0) o->quality = 90;
    if (o->name[0] == 0) name_from(o);
    return 0;
}

int pack_options_read(pack_options *o, int argc, char **argv)
{
    given g = {0};
    *o = (pack_options){.shuffle_seed = -1, .max_bad = -1, .split = "train"};
    for (int i = 1; i < argc; i++) {
        char name[32];
        const char *equal = strchr(argv[i], '='), *value = equal ? equal + 1 : NULL;
        const option *e = NULL;
        /* key=value is --key value, as kolo has it */
        snprintf(name, sizeof name, "%s%.*s", equal && argv[i][0] != '-' ? "--" : "",
                 equal ? (int)(equal - argv[i]) : (int)strlen(argv[i]), argv[i]);
        for (char *c = name; equal && argv[i][0] != '-' && *c; c++)
            if (*c == '_') *c = '-';
        for (int k = 0; k < OPTIONS && !e; k++)
            if (strcmp(name, table[k].name) == 0) e = &table[k];
        if (!e) return unknown(argv[i]);
        if (e->value && !value) {
            if (i + 1 == argc) return kolo_fail(KOLO_ECONFIG, "%s: a value is missing (%s)", name, e->value);
            value = argv[++i];
        }
        if (!e->value && value) return kolo_fail(KOLO_ECONFIG, "%s takes no value", name);
        KOLO_TRY(options_set(o, e, value, &g));
        if (o->help || o->version) return 0;
    }
    return options_complete(o, &g);
}

char *pack_options_text(const pack_options *o)
{
    static const char *const resizes[] = {"none", "shorter", "longer", "exact", "letterbox"},
                             *const colors[] = {"auto", "rgb", "gray", "keep"},
                             *const encodings[] = {"raw", "jpeg", "mixed"};
    char part[64] = "", faces[32] = "";
    if (o->min_faces) snprintf(faces, sizeof faces, " min_faces=%lld", (long long)o->min_faces);
    if (o->holdout[0])
        snprintf(part, sizeof part, " holdout=%s=%g,%lld", o->holdout, o->holdout_part,
                 (long long)o->holdout_seed);
    return kolo_format(
        "source=%s split=%s name=%s encoding=%s size=%d resize=%s crop=%s filter=%s quality=%d color=%s "
        "shards=%d shuffle_seed=%lld limit=%lld%s%s%s%s%s%s%s check=%s on_error=%s",
        o->kind->name, o->out_split, o->name, encodings[o->encoding], o->size, resizes[o->resize],
        o->crop ? "center" : "none", pack_filter_names[o->filter], o->quality, colors[o->color], o->shards,
        (long long)o->shuffle_seed, (long long)o->limit, faces, part, o->group ? " group=" : "",
        o->group ? o->group : "", o->classes ? " classes=chosen" : "", o->subset ? " subset=chosen" : "",
        o->stats_from ? " stats=given" : "", o->decode_all ? "decode" : "headers", o->skip ? "skip" : "fail");
}
