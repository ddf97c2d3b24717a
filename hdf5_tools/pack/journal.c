/* The journal, OUT/.pack/journal: what is known of every chosen sample, by slot. It is what a resume finds,
 * and how ranks exchange them. All records would be too much for every rank to hold: each holds those of
 * the slots that it works on (the window), and of the others only what a layout needs (briefs). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack/pack.h"

#define CHUNK 4096 /* records read at once */

void record_seal(pack_record *r) { r->check = kolo_crc32c(0, r, offsetof(pack_record, check)); }

static bool record_valid(const pack_record *r)
{
    return r->status != PACK_UNKNOWN && r->check == kolo_crc32c(0, r, offsetof(pack_record, check));
}

int pack_journal_open(packing *p)
{
    p->journal_path = kolo_format("%s/journal", p->work);
    p->reject_path = kolo_format("%s/rejects-%06d-%d", p->work, p->launch.rank, (int)getpid());
    p->brief = kolo_alloc(sizeof *p->brief * (size_t)p->slot_count);
    if (!p->journal_path || !p->reject_path || !p->brief) return KOLO_ENOMEM;
    KOLO_TRY(p->journal = kolo_file_open_plain(p->journal_path, O_RDWR | O_CREAT, 0666));
    if (p->launch.rank == 0 && ftruncate(p->journal, (off_t)sizeof(pack_record) * p->slot_count) != 0)
        return kolo_fail(KOLO_EIO, "%s: %s", p->journal_path, strerror(errno));
    return 0;
}

void pack_journal_close(packing *p)
{
    if (p->journal > 0) close(p->journal);
    free(p->journal_path);
    free(p->reject_path);
    free(p->brief);
    free(p->window);
}

static int read_records(const packing *p, int64_t slot, int64_t count, pack_record *records)
{
    KOLO_TRY(kolo_file_pread(p->journal, p->journal_path, records, sizeof *records * (size_t)count,
                             sizeof *records * (uint64_t)slot));
    for (int64_t i = 0; i < count; i++)
        if (!record_valid(&records[i])) records[i] = (pack_record){0};
    return 0;
}

int pack_journal_each(const packing *p, int64_t first, int64_t end,
                      int (*take)(void *state, int64_t slot, const pack_record *record), void *state)
{
    pack_record *chunk = kolo_alloc(sizeof *chunk * CHUNK);
    int rc = chunk ? 0 : KOLO_ENOMEM;
    for (int64_t slot = first; slot < end && rc == 0; slot += CHUNK) {
        const int64_t count = end - slot < CHUNK ? end - slot : CHUNK;
        rc = read_records(p, slot, count, chunk);
        for (int64_t i = 0; i < count && rc == 0; i++) rc = take(state, slot + i, &chunk[i]);
    }
    free(chunk);
    return rc;
}

static int store_brief(void *state, int64_t slot, const pack_record *r)
{
    packing *p = state;
    p->brief[slot] = (pack_brief){r->bytes, r->status, r->codec, r->channels, r->source_channels};
    return 0;
}

int pack_journal_brief(packing *p) { return pack_journal_each(p, 0, p->slot_count, store_brief, p); }

int pack_journal_window(packing *p, int64_t first, int64_t end)
{
    free(p->window);
    p->window_first = first;
    p->window = kolo_alloc(sizeof *p->window * (size_t)(end - first) + 8);
    return p->window ? read_records(p, first, end - first, p->window) : KOLO_ENOMEM;
}

pack_record *pack_journal_at(const packing *p, int64_t slot) { return &p->window[slot - p->window_first]; }

int pack_journal_write(const packing *p, int64_t slot, int64_t count)
{
    return kolo_file_pwrite(p->journal, p->journal_path, pack_journal_at(p, slot),
                            sizeof(pack_record) * (size_t)count, sizeof(pack_record) * (uint64_t)slot);
}
