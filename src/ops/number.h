/* One element of host memory of any type, as a number: what every backend's way to and from
 * canonical order is made of. */
#ifndef KOLO_OPS_NUMBER_H
#define KOLO_OPS_NUMBER_H

#include "graph/graph.h"
#include "ops/element.h"

static inline float kolo_number_read(const void *p, int64_t i, enum kolo_dtype dtype)
{
    switch (dtype) {
    case KOLO_F32: return ((const float *)p)[i];
    case KOLO_BF16: return kolo_from_bf16(((const uint16_t *)p)[i]);
    case KOLO_F16: return kolo_from_f16(((const uint16_t *)p)[i]);
    case KOLO_F64: return (float)((const double *)p)[i];
    case KOLO_I32: return (float)((const int32_t *)p)[i];
    case KOLO_I64: return (float)((const int64_t *)p)[i];
    case KOLO_I16: return (float)((const int16_t *)p)[i];
    case KOLO_U16: return (float)((const uint16_t *)p)[i];
    case KOLO_I8: return (float)((const int8_t *)p)[i];
    case KOLO_U8:
    case KOLO_BOOL: return (float)((const uint8_t *)p)[i];
    case KOLO_DTYPES: break;
    }
    return 0;
}

static inline void kolo_number_write(void *p, int64_t i, enum kolo_dtype dtype, float x)
{
    switch (dtype) {
    case KOLO_F32: ((float *)p)[i] = x; break;
    case KOLO_BF16: ((uint16_t *)p)[i] = kolo_to_bf16(x); break;
    case KOLO_F16: ((uint16_t *)p)[i] = kolo_to_f16(x); break;
    case KOLO_F64: ((double *)p)[i] = (double)x; break;
    case KOLO_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case KOLO_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case KOLO_I16: ((int16_t *)p)[i] = (int16_t)x; break;
    case KOLO_U16: ((uint16_t *)p)[i] = (uint16_t)x; break;
    case KOLO_I8: ((int8_t *)p)[i] = (int8_t)x; break;
    case KOLO_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
    case KOLO_BOOL: ((uint8_t *)p)[i] = x != 0; break;
    case KOLO_DTYPES: break;
    }
}

#endif
