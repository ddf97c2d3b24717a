/* Convolutions of every channel with its own filter (groups = channels), which libraries are slow at: what
 * the kernels share. A warp takes 32 words of 4 bytes side by side, 32 channels in f32 and 64 in 16-bit
 * types, which is a line of the cache; images lie in shared memory as tiles of such lines. Weights are
 * stored (channels, KH, KW), without padding. */
#ifndef KOLO_OPS_CUDA_DEPTHWISE_CUH
#define KOLO_OPS_CUDA_DEPTHWISE_CUH

#include "ops/cuda/vector.cuh"

enum {
    KOLO_DEPTH_LANES = 32,
    KOLO_DEPTH_TILE = 8 /* rows and columns of a tile of results */,
    KOLO_DEPTH_SHARED = 48 << 10
};

typedef struct kolo_depthwise {
    int rows, channels, stored;
    int height, width, out_height, out_width; /* of x, of y */
    int kernel[2], stride[2], pad[2], dilation[2], taps;
    int groups;                                 /* lines of a pixel */
    int tiles[2], tall;                         /* tiles of an image; rows of one */
    int warps, chunks, splits, each, each_taps; /* of the weight's gradient */
    int at[4];                                  /* args of x, w, y, bias; -1: not there */
    enum kolo_dtype dtype;
} kolo_depthwise;

/* 0: prepared; 1: not for these kernels; negative: failed. `d` is filled and stays the
 * caller's. depthwise_weight.cu */
int kolo_depthwise_weight_prepare(kolo_depthwise *d, const kolo_kernel_request *r, kolo_kernel *k);

template <typename T> struct kolo_depth {
    enum {
        P = 4 / sizeof(T),
        LINE = KOLO_DEPTH_LANES * P,
        VECTOR = 16 / sizeof(T)
    }; /* channels of a word, line, vector */
};

/* Copies high x wide pixels of a map, from (top, left) of row n on, of line `group`; zeros where there are
 * none. By all threads. */
template <typename T>
static __device__ void kolo_depth_load(uint32_t *to, const T *map, int n, int height, int width, int stored,
                                       int top, int left, int high, int wide, int group)
{
    const int channel = group * kolo_depth<T>::LINE + (int)threadIdx.x % 8 * kolo_depth<T>::VECTOR;
    for (int i = (int)threadIdx.x / 8; i < high * wide; i += (int)blockDim.x / 8) {
        const int h = top + i / wide, w = left + i % wide;
        const bool there = h >= 0 && h < height && w >= 0 && w < width && channel < stored;
        const kolo_words words =
            there ? kolo_read16(map + (((int64_t)n * height + h) * width + w) * stored + channel)
                  : kolo_words{};
        kolo_write16(to + i * KOLO_DEPTH_LANES + threadIdx.x % 8 * 4, words);
    }
}

#endif
