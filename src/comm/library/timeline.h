/* The timeline, for timeline*.c. */
#ifndef KOLO_COMM_TIMELINE_H
#define KOLO_COMM_TIMELINE_H

#include "comm/library/library.h"

/* `offset` seconds, known to within `error`, make this rank's times rank 0's. Right after open: it stands in
 * front of all events. */
void lib_timeline_clock(struct lib_timeline *timeline, double offset, double error);

/* The ranks of whom there are files in the folder, ascending, each once; the caller frees *list. Returns how
 * many, or a negative code. */
int lib_timeline_ranks(const char *folder, int **list);

/* ---- events as text ------------------------------------------------------------------------------------ */

enum {
    LIB_EVENT_NAME = 80, /* bytes that are kept of a name, its end included */
    /* bytes that a head, or the text of one event with what precedes it, takes at most */
    LIB_EVENT_TEXT = 1024,
    LIB_EVENT_PHASES = 24,
    LIB_EVENT_ROWS = 256, /* of a phase: events that overlap stand in different ones */
};

typedef struct lib_event {
    /* constants; algorithm may be NULL. Without a phase it is the clock: begin is its offset, end its
     * error */
    const char *phase, *algorithm;
    double begin, end; /* seconds */
    int64_t bytes;
    char name[LIB_EVENT_NAME]; /* "": of the phase */
} lib_event;

/* What the texts of a file depend on: begins as zeros, the rank and its host, which stays the caller's. */
typedef struct lib_event_rows {
    int rank, phases;
    const char *host;
    bool aligned; /* the clock is known: */
    double offset, error;
    const char *phase[LIB_EVENT_PHASES];
    double end[LIB_EVENT_PHASES][LIB_EVENT_ROWS]; /* of a row's last event; 0: there was none */
    bool named[LIB_EVENT_PHASES][LIB_EVENT_ROWS]; /* in this file */
} lib_event_rows;

/* These write text of a JSON array, one event a line with the comma before it, and return its end. A head
 * begins a file: rows are named anew. */
char *lib_event_put_head(lib_event_rows *rows, char *to);
char *lib_event_put(lib_event_rows *rows, const lib_event *event, char *to);
/* `events` were lost until `when`. */
char *lib_event_put_lost(const lib_event_rows *rows, uint64_t events, double when, char *to);

#endif
