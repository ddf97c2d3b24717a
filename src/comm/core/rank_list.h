/* Who says what, in one line, for error texts: "rank 0, 2-5: allreduce number 12; rank 1:
 * allreduce number 11". */
#ifndef KOLO_COMM_RANK_LIST_H
#define KOLO_COMM_RANK_LIST_H

#include <stddef.h>

/* said: n texts, `stride` bytes apart; those of equal words stand together, in the order of the first of
 * them. rank_of: [n] or NULL: 0, 1, ... What does not fit is counted: "; and 7 more". bytes: 64 or more. */
void comm_rank_list(char *text, size_t bytes, const int *rank_of, int n, const char *said, size_t stride);

#endif
