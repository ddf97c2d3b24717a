/* A rank without data stands in for itself with neutral elements until all have none: kolo_join. */
#include "comm/library/negotiate.h"

#include "kolo/error.h"

int lib_join_begin(lib_core *core, lib_entry *entry)
{
    KOLO_TRY(lib_core_item(core, LIB_JOIN, 0));
    KOLO_TRY(lib_put_number(&core->item, 0));
    KOLO_TRY(lib_core_say(core)); /* bits reported before this one go before it */
    core->joined = core->edge[core->children].joined = core->changed = true;
    core->joining = entry;
    return 0;
}

void lib_join_end(lib_core *core, int last)
{
    for (int e = 0; e <= core->children; e++) core->edge[e].joined = false;
    core->joined = core->sent_joined = false;
    core->joins = core->seen;
    lib_entry *entry = core->joining;
    core->joining = NULL;
    if (core->root) {
        for (int m = 0; m < core->c.members; m++) core->root->joined[m] = false;
        core->root->joins = 0;
    }
    if (!entry) return;
    entry->output.last = last;
    core->c.complete(entry, 0, NULL);
}
