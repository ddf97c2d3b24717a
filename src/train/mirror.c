#include "train/mirror.h"

#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int kolo_mirror_open(kolo_mirror *m, kolo_session *s)
{
    const kolo_loader_config c = kolo_session_loader(s, false);
    *m = (kolo_mirror){.lines = c.height, .width = c.width, .channels = c.channels};
    m->bytes = (size_t)s->rows * (size_t)c.height * (size_t)c.width * (size_t)c.channels;
    m->pixels = kolo_pages_alloc(m->bytes);
    if (!m->pixels) return KOLO_ENOMEM;
    KOLO_TRY(kolo_backend_pin(s->backend, m->pixels, m->bytes));
    m->backend = s->backend;
    return 0;
}

void kolo_mirror_close(kolo_mirror *m)
{
    if (m->backend) kolo_backend_unpin(m->backend, m->pixels);
    kolo_pages_free(&m->pixels, m->bytes);
    m->backend = NULL;
}

kolo_batch kolo_mirror_batch(kolo_mirror *m, const kolo_batch *batch)
{
    kolo_batch mirrored = *batch;
    const uint8_t *from = batch->pixels;
    uint8_t *to = m->pixels;
    const int64_t row = m->width * m->channels;
    for (int64_t line = 0; from && line < batch->rows * m->lines; line++, from += row, to += row)
        for (int64_t x = 0; x < m->width; x++)
            memcpy(to + x * m->channels, from + (m->width - 1 - x) * m->channels, (size_t)m->channels);
    mirrored.pixels = m->pixels;
    return mirrored;
}

static int read_logits(const kolo_session *s, const kolo_batch *batch, float *logits)
{
    const int tensor = kolo_session_eval_graph(s)->logits;
    kolo_exec *exec = kolo_session_eval_exec(s);
    KOLO_TRY(kolo_exec_infer(exec, batch));
    return kolo_session_answers(s, tensor) ? kolo_exec_get(exec, "activation", tensor, logits) : 0;
}

int kolo_mirror_logits(kolo_mirror *m, const kolo_session *s, const kolo_batch *batch, float *logits)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    const int64_t count = kolo_tensor_count(&g->tensor[g->logits]);
    const kolo_batch mirrored = kolo_mirror_batch(m, batch);
    KOLO_TRY(read_logits(s, batch, logits));
    KOLO_TRY(read_logits(s, &mirrored, logits + count));
    for (int64_t i = 0; i < count; i++) logits[i] = (logits[i] + logits[count + i]) / 2;
    return 0;
}
