/* kolo-pack: images to shards. The way of a packing:
 *
 *   list     rank 0 lists the source (sources/); the plan (plan.c) holds options and list in OUT/.pack
 *   probe    where sizes are not known beforehand: every image is converted once, its record goes to the
 *            journal
 *   layout   which sample goes where; owners create the shards with all space allocated
 *   write    all threads of all ranks pwrite blocks of samples (run.c), then their records and states
 *   finish   rank 0: statistics, uuid, complete, rename, manifest (finish.c)
 *
 * Everything that decides the output follows from options and source, never from ranks, threads or
 * restarts. */
#ifndef HDF5_TOOLS_PACK_PACK_H
#define HDF5_TOOLS_PACK_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "data/image/image.h"
#include "data/image/resample.h"
#include "data/shard/file.h"
#include "launch/launch.h"
#include "sources/options.h"
#include "sources/source.h"

/* 0, or KOLO_ECONFIG with the text set. */
int pack_options_read(pack_options *options, int argc, char **argv);
void pack_options_help(void);
/* What decides the output, as one line: goes into the plan, the fingerprint and the shards. Caller frees. */
char *pack_options_text(const pack_options *options);

/* What is known of one sample once it has been converted. The journal (OUT/.pack/journal)
 * is an array of these. */
typedef struct pack_record {
    uint32_t bytes, crc;
    uint16_t size[2], orig_size[2]; /* height, width */
    uint8_t status;                 /* PACK_* below */
    uint8_t channels, source_channels, low[3], high[3], state;
    uint8_t orientation; /* EXIF, as the source file states it */
    uint8_t codec;       /* enum kolo_codec */
    uint8_t unused[4];
    uint64_t pixels, sum[3], square[3]; /* pixels 0: not measured */
    uint32_t check, zero;               /* crc32c of what stands before */
} pack_record;

typedef struct pack_brief { /* of a record, what the layout of all samples follows from */
    uint32_t bytes;
    uint8_t status, codec, channels, source_channels;
} pack_brief;

/* PACK_SIZED: a JPEG file that keeps its bytes: their number is known, the rest when they are written. */
enum { PACK_UNKNOWN, PACK_GOOD, PACK_BAD, PACK_SIZED };

typedef struct pack_shard {
    int64_t first, count;
    uint64_t *offsets;     /* [count + 1] in the data */
    uint64_t *box_offsets; /* [count + 1] in the boxes; NULL: the source has none */
    char *file, *path;     /* final name; path under OUT/.pack while it is made */
    kolo_shard_places places;
    uint64_t box_place, flags_place, area_place, transform_place;
    int fd;
    bool fresh; /* made by this rank, in this run */
} pack_shard;

/* A sample's bytes; NULL: none. */
typedef struct pack_kept {
    uint8_t *data;
    uint32_t bytes;
} pack_kept;

/* One packing, as a rank sees it. A slot is a place in the shuffled source, a position one in the output:
 * positions are the slots without the bad ones. */
typedef struct packing {
    pack_options options;
    kolo_launch launch;
    source source;
    char *work;    /* OUT/.pack */
    run_lock lock; /* rank 0: one packing at a time in a folder */
    char *options_text;
    int *agreed; /* [ranks] of pack_agree */
    uint64_t fingerprint[2];
    int channels, height, width; /* of the output; channels 0: not yet decided; height 0: they differ */
    int threads;
    bool resumed;  /* there is earlier work to keep */
    bool claimed;  /* OUT/.pack is ours */
    bool complete; /* the output is there already, of the same source and options */
    bool stats_given;
    kolo_shard_stats stats; /* of --stats-from */

    int64_t slot_count; /* samples that were chosen of the source's */
    int64_t *order;     /* [slot_count] slot -> source number */
    int journal;        /* file, [slot_count] records by slot */
    char *journal_path;
    pack_brief *brief;   /* [slot_count] by slot */
    pack_record *window; /* records of the slots from window_first on, which this rank works on */
    int64_t window_first;
    pack_kept *cache; /* [cache_count] by slot from cache_first on: what is kept from the probe */
    int64_t cache_first, cache_count;
    _Atomic int64_t cache_left; /* bytes */
    char *reject_path;          /* of this rank: lines "slot<TAB>path<TAB>cause" */
    /* lines "annotation or path<TAB>cause", images of all ranks in source order; rank 0, after layout */
    char *rejects;

    int64_t *slots; /* [count] position -> slot */
    int64_t count, bad;
    int64_t boxes, outside_boxes, tags, pairs, dropped_pairs; /* of the output; outside: after pack_finish */
    uint64_t bytes;                                           /* sample bytes of the output */
    uint64_t *class_counts;                                   /* [source.classes] */
    bool labelled;                                            /* some sample has a label */
    source_pair *pair;                                        /* [pairs] a, b: positions */
    int shards;
    pack_shard *shard; /* [shards] */
} packing;

/* All of what follows, in its order; --dry-run only says what would be done. p: options and launch are set;
 * the caller releases p->lock, where it has one, and calls pack_free, whatever happened. Collective. */
int pack_split(packing *p);
void pack_tell(const packing *p, double seconds); /* rank 0, after it: what was done */

/* In this order; all collective. KOLO_EREQUEUE: a signal asked to stop and everything is flushed. */
int pack_plan(packing *p); /* list, fingerprint, order, journal */
/* converts everything once, where sizes or bad images must be known beforehand */
int pack_probe(packing *p);
int pack_layout(packing *p); /* what goes where; shards are created */
int pack_write(packing *p);
int pack_finish(packing *p);
/* Rank 0: warns of images that are there twice. keys [count]: checksum and length of every sample. */
int pack_report_duplicates(const packing *p, const uint64_t *keys);
void pack_free(packing *p);

/* Which samples, in which order: --limit, --subset, --holdout, --shuffle-seed. Fills order and slot_count. */
int pack_choose(packing *p);
int pack_check_shards(int shards, int64_t samples);          /* KOLO_ECONFIG: a shard would be empty */
int pack_shard_count(const pack_options *o, uint64_t bytes); /* files for so many sample bytes */
/* Samples are shared out in order: this rank's are from pack_share(n, launch, 0) to pack_share(n, launch,
 * 1). */
int64_t pack_share(int64_t n, const kolo_launch *launch, int after);
/* The worst status of all ranks. A rank that had no error itself gets an empty error text. Collective. */
int pack_agree(packing *p, int status);

/* ---- the journal (journal.c) ---- */

void record_seal(pack_record *record); /* with its checksum */
int pack_journal_open(packing *p);
void pack_journal_close(packing *p);
/* of all slots, after all ranks have written */
int pack_journal_brief(packing *p);
int pack_journal_window(packing *p, int64_t first, int64_t end);       /* reads the records of these slots */
pack_record *pack_journal_at(const packing *p, int64_t slot);          /* in the window */
int pack_journal_write(const packing *p, int64_t slot, int64_t count); /* from the window */
/* Every record in the file, in order; unwritten ones are PACK_UNKNOWN. Ends with the first that
 * `take` does not like. */
int pack_journal_each(const packing *p, int64_t first, int64_t end,
                      int (*take)(void *state, int64_t slot, const pack_record *record), void *state);

/* ---- geometry (frame.c) ---- */

typedef struct pack_frame {          /* how an image becomes a sample; pixels */
    int source_height, source_width; /* upright */
    int full_height, full_width;     /* after resizing */
    int top, left, rows, columns;    /* the part of that which is kept */
    int height, width;               /* of the sample */
    int above, before;               /* bars: rows above, columns left of the image */
} pack_frame;

#define PACK_BAR 114 /* gray of letterbox bars */

/* KOLO_EINPUT: smaller than the crop; the text begins after the image's path. */
int pack_frame_of(const pack_options *o, int height, int width, pack_frame *frame);
bool pack_frame_is_whole(const pack_frame *frame); /* the sample has the image's own pixels */
void pack_frame_transform(const pack_frame *frame, float transform[4]);
/* Do the annotations belong to the image before its EXIF turn? height, width: upright. */
bool pack_is_turned(const source_place *place, int orientation, int height, int width);
/* turn: the EXIF orientation by which boxes are turned with the image, or 1. */
void pack_place_box(const pack_frame *frame, const source_box *from, enum source_box_form form, int turn,
                    float box[4], uint8_t *flags, float *area);

/* ---- tables of a shard (tables.c) ---- */

extern const char *const pack_filter_names[]; /* by KOLO_interpolation_* */
void pack_task_text(const packing *p, char *text, size_t size);
int pack_create_shard(const packing *p, int k);
int pack_place_tables(pack_shard *s); /* after the shard is there */
/* Boxes and transforms of `count` samples from `index` of the shard, computed from their
 * records, and written. */
int pack_store_targets(const packing *p, const pack_shard *s, int64_t index, int64_t count);

/* One thread's tools. */
typedef struct converter converter;
int converter_create(converter **c, const packing *p);
void converter_destroy(converter **c);
/* Source sample i to stored bytes (owned by the converter until its next call) and its record. Where the
 * bytes of a JPEG file are kept it is decoded only if `look` (or --check decode) asks for it. The error text
 * begins with the image's path. */
int converter_run(converter *c, int64_t i, bool look, const uint8_t **data, pack_record *record);
/* 1: by its first and last bytes sample i is a JPEG file whose bytes go into the shard, and `record` is
 * PACK_SIZED. 0: it takes converter_run to know. */
int converter_peek(converter *c, int64_t i, pack_record *record);
/* Is the image in this slot one of those that mean and standard deviation are taken from? */
bool pack_measures(const packing *p, int64_t slot);
/* Decodes just so far that the size is known. */
int converter_shape(converter *c, int64_t i, int *height, int *width);

/* Progress, and the wish to stop, over all ranks: by a small file, as the file system is shared anyway. */
typedef struct board board;
int board_open(board **b, packing *p, const char *phase, int64_t total);
void board_add(board *b, int64_t samples, int64_t bytes, int64_t rejects, int64_t kept); /* any thread */
bool board_stopping(const board *b);
void board_stop(board *b);   /* asks all ranks to stop */
void board_tick(board *b);   /* main thread, several times a second */
void board_close(board **b); /* prints the last line */
void pack_catch_signals(void);

#endif
