/* powersgd: every matrix by two thin ones. Matrices that these would not make shorter are summed exactly. */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "comm/compress/codec.h"
#include "kolo/error.h"

enum { LEFT, RIGHT, FINISH };

typedef struct lowrank {
    /* state: [compressed] what was lost; Q of all matrices, with which the next round begins */
    float *error, *start;
    float *local; /* Q of this member alone, while the others' are on their way */
    bool *sound;  /* [matrices] nothing came that was not finite */
    int64_t p_words, q_words;
    comm_place p, q;
} lowrank;

static int rank_of(const comm_compress *config, const comm_matrix *m)
{
    int64_t rank = config->rank, rows = matrix_rows(m);
    if (rank > rows) rank = rows;
    return (int)(rank < m->columns ? rank : m->columns);
}

static int64_t thin_words(const comm_compress *config, const comm_matrix *m)
{
    return (matrix_rows(m) + m->columns) * rank_of(config, m);
}

static bool shrinks(const comm_compress *config, const comm_matrix *m)
{
    return thin_words(config, m) < matrix_count(m);
}

/* A column of Q that says nothing begins anew, the same on all members. */
static void draw_column(const comm_codec *c, float *column, int64_t count, int matrix, int r)
{
    uint64_t key = kolo_random_key(c->config.seed, KOLO_RANDOM_COMPRESS),
             high = c->round << 32 | (uint64_t)(uint32_t)(matrix << 8 | (r & 255));
    for (int64_t i = 0; i < count; i += 4) {
        kolo_philox4 draw = kolo_philox(key, high, (uint64_t)i);
        for (int64_t k = 0; k < 4 && i + k < count; k++) column[i + k] = kolo_uniform(draw.v[k]) - 0.5f;
    }
}

static bool is_zero(const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (x[i] != 0) return false;
    return true;
}

/* One matrix at a time: what belongs to it. */
typedef struct place {
    const comm_matrix *m;
    int rank, number;
    float *error, *start, *local, *p, *q;
} place;

static void each(const comm_codec *c, const comm_run *run,
                 void (*work)(const comm_codec *c, const place *at, float *vector))
{
    const lowrank *l = c->own;
    place at = {.error = l->error,
                .start = l->start,
                .local = l->local,
                .p = codec_words(run, l->p),
                .q = codec_words(run, l->q)};
    for (int i = 0; i < c->matrices; i++) {
        const comm_matrix *m = at.m = &c->matrix[i];
        at.number = i;
        at.rank = rank_of(&c->config, m);
        work(c, &at, (float *)(void *)run->buffer[COMM_OWN] + m->at);
        at.error += matrix_count(m);
        at.start += at.rank * m->columns;
        at.local += at.rank * m->columns;
        at.q += at.rank * m->columns;
        at.p += at.rank * matrix_rows(m);
    }
}

static void left(const comm_codec *c, const place *at, float *vector)
{
    for (int r = 0; r < at->rank; r++) {
        float *column = at->start + r * at->m->columns;
        if (is_zero(column, at->m->columns)) draw_column(c, column, at->m->columns, at->number, r);
    }
    comm_combine_of(KOLO_F32, KOLO_SUM)(at->error, at->error, vector, matrix_count(at->m));
    matrix_times(at->p, at->m, at->error, at->start, at->rank);
}

static void right(const comm_codec *c, const place *at, float *vector)
{
    (void)vector;
    lowrank *l = c->own;
    l->sound[at->number] = matrix_orthonormalise(at->p, matrix_rows(at->m), at->rank);
    matrix_transposed_times(at->q, at->m, at->error, at->p, at->rank);
    memcpy(at->local, at->q, (size_t)(at->rank * at->m->columns) * sizeof *at->q);
}

static void lowrank_finish(const comm_codec *c, const place *at, float *vector)
{
    const lowrank *l = c->own;
    int64_t words = at->rank * at->m->columns, count = matrix_count(at->m);
    if (l->sound[at->number]) {
        matrix_add_product(at->error, at->m, at->p, at->local, at->rank, -1);
        memset(vector, 0, (size_t)count * sizeof *vector);
        matrix_add_product(vector, at->m, at->p, at->q, at->rank, 1);
        memcpy(at->start, at->q, (size_t)words * sizeof *at->q);
        if (matrix_orthonormalise(at->start, at->m->columns, at->rank)) return;
    }
    for (int64_t i = 0; i < count; i++) {
        vector[i] = NAN;
        if (!isfinite(at->error[i])) at->error[i] = 0;
    }
    memset(at->start, 0, (size_t)words * sizeof *at->start); /* drawn anew */
}

static void lowrank_call(comm_codec *c, comm_run *run, const comm_action *action)
{
    each(c, run, action->peer == LEFT ? left : action->peer == RIGHT ? right : lowrank_finish);
}

static int lowrank_make(comm_codec *c, comm_build *b)
{
    lowrank *l = c->own = comm_build_memory(b, sizeof *l);
    if (!l) return KOLO_ENOMEM;
    for (int i = 0; i < c->matrices; i++) {
        l->p_words += matrix_rows(&c->matrix[i]) * rank_of(&c->config, &c->matrix[i]);
        l->q_words += c->matrix[i].columns * rank_of(&c->config, &c->matrix[i]);
    }
    l->error = codec_keep(c, b, (size_t)c->compressed * sizeof(float));
    l->start = codec_keep(c, b, (size_t)l->q_words * sizeof(float));
    l->local = comm_build_memory(b, (size_t)l->q_words * sizeof(float));
    c->spare_bytes = (size_t)l->q_words * sizeof(float);
    l->sound = comm_build_memory(b, (size_t)c->matrices * sizeof *l->sound);
    if (!l->error || !l->start || !l->local || !l->sound) return KOLO_ENOMEM;
    l->p = codec_scratch(b, l->p_words);
    l->q = codec_scratch(b, l->q_words);
    comm_build_call(b, LEFT, 0);
    codec_allreduce(b, l->p, l->p_words);
    comm_build_call(b, RIGHT, 0);
    codec_allreduce(b, l->q, l->q_words);
    comm_build_call(b, FINISH, 0);
    return 0;
}

static double bytes(const comm_compress *config, int members, int64_t compressed, const comm_matrix *matrix,
                    int matrices)
{
    int64_t p = 0, q = 0;
    (void)compressed;
    for (int i = 0; i < matrices; i++) {
        if (!shrinks(config, &matrix[i])) continue;
        p += rank_of(config, &matrix[i]) * matrix_rows(&matrix[i]);
        q += rank_of(config, &matrix[i]) * matrix[i].columns;
    }
    return codec_allreduce_bytes(members, p) + codec_allreduce_bytes(members, q);
}

const comm_compressor comm_lowrank = {shrinks, lowrank_make, lowrank_call, bytes};
