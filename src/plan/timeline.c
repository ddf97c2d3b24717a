/* Only a stage's own turns send from it, in their order, so the queue of a link is known when a turn ends.
 * No queue of events is needed: any stage whose next turn is ready may go on. */
#include "plan/timeline.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"

/* Beside the input: edges by part, and when what was is there. */
typedef struct simulation {
    const kolo_timeline_input *in;
    kolo_timeline *out;
    int parts;
    /* edges that leave a part, then edges that enter it: [first[side][part], first[side][part + 1]) */
    int *first[2], *edge_of[2];
    /* [passes][parts][slots]: when a turn ends; -1: not yet */
    double *end;
    /* [2][edges][slots]: when an edge's tensor and its gradient are there; -1: not yet */
    double *there;
    /* [stages][stages]: when a link is free */
    double *link_free;
    /* [stages]: the next turn */
    int *next;
    /* [stages]: there are weight turns */
    bool *apart;
} simulation;

static int part_of(const kolo_timeline_input *in, int stage, int chunk) { return chunk * in->stages + stage; }
static double *end_of(const simulation *s, int pass, int part, int slot)
{
    return &s->end[((int64_t)pass * s->parts + part) * s->in->slots + slot];
}
static double *there_of(const simulation *s, int pass, int edge, int slot)
{
    return &s->there[((int64_t)pass * s->in->edges + edge) * s->in->slots + slot];
}
static bool is_duration(double seconds) { return isfinite(seconds) && seconds >= 0; }

static int check_costs(const kolo_timeline_input *in)
{
    const int parts = in->stages * in->chunks;
    for (int i = 0; i < parts; i++)
        for (int pass = 0; pass < KOLO_PASSES; pass++)
            if (!is_duration(in->seconds[i][pass]))
                return kolo_fail(KOLO_ECONFIG, "timeline: the %s pass of part %d takes %g seconds",
                                 kolo_pass_name[pass], i, in->seconds[i][pass]);
    for (int i = 0; i < in->edges; i++) {
        const kolo_edge *e = &in->edge[i];
        if (e->from < 0 || e->from >= e->to || e->to >= parts)
            return kolo_fail(KOLO_EINTERNAL, "timeline: edge %d goes from part %d to part %d of %d", i,
                             e->from, e->to, parts);
        if (!is_duration(e->latency) || !is_duration(e->forward) || !is_duration(e->backward))
            return kolo_fail(KOLO_ECONFIG,
                             "timeline: the link from part %d to part %d takes %g + %g seconds, back %g",
                             e->from, e->to, e->latency, e->forward, e->backward);
    }
    return 0;
}

static int check_turns(const simulation *s)
{
    const kolo_timeline_input *in = s->in;
    for (int stage = 0; stage < in->stages; stage++)
        for (int t = 0; t < in->turns[stage]; t++) {
            const kolo_turn *turn = &in->turn[stage][t];
            if ((unsigned)turn->pass >= KOLO_PASSES || turn->chunk < 0 || turn->chunk >= in->chunks ||
                turn->slot < 0 || turn->slot >= in->slots)
                return kolo_fail(KOLO_EINTERNAL,
                                 "timeline: turn %d of stage %d is pass %d of chunk %d on slot %d; there are "
                                 "%d chunks and %d slots",
                                 t, stage, (int)turn->pass, turn->chunk, turn->slot, in->chunks, in->slots);
            /* marks it as there; the simulation starts from none again */
            double *mark = end_of(s, turn->pass, part_of(in, stage, turn->chunk), turn->slot);
            if (*mark > 0)
                return kolo_fail(KOLO_EINTERNAL,
                                 "timeline: stage %d does the %s pass of chunk %d on slot %d "
                                 "twice, again at turn %d",
                                 stage, kolo_pass_name[turn->pass], turn->chunk, turn->slot, t);
            *mark = 1;
            s->apart[stage] = s->apart[stage] || turn->pass == KOLO_PASS_WEIGHT;
        }
    return 0;
}

/* first[side], edge_of[side]: side 0 the edges that leave a part, side 1 those that enter it */
static void sort_edges(simulation *s, int side)
{
    const kolo_timeline_input *in = s->in;
    int *first = s->first[side];
    for (int i = 0; i < in->edges; i++) first[(side ? in->edge[i].to : in->edge[i].from) + 1]++;
    for (int part = 0; part < s->parts; part++) first[part + 1] += first[part];
    for (int i = in->edges - 1; i >= 0; i--) {
        const int part = side ? in->edge[i].to : in->edge[i].from;
        s->edge_of[side][--first[part + 1]] = i;
    }
    /* now first[part + 1] is where the edges of `part` begin */
    for (int part = 0; part < s->parts; part++) first[part] = first[part + 1];
    first[s->parts] = in->edges;
}

static int simulation_open(simulation *s, kolo_timeline *out)
{
    const kolo_timeline_input *in = s->in;
    const size_t stages = (size_t)in->stages, slots = (size_t)in->slots, edges = (size_t)in->edges;
    s->out = out;
    s->parts = in->stages * in->chunks;
    const size_t ends = KOLO_PASSES * (size_t)s->parts * slots;
    for (int side = 0; side < 2; side++) {
        s->first[side] = kolo_alloc(((size_t)s->parts + 1) * sizeof(int));
        s->edge_of[side] = kolo_alloc((edges + 1) * sizeof(int));
        if (!s->first[side] || !s->edge_of[side]) return KOLO_ENOMEM;
        sort_edges(s, side);
    }
    s->end = kolo_alloc(ends * sizeof(double));
    s->there = kolo_alloc((2 * edges * slots + 1) * sizeof(double));
    s->link_free = kolo_alloc(stages * stages * sizeof(double));
    s->next = kolo_alloc(stages * sizeof(int));
    s->apart = kolo_alloc(stages * sizeof(bool));
    if (!s->end || !s->there || !s->link_free || !s->next || !s->apart) return KOLO_ENOMEM;
    KOLO_TRY(check_turns(s));
    for (size_t i = 0; i < ends; i++) s->end[i] = -1;
    for (size_t i = 0; i < 2 * edges * slots; i++) s->there[i] = -1;
    return 0;
}
static void simulation_close(simulation *s)
{
    for (int side = 0; side < 2; side++) {
        free(s->first[side]);
        free(s->edge_of[side]);
    }
    free(s->end);
    free(s->there);
    free(s->link_free);
    free(s->next);
    free(s->apart);
}

/* What a turn still waits for. */
typedef struct need {
    enum kolo_pass pass;
    int part, edge; /* edge -1: of its own stage */
} need;

/* When all that a turn reads is there; -1: something is not yet, *missing says what. */
static double turn_ready(const simulation *s, int stage, const kolo_turn *turn, need *missing)
{
    const int part = part_of(s->in, stage, turn->chunk);
    double ready = 0;
    if (turn->pass != KOLO_PASS_FORWARD) {
        const enum kolo_pass before = turn->pass - 1;
        *missing = (need){before, part, -1};
        ready = *end_of(s, before, part, turn->slot);
    }
    if (turn->pass == KOLO_PASS_WEIGHT || ready < 0) return ready;
    const int side = turn->pass == KOLO_PASS_FORWARD;
    for (int i = s->first[side][part]; i < s->first[side][part + 1]; i++) {
        const int edge = s->edge_of[side][i];
        const double there = *there_of(s, turn->pass, edge, turn->slot);
        *missing = (need){turn->pass, side ? s->in->edge[edge].from : s->in->edge[edge].to, edge};
        if (there < 0) return there;
        if (there > ready) ready = there;
    }
    return ready;
}

/* What a turn made, ended at `end`, goes to the parts that read it. */
static void turn_send(simulation *s, int stage, const kolo_turn *turn, double end)
{
    if (turn->pass == KOLO_PASS_WEIGHT) return;
    const kolo_timeline_input *in = s->in;
    const int part = part_of(in, stage, turn->chunk), side = turn->pass != KOLO_PASS_FORWARD;
    for (int i = s->first[side][part]; i < s->first[side][part + 1]; i++) {
        const int edge = s->edge_of[side][i];
        const kolo_edge *e = &in->edge[edge];
        const int to = (side ? e->from : e->to) % in->stages;
        double *there = there_of(s, turn->pass, edge, turn->slot);
        if (to == stage) {
            *there = end;
            continue;
        }
        double *link = &s->link_free[(int64_t)stage * in->stages + to];
        const double start = *link > end ? *link : end;
        *link = start + (side ? e->backward : e->forward);
        *there = *link + e->latency;
        s->out->hop[s->out->hops++] = (kolo_hop){
            .edge = edge, .slot = turn->slot, .pass = turn->pass, .link = {start, *link}, .arrival = *there};
    }
}

/* Does the turns of a stage as far as they are ready; whether there were any. */
static bool stage_go(simulation *s, int stage)
{
    const kolo_timeline_input *in = s->in;
    const int before = s->next[stage];
    need missing;
    for (int *next = &s->next[stage]; *next < in->turns[stage]; ++*next) {
        const kolo_turn *turn = &in->turn[stage][*next];
        const double ready = turn_ready(s, stage, turn, &missing);
        if (ready < 0) break;
        const double *seconds = in->seconds[part_of(in, stage, turn->chunk)];
        double takes = seconds[turn->pass];
        if (turn->pass == KOLO_PASS_BACKWARD && !s->apart[stage]) takes += seconds[KOLO_PASS_WEIGHT];
        kolo_span *span = &s->out->turn[stage][*next];
        span->start = *next > 0 && span[-1].end > ready ? span[-1].end : ready;
        span->end = span->start + takes;
        *end_of(s, turn->pass, part_of(in, stage, turn->chunk), turn->slot) = span->end;
        s->out->busy[stage] += takes;
        turn_send(s, stage, turn, span->end);
    }
    return s->next[stage] > before;
}

/* Whether a stage has that pass among its turns. */
static bool stage_does(const kolo_timeline_input *in, const need *n, int slot)
{
    const int stage = n->part % in->stages;
    for (int t = 0; t < in->turns[stage]; t++) {
        const kolo_turn *turn = &in->turn[stage][t];
        if (turn->pass == n->pass && turn->slot == slot && turn->chunk == n->part / in->stages) return true;
    }
    return false;
}

/* No stage can go on. The first turn that can never start: one that waits for what nobody does, otherwise the
 * one whose stage has stood longest, otherwise that of the first stage. */
static int stuck(const simulation *s)
{
    const kolo_timeline_input *in = s->in;
    int first = -1;
    bool first_waits = true;
    double first_since = 0;
    need first_need = {0};
    for (int stage = 0; stage < in->stages; stage++) {
        const int t = s->next[stage];
        if (t == in->turns[stage]) continue;
        need missing;
        turn_ready(s, stage, &in->turn[stage][t], &missing);
        const bool waits = stage_does(in, &missing, in->turn[stage][t].slot);
        const double since = t > 0 ? s->out->turn[stage][t - 1].end : 0;
        if (first >= 0 && (waits > first_waits || (waits == first_waits && since >= first_since))) continue;
        first = stage;
        first_waits = waits;
        first_since = since;
        first_need = missing;
    }
    if (first < 0) return 0;
    const kolo_turn *turn = &in->turn[first][s->next[first]];
    return kolo_fail(KOLO_EINTERNAL,
                     "turn %d of stage %d, %s of chunk %d on slot %d, can never start: it waits for %s of "
                     "chunk %d on the same slot, which stage %d %s",
                     s->next[first], first, kolo_pass_name[turn->pass], turn->chunk, turn->slot,
                     kolo_pass_name[first_need.pass], first_need.part / in->stages,
                     first_need.part % in->stages,
                     first_waits ? "does only behind a turn that waits as well" : "does not do");
}

static int timeline_open(kolo_timeline *t, const kolo_timeline_input *in)
{
    const size_t stages = (size_t)in->stages;
    t->stages = in->stages;
    t->turn = kolo_alloc(stages * sizeof *t->turn);
    t->hop = kolo_alloc((2 * (size_t)in->edges * (size_t)in->slots + 1) * sizeof *t->hop);
    t->busy = kolo_alloc(stages * sizeof *t->busy);
    t->idle = kolo_alloc(stages * sizeof *t->idle);
    t->in_flight = kolo_alloc(stages * sizeof *t->in_flight);
    if (!t->turn || !t->hop || !t->busy || !t->idle || !t->in_flight) return KOLO_ENOMEM;
    for (size_t i = 0; i < stages; i++) {
        t->turn[i] = kolo_alloc(((size_t)in->turns[i] + 1) * sizeof **t->turn);
        if (!t->turn[i]) return KOLO_ENOMEM;
    }
    return 0;
}
static void timeline_close(kolo_timeline *t, const kolo_timeline_input *in)
{
    double busy = 0;
    for (int i = 0; i < in->stages; i++) {
        const double end = in->turns[i] > 0 ? t->turn[i][in->turns[i] - 1].end : 0;
        if (end > t->makespan) t->makespan = end;
        busy += t->busy[i];
        t->in_flight[i] = kolo_turns_in_flight(in->turn[i], in->turns[i], -1);
    }
    if (t->makespan <= 0) return;
    for (int i = 0; i < in->stages; i++) t->idle[i] = 1 - t->busy[i] / t->makespan;
    t->bubble = 1 - busy / (in->stages * t->makespan);
}

int kolo_timeline_create(kolo_timeline **timeline, const kolo_timeline_input *input)
{
    simulation s = {.in = input};
    int rc;
    *timeline = NULL;
    if (input->stages < 1 || input->chunks < 1 || input->slots < 1)
        return kolo_fail(KOLO_EINTERNAL, "timeline: %d stages, %d chunks, %d slots", input->stages,
                         input->chunks, input->slots);
    KOLO_TRY(check_costs(input));
    kolo_timeline *t = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    KOLO_TRY_GOTO(rc, timeline_open(t, input));
    KOLO_TRY_GOTO(rc, simulation_open(&s, t));
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < input->stages; stage++) moved = stage_go(&s, stage) || moved;
    }
    KOLO_TRY_GOTO(rc, stuck(&s));
    timeline_close(t, input);
    *timeline = t;
    t = NULL;
fail:
    simulation_close(&s);
    kolo_timeline_destroy(&t);
    return rc;
}

void kolo_timeline_destroy(kolo_timeline **timeline)
{
    kolo_timeline *t = *timeline;
    if (!t) return;
    for (int i = 0; t->turn && i < t->stages; i++) free(t->turn[i]);
    free(t->turn);
    free(t->hop);
    free(t->busy);
    free(t->idle);
    free(t->in_flight);
    free(t);
    *timeline = NULL;
}

enum { ROWS_STAGES, ROWS_LINKS };

/* The start of an event, seconds as microseconds; the caller writes the rest. */
static void write_span(FILE *file, int rows, int64_t row, const kolo_span *span)
{
    fprintf(file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%lld,", rows, (long long)row);
    kolo_json_span(file, span->start, span->end);
}
static void write_turn(FILE *file, const kolo_timeline_input *in, int stage, const kolo_turn *turn,
                       const kolo_span *span)
{
    write_span(file, ROWS_STAGES, stage, span);
    fprintf(file, ",\"cat\":\"%s\",\"name\":\"%s %d\",\"args\":{\"slot\":%d,\"chunk\":%d,\"part\":%d}}",
            kolo_pass_name[turn->pass], kolo_pass_name[turn->pass], turn->slot, turn->slot, turn->chunk,
            part_of(in, stage, turn->chunk));
}
static void write_hop(FILE *file, const kolo_timeline_input *in, const kolo_hop *hop)
{
    const kolo_edge *e = &in->edge[hop->edge];
    const bool back = hop->pass == KOLO_PASS_BACKWARD;
    const int from = back ? e->to : e->from, to = back ? e->from : e->to;
    write_span(file, ROWS_LINKS, (int64_t)(from % in->stages) * in->stages + to % in->stages, &hop->link);
    fprintf(
        file, ",\"cat\":\"%s\",\"name\":\"%s %d\",\"args\":{\"slot\":%d,\"from\":%d,\"to\":%d,\"arrival\":",
        back ? "gradient" : "activation", back ? "gradient" : "activation", hop->slot, hop->slot, from, to);
    kolo_json_number(file, hop->arrival * 1e6, 15);
    fputs("}}", file);
}
/* The name of a row, or of all rows of a kind: metadata that viewers know. */
static void write_name(FILE *file, const char *what, int rows, int64_t row, const char *name)
{
    fprintf(file, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%lld,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}",
            rows, (long long)row, what, name);
}
static int write_names(FILE *file, const kolo_timeline *t, const kolo_timeline_input *in)
{
    char name[64];
    const int64_t stages = in->stages;
    bool *used = kolo_alloc((size_t)(stages * stages) * sizeof *used);
    if (!used) return KOLO_ENOMEM;
    for (int i = 0; i < in->stages; i++) {
        snprintf(name, sizeof name, "stage %d", i);
        write_name(file, "thread_name", ROWS_STAGES, i, name);
    }
    write_name(file, "process_name", ROWS_LINKS, 0, "links");
    for (int64_t i = 0; i < t->hops; i++) {
        const kolo_edge *e = &in->edge[t->hop[i].edge];
        const bool back = t->hop[i].pass == KOLO_PASS_BACKWARD;
        const int64_t from = (back ? e->to : e->from) % stages, to = (back ? e->from : e->to) % stages;
        if (used[from * stages + to]) continue;
        used[from * stages + to] = true;
        snprintf(name, sizeof name, "stage %lld to stage %lld", (long long)from, (long long)to);
        write_name(file, "thread_name", ROWS_LINKS, from * stages + to, name);
    }
    free(used);
    return 0;
}

int kolo_timeline_write(const kolo_timeline *timeline, const kolo_timeline_input *input, FILE *file)
{
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"stages\"}}",
          file);
    KOLO_TRY(write_names(file, timeline, input));
    for (int stage = 0; stage < input->stages; stage++)
        for (int t = 0; t < input->turns[stage]; t++)
            write_turn(file, input, stage, &input->turn[stage][t], &timeline->turn[stage][t]);
    for (int64_t i = 0; i < timeline->hops; i++) write_hop(file, input, &timeline->hop[i]);
    fputs("\n]}\n", file);
    if (fflush(file) || ferror(file)) return kolo_fail(KOLO_EIO, "timeline: the trace cannot be written: %m");
    return 0;
}
