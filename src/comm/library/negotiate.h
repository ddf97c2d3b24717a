/* How names are agreed on, without any transport: for negotiate*.c, cache.c, fuse.c, stall.c, tune.c,
 * and tests that play all members in one process.
 *
 * The members of a group form a tree: members of a node hang below the node's lowest member, these leaders
 * below one another (LIB_RADIX each), the group's lowest member, the coordinator, is the root. Messages go up
 * and down the edges of the tree, in order, and only when there is something to say: a group in which nothing
 * is submitted sends nothing, and nobody has to take part in a round to let it begin.
 *
 *   up    "everybody below me is ready for these bits", and what single members say: claims, joins, answers
 *   down  an agreement: numbered, the same bytes for all, applied in order by all, the coordinator included
 *
 * A name that has been agreed on before has a slot: then being ready for it is one bit, and inner members
 * forward the AND of the bits below them. Slots are given and taken by agreements alone, so they are the same
 * on all members. A request whose name has no slot, or that differs from the slot's, is a claim: it travels
 * to the coordinator, which compares what all members brought.
 *
 * An up message says which agreement its sender had applied (`seen`): what it says of slots that changed
 * later counts for nothing, its sender says it anew when it learns of the change. */
#ifndef KOLO_COMM_NEGOTIATE_H
#define KOLO_COMM_NEGOTIATE_H

#include "comm/library/library.h"

enum { LIB_RADIX = 8, LIB_REMEMBERED = 64 << 20 /* bytes of names that are known, at most */ };

/* ---- bytes and names (negotiate_bytes.c) --------------------------------------------------------------- */

/* Items are multiples of 8 bytes long, so whatever is read from a message is aligned. */
typedef struct lib_bytes {
    char *data;
    int64_t size, capacity;
} lib_bytes;
int lib_append(lib_bytes *to, const void *data, size_t bytes); /* data NULL: zeros */
int lib_put(lib_bytes *to, const void *data, size_t bytes);    /* the same, padded to 8 with zeros */
int lib_put_number(lib_bytes *to, int64_t number);
#define LIB_PUT(to, ...) lib_put(to, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}))
int lib_put_text(lib_bytes *to, const char *text); /* length, bytes, NUL */
void lib_bytes_free(lib_bytes *bytes);

typedef struct lib_reader {
    const char *at, *end;
    bool bad; /* something was longer than what is there */
} lib_reader;
const void *lib_take(lib_reader *from, size_t bytes); /* NULL: bad */
int64_t lib_take_number(lib_reader *from);            /* 0: bad, or 0 */
const char *lib_take_text(lib_reader *from);          /* "": bad, or empty */
int lib_reader_end(const lib_reader *from);           /* KOLO_EINTERNAL if bad or not read to its end */

uint64_t lib_hash(const void *data, size_t bytes);
/* The key stays where it is while the link is in the map, whose keys are unlike one another. */
int lib_map_add(lib_map *map, lib_link *link, const void *key, size_t bytes);
void lib_map_remove(lib_map *map, lib_link *link);
/* What holds the link, as its first field; NULL: there is none. */
void *lib_map_find(const lib_map *map, const void *key, size_t bytes);
void *lib_map_next(const lib_map *map, const lib_link *link); /* of all, in any order; link NULL: the first */
void lib_map_free(lib_map *map);

/* ---- what is brought (negotiate_describe.c) ------------------------------------------------------------ */

/* In a message name, text, compression, row and splits follow it, and its pointers say nothing; where it was
 * read they lead there. */
typedef struct lib_want {
    kolo_request r; /* without vectors */
    uint64_t signature;
    const char *text; /* as mismatches name it */
    /* what its member knows of rows (lib_rows), and how many splits there are */
    int64_t first, rows, splits;
    const int64_t *row;
    int32_t compressed;
    int32_t gpu;    /* its vectors lie in GPUs' memory */
    int32_t faulty; /* wrong in itself; text says why */
    int32_t spare;
} lib_want;
/* One request, or all of a bundle. */
typedef struct lib_descriptors {
    lib_want **want;
    int64_t wants, capacity;
    lib_bytes bytes; /* what it was read from */
    lib_bytes key;   /* all names, each with its NUL */
} lib_descriptors;

int lib_write_entries(lib_bytes *to, lib_entry *const *entry, int64_t entries, int me, int members);
/* What lib_write_entries has written is copied; memory is kept from use to use. */
int lib_read_wants(lib_descriptors *wants, const void *data, size_t bytes);
void lib_descriptors_free(lib_descriptors *wants);
bool lib_descriptors_equal(const lib_descriptors *left, const lib_descriptors *right);
int lib_write_name(lib_bytes *key, const char *name); /* behind the others */

/* ---- fusion (fuse.c) ----------------------------------------------------------------------------------- */

/* Deals requests to batches: one batch for those of the same kind as long as their bytes stay within
 * fusion_bytes, however many of other kinds stand between them; a bundle's of one kind are never torn apart.
 * fixed: nothing but a bundle is fused. order: [begins] a permutation; batch b is order[start[b]] ...
 * order[start[b + 1] - 1], start: [begins + 1]; scratch: [2 * begins]. Returns how many batches. A function
 * of its arguments, so all members make the same batches. */
int64_t lib_fuse(const lib_begin *begin, int64_t begins, size_t fusion_bytes, bool fixed, int64_t *order,
                 int64_t *start, int64_t *scratch);

/* ---- names that are known (cache.c) -------------------------------------------------------------------- */

typedef struct lib_bundle lib_bundle;
typedef struct lib_name lib_name;
typedef struct lib_core lib_core;

typedef struct lib_slot {
    lib_link link; /* in core->known, while used */
    int64_t number;
    bool used;
    bool doomed; /* coordinator: its end is on its way */
    lib_descriptors wants;
    uint64_t changed;     /* agreement that gave or took it */
    uint64_t begun;       /* agreement in which it began last */
    lib_bundle *mine;     /* of this member: reported by this bit, and not agreed on yet */
    int64_t contributors; /* below and at this member, of those who are ready */
    int64_t brought;      /* contributors of an item that is being read */
} lib_slot;

int lib_slot_give(lib_core *core, int64_t number, const lib_descriptors *wants, uint64_t agreement);
void lib_slot_take(lib_core *core, int64_t number, uint64_t agreement); /* mine is the caller's affair */
/* A slot to be given: a free one, else the one that was not used for longest; -1: all are about to begin.
 * free: whether a free one will do. */
int64_t lib_slot_choose(const lib_core *core, const uint64_t *taken, bool free);

/* ---- the core (negotiate_core.c, negotiate_agree.c) ---------------------------------------------------- */

/* What was submitted together on this member. */
struct lib_bundle {
    lib_link link;              /* in core->waiting */
    lib_bundle *before, *after; /* in the order of submission */
    lib_entry **entry;
    int64_t entries, capacity;
    lib_bytes key;
    double since;
    int64_t slot;    /* reported by this bit; -1: by a claim */
    bool anew;       /* its slot was taken: to be claimed */
    bool stalled;    /* stall.c: the coordinator was told */
    lib_name *ready; /* coordinator: of them, where all are, as claims say */
};

/* The members below one child, or this member alone (the last edge). */
typedef struct lib_edge {
    uint64_t *reported; /* [words] bits */
    int members;
    bool joined, closing; /* all of them */
} lib_edge;

typedef struct lib_core_config {
    int me, members, group;
    const int *node_of, *rank_of; /* [members], the caller's; node_of NULL: one node; rank_of: of the world */
    const char *host;             /* for texts */
    int64_t capacity;             /* slots */
    size_t fusion_bytes;
    double cycle, stall_warning, stall_end;
    bool fixed_order, autotune;
    void (*complete)(lib_entry *entry, int status, const char *text);
} lib_core_config;

struct lib_core {
    lib_core_config c;
    int parent, children, *child; /* members; -1: this is the root */
    int below;                    /* members of this subtree */

    int64_t words;
    lib_slot **slot; /* [capacity], NULL until used */
    lib_map known;
    int bundles;        /* slots that hold one */
    int64_t remembered; /* bytes of what the slots hold */
    lib_map waiting;
    lib_bundle *first, *last, *spare;

    lib_edge *edge;                 /* [children + 1] */
    uint64_t *passed;               /* [words] bits reported upwards, or ready at the coordinator */
    uint64_t *going;                /* [words] bits that an item is written of */
    bool changed;                   /* reported or joined, since bits were last passed */
    bool sent_joined, sent_closing; /* the parent knows */
    bool joined, closed;
    lib_entry *joining;
    uint64_t joins; /* agreement that ended the last join */

    uint64_t seen;      /* agreements applied */
    lib_bytes item;     /* being written, for lib_core_submit */
    lib_bytes outgoing; /* items for the next message upwards */
    lib_bytes up, down; /* messages to the parent, to every child: the caller sends and empties them */

    lib_begin *begin; /* of the agreement being applied */
    int64_t begins, begins_capacity, units;
    int64_t *rows, rows_count, rows_capacity; /* as they come */
    int64_t *order, order_capacity;
    lib_begin *dealt; /* as batches have them */
    int64_t dealt_capacity;
    lib_beginning *batch; /* result */
    int64_t batches, batches_capacity;
    uint64_t number;           /* of batches */
    lib_descriptors *received; /* of this agreement, of names without a slot */
    int64_t received_count, received_capacity;

    double now;         /* of the call under way */
    double next_look;   /* stall.c */
    double finished_at; /* and what this member finished last: */
    char finished[128];

    struct lib_root *root; /* the coordinator's part, else NULL */
};

int lib_core_open(lib_core **core, const lib_core_config *config);
void lib_core_close(lib_core **core);
/* One entry, a bundle, or a join. */
int lib_core_add(lib_core *core, lib_entry *const *entry, int64_t entries, double now);
/* A message of a child (0, 1, ...), or of the parent (-1): then core->batch are the batches that begin, in
 * memory that is good until the next message of the parent, or the next lib_core_send. Negative: the message
 * makes no sense, or there is no memory. */
int lib_core_receive(lib_core *core, int child, const void *data, int64_t bytes, double now);
/* Fills `up`; at the coordinator, if there is something to agree on, `down` and the batches. idle: no batch
 * of this group is under way, so begun requests would begin now: while one is, names gather. */
int lib_core_send(lib_core *core, double now, bool idle);
/* Orderly end: says good-bye; core->closed when all members have. */
void lib_core_end(lib_core *core);

/* For the parts of the core. */
enum lib_item {
    LIB_READY = 1,
    LIB_CLAIM,
    LIB_JOIN,
    LIB_STALLED,
    LIB_ANSWER,
    LIB_ACKNOWLEDGED, /* up */
    LIB_RUN,
    LIB_NEW,
    LIB_DROP,
    LIB_FAIL,
    LIB_JOINED,
    LIB_ASK,
    LIB_BYE,
    /* down */
};
int lib_core_claim(lib_core *core, lib_bundle *unit);
/* What this member says, [kind, member, number, bytes of what follows, ...]: begun in core->item, filled by
 * the caller, then said upwards, or to the coordinator if this is it. */
int lib_core_item(lib_core *core, enum lib_item kind, uint64_t number);
int lib_core_submit(lib_core *core);
int lib_core_apply(lib_core *core, const void *data, int64_t bytes); /* an agreement */
void lib_bundle_drop(lib_core *core, lib_bundle *unit);
lib_bundle *lib_bundle_named(const lib_core *core, const char *name);
static inline bool lib_bit(const uint64_t *word, int64_t i) { return word[i / 64] >> (i % 64) & 1; }
static inline void lib_bit_set(uint64_t *word, int64_t i) { word[i / 64] |= (uint64_t)1 << (i % 64); }
static inline void lib_bit_clear(uint64_t *word, int64_t i) { word[i / 64] &= ~((uint64_t)1 << (i % 64)); }

/* The first that is set, from i on; -1: none. */
static inline int64_t lib_bit_next(const uint64_t *word, int64_t words, int64_t i)
{
    for (int64_t w = i / 64; w < words; w++, i = w * 64) {
        const uint64_t left = word[w] >> (i % 64);
        if (left) return i + __builtin_ctzll(left);
    }
    return -1;
}

/* ---- joins (negotiate_agree.c) ------------------------------------------------------------------------- */
int lib_join_begin(lib_core *core, lib_entry *entry);

/* ---- the coordinator (negotiate_root.c, negotiate_fail.c) ---------------------------------------------- */

enum { LIB_UNNAMED = 1 }; /* begins the names of unnamed requests of which members brought unlike ones */
/* What one member brought, of which somebody's is still missing. */
typedef struct lib_claim {
    struct lib_claim *next; /* of the spare ones */
    bool free;
    int member;
    lib_descriptors wants;
} lib_claim;

struct lib_name {
    lib_link link;  /* in root->names; next: of the spare ones */
    lib_bytes name; /* with its NUL */
    lib_claim **by; /* [members] */
    /* [members] failures of the name, with `text`, that this member has not seen: when it submits the name,
     * it fails, too */
    int *unacknowledged;
    bool *killed;                 /* [members] fails now, with what it had brought */
    int claimed, waiting_members; /* members that submitted it; that have unacknowledged failures */
    uint64_t failed;              /* agreement */
    double since;                 /* the first member that has claimed it submitted it */
    bool warned;                  /* stall.c */
    char *text;
    /* Where all members are ready: one of their claims. The name stands for all of its bundle until that
     * begins. */
    const lib_claim *any;
    lib_name *next; /* in root->ready */
};

/* Looks for the settings with which most bytes are agreed on per second of the caller's steps, computing
 * included: one setting at a time goes up or down a list as long as that pays (tune.c). A step is reported by
 * a name that comes back. */
typedef struct lib_tune {
    bool settled;
    int at[2]; /* tried now: indices of the lists of fusion_bytes and cycle */
    int best[2];
    int way, vain; /* up or down a list; ways in succession that were no better */
    bool based;    /* best_score was measured */
    int windows, steps;
    double score[3], time[3]; /* of windows: bytes per second, seconds per step */
    double best_score, best_step, begin;
    int64_t bytes;
} lib_tune;
void lib_tune_begin(lib_tune *tune, size_t fusion_bytes, double cycle);
/* bytes were agreed on; step: with them a step of the caller began. True: the settings are
 * others now, or settled. */
bool lib_tune_note(lib_tune *tune, int64_t bytes, bool step, double now);
size_t lib_tune_fusion(const lib_tune *tune);
double lib_tune_cycle(const lib_tune *tune);

typedef struct lib_root {
    lib_map names;
    lib_name *spare_names;
    lib_claim *spare_claims;
    lib_name *ready, **ready_end; /* what all members are ready for, as they have claimed */
    uint64_t *slots;              /* [words] those that they are ready for by bits */
    int64_t readies;              /* how many, of both */
    double ready_since;
    lib_bytes urgent; /* items that need not wait */
    uint64_t *taken;  /* [words] slots that cannot be given away in this agreement */
    int64_t room;     /* bytes that names without a slot may still have in it */
    bool *joined;     /* [members] */
    int joins, last_joined;
    bool all_closing, evicted;

    bool ask, asking; /* stall.c: a question is due, is under way */
    uint64_t question;
    int answers; /* still missing */
    double asked;
    lib_bytes *answer; /* [members] */

    lib_tune tune;
    int64_t step_slot; /* tells the steps */
    size_t fusion_bytes;
    double cycle;
} lib_root;

/* Slots by bits, from slot 0 on, and of which fewer than `members` have contributed, as LIB_READY and LIB_RUN
 * have them: [number of words, words..., (slot + 1, contributors)..., 0]. write: of core->going; nothing, if
 * no bit is set. read: core->going, and slot->brought. */
int lib_write_slots(lib_core *core, lib_bytes *to, enum lib_item kind, int64_t members);
void lib_read_slots(lib_core *core, int64_t members, lib_reader *from);

int lib_root_open(lib_core *core);
void lib_root_close(lib_core *core);
int lib_root_item(lib_core *core, enum lib_item kind, lib_reader *from); /* what a member says */
int lib_root_ready_slot(lib_core *core, int64_t slot);
int lib_root_send(lib_core *core, bool idle);
/* The slot is taken: a member that has reported its bit claims, and claims are compared. */
int lib_root_doom(lib_core *core, lib_slot *slot);
lib_name *lib_root_name(const lib_core *core, const char *name); /* NULL: unknown */
void lib_root_name_drop(lib_core *core, lib_name *name);
void lib_root_name_over(lib_core *core, lib_name *name); /* its claims are another's, or free */
void lib_root_claim_free(lib_root *root, lib_claim *claim);

/* Fails `name`, and what was submitted together with it, on all members that have brought it (claimed it, or
 * have reported its bit: name->killed); those that have not, joined ones excepted, fail when they do. So
 * every member has one failure. */
int lib_root_fail(lib_core *core, lib_name *name, const char *text);
/* All have brought it, but not the same; something that cannot be done while others have joined;
 * something wrong in itself: */
int lib_root_fail_different(lib_core *core, lib_name *name);
int lib_root_fail_joined(lib_core *core, lib_name *name);
int lib_root_fail_fault(lib_core *core, lib_name *name);
/* The claim of a member with an unacknowledged failure fails; one that is older than the failure is
 * forgotten. *over: it was so, and the claim is freed. */
int lib_root_fail_late(lib_core *core, lib_claim *claim, uint64_t seen, bool *over);
void lib_root_fail_acknowledged(lib_core *core, int member, const char *name);
/* "rank 3", "ranks 0-2, 5": world ranks of the members of which that is true. */
void lib_write_ranks(const lib_core *core, const lib_name *name,
                     bool (*is)(const lib_core *core, const lib_name *name, int member), char *text,
                     size_t bytes);

/* ---- names that some members have not submitted (stall.c) ---------------------------------------------- */
int lib_stall_look(lib_core *core); /* does anything wait too long? */
/* member: what it does */
int lib_stall_answer(lib_core *core, uint64_t question);
/* coordinator: a member waits for a slot */
int lib_stall_slot(lib_core *core, int64_t slot, uint64_t seen);
int lib_stall_answered(lib_core *core, int member, uint64_t question, const char *answer);
/* coordinator: when all have answered, or will not */
int lib_stall_report(lib_core *core);

/* ---- an edge of the tree: messages of any length, in order (negotiate_line.c) -------------------------- */
/* Calls by the thread that holds the turn. */
typedef struct lib_line lib_line;
/* rank: of the world. A place for the first frame is posted. */
int lib_line_open(lib_line **line, comm_router *router, int rank, int tag);
void lib_line_close(lib_line **line);
/* Copies a message; lib_line_send sends what waits. 1: nothing is under way, 0: something
 * is, negative: broken. */
int lib_line_put(lib_line *line, const lib_bytes *message);
int lib_line_send(lib_line *line);
/* 1: *message, good until the next call. */
int lib_line_take(lib_line *line, const void **message, int64_t *bytes);
void lib_line_end(lib_line *line); /* nothing will come any more */

#endif
