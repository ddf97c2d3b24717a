/* kolo-pack: pictures to HDF5 shards. See pack.h for the way a packing goes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "pack.h"

static void print_plan(const packing *p)
{
    const source *s = &p->source;
    printf("%s\n%" PRId64 " pictures, %d classes", p->options_text, s->count, s->classes);
    for (int c = 0; c < s->classes && c < 12; c++) printf("%s%s", c ? ", " : ": ", s->class_names[c]);
    printf("%s\n", s->classes > 12 ? ", ..." : "");
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->count; i++) bytes += s->kind->load ? 0 : s->places[i].bytes;
    if (p->height)
        printf("samples of %d x %d x %d bytes, %.1f MB\n", p->height, p->width, p->channels ? p->channels : 3,
               (double)s->count * p->height * p->width * (p->channels ? p->channels : 3) / 1e6);
    else if (bytes) printf("source files: %.1f MB\n", (double)bytes / 1e6);
    printf("nothing was written (--dry-run)\n");
}

static void print_result(const packing *p, double seconds)
{
    const pack_options *o = &p->options;
    if (o->json) {
        printf("{\"event\":\"done\",\"samples\":%" PRId64 ",\"bytes\":%" PRIu64 ",\"shards\":%d,\"rejects\":%" PRId64
               ",\"seconds\":%.3f}\n",
               p->count, p->bytes, p->shards, p->bad, seconds);
        return;
    }
    fprintf(stderr, "%s: %" PRId64 " samples, %d classes, %.1f MB in %d shard%s, %.0f img/s", o->out, p->count,
            p->source.classes, (double)p->bytes / 1e6, p->shards, p->shards == 1 ? "" : "s",
            seconds > 0 ? (double)p->count / seconds : 0);
    if (p->bad) fprintf(stderr, "; %" PRId64 " rejected, listed in %s-%s.rejects", p->bad, o->name, o->split);
    fprintf(stderr, "\n");
}

static int run(packing *p)
{
    const double begin = kolo_time();
    const bool first = p->launch.rank == 0;
    KOLO_TRY(pack_plan(p));
    if (p->complete) {
        if (first) fprintf(stderr, "%s is complete already\n", p->options.out);
        return 0;
    }
    if (p->options.dry_run) {
        if (first) print_plan(p);
        return 0;
    }
    KOLO_TRY(pack_probe(p));
    KOLO_TRY(pack_layout(p));
    KOLO_TRY(pack_write(p));
    KOLO_TRY(pack_finish(p));
    if (first) {
        print_result(p, kolo_time() - begin);
        if (strcmp(p->options.split, "train") != 0 && !p->stats_given)
            kolo_warn(
                "mean and standard deviation are those of this split; --stats-from TRAIN takes the training split's");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static packing p;
    int rc = pack_options_read(&p.options, argc, argv);
    if (rc < 0) {
        fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
        return -rc;
    }
    if (p.options.help || p.options.version) {
        if (p.options.help) pack_options_help();
        else printf("kolo-pack %s\n", KOLO_VERSION);
        return 0;
    }
    rc = kolo_launch_start(&p.launch, "auto");
    if (rc < 0) {
        fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
        return -rc;
    }
    pack_catch_signals(); /* after MPI has set its own */
    rc = run(&p);
    /* ranks without an error of their own leave the word to the one that has it */
    if (rc < 0 && kolo_error_text()[0]) fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
    fflush(stdout);
    if (rc == KOLO_EINPUT && p.launch.rank == 0 && p.claimed && !p.resumed && kolo_folder_remove(p.work) < 0)
        kolo_warn("%s", kolo_error_text());
    kolo_launch_finish(&p.launch);
    pack_free(&p);
    return -rc;
}
