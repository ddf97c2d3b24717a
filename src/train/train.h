/* The training loop and evaluation: call the rooms above in order, nothing else. */
#ifndef KOLO_TRAIN_H
#define KOLO_TRAIN_H

#include "ckpt/ckpt.h"
#include "train/by_class.h"
#include "train/session.h"

/* Who asks a run to stop: the scheduler near the time limit, who wants it back in the queue; or somebody
 * who wants it to end. */
enum kolo_stop { KOLO_STOP_NOT, KOLO_STOP_REQUEUE, KOLO_STOP_END };

/* Trains to the end (0), or to a checkpoint when asked() or at stop_step (KOLO_EREQUEUE). asked is first
 * called before the first step; until then the process may be ended without loss. Collective. */
int kolo_train(kolo_launch *launch, kolo_options *options, enum kolo_stop (*asked)(void));

/* Exactly the validation set, once: means over it, the same on all ranks. ema: with the averaged
 * weights. Collective. */
typedef struct kolo_evaluation {
    double loss, top1, top5; /* of a detector: 0 (it has none), -1, -1; of image labels loss, -1, -1 */
    double measure;          /* of a detector: AP, or the mean AP of the rule that ap= says */
    double map, ap_micro;    /* of image labels: kolo_image_ap's */
    int64_t classes;         /* of image labels: those that an image shows */
    double line[12];         /* of a detector: kolo_ap's */
    /* of a detector, at IoU .5: VOC's mean AP by the rule of 2007 (eleven points) and of 2010; -1: nothing
     * counts, or the boxes are COCO's */
    double voc[2];
    double openimages; /* of a detector: the Challenge's mean AP; -1: not asked for */
    int64_t rows;
    double seconds;
} kolo_evaluation;
/* What the best checkpoint is chosen by (kolo_session_metric): top-1, AP, or mean AP. */
double kolo_evaluation_metric(const kolo_session *session, const kolo_evaluation *evaluation);
/* results: NULL or "", or the file that rank 0 writes what a detector found to, in the form of COCO's
 * results; of image labels the average precision of every class. by: NULL, or zeros, where the figures of
 * every class go (the caller frees); batches of a device then follow each other without overlap. */
int kolo_evaluate(kolo_session *session, bool ema, const char *results, kolo_by_class *by,
                  kolo_evaluation *result);

/* The sum of a classifier's losses, by its own weights, over all that `loader` gives this rank, and of how
 * many images. */
int kolo_evaluate_alone(kolo_session *session, kolo_loader *loader, double *loss, double *rows);

/* The checkpoint of a run folder that `which` names (kolo_checkpoint_pick): rank 0 looks for it and compares
 * its checksum, all ranks learn its position and its folder, path[size]. 1 found, 0 none; KOLO_ECONFIG: a
 * rank sees another folder there. Collective. */
int kolo_train_find(kolo_session *session, const char *folder, const char *which, kolo_position *position,
                    char *path, size_t size);

#endif
