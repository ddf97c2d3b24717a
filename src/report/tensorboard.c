#include "report/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"
#include "report/protobuf.h"

/* fields of the messages, by their names in the .proto files */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7
};
enum { SUMMARY_VALUE = 1 };
enum {
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8,
    VALUE_META = 9
};
enum { QUALITY = 95, BUFFER = 64 << 10 };
static const double flush_seconds = 1;

/* Limits of buckets as TensorFlow has them (lib/histogram/histogram.cc): 1e-12 times powers of 1.1, the same
 * below 0, and the largest numbers. */
enum { HALF = 776, LIMITS = 2 * HALF + 1, EXPONENTS = 256 };

struct kolo_tensorboard {
    char *path;
    int fd;
    off_t whole;         /* size of the file: ends with a whole record */
    kolo_message buffer; /* records that are not in the file yet */
    kolo_message summary, value, part, entry, event;
    double flushed; /* when */
    double limit[LIMITS], count[LIMITS], end[LIMITS];
    int first[EXPONENTS]; /* of the positive numbers with that exponent: the first limit above the least */
    uint8_t *jpeg;
    size_t jpeg_capacity;
};

/* ---- records ------------------------------------------------------------------------------------------- */

/* The checksum of a TFRecord. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = kolo_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static int fail_errno(const kolo_tensorboard *b, const char *verb)
{
    return kolo_fail(KOLO_EIO, "%s: cannot %s: %s%s", b->path, verb, strerror(errno),
                     errno == ENOSPC || errno == EDQUOT ? "; free space there, or leave tensorboard= out"
                                                        : "");
}

static int no_memory(const kolo_tensorboard *b)
{
    return kolo_fail(KOLO_ENOMEM, "%s: out of memory", b->path);
}

/* Writes the buffered records, all or, on an error, none: the file is truncated to whole records. */
int kolo_tensorboard_flush(kolo_tensorboard *b)
{
    b->flushed = kolo_time();
    for (size_t done = 0; done < b->buffer.used;) {
        const ssize_t n = pwrite(b->fd, b->buffer.data + done, b->buffer.used - done, b->whole + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int rc = fail_errno(b, "write");
            return ftruncate(b->fd, b->whole) < 0 ? fail_errno(b, "cut back") : rc;
        }
        done += (size_t)n;
    }
    b->whole += (off_t)b->buffer.used;
    kolo_message_clear(&b->buffer);
    return 0;
}

/* What b->event holds, with its time. */
static int put_event(kolo_tensorboard *b)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    kolo_message_double(&b->event, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    const uint64_t length = b->event.used;
    const uint32_t of_length = masked_crc(&length, sizeof length),
                   of_data = masked_crc(b->event.data, b->event.used);
    const size_t before = b->buffer.used;
    b->buffer.failed = b->event.failed;
    kolo_message_raw(&b->buffer, &length, sizeof length);
    kolo_message_raw(&b->buffer, &of_length, sizeof of_length);
    kolo_message_raw(&b->buffer, b->event.data, b->event.used);
    kolo_message_raw(&b->buffer, &of_data, sizeof of_data);
    kolo_message_clear(&b->event);
    if (b->buffer.failed) {
        b->buffer.used = before;
        b->buffer.failed = false;
        return no_memory(b);
    }
    return b->buffer.used > BUFFER || kolo_time() - b->flushed >= flush_seconds ? kolo_tensorboard_flush(b)
                                                                                : 0;
}

int kolo_tensorboard_write(kolo_tensorboard *b, int64_t step)
{
    if (b->summary.used == 0 && !b->summary.failed) return 0;
    kolo_message_int(&b->event, EVENT_STEP, step);
    kolo_message_message(&b->event, EVENT_SUMMARY, &b->summary);
    return put_event(b);
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* The value that b->value holds goes into the summary of the next event. */
static int put_value(kolo_tensorboard *b, const char *group, const char *tag)
{
    char *name = *group ? kolo_format("%s/%s", group, tag) : kolo_strdup(tag);
    if (!name) return KOLO_ENOMEM;
    kolo_message_string(&b->value, VALUE_TAG, name);
    free(name);
    kolo_message_message(&b->summary, SUMMARY_VALUE, &b->value);
    return b->summary.failed ? no_memory(b) : 0;
}

int kolo_tensorboard_scalar(kolo_tensorboard *b, const char *group, const char *tag, double value)
{
    kolo_message_float(&b->value, VALUE_SIMPLE, (float)value);
    return put_value(b, group, tag);
}

int kolo_tensorboard_image(kolo_tensorboard *b, const char *group, const char *tag, const kolo_image *image)
{
    enum { HEIGHT = 1, WIDTH = 2, COLOURS = 3, ENCODED = 4 };
    size_t bytes;
    KOLO_TRY(kolo_jpeg_encode(image, QUALITY, &b->jpeg, &b->jpeg_capacity, &bytes));
    kolo_message_int(&b->part, HEIGHT, image->height);
    kolo_message_int(&b->part, WIDTH, image->width);
    kolo_message_int(&b->part, COLOURS, image->channels);
    kolo_message_bytes(&b->part, ENCODED, b->jpeg, bytes);
    kolo_message_message(&b->value, VALUE_IMAGE, &b->part);
    return put_value(b, group, tag);
}

/* ---- histograms ---------------------------------------------------------------------------------------- */

static int exponent_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int)(bits >> 23 & 0xff);
}

static void fill_limits(kolo_tensorboard *b)
{
    double *up = b->limit + HALF, v = 1e-12;
    int n = 0;
    up[0] = 0;
    for (; v < 1e20 && n < HALF - 1; v *= 1.1) up[++n] = v;
    while (n < HALF) up[++n] = DBL_MAX;
    for (int i = 1; i <= HALF; i++) b->limit[HALF - i] = -up[i];
    for (int e = 0, at = 1; e < EXPONENTS; e++) {
        const double least = e == 0 ? 0 : ldexp(1, e - 127);
        while (at < HALF && up[at] <= least) at++;
        b->first[e] = at;
    }
}

/* The first limit above the value: bucket i holds [limit[i - 1], limit[i]). */
static int bucket_of(const kolo_tensorboard *b, float value)
{
    const double *up = b->limit + HALF, size = fabs((double)value);
    int i = b->first[exponent_of(value)];
    if (value >= 0) {
        while (up[i] <= size) i++;
        return HALF + i;
    }
    while (up[i] < size) i++; /* up[i - 1] < size <= up[i], so -up[i] <= value < -up[i - 1] */
    return HALF - i + 1;
}

/* Buckets from..to, of empty ones that follow one another one: counts to the front of b->count, their
 * limits to b->end. How many. */
static size_t join_empty(kolo_tensorboard *b, int from, int to)
{
    size_t n = 0;
    for (int i = from; i <= to; i++) {
        const bool again = n > 0 && b->count[i] <= 0 && b->count[n - 1] <= 0;
        if (!again) b->count[n++] = b->count[i];
        b->end[n - 1] = b->limit[i];
    }
    return n;
}

int kolo_tensorboard_histogram(kolo_tensorboard *b, const char *group, const char *tag, const float *values,
                               int64_t count)
{
    enum { MIN = 1, MAX = 2, NUM = 3, SUM = 4, SQUARES = 5, LIMIT = 6, BUCKET = 7 };
    double low = INFINITY, high = -INFINITY, sum = 0, squares = 0, number = 0;
    int from = LIMITS, to = -1;
    memset(b->count, 0, sizeof b->count);
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)values[i];
        if (!isfinite(v)) continue;
        const int at = bucket_of(b, values[i]);
        b->count[at]++;
        if (at < from) from = at;
        if (at > to) to = at;
        if (v < low) low = v;
        if (v > high) high = v;
        number++;
        sum += v;
        squares += v * v;
    }
    if (to < 0) return 0;
    kolo_message_double(&b->part, MIN, low);
    kolo_message_double(&b->part, MAX, high);
    kolo_message_double(&b->part, NUM, number);
    kolo_message_double(&b->part, SUM, sum);
    kolo_message_double(&b->part, SQUARES, squares);
    const size_t buckets = join_empty(b, from, to);
    kolo_message_doubles(&b->part, LIMIT, b->end, buckets);
    kolo_message_doubles(&b->part, BUCKET, b->count, buckets);
    kolo_message_message(&b->value, VALUE_HISTOGRAM, &b->part);
    return put_value(b, group, tag);
}

/* ---- hparams ------------------------------------------------------------------------------------------- */

/* What the plugin wants beside its own message: one zero (tensorboard/plugins/hparams/metadata.py). */
static void put_null_tensor(kolo_tensorboard *b)
{
    enum { TYPE = 1, SHAPE = 2, FLOATS = 5, DIMENSION = 2, SIZE = 1, FLOAT = 1 };
    kolo_message_int(&b->entry, SIZE, 1);
    kolo_message shape = {0};
    kolo_message_message(&shape, DIMENSION, &b->entry);
    kolo_message_int(&b->part, TYPE, FLOAT);
    kolo_message_message(&b->part, SHAPE, &shape);
    kolo_message_bytes(&b->part, FLOATS, &(float){0}, sizeof(float));
    kolo_message_message(&b->value, VALUE_TENSOR, &b->part);
    free(shape.data);
}

/* A value of the plugin: b->entry is `field` of its HParamsPluginData. */
static int put_plugin(kolo_tensorboard *b, const char *tag, int field)
{
    enum { DATA = 1, NAME = 1, CONTENT = 2 };
    kolo_message meta = {0};
    kolo_message_message(&b->part, field, &b->entry);
    kolo_message_string(&meta, NAME, "hparams");
    kolo_message_message(&meta, CONTENT, &b->part);
    kolo_message_message(&b->part, DATA, &meta);
    kolo_message_message(&b->value, VALUE_META, &b->part);
    free(meta.data);
    put_null_tensor(b);
    return put_value(b, "_hparams_", tag);
}

/* Of options that set the run's numbers: the usual ones, and what is not at its default. */
static bool is_parameter(const kolo_option_entry *e, const char *text)
{
    static const char *const usual[] = {"model", "lr", "batch", "epochs", "optimizer", "weight_decay"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(e->key, usual[i])) return true;
    return e->scope == KOLO_SCOPE_MATH && strcmp(text, e->default_value) != 0;
}

static int put_start(kolo_tensorboard *b, const kolo_options *options)
{
    enum { SESSION_START = 3, PARAMETERS = 1, START_TIME = 5, KEY = 1, VALUE = 2 };
    enum { NUMBER = 2, STRING = 3, BOOLEAN = 4 }; /* of google.protobuf.Value */
    kolo_message pair = {0};
    int rc = 0;
    for (int i = 0; i < kolo_option_count && rc == 0; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *text = kolo_option_text(options, e);
        if (!text) rc = KOLO_ENOMEM;
        if (text && is_parameter(e, text)) {
            if (e->type == KOLO_OPTION_BOOL) kolo_message_int(&b->part, BOOLEAN, !strcmp(text, "true"));
            else if (e->type == KOLO_OPTION_INT || e->type == KOLO_OPTION_REAL)
                kolo_message_double(&b->part, NUMBER, strtod(text, NULL));
            else kolo_message_string(&b->part, STRING, text);
            kolo_message_string(&pair, KEY, e->key);
            kolo_message_message(&pair, VALUE, &b->part);
            kolo_message_message(&b->entry, PARAMETERS, &pair);
        }
        free(text);
    }
    free(pair.data);
    kolo_message_double(&b->entry, START_TIME, (double)time(NULL));
    if (rc == 0) rc = put_plugin(b, "session_start_info", SESSION_START);
    return rc == 0 ? kolo_tensorboard_write(b, 0) : rc;
}

static int put_end(kolo_tensorboard *b, const char *state)
{
    enum { SESSION_END = 4, STATUS = 1, END_TIME = 2, SUCCESS = 1, FAILURE = 2, RUNNING = 3 };
    kolo_message_int(&b->entry, STATUS,
                     !strcmp(state, "done")     ? SUCCESS
                     : !strcmp(state, "failed") ? FAILURE
                                                : RUNNING);
    kolo_message_double(&b->entry, END_TIME, (double)time(NULL));
    KOLO_TRY(put_plugin(b, "session_end_info", SESSION_END));
    return kolo_tensorboard_write(b, 0);
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* Older files of a run are read first, so the name begins with the time; of two starts within a second the
 * later one takes the next. */
static int create_file(kolo_tensorboard *b, const char *folder)
{
    enum { TRIES = 100 };
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    const long long now = (long long)time(NULL);
    for (int i = 0; i < TRIES; i++) {
        free(b->path);
        b->path = kolo_format("%s/events.out.tfevents.%010lld.%s", folder, now + i, host);
        if (!b->path) return KOLO_ENOMEM;
        if (kolo_file_exists(b->path)) continue;
        b->fd = kolo_file_open_plain(b->path, O_RDWR | O_CREAT | O_EXCL, 0666);
        return b->fd < 0 ? b->fd : 0;
    }
    return kolo_fail(KOLO_EIO, "%s: files of later times are there already; set the clock, or remove them",
                     b->path);
}

/* options: NULL where an older file has them. */
static int put_head(kolo_tensorboard *b, int64_t step, const kolo_options *options)
{
    enum { STATUS = 1, START = 1 };
    kolo_message_string(&b->event, EVENT_FILE_VERSION, "brain.Event:2");
    KOLO_TRY(put_event(b));
    if (step > 0) {
        kolo_message_int(&b->part, STATUS, START);
        kolo_message_int(&b->event, EVENT_STEP, step + 1);
        kolo_message_message(&b->event, EVENT_SESSION_LOG, &b->part);
        KOLO_TRY(put_event(b));
    }
    if (options) KOLO_TRY(put_start(b, options));
    return kolo_tensorboard_flush(b);
}

int kolo_tensorboard_open(kolo_tensorboard **board, const char *run_folder, int64_t step,
                          const kolo_options *options)
{
    kolo_tensorboard *b = *board = kolo_alloc(sizeof *b);
    char *folder = kolo_format("%s/tensorboard", run_folder);
    int rc = b && folder ? 0 : KOLO_ENOMEM;
    if (b) b->fd = -1, fill_limits(b);
    /* a run that begins anew has no older files */
    if (rc == 0 && step <= 0 && kolo_folder_exists(folder)) rc = kolo_folder_remove(folder);
    const bool goes_on = rc == 0 && kolo_folder_exists(folder);
    if (rc == 0) rc = kolo_folder_make(folder);
    if (rc == 0) rc = create_file(b, folder);
    if (rc == 0) rc = put_head(b, step, goes_on ? NULL : options);
    free(folder);
    if (rc < 0) kolo_tensorboard_close(board, NULL);
    return rc;
}

void kolo_tensorboard_close(kolo_tensorboard **board, const char *state)
{
    kolo_tensorboard *b = *board;
    if (!b) return;
    kolo_failure before;
    kolo_error_keep(&before);
    if (b->fd >= 0) {
        if (state) put_end(b, state);
        kolo_tensorboard_flush(b);
        close(b->fd);
    }
    kolo_message *const all[] = {&b->buffer, &b->summary, &b->value, &b->part, &b->entry, &b->event};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    free(b->jpeg);
    free(b->path);
    free(b);
    *board = NULL;
    kolo_error_restore(&before, before.status);
}
