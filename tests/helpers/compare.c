/* compare START A B LOSS GRADIENT: the change of every tensor from run START to run A beside that from START
 * to run B. Exit 1 if the losses of step 1 differ by more than LOSS (relative) or a change by more than
 * GRADIENT (relative l2). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/ckpt.h"
#include "kolo/error.h"

static kolo_weights *newest(const char *run)
{
    kolo_position position;
    kolo_weights *weights = NULL;
    char path[4096], file[4200];
    if (kolo_checkpoint_find(run, &position, path, sizeof path) != 1) return NULL;
    snprintf(file, sizeof file, "%s/tensors.safetensors", path);
    return kolo_weights_open(&weights, file, NULL) < 0 ? NULL : weights;
}

static double first_loss(const char *run)
{
    char path[4096], *text = NULL;
    snprintf(path, sizeof path, "%s/events.jsonl", run);
    if (kolo_file_read(path, &text, NULL) < 0) return NAN;
    const char *event = strstr(text, "\"event\":\"step\""), *loss = event ? strstr(event, "\"loss\":") : NULL;
    double value = loss ? strtod(loss + 7, NULL) : NAN;
    free(text);
    return value;
}

int main(int argc, char **argv)
{
    if (argc != 6) return 2;
    kolo_weights *start = newest(argv[1]), *a = newest(argv[2]), *b = newest(argv[3]);
    if (!start || !a || !b) {
        printf("a run has no checkpoint: %s\n", kolo_error_text());
        return 2;
    }
    double x = first_loss(argv[2]), y = first_loss(argv[3]), loss = fabs(x - y) / fabs(y), worst = 0;
    char where[256] = "none";
    int compared = 0;
    for (int i = 0; i < kolo_weights_count(start); i++) {
        const kolo_weight *w = kolo_weights_at(start, i), *wa = kolo_weights_find(a, w->name),
                          *wb = kolo_weights_find(b, w->name);
        if (w->type != KOLO_F32 || strchr(w->name, ':') || strstr(w->name, "running_")) continue;
        if (!wa || !wb) return 2;
        double difference = 0, norm = 0;
        for (size_t k = 0; k < w->bytes / 4; k++) {
            double s = (double)((const float *)w->data)[k];
            double da = (double)((const float *)wa->data)[k] - s,
                   db = (double)((const float *)wb->data)[k] - s;
            difference += (da - db) * (da - db);
            norm += db * db;
        }
        double relative = norm > 0 ? sqrt(difference / norm) : difference > 0 ? INFINITY : 0;
        if (norm > 0) compared++;
        if (relative > worst) worst = relative, snprintf(where, sizeof where, "%s", w->name);
    }
    printf("loss %.9g and %.9g, %.2g apart; worst of %d gradients %.2g (%s)\n", x, y, loss, compared, worst,
           where);
    return loss <= atof(argv[4]) && worst <= atof(argv[5]) && compared > 0 ? 0 : 1;
}
