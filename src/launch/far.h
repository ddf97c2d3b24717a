/* Heartbeats between nodes by a small file that they share: a number for each rank, which it counts up.
 * What counts is when this process saw another's number change, so no clocks are compared. */
#ifndef KOLO_LAUNCH_FAR_H
#define KOLO_LAUNCH_FAR_H

#include <stdbool.h>

typedef struct launch_far launch_far;

/* heartbeat_timeout: seconds; another node's rank has four times as long, as file systems hold writes back.
 * NULL: no memory. */
launch_far *launch_far_open(int rank, int size, double heartbeat_timeout);
/* Rank 0 removes the file. */
void launch_far_close(launch_far **far);
/* To this file, which is there, from now on; NULL: none. Any thread. */
void launch_far_move(launch_far *far, const char *path);

/* Often, of any thread: counts up where it is time; looks: and reads the others' numbers. */
void launch_far_beat(launch_far *far, bool looks);
/* This rank goes in good order: nobody misses it. */
void launch_far_leave(launch_far *far);
/* How long a rank has been silent, if that is too long, else 0. Counts from `since` (kolo_time), at the
 * earliest. */
double launch_far_silent(const launch_far *far, int rank, double since);

#endif
