/* crc32c, polynomial 0x1EDC6F41 reflected (RFC 3720, appendix B.4), by what the CPU has: eight tables;
 * SSE4.2's instruction; three chains of it, which hide its latency, joined by carry-less products; and,
 * where these are 256 bits wide, a fourth part that is folded beside the chains (Gopal and others, "Fast
 * CRC computation", Intel 2009).
 *
 * Reflected: bit i of a 32-bit value is the coefficient of x^(31 - i). The carry-less product of two
 * such values, put through the instruction, is their product times x^33 modulo the polynomial; the
 * constants are smaller by that. */
#include <pthread.h>
#include <string.h>

#include "base/file.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL 0x82F63B78u

static uint32_t table[8][256];
static uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t bytes);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
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
        crc = table[7][w & 255] ^ table[6][w >> 8 & 255] ^ table[5][w >> 16 & 255] ^ table[4][w >> 24 & 255] ^
              table[3][w >> 32 & 255] ^ table[2][w >> 40 & 255] ^ table[1][w >> 48 & 255] ^ table[0][w >> 56];
    }
    for (; bytes; data++, bytes--) crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return crc;
}

#if defined(__x86_64__)
enum {
    CHAINS = 3,
    FOLD = 128,
    FOLD_LANES = FOLD / 32,
    WORDS = 4 /* of 8 bytes that a chain takes beside a fold */
};
enum {
    CHAINS_FROM = 256,
    FOLDS_FROM = 8192
}; /* bytes, below which joining takes longer than it saves (measured) */

static uint32_t power[48];      /* [k] x^(8 * 2^k - 33), k >= 3: moves a sum over 2^k bytes */
static uint32_t fold_factor[2]; /* of the two halves of 16 bytes: x^(8 FOLD + 64 - 33), x^(8 FOLD - 33) */

static uint64_t crc32c_load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* x^n modulo the polynomial. */
static uint32_t power_of_x(int n)
{
    uint32_t value = 0x80000000u;
    for (; n > 0; n--) value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
    return value;
}

__attribute__((target("sse4.2"))) static uint32_t update_sse42(uint32_t crc, const uint8_t *data,
                                                               size_t bytes)
{
    uint64_t wide = crc;
    for (; bytes >= 8; data += 8, bytes -= 8) wide = _mm_crc32_u64(wide, crc32c_load(data));
    crc = (uint32_t)wide;
    for (; bytes; data++, bytes--) crc = _mm_crc32_u8(crc, *data);
    return crc;
}

/* a b x^33 */
__attribute__((target("sse4.2,pclmul"))) static uint32_t multiply(uint32_t a, uint32_t b)
{
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static void make_powers(void)
{
    const int count = sizeof power / sizeof *power;
    power[3] = power_of_x(8 * 8 - 33);
    for (int k = 4; k < count; k++) power[k] = multiply(power[k - 1], power[k - 1]);
    fold_factor[0] = power_of_x(8 * FOLD + 64 - 33);
    fold_factor[1] = power_of_x(8 * FOLD - 33);
}

/* The sum as it is once `bytes` zeros, a multiple of 8, follow. */
static uint32_t move(uint32_t crc, size_t bytes)
{
    for (int k = 3; bytes >> k; k++)
        if (bytes >> k & 1) crc = multiply(crc, power[k]);
    return crc;
}

/* Of three parts of `each` bytes that follow one another: what was summed of each by itself. */
static uint32_t crc32c_join(const uint64_t chain[CHAINS], size_t each)
{
    return move((uint32_t)chain[0], 2 * each) ^ move((uint32_t)chain[1], each) ^ (uint32_t)chain[2];
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t update_chains(uint32_t crc, const uint8_t *data,
                                                                       size_t bytes)
{
    const size_t each = bytes / (CHAINS * 8) * 8;
    if (bytes < CHAINS_FROM) return update_sse42(crc, data, bytes);
    uint64_t chain[CHAINS] = {crc};
    for (size_t i = 0; i < each; i += 8)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = _mm_crc32_u64(chain[c], crc32c_load(data + (size_t)c * each + i));
    return update_sse42(crc32c_join(chain, each), data + CHAINS * each, bytes - CHAINS * each);
}

/* Turn by turn 128 bytes are folded onto the 128 behind them, and each chain takes 32: different units of
 * the CPU, which they keep equally busy. What is folded stands first. */
__attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq"))) static uint32_t
update_folds(uint32_t crc, const uint8_t *data, size_t bytes)
{
    const size_t turns = bytes / (FOLD + CHAINS * WORDS * 8), each = turns * WORDS * 8;
    if (bytes < FOLDS_FROM) return update_chains(crc, data, bytes);
    const uint8_t *behind = data + turns * FOLD;
    const __m256i factor = _mm256_set_epi64x(fold_factor[1], fold_factor[0], fold_factor[1], fold_factor[0]);
    uint64_t chain[CHAINS] = {0};
    __m256i lane[FOLD_LANES];
    for (int l = 0; l < FOLD_LANES; l++) lane[l] = _mm256_loadu_si256((const __m256i *)data + l);
    lane[0] = _mm256_xor_si256(lane[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    for (size_t t = 0; t < turns; t++) {
        const __m256i *next = (const __m256i *)(data + (t + 1) * FOLD);
        for (int l = 0; l < FOLD_LANES && t + 1 < turns; l++) {
            const __m256i first = _mm256_clmulepi64_epi128(lane[l], factor, 0x00),
                          second = _mm256_clmulepi64_epi128(lane[l], factor, 0x11);
            lane[l] = _mm256_xor_si256(_mm256_xor_si256(first, second), _mm256_loadu_si256(next + l));
        }
        for (int w = 0; w < WORDS; w++)
            for (int c = 0; c < CHAINS; c++)
                chain[c] = _mm_crc32_u64(
                    chain[c], crc32c_load(behind + (size_t)c * each + (t * WORDS + (size_t)w) * 8));
    }
    crc = update_sse42(0, (const uint8_t *)lane, FOLD); /* what is left has the sum of all that was folded */
    crc = move(crc, CHAINS * each) ^ crc32c_join(chain, each);
    return update_sse42(crc, behind + CHAINS * each, bytes - turns * FOLD - CHAINS * each);
}
#endif

static void crc32c_choose(void)
{
    make_table();
    update = update_table;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("sse4.2")) return;
    update = update_sse42;
    if (!__builtin_cpu_supports("pclmul")) return;
    make_powers();
    update = update_chains;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq")) update = update_folds;
#endif
}

uint32_t kolo_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    pthread_once(&once, crc32c_choose);
    return ~update(~crc, data, bytes);
}

/* a b modulo the polynomial */
static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (; a; a <<= 1, b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1)
        if (a & 0x80000000u) sum ^= b;
    return sum;
}

uint32_t kolo_crc32c_join(uint32_t first, uint32_t second, uint64_t bytes)
{
    uint32_t square = 0x80000000u >> 8; /* x^8, x^16, x^32, ... */
    for (; bytes; bytes >>= 1, square = product(square, square))
        if (bytes & 1) first = product(first, square);
    return first ^ second;
}

/* The forms by number, for their test: 0 the tables, then the faster ones; false: not on this CPU. */
bool kolo_crc32c_form(int form, uint32_t *crc, const void *data, size_t bytes);
bool kolo_crc32c_form(int form, uint32_t *crc, const void *data, size_t bytes)
{
    pthread_once(&once, crc32c_choose);
#if defined(__x86_64__)
    uint32_t (*const forms[])(uint32_t, const uint8_t *, size_t) = {update_table, update_sse42, update_chains,
                                                                    update_folds};
#else
    uint32_t (*const forms[])(uint32_t, const uint8_t *, size_t) = {update_table};
#endif
    const int count = sizeof forms / sizeof *forms;
    int best = 0;
    while (forms[best] != update) best++;
    if (form >= count || form > best) return false;
    *crc = ~forms[form](~*crc, data, bytes);
    return true;
}
