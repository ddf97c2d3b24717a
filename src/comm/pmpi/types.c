/* MPI's types and operations as the library's, and vectors of any type as bytes. */
#include <limits.h>
#include <stdlib.h>

#include "comm/pmpi/pmpi.h"

enum kind { SIGNED, UNSIGNED, FLOATING };

static int wire_of(enum kind kind, int bytes, bool compares)
{
    switch (bytes) {
    case 1: return kind == SIGNED ? KOLO_I8 : kind == UNSIGNED ? KOLO_U8 : -1;
    case 2: return kind == SIGNED ? KOLO_I16 : kind == UNSIGNED ? KOLO_U16 : -1;
    /* sums and products have the same bits with and without a sign, min and max do not */
    case 4: return kind == FLOATING ? KOLO_F32 : kind == UNSIGNED && compares ? -1 : KOLO_I32;
    case 8: return kind == FLOATING ? KOLO_F64 : kind == UNSIGNED && compares ? -1 : KOLO_I64;
    default: return -1;
    }
}

/* -1: unknown. */
static int kind_of(MPI_Datatype type)
{
    /* text is none by the standard; but MPIs add it up, and OSU's benchmarks ask for that */
    const MPI_Datatype whole[] = {MPI_INT,      MPI_LONG,     MPI_LONG_LONG, MPI_SHORT,    MPI_SIGNED_CHAR,
                                  MPI_INT8_T,   MPI_INT16_T,  MPI_INT32_T,   MPI_INT64_T,  MPI_AINT,
                                  MPI_OFFSET,   MPI_COUNT,    MPI_INTEGER,   MPI_INTEGER1, MPI_INTEGER2,
                                  MPI_INTEGER4, MPI_INTEGER8, MPI_CHAR},
                       natural[] = {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT,     MPI_UNSIGNED,
                                    MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
                                    MPI_UINT16_T,      MPI_UINT32_T,           MPI_UINT64_T},
                       real[] = {MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8};
#define FIND(list, is)                                         \
    for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++) \
        if (type == (list)[i]) return is;
    /* an MPI without Fortran has no types of it */
    if (type == MPI_DATATYPE_NULL) return -1;
    if (type == MPI_CHAR && CHAR_MIN == 0) return UNSIGNED;
    FIND(whole, SIGNED)
    FIND(natural, UNSIGNED)
    FIND(real, FLOATING)
#undef FIND
    return -1;
}

bool pmpi_reduction(const void *in, const void *out, int count, MPI_Datatype type, MPI_Op op,
                    enum kolo_dtype *wire, enum kolo_reduce *reduce)
{
    int bytes;
    if (op == MPI_SUM) *reduce = KOLO_SUM;
    else if (op == MPI_PROD) *reduce = KOLO_PRODUCT;
    else if (op == MPI_MIN) *reduce = KOLO_MIN;
    else if (op == MPI_MAX) *reduce = KOLO_MAX;
    else return false;
    int kind = kind_of(type);
    /* MPI says what is wrong with them */
    if (kind < 0 || count <= 0 || !in || !out || in == out || out == MPI_IN_PLACE) return false;
    if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS) return false;
    int found = wire_of((enum kind)kind, bytes, op == MPI_MIN || op == MPI_MAX);
    *wire = (enum kolo_dtype)found;
    return found >= 0;
}

bool pmpi_rounds(enum kolo_dtype wire, enum kolo_reduce reduce)
{
    return (wire == KOLO_F32 || wire == KOLO_F64) && (reduce == KOLO_SUM || reduce == KOLO_PRODUCT);
}

bool pmpi_countable(MPI_Datatype type, int count, int times)
{
    int size;
    const int64_t all = (int64_t)count * times;
    if (type == MPI_DATATYPE_NULL || count <= 0 || all > INT_MAX) return false;
    return PMPI_Type_size(type, &size) == MPI_SUCCESS && size > 0 && all <= INT_MAX / size;
}

int pmpi_flatten(pmpi_flat *f, const void *memory, int count, MPI_Datatype type, bool fill)
{
    MPI_Aint low, extent = 0, true_low = 0, true_extent = 0;
    /* a type of the program's may have any order; of no type there are no bytes, which the others learn */
    int size = 0, at = 0, numbers[3], combiner = MPI_COMBINER_NAMED;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_envelope(type, &numbers[0], &numbers[1], &numbers[2], &combiner);
    PMPI_Type_get_extent(type, &low, &extent);
    PMPI_Type_get_true_extent(type, &true_low, &true_extent);
    f->bytes = size * count;
    f->own = combiner != MPI_COMBINER_NAMED || true_low != 0 || extent != size || true_extent != size;
    f->data = f->own ? malloc((size_t)f->bytes + 1) : (char *)(uintptr_t)memory;
    if (!f->data && f->own) return kolo_fail(KOLO_ENOMEM, "no memory to pack %d bytes", f->bytes);
    if (f->own && fill) PMPI_Pack(memory, count, type, f->data, f->bytes, &at, MPI_COMM_WORLD);
    return 0;
}

void pmpi_unflatten(pmpi_flat *f, void *memory, int count, MPI_Datatype type, bool write)
{
    int at = 0;
    if (!f->own) return;
    if (write) PMPI_Unpack(f->data, f->bytes, &at, memory, count, type, MPI_COMM_WORLD);
    free(f->data);
}
