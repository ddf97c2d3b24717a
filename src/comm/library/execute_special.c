/* Allreduces that are more than a sum by elements: Adasum, and compressed ones. In place on the stage. */
#include <string.h>

#include "base/memory.h"
#include "comm/library/codec_states.h"

static int execute_special_find(lib_execution *x, lib_codec_state **out)
{
    const kolo_request *r = lib_request(x, 0);
    lib_stream *s = x->stream;
    lib_codec_state_want want = {.words = "",
                                 .name = "",
                                 .elements = x->count,
                                 .rows = 1,
                                 .track = x->track - s->track,
                                 .type = r->type};
    comm_compress config;
    if (!r->compression) {
        KOLO_TRY(kolo_grow(&s->counts, &s->counts_room, x->batch.entries, sizeof *s->counts));
        for (int i = 0; i < x->batch.entries; i++) s->counts[i] = lib_elements(lib_request(x, i), 0);
        want.count = s->counts;
        want.tensors = x->batch.entries;
        return lib_codec_state_find(s, &want, out);
    }
    KOLO_TRY(comm_compress_parse(&config, r->compression));
    want.words = r->compression;
    if (!comm_compress_is_elementwise(config.kind)) {
        if (r->dims > 1 && r->dim[0]) want.rows = r->dim[0];
        if (r->name) want.name = r->name, want.track = 0; /* one request of a name at a time */
    }
    return lib_codec_state_find(s, &want, out);
}

int lib_codec_state_allreduce(lib_execution *x)
{
    const kolo_request *first = lib_request(x, 0);
    lib_codec_state *special = NULL;
    const int rc = execute_special_find(x, &special);
    if (rc == KOLO_ENOMEM) return rc; /* of this member alone, and the others wait for it: the world breaks */
    if (rc < 0) {                     /* all members have brought the same, so all end here */
        lib_fail_all(x, KOLO_EINPUT, kolo_error_text());
        return x->step = NULL, 1;
    }
    KOLO_TRY(lib_pack(x, first->type));
    const comm_schedule *schedule =
        special->codec ? comm_codec_schedule(special->codec) : comm_adasum_schedule(special->adasum);
    KOLO_TRY(lib_run_schedule(x, schedule, x->work, x->work, kolo_dtype_size(first->type), first->type,
                              KOLO_SUM, lib_unpack));
    if (special->codec) comm_codec_begin(special->codec, x->run);
    else comm_adasum_begin(special->adasum, x->run);
    return 1;
}
