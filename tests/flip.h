/* Single flipped bits, as disks, memory and networks make them. A campaign flips many, one at a time, and
 * looks what becomes of each; KOLO_FLIP_SEED repeats one that failed, KOLO_FLIPS says how many (bars:
 * tests/long). */
#ifndef TESTS_FLIP_H
#define TESTS_FLIP_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/philox.h"

/* Of this run: the environment's, else a new one. It is printed, so that a failure can be repeated. */
static inline uint64_t flip_seed(void)
{
    const char *given = getenv("KOLO_FLIP_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
    printf("# KOLO_FLIP_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline int64_t flip_count(int64_t otherwise)
{
    const char *given = getenv("KOLO_FLIPS");
    return given ? strtoll(given, NULL, 10) : otherwise;
}

/* Bits of the file; negative: there is none. */
static inline int64_t flip_bits(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size * 8 : -1;
}

/* Bit of the flip `number` of a campaign: any of the file, each as likely. */
static inline int64_t flip_choose(uint64_t seed, int64_t number, int64_t bits)
{
    kolo_random random = kolo_random_at(seed, (uint64_t)number, 0);
    const uint64_t high = kolo_random_u32(&random), low = kolo_random_u32(&random);
    return (int64_t)((high << 32 | low) % (uint64_t)bits);
}

/* Flips bit `bit` % 8 of byte `bit` / 8; once more, and the file is what it was. 0 or -1. */
static inline int flip_bit(const char *path, int64_t bit)
{
    uint8_t byte;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    int bad = pread(fd, &byte, 1, bit / 8) != 1;
    byte = (uint8_t)(byte ^ 1u << bit % 8);
    bad = bad || pwrite(fd, &byte, 1, bit / 8) != 1;
    return close(fd) != 0 || bad ? -1 : 0;
}

#endif
