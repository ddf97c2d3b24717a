/* What a stream prepares once for every kind of request: schedules, and what allreduces that are more than a
 * sum by elements need from call to call, Adasum's schedules and the codecs. A codec that counts rounds or
 * holds something back belongs to a name and stays as long as the group does; all else can be made again, so
 * only what was used last is kept. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "comm/core/adasum.h"
#include "comm/compress/compress.h"
#include "comm/library/negotiate.h"
#include "comm/library/parts.h"

/* What a codec is made for; the same on all members. */
typedef struct codec_want {
    const char *words; /* compression */
    const char *name;  /* "": can be made again */
    int64_t elements;  /* together */
    int64_t rows;      /* of a matrix that stands row by row; 1: no matrix */
    int64_t track;     /* without a name: one run at a time */
} codec_want;

typedef struct prepared {
    lib_link link; /* by its name, or without one by the whole key */
    uint64_t used; /* without a name: by the clock */
    char *key;     /* [key_bytes] of what it is made for; begins with the name */
    size_t key_bytes;
    int64_t rows, elements; /* codec */
    comm_schedule schedule; /* of no codec */
    const char *algorithm;
    comm_codec *codec;
} prepared;

enum { PREPARED = 1024 }; /* without a name */

struct lib_prepared {
    lib_map map;
    int64_t nameless;
    uint64_t clock;
    lib_bytes key; /* of what is looked for */
};

/* ---- memory -------------------------------------------------------------------------------------------- */

static void prepared_free(prepared *p)
{
    comm_schedule_free(&p->schedule);
    comm_codec_free(&p->codec);
    free(p->key);
    free(p);
}

static bool named(const prepared *p) { return p->key[0] != 0; }

static void drop(struct lib_prepared *all, prepared *p)
{
    lib_map_remove(&all->map, &p->link);
    all->nameless -= !named(p);
    prepared_free(p);
}

void lib_prepared_free(struct lib_prepared **out)
{
    struct lib_prepared *all = *out;
    if (!all) return;
    for (prepared *p; (p = lib_map_next(&all->map, NULL));) drop(all, p);
    lib_map_free(&all->map);
    lib_bytes_free(&all->key);
    free(all);
    *out = NULL;
}

/* The one without a name that was not used for longest. */
static void drop_oldest(struct lib_prepared *all)
{
    prepared *oldest = NULL;
    for (prepared *p = lib_map_next(&all->map, NULL); p; p = lib_map_next(&all->map, &p->link))
        if (!named(p) && (!oldest || p->used < oldest->used)) oldest = p;
    drop(all, oldest);
}

/* ---- making, or finding what was made ------------------------------------------------------------------ */

typedef int make_one(prepared *p, const kolo_group *g, const void *want);

static int make_codec(prepared *p, const kolo_group *g, const void *want)
{
    const codec_want *w = want;
    comm_matrix matrix = {.at = 0, .groups = 1, .columns = w->rows, .lanes = w->elements / w->rows};
    comm_compress config;
    KOLO_TRY(comm_compress_parse(&config, w->words));
    /* the others: named or not, the same draws */
    if (comm_compress_has_error_feedback(config.kind)) config.seed = lib_hash(w->name, strlen(w->name));
    p->rows = w->rows;
    p->elements = w->elements;
    return comm_codec_make(&p->codec, &config, g->rank, g->size, w->elements, &matrix, w->elements ? 1 : 0);
}

static int make_adasum(prepared *p, const kolo_group *g, const void *want)
{
    (void)g;
    return comm_adasum_make(&p->schedule, want);
}

static int make_schedule(prepared *p, const kolo_group *g, const void *want)
{
    comm_problem problem = *(const comm_problem *)want;
    const comm_algorithm_row *row = comm_algorithm_select(&problem, g->world->selector);
    p->algorithm = row->name;
    return row->make(&p->schedule, &problem);
}

static int make(struct lib_prepared *all, const kolo_group *g, make_one *maker, const void *want,
                prepared **out)
{
    const size_t bytes = (size_t)all->key.size, name = strlen(all->key.data);
    prepared *p = kolo_alloc(sizeof *p);
    int rc = p && (p->key = kolo_alloc(bytes)) ? maker(p, g, want) : KOLO_ENOMEM;
    if (rc == 0) {
        memcpy(p->key, all->key.data, p->key_bytes = bytes);
        rc = lib_map_add(&all->map, &p->link, p->key, name ? name : bytes);
    }
    if (rc < 0) {
        if (p) prepared_free(p);
        return rc;
    }
    p->used = ++all->clock;
    all->nameless += !named(p);
    if (all->nameless > PREPARED) drop_oldest(all);
    *out = p;
    return 0;
}

/* What all->key says. Good until PREPARED others were asked for. */
static int find(struct lib_prepared *all, const kolo_group *g, make_one *maker, const void *want,
                prepared **out)
{
    const size_t bytes = (size_t)all->key.size, name = strlen(all->key.data);
    prepared *p = *out = lib_map_find(&all->map, all->key.data, name ? name : bytes);
    if (p && (p->key_bytes != bytes || memcmp(p->key, all->key.data, bytes) != 0)) {
        drop(all, p); /* the name came back with another shape or compression */
        p = NULL;
    }
    if (!p) return make(all, g, maker, want, out);
    p->used = ++all->clock;
    return 0;
}

/* Name and words, each with its NUL; numbers. */
static int begin_key(lib_bytes *key, const char *name, const char *words, const int64_t *number, size_t bytes)
{
    key->size = 0;
    KOLO_TRY(lib_put(key, name, strlen(name) + 1));
    KOLO_TRY(lib_put(key, words, strlen(words) + 1));
    return lib_put(key, number, bytes);
}

static int find_codec(struct lib_prepared *all, const kolo_group *g, const codec_want *w, prepared **out)
{
    const int64_t number[] = {w->elements, w->rows, w->track};
    KOLO_TRY(begin_key(&all->key, w->name, w->words, number, sizeof number));
    return find(all, g, make_codec, w, out);
}

static int begin_prepared(lib_stream *s)
{
    return s->prepared || (s->prepared = kolo_alloc(sizeof *s->prepared)) ? 0 : KOLO_ENOMEM;
}

int lib_schedule(lib_execution *x, const comm_problem *problem, const comm_schedule **schedule)
{
    const int64_t number[] = {problem->what,  problem->root,           problem->in_place,
                              problem->count, (int64_t)problem->width, problem->half};
    const int64_t *const lists[] = {problem->counts, problem->send, problem->receive};
    lib_stream *s = x->stream;
    prepared *p;
    KOLO_TRY(begin_prepared(s));
    KOLO_TRY(begin_key(&s->prepared->key, "", "", number, sizeof number));
    for (int l = 0; l < 3; l++)
        if (lists[l])
            KOLO_TRY(lib_put(&s->prepared->key, lists[l], (size_t)problem->members * sizeof **lists));
    KOLO_TRY(find(s->prepared, s->group, make_schedule, problem, &p));
    *schedule = &p->schedule;
    x->algorithm = p->algorithm;
    return 0;
}

/* ---- what is held back, for checkpoints ---------------------------------------------------------------- */

static const char magic[8] = "kolostat";
enum { VERSION = 1 };

static int put_codec(lib_bytes *to, const prepared *p)
{
    size_t bytes = comm_codec_state_bytes(p->codec);
    KOLO_TRY(lib_put_text(to, p->key));
    KOLO_TRY(lib_put_text(to, p->key + kolo_round_up(strlen(p->key) + 1, 8)));
    KOLO_TRY(LIB_PUT(to, p->elements, p->rows, (int64_t)bytes));
    KOLO_TRY(lib_put(to, NULL, bytes));
    comm_codec_save(p->codec, to->data + to->size - kolo_round_up(bytes, 8));
    return 0;
}

static int put_all(lib_bytes *to, const kolo_group *g)
{
    static const struct lib_prepared none;
    const struct lib_prepared *all = g->named->prepared ? g->named->prepared : &none;
    int64_t head[] = {VERSION, g->rank, g->size, all->map.count - all->nameless};
    KOLO_TRY(lib_put(to, magic, sizeof magic));
    KOLO_TRY(lib_put(to, head, sizeof head));
    for (const prepared *p = NULL; (p = lib_map_next(&all->map, p ? &p->link : NULL));)
        if (named(p)) KOLO_TRY(put_codec(to, p));
    return lib_put_number(to, kolo_crc32c(0, to->data, (size_t)to->size));
}

/* Others' requests are carried where this rank has joined. */
static int check_idle(const kolo_group *g)
{
    for (int i = 0; i < LIB_TRACKS; i++)
        if (g->named->track[i].execution || g->named->first)
            return kolo_fail(KOLO_EINPUT,
                             "comm: named requests of group %d are under way: wait for the join first",
                             g->id);
    return 0;
}

int kolo_group_state_save(kolo_group *group, void **state, size_t *bytes)
{
    lib_bytes to = {0};
    if (!state || !bytes) return kolo_fail(KOLO_EINPUT, "comm: no place is given for the state");
    *state = NULL;
    *bytes = 0;
    KOLO_TRY(lib_check_group(group));
    lib_group_drain(group);
    lib_turn_take(group->world);
    int rc = check_idle(group);
    if (rc == 0) rc = put_all(&to, group);
    lib_turn_give(group->world);
    if (rc < 0) {
        lib_bytes_free(&to);
        return rc;
    }
    *state = to.data;
    *bytes = (size_t)to.size;
    return 0;
}

static int damaged(void)
{
    return kolo_fail(KOLO_EINPUT,
                     "comm: this is no state that kolo_group_state_save has written, or it is damaged");
}

static int take_codec(struct lib_prepared *all, const kolo_group *g, lib_reader *from)
{
    codec_want w = {0};
    prepared *p;
    w.name = lib_take_text(from);
    w.words = lib_take_text(from);
    w.elements = lib_take_number(from);
    w.rows = lib_take_number(from);
    int64_t bytes = lib_take_number(from);
    const void *state = lib_take(from, (size_t)bytes);
    if (!state || !*w.name || !*w.words || w.elements < 0 || w.rows < 1) return damaged();
    KOLO_TRY(find_codec(all, g, &w, &p));
    return comm_codec_restore(p->codec, state, (size_t)bytes);
}

static int take_all(struct lib_prepared *all, const kolo_group *g, const void *state, size_t bytes)
{
    lib_reader from = {state, (const char *)state + bytes, false};
    const char *mark = lib_take(&from, sizeof magic);
    if (!mark || memcmp(mark, magic, sizeof magic) != 0 || bytes % 8 || lib_take_number(&from) != VERSION)
        return damaged();
    int64_t rank = lib_take_number(&from), size = lib_take_number(&from), codecs = lib_take_number(&from),
            sum;
    if (from.bad || bytes < sizeof sum) return damaged();
    memcpy(&sum, (const char *)state + bytes - sizeof sum, sizeof sum);
    if (sum != (int64_t)kolo_crc32c(0, state, bytes - sizeof sum)) return damaged();
    if (rank != g->rank || size != g->size)
        return kolo_fail(KOLO_EINPUT, "comm: the state is member %lld's of %lld, this is member %d of %d",
                         (long long)rank, (long long)size, g->rank, g->size);
    for (int64_t i = 0; i < codecs; i++) KOLO_TRY(take_codec(all, g, &from));
    return 0;
}

int kolo_group_state_restore(kolo_group *group, const void *state, size_t bytes)
{
    struct lib_prepared *all = NULL;
    KOLO_TRY(lib_check_group(group));
    if (!state || (uintptr_t)state % 8)
        return kolo_fail(KOLO_EINPUT,
                         "comm: a state to restore stands at %p: it begins at a multiple of 8 bytes", state);
    if (!(all = kolo_alloc(sizeof *all))) return KOLO_ENOMEM;
    int rc = take_all(all, group, state, bytes);
    lib_group_drain(group);
    lib_turn_take(group->world);
    if (rc == 0) rc = check_idle(group);
    if (rc == 0) {
        struct lib_prepared *before = group->named->prepared;
        group->named->prepared = all;
        all = before;
    }
    lib_turn_give(group->world);
    lib_prepared_free(&all);
    return rc;
}

/* ---- allreduces that are more than a sum by elements: in place on the stage ---------------------------- */

static int find_for(lib_execution *x, prepared **out)
{
    const kolo_request *r = lib_request(x, 0);
    lib_stream *s = x->stream;
    const int track = (int)(x->track - s->track);
    codec_want want = {.words = r->compression, .name = "", .elements = x->count, .rows = 1, .track = track};
    comm_compress config;
    KOLO_TRY(begin_prepared(s));
    if (!r->compression) {
        KOLO_TRY(kolo_grow(&s->counts, &s->counts_room, x->batch.entries, sizeof *s->counts));
        for (int i = 0; i < x->batch.entries; i++) s->counts[i] = lib_elements(lib_request(x, i), 0);
        const comm_adasum_problem problem = {.me = s->group->rank,
                                             .members = s->group->size,
                                             .type = r->type,
                                             .count = s->counts,
                                             .tensors = x->batch.entries};
        const int64_t number[] = {track, r->type};
        KOLO_TRY(begin_key(&s->prepared->key, "", "adasum", number, sizeof number));
        KOLO_TRY(lib_put(&s->prepared->key, s->counts, (size_t)problem.tensors * sizeof *s->counts));
        return find(s->prepared, s->group, make_adasum, &problem, out);
    }
    KOLO_TRY(comm_compress_parse(&config, r->compression));
    if (!comm_compress_is_elementwise(config.kind)) {
        if (r->dims > 1 && r->dim[0]) want.rows = r->dim[0];
        if (r->name) want.name = r->name, want.track = 0; /* one request of a name at a time */
    }
    return find_codec(s->prepared, s->group, &want, out);
}

int lib_reduce_prepared(lib_execution *x)
{
    const kolo_request *first = lib_request(x, 0);
    prepared *p = NULL;
    const int rc = find_for(x, &p);
    if (rc == KOLO_ENOMEM) return rc; /* of this member alone, and the others wait for it: the world breaks */
    if (rc < 0) {                     /* all members have brought the same, so all end here */
        lib_fail_all(x, KOLO_EINPUT, kolo_error_text());
        return x->step = NULL, 1;
    }
    KOLO_TRY(lib_pack(x, first->type));
    const comm_schedule *schedule = p->codec ? comm_codec_begin(p->codec) : &p->schedule;
    return lib_run_schedule(x, schedule, x->work, x->work, kolo_dtype_size(first->type), first->type,
                            KOLO_SUM, lib_unpack);
}
