/* What allreduces that are more than a sum by elements need from call to call, of one stream: Adasum's
 * schedules and the codecs. A codec that counts rounds or holds something back belongs to a name and stays as
 * long as the group does; the others can be made again, so only those used last are kept. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "comm/core/adasum.h"
#include "comm/compress/compress.h"
#include "comm/library/negotiate.h"
#include "comm/library/parts.h"

/* What one is made for; the same on all members. */
typedef struct lib_codec_state_want {
    const char *words; /* compression; "": Adasum */
    const char *name;  /* "": can be made again */
    int64_t elements;  /* together */
    int64_t rows;      /* codec: of a matrix that stands row by row; 1: no matrix */
    int64_t track;     /* without a name: one run at a time */
    enum kolo_dtype type;
    const int64_t *count; /* [tensors] Adasum's tensors */
    int tensors;
} lib_codec_state_want;

typedef struct lib_codec_state {
    lib_link link;
    uint64_t used; /* without a name: by the clock */
    char *key;     /* [key_bytes] of what it is made for; begins with the name */
    int64_t key_bytes, rows, elements;
    comm_schedule adasum;
    comm_codec *codec;
} lib_codec_state;

enum { SPECIALS = 1024 }; /* without a name */

struct lib_codec_states {
    lib_map map;
    int nameless;
    uint64_t clock;
    lib_bytes key; /* of the one that is looked for */
};

/* ---- memory -------------------------------------------------------------------------------------------- */

static void special_free(lib_codec_state *s)
{
    comm_schedule_free(&s->adasum);
    comm_codec_free(&s->codec);
    free(s->key);
    free(s);
}

void lib_codec_states_free(struct lib_codec_states **out)
{
    struct lib_codec_states *all = *out;
    if (!all) return;
    for (lib_link *link = lib_map_next(&all->map, NULL), *next; link; link = next) {
        next = lib_map_next(&all->map, link);
        special_free((lib_codec_state *)link);
    }
    lib_map_free(&all->map);
    lib_bytes_free(&all->key);
    free(all);
    *out = NULL;
}

static bool named(const lib_codec_state *s) { return s->key[0] != 0; }

static void drop(struct lib_codec_states *all, lib_codec_state *s)
{
    lib_map_remove(&all->map, &s->link);
    all->nameless -= !named(s);
    special_free(s);
}

/* The one without a name that was not used for longest. */
static void drop_oldest(struct lib_codec_states *all)
{
    lib_codec_state *oldest = NULL;
    for (lib_link *link = lib_map_next(&all->map, NULL); link; link = lib_map_next(&all->map, link)) {
        lib_codec_state *s = (lib_codec_state *)link;
        if (!named(s) && (!oldest || s->used < oldest->used)) oldest = s;
    }
    drop(all, oldest);
}

/* ---- making, or finding what was made ------------------------------------------------------------------ */

static int make_codec(lib_codec_state *s, const kolo_group *g, const lib_codec_state_want *w)
{
    comm_matrix matrix = {.at = 0, .groups = 1, .columns = w->rows, .lanes = w->elements / w->rows};
    comm_compress config;
    KOLO_TRY(comm_compress_parse(&config, w->words));
    /* the others: named or not, the same draws */
    if (comm_compress_has_error_feedback(config.kind)) config.seed = lib_hash(w->name, strlen(w->name));
    return comm_codec_make(&s->codec, &config, g->rank, g->size, w->elements, &matrix, w->elements ? 1 : 0);
}

static int make_adasum(lib_codec_state *s, const kolo_group *g, const lib_codec_state_want *w)
{
    comm_adasum_problem problem = {
        .me = g->rank, .members = g->size, .type = w->type, .count = w->count, .tensors = w->tensors};
    return comm_adasum_make(&s->adasum, &problem);
}

/* Name and words, each with its NUL; numbers. */
static int write_key(lib_bytes *key, const lib_codec_state_want *w)
{
    const int64_t number[] = {w->elements, w->rows, w->track, w->type, w->tensors};
    key->size = 0;
    KOLO_TRY(lib_put(key, w->name, strlen(w->name) + 1));
    KOLO_TRY(lib_put(key, w->words, strlen(w->words) + 1));
    KOLO_TRY(lib_put(key, number, sizeof number));
    return w->tensors ? lib_put(key, w->count, (size_t)w->tensors * sizeof *w->count) : 0;
}

static int codec_states_make(struct lib_codec_states *all, const kolo_group *g, const lib_codec_state_want *w,
                             uint64_t hash, lib_codec_state **out)
{
    lib_codec_state *s = kolo_alloc(sizeof *s);
    int rc = s && (s->key = kolo_alloc((size_t)all->key.size)) ? 0 : KOLO_ENOMEM;
    if (rc == 0) rc = *w->words ? make_codec(s, g, w) : make_adasum(s, g, w);
    if (rc == 0) rc = lib_map_add(&all->map, &s->link, hash);
    if (rc < 0) {
        if (s) special_free(s);
        return rc;
    }
    memcpy(s->key, all->key.data, (size_t)all->key.size);
    s->key_bytes = all->key.size;
    s->rows = w->rows;
    s->elements = w->elements;
    s->used = ++all->clock;
    all->nameless += !named(s);
    if (all->nameless > SPECIALS) drop_oldest(all);
    *out = s;
    return 0;
}

static int codec_states_find(struct lib_codec_states *all, const kolo_group *g, const lib_codec_state_want *w,
                             lib_codec_state **out)
{
    KOLO_TRY(write_key(&all->key, w));
    const char *key = all->key.data;
    int64_t bytes = all->key.size;
    uint64_t hash = *w->name ? lib_hash(w->name, strlen(w->name)) : lib_hash(key, (size_t)bytes);
    for (lib_link *link = lib_map_find(&all->map, hash); link; link = lib_map_again(link)) {
        lib_codec_state *s = (lib_codec_state *)link;
        if (strcmp(s->key, w->name) != 0) continue;
        bool same = s->key_bytes == bytes && memcmp(s->key, key, (size_t)bytes) == 0;
        if (!same && !*w->name) continue;
        if (!same) {
            drop(all, s);
            break;
        }
        s->used = ++all->clock;
        return *out = s, 0;
    }
    return codec_states_make(all, g, w, hash, out);
}

/* ---- what is held back, for checkpoints ---------------------------------------------------------------- */

static const char magic[8] = "kolostat";
enum { VERSION = 1 };

static const char *words_of(const lib_codec_state *s)
{
    return s->key + kolo_round_up(strlen(s->key) + 1, 8);
}

static int put_special(lib_bytes *to, const lib_codec_state *s)
{
    size_t bytes = comm_codec_state_bytes(s->codec);
    KOLO_TRY(lib_put_text(to, s->key, strlen(s->key)));
    KOLO_TRY(lib_put_text(to, words_of(s), strlen(words_of(s))));
    KOLO_TRY(LIB_PUT(to, s->elements, s->rows, (int64_t)bytes));
    KOLO_TRY(lib_put(to, NULL, bytes));
    comm_codec_save(s->codec, to->data + to->size - kolo_round_up(bytes, 8));
    return 0;
}

static int put_all(lib_bytes *to, const kolo_group *g)
{
    const struct lib_codec_states *all = g->named->specials;
    int64_t head[] = {VERSION, g->rank, g->size, all ? all->map.count - all->nameless : 0};
    KOLO_TRY(lib_put(to, magic, sizeof magic));
    KOLO_TRY(lib_put(to, head, sizeof head));
    for (const lib_link *link = NULL; all && (link = lib_map_next(&all->map, link));)
        if (named((const lib_codec_state *)link)) KOLO_TRY(put_special(to, (const lib_codec_state *)link));
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

static int take_special(struct lib_codec_states *all, const kolo_group *g, lib_reader *from)
{
    lib_codec_state_want w = {.type = KOLO_F32};
    lib_codec_state *s;
    w.name = lib_take_text(from, NULL);
    w.words = lib_take_text(from, NULL);
    w.elements = lib_take_number(from);
    w.rows = lib_take_number(from);
    int64_t bytes = lib_take_number(from);
    const void *state = bytes < 0 ? NULL : lib_take(from, (size_t)bytes);
    if (!state || from->bad || !*w.name || !*w.words || w.elements < 0 || w.rows < 1) return damaged();
    KOLO_TRY(codec_states_find(all, g, &w, &s));
    return comm_codec_restore(s->codec, state, (size_t)bytes);
}

static int take_all(struct lib_codec_states *all, const kolo_group *g, const void *state, size_t bytes)
{
    lib_reader from = {state, (const char *)state + bytes, false};
    const char *mark = lib_take(&from, sizeof magic);
    if (!mark || memcmp(mark, magic, sizeof magic) != 0 || bytes % 8 || lib_take_number(&from) != VERSION)
        return damaged();
    int64_t rank = lib_take_number(&from), size = lib_take_number(&from), specials = lib_take_number(&from),
            sum;
    if (from.bad || bytes < sizeof sum) return damaged();
    memcpy(&sum, (const char *)state + bytes - sizeof sum, sizeof sum);
    if (sum != (int64_t)kolo_crc32c(0, state, bytes - sizeof sum)) return damaged();
    if (rank != g->rank || size != g->size)
        return kolo_fail(KOLO_EINPUT, "comm: the state is member %lld's of %lld, this is member %d of %d",
                         (long long)rank, (long long)size, g->rank, g->size);
    for (int64_t i = 0; i < specials; i++) KOLO_TRY(take_special(all, g, &from));
    return 0;
}

int kolo_group_state_restore(kolo_group *group, const void *state, size_t bytes)
{
    struct lib_codec_states *all = NULL;
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
        struct lib_codec_states *before = group->named->specials;
        group->named->specials = all;
        all = before;
    }
    lib_turn_give(group->world);
    lib_codec_states_free(&all);
    return rc;
}

/* ---- allreduces that are more than a sum by elements: in place on the stage ---------------------------- */

static int execute_special_find(lib_execution *x, lib_codec_state **out)
{
    const kolo_request *r = lib_request(x, 0);
    lib_stream *s = x->stream;
    lib_codec_state_want want = {.words = "",
                                 .name = "",
                                 .elements = x->count,
                                 .rows = 1,
                                 .track = x->track - s->track,
                                 .type = r->type};
    comm_compress config = {.kind = COMM_NONE};
    if (!s->specials && !(s->specials = kolo_alloc(sizeof *s->specials))) return KOLO_ENOMEM;
    if (r->compression) {
        KOLO_TRY(comm_compress_parse(&config, r->compression));
        want.words = r->compression;
    } else {
        KOLO_TRY(kolo_grow(&s->counts, &s->counts_room, x->batch.entries, sizeof *s->counts));
        for (int i = 0; i < x->batch.entries; i++) s->counts[i] = lib_elements(lib_request(x, i), 0);
        want.count = s->counts;
        want.tensors = x->batch.entries;
    }
    if (r->compression && !comm_compress_is_elementwise(config.kind)) {
        if (r->dims > 1 && r->dim[0]) want.rows = r->dim[0];
        if (r->name) want.name = r->name, want.track = 0; /* one request of a name at a time */
    }
    return codec_states_find(s->specials, s->group, &want, out);
}

int lib_codec_state_allreduce(lib_execution *x)
{
    const kolo_request *first = lib_request(x, 0);
    lib_codec_state *special = NULL;
    const int rc = execute_special_find(x, &special);
    if (rc == KOLO_ENOMEM) return rc; /* of this member alone, and the others wait for it: the world breaks */
    if (rc < 0) {                     /* all members have brought the same, so all end here */
        lib_fail_all(x, KOLO_EINPUT, kolo_error_text());
        return x->step = NULL, 1;
    }
    KOLO_TRY(lib_pack(x, first->type));
    const comm_schedule *schedule = special->codec ? comm_codec_begin(special->codec) : &special->adasum;
    return lib_run_schedule(x, schedule, x->work, x->work, kolo_dtype_size(first->type), first->type,
                            KOLO_SUM, lib_unpack);
}
