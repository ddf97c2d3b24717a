/* What events.jsonl says of gradients that were late: how many updates their weights lacked (sync=async), or
 * whose were dropped (sync=backup). Counted over all starts of a run. */
#ifndef KOLO_REPORT_LATE_COUNTS_H
#define KOLO_REPORT_LATE_COUNTS_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

enum { LATE_COUNTS = 65 }; /* the last: 64 updates or more */

typedef struct kolo_late_counts {
    int64_t gradients, stale[LATE_COUNTS],
        most;   /* so many; by the updates that they lacked; the most of these */
    double sum; /* of their staleness */
    int64_t steps, *dropped, ranks, capacity; /* steps that say who was dropped: how often, by rank */
} kolo_late_counts;

/* ranks: at least so many in `dropped`. KOLO_ENOMEM */
int kolo_late_counts_open(kolo_late_counts *counts, int64_t ranks);
int kolo_late_counts_add(kolo_late_counts *counts, const cJSON *step_event);
/* Of a run folder; a line that cannot be read is left out. */
int kolo_late_counts_read(kolo_late_counts *counts, const char *run_folder);
void kolo_late_counts_close(kolo_late_counts *counts);
static inline double kolo_late_counts_mean(const kolo_late_counts *c)
{
    return c->gradients ? c->sum / (double)c->gradients : 0;
}
/* Members of an object, each with a comma in front: "staleness": {"mean", "most", "counts": [of 0, 1, ...]},
 * "dropped_by_rank": [...]; nothing of what the run has none of. */
void kolo_late_counts_write(const kolo_late_counts *counts, FILE *f);
/* "mean 1.9, most 12; 0: 3, 1: 40, 2: 51, 3: 6"; "12, 0, 3, 97 of 112 steps, by rank"; "": none. */
void kolo_late_counts_text(const kolo_late_counts *counts, char *stale, char *dropped, size_t size);

#endif
