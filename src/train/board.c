/* What a run gives to TensorBoard (report/tensorboard.h) beside the numbers of its events: histograms of
 * weights and gradients, and images as they are trained on. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "train/trainer.h"

enum { IMAGES = 4 };

int trainer_board_open(trainer *t)
{
    if (!t->options->tensorboard) return 0;
    KOLO_TRY(kolo_tensorboard_open(&t->board, t->options->run, t->position.step, t->options));
    kolo_events_mirror(t->events, t->board);
    kolo_scaler scaler;
    KOLO_TRY(kolo_exec_get_scaler(t->session.exec, &scaler));
    t->scale[1] = (double)scaler.scale;
    return 0;
}

void trainer_board_close(trainer *t, const char *state)
{
    if (t->events) kolo_events_mirror(t->events, NULL);
    kolo_tensorboard_close(&t->board, state);
}

bool trainer_board_due(const trainer *t, int64_t step)
{
    const int64_t every = t->options->tensorboard ? t->options->tensorboard_steps : 0;
    return every > 0 && (step == 1 || step % every == 0);
}

/* Rows of a batch as the loader made them, cropped, flipped, mixed. */
int trainer_board_images(trainer *t, const kolo_batch *batch, int64_t step)
{
    const int channels = (int)t->options->channels;
    if (!t->board || !batch->pixels || !trainer_board_due(t, step)) return 0;
    const size_t bytes = (size_t)batch->height * (size_t)batch->width * (size_t)channels;
    kolo_image image = {0};
    int rc = kolo_image_shape(&image, batch->height, batch->width, channels);
    for (int i = 0; rc == 0 && i < IMAGES && i < batch->valid; i++) {
        char tag[] = {(char)('0' + i), 0};
        memcpy(image.pixels, batch->pixels + (size_t)i * bytes, bytes);
        rc = kolo_tensorboard_image(t->board, "images", tag, &image);
    }
    kolo_image_free(&image);
    return rc == 0 ? kolo_tensorboard_write(t->board, step) : rc;
}

/* scale: what the loss was times. */
static int put_histogram(trainer *t, const char *which, int tensor, const char *group, double scale,
                         float *values)
{
    kolo_session *s = &t->session;
    const kolo_tensor *x = &s->graph->tensor[tensor];
    const int64_t count = kolo_tensor_count(x);
    KOLO_TRY(kolo_exec_get(s->exec, which, tensor, values));
    if (!t->board) return 0;
    for (int64_t i = 0; i < count && scale != 1; i++) values[i] = (float)((double)values[i] / scale);
    return kolo_tensorboard_histogram(t->board, group, x->name, values, count);
}

static int put_histograms(trainer *t, float *values)
{
    kolo_session *s = &t->session;
    for (int i = 0; i < s->graph->tensors; i++) {
        if (s->graph->tensor[i].role != KOLO_ROLE_PARAM) continue;
        KOLO_TRY(put_histogram(t, "param", i, "weights", 1, values));
        if (s->graph->grad && s->graph->grad[i] >= 0)
            KOLO_TRY(put_histogram(t, "gradient", i, "gradients", t->scale[0], values));
    }
    return 0;
}

/* Collective where ranks have other tensors, or parts of them. */
int trainer_board_histograms(trainer *t, int64_t step)
{
    kolo_session *s = &t->session;
    const bool together = s->plan->program || s->plan->config.shards > 1;
    int64_t most = 1;
    if (!is_root(t) && !together) return 0;
    for (int i = 0; i < s->graph->tensors; i++)
        if (s->graph->tensor[i].role == KOLO_ROLE_PARAM && kolo_tensor_count(&s->graph->tensor[i]) > most)
            most = kolo_tensor_count(&s->graph->tensor[i]);
    float *values = kolo_alloc((size_t)most * sizeof *values);
    int rc = values ? 0 : KOLO_ENOMEM;
    if (together) rc = kolo_comm_agree(s->comm, rc);
    if (rc == 0) rc = put_histograms(t, values);
    free(values);
    if (rc == 0 && t->board) rc = kolo_tensorboard_write(t->board, step);
    return rc == 0 && t->board ? kolo_tensorboard_flush(t->board) : rc;
}
