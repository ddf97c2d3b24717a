/* Requests of libkolo_comm whose vectors lie on GPUs, where something is wrong: ranks that share a GPU or
 * lack NCCL are an error on all of them and the world goes on; a rank that dies, stops or fails within NCCL
 * is named on all of them in time, and the survivors go on without it. Ranks as processes, on the
 * stand-in. */
#include "../unit/comm_router_rig.h"
#include "comm/library/parts.h"
#include "cuda_memory.h"

enum { RANKS = 3, ODD = 1, COUNT = 5000, GOOD = 3 /* calls that go well, and as many batches */ };

typedef struct drill {
    const char *what;
    bool one_gpu, named;
    const char *variable, *value; /* of the environment of rank ODD */
    double timeout, heartbeat_timeout;
    int status;                     /* of the call that fails */
    const char *says, *also, *here; /* on the others; here: on rank ODD, NULL: it does not live to say it */
    double within;
    /* what rank ODD does after it has submitted the call */
    enum { NOTHING, DIES, STOPS, GIVES_UP, JOINS } then;
    bool goes_on, shrinks;
    int own; /* status that the rank at fault has instead, also later; 0: the same */
} drill;

static const char *const dies = "(pid %d), ", *const nccl = "STANDIN_NCCL";
static const drill drills[] = {
    {.what = "two ranks share a GPU",
     .one_gpu = true,
     .status = KOLO_ECONFIG,
     .says = "ranks 0 and 1 share one",
     .here = "ranks 0 and 1 share one",
     .within = 10,
     .goes_on = true},
    {.what = "a rank lacks NCCL",
     .variable = "KOLO_NCCL_LIBRARY",
     .value = "/nowhere/libnccl.so.2",
     .status = KOLO_ECONFIG,
     .says = "rank 1 cannot use NCCL",
     .also = "/nowhere/libnccl.so.2",
     .here = "rank 1 cannot use NCCL",
     .within = 10,
     .goes_on = true},
    {.what = "a rank lacks the plug-in",
     .variable = "KOLO_CUDA_LIBRARY",
     .value = "",
     .status = KOLO_EINPUT,
     .says = "rank 1: reduce_scatter",
     .also = "memory of a GPU, and",
     .here = "rank 1: reduce_scatter",
     .within = 10,
     .goes_on = true},
    {.what = "a rank joined before it brought a vector",
     .named = true,
     .status = KOLO_ECONFIG,
     .says = "rank 1 cannot use NCCL",
     .also = "it joined before",
     .within = 10,
     .then = JOINS},
    {.what = "a rank dies within NCCL",
     .variable = nccl,
     .value = "die:1:4",
     .status = KOLO_ELAUNCH,
     .says = dies,
     .also = ", died;",
     .within = 10,
     .shrinks = true},
    {.what = "a rank dies within NCCL, of which NCCL does not tell",
     .variable = nccl,
     .value = "hang:1:4",
     .status = KOLO_ELAUNCH,
     .says = dies,
     .also = ", died;",
     .within = 10,
     .then = DIES,
     .named = true},
    {.what = "a rank is stopped within NCCL",
     .variable = nccl,
     .value = "hang:1:4",
     .heartbeat_timeout = 2,
     .status = KOLO_ELAUNCH,
     .says = dies,
     .also = "gave no sign of life for",
     .within = 10,
     .then = STOPS},
    {.what = "a rank gives up within NCCL",
     .variable = nccl,
     .value = "hang:1:4",
     .status = KOLO_ELAUNCH,
     .says = "rank 1 on host n",
     .also = "gave up: no data any more",
     .here = "gave up: no data any more",
     .within = 10,
     .then = GIVES_UP},
    {.what = "NCCL makes no progress",
     .variable = nccl,
     .value = "hang:1:4",
     .timeout = 2,
     .status = KOLO_ELAUNCH,
     .says = "made no progress on the GPU",
     .here = "made no progress on the GPU",
     .within = 10},
    {.what = "NCCL fails on a rank",
     .variable = nccl,
     .value = "error:1:4",
     .status = KOLO_ELAUNCH,
     .says = "unhandled system error",
     .here = "unhandled system error",
     .within = 10},
    {.what = "a rank dies while NCCL joins them",
     .variable = nccl,
     .value = "absent:1",
     .status = KOLO_ELAUNCH,
     .says = dies,
     .also = ", died;",
     .within = 10,
     .then = DIES},
    {.what = "NCCL joins nobody",
     .variable = nccl,
     .value = "absent:1",
     .timeout = 2,
     .status = KOLO_ELAUNCH,
     .says = "NCCL did not join the 3 ranks",
     .here = "did not join",
     .within = 10},
    {.what = "the GPU of a rank has no memory for a stage",
     .variable = "STANDIN_FAIL",
     .value = "cudaMalloc:2",
     .status = KOLO_ELAUNCH,
     .own = KOLO_ENOMEM,
     .says = "bytes on the GPU for requests that are scaled",
     .here = "bytes on the GPU for requests that are scaled",
     .within = 10},
};
enum { DRILLS = sizeof drills / sizeof *drills };

static int submit(kolo_world *whole, float *vector, bool named, kolo_handle *h)
{
    /* scaled, in place: it takes a stage */
    kolo_request r = {.what = KOLO_REDUCE_SCATTER,
                      .out = vector,
                      .type = KOLO_F32,
                      .prescale = 2,
                      .dims = 1,
                      .dim = {COUNT}};
    if (named) r.what = KOLO_ALLREDUCE, r.name = "v";
    return kolo_submit(kolo_world_group(whole), &r, h);
}

static int one_call(kolo_world *whole, float *vector, bool named)
{
    kolo_handle h;
    KOLO_TRY(submit(whole, vector, named, &h));
    return kolo_wait(whole, h);
}

static void misbehave(kolo_world *whole, const drill *d)
{
    usleep(300000); /* all are within NCCL by then */
    if (d->then == DIES) kill(getpid(), SIGKILL);
    if (d->then == STOPS) kill(getpid(), SIGSTOP);
    if (d->then == GIVES_UP) kolo_world_abort(whole, "no data any more");
}

static bool says(const rig_rank *r, const drill *d, const char *text)
{
    char who[64];
    const char *first = r->rank == ODD ? d->here : d->says;
    if (first == dies) {
        snprintf(who, sizeof who, "rank %d on host n0 (pid %d)", ODD, (int)rig->outcome[ODD].pid);
        first = who;
    }
    return strstr(text, first) && (r->rank == ODD || !d->also || strstr(text, d->also));
}

/* The survivors take their vectors on. */
static int64_t go_on(kolo_world **whole, float *vector)
{
    float ones[COUNT], got[4];
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    KOLO_TRY(kolo_world_shrink(whole, 1));
    gpu_put(vector, ones, sizeof ones);
    KOLO_TRY(one_call(*whole, vector, true));
    gpu_get(got, vector, sizeof got);
    return got[3] != 2 * (RANKS - 1);
}

static int64_t one_rank(rig_rank *r, int argument)
{
    const drill *d = &drills[argument];
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .timeout = d->timeout > 0 ? d->timeout : 60,
                                      .heartbeat_timeout = d->heartbeat_timeout,
                                      .shared_bytes = 1 << 20,
                                      .transport = "tcp"};
    kolo_world *whole = NULL;
    kolo_handle h;
    float host[4] = {1, 1, 1, 1};
    int rc = 0, last;
    if (r->rank == ODD && d->variable && d->variable != nccl) setenv(d->variable, d->value, 1);
    if (d->variable == nccl) setenv(nccl, d->value, 1);
    bool blind = r->rank == ODD && d->variable && !strcmp(d->variable, "KOLO_CUDA_LIBRARY");
    const char *missing = blind ? NULL : gpu_begin(true, d->one_gpu ? 0 : r->rank);
    if (missing) return kolo_fail(KOLO_ECONFIG, "test: %s", missing);
    float *vector = blind ? gpu_blind() : gpu_alloc(COUNT * 4);
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    const bool comes_far = d->variable == nccl && strchr(d->value, ':') != strrchr(d->value, ':');
    for (int i = 0; i < GOOD && comes_far; i++) KOLO_TRY(one_call(whole, vector, d->named));
    double begin = kolo_time();
    if (d->then == JOINS && r->rank == ODD) {
        rc = kolo_join(kolo_world_group(whole), &last);
    } else {
        if (d->then == JOINS) usleep(200000);
        rc = submit(whole, vector, d->named, &h);
        if (rc == 0 && r->rank == ODD && d->then) misbehave(whole, d);
        if (rc == 0) rc = kolo_wait(whole, h);
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    int64_t bad = 0;
    const bool joined = d->then == JOINS && r->rank == ODD;
    const int status = r->rank == ODD && d->own ? d->own : d->status,
              later = r->rank == ODD && d->own ? d->own : KOLO_ELAUNCH;
    if (!joined) bad = (rc != status) + 10 * !says(r, d, text) + 100 * (kolo_time() - begin > d->within);
    if (bad)
        fprintf(stderr, "# %s: rank %d: status %d after %.1f s: %s\n", d->what, r->rank, rc,
                kolo_time() - begin, text);
    if (d->then == JOINS && !joined) bad += 1000 * (kolo_join(kolo_world_group(whole), &last) < 0);
    if (d->goes_on)
        bad += 1000 * (kolo_allreduce(kolo_world_group(whole), NULL, host, 4, KOLO_F32, KOLO_SUM) < 0 ||
                       host[2] != RANKS);
    else if (!d->then || d->then < JOINS) bad += 1000 * (one_call(whole, vector, true) != later);
    if (d->shrinks) bad += 10000 * (go_on(&whole, vector) != 0);
    kolo_world_close(&whole);
    if (blind) return bad;
    gpu_free(vector);
    gpu_end();
    return bad + 100000 * gpu_misused();
}

int main(void)
{
    rig_party p[DRILLS];
    if (!cuda_rig()) skip_all("one GPU alone: NCCL wants one for every rank");
    setenv("STANDIN_DEVICES", "4", 1);
    setenv("STANDIN_NCCL_SILENT", "0", 1);
    for (int i = 0; i < DRILLS; i++) p[i] = rig_begin("gpu-faults", RANKS, NULL, one_rank, i, 60);
    for (int i = 0; i < DRILLS; i++) {
        const drill *d = &drills[i];
        is_int(rig_end(&p[i], d->here || d->then == JOINS ? -1 : ODD), 0, "%s: %s", d->what,
               d->goes_on || d->then == JOINS ? "said on all ranks, and the world goes on"
               : d->shrinks                   ? "named in time, and the survivors go on"
                                              : "said in time on every rank, for good");
    }
    is_int(rig_leftovers("gpu-faults"), 0, "no segment is left behind");
    return done_testing();
}
