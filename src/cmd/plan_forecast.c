#include "cmd/plan_forecast.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/thread.h"
#include "cmd/plan_drawn.h"
#include "cmd/plan_program.h"
#include "cmd/share_table.h"
#include "kolo/error.h"
#include "plan/servers.h"
#include "train/async.h"
#include "train/plan_file.h"
#include "train/times.h"

/* ---- the cluster ---- */

static int check_words(const kolo_options *o, const kolo_cluster *c, bool scaled)
{
    const long all = (long)(c->fabric.nodes * c->fabric.gpus);
    if (*o->gpu)
        return kolo_fail(KOLO_ECONFIG,
                         "gpu=%s and cluster=%s: the cluster's table names its GPU (%s); leave gpu= out",
                         o->gpu, o->cluster, c->fabric.gpu);
    if (o->device == KOLO_device_cpu)
        return kolo_fail(KOLO_ECONFIG,
                         "cluster=%s has GPUs, device=cpu plans for this machine's cores; give "
                         "one of them",
                         o->cluster);
    if (!o->ranks && !scaled)
        return kolo_fail(KOLO_ECONFIG, "cluster=%s: for how many GPUs? give ranks=N, up to %ld", o->cluster,
                         all);
    if (o->ranks > all)
        return kolo_fail(KOLO_ECONFIG,
                         "ranks=%ld: %s has %ld GPUs (%g nodes of %g); give fewer, or another "
                         "cluster=",
                         (long)o->ranks, c->path, all, c->fabric.nodes, c->fabric.gpus);
    return 0;
}

int kolo_cluster_open(kolo_cluster *c, kolo_options *o, bool scaled)
{
    *c = (kolo_cluster){0};
    int rc = kolo_table_find("clusters", "cluster", o->cluster, &c->path);
    if (rc == 0) rc = kolo_fabric_read(&c->fabric, c->path);
    if (rc == 0 && !(c->name = kolo_table_name(c->path))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = check_words(o, c, scaled);
    if (rc == 0) {
        rc = kolo_gpu_open(&c->gpu, c->fabric.gpu);
        if (rc == KOLO_ECONFIG) rc = kolo_fail_in(KOLO_ECONFIG, "%s: ", c->path);
    }
    if (rc < 0) {
        kolo_cluster_close(c);
        return rc;
    }
    kolo_fabric_rates(&c->fabric, &c->gpu.rates);
    c->fabric.share = c->gpu.rates.link_share;
    c->gpu.gpu.memory = (size_t)c->gpu.rates.memory;
    c->gpu.gpu.fabric = &c->fabric;
    c->gpu.gpu.rates = &c->gpu.rates;
    o->device = KOLO_device_cuda;
    return 0;
}

void kolo_cluster_close(kolo_cluster *c)
{
    kolo_gpu_close(&c->gpu);
    free(c->name);
    free(c->path);
    *c = (kolo_cluster){0};
}

/* ---- the forecast of a plan ---- */

typedef struct forecast {
    const kolo_session *session;
    const kolo_cluster *cluster; /* NULL: a node like this */
    kolo_play *play;
    kolo_times_from from;
    int stages, nodes;
    double bytes, exposed; /* that all ranks send; of the rank that waits longest */
    double hours, energy;  /* node hours, kWh of the run; 0: its length, or a node's power, is not known */
} forecast;

/* sync=async: gradients of every worker to the ranks that serve, and weights back; what is its own stays. */
static double async_bytes(const kolo_plan *plan)
{
    const kolo_plan_config *c = &plan->config;
    double bytes = 0;
    size_t from;
    for (int r = c->first_server; r < c->first_server + c->servers; r++) {
        const double pushed = (double)(kolo_plan_pushed(plan, r, &from) - from);
        const int64_t pulled = kolo_plan_served(plan, r + 1) - kolo_plan_served(plan, r);
        bytes += (kolo_workers(c) - !c->first_server) * (pushed + (double)pulled * sizeof(float));
    }
    return bytes;
}

static int forecast_open(forecast *f, const kolo_session *s, const kolo_cluster *c)
{
    const int of_node = c ? (int)c->fabric.gpus : s->ranks;
    *f = (forecast){.session = s, .cluster = c, .stages = s->program ? s->grid.stages : 1};
    f->nodes = (s->ranks + of_node - 1) / of_node;
    KOLO_TRY(kolo_session_play(s, &f->play, &f->from));
    for (int k = 0; k < f->stages; k++) {
        f->bytes += f->play->stage[k].sent * s->replicas;
        if (f->play->stage[k].exposed > f->exposed) f->exposed = f->play->stage[k].exposed;
    }
    f->bytes += async_bytes(s->plan);
    if (kolo_session_length_known(s)) f->hours = f->play->step * (double)s->steps / 3600 * f->nodes;
    f->energy = c ? f->hours * c->fabric.power / 1000 : 0;
    return 0;
}

static void print_stages(const forecast *f)
{
    const kolo_session *s = f->session;
    printf("stage  ranks         compute ms    sums ms  exposed ms    idle ms          bytes  sent a rank\n");
    for (int k = 0; k < f->stages; k++) {
        const kolo_play_stage *t = &f->play->stage[k];
        char ranks[40];
        kolo_drawn_ranks(s, k, ranks, sizeof ranks);
        printf("%5d  %-12s  %10.3f %10.3f  %10.3f %10.3f  %13zu  %11.0f\n", k, ranks, t->busy * 1e3,
               t->sums * 1e3, t->exposed * 1e3, t->idle * 1e3, kolo_session_stage_bytes(s, k), t->sent);
    }
}

static void print_where(const forecast *f)
{
    const kolo_session *s = f->session;
    const kolo_cluster *c = f->cluster;
    if (c)
        printf("cluster %s (%s): %d ranks on %d node%s of %g %s, %g GB/s within, %g GB/s a node between\n",
               c->name, c->path, s->ranks, f->nodes, f->nodes > 1 ? "s" : "", c->fabric.gpus, c->gpu.name,
               c->fabric.link, c->fabric.network);
    else
        printf("a node like this: %d rank%s of %ld thread%s on %d cores\n", s->ranks, s->ranks > 1 ? "s" : "",
               (long)s->options->threads, s->options->threads > 1 ? "s" : "", kolo_cpu_count());
}

static void print_run(const forecast *f)
{
    const kolo_session *s = f->session;
    if (f->hours > 0) {
        printf("run: %lld steps, %.3f hours, %.2f node hours", (long long)s->steps, f->hours / f->nodes,
               f->hours);
        if (f->energy > 0) printf(", at most %.2f kWh (%g W a node)", f->energy, f->cluster->fabric.power);
        printf("\n");
    } else if (s->options->epochs)
        printf("run: give data=DIR or images=N, the training images, for its steps and hours\n");
    else printf("run: give epochs=N or steps=N for its hours\n");
}

static void print_text(const forecast *f)
{
    const kolo_session *s = f->session;
    const kolo_cluster *c = f->cluster;
    const double rows = (double)s->graph->rows * s->plan->config.slots * kolo_session_workers(s);
    print_where(f);
    if (s->program && !c) kolo_plan_program_print(s, f->play);
    print_stages(f);
    printf("step, played: %.3f ms, %.0f img/s (%.0f a rank); ", f->play->step * 1e3, rows / f->play->step,
           rows / f->play->step / s->ranks);
    if (c) printf("nothing was timed\n");
    else
        printf("%d of %d operations were measured in steps here, %d timed alone, %d estimated\n",
               f->from.measured, f->from.operations, f->from.timed,
               f->from.operations - f->from.measured - f->from.timed);
    printf("communication: %.3f GB a step, %.3f ms exposed (%.1f %%); bubble %.1f %%\n", f->bytes / 1e9,
           f->exposed * 1e3, 100 * f->exposed / f->play->step, 100 * f->play->bubble);
    if (c) printf("memory: %zu bytes of the %zu of a GPU\n", kolo_session_rank_bytes(s), c->gpu.gpu.memory);
    if (c) print_run(f);
}

static void print_number(const char *name, double value)
{
    printf(",\"%s\":", name);
    kolo_json_number(stdout, value, 9);
}

static void print_json(const forecast *f)
{
    const kolo_session *s = f->session;
    printf("{\"cluster\":");
    kolo_json_string(stdout, f->cluster ? f->cluster->name : "here");
    /* parts are counted space by space, in each channel by channel; ranks take them in that order */
    const int spaces = s->spatial[0] * s->spatial[1], space = s->across % spaces ? s->across : spaces;
    printf(",\"nodes\":%d,\"grid\":{\"stage\":%d,\"data\":%d,\"shard\":%d,\"space\":%d,\"tensor\":%d}",
           f->nodes, f->stages / s->across, s->replicas / s->shards, s->shards, space, s->across / space);
    printf(",\"ranks\":[");
    for (int r = 0; r < s->ranks; r++) {
        const int stage = f->stages > 1 ? kolo_grid_stage(&s->grid, r) : 0;
        printf("%s{\"rank\":%d,\"stage\":%d", r ? "," : "", r, stage / s->across);
        if (s->across > 1) printf(",\"part\":%d", stage % s->across);
        if (s->program) kolo_plan_program_layers(s, stage);
        printf(",\"bytes\":%zu}", kolo_session_stage_bytes(s, stage));
    }
    printf("]");
    print_number("step_seconds", f->play->step);
    print_number("bubble", f->play->bubble);
    printf(",\"communication\":{\"bytes\":");
    kolo_json_number(stdout, f->bytes, 15);
    print_number("exposed_seconds", f->exposed);
    printf("}");
    if (f->hours > 0) print_number("node_hours", f->hours);
    if (f->energy > 0) print_number("kilowatt_hours", f->energy);
    printf("}\n");
}

/* ---- files ---- */

static int write_file(const forecast *f, const char *option, const char *path,
                      void (*write)(FILE *, const kolo_session *, const kolo_play *))
{
    if (!*path) return 0;
    FILE *file = fopen(path, "w");
    if (!file) return kolo_fail(KOLO_EIO, "%s=%s: %s", option, path, strerror(errno));
    write(file, f->session, f->play);
    const bool failed = ferror(file);
    if (fclose(file) != 0 || failed) return kolo_fail(KOLO_EIO, "%s=%s: %s", option, path, strerror(errno));
    return 0;
}

/* Of a GPU, or memory=. */
static int check_memory(const forecast *f)
{
    if (!f->cluster) return 0; /* kolo_session_print_memory says it */
    const kolo_session *s = f->session;
    const size_t bytes = kolo_session_rank_bytes(s);
    size_t limit = f->cluster->gpu.gpu.memory, given = limit;
    if (*s->options->memory) KOLO_TRY(kolo_session_memory(s, &given));
    if (given < limit) limit = given;
    if (bytes <= limit) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "cluster=%s: a rank needs %zu bytes, %zu more than %s%s; lower micro_batch (now %ld), or "
        "use shard=, stages= or recompute=",
        f->cluster->name, bytes, bytes - limit, given < f->cluster->gpu.gpu.memory ? "memory=" : "its ",
        given < f->cluster->gpu.gpu.memory ? s->options->memory : f->cluster->gpu.name, (long)s->graph->rows);
}

int kolo_plan_forecast(const kolo_session *s, const kolo_cluster *c, bool json, const char *write)
{
    forecast f;
    int rc = forecast_open(&f, s, c);
    if (rc == 0) (json ? print_json : print_text)(&f);
    if (rc == 0) rc = write_file(&f, "timeline", s->options->timeline, kolo_drawn_trace);
    if (rc == 0) rc = write_file(&f, "svg", s->options->svg, kolo_drawn_svg);
    if (rc == 0) rc = check_memory(&f);
    if (rc == 0 && write) rc = kolo_plan_file_write(s, f.play, write);
    kolo_play_destroy(&f.play);
    return rc;
}
