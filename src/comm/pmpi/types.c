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
    const struct {
        MPI_Datatype type;
        enum kind kind;
    } types[] = {
        {MPI_FLOAT, FLOATING},
        {MPI_DOUBLE, FLOATING},
        {MPI_INT, SIGNED},
        {MPI_LONG, SIGNED},
        {MPI_LONG_LONG, SIGNED},
        {MPI_SHORT, SIGNED},
        {MPI_SIGNED_CHAR, SIGNED},
        {MPI_UNSIGNED_CHAR, UNSIGNED},
        {MPI_UNSIGNED_SHORT, UNSIGNED},
        {MPI_UNSIGNED, UNSIGNED},
        {MPI_UNSIGNED_LONG, UNSIGNED},
        {MPI_UNSIGNED_LONG_LONG, UNSIGNED},
        {MPI_INT8_T, SIGNED},
        {MPI_INT16_T, SIGNED},
        {MPI_INT32_T, SIGNED},
        {MPI_INT64_T, SIGNED},
        {MPI_UINT8_T, UNSIGNED},
        {MPI_UINT16_T, UNSIGNED},
        {MPI_UINT32_T, UNSIGNED},
        {MPI_UINT64_T, UNSIGNED},
        {MPI_AINT, SIGNED},
        {MPI_OFFSET, SIGNED},
        {MPI_COUNT, SIGNED},
        {MPI_INTEGER, SIGNED},
        {MPI_REAL, FLOATING},
        {MPI_DOUBLE_PRECISION, FLOATING},
        {MPI_INTEGER1, SIGNED},
        {MPI_INTEGER2, SIGNED},
        {MPI_INTEGER4, SIGNED},
        {MPI_INTEGER8, SIGNED},
        {MPI_REAL4, FLOATING},
        {MPI_REAL8, FLOATING},
        /* text by the standard; but MPIs add it up, and OSU's benchmarks ask for that */
        {MPI_CHAR, CHAR_MIN < 0 ? SIGNED : UNSIGNED},
    };
    /* an MPI without Fortran has no types of it */
    for (size_t i = 0; type != MPI_DATATYPE_NULL && i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return (int)types[i].kind;
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
