#include "comm/core/rank_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MORE = 24 /* bytes for "; and 1000 more" */ };

typedef struct line {
    char *text;
    size_t bytes, at;
    bool full;
} line;

static void rank_list_add(line *l, const char *what)
{
    const size_t length = strlen(what), room = l->bytes - l->at - 1;
    const size_t n = length < room ? length : room;
    memcpy(l->text + l->at, what, n);
    l->at += n;
    l->text[l->at] = 0;
    l->full |= length > room;
}

static int rank_at(const int *rank_of, int i) { return rank_of ? rank_of[i] : i; }

/* Those who say what i says, and what that is. */
static void add_kind(line *l, const int *rank_of, int i, int n, const char *said, size_t stride)
{
    const char *mine = said + (size_t)i * stride;
    char word[64];
    for (int k = i, some = 0; k < n && !l->full; k++) {
        int to = k;
        if (strcmp(said + (size_t)k * stride, mine) != 0) continue;
        while (to + 1 < n && rank_at(rank_of, to + 1) == rank_at(rank_of, to) + 1 &&
               strcmp(said + (size_t)(to + 1) * stride, mine) == 0)
            to++;
        snprintf(word, sizeof word, to > k ? "%s%d-%d" : "%s%d", some++ ? ", " : "", rank_at(rank_of, k),
                 rank_at(rank_of, to));
        rank_list_add(l, word);
        k = to;
    }
    rank_list_add(l, ": ");
    rank_list_add(l, mine);
}

void comm_rank_list(char *text, size_t bytes, const int *rank_of, int n, const char *said, size_t stride)
{
    line l = {.text = text, .bytes = bytes - MORE};
    int kinds = 0, left = 0;
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        bool listed = false;
        size_t before = l.at;
        for (int k = 0; k < i && !listed; k++)
            listed = strcmp(said + (size_t)k * stride, said + (size_t)i * stride) == 0;
        if (listed) continue;
        if (!l.full) {
            rank_list_add(&l, kinds++ ? "; rank " : "rank ");
            add_kind(&l, rank_of, i, n, said, stride);
            if (!l.full) continue;
            if (kinds == 1) { /* what is too long by itself is cut */
                memcpy(text + l.at - 3, "...", 3);
                continue;
            }
            text[l.at = before] = 0;
        }
        left++;
    }
    if (left) snprintf(text + l.at, bytes - l.at, "; and %d more", left);
}
