/* What options alone make impossible, before anything is opened. */
#include "comm/algorithm/algorithm.h"
#include "data/augment/augment.h"
#include "data/order.h"
#include "kolo/error.h"
#include "optim/optim.h"
#include "train/compression.h"
#include "train/parts.h"

/* Every rank has gradients, and an optimizer, of its own. */
static int check_adasum(const kolo_options *o)
{
    const char *with = o->compression != KOLO_compression_none                    ? "compression"
                       : o->bn == KOLO_bn_sync                                    ? "bn=sync"
                       : o->noise_scale                                           ? "noise_scale=true"
                       : o->loss_scale > 0 || o->precision == KOLO_precision_fp16 ? "loss scaling"
                                                                                  : NULL;
    if (!kolo_is_adasum(o) || !with) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "reduce=%s combines steps that every rank forms by itself, %s is for gradients of all "
                     "ranks: take one of them",
                     kolo_option_find("reduce")->choices[o->reduce], with);
}

/* What works on whole tensors has none of a parameter whose channels are cut. */
static int check_tensor(const kolo_options *o)
{
    if (o->tensor > 1 && kolo_is_adasum(o))
        return kolo_fail(KOLO_ECONFIG,
                         "reduce=%s combines whole tensors, and tensor=%ld cuts them into parts on different "
                         "ranks: use reduce=fast or reduce=canonical",
                         kolo_option_find("reduce")->choices[o->reduce], (long)o->tensor);
    return 0;
}

/* What loaders and comm parse when a job has started, `kolo plan` refuses before. */
static int check_texts(const kolo_options *o)
{
    kolo_augment_step augment[KOLO_AUGMENT_MOST];
    kolo_order_rule rule;
    comm_selector *selector = NULL;
    int n;
    KOLO_TRY(kolo_augment_parse(o->augment, augment, KOLO_AUGMENT_MOST, &n));
    KOLO_TRY(kolo_order_parse(o->shuffle, &rule));
    KOLO_TRY(comm_allreduce_open(&selector, "none", o->comm_algorithm));
    comm_selector_close(&selector);
    return 0;
}

/* What each value allows but their combination does not. */
int session_check_options(const kolo_options *o)
{
    if (o->crop_area_min > o->crop_area_max)
        return kolo_fail(KOLO_ECONFIG, "crop_area_min=%g is larger than crop_area_max=%g", o->crop_area_min,
                         o->crop_area_max);
    if (o->ema >= 1)
        return kolo_fail(KOLO_ECONFIG,
                         "ema=%g would never take up a weight: give a decay below 1, such as 0.999", o->ema);
    if (o->label_smoothing >= 1)
        return kolo_fail(KOLO_ECONFIG, "label_smoothing=%g leaves nothing of the label: give less than 1",
                         o->label_smoothing);
    if (o->mosaic_scale_min > o->mosaic_scale_max)
        return kolo_fail(KOLO_ECONFIG, "mosaic_scale_min=%g is larger than mosaic_scale_max=%g",
                         o->mosaic_scale_min, o->mosaic_scale_max);
    KOLO_TRY(check_texts(o));
    KOLO_TRY(check_adasum(o));
    KOLO_TRY(check_tensor(o));
    KOLO_TRY(kolo_compression_check(o));
    return kolo_optim_check(o);
}

static int check_detector(const kolo_options *o)
{
    if (*o->augment || o->crop != KOLO_crop_none || o->mixup > 0 || o->cutmix > 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "augment=, crop=, mixup= and cutmix= move pixels without their boxes; model=%s has mosaic=, "
            "mosaic_mixup=, hsv=, flip=",
            o->model);
    if (o->val_flip)
        return kolo_fail(KOLO_ECONFIG, "val_flip=true takes the mean of logits, and model=%s finds boxes",
                         o->model);
    if (o->label_smoothing > 0 || o->loss != KOLO_loss_cross_entropy || o->head != KOLO_head_softmax)
        return kolo_fail(KOLO_ECONFIG,
                         "label_smoothing=, loss= and head= are of classifiers, and model=%s finds boxes; "
                         "leave them out",
                         o->model);
    return 0;
}

static int check_classifier(const kolo_options *o)
{
    if (o->mosaic > 0 || o->mosaic_mixup > 0 || o->hsv > 0 || *o->hierarchy)
        return kolo_fail(
            KOLO_ECONFIG,
            "mosaic=, mosaic_mixup=, hsv= and hierarchy= are of detectors, and model=%s finds no boxes; "
            "leave them out (augment=, crop=, mixup= and cutmix= are a classifier's)",
            o->model);
    return 0;
}

int session_check_task(const kolo_options *o, const char *detector)
{
    return detector ? check_detector(o) : check_classifier(o);
}
