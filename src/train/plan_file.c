#include "train/plan_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/yaml.h"
#include "kolo/error.h"
#include "train/pipeline.h"

enum { VERSION = 1 };

/* The options of a plan, with what the file says of each. */
typedef struct part {
    const char *key, *comment;
    bool numbers; /* the numbers that come out depend on it */
} part;
static const part parts[] = {
    {"stages", "the network is cut into so many, each on ranks of its own", false},
    {"cut", "what the second stage, the third ... begins with", false},
    {"pipeline", "order of the turns: gpipe, 1f1b, interleaved, zero_bubble", false},
    {"chunks", "parts of the network that a stage holds (interleaved)", false},
    {"stages_in_node", "stages of one pipeline are ranks of one node", false},
    {"shard", "what replicas of a stage hold parts of: none, optimizer, gradients, parameters", false},
    {"shard_group", "ranks that share these parts; empty: all replicas", false},
    {"recompute", "activations that are made again: none, blocks, all, auto", false},
    {"bucket_mb", "MiB of gradients that are summed at once", false},
    {"micro_batch", "images of a micro-batch; 0: a rank's part of the batch. Block of local batch norm",
     true},
    {"spatial", "rows x columns of parts that maps are cut into", true},
    {"tensor", "parts that channels of layers are cut into", true},
    {"halo", "what parts read of their neighbours' maps: narrow, all is sent; wide, some is made", true}};
enum { PARTS = sizeof parts / sizeof *parts };
_Static_assert((int)PARTS <= (int)KOLO_PLAN_KEYS, "a place for each");

/* ---- reading ---- */

typedef struct reader {
    kolo_plan_file *file;
    kolo_options *options;
    int ranks;
    char (*where)[KOLO_PLAN_PLACE]; /* the file's */
    bool seen[4];                   /* kolo_plan, network, ranks, parameters */
    bool strategy;                  /* the file is one: kolo_strategy instead of kolo_plan */
} reader;
static const char *const heads[] = {"kolo_plan", "network", "ranks", "parameters"};

static int unknown_key(const char *key, const char *where)
{
    const char *names[PARTS + 5] = {"kolo_plan", "network", "ranks", "parameters", "choices"};
    for (int i = 0; i < PARTS; i++) names[5 + i] = parts[i].key;
    const char *near = kolo_nearest(key, names, PARTS + 5);
    return kolo_fail(KOLO_ECONFIG, "%s: a plan has no key \"%s\"%s%s%s", where, key, near ? "; is \"" : "",
                     near ? near : "", near ? "\" meant?" : "");
}

static int read_number(int64_t *number, const char *key, const char *value, const char *where)
{
    char *end;
    errno = 0;
    *number = strtoll(value, &end, 10);
    if (end != value && !*end && !errno && *number > 0) return 0;
    return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is no number above 0", where, key, value);
}

static int read_head(reader *r, int head, const char *value, const char *where)
{
    kolo_plan_file *f = r->file;
    int64_t *number[] = {&f->version, NULL, &f->ranks, &f->parameters};
    r->seen[head] = true;
    if (number[head]) KOLO_TRY(read_number(number[head], heads[head], value, where));
    if (head == 0 && f->version != VERSION)
        return kolo_fail(KOLO_ECONFIG, "%s: version %s of plans is not known here, %d is; write it anew",
                         where, value, VERSION);
    if (head == 2 && f->ranks != r->ranks)
        return kolo_fail(KOLO_ECONFIG, "%s: this is a plan for %s ranks, and %d are to carry it out", where,
                         value, r->ranks);
    if (head != 1) return 0;
    if (strcmp(value, r->options->model))
        return kolo_fail(KOLO_ECONFIG, "%s: this is a plan for %s, and model=%s", where, value,
                         r->options->model);
    return 0;
}

/* Options that were given say the same, or nothing. */
static int check_given(const reader *r, const kolo_option_entry *e, const char *value, const char *where)
{
    char *given = kolo_option_text(r->options, e);
    kolo_options said;
    if (!given) return KOLO_ENOMEM;
    kolo_options_default(&said);
    int rc = kolo_option_set(&said, e->key, value, where);
    char *wanted = rc == 0 ? kolo_option_text(&said, e) : NULL;
    if (rc == 0 && wanted && strcmp(given, wanted) && strcmp(given, e->default_value))
        rc = kolo_fail(KOLO_ECONFIG, "%s: %s: %s, and %s=%s is given; leave one of them out", where, e->key,
                       value, e->key, given);
    kolo_options_free(&said);
    free(given);
    free(wanted);
    return rc;
}

/* A list of lines "key = value". */
static int read_choices(kolo_plan_file *f, const char *value, const char *where)
{
    free(f->choices);
    snprintf(f->choices_where, sizeof f->choices_where, "%s", where);
    f->choices = kolo_format("%s\n", value);
    if (!f->choices) return KOLO_ENOMEM;
    for (char *line = f->choices; *line; line++) {
        const size_t length = strcspn(line, ",\n");
        line[length] = 0;
        if (length && !strstr(line, " = "))
            return kolo_fail(KOLO_ECONFIG,
                             "%s: choices: \"%s\" is no OPERATION = ALGORITHM; write the plan anew, or leave "
                             "choices out: a clock chooses then",
                             where, line);
        line += length;
        *line = '\n';
    }
    return 0;
}

/* An option of a plan; 1: it is none. */
static int give(void *context, const char *key, const char *value, const char *where)
{
    reader *r = context;
    for (int i = 0; i < PARTS; i++) {
        if (strcmp(key, parts[i].key)) continue;
        snprintf(r->where[i], KOLO_PLAN_PLACE, "%s", where);
        KOLO_TRY(check_given(r, kolo_option_find(key), value, where));
        return kolo_option_set(r->options, key, value, where);
    }
    return 1;
}

static int plan_file_set(void *context, const char *key, const char *value, const char *where)
{
    reader *r = context;
    if (!strcmp(key, "kolo_strategy")) {
        r->strategy = true;
        return read_head(r, 0, value, where);
    }
    for (int i = 0; i < 4; i++)
        if (!strcmp(key, heads[i])) return read_head(r, i, value, where);
    if (r->strategy) return kolo_strategy_add(&r->file->strategy, r->ranks, key, value, where);
    if (!strcmp(key, "choices")) return read_choices(r->file, value, where);
    const int rc = give(r, key, value, where);
    return rc == 1 ? unknown_key(key, where) : rc;
}

static const char *where_of(const reader *r, const char *key)
{
    for (int i = 0; i < PARTS; i++)
        if (!strcmp(parts[i].key, key) && *r->where[i]) return r->where[i];
    return r->file->path;
}

/* What each line allows but all together do not. */
static int check_together(const reader *r)
{
    const kolo_options *o = r->options;
    const int64_t chain = o->stages * o->chunks;
    int64_t names = *o->cut != 0;
    for (const char *c = o->cut; *c; c++) names += *c == ',';
    for (int i = 0; i < 4; i++)
        if (!r->seen[i])
            return kolo_fail(KOLO_ECONFIG,
                             "%s: %s is missing, without which nobody knows what the plan is for",
                             r->file->path, heads[i]);
    if (r->ranks % o->stages)
        return kolo_fail(KOLO_ECONFIG, "%s: stages: %ld do not divide the %d ranks", where_of(r, "stages"),
                         (long)o->stages, r->ranks);
    if (*o->cut && names != chain - 1)
        return kolo_fail(KOLO_ECONFIG, "%s: cut: %ld names, and %ld stages of %ld parts need %ld",
                         where_of(r, "cut"), (long)names, (long)o->stages, (long)o->chunks,
                         (long)(chain - 1));
    if (o->chunks > 1 && !kolo_pipeline[o->pipeline].takes_chunks)
        return kolo_fail(KOLO_ECONFIG, "%s: chunks: %ld, and pipeline: %s has one part a stage",
                         where_of(r, "chunks"), (long)o->chunks, kolo_pipeline[o->pipeline].name);
    return 0;
}

int kolo_plan_file_read(kolo_plan_file *f, kolo_options *o, int ranks)
{
    static const kolo_yaml_form form = {"plan", plan_file_set};
    reader *r;
    *f = (kolo_plan_file){0};
    if (!*o->plan || !strcmp(o->plan, "auto")) return 0;
    f->path = kolo_strdup(o->plan);
    r = kolo_alloc(sizeof *r);
    if (!f->path || !r) {
        free(r);
        return KOLO_ENOMEM;
    }
    *r = (reader){.file = f, .options = o, .ranks = ranks, .where = f->where};
    int rc = kolo_yaml_read(f->path, &form, r);
    if (rc == 0 && r->strategy) rc = kolo_strategy_apply(f->strategy, f->path, give, r);
    if (rc == 0) rc = check_together(r);
    free(r);
    return rc;
}

const char *kolo_plan_file_where(const kolo_plan_file *f, const char *text)
{
    for (int i = 0; i < PARTS; i++) {
        const size_t n = strlen(parts[i].key);
        if (!strncmp(text, parts[i].key, n) && text[n] == '=' && *f->where[i]) return f->where[i];
    }
    return f->path;
}

int kolo_plan_file_check(const kolo_plan_file *f, int64_t parameters)
{
    if (!f->path || f->parameters == parameters) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "%s: this is a plan for a network of %lld parameters, and this one has %lld (classes=, size= "
        "or another option of the network differs)",
        f->path, (long long)f->parameters, (long long)parameters);
}

void kolo_plan_file_check_choices(const kolo_plan_file *f, const kolo_session *s)
{
    char *first = NULL, more[32] = "";
    if (!f->choices || s->launch->rank || s->untimed) return;
    const int64_t count = kolo_backend_unasked(s->backend, &first);
    if (count > 1) snprintf(more, sizeof more, " and %lld more", (long long)count - 1);
    if (first)
        kolo_warn("%s: choices: \"%s\"%s: %s, and so passed over; write the plan anew, or take them out",
                  f->choices_where, first, more,
                  s->options->deterministic ? "with deterministic=true a rule chooses"
                  : count > 1               ? "for operations that this training does not have"
                                            : "for an operation that this training does not have");
    free(first);
}

void kolo_plan_file_close(kolo_plan_file *f)
{
    free(f->path);
    free(f->choices);
    kolo_strategy_destroy(&f->strategy);
    *f = (kolo_plan_file){0};
}

/* ---- writing ---- */

static void write_head(FILE *f, const kolo_session *s, const kolo_play *play)
{
    fprintf(f, "# A plan: who computes what, in which order. `kolo train ... plan=FILE` carries it out,\n"
               "# `kolo plan ... plan=FILE` checks and prices it again after a change.\n");
    if (play)
        fprintf(f, "# A step of %ld images takes %.3f ms, played.\n", (long)s->phase[0].batch,
                play->step * 1e3);
    fprintf(f,
            "kolo_plan: %d            # version of this form\nnetwork: %s\nparameters: %lld\nranks: %d\n\n",
            VERSION, s->options->model, (long long)kolo_graph_parameters(s->graph), s->ranks);
}

static int write_options(FILE *f, const kolo_session *s)
{
    char cut[4096] = "";
    session_cut_names(s, cut, sizeof cut);
    for (int i = 0; i < PARTS; i++) {
        const kolo_option_entry *e = kolo_option_find(parts[i].key);
        char *text = kolo_option_text(s->options, e);
        if (!text) return KOLO_ENOMEM;
        const bool is_cut = !strcmp(parts[i].key, "cut");
        fprintf(f, "# %s%s\n", parts[i].comment, parts[i].numbers ? "; the numbers depend on it" : "");
        if (is_cut) fprintf(f, "cut: [%s]\n", cut);
        else if (*text) fprintf(f, "%s: %s\n", parts[i].key, text);
        else fprintf(f, "%s: \"\"\n", parts[i].key);
        free(text);
    }
    return 0;
}

/* The order of a stage's turns: F forward, B backward, W of weights; the number of the micro-batch, of
 * several chunks behind the chunk's. */
static void write_turns(FILE *f, const kolo_plan *p, int chunks)
{
    static const char letter[KOLO_PASSES] = {'F', 'B', 'W'};
    enum { MOST = 64 };
    for (int i = 0; i < p->turns && i < MOST; i++) {
        const kolo_turn *t = &p->turn[i];
        if (chunks > 1) fprintf(f, " %c%d.%d", letter[t->pass], t->chunk, t->slot);
        else fprintf(f, " %c%d", letter[t->pass], t->slot);
    }
    fprintf(f, "%s\n", p->turns > MOST ? " ..." : "");
}

static void write_stages(FILE *f, const kolo_session *s, const kolo_play *play)
{
    if (!s->program) return;
    fprintf(f, "\n# What follows from it; nobody reads it.\n");
    for (int k = 0; k < s->grid.stages; k++) {
        fprintf(f, "# stage %d: ranks", k);
        for (int r = 0; r < s->replicas && r < 16; r++) fprintf(f, " %d", kolo_grid_rank(&s->grid, k, r));
        fprintf(f, "%s: %zu bytes", s->replicas > 16 ? " ..." : "", kolo_session_stage_bytes(s, k));
        if (play) fprintf(f, ", %.3f ms of computing", play->stage[k].busy * 1e3);
        fprintf(f, "\n#   turns:");
        write_turns(f, s->program->plan[k], s->placement->chunks);
    }
}

static int write_choices(FILE *f, const kolo_session *s)
{
    char *text = s->cuda ? kolo_strdup("") : kolo_backend_choices(s->backend), *save;
    if (!text) return KOLO_ENOMEM;
    if (*text)
        fprintf(f, "\n# Algorithms and layouts that a clock has chosen; without them it does so again.\n");
    bool first = true;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        fprintf(f, "%s\"%s\"", first ? "choices: [" : ",\n  ", line);
        first = false;
    }
    if (!first) fprintf(f, "]\n");
    free(text);
    return 0;
}

int kolo_plan_file_write(const kolo_session *s, const kolo_play *play, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return kolo_fail(KOLO_EIO, "--write %s: %s", path, strerror(errno));
    write_head(f, s, play);
    int rc = write_options(f, s);
    write_stages(f, s, play);
    if (rc == 0) rc = write_choices(f, s);
    const bool failed = ferror(f);
    if ((fclose(f) != 0 || failed) && rc == 0)
        rc = kolo_fail(KOLO_EIO, "--write %s: %s", path, strerror(errno));
    return rc;
}
