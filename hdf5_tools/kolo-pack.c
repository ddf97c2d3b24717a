/* kolo-pack: pictures to HDF5 shards. See pack.h for the way a packing goes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "pack.h"

/* What would be written. Pictures that are made anew as JPEG have sizes that only making them tells. */
static void print_plan(const packing *p)
{
    const source *s = &p->source;
    const pack_options *o = &p->options;
    const int channels = p->channels ? p->channels : 3;
    int64_t bytes = 0, unknown = 0, boxes = 0, tags = 0;
    for (int64_t i = 0; i < p->slot_count; i++) {
        const int64_t from = p->order[i], known = source_known_bytes(s, from);
        bytes += known > 0 ? known : 0;
        unknown += known < 0;
        boxes += (int64_t)(s->box_offsets[from + 1] - s->box_offsets[from]);
        tags += (int64_t)(s->tag_offsets[from + 1] - s->tag_offsets[from]);
    }
    const bool raw = o->encoding == KOLO_ENCODING_RAW, kept = o->resize == PACK_RESIZE_NONE && !o->crop && !unknown;
    if (raw) bytes = p->slot_count * p->height * p->width * channels;
    const int shards = raw || kept ? pack_shard_count(o, (uint64_t)bytes) : o->shards;
    if (o->json) {
        printf("{\"event\":\"plan\",\"split\":\"%s\",\"samples\":%" PRId64 ",\"of\":%" PRId64
               ",\"classes\":%d,\"boxes\":%" PRId64 ",\"tags\":%" PRId64 ",\"annotations_rejected\":%" PRId64
               ",\"height\":%d,\"width\":%d,\"channels\":%d,\"shards\":%d,\"%s\":%" PRId64 "}\n",
               o->out_split, p->slot_count, s->count, s->classes, boxes, tags, s->faults.count, p->height, p->width,
               channels, shards, raw ? "bytes" : "source_bytes", bytes);
        return;
    }
    printf("%s\n%" PRId64 " pictures", p->options_text, p->slot_count);
    if (p->slot_count < s->count) printf(" of %" PRId64, s->count);
    printf(", %d classes", s->classes);
    for (int c = 0; c < s->classes && c < 12; c++) printf("%s%s", c ? ", " : ": ", s->class_names[c]);
    printf("%s\n", s->classes > 12 ? ", ..." : "");
    if (s->box_form != SOURCE_BOX_NONE) printf("%" PRId64 " boxes\n", boxes);
    if (s->tags) printf("%" PRId64 " tags\n", tags);
    if (raw) printf("samples of %d x %d x %d bytes, ", p->height, p->width, channels);
    else printf("%s files, ", kept ? "JPEG files keep their bytes; source" : "pictures are made anew; source");
    if (bytes) printf("%.1f MB", (double)bytes / 1e6);
    else printf("of unknown size");
    if (shards) printf(" in %d shard%s", shards, shards == 1 ? "" : "s");
    printf("\nnothing was written (--dry-run)\n");
}

static void print_result(const packing *p, double seconds)
{
    const pack_options *o = &p->options;
    if (o->json) {
        printf("{\"event\":\"done\",\"split\":\"%s\",\"samples\":%" PRId64 ",\"bytes\":%" PRIu64
               ",\"shards\":%d,\"rejects\":%" PRId64 ",\"annotations_rejected\":%" PRId64 ",\"boxes\":%" PRId64
               ",\"boxes_outside\":%" PRId64 ",\"tags\":%" PRId64 ",\"pairs\":%" PRId64 ",\"pairs_dropped\":%" PRId64
               ",\"seconds\":%.3f}\n",
               o->out_split, p->count, p->bytes, p->shards, p->bad, p->source.faults.count, p->boxes, p->outside_boxes,
               p->tags, p->pairs, p->dropped_pairs, seconds);
        return;
    }
    fprintf(stderr, "%s: %" PRId64 " samples, %d classes, %.1f MB in %d shard%s, %.0f img/s", o->out, p->count,
            p->source.classes, (double)p->bytes / 1e6, p->shards, p->shards == 1 ? "" : "s",
            seconds > 0 ? (double)p->count / seconds : 0);
    if (p->source.box_form != SOURCE_BOX_NONE) fprintf(stderr, "; %" PRId64 " boxes", p->boxes);
    if (p->outside_boxes) fprintf(stderr, " (%" PRId64 " of them outside of what is stored)", p->outside_boxes);
    if (p->source.other_boxes) fprintf(stderr, "; %" PRId64 " boxes of other classes left out", p->source.other_boxes);
    if (p->tags) fprintf(stderr, "; %" PRId64 " tags", p->tags);
    if (p->source.pairs) fprintf(stderr, "; %" PRId64 " pairs", p->pairs);
    if (p->dropped_pairs)
        fprintf(stderr, " (%" PRId64 " dropped: one of the two pictures is not here)", p->dropped_pairs);
    if (p->bad) fprintf(stderr, "; %" PRId64 " rejected", p->bad);
    if (p->source.faults.count) fprintf(stderr, "; %" PRId64 " wrong annotations", p->source.faults.count);
    if (p->bad || p->source.faults.count) fprintf(stderr, ", listed in %s-%s.rejects", o->name, o->out_split);
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
        if (strcmp(p->options.out_split, "train") != 0 && !p->stats_given)
            kolo_warn(
                "mean and standard deviation are those of this split; --stats-from TRAIN takes the training split's");
    }
    return 0;
}

/* One split from beginning to end; what it left behind in memory is freed. */
static int pack_split(packing *p)
{
    int rc = run(p);
    /* ranks without an error of their own leave the word to the one that has it */
    if (rc < 0 && kolo_error_text()[0]) fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
    fflush(stdout);
    if (rc == KOLO_EINPUT && p->launch.rank == 0 && p->claimed && !p->resumed && kolo_folder_remove(p->work) < 0)
        kolo_warn("%s", kolo_error_text());
    if (p->lock.fd >= 0) kolo_lock_release(&p->lock);
    pack_free(p);
    return rc;
}

/* --holdout without --split: the rest first, as the part that is held out takes its mean from there. */
static int pack_both(const pack_options *options, const kolo_launch *launch)
{
    const char *const parts[] = {"train", options->holdout};
    char *folders[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        packing p = {.options = *options, .launch = *launch};
        pack_options *o = &p.options;
        folders[i] = kolo_format("%s/%s", options->out ? options->out : ".", parts[i]);
        if (!folders[i]) return KOLO_ECONFIG;
        o->out = folders[i];
        snprintf(o->out_split, sizeof o->out_split, "%s", parts[i]);
        if (o->default_seed) o->shuffle_seed = i == 0 ? 42 : 0;
        if (i == 1 && !o->stats_from && !o->dry_run) o->stats_from = folders[0];
        rc = pack_split(&p);
    }
    free(folders[0]);
    free(folders[1]);
    return rc;
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
    kolo_launch launch = p.launch;
    rc = p.options.both ? pack_both(&p.options, &launch) : pack_split(&p);
    kolo_launch_finish(&launch);
    return -rc;
}
