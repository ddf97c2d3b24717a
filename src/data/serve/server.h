/* What the files of a server share: its state. */
#ifndef KOLO_DATA_SERVE_SERVER_H
#define KOLO_DATA_SERVE_SERVER_H

#include "base/admission.h"
#include "data/serve/ring.h"
#include "data/serve/serve.h"

enum { SERVE_MOST = 512 }; /* connections */

/* A rank of a job. */
typedef struct serve_client {
    int fd; /* -1: this place is free */
    int pid;
    double came;                      /* when it connected */
    int64_t rank, ranks, first, rows; /* 0 rows: it has not said hello */
    int64_t joined;                   /* it takes the batches from here on; -1: none */
    bool needs[SERVE_SLOTS];          /* batch p at [p % slots]: it does not have it yet */
    int pending;                      /* of them */
    int64_t taken;                    /* batches, since it joined */
    double since, idle_since, idle;   /* it waits for the loader since idle_since; 0: it does not */
} serve_client;

struct kolo_server {
    kolo_loader_config config; /* without texts */
    struct sockaddr_un address;
    char name[108], key[SERVE_KEY];
    int lock_fd, fd; /* of the name; the socket that listens */
    serve_ring ring;
    int64_t rows; /* of a batch, here */
    kolo_admission strangers;
    bool deaf; /* the socket that listens is not polled: too many have come that said nothing */
    serve_client client[SERVE_MOST];
    int clients;                      /* places that have been used */
    int need[SERVE_SLOTS];            /* takers that need batch p, at [p % slots] */
    int64_t rows_joined, rows_wanted; /* of the jobs that came, and that serve_jobs= expects */
    bool started;                   /* all came, or were waited for; until then the first batches are kept */
    double moved;                   /* when a batch was last ready, or given up */
    double began, full_since, full; /* the ring runs since; it is full since (0: it is not); was in all */
    int64_t delivered;              /* rows, since started */
    serve_packet packet;            /* that is read */
};

void serve_status(const kolo_server *server, char *text, size_t size);

#endif
