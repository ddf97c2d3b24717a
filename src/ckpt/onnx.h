/* ONNX: how an evaluation graph is written, node by node. A name is NULL where something failed (error text
 * set); what is made of it is NULL too, so operations may be written without a check on every line. */
#ifndef KOLO_CKPT_ONNX_H
#define KOLO_CKPT_ONNX_H

#include "exec/exec.h"

typedef struct onnx_writer onnx_writer;

const kolo_graph *onnx_graph(const onnx_writer *w);
/* A new node with one output, called `out` or, if NULL, by a new name; inputs up to the first NULL beyond n.
 * Returns the output's name. */
const char *onnx_node(onnx_writer *w, const char *op, const char *out, int n, const char *const *in);
const char *onnx_one(onnx_writer *w, const char *op, const char *out, const char *x);
const char *onnx_two(onnx_writer *w, const char *op, const char *out, const char *x, const char *y);
/* Attributes of the last node. */
void onnx_int(onnx_writer *w, const char *name, int64_t value);
void onnx_real(onnx_writer *w, const char *name, double value);
void onnx_text(onnx_writer *w, const char *name, const char *value);
void onnx_ints(onnx_writer *w, const char *name, int n, const int64_t *value);
/* Constants. */
const char *onnx_whole(onnx_writer *w, int n, const int64_t *value); /* (n) */
const char *onnx_index(onnx_writer *w, int64_t value);               /* () */
const char *onnx_floats(onnx_writer *w, int rank, const int64_t *dim, const float *value);
/* 0: as it is, -1: the rest */
const char *onnx_reshape(onnx_writer *w, const char *out, const char *x, int n, const int64_t *dim);
const char *onnx_transpose(onnx_writer *w, const char *out, const char *x, int n, const int64_t *order);
const char *onnx_slice(onnx_writer *w, const char *out, const char *x, int n, const int64_t *axis,
                       const int64_t *begin, const int64_t *end, const int64_t *step);
/* Values of a parameter; caller frees. NULL: failed. */
float *onnx_values(onnx_writer *w, int tensor);

/* Operations: one function each, from the node's inputs to its output. */
typedef struct onnx_operation {
    const kolo_node *node;
    const char *in[KOLO_MAX_ARGS], *out; /* NULL: not there */
    int n_in;
} onnx_operation;
typedef const char *onnx_emit(onnx_writer *w, const onnx_operation *o);
extern onnx_emit *const onnx_table[KOLO_OP_COUNT]; /* NULL: has no form in ONNX */
onnx_emit onnx_window_attention;

#endif
