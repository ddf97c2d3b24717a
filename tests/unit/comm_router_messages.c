/* Messages of the router: by every means that one machine has, in any order, of any length, from ordinary
 * and from shared memory. */
#include "comm_router_rig.h"

enum { LANES = 3, TAGS = 4, MOST = 600000 };

typedef struct message {
    int from, to, lane, tag;
    int64_t bytes;
    char *data; /* of the receiver, or sender */
} message;

static uint32_t draw(uint64_t seed, uint64_t i, uint64_t j) { return kolo_philox(seed, i, j).v[0]; }

static int64_t length(uint32_t a, uint32_t b)
{
    static const int64_t odd[] = {0, 1, 7, 8, 4095, 4096, 4097, 32768, 32769, 65536};
    return a % 3 == 0 ? odd[b % 10] : a % 3 == 1 ? b % 3000 : a % 16 == 2 ? b % MOST : b % 50000;
}

static void fill(const message *m, int64_t number)
{
    for (int64_t i = 0; i < m->bytes; i++) m->data[i] = (char)(number * 131 + i * 7 + (i >> 8));
}

static bool intact(const message *m, int64_t number)
{
    for (int64_t i = 0; i < m->bytes; i++)
        if (m->data[i] != (char)(number * 131 + i * 7 + (i >> 8))) return false;
    return true;
}

/* Every rank has the same list, and posts its share: lane by lane a few at a time, which lane next is
 * each rank's own draw. */
static int64_t storm(rig_rank *r, int messages)
{
    comm_router *router = r->router;
    message *m = calloc((size_t)messages, sizeof *m);
    int64_t bad = 0, at[LANES] = {0}, posted[LANES] = {0};
    void *lane[LANES];
    bool busy = false;
    for (int l = 0; l < LANES; l++) bad += comm_router_lane_make(router, 2 * messages, &lane[l]) < 0;
    for (int i = 0; i < messages; i++) {
        uint32_t x = draw(5, (uint64_t)i, 0), y = draw(5, (uint64_t)i, 1);
        m[i] = (message){(int)(x % (uint32_t)rig_size),
                         (int)(x / 64 % (uint32_t)rig_size),
                         (int)(x / 4096 % LANES),
                         (int)(y % TAGS),
                         length(draw(6, (uint64_t)i, 0), draw(6, (uint64_t)i, 1)),
                         NULL};
        if (m[i].from != r->rank && m[i].to != r->rank) continue;
        void *shared = NULL;
        size_t room = (size_t)m[i].bytes * (m[i].from == m[i].to ? 2 : 1) + 1;
        if (y / 64 % 3 == 0 && comm_router_alloc(router, room, &shared) == 0) m[i].data = shared;
        else m[i].data = malloc(room);
        fill(&m[i], m[i].from == r->rank ? i : i + 1);
    }
    for (uint64_t step = 0, open = LANES; open && bad == 0; step++) {
        int l = (int)(draw(7, (uint64_t)r->rank, step) % LANES);
        if (at[l] > messages) continue;
        for (int some = 0; some < 5 && at[l] < messages; at[l]++) {
            message *x = &m[at[l]];
            if (x->lane != l || !x->data) continue;
            some++;
            char *into = x->from == x->to ? x->data + x->bytes : x->data;
            if (x->to == r->rank && ++posted[l])
                bad +=
                    comm_routed.post(lane[l], false, x->from, x->tag + l * TAGS, into, (size_t)x->bytes) < 0;
            if (x->from == r->rank && ++posted[l])
                bad +=
                    comm_routed.post(lane[l], true, x->to, x->tag + l * TAGS, x->data, (size_t)x->bytes) < 0;
        }
        if (at[l] == messages && ++at[l]) open--;
    }
    for (int l = LANES - 1; l >= 0 && bad == 0; l--)
        bad += posted[l] && rig_done(r, lane[l], posted[l] - 1) != 1;
    for (int i = 0; i < messages && bad == 0; i++) {
        message got = m[i];
        if (got.to != r->rank) continue;
        if (got.from == got.to) got.data += got.bytes;
        if (!intact(&got, i))
            fprintf(stderr, "# rank %d: message %d of %lld bytes from %d, tag %d lane %d\n", r->rank, i,
                    (long long)got.bytes, got.from, got.tag, got.lane),
                bad++;
    }
    /* nobody leaves while others still read his memory */
    for (int p = 0; p < rig_size && bad == 0; p++) {
        static char nothing;
        if (p == 0) comm_router_lane_reset(lane[0]);
        bad += comm_routed.post(lane[0], true, p, 99, &nothing, 0) < 0;
        bad += comm_routed.post(lane[0], false, p, 99, &nothing, 0) < 0;
    }
    if (bad == 0) bad += rig_done(r, lane[0], 2 * rig_size - 1) != 1;
    if (bad && kolo_error_text()[0]) fprintf(stderr, "# rank %d: %s\n", r->rank, kolo_error_text());
    for (int i = 0; i < messages; i++) {
        size_t offset;
        if (m[i].data && comm_router_shared(router, m[i].data, 1, &offset))
            comm_router_free(router, m[i].data);
        else free(m[i].data);
    }
    for (int l = 0; l < LANES; l++) comm_router_lane_free(&lane[l], &busy);
    free(m);
    return bad + busy;
}

static int64_t heap(rig_rank *r, int argument)
{
    void *block[64] = {0}, *more = NULL;
    int64_t bad = 0;
    size_t offset;
    int stack;
    (void)argument;
    for (int round = 0; round < 400; round++) {
        int i = (int)(draw(8, 0, (uint64_t)round) % 64);
        size_t bytes = 1 + draw(8, 1, (uint64_t)round) % 60000;
        comm_router_free(r->router, block[i]);
        block[i] = NULL;
        if (comm_router_alloc(r->router, bytes, &block[i]) < 0) return -1;
        memset(block[i], i, bytes);
        bad += !comm_router_shared(r->router, block[i], bytes, &offset) || (uintptr_t)block[i] % 64 != 0;
    }
    for (int i = 0; i < 64; i++) bad += block[i] && *(unsigned char *)block[i] != i;
    for (int i = 0; i < 64; i++) comm_router_free(r->router, block[i]);
    /* all of it in one piece again */
    bad += comm_router_alloc(r->router, rig_config.shared_bytes, &more) < 0;
    bad += comm_router_alloc(r->router, 1, &block[0]) != KOLO_ECONFIG;
    bad += comm_router_shared(r->router, &stack, sizeof stack, &offset);
    bad += comm_router_shared(r->router, (char *)more + 4096, rig_config.shared_bytes, &offset);
    comm_router_free(r->router, more);
    return bad;
}

static int64_t wrong_length(rig_rank *r, int argument)
{
    char data[64] = {0};
    void *lane;
    bool busy = false;
    (void)argument;
    if (comm_router_lane_make(r->router, 2, &lane) < 0) return -1;
    if (r->rank == 0) comm_routed.post(lane, true, 1, 7, data, 16);
    else comm_routed.post(lane, false, 0, 7, data, 32);
    int rc = r->rank == 0 ? 0 : rig_done(r, lane, 0);
    while (rc >= 0) {
        comm_router_rest(r->router, 0.01);
        rc = comm_router_status(r->router);
    }
    char text[512];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    comm_router_lane_free(&lane, &busy);
    return strstr(text, "rank 0 sent a message of 16 bytes where rank 1 expects 32") ? 0 : 1;
}

int main(void)
{
    rig_config = (comm_router_config){.between = "tcp", .timeout = 20, .shared_bytes = 8 << 20};
    is_int(rig_run(1, NULL, false, heap, 0), 0,
           "shared memory: blocks keep apart, and join again when they are freed");
    is_int(rig_run(1, NULL, false, storm, 200), 0, "1 rank, 200 messages to itself");
    for (int n = 2; n <= 7; n += n == 2 ? 1 : n == 3 ? 1 : 3)
        is_int(rig_run(n, NULL, false, storm, 150 * n), 0,
               "%d processes of a node, %d messages of any length and order", n, 150 * n);
    is_int(rig_run(4, NULL, true, storm, 400), 0, "4 threads, 400 messages");
    static const int two[] = {0, 0, 1, 1}, each[] = {0, 1, 2}, uneven[] = {0, 0, 1, 1, 2, 1, 0};
    is_int(rig_run(3, each, false, storm, 450), 0, "3 nodes of a rank, over TCP");
    is_int(rig_run(4, two, false, storm, 600), 0, "2 nodes of 2 ranks, over shared memory and TCP");
    is_int(rig_run(7, uneven, false, storm, 1050), 0, "3 nodes of 3, 3 and 1 ranks");
    is_int(rig_run(3, each, true, storm, 300), 0, "3 threads, each its own node");
    is_int(rig_run(2, NULL, false, wrong_length, 0), 0,
           "a message of another length than expected breaks the world on both ranks, named");
    ok(!rig_leftovers("router"), "nothing is left in /dev/shm");
    return done_testing();
}
