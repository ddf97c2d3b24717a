/* kolo doctor: what goes between ranks as in training: by what NCCL connects GPUs, and, asked for, how fast
 * every two ranks of a node and every two nodes send to each other, both ways at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"
#include "launch/device.h"
#include "train/parts.h"

enum { TRIALS = 12, CALLS = 2, MESSAGE = 4 << 20, SUM_BYTES = 1 << 20, MOST_PAIRED = 512 };
static const double slow_share = 0.5;

/* Ranks that are paired with each other: those of a node, or the first of every node. */
typedef struct crowd {
    int *rank, count; /* ascending */
    int first; /* number of the first transfer; that from member a to b is first + a * (count - 1) + ... */
} crowd;

typedef struct traffic {
    doctor *doctor;
    kolo_session session;
    crowd *node; /* [nodes] */
    crowd nodes;
    double *rate; /* [count of a crowd] bytes a second with each of its members, measured here */
} traffic;

/* ---- pairs --------------------------------------------------------------------------------------------- */

/* The member that `member` of `count` meets in a round: everybody meets everybody once in count - 1 rounds
 * (count where that is odd, and then one has none: -1). The circle method. */
static int partner_of(int member, int count, int round)
{
    const int even = count + count % 2, last = even - 1;
    int other;
    if (member == last) {
        for (other = 0; other < last && 2 * other % last != round % last; other++) {
        }
    } else {
        other = ((round - member) % last + last) % last;
        if (other == member) other = last;
    }
    return other < count ? other : -1;
}

static int rounds_of(int count) { return count < 2 ? 0 : count + count % 2 - 1; }

static int transfer_of(const crowd *c, int from, int to)
{
    return c->first + from * (c->count - 1) + (to < from ? to : to - 1);
}

static int declare_crowd(traffic *t, crowd *c)
{
    c->first = -1;
    for (int from = 0; from < c->count; from++)
        for (int to = 0; to < c->count; to++) {
            if (from == to) continue;
            const int number =
                kolo_comm_transfer(t->session.comm, c->rank[from], c->rank[to], 0, MESSAGE, MESSAGE);
            if (number < 0) return number;
            if (c->first < 0) c->first = number;
        }
    return 0;
}

static int exchange_once(traffic *t, const crowd *c, int me, int other)
{
    kolo_session *s = &t->session;
    const int out = transfer_of(c, me, other), in = transfer_of(c, other, me);
    KOLO_TRY(kolo_comm_start(s->comm, out));
    KOLO_TRY(kolo_comm_start(s->comm, in));
    KOLO_TRY(kolo_comm_wait(s->comm, in));
    KOLO_TRY(kolo_comm_wait(s->comm, out));
    return 0;
}

/* The best of some trials, after one exchange that connects. */
static int measure_pair(traffic *t, const crowd *c, int me, int other)
{
    kolo_session *s = &t->session;
    for (int trial = -1; trial < TRIALS; trial++) {
        const double begin = kolo_time();
        for (int call = 0; call < (trial < 0 ? 1 : CALLS); call++) KOLO_TRY(exchange_once(t, c, me, other));
        if (s->backend) KOLO_TRY(kolo_backend_finish(s->backend));
        KOLO_TRY(kolo_comm_status(s->comm));
        const double rate = (double)CALLS * MESSAGE / (kolo_time() - begin);
        if (trial >= 0 && rate > t->rate[other]) t->rate[other] = rate;
    }
    return 0;
}

/* Disjoint pairs at a time, all rounds in step. */
static int measure_crowd(traffic *t, const crowd *c, int me, int rounds, int room)
{
    memset(t->rate, 0, (size_t)room * sizeof *t->rate);
    for (int round = 0; round < rounds; round++) {
        const int other = me >= 0 && round < rounds_of(c->count) ? partner_of(me, c->count, round) : -1;
        KOLO_TRY(kolo_comm_barrier(t->session.comm));
        if (other >= 0) KOLO_TRY(measure_pair(t, c, me, other));
    }
    return 0;
}

/* ---- what rank 0 makes of it --------------------------------------------------------------------------- */

/* rate[a * count + b]: what a measured with b; the slower of both ends counts. */
static double pair_rate(const double *rate, int count, int a, int b)
{
    const double x = rate[a * count + b], y = rate[b * count + a];
    return x < y ? x : y;
}

/* Names of members: nodes, or ranks of one. */
static const char *name_of(const doctor *d, const crowd *c, bool nodes, int member, char text[300])
{
    if (nodes) snprintf(text, 300, "node %s", d->launch->host_of[d->launch->node_of[c->rank[member]]]);
    else snprintf(text, 300, "rank %d", c->rank[member]);
    return text;
}

static void report_links(doctor *d, const crowd *c, bool nodes, const double *rate, const double *of,
                         double usual)
{
    char a_name[300], b_name[300];
    for (int a = 0; a < c->count; a++)
        for (int b = a + 1; b < c->count; b++) {
            const double here = pair_rate(rate, c->count, a, b);
            if (of[a] < slow_share * usual || of[b] < slow_share * usual || here >= slow_share * usual)
                continue; /* a slow member's links are slow, which was reported */
            doctor_add(d, WARN, 0, "pairs",
                       "%s and %s send each other %.3g GB/s, others %.3g: this link is slow\tsee its cables "
                       "and switch ports; how processors and adapters are placed on the board may explain it",
                       name_of(d, c, nodes, a, a_name), name_of(d, c, nodes, b, b_name), here / 1e9,
                       usual / 1e9);
        }
}

/* Of each member the upper median over its pairs, so that fewer than half of the others may be slow. */
static void report_crowd(doctor *d, const crowd *c, bool nodes, const double *rate)
{
    const int n = c->count;
    char name[300], where[300] = "";
    double *of = kolo_alloc((size_t)n * sizeof *of), *row = kolo_alloc((size_t)n * sizeof *row);
    for (int a = 0; of && row && a < n; a++) {
        for (int b = 0; b < n; b++) row[b] = a == b ? 0 : pair_rate(rate, n, a, b);
        of[a] = doctor_median(row, n);
    }
    const double usual = of && row ? doctor_median(of, n) : 0;
    int slowest = 0;
    for (int a = 0; of && row && a < n; a++) {
        if (of[a] < of[slowest]) slowest = a;
        if (n < 3 || of[a] >= slow_share * usual) continue;
        name_of(d, c, nodes, a, name);
        const char *host = d->launch->host_of[d->launch->node_of[c->rank[a]]];
        doctor_add(d, BAD, KOLO_ELAUNCH, "pairs",
                   "%s sends and gets %.3g GB/s with the others, they %.3g: it is slow\tleave its node out "
                   "(sbatch --exclude=%s) and have it looked at: adapter, cable, driver",
                   name, of[a] / 1e9, usual / 1e9, host);
        doctor_add_slow(d, host);
    }
    if (of && row) {
        report_links(d, c, nodes, rate, of, usual);
        if (!nodes)
            snprintf(where, sizeof where, " of node %s", d->launch->host_of[d->launch->node_of[c->rank[0]]]);
        doctor_add(d, GOOD, 0, "pairs", "%d %s%s: %.3g GB/s between two, each way; slowest %s with %.3g", n,
                   nodes ? "nodes" : "ranks", where, usual / 1e9, name_of(d, c, nodes, slowest, name),
                   of[slowest] / 1e9);
    }
    free(of);
    free(row);
}

/* Rows of a crowd's members out of those of all ranks. */
static void pick_rows(const crowd *c, const double *all, int room, double *rate)
{
    for (int a = 0; a < c->count; a++)
        for (int b = 0; b < c->count; b++)
            rate[a * c->count + b] = all[(size_t)c->rank[a] * (size_t)room + (size_t)b];
}

static int report_rows(traffic *t, const crowd *list, int crowds, bool nodes, int room)
{
    const kolo_launch *l = t->doctor->launch;
    const size_t bytes = (size_t)room * sizeof(double);
    double *all = kolo_alloc(l->rank == 0 ? (size_t)l->size * bytes : 1);
    double *rate = kolo_alloc(l->rank == 0 ? (size_t)room * bytes : 1);
    KOLO_TRY(kolo_comm_agree(t->session.comm, all && rate ? 0 : KOLO_ENOMEM));
    int rc = kolo_comm_gather(t->session.comm, t->rate, bytes, all, 0);
    for (int i = 0; rc == 0 && l->rank == 0 && i < crowds; i++) {
        if (list[i].count < 2) continue;
        pick_rows(&list[i], all, room, rate);
        report_crowd(t->doctor, &list[i], nodes, rate);
    }
    free(all);
    free(rate);
    return rc;
}

static int check_pairs(traffic *t)
{
    const kolo_launch *l = t->doctor->launch;
    int most = 0;
    for (int i = 0; i < l->nodes; i++) most = t->node[i].count > most ? t->node[i].count : most;
    const int room = most > l->nodes ? most : l->nodes;
    t->rate = kolo_alloc((size_t)room * sizeof *t->rate);
    KOLO_TRY(kolo_comm_agree(t->session.comm, t->rate ? 0 : KOLO_ENOMEM));
    KOLO_TRY(measure_crowd(t, &t->node[l->node], l->local_rank, rounds_of(most), room));
    KOLO_TRY(report_rows(t, t->node, l->nodes, false, room));
    KOLO_TRY(measure_crowd(t, &t->nodes, l->local_rank == 0 ? l->node : -1, rounds_of(l->nodes), room));
    return report_rows(t, &t->nodes, 1, true, room);
}

/* ---- NCCL ---------------------------------------------------------------------------------------------- */

/* NCCL tells what it chose only in its log, which goes to a file of ours where nobody asked for it. */
static bool open_log(char *path, size_t bytes)
{
    const char *folder = getenv("TMPDIR");
    if (getenv("NCCL_DEBUG") || getenv("NCCL_DEBUG_FILE")) return false;
    snprintf(path, bytes, "%s/kolo-nccl-XXXXXX", folder && *folder ? folder : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return false;
    close(fd);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_FILE", path, 1);
    return true;
}

/* " via P2P/CUMEM" at the end of a line about a channel; "Using network IB". Each kind once. */
static void add_kind(char *kinds, size_t bytes, const char *kind, size_t length)
{
    for (const char *p = kinds; *p; p += strcspn(p, ","), p += strspn(p, ", "))
        if (!strncmp(p, kind, length) && (p[length] == ',' || !p[length])) return;
    kolo_append(kinds, bytes, "%s%.*s", *kinds ? ", " : "", (int)length, kind);
}

static void read_log(const char *text, char *via, char *network, size_t bytes)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const size_t length = strcspn(line, "\n");
        const char *way = memmem(line, length, " via ", 5), *net = memmem(line, length, "Using network ", 14);
        if (way && memmem(line, length, "Channel", 7)) add_kind(via, bytes, way + 5, strcspn(way + 5, " \n"));
        if (net) add_kind(network, bytes, net + 14, (size_t)(line + length - (net + 14)));
    }
}

static bool adapter_is_up(void)
{
    kolo_interface list[64];
    const int n = kolo_machine_interfaces("", list, 64);
    for (int i = 0; i < n; i++)
        if (list[i].rdma && list[i].up) return true;
    return false;
}

static void report_nccl(doctor *d, const char *name, const char *path)
{
    char *text = NULL, via[256] = "", network[256] = "";
    if (kolo_file_read(path, &text, NULL) < 0) return;
    read_log(text, via, network, sizeof via);
    free(text);
    doctor_add(d, GOOD, 0, "nccl", "%s connects this rank by %s%s%s", name,
               *via ? via : "what it does not state", *network ? "; network: " : "", network);
    if (strstr(via, "NET/Socket") && adapter_is_up())
        doctor_add(
            d, WARN, 0, "nccl",
            "NCCL sends over TCP though an RDMA adapter is active\tNCCL_IB_DISABLE and NCCL_NET unset? "
            "memory may be locked (ulimit -l)? the plugin of this network loaded (aws-ofi-nccl)?");
    if (strstr(via, "SHM"))
        doctor_add(d, WARN, 0, "nccl",
                   "GPUs of a node exchange through host memory\tsee p2p above; NCCL_P2P_DISABLE and "
                   "NCCL_P2P_LEVEL should be unset");
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static int make_crowd(crowd *c, const kolo_launch *l, int node)
{
    c->rank = kolo_alloc((size_t)l->size * sizeof *c->rank);
    for (int r = 0; c->rank && r < l->size; r++)
        if (node < 0 ? l->local_of[r] == 0 : l->node_of[r] == node) c->rank[c->count++] = r;
    return c->rank ? 0 : KOLO_ENOMEM;
}

static int declare_pairs(traffic *t)
{
    const kolo_launch *l = t->doctor->launch;
    t->node = kolo_alloc((size_t)l->nodes * sizeof *t->node);
    if (!t->node) return KOLO_ENOMEM;
    KOLO_TRY(make_crowd(&t->nodes, l, -1));
    for (int i = 0; i < l->nodes; i++) {
        KOLO_TRY(make_crowd(&t->node[i], l, i));
        KOLO_TRY(declare_crowd(t, &t->node[i]));
    }
    return declare_crowd(t, &t->nodes);
}

static int open_traffic(traffic *t, bool pairs)
{
    kolo_session *s = &t->session;
    kolo_backend_config backend = {.threads = 1};
    const size_t arena = pairs ? 2 * (size_t)MESSAGE : SUM_BYTES;
    KOLO_TRY(session_choose_device(s));
    backend.device = s->device_index;
    if (s->cuda) KOLO_TRY(kolo_backend_create(&s->backend, "cuda", &backend));
    KOLO_TRY(session_open_comm(s, s->launch, arena, 0, 0, &s->comm));
    const int bucket = kolo_comm_bucket(s->comm, 0, SUM_BYTES / (int64_t)sizeof(float));
    if (bucket < 0) return bucket;
    if (pairs) KOLO_TRY(declare_pairs(t));
    KOLO_TRY(kolo_comm_commit(s->comm)); /* has every bucket reduced once on GPUs, so all is connected */
    if (s->cuda)
        doctor_add(t->doctor, GOOD, 0, "reduce", "gradients of GPUs travel by %s", kolo_comm_name(s->comm));
    return 0;
}

static void close_traffic(traffic *t)
{
    for (int i = 0; t->node && i < t->doctor->launch->nodes; i++) free(t->node[i].rank);
    free(t->node);
    free(t->nodes.rank);
    free(t->rate);
    kolo_session_close(&t->session);
}

/* Collective. *go, the same on all ranks: any rank wants a measurement (--all-pairs, or GPUs), and no GPU
 * check has failed on any. */
static int agree_to_measure(doctor *d, bool pairs, bool *go)
{
    const struct {
        int32_t failed, wanted;
    } mine = {d->gpu_failed, pairs || d->options->device == KOLO_device_cuda ||
                                 (d->options->device == KOLO_device_auto && kolo_device_granted())};
    int32_t(*all)[2] = kolo_alloc((size_t)d->launch->size * sizeof mine);
    int rc = all ? kolo_launch_exchange(d->launch, &mine, sizeof mine, all) : KOLO_ENOMEM;
    bool failed = false, wanted = false;
    for (int r = 0; rc >= 0 && r < d->launch->size; r++) {
        failed |= all[r][0] != 0;
        wanted |= all[r][1] != 0;
    }
    free(all);
    *go = wanted && !failed;
    if (rc >= 0 && wanted && failed)
        doctor_add(d, WARN, 0, "pairs", "not measured, as a GPU cannot be used\tmend that first");
    return rc < 0 ? rc : 0;
}

int doctor_check_traffic(doctor *d, bool pairs)
{
    traffic t = {.doctor = d, .session = {.options = (kolo_options *)d->options, .launch = d->launch}};
    char path[4096] = "";
    bool go;
    if (d->launch->size < 2) return 0;
    if (pairs && d->launch->nodes > MOST_PAIRED)
        return kolo_fail(KOLO_ECONFIG,
                         "--all-pairs is for at most %d nodes at a time, these are %d: take parts of them",
                         MOST_PAIRED, d->launch->nodes);
    KOLO_TRY(agree_to_measure(d, pairs, &go));
    if (!go) return 0;
    const bool logged = d->options->device != KOLO_device_cpu && open_log(path, sizeof path);
    int rc = open_traffic(&t, pairs);
    if (rc == 0 && logged && t.session.cuda && strstr(kolo_comm_name(t.session.comm), "nccl"))
        report_nccl(d, kolo_comm_name(t.session.comm), path);
    if (rc == 0 && pairs) rc = check_pairs(&t);
    if (rc == 0) rc = kolo_comm_barrier(t.session.comm);
    close_traffic(&t);
    if (logged) unlink(path);
    return rc;
}
