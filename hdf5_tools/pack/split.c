/* A packing from beginning to end, and what is said of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
#include "pack/pack.h"

/* What would be written. Images that are encoded again as JPEG have sizes that are known only afterwards. */
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
    const bool raw = o->encoding == KOLO_ENCODING_RAW,
               kept = o->resize == PACK_RESIZE_NONE && !o->crop && !unknown;
    if (raw) bytes = p->slot_count * p->height * p->width * channels;
    const int shards = raw || kept ? pack_shard_count(o, (uint64_t)bytes) : o->shards;
    if (o->json) {
        printf("{\"event\":\"plan\",\"split\":\"%s\",\"samples\":%" PRId64 ",\"of\":%" PRId64
               ",\"classes\":%d,\"boxes\":%" PRId64 ",\"tags\":%" PRId64 ",\"annotations_rejected\":%" PRId64
               ",\"height\":%d,\"width\":%d,\"channels\":%d,\"shards\":%d,\"%s\":%" PRId64 "}\n",
               o->out_split, p->slot_count, s->count, s->classes, boxes, tags, s->faults.count, p->height,
               p->width, channels, shards, raw ? "bytes" : "source_bytes", bytes);
        return;
    }
    printf("%s\n%" PRId64 " images", p->options_text, p->slot_count);
    if (p->slot_count < s->count) printf(" of %" PRId64, s->count);
    printf(", %d classes", s->classes);
    for (int c = 0; c < s->classes && c < 12; c++) printf("%s%s", c ? ", " : ": ", s->class_names[c]);
    printf("%s\n", s->classes > 12 ? ", ..." : "");
    if (s->box_form != SOURCE_BOX_NONE) printf("%" PRId64 " boxes\n", boxes);
    if (s->tags) printf("%" PRId64 " tags\n", tags);
    if (raw) printf("samples of %d x %d x %d bytes, ", p->height, p->width, channels);
    else printf("%s files, ", kept ? "JPEG files keep their bytes; source" : "images are made anew; source");
    if (bytes) printf("%.1f MB", (double)bytes / 1e6);
    else printf("of unknown size");
    if (shards) printf(" in %d shard%s", shards, shards == 1 ? "" : "s");
    printf("\nnothing was written (--dry-run)\n");
}

void pack_tell(const packing *p, double seconds)
{
    const pack_options *o = &p->options;
    if (o->json) {
        printf("{\"event\":\"done\",\"split\":\"%s\",\"samples\":%" PRId64 ",\"bytes\":%" PRIu64
               ",\"shards\":%d,\"rejects\":%" PRId64 ",\"annotations_rejected\":%" PRId64
               ",\"boxes\":%" PRId64 ",\"boxes_outside\":%" PRId64 ",\"tags\":%" PRId64 ",\"pairs\":%" PRId64
               ",\"pairs_dropped\":%" PRId64 ",\"seconds\":%.3f}\n",
               o->out_split, p->count, p->bytes, p->shards, p->bad, p->source.faults.count, p->boxes,
               p->outside_boxes, p->tags, p->pairs, p->dropped_pairs, seconds);
        return;
    }
    fprintf(stderr, "%s: %" PRId64 " samples, %d classes, %.1f MB in %d shard%s, %.0f img/s", o->out,
            p->count, p->source.classes, (double)p->bytes / 1e6, p->shards, p->shards == 1 ? "" : "s",
            seconds > 0 ? (double)p->count / seconds : 0);
    if (p->source.box_form != SOURCE_BOX_NONE) fprintf(stderr, "; %" PRId64 " boxes", p->boxes);
    if (p->outside_boxes)
        fprintf(stderr, " (%" PRId64 " of them outside of what is stored)", p->outside_boxes);
    if (p->source.other_boxes)
        fprintf(stderr, "; %" PRId64 " boxes of other classes left out", p->source.other_boxes);
    if (p->tags) fprintf(stderr, "; %" PRId64 " tags", p->tags);
    if (p->source.pairs) fprintf(stderr, "; %" PRId64 " pairs", p->pairs);
    if (p->dropped_pairs)
        fprintf(stderr, " (%" PRId64 " dropped: one of the two images is not here)", p->dropped_pairs);
    if (p->bad) fprintf(stderr, "; %" PRId64 " rejected", p->bad);
    if (p->source.faults.count) fprintf(stderr, "; %" PRId64 " wrong annotations", p->source.faults.count);
    if (p->bad || p->source.faults.count) fprintf(stderr, ", listed in %s-%s.rejects", o->name, o->out_split);
    fprintf(stderr, "\n");
}

int pack_split(packing *p)
{
    const bool first = p->launch.rank == 0;
    KOLO_TRY(pack_plan(p));
    if (p->complete || p->options.dry_run) {
        if (first && p->complete) fprintf(stderr, "%s is complete already\n", p->options.out);
        else if (first) print_plan(p);
        return 0;
    }
    KOLO_TRY(pack_probe(p));
    KOLO_TRY(pack_layout(p));
    KOLO_TRY(pack_write(p));
    return pack_finish(p);
}
