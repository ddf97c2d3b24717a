#include "comm/rank_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct line {
    char *text;
    size_t bytes, at;
} line;

static void add(line *l, const char *what)
{
    int n = snprintf(l->text + l->at, l->bytes - l->at, "%s", what);
    bool fits = l->at + (size_t)n < l->bytes;
    l->at = fits ? l->at + (size_t)n : l->bytes - 1;
    if (!fits && l->bytes > 3) memcpy(l->text + l->bytes - 4, "...", 4);
}

static int rank_at(const int *rank_of, int i) { return rank_of ? rank_of[i] : i; }

void comm_rank_list(char *text, size_t bytes, const int *rank_of, int n, const char *said, size_t stride)
{
    line l = {text, bytes, 0};
    char word[64];
    text[0] = 0;
    for (int i = 0, kinds = 0; i < n && l.at + 1 < bytes; i++) {
        const char *mine = said + (size_t)i * stride;
        bool told = false;
        for (int k = 0; k < i && !told; k++) told = strcmp(said + (size_t)k * stride, mine) == 0;
        if (told) continue;
        add(&l, kinds++ ? "; rank " : "rank ");
        for (int k = i, some = 0; k < n; k++) {
            int to = k;
            if (strcmp(said + (size_t)k * stride, mine) != 0) continue;
            while (to + 1 < n && rank_at(rank_of, to + 1) == rank_at(rank_of, to) + 1 &&
                   strcmp(said + (size_t)(to + 1) * stride, mine) == 0)
                to++;
            snprintf(word, sizeof word, to > k ? "%s%d-%d" : "%s%d", some++ ? ", " : "", rank_at(rank_of, k),
                     rank_at(rank_of, to));
            add(&l, word);
            k = to;
        }
        add(&l, ": ");
        add(&l, mine);
    }
}
