/* reshard, merge, subset: three choices of samples for shards_copy. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/copy.h"

#define MOST_INPUTS 64

static void close_all(kolo_dataset **inputs, int n)
{
    for (int i = 0; i < n; i++) kolo_dataset_close(&inputs[i]);
}

static int open_all(kolo_dataset **inputs, const char *const *folders, int n)
{
    for (int i = 0; i < n; i++) KOLO_TRY(kolo_dataset_open(&inputs[i], folders[i]));
    return 0;
}

/* All samples of the inputs, one input after the other. */
static int pick_all(shards_copying *c)
{
    for (int i = 0; i < c->input_count; i++) c->count += kolo_dataset_get_info(c->inputs[i])->count;
    int64_t *picks = kolo_alloc(sizeof *picks * (size_t)c->count + 8);
    for (int64_t i = 0; picks && i < c->count; i++) picks[i] = i;
    c->picks = picks;
    return picks ? 0 : KOLO_ENOMEM;
}

static int copy_whole(const char *const *folders, int n, const shards_target *target, const char *command)
{
    kolo_dataset *inputs[MOST_INPUTS] = {0};
    shards_copying c = {.target = *target, .command = command, .inputs = inputs, .input_count = n};
    int rc = open_all(inputs, folders, n);
    if (rc == 0) rc = pick_all(&c);
    if (rc == 0) rc = shards_copy(&c);
    free((void *)c.picks);
    close_all(inputs, n);
    return rc;
}

int shards_reshard(int argc, char **argv)
{
    shards_target t = {0};
    const char *words[1];
    const shards_option options[] = {SHARDS_TARGET_OPTIONS(&t)};
    const shards_line line = {
        "reshard DIR --out NEW --shards M [--reshuffle SEED]",
        "The same samples in another number of files, or in another order. Bytes of images stay as they "
        "are;\n"
        "labels, boxes, tags, pairs and all other tables go with them. Every sample's checksum is checked.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        words,
        NULL};
    const int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (!t.shards && !t.seed) return kolo_fail(KOLO_ECONFIG, "reshard: give --shards M or --reshuffle SEED");
    KOLO_TRY(shards_check_target(&t, "reshard"));
    char command[96];
    snprintf(command, sizeof command, "reshard shards=%" PRId64 " reshuffle=%" PRId64, t.shards, t.seed);
    return copy_whole(words, 1, &t, command);
}

int shards_merge(int argc, char **argv)
{
    shards_target t = {0};
    const char *words[MOST_INPUTS];
    int n = 0;
    const shards_option options[] = {SHARDS_TARGET_OPTIONS(&t)};
    const shards_line line = {"merge A B ... --out NEW",
                              "The samples of several splits, one after the other, or mixed by --reshuffle. "
                              "Classes are joined by name, mean "
                              "and\n"
                              "deviation by numbers of pixels; encodings, sizes of raw images and forms of "
                              "boxes must be the same. Where "
                              "some\n"
                              "splits have boxes, the images of those that have none become background, "
                              "and their classes are left aside.",
                              options,
                              (int)(sizeof options / sizeof *options),
                              2,
                              MOST_INPUTS,
                              words,
                              &n};
    const int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    KOLO_TRY(shards_check_target(&t, "merge"));
    char command[96];
    snprintf(command, sizeof command, "merge shards=%" PRId64 " reshuffle=%" PRId64, t.shards, t.seed);
    return copy_whole(words, n, &t, command);
}

/* ---- subset -------------------------------------------------------------------------------------------- */

typedef struct subset {
    const char *folder, *classes, *list;
    int64_t limit;
    shards_target target;
    kolo_dataset *dataset;
    char **names; /* --classes */
    int64_t name_count, name_room;
    char *text, **paths; /* --list, sorted */
    int64_t path_count, path_room;
    bool *seen;   /* [path_count] */
    bool *wanted; /* [classes of the input] */
    int64_t *picks, count;
} subset;

static int add_name(void *context, const char *word)
{
    subset *s = context;
    const kolo_dataset_info *info = kolo_dataset_get_info(s->dataset);
    int k = 0;
    while (k < info->classes && strcmp(kolo_dataset_class_name(s->dataset, k), word) != 0) k++;
    if (k == info->classes)
        return kolo_fail(KOLO_ECONFIG, "subset: %s has no class %s; kolo-shards info %s lists them",
                         s->folder, word, s->folder);
    if (s->wanted[k]) return kolo_fail(KOLO_ECONFIG, "subset: class %s is named twice", word);
    s->wanted[k] = true;
    KOLO_TRY(kolo_grow(&s->names, &s->name_room, s->name_count, sizeof *s->names));
    s->names[s->name_count] = kolo_strdup(word);
    return s->names[s->name_count++] ? 0 : KOLO_ENOMEM;
}

/* Names with commas, or a file of one a line. */
static int read_classes(subset *s)
{
    s->wanted = kolo_alloc((size_t)kolo_dataset_get_info(s->dataset)->classes + 1);
    if (!s->wanted) return KOLO_ENOMEM;
    if (!s->classes) return 0;
    if (!kolo_file_exists(s->classes)) return shards_each_word(s->classes, add_name, s);
    char *text = NULL;
    int rc = kolo_file_read(s->classes, &text, NULL);
    for (char *at = text, *end; rc == 0 && *at; at = end) {
        const size_t n = strcspn(at, "\r\n");
        end = at + n + strspn(at + n, "\r\n");
        at[n] = 0;
        if (n) rc = add_name(s, at);
    }
    free(text);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static int read_list(subset *s)
{
    if (!s->list) return 0;
    KOLO_TRY(kolo_file_read(s->list, &s->text, NULL));
    for (char *at = s->text; *at;) {
        const size_t n = strcspn(at, "\n"), cr = n && at[n - 1] == '\r';
        char *next = at + n + (at[n] == '\n');
        at[n - cr] = 0;
        if (*at) {
            KOLO_TRY(kolo_grow(&s->paths, &s->path_room, s->path_count, sizeof *s->paths));
            s->paths[s->path_count++] = at;
        }
        at = next;
    }
    if (s->path_count == 0)
        return kolo_fail(KOLO_EINPUT,
                         "%s names no image; write one source path a line, as kolo-shards show prints them",
                         s->list);
    qsort(s->paths, (size_t)s->path_count, sizeof *s->paths, by_text);
    s->seen = kolo_alloc((size_t)s->path_count);
    return s->seen ? 0 : KOLO_ENOMEM;
}

/* Has the sample a label, a box or a tag of the classes? */
static bool has_class(const subset *s, int64_t i)
{
    if (!s->classes) return true;
    const kolo_targets *t = kolo_dataset_targets(s->dataset);
    const int32_t label = kolo_dataset_label(s->dataset, i);
    if (label >= 0 && s->wanted[label]) return true;
    for (int64_t k = t && t->box_offset ? t->box_offset[i] : 0;
         t && t->box_offset && k < t->box_offset[i + 1]; k++)
        if (s->wanted[t->box_class[k]]) return true;
    for (int64_t k = t && t->tag_offset ? t->tag_offset[i] : 0;
         t && t->tag_offset && k < t->tag_offset[i + 1]; k++)
        if (s->wanted[t->tag[k]]) return true;
    return false;
}

static int is_listed(const subset *s, int64_t i, bool *listed)
{
    char path[65600], *key = path;
    *listed = true;
    if (!s->list) return 0;
    KOLO_TRY(kolo_dataset_source(s->dataset, i, path, sizeof path));
    char **found = bsearch(&key, s->paths, (size_t)s->path_count, sizeof *s->paths, by_text);
    *listed = found != NULL;
    if (found) s->seen[found - s->paths] = true;
    return 0;
}

static int check_seen(const subset *s)
{
    int64_t missing = 0, first = -1;
    for (int64_t i = 0; i < s->path_count; i++)
        if (!s->seen[i] && !(i && strcmp(s->paths[i], s->paths[i - 1]) == 0) && missing++ == 0) first = i;
    if (!missing) return 0;
    return kolo_fail(
        KOLO_EINPUT,
        "%s: %" PRId64
        " of its paths are not in %s, first %s; give source paths as kolo-shards show prints them",
        s->list, missing, s->folder, s->paths[first]);
}

static int pick(subset *s)
{
    const int64_t n = kolo_dataset_get_info(s->dataset)->count;
    s->picks = kolo_alloc(sizeof *s->picks * (size_t)n + 8);
    if (!s->picks) return KOLO_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        bool listed;
        KOLO_TRY(is_listed(s, i, &listed));
        if (listed && has_class(s, i)) s->picks[s->count++] = i;
    }
    KOLO_TRY(check_seen(s));
    if (!s->limit || s->limit >= s->count) return 0;
    for (int64_t i = 0; i < s->limit; i++)
        s->picks[i] = s->picks[(int64_t)((__int128)i * s->count / s->limit)];
    s->count = s->limit;
    return 0;
}

static int write_subset(subset *s)
{
    KOLO_TRY(read_classes(s));
    KOLO_TRY(read_list(s));
    KOLO_TRY(pick(s));
    char *command = kolo_format(
        "subset classes=%s list=%s limit=%" PRId64 " shards=%" PRId64 " reshuffle=%" PRId64,
        s->classes ? s->classes : "", s->list ? s->list : "", s->limit, s->target.shards, s->target.seed);
    if (!command) return KOLO_ENOMEM;
    const shards_copying c = {.target = s->target,
                              .command = command,
                              .inputs = &s->dataset,
                              .input_count = 1,
                              .picks = s->picks,
                              .count = s->count,
                              .classes = (const char *const *)s->names,
                              .class_count = (int)s->name_count};
    const int rc = shards_copy(&c);
    free(command);
    return rc;
}

int shards_subset(int argc, char **argv)
{
    subset s = {0};
    const shards_option options[] = {
        {"--classes", "A,B|FILE",
         "of these classes only, in this order (names with commas, or a file of one a line)", SHARDS_TEXT,
         &s.classes, 0, 0},
        {"--list", "FILE", "the images that it names: one source path a line", SHARDS_TEXT, &s.list, 0, 0},
        {"--limit", "N", "N samples, spread evenly over those that fit", SHARDS_NUMBER, &s.limit, 1,
         INT64_MAX},
        SHARDS_TARGET_OPTIONS(&s.target)};
    const shards_line line = {"subset DIR --out NEW [--classes A,B] [--list FILE] [--limit N]",
                              "Samples that fit all that is asked for. With --classes: those with a label, a "
                              "box or a tag of these classes; "
                              "the\n"
                              "classes are numbered anew, boxes and tags of others are left out. Mean and "
                              "deviation stay those of DIR.",
                              options,
                              (int)(sizeof options / sizeof *options),
                              1,
                              1,
                              &s.folder,
                              NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (!s.classes && !s.list && !s.limit)
        return kolo_fail(KOLO_ECONFIG, "subset: give --classes, --list or --limit");
    KOLO_TRY(shards_check_target(&s.target, "subset"));
    KOLO_TRY(kolo_dataset_open(&s.dataset, s.folder));
    rc = write_subset(&s);
    for (int64_t i = 0; i < s.name_count; i++) free(s.names[i]);
    free(s.names);
    free(s.text);
    free(s.paths);
    free(s.seen);
    free(s.wanted);
    free(s.picks);
    kolo_dataset_close(&s.dataset);
    return rc;
}
