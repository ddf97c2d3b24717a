/* The list of tensors that a file holds, and which reader makes it. */
#include "ckpt/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/reader.h"
#include "ckpt/store.h"
#include "ckpt/stream.h"
#include "ops/element.h"

const char *kolo_weight_type_name(enum kolo_dtype type)
{
    static const char *const name[KOLO_DTYPES] = {
        [KOLO_F32] = "F32", [KOLO_BF16] = "BF16", [KOLO_F64] = "F64",  [KOLO_I32] = "I32",
        [KOLO_U8] = "U8",   [KOLO_F16] = "F16",   [KOLO_I8] = "I8",    [KOLO_U16] = "U16",
        [KOLO_I16] = "I16", [KOLO_I64] = "I64",   [KOLO_BOOL] = "BOOL"};
    return name[type];
}

/* ---- kinds ---- */

static bool is_zip(const kolo_weights *w) { return !memcmp(w->map, "PK\3\4", 4); }

/* A pickle of protocol 2 that begins with torch.save's magic number 0x1950a86a20f9469cfc6c. */
static bool is_old_pth(const kolo_weights *w)
{
    static const unsigned char magic[] = {0x80, 2,    0x8A, 10,   0x6C, 0xFC, 0x9C,
                                          0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
    return w->bytes > sizeof magic && !memcmp(w->map, magic, sizeof magic);
}

static bool is_safetensors(const kolo_weights *w) { return w->map[8] == '{'; }

/* major 0, minor 1 or 2, revision 0 */
static bool is_darknet(const kolo_weights *w)
{
    uint64_t minor = w->bytes < 16 ? 0 : reader_number(w->map + 4, 4);
    return reader_number(w->map, 4) == 0 && (minor == 1 || minor == 2) && reader_number(w->map + 8, 4) == 0;
}

static int read_safetensors(kolo_weights *w, const kolo_graph *graph)
{
    return (void)graph, kolo_safetensors_read(w);
}
static int read_pth(kolo_weights *w, const kolo_graph *graph) { return (void)graph, kolo_pth_read(w); }
static int read_old_pth(kolo_weights *w, const kolo_graph *graph)
{
    return (void)graph, kolo_pth_read_old(w);
}

static const struct {
    const char *name;
    bool (*is)(const kolo_weights *w);
    int (*read)(kolo_weights *w, const kolo_graph *graph);
} kind_table[] = {
    {"PyTorch", is_zip, read_pth},
    {"PyTorch", is_old_pth, read_old_pth},
    {"safetensors", is_safetensors, read_safetensors},
    {"darknet", is_darknet, kolo_darknet_read},
};

static int read_any(kolo_weights *w, const kolo_graph *graph)
{
    for (size_t i = 0; i < sizeof kind_table / sizeof *kind_table; i++)
        if (kind_table[i].is(w)) {
            w->kind = kind_table[i].name;
            return kind_table[i].read(w, graph);
        }
    char begin[25] = "";
    for (size_t i = 0; i < sizeof begin - 1 && i < w->bytes; i++)
        begin[i] = w->map[i] >= ' ' && w->map[i] < 127 ? (char)w->map[i] : '.';
    return kolo_fail(KOLO_EINPUT,
                     "%s: it starts with \"%s\": neither safetensors, PyTorch's .pth nor darknet's .weights; "
                     "give one of these, or download it again",
                     w->path, begin);
}

/* ---- the handle ---- */

typedef struct block {
    struct block *next;
    max_align_t data[];
} block;

void *kolo_weights_keep(kolo_weights *w, size_t bytes)
{
    block *b = kolo_alloc(sizeof *b + bytes);
    if (!b) return NULL;
    b->next = w->kept;
    w->kept = b;
    return b->data;
}

static const char *keep_text(kolo_weights *w, const char *text, size_t length)
{
    char *copy = kolo_weights_keep(w, length + 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}

kolo_weight *kolo_weights_add(kolo_weights *w, const char *name, size_t length)
{
    if (w->count >= INT32_MAX - 1) return kolo_weights_refuse(w, "it has too many tensors"), NULL;
    if (kolo_grow(&w->weight, &w->capacity, w->count, sizeof *w->weight) < 0) return NULL;
    const char *copy = keep_text(w, name, length);
    if (!copy) return NULL;
    kolo_weight *t = &w->weight[w->count++];
    *t = (kolo_weight){.name = copy};
    return t;
}

int kolo_weights_refuse(const kolo_weights *w, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: not a whole %s file: %s; copy or download it again", w->path, w->kind,
                     what);
}

int kolo_weights_refuse_tensor(const kolo_weights *w, const char *name, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: not a whole %s file: tensor \"%.100s\": %s; copy or download it again",
                     w->path, w->kind, name, what);
}

static int compare_names(const void *a, const void *b, void *weights)
{
    const kolo_weight *w = weights;
    return strcmp(w[*(const int *)a].name, w[*(const int *)b].name);
}

int kolo_weights_sort(kolo_weights *w)
{
    if (!w->by_name && !(w->by_name = kolo_weights_keep(w, ((size_t)w->count + 1) * sizeof *w->by_name)))
        return KOLO_ENOMEM;
    for (int i = 0; i < w->count; i++) w->by_name[i] = i;
    qsort_r(w->by_name, (size_t)w->count, sizeof *w->by_name, compare_names, w->weight);
    for (int i = 1; i < w->count; i++)
        if (!strcmp(w->weight[w->by_name[i - 1]].name, w->weight[w->by_name[i]].name))
            return kolo_weights_refuse_tensor(w, w->weight[w->by_name[i]].name, "there are two of this name");
    return 0;
}

/* Wrappers of models put themselves before every name but that of their own counter. */
static void drop_prefixes(kolo_weights *w)
{
    static const char *const prefix[] = {"module.", "_orig_mod."};
    for (size_t i = 0; i < 2 * (sizeof prefix / sizeof *prefix); i++) {
        const char *one = prefix[i % 2];
        const size_t length = strlen(one);
        int64_t with = 0;
        while (with < w->count &&
               (!strncmp(w->weight[with].name, one, length) || !strcmp(w->weight[with].name, "n_averaged")))
            with++;
        for (int64_t k = 0; with == w->count && k < w->count; k++)
            if (!strncmp(w->weight[k].name, one, length)) w->weight[k].name += length;
    }
}

/* ---- files of several sets of tensors ---- */

const char *const kolo_weights_group[] = {"state_dict", "model",  "model_state_dict", "model_state",    "net",
                                          "network",    "params", "model_ema",        "state_dict_ema", "ema",
                                          NULL};

/* KEY.NAME, or KEY:NAME as checkpoints of this program have it. */
static bool in_group(const char *name, const char *key)
{
    const size_t length = strlen(key);
    return !strncmp(name, key, length) && (name[length] == '.' || name[length] == ':');
}

static int64_t count_group(const kolo_weights *w, const char *key)
{
    int64_t count = 0;
    for (int64_t i = 0; i < w->count; i++) count += in_group(w->weight[i].name, key);
    return count;
}

/* Where only the names of tensors distinguish the sets. */
static int choose_group(kolo_weights *w)
{
    int64_t members = 0, kept = 0;
    const char *first = NULL;
    for (const char *const *key = kolo_weights_group; *key && !w->wanted; key++) {
        const int64_t count = count_group(w, *key);
        if (count && first && !w->beside) w->beside = *key;
        if (count && !first) first = *key;
        members += count;
    }
    /* names that are not all of such sets are the network's own */
    if (!w->wanted && !(w->beside && members == w->count)) {
        w->beside = count_group(w, "ema") ? "ema" : NULL;
        return 0;
    }
    w->taken = w->wanted ? w->wanted : first;
    for (int64_t i = 0; i < w->count; i++) {
        if (!in_group(w->weight[i].name, w->taken)) continue;
        w->weight[kept] = w->weight[i];
        w->weight[kept++].name += strlen(w->taken) + 1;
    }
    w->count = kept;
    return kept ? 0 : kolo_fail(KOLO_EINPUT, "%s: it holds no tensors under \"%.100s\"", w->path, w->taken);
}

/* The tensors of a checkpoint's folder, or of the one of a run that `which` says. */
static char *checkpoint_file(const char *folder, const char *which)
{
    kolo_position position;
    char path[4096];
    char *file = kolo_format("%s/tensors.safetensors", folder);
    if (!file || kolo_file_exists(file)) return file;
    free(file);
    const int found = kolo_checkpoint_pick(folder, which, &position, path, sizeof path);
    if (found == 0)
        kolo_fail(KOLO_EINPUT,
                  "%s: a folder that holds no checkpoint; give a file of weights, or the folder of a run",
                  folder);
    return found > 0 ? kolo_format("%s/tensors.safetensors", path) : NULL;
}

char *kolo_weights_file(const char *word, const char **key)
{
    const char *colon = strrchr(word, ':');
    *key = NULL;
    if (kolo_folder_exists(word)) return checkpoint_file(word, "newest");
    if (!colon || kolo_file_exists(word)) return kolo_strdup(word);
    char *file = kolo_format("%.*s", (int)(colon - word), word);
    if (file && kolo_folder_exists(file)) {
        char *tensors = checkpoint_file(file, colon + 1);
        free(file);
        return tensors;
    }
    if (file && kolo_file_exists(file)) {
        *key = colon + 1;
        return file;
    }
    free(file);
    return kolo_strdup(word);
}

static int map_file(kolo_weights *w)
{
    struct stat st;
    int fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* or a pipe that nobody writes to keeps us */
    if (fd < 0 && errno == ENOENT)
        return kolo_fail(KOLO_EINPUT,
                         "%s: there is no such file; give one of weights, or the folder of a run", w->path);
    if (fd < 0) return kolo_fail_io("open", w->path), KOLO_EINPUT;
    int rc = 0;
    if (fstat(fd, &st) < 0) rc = kolo_fail_io("read", w->path);
    else if (S_ISDIR(st.st_mode))
        rc = kolo_fail(KOLO_EINPUT,
                       "%s: a folder, not a file of weights; those of a run come by run=", w->path);
    else if (!S_ISREG(st.st_mode)) rc = kolo_fail(KOLO_EINPUT, "%s: not a file", w->path);
    else if (st.st_size < 10) rc = kolo_weights_refuse(w, "too short"); /* a length and "{}" */
    if (rc == 0) {
        w->bytes = (size_t)st.st_size;
        void *map = mmap(NULL, w->bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) rc = kolo_fail_io("map", w->path);
        else w->map = map;
    }
    close(fd);
    return rc;
}

/* Tensors of a checkpoint are what its manifest says: none is read unchecked, by whatever name. */
static int check_manifest(const kolo_weights *w)
{
    manifest m;
    char *file = realpath(w->path, NULL), *folder = file ? kolo_file_parent(file) : NULL;
    char *list = folder ? kolo_format("%s/manifest.json", folder) : NULL;
    int rc = list ? 0 : !file && errno != ENOMEM ? kolo_file_fail("find", w->path) : kolo_no_memory(PATH_MAX);
    const bool tensors = rc == 0 && !strcmp(strrchr(file, '/') + 1, "tensors.safetensors");
    if (tensors && kolo_file_exists(list)) {
        rc = kolo_record_read(list, &m);
        if (rc == 0 && m.bytes != w->bytes)
            rc = kolo_fail(KOLO_EINPUT, "%s: %zu bytes, its manifest says %" PRIu64, w->path, w->bytes,
                           m.bytes);
        if (rc == 0 && kolo_crc32c(0, w->map, w->bytes) != m.crc)
            rc = kolo_fail(KOLO_EINPUT, "%s: damaged: its checksum is not that of its manifest", w->path);
    } else if (tensors && kolo_store_named(strrchr(folder, '/') + 1)) {
        rc = kolo_fail(
            KOLO_EINPUT,
            "%s: a checkpoint without its manifest.json, as a killed run leaves it: it cannot be checked; "
            "take another checkpoint of the run",
            w->path);
    }
    free(list);
    free(folder);
    free(file);
    return rc;
}

int kolo_weights_open(kolo_weights **weights, const char *path, const kolo_graph *graph)
{
    int rc = KOLO_ENOMEM;
    kolo_weights *w = *weights = kolo_alloc(sizeof *w);
    if (!w) return KOLO_ENOMEM;
    w->kind = "weights";
    const char *key;
    if (!(w->path = kolo_weights_file(path, &key))) {
        rc = kolo_error_status();
        goto fail;
    }
    w->of_run = !key && strcmp(w->path, path);
    if (key && !(w->wanted = keep_text(w, key, strlen(key)))) goto fail;
    KOLO_TRY_GOTO(rc, map_file(w));
    KOLO_TRY_GOTO(rc, check_manifest(w));
    KOLO_TRY_GOTO(rc, read_any(w, graph));
    if (w->of_run && count_group(w, "ema")) w->wanted = "ema"; /* as a run is evaluated and exported */
    if (!w->taken) KOLO_TRY_GOTO(rc, choose_group(w));
    drop_prefixes(w);
    KOLO_TRY_GOTO(rc, kolo_weights_sort(w));
    return 0;
fail:
    kolo_weights_close(weights);
    return rc;
}

void kolo_weights_close(kolo_weights **weights)
{
    kolo_weights *w = *weights;
    if (!w) return;
    if (w->map) munmap((void *)(uintptr_t)w->map, w->bytes);
    for (block *b = w->kept, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(w->weight);
    free(w->path);
    free(w);
    *weights = NULL;
}

const char *kolo_weights_kind(const kolo_weights *weights) { return weights->kind; }
const char *kolo_weights_chosen_set(const kolo_weights *weights) { return weights->taken; }
const char *kolo_weights_other_set(const kolo_weights *weights) { return weights->beside; }
bool kolo_weights_partial(const kolo_weights *weights) { return weights->partial; }
int kolo_weights_count(const kolo_weights *weights) { return (int)weights->count; }

const kolo_weight *kolo_weights_at(const kolo_weights *weights, int i)
{
    return i >= 0 && i < weights->count ? &weights->weight[i] : NULL;
}

const kolo_weight *kolo_weights_find(const kolo_weights *weights, const char *name)
{
    int low = 0, high = (int)weights->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const kolo_weight *t = &weights->weight[weights->by_name[middle]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

/* ---- elements ---- */

static float read_element(enum kolo_dtype type, const unsigned char *p)
{
    const uint64_t raw = reader_number(p, (int)kolo_dtype_size(type));
    uint32_t bits = (uint32_t)raw;
    float value;
    double wide;
    switch (type) {
    case KOLO_BF16: bits <<= 16; /* the upper half of an f32 */ /* fall through */
    case KOLO_F32: memcpy(&value, &bits, sizeof value); return value;
    case KOLO_F16: return kolo_from_f16((uint16_t)raw);
    case KOLO_F64: memcpy(&wide, &raw, sizeof wide); return (float)wide;
    case KOLO_I64: return (float)(int64_t)raw;
    case KOLO_I32: return (float)(int32_t)raw;
    case KOLO_I16: return (float)(int16_t)raw;
    case KOLO_I8: return (float)(int8_t)raw;
    default: return (float)raw; /* U8, U16, BOOL */
    }
}

void kolo_weight_to_f32(const kolo_weight *weight, float *to, int64_t count)
{
    const unsigned char *p = weight->data;
    const size_t size = kolo_dtype_size(weight->type);
    if (!weight->stride && weight->type == KOLO_F32) {
        if (count > 0) memcpy(to, p, (size_t)count * sizeof *to);
        return;
    }
    if (!weight->stride) {
        for (int64_t i = 0; i < count; i++) to[i] = read_element(weight->type, p + (size_t)i * size);
        return;
    }
    int64_t index[KOLO_MAX_DIM] = {0}, at = 0;
    for (int64_t i = 0; i < count; i++) {
        to[i] = read_element(weight->type, p + (size_t)at * size);
        for (int d = weight->rank - 1; d >= 0; d--) { /* the next index, last dimension first */
            at += weight->stride[d];
            if (++index[d] < weight->dim[d]) break;
            at -= weight->stride[d] * weight->dim[d];
            index[d] = 0;
        }
    }
}
