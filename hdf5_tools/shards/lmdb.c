/* convert of LMDB: the packing that kolo-pack --source lmdb would do, with the encoding that keeps every
 * value as it is: pixels of one size raw, else JPEG files with their bytes and everything else as pixels. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "pack/pack.h"
#include "shards/foreign.h"

/* out: a folder beside the wanted one, which becomes that when it is whole. */
static void fill_options(const shards_foreign *f, const char *out, pack_options *o)
{
    *o = (pack_options){.kind = source_find("lmdb"),
                        .in = {f->path},
                        .in_count = 1,
                        .out = out,
                        .color = PACK_COLOR_KEEP,
                        .encoding = KOLO_ENCODING_MIXED,
                        .quality = 90,
                        .shards = (int)f->target.shards,
                        .threads = (int)f->target.threads,
                        .shuffle_seed = f->target.seed,
                        .max_bad = -1,
                        .force = true,
                        .json = f->target.json};
    if (f->labels) o->annotations[o->annotation_count++] = f->labels;
    snprintf(o->name, sizeof o->name, "%s", f->target.name);
    snprintf(o->split, sizeof o->split, "%s", f->target.split);
    snprintf(o->out_split, sizeof o->out_split, "%s", f->target.split);
}

static int choose_encoding(pack_options *o)
{
    source s = {0};
    const int rc = source_open(&s, o->kind, o);
    if (rc == 0 && s.height) o->encoding = KOLO_ENCODING_RAW;
    source_free(&s);
    return rc;
}

static int pack(packing *p, const char *out)
{
    const double begin = kolo_time();
    KOLO_TRY(choose_encoding(&p->options));
    KOLO_TRY(kolo_launch_start(&p->launch, "single", NULL));
    KOLO_TRY(pack_split(p));
    kolo_lock_release(&p->lock);
    if (rename(p->options.out, out) != 0) return kolo_fail(KOLO_EIO, "%s: %s", out, strerror(errno));
    p->options.out = out;
    pack_tell(p, kolo_time() - begin);
    return 0;
}

int shards_convert_lmdb(shards_foreign *f)
{
    packing *p = kolo_alloc(sizeof *p);
    char *out = kolo_format("%s.partial", f->target.out);
    int rc = p && out ? 0 : KOLO_ENOMEM;
    if (rc == 0) {
        fill_options(f, out, &p->options);
        p->lock.fd = -1;
        rc = pack(p, f->target.out);
        kolo_failure first;
        kolo_error_keep(&first);
        if (p->lock.fd >= 0) kolo_lock_release(&p->lock);
        if (rc < 0 && p->claimed) kolo_folder_remove(out);
        kolo_error_restore(&first, rc);
        if (p->launch.size) kolo_launch_finish(&p->launch);
        pack_free(p);
    }
    free(out);
    free(p);
    return rc;
}
