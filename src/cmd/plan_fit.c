/* kolo plan memory=: which ways of holding the network fit, and how fast each is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/plan_fit.h"
#include "kolo/error.h"
#include "train/times.h"

/* Options that ways differ in, and those that only some of them have. */
static const char *const varied[] = {"shard",  "shard_group", "reshard", "offload",        "offload_path",
                                     "stages", "pipeline",    "chunks",  "stages_in_node", "cut",
                                     "rank",   "timeline",    "memory",  "recompute",      "stash"};

typedef struct way {
    char text[64]; /* its options, a word each */
    size_t bytes;  /* of the largest rank */
    double seconds;
    bool fits;
} way;

typedef struct fitting {
    const kolo_session *session; /* of the command */
    int n;
    char **words;
    size_t limit;
    int best; /* way number; -1: none fits */
    double best_seconds;
} fitting;

static bool is_varied(const char *word)
{
    const char *name = strncmp(word, "--", 2) ? word : word + 2;
    for (size_t i = 0; i < sizeof varied / sizeof *varied; i++) {
        const size_t length = strlen(varied[i]);
        if (!strncmp(name, varied[i], length) && name[length] == '=') return true;
    }
    return false;
}

/* The command's words but those that are varied, then the way's. [*count] owned, as its text. */
static char **words_of(const fitting *f, char *text, int *count)
{
    char **words = kolo_alloc((size_t)(f->n + 8) * sizeof *words), *save;
    *count = 0;
    for (int i = 0; words && i < f->n; i++)
        if (!is_varied(f->words[i])) words[(*count)++] = f->words[i];
    for (char *word = strtok_r(text, " ", &save); words && word; word = strtok_r(NULL, " ", &save))
        words[(*count)++] = word;
    return words;
}

/* Of a session that is planned. */
static int measure(const kolo_session *s, way *w)
{
    kolo_play *play = NULL;
    w->bytes = kolo_session_rank_bytes(s);
    KOLO_TRY(kolo_session_play(s, &play, NULL));
    w->seconds = play->step;
    kolo_play_destroy(&play);
    return 0;
}

static int plan_way(fitting *f, way *w)
{
    kolo_options options;
    kolo_session session;
    char text[sizeof w->text + 32] = "";
    int count;
    kolo_append(text, sizeof text, "%s memory=%zu", w->text, f->limit);
    char **words = words_of(f, text, &count);
    int rc = words ? kolo_command_options(&options, count, words, 0, NULL) : KOLO_ENOMEM;
    free(words);
    KOLO_TRY(rc);
    const int parts = f->session->parts | KOLO_SESSION_QUIET;
    rc = kolo_session_open_for(&session, &options, f->session->launch, parts, f->session->gpu);
    if (rc == 0) {
        rc = measure(&session, w);
        w->fits = w->bytes <= f->limit;
        kolo_session_close(&session);
    }
    kolo_options_free(&options);
    return rc;
}

static void print_way(fitting *f, way *w, int number, int rc)
{
    if (rc < 0) {
        printf("  %-36s not possible: %.120s\n", *w->text ? w->text : "copies", kolo_error_text());
        return;
    }
    printf("  %-36s %14zu  %-4s %12.3f\n", *w->text ? w->text : "copies", w->bytes, w->fits ? "yes" : "no",
           w->seconds * 1e3);
    const double better = 0.99; /* a clock is not surer: of equals the first, which does least */
    if (!w->fits || (f->best >= 0 && w->seconds >= better * f->best_seconds)) return;
    f->best = number;
    f->best_seconds = w->seconds;
}

/* Ways that a number of ranks has; [*ways] */
static void list_ways(const kolo_session *s, way *all, int *ways)
{
    static const char *const alone[] =
        {"", "stash=lossless", "offload=optimizer", "offload=parameters", "recompute=auto", "recompute=all"},
                             *const many[] = {"shard=optimizer", "shard=gradients", "shard=parameters",
                                              "shard=parameters recompute=auto"};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (!s->cuda || strncmp(alone[i], "offload", 7))
            snprintf(all[(*ways)++].text, sizeof all->text, "%s", alone[i]);
    for (size_t i = 0; s->ranks > 1 && i < sizeof many / sizeof *many; i++)
        snprintf(all[(*ways)++].text, sizeof all->text, "%s", many[i]);
    for (int stages = 2, listed = 0; stages <= s->ranks && listed < 4; stages++) {
        if (s->ranks % stages) continue;
        listed++;
        snprintf(all[(*ways)++].text, sizeof all->text, "stages=%d", stages);
        snprintf(all[(*ways)++].text, sizeof all->text, "stages=%d recompute=auto", stages);
        if (stages < s->ranks)
            snprintf(all[(*ways)++].text, sizeof all->text, "stages=%d shard=gradients", stages);
    }
}

int kolo_plan_fit(const kolo_session *s, int n, char **words)
{
    way all[24] = {{{0}, 0, 0, false}};
    int ways = 0;
    fitting f = {.session = s, .n = n, .words = words, .best = -1};
    KOLO_TRY(kolo_session_memory(s, &f.limit));
    list_ways(s, all, &ways);
    printf("\nways to hold it on %d rank%s, %zu bytes each\n  %-36s %14s  %-4s %12s\n", s->ranks,
           s->ranks > 1 ? "s" : "", f.limit, "options", "bytes a rank", "fits", "ms a step");
    for (int i = 0; i < ways; i++) {
        const int rc = plan_way(&f, &all[i]);
        if (rc < 0 && rc != KOLO_ECONFIG) return rc;
        print_way(&f, &all[i], i, rc);
        fflush(stdout);
    }
    if (f.best >= 0)
        printf("the fastest that fits: %s\n", *all[f.best].text ? all[f.best].text : "copies, as it is");
    else printf("none fits: lower micro_batch, use precision=bf16, or more ranks\n");
    printf("(played for a node like this one; `kolo bench --tune kernels` measures what is priced)\n");
    return 0;
}
