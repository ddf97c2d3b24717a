/* Flips one bit of a file, for tests in shell:
 *   flip_bit FILE SEED NUMBER     the one of flip NUMBER of a campaign (tests/flip.h);
 *                                 prints which bit it was
 *   flip_bit FILE BIT             that one: back */
#include "../flip.h"

int main(int count, char **word)
{
    const int64_t bits = count > 2 ? flip_bits(word[1]) : -1;
    if ((count != 3 && count != 4) || bits < 1)
        return fprintf(stderr, "usage: flip_bit FILE SEED NUMBER | FILE BIT\n"), 2;
    const int64_t bit = count == 4
                            ? flip_choose(strtoull(word[2], NULL, 10), strtoll(word[3], NULL, 10), bits)
                            : strtoll(word[2], NULL, 10);
    if (bit < 0 || bit >= bits || flip_bit(word[1], bit) < 0) return perror(word[1]), 3;
    printf("%lld\n", (long long)bit);
    return 0;
}
