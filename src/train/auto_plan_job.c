/* plan=auto and halo=auto of a job: rank 0 searches, all take what it has chosen. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "train/auto_plan.h"
#include "train/parts.h"

/* Of a run that is taken up again, the options that it began with; 1: it is a new one. */
static int read_begun(const kolo_options *o, kolo_options *was)
{
    char *path = *o->run ? kolo_format("%s/recipe.yaml", o->run) : NULL;
    const bool there = path && kolo_file_exists(path);
    int rc = 1;
    if (there) {
        kolo_options_default(was);
        rc = kolo_options_read_record(was, path);
        if (rc < 0) kolo_options_free(was);
    }
    free(path);
    return rc;
}

/* A run that is taken up again keeps the blocks, parts and buckets that it began with. *begun: it is one. */
static int keep_numbers(kolo_options *o, bool *begun)
{
    kolo_options was;
    const int rc = read_begun(o, &was);
    *begun = rc == 0;
    if (rc) return rc < 0 ? rc : 0;
    o->bucket_mb = was.bucket_mb;
    if (!o->micro_batch) o->micro_batch = was.micro_batch;
    if (o->halo == KOLO_halo_auto) o->halo = was.halo;
    int kept = 0;
    if (!strcmp(o->spatial, "1x1") && o->tensor == 1) {
        kept = kolo_option_set(o, "spatial", was.spatial, "plan=auto");
        o->tensor = was.tensor;
    }
    kolo_options_free(&was);
    return kept;
}

/* What is priced here is a node of CPUs. */
static int check_node(kolo_session *s, const char *key)
{
    bool overlap;
    int sharers;
    KOLO_TRY(session_choose_device(s));
    KOLO_TRY(kolo_launch_overlap(s->launch, &overlap, &sharers)); /* it counts the node's processors */
    if (!s->cuda && s->launch->nodes == 1) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s=auto prices a node of CPUs, and this job has %s: search on a login node (kolo plan "
                     "RECIPE ranks=%d cluster=NAME %s --write FILE) and give plan=FILE",
                     key, s->cuda ? "GPUs" : "several nodes", s->launch->size,
                     strcmp(key, "plan") ? "halo=auto" : "--search");
}

/* plan=auto. */
static int search_plan(kolo_session *s, kolo_auto_plan *all)
{
    enum { SECONDS = 20 };
    kolo_options *o = s->options;
    kolo_auto_plan r = {.plain = 0};
    int rc = 0;
    KOLO_TRY(kolo_auto_plan_check(o, s->launch->size));
    KOLO_TRY(check_node(s, "plan"));
    const int64_t ranks = o->ranks;
    bool begun;
    if (s->launch->rank == 0) {
        rc = keep_numbers(o, &begun);
        o->ranks = s->launch->size;
        if (rc == 0) rc = kolo_auto_plan_choose(o, NULL, begun, SECONDS, &r);
        o->ranks = ranks;
        if (rc == 0)
            kolo_info("plan=auto: %s; %.3f ms a step, played; %s (%lld plans played in %.1f s)",
                      *r.text ? r.text : "plain data parallel", r.seconds * 1e3, r.why, (long long)r.priced,
                      r.took);
    }
    if (rc == 0) rc = kolo_launch_exchange(s->launch, &r, sizeof r, all);
    if (rc == 0 && s->launch->rank > 0) {
        rc = keep_numbers(o, &begun);
        if (rc == 0) rc = kolo_auto_plan_take(o, all[0].text);
    }
    return rc;
}

/* By rank 0. A run that is taken up again keeps the halos that it began with. */
static int find_halo(kolo_session *s, kolo_auto_halo *r)
{
    kolo_options *o = s->options, was;
    const int rc = read_begun(o, &was);
    if (rc < 0) return rc;
    if (rc == 0) {
        r->chosen = was.halo;
        kolo_options_free(&was);
        return 0;
    }
    const int64_t ranks = o->ranks;
    o->ranks = s->launch->size;
    const int chosen = kolo_auto_halo_choose(o, NULL, r);
    o->ranks = ranks;
    KOLO_TRY(chosen);
    kolo_info("halo=auto: %s; played, a step takes %.3f ms with narrow halos, %.3f with wide ones",
              r->chosen == KOLO_halo_wide ? "wide" : "narrow", r->seconds[0] * 1e3, r->seconds[1] * 1e3);
    return 0;
}

/* halo=auto. */
static int choose_halo(kolo_session *s, kolo_auto_halo *all)
{
    kolo_auto_halo r = {.chosen = -1};
    KOLO_TRY(check_node(s, "halo"));
    if (s->launch->rank == 0) KOLO_TRY(find_halo(s, &r));
    KOLO_TRY(kolo_launch_exchange(s->launch, &r, sizeof r, all));
    s->options->halo = all[0].chosen;
    return 0;
}

int session_auto_plan(kolo_session *s)
{
    const kolo_options *o = s->options;
    const bool plan = !strcmp(o->plan, "auto"),
               halo = !plan && o->halo == KOLO_halo_auto && strcmp(o->spatial, "1x1");
    const int trains = KOLO_SESSION_TRAIN, apart = KOLO_SESSION_PLAN_ONLY | KOLO_SESSION_DATA_ONLY;
    if ((!plan && !halo) || !(s->parts & trains) || (s->parts & apart)) return 0;
    const size_t each = plan ? sizeof(kolo_auto_plan) : sizeof(kolo_auto_halo);
    void *all = kolo_alloc((size_t)s->launch->size * each);
    if (!all) return KOLO_ENOMEM;
    const int rc = plan ? search_plan(s, all) : choose_halo(s, all);
    free(all);
    return rc;
}
