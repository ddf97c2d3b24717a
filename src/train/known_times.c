#include "train/known_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "plan/partition.h"
#include "train/parts.h"

int known_times_open(const kolo_session *s, kolo_choices *known)
{
    char *path = session_cache_file("kernels");
    const int rc = kolo_choices_open(known, kolo_backend_machine(s->backend), path, NULL);
    free(path);
    known->announced = true; /* that algorithms are timed, which they are not here */
    return rc;
}

void known_kernel_key(const kolo_plan *p, int64_t node, char *key, size_t size)
{
    const kolo_kernel *k = p->kernel[node];
    const char *name = kolo_kernel_name(k);
    const uint64_t hash = kolo_hash_bytes(kolo_hash_text(kolo_kernel_key(k)), name, strlen(name));
    snprintf(key, size, "%s %016llx", kolo_op_table[p->graph->node[node].op].name, (unsigned long long)hash);
}

void known_action_key(const kolo_plan *p, enum kolo_action_kind kind, char *key, size_t size)
{
    snprintf(key, size, "a byte of %s, %s", kolo_action_name(kind),
             p->config.optimizer ? p->config.optimizer->name : "-");
}

bool known_times_find(kolo_choices *known, const char *key, kolo_play_time *t)
{
    const char *text = kolo_choices_find(known, key);
    return text && sscanf(text, "%lf %lf", &t->alone, &t->crowded) == 2 && t->alone >= 0 &&
           t->crowded >= t->alone / 2 && t->crowded < 1e6;
}

int known_times_keep(kolo_choices *known, const char *key, kolo_play_time t)
{
    char text[64];
    snprintf(text, sizeof text, "%.5g %.5g", t.alone, t.crowded);
    return kolo_choices_add(known, key, text);
}

/* ---- the node ---- */

enum { BYTE, WAKE, NODE_KEYS };
static const char *const node_key[NODE_KEYS] = {"a byte of memory", "a wake"};

int node_times_beside(const kolo_session *s)
{
    const int cores = kolo_node_cpu_count(), threads = (int)s->options->threads;
    return cores > threads ? cores / threads - 1 : 0;
}

static int keep_node(const kolo_session *s, kolo_choices *known, kolo_play_time time[NODE_KEYS])
{
    const kolo_byte_seconds byte = kolo_exec_byte_seconds(s->backend, 5, node_times_beside(s));
    const double wake = kolo_exec_wake_seconds();
    time[BYTE] = (kolo_play_time){byte.alone, byte.crowded};
    time[WAKE] = (kolo_play_time){wake, wake};
    for (int i = 0; i < NODE_KEYS; i++) KOLO_TRY(known_times_keep(known, node_key[i], time[i]));
    return 0;
}

static bool find_node(kolo_choices *known, kolo_play_time time[NODE_KEYS])
{
    bool all = true;
    for (int i = 0; i < NODE_KEYS; i++) all = all && known_times_find(known, node_key[i], &time[i]);
    return all;
}

bool node_times_known(kolo_choices *known)
{
    kolo_play_time time[NODE_KEYS];
    return find_node(known, time);
}

int node_times_measure(const kolo_session *s, kolo_choices *known, bool again, node_times *node)
{
    kolo_play_time time[NODE_KEYS];
    const bool all = find_node(known, time);
    *node = (node_times){.byte = kolo_exec_byte_seconds(s->backend, 0, 0)};
    if (!s->untimed) {
        if (!all || again) KOLO_TRY(keep_node(s, known, time));
        *node = (node_times){{time[BYTE].alone, time[BYTE].crowded}, time[WAKE].alone};
    }
    if (node->wake <= 0) node->wake = kolo_link_assumed.latency / 2;
    return 0;
}
