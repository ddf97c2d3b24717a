/* kolo-shards: one line of the table in kolo-shards.c and one function shards_NAME a subcommand. What
 * they share: the words of a command line, work on blocks by threads, images out of samples,
 * drawing; and write.h. */
#ifndef HDF5_TOOLS_SHARDS_SHARDS_H
#define HDF5_TOOLS_SHARDS_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/image/jpeg.h"
#include "data/image/image.h"
#include "data/shard/dataset.h"

/* argv[0] is the subcommand's name. Returns 0, 1 (its help was printed), or a negative
 * status with the text set. */
typedef int shards_function(int argc, char **argv);

typedef struct shards_command {
    const char *name, *words, *help;
    shards_function *run;
} shards_command;

shards_function shards_info, shards_verify, shards_show, shards_stats, shards_extract, shards_subset,
    shards_merge, shards_reshard, shards_manifest, shards_bench, shards_convert;

/* ---- words (words.c) ----------------------------------------------------------------------------------- */

enum shards_value { SHARDS_FLAG, SHARDS_NUMBER, SHARDS_TEXT };

typedef struct shards_option {
    const char *name, *value, *help; /* "--out", "DIR", one sentence */
    enum shards_value kind;
    void *to;          /* bool *, int64_t * or const char ** */
    int64_t low, high; /* of a number */
} shards_option;

typedef struct shards_line {
    const char *usage, *help; /* "verify DIR"; a paragraph */
    const shards_option *options;
    int option_count, least, most; /* how many words that are no options */
    const char **words;            /* [most] */
    int *word_count;               /* may be NULL */
} shards_line;

/* `--name value` and `--name=value`. 0; 1: --help was given and answered; KOLO_ECONFIG. */
int shards_read(const shards_line *line, int argc, char **argv);
/* Calls `use` for every word between commas; stops at the first negative status. */
int shards_each_word(const char *text, int (*use)(void *context, const char *word), void *context);

/* ---- work (work.c) ------------------------------------------------------------------------------------- */

typedef struct shards_work {
    const char *what; /* for the progress line, or NULL: none */
    int64_t total, block;
    int threads;
    /* Does first .. last-1. thread: 0 .. threads-1. Adds the bytes that it has worked on to *bytes. 1:
     * enough, no more blocks. */
    int (*run)(void *context, int thread, int64_t first, int64_t last, int64_t *bytes);
    void *context;
    int64_t bytes;  /* out */
    double seconds; /* out */
} shards_work;

/* Blocks are taken in turn by the threads. After an error no new block is begun; the status and text of the
 * lowest block that failed are returned. */
int shards_run(shards_work *work);

/* ---- images (image.c) ------------------------------------------------------------------------------ */

/* One thread's: memory for stored bytes, a decoder. Zeroed by the caller, freed by shards_reader_free. */
typedef struct shards_reader {
    kolo_jpeg *jpeg;
    uint8_t *data;
    size_t bytes, capacity;
} shards_reader;

/* to data, bytes */
int shards_read_bytes(shards_reader *reader, const kolo_dataset *dataset, int64_t sample);
/* Decodes what shards_read_bytes has read: upright. channels 1, 3, or 0: as the split has them. */
int shards_decode(shards_reader *reader, const kolo_dataset *dataset, int64_t sample, int channels,
                  kolo_image *image);
void shards_reader_free(shards_reader *reader);
bool shards_ends_with(const char *text, const char *end);

#endif
