/* bf16, fp16, int8: every part of the vector goes to its owner in few bits, is summed there in f32, and goes
 * back to all in few bits. */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "comm/compress/codec.h"
#include "comm/core/kernel_wide.h"

enum { BLOCK = 256, BLOCK_WORDS = 1 + BLOCK / 4, DRAWS = BLOCK / 8 }; /* int8: a scale, then bytes */
enum { ENCODE, REDUCE, DECODE };

typedef struct quantised {
    /* scratch: the vector packed; encoded parts of this member; others' encodings of its part; encoded
     * sums */
    comm_place plain, out, in, result;
} quantised;

static bool is_int8(const comm_codec *c) { return c->config.kind == COMM_INT8; }
static enum kolo_dtype wire_of(const comm_codec *c)
{
    return c->config.kind == COMM_BF16 ? KOLO_BF16 : KOLO_F16;
}

/* Words of `count` encoded elements. */
static int64_t words(const comm_codec *c, int64_t count)
{
    return is_int8(c) ? (count + BLOCK - 1) / BLOCK * BLOCK_WORDS : (count + 1) / 2;
}

/* Part i, cut at whole blocks, so that every part but the last is whole words. */
static comm_range part(const comm_codec *c, int i)
{
    comm_range units = comm_cut((comm_range){0, (c->compressed + BLOCK - 1) / BLOCK}, c->members, i);
    int64_t end = units.to * BLOCK < c->compressed ? units.to * BLOCK : c->compressed;
    return (comm_range){units.from * BLOCK < end ? units.from * BLOCK : end, end};
}
static int64_t part_words(const comm_codec *c, int i) { return words(c, comm_length(part(c, i))); }
/* Where part i stands among all. */
static int64_t part_at(const comm_codec *c, int i) { return words(c, part(c, i).from); }

/* ---- int8 ---------------------------------------------------------------------------------------------- */

KOLO_CLONES_512 static uint32_t largest_bits(const float *x, int64_t count)
{
    const uint32_t *bits = (const uint32_t *)(const void *)x;
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) most = (bits[i] & 0x7fffffff) > most ? bits[i] & 0x7fffffff : most;
    return most;
}

/* floor(x / scale + u), u from [0, 1) in 16 bits: never beyond 127, as |x| / scale is not. */
KOLO_CLONES_512 static void round_block(int8_t *restrict q, const float *restrict x,
                                        const uint16_t *restrict draw, float inverse, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float v = floorf(x[i] * inverse + (float)draw[i] * 0x1p-16f);
        q[i] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
    }
}

/* kolo_philox of successive counters, side by side: eight draws of 16 bits each. */
KOLO_CLONES_512 static void draw_block(uint16_t *draw, uint64_t key, uint64_t high, uint64_t low)
{
    uint32_t c0[DRAWS], c1[DRAWS], c2[DRAWS], c3[DRAWS], k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t at = low + (uint64_t)i;
        c0[i] = (uint32_t)at, c1[i] = (uint32_t)(at >> 32), c2[i] = (uint32_t)high,
        c3[i] = (uint32_t)(high >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < DRAWS; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0[i], b = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)b;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)a;
        }
    for (int i = 0; i < DRAWS; i++) {
        const uint32_t word[4] = {c0[i], c1[i], c2[i], c3[i]};
        memcpy(draw + 8 * i, word, sizeof word);
    }
}

static void encode_block(uint32_t *out, const float *x, int64_t count, uint64_t key, uint64_t stream,
                         uint64_t block)
{
    static const float least = 0x1p-120f; /* a block of less is 0 */
    uint32_t most = largest_bits(x, count);
    float largest, scale;
    _Alignas(64) uint16_t draw[BLOCK];
    memcpy(&largest, &most, sizeof largest);
    memset(out, 0, BLOCK_WORDS * sizeof *out);
    if (most >= 0x7f800000) scale = NAN;
    else scale = largest < least ? 0 : largest / 127;
    memcpy(out, &scale, sizeof scale);
    if (!(scale > 0)) return;
    draw_block(draw, key, stream, block * DRAWS);
    round_block((int8_t *)(out + 1), x, draw, 1 / scale, count);
}

KOLO_CLONES_512 static void decode_block(float *restrict out, const int8_t *restrict q, float scale,
                                         int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = scale * (float)q[i];
}

static void decode_int8(float *out, const uint32_t *in, int64_t count)
{
    for (int64_t at = 0; at < count; at += BLOCK, in += BLOCK_WORDS) {
        float scale;
        memcpy(&scale, in, sizeof scale);
        decode_block(out + at, (const int8_t *)(in + 1), scale, count - at < BLOCK ? count - at : BLOCK);
    }
}

/* first: number of the first element in the vector; sums: the owner's second rounding has draws of its
 * own. */
static void encode_int8(const comm_codec *c, uint32_t *out, const float *x, int64_t first, int64_t count,
                        bool sums)
{
    uint64_t key = kolo_random_key(c->config.seed, KOLO_RANDOM_COMPRESS),
             stream = c->round << 20 | (uint64_t)c->me << 1 | sums;
    for (int64_t at = 0; at < count; at += BLOCK, out += BLOCK_WORDS)
        encode_block(out, x + at, count - at < BLOCK ? count - at : BLOCK, key, stream,
                     (uint64_t)((first + at) / BLOCK));
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

static uint32_t *at(const comm_run *run, comm_place place, int64_t by)
{
    return (uint32_t *)(void *)codec_words(run, comm_shift(place, by));
}

static void encode(const comm_codec *c, const comm_run *run)
{
    const quantised *q = c->own;
    float *plain = codec_words(run, q->plain);
    codec_gather(c, (const float *)(const void *)run->buffer[COMM_OWN], plain);
    if (is_int8(c)) encode_int8(c, at(run, q->out, 0), plain, 0, c->compressed, false);
    else comm_narrow(at(run, q->out, 0), plain, c->compressed, wire_of(c));
}

static const void *source_of(const comm_codec *c, const comm_run *run, int i)
{
    const quantised *q = c->own;
    if (i == c->me) return at(run, q->out, part_at(c, i));
    return at(run, q->in, (i < c->me ? i : i - 1) * part_words(c, c->me));
}

/* A block of every source at a time stays in the first cache. */
static void reduce_int8(const comm_codec *c, const comm_run *run, int64_t count, float *sum)
{
    comm_combine add = comm_combine_of(KOLO_F32, KOLO_SUM);
    for (int64_t done = 0; done < count; done += BLOCK) {
        _Alignas(64) float one[BLOCK];
        int64_t some = count - done < BLOCK ? count - done : BLOCK;
        for (int i = 0; i < c->members; i++) {
            const uint32_t *in = (const uint32_t *)source_of(c, run, i) + done / BLOCK * BLOCK_WORDS;
            decode_int8(i ? one : sum + done, in, some);
            if (i) add(sum + done, sum + done, one, some);
        }
    }
}

static void reduce(const comm_codec *c, const comm_run *run)
{
    const quantised *q = c->own;
    comm_range mine = part(c, c->me);
    void *out = at(run, q->result, part_at(c, c->me));
    if (is_int8(c)) {
        float *sum = codec_words(run, comm_shift(q->plain, mine.from));
        reduce_int8(c, run, comm_length(mine), sum);
        encode_int8(c, out, sum, mine.from, comm_length(mine), true);
        return;
    }
    const void *source[COMM_FOLD_MAX];
    for (int i = 0; i < c->members; i++) source[i] = source_of(c, run, i);
    comm_fold(&(comm_folding){.type = wire_of(c), .op = KOLO_SUM, .tree = true}, &out, 1, source, c->members,
              comm_length(mine));
}

static void decode(const comm_codec *c, const comm_run *run)
{
    const quantised *q = c->own;
    float *plain = codec_words(run, q->plain);
    if (is_int8(c)) decode_int8(plain, at(run, q->result, 0), c->compressed);
    else comm_widen(plain, at(run, q->result, 0), c->compressed, wire_of(c));
    codec_scatter(c, (float *)(void *)run->buffer[COMM_OWN], plain);
}

static void quantised_call(comm_codec *c, comm_run *run, const comm_action *action)
{
    if (action->peer == ENCODE) encode(c, run);
    else if (action->peer == REDUCE) reduce(c, run);
    else decode(c, run);
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

static int quantised_make(comm_codec *c, comm_build *b)
{
    quantised *q = c->own = comm_build_memory(b, sizeof *q);
    int64_t all = words(c, c->compressed), mine = part_words(c, c->me);
    if (!q) return KOLO_ENOMEM;
    q->plain = codec_scratch(b, c->compressed);
    q->out = codec_scratch(b, all);
    q->in = codec_scratch(b, (c->members - 1) * mine);
    q->result = codec_scratch(b, all);
    comm_build_call(b, ENCODE, 0);
    for (int k = 1; k < c->members; k++) {
        int from = (c->me + c->members - k) % c->members, to = (c->me + k) % c->members;
        comm_build_receive(b, from, comm_shift(q->in, (from < c->me ? from : from - 1) * mine), mine);
        comm_build_send(b, to, comm_shift(q->out, part_at(c, to)), part_words(c, to));
    }
    comm_build_wait_all(b);
    comm_build_call(b, REDUCE, 0);
    for (int k = 1; k < c->members; k++) {
        int from = (c->me + c->members - k) % c->members, to = (c->me + k) % c->members;
        comm_build_receive(b, from, comm_shift(q->result, part_at(c, from)), part_words(c, from));
        comm_build_send(b, to, comm_shift(q->result, part_at(c, c->me)), mine);
    }
    comm_build_wait_all(b);
    comm_build_call(b, DECODE, 0);
    return 0;
}

static double bytes(const comm_compress *config, int members, int64_t compressed, const comm_matrix *matrix,
                    int matrices)
{
    (void)matrix, (void)matrices;
    double each = config->kind == COMM_INT8 ? (double)BLOCK_WORDS * 4 / BLOCK : 2;
    return 2.0 * (members - 1) / members * each * (double)compressed;
}

const comm_compressor comm_quantised = {NULL, quantised_make, quantised_call, bytes};
