/* Tensor cores for kernels of our own: products of 16 x 16 and 16 x 8 numbers of 16 bits, added in f32, by
 * all lanes of a warp (PTX: mma.m16n8k16, ldmatrix). With lane = 4 g + t a lane has, two numbers a word, the
 * lower half first,
 *
 *     a[0] row g, columns 2t, 2t + 1    a[1] row g + 8       a[2], a[3] the same, columns 8 further
 *     b[0] column g, rows 2t, 2t + 1    b[1] rows 8 further
 *     d[0], d[1] row g, columns 2t, 2t + 1                   d[2], d[3] row g + 8
 *
 * so two results side by side, rounded, are a left factor again. */
#ifndef KOLO_OPS_CUDA_MMA_CUH
#define KOLO_OPS_CUDA_MMA_CUH

#include "ops/cuda/vector.cuh"

struct __attribute__((may_alias)) kolo_pair {
    uint32_t word; /* two numbers, as they are moved */
};

#ifdef KOLO_EMULATE

/* Words of all lanes, one after the other. */
template <int N> static void kolo_emulate_words(uint32_t (&all)[N][32], const uint32_t (&own)[N])
{
    for (int i = 0; i < N; i++) {
        const uint64_t *from = kolo_emulate_exchange(own[i], KOLO_FULL_WARP, __LINE__);
        for (int l = 0; l < 32; l++) all[i][l] = (uint32_t)from[l];
    }
}
template <typename T> static float kolo_emulate_half(uint32_t word, int upper)
{
    float two[2];
    kolo_unpack((const T *)NULL, word, two);
    return two[upper];
}

template <typename T>
static void kolo_mma(const T *, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    uint32_t left[4][32], right[2][32];
    kolo_emulate_words(left, a);
    kolo_emulate_words(right, b);
    const int g = kolo_emulate_lane() / 4, t = kolo_emulate_lane() % 4;
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        for (int k = 0; k < 16; k++)
            d[i] += kolo_emulate_half<T>(left[k / 8 * 2 + row / 8][row % 8 * 4 + k % 8 / 2], k % 2) *
                    kolo_emulate_half<T>(right[k / 8][column * 4 + k % 8 / 2], k % 2);
    }
}

template <typename T> static void kolo_load_squares(uint32_t (&to)[4], const T *row, bool turned)
{
    const uint64_t *from = kolo_emulate_exchange((uint64_t)(uintptr_t)row, KOLO_FULL_WARP, __LINE__);
    const int g = kolo_emulate_lane() / 4, t = kolo_emulate_lane() % 4;
    for (int m = 0; m < 4; m++) {
        uint32_t half[2];
        for (int i = 0; i < 2; i++) {
            const kolo_words *words = (const kolo_words *)(uintptr_t)from[8 * m + (turned ? 2 * t + i : g)];
            const int column = turned ? g : 2 * t + i;
            half[i] = words->at[column / 2] >> column % 2 * 16 & 0xFFFFu;
        }
        to[m] = half[0] | half[1] << 16;
    }
}

#else

static __device__ __forceinline__ void kolo_mma(const kolo_bf16 *, float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void kolo_mma(const kolo_f16 *, float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four squares of 8 x 8 from shared memory; lane 8 m + i has the address of row i of square m. turned:
 * columns become rows. */
template <typename T>
static __device__ __forceinline__ void kolo_load_squares(uint32_t (&to)[4], const T *row, bool turned)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

#endif

/* Of a matrix in shared memory whose rows are `wide` numbers apart, a multiple of 8: a left factor, rows and
 * columns 16 from `row` and `column` on. */
template <typename T>
static __device__ __forceinline__ void kolo_load_left(uint32_t (&a)[4], const T *matrix, int wide, int row,
                                                      int column, int lane)
{
    kolo_load_squares(a, matrix + (row + lane % 16) * wide + column + lane / 16 * 8, false);
}
/* Two right factors side by side of its transpose: columns from `row` on, rows from `column` on. */
template <typename T>
static __device__ __forceinline__ void kolo_load_turned(uint32_t (&b)[2][2], const T *matrix, int wide,
                                                        int row, int column, int lane)
{
    uint32_t four[4];
    kolo_load_squares(four, matrix + (row + lane % 8 + lane / 16 * 8) * wide + column + lane / 8 % 2 * 8,
                      false);
    b[0][0] = four[0], b[0][1] = four[1], b[1][0] = four[2], b[1][1] = four[3];
}
/* Two right factors side by side as they lie: rows from `row`, columns from `column` on. */
template <typename T>
static __device__ __forceinline__ void kolo_load_right(uint32_t (&b)[2][2], const T *matrix, int wide,
                                                       int row, int column, int lane)
{
    uint32_t four[4];
    kolo_load_squares(four, matrix + (row + lane % 16) * wide + column + lane / 16 * 8, true);
    b[0][0] = four[0], b[0][1] = four[1], b[1][0] = four[2], b[1][1] = four[3];
}

/* Results side by side, rounded to T, as a left factor. */
template <typename T>
static __device__ __forceinline__ void kolo_round_left(const T *type, uint32_t (&a)[4],
                                                       const float (&first)[4], const float (&second)[4])
{
    a[0] = kolo_repack(type, first), a[1] = kolo_repack(type, first + 2);
    a[2] = kolo_repack(type, second), a[3] = kolo_repack(type, second + 2);
}

#endif
