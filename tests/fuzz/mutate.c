/* Runs a harness without libFuzzer: NAME FOLDER COUNT SEED... The seeds as they are, which must be taken,
 * then COUNT changed ones. Which changes is a function of the number of the input alone. An input that ends
 * the process, or takes longer than 20 s, is left in FOLDER. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/philox.h"
#include "input.h"
#include "kolo/error.h"

#define MOST_SEEDS 256
#define MOST_BYTES (1 << 18)

typedef struct seed {
    char *data;
    size_t bytes;
} seed;

static seed seeds[MOST_SEEDS];
static uint8_t input[MOST_BYTES];
static size_t input_bytes;
static char crash_path[512];

static void keep_input(int number)
{
    const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const bool kept = fd >= 0 && write(fd, input, input_bytes) == (ssize_t)input_bytes;
    static const char text[] = "the input is kept in the folder of crashes\n";
    if (kept && write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static uint32_t below(kolo_random *r, size_t most) { return most ? kolo_random_u32(r) % (uint32_t)most : 0; }

/* Numbers at the borders of types and of buffers, of 1 to 8 bytes, either end first. */
static void put_number(kolo_random *r, size_t at)
{
    static const uint64_t borders[] = {0,          1,          0x7F,       0x80,        0xFF,
                                       0xFFFF,     0x7FFFFFFF, 0x80000000, ~0ull >> 32, ~0ull >> 1,
                                       1ull << 63, ~0ull,      ~0ull - 7,  1ull << 40};
    const uint64_t value = borders[below(r, sizeof borders / sizeof *borders)];
    const size_t width = (size_t)1 << below(r, 4);
    const bool big = below(r, 2);
    for (size_t i = 0; i < width && at + i < input_bytes; i++)
        input[at + i] = (uint8_t)(value >> 8 * (big ? width - 1 - i : i));
}

/* `bytes` bytes at `from` are put once more at `at`, or taken out. */
static void move_part(kolo_random *r, size_t at)
{
    const size_t length = 1 + below(r, input_bytes - at < 256 ? input_bytes - at : 256);
    if (below(r, 2)) {
        memmove(input + at, input + at + length, input_bytes - at - length);
        input_bytes -= length;
    } else if (input_bytes + length <= MOST_BYTES) {
        memmove(input + at + length, input + at, input_bytes - at);
        input_bytes += length;
    }
}

static void change(kolo_random *r, const seed *other)
{
    static const char marks[] = "0123456789+-.eE,:;\"'{}[]<>/&#\\ \t\r\n";
    if (input_bytes == 0) return;
    const size_t at = below(r, input_bytes);
    size_t most;
    switch (below(r, 7)) {
    case 0: input[at] ^= (uint8_t)(1u << below(r, 8)); break;
    case 1: input[at] = (uint8_t)kolo_random_u32(r); break;
    case 2: input[at] = (uint8_t)marks[below(r, sizeof marks - 1)]; break;
    case 3: put_number(r, at); break;
    case 4: move_part(r, at); break;
    case 5: input_bytes = at; break;
    default:
        most = other->bytes < input_bytes - at ? other->bytes : input_bytes - at;
        memcpy(input + at, other->data + below(r, other->bytes - most + 1), most < 64 ? most : 64);
    }
}

/* 1: taken as a whole. */
static int run(void)
{
    uint8_t *exact = malloc(input_bytes ? input_bytes : 1); /* so that reading behind the end can be seen */
    if (!exact) exit(1);
    memcpy(exact, input, input_bytes);
    alarm(20);
    fuzz_refused = false;
    LLVMFuzzerTestOneInput(exact, input_bytes);
    alarm(0);
    free(exact);
    return !fuzz_refused;
}

static void take(const seed *s)
{
    input_bytes = s->bytes < MOST_BYTES ? s->bytes : MOST_BYTES;
    memcpy(input, s->data, input_bytes);
}

int main(int argc, char **argv)
{
    static const int ends[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    const int count = argc > 3 ? atoi(argv[2]) : 0, n = argc - 3;
    int whole = 0, taken = 0;
    if (count < 1 || n > MOST_SEEDS) return fprintf(stderr, "usage: %s FOLDER COUNT SEED...\n", argv[0]), 78;
    snprintf(crash_path, sizeof crash_path, "%s/crash-%d", argv[1], (int)getpid());
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) signal(ends[i], keep_input);
    for (int i = 0; i < n; i++) {
        if (kolo_file_read(argv[3 + i], &seeds[i].data, &seeds[i].bytes) < 0)
            return fprintf(stderr, "%s\n", kolo_error_text()), 3;
        take(&seeds[i]);
        if (run()) whole++;
        else fprintf(stderr, "%s is refused: %s\n", argv[3 + i], kolo_error_text());
    }
    for (int i = 0; i < count; i++) {
        kolo_random r = kolo_random_at(kolo_random_key(1, KOLO_RANDOM_SHAPES), 0, (uint64_t)i);
        take(&seeds[i % n]);
        for (uint32_t k = 1 + below(&r, 4); k > 0; k--) change(&r, &seeds[below(&r, (size_t)n)]);
        taken += run();
    }
    printf("%d of %d seeds taken, of %d changed inputs %d\n", whole, n, count, taken);
    for (int i = 0; i < n; i++) free(seeds[i].data);
    return whole < n;
}
