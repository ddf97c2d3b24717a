#include "cmd/propose.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/dataset.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

enum {
    LOOKED = 4096,   /* samples whose size is read, spread evenly */
    SMALL = 64,      /* short sides below: networks made for 32 pixels */
    MANY = 100000,   /* images: enough for a network of ImageNet's size */
    UNBALANCED = 10, /* the commonest class has so many times the samples of the rarest */
};

static int ascending(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int read_sides(kolo_data_facts *f, const kolo_dataset *set)
{
    const int64_t count = f->info.count, n = count < LOOKED ? count : LOOKED;
    int *side = kolo_alloc((size_t)n * sizeof *side + 1);
    if (!side) return KOLO_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        int height, width;
        kolo_dataset_size(set, i * count / n, &height, &width);
        side[i] = height < width ? height : width;
    }
    qsort(side, (size_t)n, sizeof *side, ascending);
    if (n > 0) f->side_low = side[n / 20], f->side = side[n / 2], f->side_high = side[n - 1 - n / 20];
    free(side);
    return 0;
}

static int count_classes(kolo_data_facts *f, const kolo_dataset *set)
{
    uint64_t *counts = kolo_alloc((size_t)f->info.classes * sizeof *counts + 1);
    if (!counts) return KOLO_ENOMEM;
    kolo_dataset_count_classes(set, counts);
    f->rarest = f->commonest = -1;
    for (int c = 0; c < f->info.classes; c++) {
        if (counts[c] == 0) f->empty++;
        else if (f->rarest < 0 || counts[c] < f->fewest) f->rarest = c, f->fewest = counts[c];
        if (counts[c] > f->most) f->commonest = c, f->most = counts[c];
    }
    free(counts);
    return 0;
}

int kolo_data_facts_read(kolo_data_facts *f, const kolo_dataset *set)
{
    const kolo_targets *targets = kolo_dataset_targets(set);
    *f = (kolo_data_facts){.info = *kolo_dataset_get_info(set)};
    const bool labels = strstr(f->info.task, "classification");
    f->tags = !labels && strstr(f->info.task, "multilabel");
    f->detection = !labels && !f->tags && strstr(f->info.task, "detection");
    if (f->detection && targets && f->info.count > 0)
        f->boxes = (double)targets->boxes / (double)f->info.count;
    KOLO_TRY(count_classes(f, set));
    return read_sides(f, set);
}

static void propose(kolo_proposal *p, const char *key, const char *value, const char *why, ...)
    __attribute__((format(printf, 4, 5)));
static void propose(kolo_proposal *p, const char *key, const char *value, const char *why, ...)
{
    if (p->count == KOLO_PROPOSALS) return;
    struct kolo_proposed *one = &p->of[p->count++];
    va_list list;
    one->key = key;
    snprintf(one->value, sizeof one->value, "%s", value);
    va_start(list, why);
    vsnprintf(one->why, sizeof one->why, why, list);
    va_end(list);
}

typedef struct number {
    char text[32];
} number;
static number integer(int64_t value)
{
    number n;
    snprintf(n.text, sizeof n.text, "%lld", (long long)value);
    return n;
}
static number real(double value)
{
    number n;
    snprintf(n.text, sizeof n.text, "%.3g", value);
    return n;
}

static int64_t between(int64_t low, int64_t value, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The one that was chosen; else the largest power of two within count / steps, in [low, high]. No more than
 * there are images. */
static int64_t choose_batch(int64_t chosen, int64_t count, int64_t steps, int64_t low, int64_t high)
{
    int64_t batch = low;
    if (chosen > 0) return between(1, chosen, count);
    while (2 * batch <= high && 2 * batch * steps <= count) batch *= 2;
    return between(1, batch, count);
}

static void propose_length(kolo_proposal *p, int64_t epochs, int64_t count, int64_t batch)
{
    propose(p, "epochs", integer(epochs).text,
            "%lld updates of the weights. The whole schedule depends on it: choose it before the run starts.",
            (long long)(epochs * (count / batch)));
}

/* Epochs of a warm-up: of a short run no more than a fifth. */
static int64_t warmup_of(int64_t epochs) { return between(0, epochs / 5, 5); }

static void propose_lr(kolo_proposal *p, double lr, const char *decay, int64_t epochs, const char *why)
{
    propose(p, "lr", real(lr).text,
            "%s Too high: the loss stays where it began, or is not a number; then a third.", why);
    propose(p, "weight_decay", decay, "%s", "");
    propose(p, "schedule", "cosine", "Rises in the warm-up's epochs, then falls to 0 at the end.");
    propose(p, "warmup", integer(warmup_of(epochs)).text, "%s", "");
}

/* Transformers, and networks that were trained as they are: they learn little by SGD. */
static bool is_of_adam(const char *model)
{
    static const char *const family[] = {"vit_", "swin_", "convnext_"};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        if (!strncmp(model, family[i], strlen(family[i]))) return true;
    return false;
}

static void propose_optimizer(kolo_proposal *p, const char *model, int64_t batch, int64_t epochs, bool photos,
                              bool large)
{
    const double of = (double)batch;
    if (is_of_adam(model)) {
        propose(p, "optimizer", "adamw",
                "As DeiT, Swin and ConvNeXt were trained; by SGD they learn little.");
        propose_lr(p, 5e-4 * of / 512, "0.05", epochs, "0.0005 for a batch of 512, linear in it.");
        propose(p, "decay_norms", "false", "%s", "");
        propose(p, "clip_norm", "5", "%s", "");
        return;
    }
    propose(p, "optimizer", "sgd", "SGD with momentum is what the figures of these networks come from.");
    propose(p, "momentum", "0.9", "%s", "");
    if (!photos) propose_lr(p, 0.1 * of / 128, "1e-4", epochs, "0.1 for a batch of 128, linear in it.");
    else if (large) propose_lr(p, 0.1 * of / 256, "1e-4", epochs, "0.1 for a batch of 256, linear in it.");
    else propose_lr(p, 0.05 * of / 64, "5e-4", epochs, "0.05 for a batch of 64, linear in it.");
}

static void propose_views(kolo_proposal *p, bool photos, int64_t count)
{
    if (photos) {
        propose(p, "crop", "resized",
                "Every epoch shows another part of an image, which spares more images.");
        propose(p, "crop_area_min", count < MANY ? "0.35" : "0.08",
                "Smallest part of the area. Where what matters is small or at the border, take 0.6.");
    } else {
        propose(p, "crop", "pad", "Images are moved by up to 4 pixels.");
    }
    propose(p, "flip", "true",
            "Mirror images. false where left and right differ: letters, digits, traffic signs.");
}

static void propose_classifier(const kolo_data_facts *f, const kolo_wishes *w, kolo_proposal *p)
{
    const int64_t n = f->info.count;
    const bool photos = f->side >= SMALL, large = n >= MANY;
    const int64_t batch = choose_batch(w->batch, n, 32, 8, photos ? 256 : 128), steps = n / batch,
                  epochs = w->epochs > 0 ? w->epochs
                           : large       ? 90
                                         : between(30, (6000 + steps - 1) / steps, 200);
    const int size =
        photos ? (int)between(SMALL, f->side / 32 * 32, 224) : (int)between(16, f->side / 4 * 4, 64);
    const char *model = photos ? (large ? "resnet50" : "resnet18") : n < 20000 ? "resnet20" : "resnet56";
    if (!photos)
        propose(p, "model", model, "Images of %d pixels: a network made for 32; %lld images.", f->side,
                (long long)n);
    else
        propose(p, "model", model,
                large ? "%lld images are enough for a network of this size. `kolo models` has others."
                      : "A larger network would learn %lld images by heart. `kolo models` has others.",
                (long long)n);
    if (f->tags) {
        propose(p, "loss", "bce", "An image may show several classes: each has a loss of its own.");
        propose(p, "targets", "tags", "%s", "");
    }
    propose(p, "size", integer(size).text,
            "Half of the images have a short side below %d pixels. Less is faster.", f->side + 1);
    propose(p, "batch", integer(batch).text, "Of all ranks together; %lld steps an epoch.", (long long)steps);
    propose_length(p, epochs, n, batch);
    propose_optimizer(p, w->model ? w->model : model, batch, epochs, photos, large);
    propose_views(p, photos, n);
}

static void propose_detector(const kolo_data_facts *f, const kolo_wishes *w, kolo_proposal *p)
{
    const int64_t n = f->info.count, batch = choose_batch(w->batch, n, 16, 4, 64), steps = n / batch,
                  epochs = w->epochs > 0 ? w->epochs : between(50, (20000 + steps - 1) / steps, 300);
    const int most = n < 20000 ? 416 : 640, size = (int)between(96, (f->side + 31) / 32 * 32, most);
    const double lr = 0.01 * (double)batch / 64;
    propose(p, "model",
            n < 1000    ? "yolox_nano"
            : n < 20000 ? "yolox_tiny"
                        : "yolox_s",
            "%lld images with %.1f boxes each. Larger ones find more and take longer: yolox_tiny, _s, _m, "
            "_l, _x.",
            (long long)n, f->boxes);
    propose(p, "size", integer(size).text,
            "A multiple of 32; half of the images have a short side below %d. Small objects want more.",
            f->side + 1);
    propose(p, "batch", integer(batch).text, "Of all ranks together; %lld steps an epoch.", (long long)steps);
    propose_length(p, epochs, n, batch);
    propose(p, "optimizer", "sgd", "As YOLOX was trained: lr is 0.01 for a batch of 64, linear in it.");
    propose(p, "momentum", "0.9", "%s", "");
    propose(p, "nesterov", "true", "%s", "");
    propose(p, "lr", real(lr).text, "%s", "");
    propose(p, "lr_end", real(lr / 20).text, "%s", "");
    propose(p, "weight_decay", "5e-4", "%s", "");
    propose(p, "decay_norms", "false", "%s", "");
    propose(p, "schedule", "cosine", "%s", "");
    propose(p, "warmup", integer(warmup_of(epochs)).text, "%s", "");
    propose(p, "warmup_shape", "quadratic", "%s", "");
    propose(p, "ema", "0.9998", "The average of the weights finds more than the weights themselves.");
    propose(p, "ema_ramp", "2000", "%s", "");
    propose(p, "mosaic", "1", "Four images in one: more boxes a step, at other sizes.");
    propose(p, "mosaic_scale_min", "0.5", "%s", "");
    propose(p, "mosaic_scale_max", "1.5", "%s", "");
    propose(p, "close_mosaic", integer(epochs / 20 > 1 ? epochs / 20 : 1).text,
            "The last epochs are without it: whole images, as validation has them.");
    propose(p, "hsv", "1", "Other colours. 0 where the colour tells the class.");
    propose(p, "flip", "true", "Mirror images. false where left and right differ: letters, traffic signs.");
    if (epochs >= 20) propose(p, "eval_epochs", "10", "Validation takes time: every tenth epoch.");
}

void kolo_propose(const kolo_data_facts *f, const kolo_wishes *w, kolo_proposal *p)
{
    p->count = 0;
    if (f->detection) propose_detector(f, w, p);
    else propose_classifier(f, w, p);
    if (!f->detection && f->fewest > 0 && f->most >= UNBALANCED * f->fewest)
        propose(p, "class_weight", "balanced", "Otherwise the commonest class outweighs the rarest.");
}
