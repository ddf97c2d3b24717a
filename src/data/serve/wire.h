/* What a server of batches and its jobs say to each other: packets over a Unix socket of the user. */
#ifndef KOLO_DATA_SERVE_WIRE_H
#define KOLO_DATA_SERVE_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "data/loader_parts.h"

#define SERVE_MAGIC UINT64_C(0x6b6f6c6f73657276)
#define SERVE_VERSION KOLO_VERSION "/1" /* also the program's: another one may make other bytes */

enum {
    SERVE_SLOTS = 65, /* prefetch= has at most 64, and one is held */
    SERVE_TEXT = 32 << 10,
    SERVE_KEY = 16 << 10,
    SERVE_PAGE = 4096,
    SERVE_NUMBERS = 6
};

/* A position counts the batches since the first of epoch 0. Numbers of a packet, in their order, in
 * brackets. */
enum serve_kind {
    SERVE_HELLO = 1, /* of a job: [rank, ranks, first row, rows]; text: what decides its bytes (serve_key) */
    SERVE_JOIN,      /* of a job: it wants the batches from `position` on; ends what it joined before */
    SERVE_DONE,      /* of a job: it has its rows of batch `position` */
    SERVE_ASK,       /* of anybody: how is it going */
    SERVE_WELCOME,   /* [first row, rows, slots, bytes of a slot]; passes the segment */
    SERVE_REFUSED,   /* text: the difference */
    SERVE_JOINED,    /* it gets the batches from `position` on; -1: none, it reads by itself */
    SERVE_READY,     /* batch `position` lies in slot [slot] */
    SERVE_LEFT,      /* the job was too slow for the others: it gets no more until it joins again */
    SERVE_END,       /* text: why the server ends */
    SERVE_TELL,      /* text: how it is going */
};

/* magic, version and kind stay where they are in every version. */
typedef struct serve_head {
    uint64_t magic;
    char version[24];
    uint32_t kind, text_bytes;
    int64_t position, number[SERVE_NUMBERS];
} serve_head;

typedef struct serve_packet {
    serve_head head;
    char text[SERVE_TEXT + 1]; /* ends with a NUL */
} serve_packet;

/* The segment begins with this, in a page of its own; then the slots, as loader_lay_slot lays them out.
 * Jobs map it for reading. */
typedef struct serve_segment {
    uint64_t magic;
    _Atomic int64_t position[SERVE_SLOTS]; /* of the batch that is whole in this slot; -1: none is */
} serve_segment;

/* Of data_server=: a name becomes a socket in /dev/shm, whatever has a slash is a path already. KOLO_ECONFIG:
 * no name, or too long. */
int serve_path(const char *name, struct sockaddr_un *address);
/* Do the jobs of this machine have a /dev/shm of their own? By the mounts that Slurm's job_container/tmpfs
 * makes for job `job`, as the file `mounts` (/proc/self/mountinfo) shows them. job may be NULL. */
bool serve_private_shm(const char *mounts, const char *job);

/* For a server: the name is its own until it leaves or dies, by a record lock on PATH.lock (data/share.h).
 * Who takes one in /dev/shm removes what dead servers of this user have left there. KOLO_ECONFIG: a bad name,
 * somebody else's, or such a server is running; KOLO_EIO. */
int serve_name_take(const char *name, struct sockaddr_un *address, int *lock);
/* Name held: *fd listens there, mode 0600. KOLO_ECONFIG: there is something that is no socket; KOLO_EIO. */
int serve_name_listen(const struct sockaddr_un *address, int *fd);
void serve_name_leave(const struct sockaddr_un *address, int lock);

/* The socket of a living server of this user, mode 0600: 0 and *fd. KOLO_EIO: there is none, or it
 * is not to be trusted. */
int serve_connect(const struct sockaddr_un *address, int *fd);
/* The other end is a process of this user: its number, or KOLO_EIO. */
int serve_peer(int fd);

/* Never waits. pass: a descriptor to send along, or -1. KOLO_EIO: the other end is gone, or reads nothing. */
int serve_send(int fd, enum serve_kind kind, int64_t position, const int64_t *number, int n, const char *text,
               int pass);
/* Never waits. 1: a packet; 0: there is none yet; KOLO_EIO: the other end has hung up; KOLO_EINPUT: not
 * a packet of this version. passed: where a descriptor goes that came along (-1: none did), or NULL:
 * such ones are not taken. */
int serve_receive(int fd, serve_packet *packet, int *passed);

/* The lines KEY=VALUE that decide the bytes of every row, whatever ranks and machine; text: [SERVE_KEY]. */
int serve_key(const kolo_loader_config *config, char *text);
/* What differs, for people: "augment=x there, augment=y here; ..."; empty: nothing does. */
void serve_difference(const char *there, const char *here, char *text, size_t size);

#endif
