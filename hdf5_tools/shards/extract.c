#include "shards/extract.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

int64_t extract_sample(const extracting *e, int64_t i)
{
    return (int64_t)((__int128)i * kolo_dataset_get_info(e->dataset)->count / e->count);
}

const shards_part *extract_part(const extracting *e, int64_t sample, int64_t *index)
{
    const shards_part *p = e->input.parts;
    while (p->header.first + p->header.count <= sample) p++;
    *index = sample - p->header.first;
    return p;
}

/* ---- names --------------------------------------------------------------------------------------------- */

/* One part of a path that stays below its folder and is no hidden file. */
static void put_component(FILE *out, const char *text, size_t n)
{
    if (n == 0 || text[0] == '.') fputc('_', out);
    for (size_t i = 0; i < n; i++) fputc(text[i] == '/' || (unsigned char)text[i] < 32 ? '_' : text[i], out);
}

/* Without the ending of an image file; *end becomes that ending. */
static size_t stem_of(const char *name, const char **end)
{
    const char *dot = strrchr(name, '.');
    *end = dot && dot != name && kolo_folder_is_image(name) ? dot : name + strlen(name);
    return (size_t)(*end - name);
}

static bool is_jpeg_end(const char *end)
{
    return strcasecmp(end, ".jpg") == 0 || strcasecmp(end, ".jpeg") == 0;
}

/* duplicate: the name is taken, so the sample's number goes into it. */
static char *make_name(const extracting *e, int64_t sample, bool duplicate)
{
    int64_t index;
    const shards_part *p = extract_part(e, sample, &index);
    const uint64_t *span = p->source_offsets + index;
    char *source = kolo_format("%.*s", (int)(span[1] - span[0]), p->sources + span[0]), *name = NULL;
    size_t length = 0;
    FILE *out = source ? open_memstream(&name, &length) : NULL;
    if (!out) {
        free(source);
        kolo_fail(KOLO_ENOMEM, "out of memory for names");
        return NULL;
    }
    const int32_t label = kolo_dataset_label(e->dataset, sample);
    const char *class = kolo_dataset_class_name(e->dataset, label), *file = strrchr(source, '/'), *end;
    file = file ? file + 1 : source;
    if (label >= 0) put_component(out, class, strlen(class));
    else fputs("images", out);
    fputc('/', out);
    put_component(out, file, stem_of(file, &end));
    if (duplicate) fprintf(out, "-%" PRId64, sample);
    if (kolo_dataset_codec(e->dataset, sample) != KOLO_CODEC_JPEG) end = ".png";
    else if (!is_jpeg_end(end)) end = ".jpg";
    fputs(end, out);
    free(source);
    if (fclose(out) == 0) return name;
    free(name);
    kolo_fail(KOLO_ENOMEM, "out of memory for names");
    return NULL;
}

typedef struct named {
    const char *name;
    int64_t i;
} named;

/* By what is before the ending: labels/a.txt would belong to a.jpg and to a.png. */
static int compare_stems(const named *x, const named *y)
{
    const char *a, *b;
    const size_t n = (size_t)((a = strrchr(x->name, '.')) - x->name),
                 m = (size_t)((b = strrchr(y->name, '.')) - y->name);
    const int d = memcmp(x->name, y->name, n < m ? n : m);
    return d ? d : n < m ? -1 : n > m;
}

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int d = compare_stems(x, y);
    return d ? d : x->i < y->i ? -1 : x->i > y->i;
}

/* Fills in `names`: CLASS/FILE for samples with a label, images/FILE for others; no name twice. */
static int make_names(extracting *e)
{
    named *list = kolo_alloc(sizeof *list * (size_t)e->count);
    e->names = kolo_alloc(sizeof *e->names * (size_t)e->count);
    int rc = list && e->names ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; i < e->count && rc == 0; i++) {
        e->names[i] = make_name(e, extract_sample(e, i), false);
        if (!e->names[i]) rc = KOLO_ENOMEM;
        else list[i] = (named){e->names[i], i};
    }
    if (rc == 0) qsort(list, (size_t)e->count, sizeof *list, by_name);
    for (int64_t i = 0, k; i < e->count && rc == 0; i = k) {
        for (k = i + 1; k < e->count && compare_stems(&list[i], &list[k]) == 0; k++) {
            char *name = make_name(e, extract_sample(e, list[k].i), true);
            if (!name) rc = KOLO_ENOMEM;
            else e->names[list[k].i] = name;
        }
        for (int64_t t = i + 1; t < k && rc == 0; t++) free((void *)list[t].name);
    }
    free(list);
    return rc;
}

/* ---- images ------------------------------------------------------------------------------------------ */

static int make_folders(const extracting *e)
{
    char *last = NULL;
    int rc = 0;
    for (int64_t i = 0; i < e->count && rc == 0; i++) {
        const size_t n = strcspn(e->names[i], "/");
        if (last && strlen(last) == n && strncmp(last, e->names[i], n) == 0) continue;
        free(last);
        last = kolo_format("%.*s", (int)n, e->names[i]);
        char *path = last ? kolo_format("%s/%s", e->partial, last) : NULL;
        rc = path ? kolo_folder_make(path) : KOLO_ENOMEM;
        free(path);
    }
    free(last);
    return rc;
}

static int write_file(const char *path, const void *data, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    int rc = kolo_file_pwrite(fd, path, data, bytes, 0);
    if (close(fd) != 0 && rc == 0) rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    return rc;
}

static int write_sample(extracting *e, int thread, int64_t i)
{
    shards_reader *r = &e->readers[thread];
    const int64_t sample = extract_sample(e, i);
    KOLO_TRY(shards_read_bytes(r, e->dataset, sample));
    const uint32_t crc = kolo_crc32c(0, r->data, r->bytes);
    if (crc != kolo_dataset_crc(e->dataset, sample))
        return kolo_fail(
            KOLO_EINPUT,
            "%s: sample %" PRId64
            " has another checksum than stored: the bytes were changed; kolo-shards verify lists all",
            kolo_dataset_shard_of(e->dataset, sample, NULL), sample);
    char *path = kolo_format("%s/%s", e->partial, e->names[i]);
    if (!path) return KOLO_ENOMEM;
    int rc;
    if (kolo_dataset_codec(e->dataset, sample) == KOLO_CODEC_JPEG) {
        rc = write_file(path, r->data, r->bytes);
    } else {
        rc = shards_decode(r, e->dataset, sample, 0, &e->images[thread]);
        if (rc == 0) rc = kolo_image_write_png(&e->images[thread], path);
    }
    free(path);
    return rc;
}

static int write_block(void *context, int thread, int64_t first, int64_t last, int64_t *bytes)
{
    extracting *e = context;
    for (int64_t i = first; i < last; i++) {
        KOLO_TRY(write_sample(e, thread, i));
        *bytes += (int64_t)e->readers[thread].bytes;
    }
    return 0;
}

static int check_free_space(const extracting *e)
{
    const int64_t all = kolo_dataset_get_info(e->dataset)->count, room = kolo_file_free_bytes(e->out);
    const double need = (double)kolo_dataset_get_info(e->dataset)->bytes * (double)e->count / (double)all +
                        4096 * (double)e->count;
    if (room < 0) return (int)room;
    return need <= (double)room
               ? 0
               : kolo_fail(KOLO_EIO, "%s: about %.1f MB are needed, %.1f MB are free; choose another --out",
                           e->out, need / 1e6, (double)room / 1e6);
}

static void report(const extracting *e, const shards_work *w)
{
    if (e->json) {
        printf("{\"event\":\"done\",\"samples\":%" PRId64 ",\"bytes\":%" PRId64 ",\"boxes_left_out\":%" PRId64
               ",\"seconds\":%.3f}\n",
               e->count, w->bytes, e->left_out, w->seconds);
        return;
    }
    printf("%s: %" PRId64 " images, %.0f a second", e->out, e->count,
           w->seconds > 0 ? (double)e->count / w->seconds : 0);
    if (e->left_out)
        printf("; %" PRId64 " boxes left out (crowds in YOLO's form, or outside of what is stored)",
               e->left_out);
    printf("\n");
}

static int extract(extracting *e)
{
    const int64_t all = kolo_dataset_get_info(e->dataset)->count;
    e->count = e->limit && e->limit < all ? e->limit : all;
    if (e->count == 0) return kolo_fail(KOLO_EINPUT, "%s has no samples", e->folder);
    KOLO_TRY(shards_input_load(&e->input, e->dataset, 0));
    e->readers = kolo_alloc(sizeof *e->readers * (size_t)e->threads);
    e->images = kolo_alloc(sizeof *e->images * (size_t)e->threads);
    e->partial = kolo_format("%s.partial", e->out);
    if (!e->readers || !e->images || !e->partial) return KOLO_ENOMEM;
    KOLO_TRY(make_names(e));
    KOLO_TRY(check_free_space(e));
    if (kolo_file_exists(e->partial))
        return kolo_fail(
            KOLO_ECONFIG,
            "%s is in the way, left by a run that was killed or written by another one now; remove it",
            e->partial);
    shards_work work = {.what = "extracting",
                        .total = e->count,
                        .block = 32,
                        .threads = (int)e->threads,
                        .run = write_block,
                        .context = e};
    int rc = kolo_folder_make_own(e->partial);
    if (rc == 0) rc = make_folders(e);
    if (rc == 0) rc = shards_run(&work);
    if (rc == 0) rc = extract_write_targets(e);
    if (rc == 0 && rename(e->partial, e->out) != 0)
        rc = kolo_fail(KOLO_EIO, "%s: %s", e->out, strerror(errno));
    if (rc == 0) {
        report(e, &work);
        return 0;
    }
    kolo_failure first;
    kolo_error_keep(&first);
    if (kolo_folder_remove(e->partial) < 0) fprintf(stderr, "kolo-shards: %s\n", kolo_error_text());
    return kolo_error_restore(&first, rc);
}

static int extract_read_words(extracting *e, int argc, char **argv)
{
    const shards_option options[] = {
        {"--out", "FOLDER", "where the files go; must not be there yet", SHARDS_TEXT, &e->out, 0, 0},
        {"--boxes", "coco|yolo|none",
         "how boxes are written: annotations.json, or labels/ and data.yaml [coco]", SHARDS_TEXT, &e->boxes,
         0, 0},
        {"--limit", "N", "N images, spread evenly over the split", SHARDS_NUMBER, &e->limit, 1, INT64_MAX},
        {"--threads", "T", "threads [all CPUs]", SHARDS_NUMBER, &e->threads, 1, 1024},
        {"--json", NULL, "the result as a line of JSON", SHARDS_FLAG, &e->json, 0, 0}};
    const shards_line line = {
        "extract DIR --out FOLDER",
        "Images as files: JPEG files with the bytes they are stored with, pixels as PNG; CLASS/FILE where "
        "samples have\n"
        "labels, images/FILE where not. Beside them list.tsv (file, label), boxes, tags.tsv and "
        "pairs-NAME.tsv, as far as\n"
        "the split has such. Boxes have the numbers of the source where the image is still the source's.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        &e->folder,
        NULL};
    const int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (!e->out) return kolo_fail(KOLO_ECONFIG, "extract: --out FOLDER is missing");
    if (strcmp(e->boxes, "coco") != 0 && strcmp(e->boxes, "yolo") != 0 && strcmp(e->boxes, "none") != 0)
        return kolo_fail(KOLO_ECONFIG, "extract: --boxes %s: must be coco, yolo or none", e->boxes);
    if (shards_ends_with(e->out, "/"))
        return kolo_fail(KOLO_ECONFIG, "extract: --out %s: give the folder without the slash at its end",
                         e->out);
    return kolo_file_exists(e->out)
               ? kolo_fail(KOLO_ECONFIG,
                           "extract: --out %s is there already; choose another name, or remove it first",
                           e->out)
               : 0;
}

int shards_extract(int argc, char **argv)
{
    extracting e = {.boxes = "coco", .threads = kolo_cpu_count()};
    int rc = extract_read_words(&e, argc, argv);
    if (rc) return rc;
    KOLO_TRY(kolo_dataset_open(&e.dataset, e.folder));
    rc = extract(&e);
    for (int64_t i = 0; i < e.threads; i++) {
        if (e.readers) shards_reader_free(&e.readers[i]);
        if (e.images) kolo_image_free(&e.images[i]);
    }
    for (int64_t i = 0; e.names && i < e.count; i++) free(e.names[i]);
    if (e.input.dataset) shards_input_free(&e.input);
    free(e.names);
    free(e.readers);
    free(e.images);
    free(e.partial);
    kolo_dataset_close(&e.dataset);
    return rc;
}
