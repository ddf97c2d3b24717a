/* Plan files: where a training's layers and copies are, in which order its turns come and which algorithms
 * it takes, as YAML that a person can change. No addresses: the plan is made anew from it, checked and
 * priced. */
#ifndef KOLO_TRAIN_PLAN_FILE_H
#define KOLO_TRAIN_PLAN_FILE_H

#include "plan/play.h"
#include "train/session.h"
#include "train/strategy.h"

enum { KOLO_PLAN_KEYS = 16, KOLO_PLAN_PLACE = 512 };

/* What a file says beside options. */
typedef struct kolo_plan_file {
    char *path;
    int64_t version, ranks, parameters;
    char *network, *choices;             /* choices: as kolo_backend_choices has them; NULL: none are said */
    char choices_where[KOLO_PLAN_PLACE]; /* file and line of their key */
    kolo_strategy *strategy;             /* NULL: it is none */
    char where[KOLO_PLAN_KEYS][KOLO_PLAN_PLACE]; /* of each option, file and line; "": it is not there */
} kolo_plan_file;

/* plan=FILE: sets the options that it names. Nothing where plan= is auto or empty. KOLO_ECONFIG names file
 * and line: no such key (the nearest is offered), a value that cannot be, one that the recipe or the command
 * line says otherwise; a version that is not known; a plan for another network or number of ranks. */
int kolo_plan_file_read(kolo_plan_file *file, kolo_options *options, int ranks);
/* With all plans made: warns of choices that are for no operation of them. */
void kolo_plan_file_check_choices(const kolo_plan_file *file, const kolo_session *session);
void kolo_plan_file_close(kolo_plan_file *file);
/* Of a message that begins with KEY=: file and line of that key, where the file has it; else the file. */
const char *kolo_plan_file_where(const kolo_plan_file *file, const char *text);
/* With the network known: KOLO_ECONFIG where the plan is for another one of the same name. (With all plans
 * made, kolo_strategy_check.) */
int kolo_plan_file_check(const kolo_plan_file *file, int64_t parameters);

/* Of a session that is planned; play: its step, or NULL. KOLO_EIO. */
int kolo_plan_file_write(const kolo_session *session, const kolo_play *play, const char *path);

#endif
