/* A machine for the part of Python's pickle (protocols 2 to 5) that a dict of tensors needs. It has no way to
 * call anything: what a pickle names is looked up in a table of a dozen names, and a name that is not there
 * ends it. What it makes are values, numbered in an array. */
#ifndef KOLO_CKPT_PICKLE_H
#define KOLO_CKPT_PICKLE_H

#include "ckpt/weights.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_NUMBER, /* and True, False */
    /* plain things nobody asks for: reals, long integers, numbers of NumPy, argparse.Namespace */
    PICKLE_OTHER,
    PICKLE_TEXT, /* and bytes */
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR
};

typedef struct pickle_value {
    enum pickle_kind kind;
    enum kolo_dtype type;    /* STORAGE, and GLOBAL that is one */
    int64_t number;          /* NUMBER; GLOBAL: which; STORAGE: elements; TENSOR: offset in elements */
    const char *text;        /* TEXT; STORAGE: key; in the pickle's memory */
    int32_t *item;           /* TUPLE, LIST; DICT: key, value, ...; TENSOR: storage, shape, strides */
    int64_t count, capacity; /* of item; TEXT, STORAGE: bytes of text in count */
} pickle_value;

typedef struct pickle {
    const char *path;              /* of the file, for errors */
    const unsigned char *at, *end; /* read so far */
    pickle_value *value;
    int64_t values, value_capacity;
    int32_t *stack, *memo;
    int64_t depth, stack_capacity, memo_count;
    int64_t *mark;
    int64_t marks, mark_capacity;
} pickle;

/* Reads one pickle at p->at; p->at is then behind it. The number of its value, or a negative status
 * (KOLO_EINPUT: it ends early, holds something that is not taken, or does not fit together). path, at, end
 * are set by the caller; values of earlier pickles stay. */
int pickle_read(pickle *p);
void pickle_free(pickle *p);

/* The value of a dict under this key; NULL: none. */
const pickle_value *pickle_get(const pickle *p, const pickle_value *dict, const char *key);

#endif
