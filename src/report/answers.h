/* What one wants to know of a run, in words: each a sentence or two, plain text. */
#ifndef KOLO_REPORT_ANSWERS_H
#define KOLO_REPORT_ANSWERS_H

#include "report/run.h"

enum { REPORT_ANSWER = 1200 };
typedef struct report_answer {
    const char *name, *question; /* static text */
    char text[REPORT_ANSWER];
} report_answer;
enum { REPORT_ANSWERS = 5 }; /* overfits, worst, limits, changed, next */

/* before: the run that was made before this one (report_find_before), or NULL. */
int report_answer_all(report_answer answer[REPORT_ANSWERS], const report_run *run, const report_run *before);
/* The newest run that began before `run`, on the same data=, in the folder that `run` is in; 1 found:
 * read, the caller frees; 0 none. */
int report_find_before(report_run *before, const report_run *run);

/* It names where something goes (run=, out=), which is no difference between runs. */
bool report_option_is_place(const kolo_option_entry *entry);
/* The command that begins this run anew elsewhere, every option that is not at its default with it; "" where
 * the recipe cannot be read. NULL: KOLO_ENOMEM. The caller frees. */
char *report_command(const report_run *run);
/* "3:07:12", "2d 04:00:00"; "-" of what is not known. */
void report_duration(char *text, size_t size, double seconds);

#endif
