/* What the kernel of a node states of its network interfaces, file systems and processors. root: "" for this
 * machine, or a folder that holds recorded files of /proc and /sys. Nothing is opened for writing. */
#ifndef KOLO_BASE_MACHINE_H
#define KOLO_BASE_MACHINE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_interface {
    char name[64]; /* eth0, hsn0; of an RDMA adapter mlx5_0/1: its port */
    char kind[24]; /* Ethernet, InfiniBand, or virtual: no device carries it (bridges, containers) */
    double gbits;  /* of the link, 10^9 bits/s; 0: not stated */
    bool up;       /* and, of an RDMA port, active */
    bool rdma;     /* a port of an adapter, of /sys/class/infiniband */
    bool route;    /* the default route leads over it */
} kolo_interface;

/* All but loopback, in order of their names, RDMA ports first; at most `most` of them. Their number. */
int kolo_machine_interfaces(const char *root, kolo_interface *list, int most);

/* Type ("lustre", "nfs4", "ext4") and source ("10.0.0.1:/home", "/dev/sda1") of the file system that holds a
 * path from the root, whether or not the path exists; of one that the list of mounts does not have the type
 * alone, if there is the path. False: the list cannot be read, or the type is not known. */
bool kolo_machine_mount(const char *root, const char *path, char type[64], char source[256]);
/* Types of file systems that many nodes share (NFS, Lustre, GPFS, ...). */
bool kolo_machine_mount_shared(const char *type);

typedef struct kolo_processors {
    int cpus, cores;   /* allowed ones; cores that they are threads of */
    int threads;       /* hyper-threads that a core of theirs has; 0: not stated */
    int numa;          /* NUMA nodes that they lie on; 0: not stated */
    char governor[32]; /* of frequencies: performance, powersave, ...; "": not stated */
    int mhz, most_mhz; /* highest frequency that is allowed, that the processor has; 0: not stated */
    int64_t throttled; /* times that heat has slowed a package of theirs since boot; -1: not stated */
} kolo_processors;
void kolo_machine_processors(const char *root, const cpu_set_t *allowed, kolo_processors *processors);

#endif
