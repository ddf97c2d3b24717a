/* kolo-pack: pictures to shards. The way of a packing:
 *
 *   list     rank 0 lists the source (source_*.c); the plan (pack_plan.c) holds options and list in OUT/.pack
 *   probe    where sizes are not known beforehand: every picture is converted once, its record goes to the journal
 *   layout   which sample goes where; owners create the shards with all space allocated
 *   write    all threads of all ranks pwrite blocks of samples (pack_write.c), then their records and states
 *   finish   rank 0: statistics, uuid, complete, rename, manifest (pack_finish.c)
 *
 * Everything that decides the output follows from options and source, never from ranks, threads or restarts. */
#ifndef HDF5_TOOLS_PACK_H
#define HDF5_TOOLS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/picture.h"
#include "data/shard_file.h"
#include "launch/launch.h"
#include "source.h"

enum pack_resize { PACK_RESIZE_NONE, PACK_RESIZE_SHORTER, PACK_RESIZE_LONGER, PACK_RESIZE_EXACT };
enum pack_color { PACK_COLOR_AUTO, PACK_COLOR_RGB, PACK_COLOR_GRAY, PACK_COLOR_KEEP };

#define PACK_MOST_INPUTS 64

typedef struct pack_options {
    const source_kind *kind;
    const char *in[PACK_MOST_INPUTS], *annotations[PACK_MOST_INPUTS];
    int in_count, annotation_count;
    char name[64];
    char split[16]; /* the part of the source that is listed: train, val, test */
    const char *out, *stats_from;
    enum kolo_encoding encoding;
    enum pack_resize resize;
    enum pack_color color;
    bool crop, skip, resume, force, dry_run, json, help, version;
    int size, quality, shards, threads;
    int64_t shuffle_seed, max_bad, count; /* shuffle_seed -1: not given; max_bad -1: no limit */
} pack_options;

/* 0, or KOLO_ECONFIG with the text set. */
int pack_options_read(pack_options *options, int argc, char **argv);
void pack_options_help(void);
/* What decides the output, as one line: goes into the plan, the fingerprint and the shards. Caller frees. */
char *pack_options_text(const pack_options *options);

/* What is known of one sample once it has been converted. The journal (OUT/.pack/journal) is an array of these. */
typedef struct pack_record {
    uint32_t bytes, crc;
    uint16_t size[2], orig_size[2]; /* height, width */
    uint8_t status;                 /* PACK_* below */
    uint8_t channels, source_channels, low[3], high[3], state;
    uint8_t unused[6];
    uint64_t pixels, sum[3], square[3];
    uint32_t check, zero; /* crc32c of what stands before */
} pack_record;

enum { PACK_UNKNOWN, PACK_GOOD, PACK_BAD };

typedef struct pack_shard {
    int64_t first, count;
    uint64_t *offsets; /* [count + 1] in the data */
    char *file, *path; /* final name; path under OUT/.pack while it is made */
    kolo_shard_places places;
    int fd;
} pack_shard;

/* One packing, as a rank sees it. A slot is a place in the shuffled source, a position one in the output: positions
 * are the slots without the bad ones. */
typedef struct packing {
    pack_options options;
    kolo_launch launch;
    source source;
    char *work; /* OUT/.pack */
    char *options_text;
    uint64_t fingerprint[2];
    int channels, height, width; /* of the output; channels 0: not yet decided; height 0: they differ */
    int threads;
    bool resumed;  /* there is earlier work to keep */
    bool claimed;  /* OUT/.pack is ours */
    bool complete; /* the output is there already, of the same source and options */
    bool stats_given;
    kolo_shard_stats stats; /* of --stats-from */

    int64_t *order; /* [source.count] slot -> source number */
    int journal;    /* file, [source.count] records by slot */
    char *journal_path;
    pack_record *records;       /* [source.count] by slot */
    uint8_t **cache;            /* [source.count] by slot: bytes kept from the probe, or NULL */
    _Atomic int64_t cache_left; /* bytes */
    char *reject_path;          /* of this rank: lines "slot<TAB>path<TAB>cause" */
    char *rejects;              /* of all ranks, in source order, "path<TAB>cause"; rank 0, after the layout */

    int64_t *slots; /* [count] position -> slot */
    int64_t count, bad;
    uint64_t bytes;         /* sample bytes of the output */
    uint64_t *class_counts; /* [source.classes] */
    int shards;
    pack_shard *shard; /* [shards] */
} packing;

/* In this order; all collective. KOLO_EREQUEUE: a signal asked to stop and everything is flushed. */
int pack_plan(packing *p);   /* list, fingerprint, order, journal */
int pack_probe(packing *p);  /* converts everything once, where sizes or bad pictures must be known beforehand */
int pack_layout(packing *p); /* what goes where; shards are created */
int pack_write(packing *p);
int pack_finish(packing *p);
void pack_free(packing *p);

bool pack_needs_probe(const packing *p);
/* The worst status of all ranks. A rank that had no error itself gets an empty error text. Collective. */
int pack_agree(packing *p, int status);
int pack_load_journal(packing *p);
int pack_clear_output(const packing *p);

/* One thread's tools. */
typedef struct converter converter;
int converter_create(converter **c, const packing *p);
void converter_destroy(converter **c);
/* Source sample i to stored bytes (owned by the converter until its next call) and its record. The error text begins
 * with the picture's path. */
int converter_run(converter *c, int64_t i, const uint8_t **data, pack_record *record);
/* Decodes just so far that the size is known. */
int converter_shape(converter *c, int64_t i, int *height, int *width);

void record_seal(pack_record *record);
bool record_valid(const pack_record *record);

/* Progress, and the wish to stop, over all ranks: by a small file, as the file system is shared anyway. */
typedef struct board board;
int board_open(board **b, packing *p, const char *phase, int64_t total);
void board_add(board *b, int64_t samples, int64_t bytes, int64_t rejects, int64_t kept); /* any thread */
bool board_stopping(const board *b);
void board_stop(board *b);   /* asks all ranks to stop */
void board_tick(board *b);   /* main thread, several times a second */
void board_close(board **b); /* prints the last line */
void pack_catch_signals(void);
bool pack_signalled(void);

#endif
