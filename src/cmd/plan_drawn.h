/* A step that was played, as files: a Chrome trace, an SVG image. */
#ifndef KOLO_CMD_PLAN_DRAWN_H
#define KOLO_CMD_PLAN_DRAWN_H

#include <stdio.h>

#include "plan/play.h"
#include "train/session.h"

/* The ranks of a stage: "0..3", or "0, 4 .. 28" where others lie between them. */
void kolo_drawn_ranks(const kolo_session *session, int stage, char *text, size_t size);
/* A row for every lane of every stage; its ranks are alike. */
void kolo_drawn_trace(FILE *file, const kolo_session *session, const kolo_play *play);
/* Ranks down, time to the right; a colour a stage, backward turns darker, reductions below each rank's
 * bar. */
void kolo_drawn_svg(FILE *file, const kolo_session *session, const kolo_play *play);

#endif
