#include "launch/pmi_store.h"

#include "base/hash.h"
#include "base/memory.h"
#include "kolo/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "kolo" /* name of the one key-value space */

const char *kolo_pmi_field(const char *line, const char *field, size_t *length)
{
    size_t bytes = strlen(field);
    for (const char *word = line; *word;) {
        size_t name = strcspn(word, "= ");
        bool last = name == 5 && memcmp(word, "value", 5) == 0;
        if (word[name] == '=') {
            const char *value = word + name + 1;
            *length = last ? strlen(value) : strcspn(value, " ");
            if (name == bytes && memcmp(word, field, bytes) == 0) return value;
            word = value + *length;
        } else {
            word += name;
        }
        word += strspn(word, " ");
    }
    return NULL;
}

/* ---- the table of known entries ---- */

static char **slot_of(const kolo_pmi_store *store, const char *key, size_t bytes)
{
    uint64_t mask = (uint64_t)store->slots - 1;
    for (uint64_t i = kolo_hash_bytes(KOLO_HASH, key, bytes) & mask;; i = (i + 1) & mask) {
        char **slot = &store->entries[i];
        if (!*slot || (strncmp(*slot, key, bytes) == 0 && (*slot)[bytes] == '=')) return slot;
    }
}

static int widen(kolo_pmi_store *store)
{
    kolo_pmi_store wide = {.slots = store->slots ? 2 * store->slots : 64};
    wide.entries = kolo_alloc((size_t)wide.slots * sizeof *wide.entries);
    if (!wide.entries) return KOLO_ENOMEM;
    for (int64_t i = 0; i < store->slots; i++) {
        char *entry = store->entries[i];
        if (entry) *slot_of(&wide, entry, strcspn(entry, "=")) = entry;
    }
    free(store->entries);
    store->entries = wide.entries;
    store->slots = wide.slots;
    return 0;
}

/* entry: "key=value", `bytes` long */
static int remember(kolo_pmi_store *store, const char *entry, size_t bytes)
{
    const char *equals = memchr(entry, '=', bytes);
    if (!equals) return 0;
    if (2 * (store->used + 1) > store->slots) KOLO_TRY(widen(store));
    char *copy = kolo_alloc(bytes + 1);
    if (!copy) return KOLO_ENOMEM;
    memcpy(copy, entry, bytes);
    char **slot = slot_of(store, copy, (size_t)(equals - entry));
    if (!*slot) store->used++;
    free(*slot);
    *slot = copy;
    return 0;
}

static int remember_lines(kolo_pmi_store *store, const char *lines, size_t bytes)
{
    while (bytes > 0) {
        const char *end = memchr(lines, '\n', bytes);
        if (!end) break;
        size_t length = (size_t)(end - lines);
        KOLO_TRY(remember(store, lines, length));
        lines = end + 1;
        bytes -= length + 1;
    }
    return 0;
}

/* Entries of the others are fetched when somebody first asks for one: most barriers publish
 * nothing of interest. */
static int merge(kolo_pmi_store *store)
{
    for (; store->merged < store->epoch; store->merged++)
        for (int r = 0; r < store->size; r++) {
            char *lines = NULL;
            size_t bytes = 0;
            if (r == store->rank) continue;
            KOLO_TRY(store->below.fetch(store->below.context, store->merged, r, &lines, &bytes));
            int rc = remember_lines(store, lines, bytes);
            free(lines);
            KOLO_TRY(rc);
        }
    return 0;
}

static const char *look_up(kolo_pmi_store *store, const char *key, size_t bytes)
{
    char *entry = *slot_of(store, key, bytes);
    return entry ? entry + bytes + 1 : NULL;
}

int kolo_pmi_store_make(kolo_pmi_store *store, int rank, int size, const char *mapping, kolo_pmi_below below)
{
    *store = (kolo_pmi_store){.rank = rank, .size = size, .below = below};
    KOLO_TRY(widen(store));
    if (!mapping) return 0;
    char *entry = kolo_format("PMI_process_mapping=%s", mapping);
    if (!entry) return KOLO_ENOMEM;
    int rc = remember(store, entry, strlen(entry));
    free(entry);
    return rc;
}

void kolo_pmi_store_free(kolo_pmi_store *store)
{
    for (int64_t i = 0; i < store->slots; i++) free(store->entries[i]);
    free(store->entries);
    free(store->put);
    *store = (kolo_pmi_store){0};
}

/* ---- commands ---- */

#define answer(reply, ...) ((void)snprintf(reply, KOLO_PMI_LINE, __VA_ARGS__))

static int answer_put(kolo_pmi_store *store, const char *line, char *reply)
{
    size_t key_bytes, value_bytes;
    const char *key = kolo_pmi_field(line, "key", &key_bytes),
               *value = kolo_pmi_field(line, "value", &value_bytes);
    if (!key || !value || key_bytes == 0 || value_bytes > KOLO_PMI_VALUE || memchr(key, '=', key_bytes)) {
        answer(reply, "cmd=put_result rc=-1 msg=malformed_put\n");
        return 0;
    }
    int64_t more = (int64_t)(key_bytes + value_bytes + 2);
    char *entry = kolo_format("%.*s=%.*s\n", (int)key_bytes, key, (int)value_bytes, value);
    int rc = entry ? kolo_grow(&store->put, &store->put_capacity, store->put_bytes + more, 1) : KOLO_ENOMEM;
    if (rc == 0) rc = remember(store, entry, (size_t)more - 1);
    if (rc == 0) {
        memcpy(store->put + store->put_bytes, entry, (size_t)more);
        store->put_bytes += more;
    }
    free(entry);
    answer(reply, rc == 0 ? "cmd=put_result rc=0 msg=success\n" : "cmd=put_result rc=-1 msg=out_of_memory\n");
    return rc;
}

static int answer_get(kolo_pmi_store *store, const char *line, char *reply)
{
    size_t bytes;
    const char *key = kolo_pmi_field(line, "key", &bytes), *value = key ? look_up(store, key, bytes) : NULL;
    int rc = 0;
    if (key && !value) {
        rc = merge(store);
        if (rc == 0) value = look_up(store, key, bytes);
    }
    if (value) answer(reply, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else answer(reply, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    return rc;
}

static int answer_barrier(kolo_pmi_store *store, char *reply)
{
    int rc = store->below.fence(store->below.context, store->epoch, store->put ? store->put : "",
                                (size_t)store->put_bytes);
    if (rc == 0) {
        store->epoch++;
        store->put_bytes = 0;
    }
    /* the client stops on another word */
    answer(reply, rc == 0 ? "cmd=barrier_out rc=0\n" : "cmd=barrier_failed rc=-1\n");
    return rc;
}

static void answer_init(kolo_pmi_store *store, const char *line, char *reply)
{
    size_t bytes;
    const char *version = kolo_pmi_field(line, "pmi_version", &bytes);
    bool ours = version && bytes == 1 && *version == '1';
    store->started |= ours;
    answer(reply, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n", ours ? 0 : -1);
}

static void answer_abort(kolo_pmi_store *store, const char *line)
{
    size_t bytes;
    const char *code = kolo_pmi_field(line, "exitcode", &bytes);
    int exit_status = code ? (int)strtol(code, NULL, 10) : 1;
    store->below.abort(store->below.context, exit_status);
}

int kolo_pmi_answer(kolo_pmi_store *store, const char *line, char *reply)
{
    size_t bytes;
    *reply = 0;
    if (store->spawning || strncmp(line, "mcmd=spawn", 10) == 0) { /* many lines, one answer */
        store->spawning = strcmp(line, "endcmd") != 0;
        if (!store->spawning) answer(reply, "cmd=spawn_result rc=-1 msg=spawn_is_not_supported\n");
        return 0;
    }
    const char *command = kolo_pmi_field(line, "cmd", &bytes);
    if (!command) return kolo_fail(KOLO_ELAUNCH, "PMI bridge: \"%.80s\" is no command", line);
    bool unknown = false;
#define is(word) (bytes == sizeof word - 1 && memcmp(command, word, bytes) == 0)
    if (is("put")) return answer_put(store, line, reply);
    if (is("get")) return answer_get(store, line, reply);
    if (is("barrier_in")) return answer_barrier(store, reply);
    if (is("init")) answer_init(store, line, reply);
    else if (is("get_maxes"))
        answer(reply, "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=%d\n", KOLO_PMI_VALUE);
    else if (is("get_appnum")) answer(reply, "cmd=appnum appnum=0\n");
    else if (is("get_my_kvsname")) answer(reply, "cmd=my_kvsname kvsname=" SPACE "\n");
    else if (is("get_universe_size")) answer(reply, "cmd=universe_size size=%d\n", store->size);
    else if (is("publish_name"))
        answer(reply, "cmd=publish_result info=not_supported rc=-1 msg=not_supported\n");
    else if (is("unpublish_name"))
        answer(reply, "cmd=unpublish_result info=not_supported rc=-1 msg=not_supported\n");
    else if (is("lookup_name"))
        answer(reply, "cmd=lookup_result info=not_supported rc=-1 msg=not_supported\n");
    else if (is("abort")) answer_abort(store, line);
    else if (is("finalize")) {
        store->ended = true;
        answer(reply, "cmd=finalize_ack\n");
    } else unknown = true;
#undef is
    return unknown ? kolo_fail(KOLO_ELAUNCH, "PMI bridge: the command %.*s is not known", (int)bytes, command)
                   : 0;
}
