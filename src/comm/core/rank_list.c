#include "comm/core/rank_list.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

enum { MORE = 24 /* bytes for "; and 1000 more" */ };

static bool says_same(const char *said, size_t stride, int i, int k)
{
    return strcmp(said + (size_t)i * stride, said + (size_t)k * stride) == 0;
}

/* Those who say what i says, and what that is. */
static void add_kind(char *text, size_t bytes, const int *rank_of, int i, int n, const char *said,
                     size_t stride)
{
    for (int from = i; from < n; from++) {
        if (!says_same(said, stride, from, i)) continue;
        const int first = rank_of ? rank_of[from] : from;
        int to = from, last = first;
        while (to + 1 < n && (rank_of ? rank_of[to + 1] : to + 1) == last + 1 &&
               says_same(said, stride, to + 1, i))
            to++, last++;
        kolo_append(text, bytes, last > first ? "%s%d-%d" : "%s%d", from > i ? ", " : "", first, last);
        from = to;
    }
    kolo_append(text, bytes, ": %s", said + (size_t)i * stride);
}

void comm_rank_list(char *text, size_t bytes, const int *rank_of, int n, const char *said, size_t stride)
{
    const size_t room = bytes - MORE;
    int left = 0;
    bool full = false;
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        const size_t before = strlen(text);
        int k = 0;
        while (k < i && !says_same(said, stride, k, i)) k++;
        if (k < i) continue; /* it is listed */
        if (!full) {
            kolo_append(text, room, before ? "; rank " : "rank ");
            add_kind(text, room, rank_of, i, n, said, stride);
            full = strlen(text) == room - 1;
            if (!full) continue;
            if (before == 0) { /* what is too long by itself is cut */
                memcpy(text + room - 4, "...", 3);
                continue;
            }
            text[before] = 0;
        }
        left++;
    }
    if (left) kolo_append(text, bytes, "; and %d more", left);
}
