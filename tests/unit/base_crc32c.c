/* crc32c against RFC 3720, appendix B.4, in all forms. */
#include "base/file.h"
#include "base/philox.h"

#include "tap.h"

bool kolo_crc32c_form(int form, uint32_t *crc, const void *data, size_t bytes);

static uint32_t table(uint32_t crc, const void *data, size_t bytes)
{
    kolo_crc32c_form(0, &crc, data, bytes);
    return crc;
}

/* A form against the tables: all lengths up to where every part of it has some rounds, any
 * start, a sum continued. */
static void form_agrees(int form, const uint8_t *data, size_t most)
{
    int same = 1;
    uint32_t crc = 0;
    if (!kolo_crc32c_form(form, &crc, data, 0)) {
        skip("form %d: this CPU has it not", form);
        return;
    }
    for (size_t n = 0; n + 3 < most; n += n < 1000 ? 1 : 7) {
        const size_t from = n % 3;
        crc = (uint32_t)n * 2654435761u;
        const uint32_t want = table(crc, data + from, n);
        same &= kolo_crc32c_form(form, &crc, data + from, n) && crc == want;
    }
    ok(same, "form %d agrees with the tables at lengths up to %zu", form, most);
}

static void known(const void *data, size_t bytes, uint32_t want, const char *name)
{
    is_int(kolo_crc32c(0, data, bytes), want, "%s", name);
    is_int(table(0, data, bytes), want, "%s, by table", name);
}

int main(void)
{
    uint8_t block[32], data[12000];
    known("123456789", 9, 0xe3069283, "\"123456789\"");
    known("", 0, 0, "nothing");
    memset(block, 0, 32);
    known(block, 32, 0x8a9136aa, "32 zeros");
    memset(block, 0xff, 32);
    known(block, 32, 0x62a8ab43, "32 ones");
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)i;
    known(block, 32, 0x46dd794e, "0 to 31");
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)(31 - i);
    known(block, 32, 0x113fdb5c, "31 to 0");

    kolo_random r = kolo_random_at(1, 0, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)kolo_random_u32(&r);
    int same = 1, parts = 1;
    for (size_t from = 0; from < 16; from++)
        for (size_t n = 0; n < 40; n++) same &= kolo_crc32c(0, data + from, n) == table(0, data + from, n);
    ok(same, "both forms agree at any start and length");
    uint32_t whole = kolo_crc32c(0, data, sizeof data);
    int joined = 1;
    for (size_t cut = 0; cut <= sizeof data; cut += 37) {
        const uint32_t first = kolo_crc32c(0, data, cut),
                       second = kolo_crc32c(0, data + cut, sizeof data - cut);
        joined &= kolo_crc32c_join(first, second, sizeof data - cut) == whole;
        parts &= kolo_crc32c(kolo_crc32c(0, data, cut), data + cut, sizeof data - cut) == whole;
    }
    ok(joined, "sums of two parts join to the sum of the whole");
    ok(parts, "a sum continued over two parts is the sum of the whole");
    for (int form = 1; form < 4; form++) form_agrees(form, data, sizeof data);
    data[500] ^= 1;
    ok(kolo_crc32c(0, data, sizeof data) != whole, "one flipped bit changes the sum");
    return done_testing();
}
