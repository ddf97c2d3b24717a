/* crc32c, polynomial 0x1EDC6F41 reflected (RFC 3720, appendix B.4): SSE4.2's instruction, or eight tables. */
#include <pthread.h>
#include <string.h>

#include "base/file.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint32_t table[8][256];
static uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t bytes);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        table[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

static uint32_t update_table(uint32_t crc, const uint8_t *data, size_t bytes)
{
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t w = 0;
        for (int i = 0; i < 8; i++) w |= (uint64_t)data[i] << 8 * i;
        w ^= crc;
        crc = table[7][w & 255] ^ table[6][w >> 8 & 255] ^ table[5][w >> 16 & 255] ^ table[4][w >> 24 & 255] ^ table[3][w >> 32 & 255] ^
              table[2][w >> 40 & 255] ^ table[1][w >> 48 & 255] ^ table[0][w >> 56];
    }
    for (; bytes; data++, bytes--) crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t update_sse42(uint32_t crc, const uint8_t *data, size_t bytes)
{
    uint64_t wide = crc;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t w;
        memcpy(&w, data, 8);
        wide = _mm_crc32_u64(wide, w);
    }
    crc = (uint32_t)wide;
    for (; bytes; data++, bytes--) crc = _mm_crc32_u8(crc, *data);
    return crc;
}
#endif

static void choose(void)
{
    make_table();
    update = update_table;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) update = update_sse42;
#endif
}

uint32_t kolo_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    pthread_once(&once, choose);
    return ~update(~crc, data, bytes);
}

/* The fallback by name, for its test. */
uint32_t kolo_crc32c_table(uint32_t crc, const void *data, size_t bytes);
uint32_t kolo_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
    pthread_once(&once, choose);
    return ~update_table(~crc, data, bytes);
}
