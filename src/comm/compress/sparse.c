#include "comm/compress/codec.h"

#include <string.h>

sparse_slot sparse_slot_make(comm_build *b, comm_range range)
{
    comm_place at = codec_scratch(b, CODEC_LINE + comm_length(range) + 1);
    return (sparse_slot){comm_shift(at, CODEC_LINE), range};
}

static sparse_head *head_of(const comm_run *run, const sparse_slot *s)
{
    return (sparse_head *)(void *)codec_words(run, comm_shift(s->at, -CODEC_LINE));
}
static void *body_of(const comm_run *run, const sparse_slot *s) { return codec_words(run, s->at); }

static bool dense_is_shorter(const sparse_slot *s, int64_t pairs)
{
    return 2 * pairs >= comm_length(s->range);
}

static void set_head(const comm_run *run, const sparse_slot *s, bool dense, int64_t pairs)
{
    int64_t words = dense ? comm_length(s->range) : 2 * pairs;
    *head_of(run, s) = (sparse_head){(uint32_t)(words ? words : 1), dense ? SPARSE_DENSE : (uint32_t)pairs};
}

void sparse_write(const comm_run *run, const sparse_slot *s, const uint32_t *index, int64_t count,
                  const float *value)
{
    bool dense = dense_is_shorter(s, count);
    sparse_pair *pair = body_of(run, s);
    float *all = body_of(run, s);
    set_head(run, s, dense, count);
    if (dense) memset(all, 0, (size_t)comm_length(s->range) * sizeof *all);
    for (int64_t i = 0; i < count; i++) {
        if (dense) all[(int64_t)index[i] - s->range.from] = value[index[i]];
        else pair[i] = (sparse_pair){index[i], value[index[i]]};
    }
}

void sparse_pack(const comm_run *run, const sparse_slot *s, const float *value)
{
    int64_t length = comm_length(s->range), count = 0;
    sparse_pair *pair = body_of(run, s);
    for (int64_t i = 0; i < length; i++) count += value[i] != 0;
    bool dense = dense_is_shorter(s, count);
    set_head(run, s, dense, count);
    if (dense) {
        memcpy(pair, value, (size_t)length * sizeof *value);
        return;
    }
    for (int64_t i = 0; i < length; i++)
        if (value[i] != 0) *pair++ = (sparse_pair){(uint32_t)(s->range.from + i), value[i]};
}

void sparse_add(const comm_run *run, const sparse_slot *s, float *sum)
{
    const sparse_head *head = head_of(run, s);
    const void *body = body_of(run, s);
    if (head->pairs == SPARSE_DENSE) {
        comm_combine_of(KOLO_F32, KOLO_SUM)(sum, sum, body, comm_length(s->range));
        return;
    }
    const sparse_pair *pair = body;
    for (uint32_t i = 0; i < head->pairs; i++) sum[(int64_t)pair[i].index - s->range.from] += pair[i].value;
}

static int64_t merge_pairs(sparse_pair *out, const sparse_pair *a, int64_t as, const sparse_pair *b,
                           int64_t bs)
{
    int64_t n = 0, i = 0, k = 0;
    while (i < as && k < bs) {
        if (a[i].index == b[k].index) {
            out[n++] = (sparse_pair){a[i].index, a[i].value + b[k].value};
            i++, k++;
        } else {
            out[n++] = a[i].index < b[k].index ? a[i++] : b[k++];
        }
    }
    while (i < as) out[n++] = a[i++];
    while (k < bs) out[n++] = b[k++];
    return n;
}

void sparse_merge(const comm_run *run, const sparse_slot *out, const sparse_slot *left,
                  const sparse_slot *right)
{
    const sparse_head *l = head_of(run, left), *r = head_of(run, right);
    if (l->pairs != SPARSE_DENSE && r->pairs != SPARSE_DENSE &&
        !dense_is_shorter(out, (int64_t)l->pairs + r->pairs)) {
        set_head(run, out, false,
                 merge_pairs(body_of(run, out), body_of(run, left), l->pairs, body_of(run, right), r->pairs));
        return;
    }
    float *sum = body_of(run, out);
    set_head(run, out, true, 0);
    memset(sum, 0, (size_t)comm_length(out->range) * sizeof *sum);
    sparse_add(run, left, sum);
    sparse_add(run, right, sum);
}

void sparse_exchange(comm_build *b, const sparse_transfer *transfer, int transfers, int sizes)
{
    for (int body = 0; body < 2; body++) {
        if (body) comm_build_call(b, sizes, 0);
        for (int i = 0; i < transfers; i++) {
            const sparse_transfer *t = &transfer[i];
            comm_place at = body ? t->slot->at : comm_shift(t->slot->at, -CODEC_LINE);
            int64_t words = body ? comm_length(t->slot->range) + 1 : SPARSE_HEAD_WORDS; /* at most */
            if (t->send) comm_build_send(b, t->peer, at, words);
            else comm_build_receive(b, t->peer, at, words);
        }
        comm_build_wait_all(b);
    }
}

void sparse_sizes(comm_codec *c, const comm_run *run)
{
    for (comm_action *a = &c->schedule.action[run->at + 1]; a->kind != COMM_WAIT; a++) {
        comm_place at = a->kind == COMM_SEND ? a->left : a->out;
        a->count = ((const sparse_head *)(const void *)codec_words(run, comm_shift(at, -CODEC_LINE)))->words;
    }
}
