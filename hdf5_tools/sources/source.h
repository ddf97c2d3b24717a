/* Where images come from. A source is a file NAME.c here that defines a source_kind, and a line of
 * sources.def.
 *
 * Its `open` lists the samples and what belongs to them, in an order that follows from the input alone:
 *
 *   classes   source_add_class, or source_find_class where names come in any order
 *   samples   source_add (a file below root), source_add_range (bytes of a tar or another file), or, where
 *             `load` makes the bytes, source_add with any path that tells a reader where the sample came from
 *   targets   source_add_box, source_add_tag, source_add_pair: in any order, for samples
 *             that were added before
 *
 * and returns; choosing (--limit, --subset, --holdout), order, decoding, boxes through resize and crop, what
 * becomes of pairs whose image was rejected, and all of the parallel work are the packer's. Nothing else
 * is asked of a source.
 *
 * Only rank 0 opens a source that has no `load`: the others map its list (list.c), so nothing
 * that `open` keeps in `state` is needed later. A source with `load` is opened by every rank and must
 * list the same each time. */
#ifndef HDF5_TOOLS_SOURCES_SOURCE_H
#define HDF5_TOOLS_SOURCES_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pack_options;
typedef struct source source;

typedef struct source_buffer { /* kept by the caller from sample to sample */
    uint8_t *data;
    size_t bytes, capacity;
    /* of pixels, u8 (height, width, channels); height 0: data is an image file */
    int height, width, channels;
} source_buffer;

typedef struct source_kind {
    const char *name, *help;
    const char *annotations; /* what --annotations names, for the help; NULL: this source takes none */
    const char *data_name;   /* default of --name; NULL: from --in */
    /* load gives pixels, not image files: then raw is the default encoding, and their colour is kept */
    bool pixels;
    bool people; /* classes are people, of whom --min-faces takes some */
    bool made;   /* needs no --in, but --count */
    int (*open)(source *s, const struct pack_options *options);
    /* NULL: the bytes are those of files and ranges. Thread-safe; the error text begins after the sample's
     * path ("is empty"). i counts from 0 in the order of source_add. */
    int (*load)(const source *s, int64_t i, source_buffer *buffer);
    /* frees s->state; may be NULL, and is called on what open left when it failed */
    void (*close)(source *s);
} source_kind;

/* How the four numbers of a box are meant; attribute box_form of the shards. */
enum source_box_form {
    SOURCE_BOX_NONE,      /* the source has no boxes */
    SOURCE_BOX_CXCYWH,    /* YOLO: middle, width, height as parts of the image's width and height */
    SOURCE_BOX_XYWH,      /* COCO: corner, width, height in pixels from 0 */
    SOURCE_BOX_XYXY,      /* VOC: first and last pixel, counted from 1 */
    SOURCE_BOX_NORM_XYXY, /* Open Images: two corners as parts of width and height */
};

typedef struct source_box {
    int64_t sample, id; /* id: the source's own number of the annotation, or -1 */
    double numbers[4];  /* exactly as the source gives them */
    /* in pixels of the source image (COCO: of the mask); negative: not given, width x height */
    float area;
    int32_t label; /* class */
    uint8_t flags; /* KOLO_BOX_* of data/shard/targets.h */
    uint8_t unused[7];
} source_box;

typedef struct source_tag {
    int64_t sample;
    int32_t tag; /* class */
    /* 1: present; Open Images gives 0 to labels that people rejected, and confidences in between */
    float value;
} source_tag;

typedef struct source_pair {
    int64_t a, b; /* samples */
    int32_t set, fold;
    uint8_t same, unused[7];
} source_pair;

typedef struct source_place { /* where the bytes are */
    int64_t offset, bytes;    /* bytes -1: to the end of the file, not known */
    int32_t archive;          /* -1: the file root/path */
    int32_t height, width;    /* of the image as the annotations say, 0 0: they do not */
    int32_t unused;
} source_place;

typedef struct source_faults { /* annotations that are wrong */
    const struct pack_options *options;
    int64_t count;
    char *lines; /* "where TAB cause" for the list of rejects, or NULL */
    int64_t bytes, capacity;
} source_faults;

#define SOURCE_MOST_PAIR_SETS 12
#define SOURCE_UNLABELLED (-1) /* a sample without class, as in detection */
/* of a class that --classes leaves out: such samples, boxes, tags are taken and dropped */
#define SOURCE_LEFT_OUT (-2)

struct source {
    const source_kind *kind;
    int64_t count;
    int32_t *labels;            /* [count] */
    char *paths;                /* one after the other, relative to root where there is one */
    uint64_t *path_offsets;     /* [count + 1] */
    source_place *places;       /* [count] */
    int64_t *ids;               /* [count] the source's own numbers (COCO image id), or the running number */
    int64_t boxes, tags, pairs; /* how many */
    source_box *box;            /* sorted by sample (stable) once source_open has ended, as are tags */
    source_tag *tag;
    source_pair *pair;
    uint64_t *box_offsets, *tag_offsets; /* [count + 1], likewise */
    enum source_box_form box_form;       /* set by open before the first box */
    int64_t other_boxes;                 /* dropped, being of classes that --classes leaves out */
    int classes;
    char **class_names; /* [classes] */
    int64_t *class_ids; /* [classes] the source's own numbers (COCO 1..90), or 0, 1, ... */
    int pair_sets, archives;
    char *pair_set_names[SOURCE_MOST_PAIR_SETS], **archive_paths;
    int channels, height, width; /* of pixels sources: of every sample; 0 where they differ */
    char *root;                  /* folder that paths are relative to, or NULL */
    source_faults faults;
    void *state; /* of the kind */

    /* the rest is source.c's and list.c's own */
    enum { SOURCE_CLASSES_OPEN, SOURCE_CLASSES_FIXED, SOURCE_CLASSES_CHOSEN } class_rule;
    bool *class_seen; /* [classes] */
    int *class_table; /* [class_room] hash table of 1 + class */
    int64_t class_room;
    _Atomic int *archive_fds; /* [archives] 1 + descriptor, 0: not opened */
    /* a mapped list, which then holds all arrays of samples, boxes, tags and pairs */
    void *list;
    size_t list_bytes;
    int64_t capacity[12];
};

extern const source_kind *const source_kinds[];
extern const int source_kind_count;
const source_kind *source_find(const char *name); /* NULL: unknown */
void source_names(char *text, size_t size);       /* "a, b and c", for messages */

/* ---- for `open` ---------------------------------------------------------------------------------------- */

/* Appends a class. Where the class list is given (--stats-from, --classes) use source_find_class. */
int source_add_class(source *s, const char *name, int64_t id);
/* The label of class `name`, which is appended if it is new. With --stats-from a new one is an error,
 * with --classes *label becomes SOURCE_LEFT_OUT. `id` is the source's own number of the class; -1: it has
 * none (the label then). */
int source_find_class(source *s, const char *name, int64_t id, int32_t *label);

/* Is it absolute, or has it `..` among its parts? What annotations name must lie in the folder of
 * images. */
bool source_path_leaves(const char *path);
/* label: a class, SOURCE_UNLABELLED or SOURCE_LEFT_OUT. path: without line breaks. The sample's number is
 * s->count - 1 afterwards. file_bytes -1: not known; a source with `load` gives what it likes. */
int source_add(source *s, int32_t label, const char *path, int64_t file_bytes);
/* `bytes` bytes from `offset` of a file, uncompressed. */
int source_add_range(source *s, int32_t label, const char *path, int archive, int64_t offset, int64_t bytes);
/* *archive: number for source_add_range. Opened when needed, kept open. path: as it is to be opened. */
int source_add_archive(source *s, const char *path, int *archive);
void source_set_id(source *s, int64_t sample, int64_t id);
/* Size of the image as the annotations say. An image of another size is an error, unless it is the size
 * before its EXIF turn: then boxes are turned with it. */
void source_set_size(source *s, int64_t sample, int height, int width);

/* KOLO_EINPUT: numbers that are not finite, or a box that lies outside of its image, where the
 * size of that is known. */
int source_add_box(source *s, int64_t sample, const double numbers[4], int32_t label, uint8_t flags,
                   double area, int64_t id);
int source_add_tag(source *s, int64_t sample, int32_t label, double value);
/* set: a word ("dev_train"); a, b: samples; fold: from 0. */
int source_add_pair(source *s, const char *set, int64_t a, int64_t b, bool same, int fold);
/* What to do about an annotation that is wrong, where the text has just been set and begins with "file:line:
 * ": 0 if it is to be left out (--on-error skip), and is then counted and listed; else `status` itself. */
int source_fault(source *s, int status);

/* ---- for the packer ------------------------------------------------------------------------------------ */

/* kind->open; then targets are sorted by sample and labels checked */
int source_open(source *s, const source_kind *kind, const struct pack_options *options);
/* prints how many there were */
int source_end_faults(source *s);
/* before the first source_load */
int source_prepare(source *s);
/* by kind->load, or from file or range */
int source_load(const source *s, int64_t i, source_buffer *buffer);
/* Of a file or range: its length, `size` bytes from its beginning and the two last bytes. 0: it has no bytes
 * to look at (made by load), is shorter, or cannot be read; source_load says why. */
int64_t source_peek(const source *s, int64_t i, uint8_t *head, size_t size, uint8_t tail[2]);
/* of a file or range; -1: not known */
int64_t source_known_bytes(const source *s, int64_t i);
void source_path(const source *s, int64_t i, char *text, size_t size); /* as it was added */
/* for messages: with root or archive */
void source_full_path(const source *s, int64_t i, char *text, size_t size);
int source_grow(source_buffer *buffer, size_t bytes); /* sets bytes, height 0 */
void source_free(source *s);

int source_list_write(const source *s, const char *path);
int source_list_map(source *s, const char *path);        /* KOLO_EINTERNAL: damaged */
void source_list_mix(const source *s, uint64_t hash[2]); /* everything in the list goes into the hash */
void source_mix(uint64_t hash[2], const void *data, size_t bytes);

#endif
