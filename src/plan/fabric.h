/* Fabric: the nodes of a cluster and the links between their GPUs, as the tables of share/clusters say it
 * (flat YAML), and what a message over them costs: seconds to begin it (alpha), seconds a byte of the slowest
 * link that it passes (beta). Adding, at the rate of GPU memory and beside the links, costs nothing more. */
#ifndef KOLO_PLAN_FABRIC_H
#define KOLO_PLAN_FABRIC_H

#include <stdbool.h>

#include "plan/rates.h"

/* KEY(name, least, most, wanted, whole, what): numbers; wanted ones must be there, others may stay unsaid
 * (0); whole ones have no fraction. */
#define KOLO_FABRIC(KEY)                                                                                  \
    KEY(nodes, 1, 1e6, true, true, "nodes that the cluster has")                                          \
    KEY(gpus, 1, 64, true, true, "GPUs of a node")                                                        \
    KEY(link, 1e-3, 1e5, true, false, "GB/s each way between GPUs of a node")                             \
    KEY(link_latency, 1e-3, 1e6, true, false, "microseconds from GPU to GPU within a node")               \
    KEY(network, 1e-3, 1e5, true, false, "GB/s each way of a node to others, all its ports together")     \
    KEY(network_latency, 1e-3, 1e6, true, false, "microseconds from GPU to GPU of another node")          \
    KEY(start, 0, 1e6, true, false, "microseconds to start a collective")                                 \
    KEY(memory, 1e6, 1e15, false, false, "bytes of a GPU, where they differ from its table's")            \
    KEY(bandwidth, 1e-3, 1e7, false, false, "GB/s of a GPU's memory, where they differ from its table's") \
    KEY(power, 1, 1e6, false, false, "watts of a node that computes")

typedef struct kolo_fabric {
    char gpu[32]; /* which table of share/gpus */
#define KEY(name, ...) double name;
    KOLO_FABRIC(KEY)
#undef KEY
    double share; /* of a link that messages reach: link_share of the GPU's table */
    /* Of one node whose ranks compute on its cores and exchange through its memory, as those of this machine
     * do; cores 0: every rank has a GPU. threads: of a rank; seconds a byte copied, a byte added. */
    double cores, threads, copy, add;
    double crowd; /* as many times longer that is where all cores do it; 0: as one alone */
    /* seconds that a rank, of one thread, has a core while others want it (0: they share cores evenly), and
     * that it is slower for because the core was another's before */
    double turn, handover;
    double poll; /* seconds that a rank looks for a message before it sleeps, and has to be woken */
} kolo_fabric;

/* The node that ranks are on where there is no cluster: kolo_fabric_node. */
typedef struct kolo_fabric_host {
    int cores, threads;
    double copy, add; /* seconds a byte, alone */
    double crowd, turn, handover, poll;
    double latency; /* seconds from one rank to another that sleeps */
} kolo_fabric_host;
kolo_fabric kolo_fabric_node(const kolo_fabric_host *host);

/* Reads and checks a table. KOLO_ECONFIG names file and line: no such key (the nearest is offered), no
 * number, one out of its range; or the key that is missing. */
int kolo_fabric_read(kolo_fabric *fabric, const char *path);
/* The GPU's rates as this cluster has them. */
void kolo_fabric_rates(const kolo_fabric *fabric, kolo_rates *rates);

/* Ranks that sum with each other. beside: such groups of the same stage that use the links of the same nodes
 * at once. */
typedef struct kolo_fabric_group {
    int ranks, nodes;
    int beside;
} kolo_fabric_group;

/* What carrying bytes takes where nothing else goes on: seconds in which nothing is used (latency), seconds
 * of work, and what that uses of every node meanwhile: a share of its network (above 1: it is as many times
 * longer), of its cores. */
typedef struct kolo_fabric_load {
    double latency, seconds;
    double network, cores;
} kolo_fabric_load;

/* Until every rank of the group has sent its `sent` bytes of a sum: of an allreduce (whole, sent is 2 (n-1)/n
 * of what is summed) or of one half of it, a reduce-scatter or allgather. The better of a ring through all
 * ranks and, of a whole one, a tree over nodes with chains within them, as NCCL has them. A group of one:
 * nothing. */
kolo_fabric_load kolo_fabric_sum(const kolo_fabric *fabric, const kolo_fabric_group *group, double sent,
                                 bool whole);
/* A message of each of `senders` ranks of a node; all GPUs of a node share its network. Its link is free
 * again before the latency is over. */
kolo_fabric_load kolo_fabric_send(const kolo_fabric *fabric, bool same_node, int senders, double bytes);

#endif
