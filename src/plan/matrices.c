#include "plan/matrices.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

/* Where the elements of a parameter lie: filled with the number of their row, the storage shows
 * how rows are blocked. */
static int find_lanes(const kolo_plan *plan, kolo_backend *backend, int tensor, comm_matrix *m)
{
    const kolo_tensor *t = &plan->graph->tensor[tensor];
    const kolo_layout *layout = &plan->layout[tensor];
    int64_t count = kolo_tensor_count(t), rows = t->dim[0], columns = count / rows,
            stored = (int64_t)(layout->bytes / sizeof(float)), lanes = 1;
    if (!backend) { /* their sizes alone */
        m->groups = 1, m->columns = rows, m->lanes = stored / rows;
        return 0;
    }
    float *row = kolo_alloc((size_t)count * sizeof *row), *storage = kolo_alloc(layout->bytes);
    int rc = row && storage ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; rc == 0 && i < count; i++) row[i] = (float)(i / columns + 1); /* 0 is padding */
    if (rc == 0) rc = kolo_backend_from_canonical(backend, t, layout, row, storage);
    if (rc == 0) {
        while (lanes < rows && lanes < stored && storage[lanes] == (float)(lanes + 1)) lanes++;
        bool fits = lanes > 1 && stored == count && rows % lanes == 0;
        for (int64_t i = 0; fits && i < count; i++)
            fits = storage[i] == (float)(i / (columns * lanes) * lanes + i % lanes + 1);
        if (fits) m->groups = rows / lanes, m->columns = columns, m->lanes = lanes;
        else if (stored % rows == 0) m->groups = 1, m->columns = rows, m->lanes = stored / rows;
        else m->groups = 1, m->columns = stored, m->lanes = 1;
    }
    free(row);
    free(storage);
    return rc;
}

static int matrices_compare(const void *a, const void *b)
{
    const comm_matrix *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

int kolo_plan_matrices(const kolo_plan *plan, kolo_backend *backend, comm_matrix **matrix, int *matrices)
{
    const kolo_graph *g = plan->graph;
    *matrices = 0;
    *matrix = kolo_alloc((size_t)(g->tensors + 1) * sizeof **matrix);
    if (!*matrix) return KOLO_ENOMEM;
    for (int t = 0; t < g->tensors; t++) {
        if (g->tensor[t].role != KOLO_ROLE_GRADIENT || plan->fixed[t].arena != KOLO_ARENA_GRADIENT) continue;
        int of = g->tensor[t].of;
        if (g->tensor[of].rank < 2 || kolo_tensor_count(&g->tensor[of]) == 0) continue;
        comm_matrix *m = &(*matrix)[*matrices];
        KOLO_TRY(find_lanes(plan, backend, of, m)); /* *matrix is the caller's also after a failure */
        m->at = (int64_t)(plan->fixed[t].offset / sizeof(float));
        ++*matrices;
    }
    qsort(*matrix, (size_t)*matrices, sizeof **matrix, matrices_compare);
    return 0;
}

int kolo_plan_print_compressed(const kolo_plan *plan, kolo_backend *backend, const comm_compress *compress,
                               void *file)
{
    comm_matrix *matrix = NULL, *part = NULL;
    int matrices, rc, nodes = plan->config.ranks;
    double sent = 0, plain = 0;
    if (compress->kind == COMM_NONE || nodes < 2) return 0;
    KOLO_TRY_GOTO(rc, kolo_plan_matrices(plan, backend, &matrix, &matrices));
    part = kolo_alloc((size_t)(matrices + 1) * sizeof *part);
    if (!part) {
        rc = KOLO_ENOMEM;
        goto fail;
    }
    for (int b = 0; b < plan->buckets; b++) {
        int64_t from = (int64_t)(plan->bucket[b].offset / sizeof(float)), count = plan->bucket[b].count;
        int parts = comm_matrix_cut(matrix, matrices, from, count, part);
        sent += comm_compress_bytes(compress, nodes, count, part, parts);
        plain += comm_compress_bytes(&(comm_compress){.kind = COMM_NONE}, nodes, count, NULL, 0);
    }
    fprintf(file,
            "compression=%s: %.0f bytes a node and step between %d nodes, %.0f without (%.1f times as many); "
            "%d of the "
            "tensors are compressed\n",
            comm_compress_name(compress->kind), sent, nodes, plain, plain / sent, matrices);
    rc = 0;
fail:
    free(part);
    free(matrix);
    return rc;
}
