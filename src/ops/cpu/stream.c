#include "ops/cpu/stream.h"

#include <stdint.h>
#include <string.h>

#include "ops/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static void stream_wide(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(to + i), _mm512_loadu_si512(from + i));
}

static void stream_narrow(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
}

void kolo_stream_copy(void *to, const void *from, size_t bytes)
{
    char *t = to;
    const char *f = from;
    size_t head = (64 - (uintptr_t)t % 64) % 64;
    if (head > bytes) head = bytes;
    size_t middle = (bytes - head) / 64 * 64;
    memcpy(t, f, head);
    if (kolo_cpu_level() == 2) stream_wide(t + head, f + head, middle);
    else stream_narrow(t + head, f + head, middle);
    memcpy(t + head + middle, f + head + middle, bytes - head - middle);
}

void kolo_stream_end(void) { _mm_sfence(); }
#else
void kolo_stream_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void kolo_stream_end(void) {}
#endif
