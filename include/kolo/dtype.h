/* Types of elements: of tensors, of messages between ranks, of files of weights. */
#ifndef KOLO_PUBLIC_DTYPE_H
#define KOLO_PUBLIC_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* The numbers stand in the hashes of plans: a new type goes to the end. */
enum kolo_dtype {
    KOLO_F32,
    KOLO_BF16,
    KOLO_F64,
    KOLO_I32,
    KOLO_U8,
    KOLO_F16,
    KOLO_I8,
    KOLO_U16,
    KOLO_I16,
    KOLO_I64,
    KOLO_BOOL, /* one byte, 0 or 1 */
    KOLO_DTYPES
};

/* Bytes of an element; 0: no such type. */
static inline size_t kolo_dtype_size(enum kolo_dtype dtype)
{
    static const unsigned char size[KOLO_DTYPES] = {4, 2, 8, 4, 1, 2, 1, 2, 2, 8, 1};
    return (unsigned)dtype < KOLO_DTYPES ? size[dtype] : 0;
}

/* "f32"; "?": no such type. */
static inline const char *kolo_dtype_name(enum kolo_dtype dtype)
{
    static const char *const name[KOLO_DTYPES] = {"f32", "bf16", "f64", "i32", "u8",  "f16",
                                                  "i8",  "u16",  "i16", "i64", "bool"};
    return (unsigned)dtype < KOLO_DTYPES ? name[dtype] : "?";
}

/* f16 and bf16: sums of them are formed in f32. */
static inline bool kolo_dtype_is_half(enum kolo_dtype dtype)
{
    return dtype == KOLO_F16 || dtype == KOLO_BF16;
}
static inline bool kolo_dtype_is_real(enum kolo_dtype dtype)
{
    return kolo_dtype_is_half(dtype) || dtype == KOLO_F32 || dtype == KOLO_F64;
}

#endif
