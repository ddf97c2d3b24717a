/* One loader a node for the jobs of a sweep: jobs that train on the same images in the same order need them
 * decoded and augmented once.
 *
 * A server is an ordinary loader (staging=, data_cache=ram and all) whose slots lie in a segment without a
 * name; a job is an ordinary loader whose readers copy rows out of it where they would decode them. A slot is
 * kept until every rank that joined has its rows: the slowest job limits. The bytes are those that the job
 * would have made; so a job can go over to reading by itself at any batch, and does so, with a warning, when
 * the server ends or dies, when there is none, or when it is another version. Other options than the server's
 * are an error that names them.
 *
 * A job joins at its own position: at once if the ring holds it, else, in the epoch that the server is in, at
 * the start of the next epoch, where the others wait for it; until then, and in other epochs, it reads by
 * itself. It asks again at every epoch's begin. A ring that nobody has joined goes to where the first one is.
 * The first batches are kept until the rows of serve_jobs jobs have joined. A job that keeps others waiting
 * for serve_wait seconds is left out.
 *
 * Nothing outlives a process: claims end with the connection, the segment with its last user, the server's
 * name with a record lock (data/share.h); the socket, mode 0600, is replaced by the next server of that
 * name. */
#ifndef KOLO_DATA_SERVE_H
#define KOLO_DATA_SERVE_H

#include <signal.h>

#include "data/loader.h"

typedef struct kolo_server kolo_server;

/* loader: its rank and ranks say which rows of the batch this node has; its prefetch is the depth of the
 * ring; the dataset stays the caller's. Its `serve` is the name: letters, digits, dots, dashes, or the
 * path of the socket. KOLO_ECONFIG: a bad name, a server of this name is running, the ring does not fit
 * into memory; KOLO_EIO. */
int kolo_server_open(kolo_server **server, const kolo_loader_config *loader, int jobs);
/* Until *stop is set (0) or the loader fails (its error, which jobs meet again by themselves). */
int kolo_server_run(kolo_server *server, const volatile sig_atomic_t *stop);
void kolo_server_close(kolo_server **server);

/* How the server of this name is doing, some lines for people. text: [size]. KOLO_EIO: there is none. */
int kolo_server_ask(const char *name, char *text, size_t size);

#endif
