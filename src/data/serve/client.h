/* A job's end of data/serve/serve.h: hands rows of served batches to the readers of a loader. */
#ifndef KOLO_DATA_SERVE_CLIENT_H
#define KOLO_DATA_SERVE_CLIENT_H

#include "data/loader_parts.h"

/* 0 also where there is no server (it says so). KOLO_ECONFIG: the server shows other batches; the text
 * names the difference. */
int kolo_client_open(kolo_client **client, const kolo_loader *loader, const kolo_loader_config *config);
void kolo_client_close(kolo_client **client);
/* Asks for the batches from `position` on; no reader is at work. */
void kolo_client_seek(kolo_client *client, int64_t position);
/* Until the next seek nobody waits for the server any more. */
void kolo_client_interrupt(kolo_client *client);
/* Is it joined? */
bool kolo_client_serves(const kolo_client *client);

/* By any reader. Fills rows [first, first + count) of the slot's batch: true; or false:
 * the reader makes them. */
bool kolo_client_take(kolo_client *client, loader_slot *slot, int64_t first, int64_t count,
                      kolo_loader_stats *stats);
/* All rows of this batch are there, wherever from. */
void kolo_client_done(kolo_client *client, int64_t position);

#endif
