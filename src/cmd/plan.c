/* kolo plan: prints and checks the plan; computes nothing, for any number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/gpu.h"
#include "cmd/plan_program.h"
#include "cmd/plan_step.h"
#include "kolo/error.h"
#include "plan/matrices.h"
#include "plan/price.h"
#include "train/compression.h"
#include "train/session.h"

/* Where batch or image size change: every phase, and what each shape of a batch needs of the memory that
 * they share. The list above is of the first. */
static void print_shapes(const kolo_session *s)
{
    for (int i = 0; i < s->phases; i++) {
        const kolo_phase *p = &s->phase[i];
        printf("epoch %ld on: batch %ld, ", (long)p->epoch, (long)p->batch);
        if (!p->sides.low) printf("images of %ld x %ld\n", (long)s->width, (long)s->height);
        else if (p->sides.low == p->sides.high) printf("images of %d x %d\n", p->sides.high, p->sides.high);
        else
            printf("images of %d to %d in steps of %d, drawn every %d steps\n", p->sides.low, p->sides.high,
                   p->sides.step, p->sides.every);
    }
    for (int i = 0; i < s->shapes; i++) {
        const kolo_shape *k = &s->shape[i];
        printf("plan %d: %d x %ld images of %ld x %ld, %ld actions, %.1f MiB while it runs\n", i, k->slots,
               (long)k->rows, (long)k->width, (long)k->height, (long)k->plan->actions,
               (double)k->scratch / 0x1p20);
    }
}

/* The GPU of gpu=, or where there is one its table, if Kolo has it; 1: nothing is known of rates. */
static int open_table(kolo_gpu_table *table, const kolo_options *o)
{
    if (!*o->gpu) return 1;
    if (o->device == KOLO_device_cpu)
        return kolo_fail(KOLO_ECONFIG,
                         "gpu=%s plans for a GPU, device=cpu for this machine's cores; give one of them",
                         o->gpu);
    return kolo_gpu_open(table, o->gpu);
}

/* What the step costs, and whether it fits. */
static int print_price(const kolo_session *s, const kolo_gpu_table *table, bool known)
{
    const kolo_options *o = s->options;
    kolo_price price;
    const kolo_rates *rates = known ? &table->rates : NULL;
    KOLO_TRY(kolo_plan_price(s->plan, rates, o->precision == KOLO_precision_tf32, &price));
    KOLO_TRY(kolo_price_print(&price, s->plan, rates, table->where, stdout));
    if (*kolo_backend_note(s->backend)) printf("%s: %s\n", table->name, kolo_backend_note(s->backend));
    return 0;
}

static int print_json(const kolo_session *s)
{
    if (!s->program) return kolo_fail(KOLO_ECONFIG, "kolo plan --json tells of pipelines: give stages=N");
    return kolo_plan_program_print(s, true);
}

static int print_plan(kolo_session *s, const kolo_gpu_table *given, bool all, int n, char **words)
{
    kolo_gpu_table own = {0};
    const kolo_gpu_table *table = given;
    int named = 1, rc = s->program ? kolo_plan_program_print(s, false) : 0;
    if (rc == 0) rc = kolo_plan_print(s->plan, stdout, all);
    comm_compress compress = kolo_compression(s->options, s->phase[0].steps_per_epoch);
    if (rc == 0) rc = kolo_plan_print_compressed(s->plan, s->backend, &compress, stdout);
    if (rc == 0 && s->cuda && !given->name) {
        named = kolo_gpu_open_named(&own, s->device.name);
        if (named < 0) rc = named;
        else table = &own;
    }
    if (rc == 0) rc = print_price(s, table, table->name != NULL);
    if (rc == 0 && s->shapes > 1) print_shapes(s);
    for (int i = 0; i < s->shapes && rc == 0; i++) rc = kolo_plan_check(s->shape[i].plan);
    if (rc == 0)
        printf(
            "checked: every value is written before it is read, no two live values overlap, every bucket is "
            "complete when it is sent\n");
    if (rc == 0 && *s->options->memory) rc = kolo_plan_fit(s, n, words);
    if (rc == 0) rc = kolo_session_print_memory(s, stdout);
    kolo_gpu_close(&own);
    return rc;
}

/* The first word may be a network's name instead of a recipe's. */
static int name_network(int n, char **words, char **made)
{
    *made = NULL;
    for (int i = 0; i < n; i++) {
        if (strchr(words[i], '=') || *words[i] == '-' || kolo_recipe_is(words[i])) continue;
        for (int k = 0; k < kolo_model_count; k++)
            if (!strcmp(kolo_model_table[k].name, words[i])) {
                *made = kolo_format("model=%s", words[i]);
                if (!*made) return KOLO_ENOMEM;
                words[i] = *made;
                return 0;
            }
        return 0;
    }
    return 0;
}

int kolo_command_plan(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    kolo_session session;
    kolo_gpu_table table = {0};
    char *network;
    bool all = kolo_command_flag(&n, words, "--all"), json = kolo_command_flag(&n, words, "--json");
    KOLO_TRY(name_network(n, words, &network));
    int rc = kolo_command_options(&options, n, words, 0, NULL);
    if (rc < 0) free(network);
    KOLO_TRY(rc);
    int parts = KOLO_SESSION_TRAIN | KOLO_SESSION_PLAN_ONLY;
    if (!*options.data || !strcmp(options.data, "synthetic")) parts |= KOLO_SESSION_NO_DATA;
    rc = open_table(&table, &options);
    if (rc >= 0) rc = kolo_command_alone(&launch);
    if (rc == 0)
        rc = kolo_session_open_for(&session, &options, launch, parts, table.name ? &table.gpu : NULL);
    if (rc == 0) {
        rc = json ? print_json(&session) : print_plan(&session, &table, all, n, words);
        kolo_session_close(&session);
    }
    kolo_gpu_close(&table);
    kolo_options_free(&options);
    free(network);
    return rc;
}
