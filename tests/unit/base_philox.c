/* Philox 4x32-10 against the known answers published with Random123 (kat_vectors). */
#include "base/philox.h"

#include "tap.h"

static void known(uint64_t key, uint64_t high, uint64_t low, const uint32_t want[4], const char *name)
{
    kolo_philox4 got = kolo_philox(key, high, low);
    int same = 1;
    for (int i = 0; i < 4; i++) same &= got.v[i] == want[i];
    if (!ok(same, "known answer: %s", name))
        diag("got %08x %08x %08x %08x", got.v[0], got.v[1], got.v[2], got.v[3]);
}

int main(void)
{
    known(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, "all zeros");
    known(~0ull, ~0ull, ~0ull, (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, "all ones");
    known(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull,
          (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, "digits of pi");

    kolo_random a = kolo_random_at(kolo_random_key(1, KOLO_RANDOM_INIT), 2, 3), b = a;
    for (int i = 0; i < 7; i++) kolo_random_u32(&a);
    kolo_philox4 second = kolo_philox(kolo_random_key(1, KOLO_RANDOM_INIT), 2, 3 + (1ull << 48));
    is_int(kolo_random_u32(&a), second.v[3], "a stream's eighth word is word 3 of its second counter");
    is_int(kolo_random_u32(&b), kolo_philox(kolo_random_key(1, KOLO_RANDOM_INIT), 2, 3).v[0],
           "streams are independent");

    ok(kolo_uniform(0) == 0 && kolo_uniform(~0u) < 1 && kolo_uniform(~0u) > 0.9999999f,
       "uniform lies in [0, 1)");
    int64_t counts[7] = {0};
    double sum = 0;
    kolo_random r = kolo_random_at(kolo_random_key(0, KOLO_RANDOM_PACK), 0, 0);
    for (int i = 0; i < 70000; i++) counts[kolo_random_below(&r, 7)]++;
    for (int i = 0; i < 70000; i++) sum += kolo_random_uniform(&r);
    double chi = 0;
    for (int i = 0; i < 7; i++) chi += (double)(counts[i] - 10000) * (double)(counts[i] - 10000) / 10000;
    ok(chi < 22.46, "70000 draws below 7 are even (chi squared %.1f, 6 degrees, p = 0.001 at 22.46)", chi);
    is_near(sum / 70000, 0.5, 4 * sqrt(1 / 12.0 / 70000), "the mean of 70000 uniforms");
    ok(kolo_random_key(5, KOLO_RANDOM_INIT) != kolo_random_key(5, KOLO_RANDOM_AUGMENT),
       "purposes have keys of their own");
    return done_testing();
}
