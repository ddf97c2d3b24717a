/* The watchdog of a launch: who has come, who is missing, who has stopped. Before a rank calls PMIx or MPI,
 * whose start waits for everybody, it enters itself in a file that the ranks of its node share in memory; a
 * thread counts heartbeats there, and checks those of the others while this rank waits for them. Ranks of
 * other nodes are asked for through PMIx, where that serves. The rank that keeps the others waiting for too
 * long is named, and the job ended. */
#ifndef KOLO_LAUNCH_WATCH_H
#define KOLO_LAUNCH_WATCH_H

#include "launch/method.h"

/* Needs no other rank; NULL where nobody is to be watched, or nothing can be: then waits have no end but
 * the launcher's. */
launch_watch *launch_watch_open(kolo_launch *launch, const kolo_launch_limits *limits);
void launch_watch_close(launch_watch **watch);

/* All ranks of the node have come, or will by themselves: nobody opens the file any more. */
void launch_watch_complete(launch_watch *watch);

/* Heartbeats for the other nodes, too. path: NULL, no more. */
void launch_watch_beat_at(launch_watch *watch, const char *path);

#endif
