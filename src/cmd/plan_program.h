#ifndef KOLO_CMD_PLAN_PROGRAM_H
#define KOLO_CMD_PLAN_PROGRAM_H

#include "plan/play.h"
#include "train/session.h"

/* `kolo plan stages=`: what each stage of a pipeline does, as a table to stdout. */
void kolo_plan_program_print(const kolo_session *session, const kolo_play *play);
/* ,"layers":[[FIRST,LAST],...] of a stage, to stdout. */
void kolo_plan_program_layers(const kolo_session *session, int stage);

#endif
