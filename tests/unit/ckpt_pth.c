/* Files of torch.save in the older form, written here byte for byte as Python pickles them (the archive:
 * tests/fuzz/seeds.sh, tests/peers/exchange.py). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/weights.h"
#include "kolo/error.h"
#include "tap.h"

#define HEAD                                                                                         \
    "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.\x80\2}X\x0d\0\0\0little_" \
    "endian\x88s."
#define STORAGE(type, key, count) \
    "(X\7\0\0\0storagectorch\n" type "\nX\1\0\0\0" key "X\3\0\0\0cpuK" count "NtQ"
#define TENSOR(storage, offset, shape, stride) \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "K" offset shape stride "\x89}tR"
/* a transposed (3,2) */
#define W TENSOR(STORAGE("FloatStorage", "0", "\6"), "\0", "K\2K\3\x86", "K\1K\2\x86")
#define B TENSOR(STORAGE("HalfStorage", "1", "\2"), "\1", "K\1\x85", "K\1\x85")
#define KEYS "\x80\2](X\1\0\0\0000X\1\0\0\0001e."
#define NUMBERS                                                                      \
    "\6\0\0\0\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@\0\0\xc0@" /* 1 .. 6 */ \
    "\2\0\0\0\0\0\0\0\0\x3c\0\xc0"                                      /* 1, -2 */
/* a number of NumPy's, which is what pycocotools calls a precision; core: as NumPy 1 and 2 name its place */
#define SCALAR(core)                                                                            \
    "cnumpy." core ".multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0f8\x89\x88\x87R(K\3X\1\0\0\0<" \
    "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"                                                \
    "c_codecs\nencode\nX\x8\0\0\0\0\0\0\0\0\0\0\0X\6\0\0\0latin1\x86R\x86R"
#define STATE(more) \
    "\x80\2ccollections\nOrderedDict\n)R(X\x8\0\0\0module.w" W "X\x8\0\0\0module.b" B more "u."

static char path[] = "/tmp/kolo_pth_XXXXXX";

static int open_bytes(kolo_weights **w, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) diag("cannot write %s", path);
    return kolo_weights_open(w, path, NULL);
}
#define OPEN(w, text) open_bytes(w, text, sizeof(text) - 1)

static void values(void)
{
    kolo_weights *w = NULL;
    float x[6];
    is_int(OPEN(&w, HEAD STATE("") KEYS NUMBERS), 0, "a dict of tensors is taken (%s)", kolo_error_text());
    const kolo_weight *t = w ? kolo_weights_find(w, "w") : NULL, *b = w ? kolo_weights_find(w, "b") : NULL;
    ok(t && b && kolo_weights_count(w) == 2, "without the prefix of its wrapper");
    if (!t || !b) return;
    kolo_weight_to_f32(t, x, 6);
    ok(t->rank == 2 && t->dim[0] == 2 && t->dim[1] == 3 && x[0] == 1 && x[1] == 3 && x[2] == 5 && x[3] == 2 &&
           x[5] == 6,
       "strides are followed");
    kolo_weight_to_f32(b, x, 1);
    ok(b->type == KOLO_F16 && x[0] == -2, "and offsets; 16-bit floats are widened");
    kolo_weights_close(&w);
    is_int(OPEN(&w, HEAD "\x80\2}(X\5\0\0\0epochK\7X\4\0\0\0args"
                         "cargparse\nNamespace\n)\x81}X\2\0\0\0lrG?\xe0\0\0\0\0\0\0sbX\5\0\0\0model"
                         "}(X\1\0\0\0w" W "X\1\0\0\0b" B "uX\7\0\0\0best_ap" SCALAR(
                             "core") "X\7\0\0\0curr_ap" SCALAR("_core") "u." KEYS NUMBERS),
           0, "out of a checkpoint, whose other things are passed over (%s)", kolo_error_text());
    ok(w && kolo_weights_find(w, "w"), "under their names");
    kolo_weights_close(&w);
}

/* Where a dimension is of one element, nobody goes its stride. */
static void idle_stride(void)
{
    kolo_weights *w = NULL;
    float x[6] = {0};
    is_int(
        OPEN(&w, HEAD "\x80\2}X\1\0\0\0w" TENSOR(
                     STORAGE("FloatStorage", "0", "\6"), "\0", "K\3K\1K\2\x87",
                     "K\1\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7fK\3\x87") "s.\x80\2](X\1\0\0\0000e." NUMBERS),
        0, "a stride of 2^63 - 1 beside one element is taken (%s)", kolo_error_text());
    const kolo_weight *t = w ? kolo_weights_find(w, "w") : NULL;
    if (t) kolo_weight_to_f32(t, x, 6);
    ok(x[0] == 1 && x[1] == 4 && x[2] == 2 && x[5] == 6, "and not added to anything");
    kolo_weights_close(&w);
}

/* What expand() makes: more elements than the file has numbers. */
static void expanded(void)
{
    kolo_weights *w = NULL;
    float x[6] = {0};
    is_int(OPEN(&w, HEAD "\x80\2}X\1\0\0\0b" TENSOR(STORAGE("HalfStorage", "1", "\2"), "\0", "K\3K\2\x86",
                                                    "K\0K\1\x86") "s.\x80\2](X\1\0\0\0001e."
                                                                  "\2\0\0\0\0\0\0\0\0\x3c\0\xc0"),
           0, "three rows of one, by a stride of 0, are taken (%s)", kolo_error_text());
    const kolo_weight *t = w ? kolo_weights_find(w, "b") : NULL;
    if (t) kolo_weight_to_f32(t, x, 6);
    ok(t && t->bytes == 12 && x[0] == 1 && x[1] == -2 && x[2] == 1 && x[4] == 1 && x[5] == -2,
       "and each row has the numbers of the one");
    kolo_weights_close(&w);
}

/* As torchvision's training script saves weights and their average. */
static void averages(void)
{
    kolo_weights *w = NULL;
    char named[64];
    is_int(OPEN(&w, HEAD "\x80\2}(X\x9\0\0\0model_ema}(X\x8\0\0\0module.w" B "X\xa\0\0\0n_averaged" B
                         "uX\5\0\0\0model}(X\1\0\0\0w" W "X\1\0\0\0b" B "uu." KEYS NUMBERS),
           0, "weights and their average in one file (%s)", kolo_error_text());
    const kolo_weight *t = w ? kolo_weights_find(w, "w") : NULL;
    ok(t && t->rank == 2 && !strcmp(kolo_weights_chosen_set(w), "model"),
       "the weights are taken, which is known");
    ok(w && kolo_weights_other_set(w) && !strcmp(kolo_weights_other_set(w), "model_ema"),
       "and that there is another set");
    kolo_weights_close(&w);
    snprintf(named, sizeof named, "%s:model_ema", path);
    is_int(kolo_weights_open(&w, named, NULL), 0, "which FILE:KEY takes (%s)", kolo_error_text());
    t = w ? kolo_weights_find(w, "w") : NULL;
    ok(t && t->rank == 1 && kolo_weights_count(w) == 2,
       "under its names without their wrapper's, whatever counter is among them");
    kolo_weights_close(&w);
    snprintf(named, sizeof named, "%s:swa", path);
    ok(kolo_weights_open(&w, named, NULL) == KOLO_EINPUT &&
           strstr(kolo_error_text(), "no tensors under \"swa\""),
       "a key that is not there: %s", kolo_error_text());
}

static void refused(const void *data, size_t bytes, const char *what, const char *text)
{
    kolo_weights *w = NULL;
    const int rc = open_bytes(&w, data, bytes);
    ok(rc == KOLO_EINPUT && !w && strstr(kolo_error_text(), text), "refused: %s", what);
    if (rc != KOLO_EINPUT || !strstr(kolo_error_text(), text))
        diag("%d, %s", rc, rc < 0 ? kolo_error_text() : "taken");
    kolo_weights_close(&w);
}
#define REFUSED(file, what, text) refused(file, sizeof(file) - 1, what, text)

static void hostile(void)
{
    REFUSED(HEAD "\x80\2cposix\nsystem\nX\4\0\0\0true\x85R.", "a call of the system, by name",
            "names posix.system");
    REFUSED(HEAD "\x80\4\x8c\x08"
                 "builtins\x8c\4eval\x93.",
            "eval, as protocol 4 says it", "names builtins.eval");
    REFUSED(HEAD "\x80\2ctorchvision.models.resnet\nResNet\n)\x81.", "a whole model, with a cure",
            "torch.save(model.state_dict(), FILE)");
    REFUSED(HEAD "\x80\2ctorch._utils\n_rebuild_sparse_tensor\n)R.", "sparse tensors, with another cure",
            "write them dense");
    REFUSED(HEAD "\x80\2ctorch\nComplexFloatStorage\n.", "complex numbers, too", "of real numbers in f32");
    REFUSED(HEAD "\x80\2i__main__\nx\n.", "another way to make objects", "opcode 0x69");
    REFUSED(HEAD "\x80\2X\xff\xff\xff\xff"
                 "a.",
            "a text longer than the file", "ends early");
    REFUSED(HEAD "\x80\2Nr\xff\xff\xff\x7f.", "a far place in memory", "more than it can hold");
    REFUSED(HEAD "\x80\2h\7.", "memory never written", "did not remember");
    REFUSED(HEAD "\x80\2(s.", "items without a dict", "more from its stack");
    REFUSED(HEAD "\x80\2(.", "a mark left over", "something left to do");
    REFUSED(HEAD "\x80\2K\1." KEYS NUMBERS, "no dict", "lists a storage that no tensor has");
    REFUSED(HEAD "\x80\2}X\1\0\0\0w" TENSOR(STORAGE("FloatStorage", "0", "\6"), "\1", "K\2K\3\x86",
                                            "K\3K\1\x86") "s."
                                                          "\x80\2](X\1\0\0\0000e." NUMBERS,
            "a tensor beyond its storage", "beyond its storage");
    REFUSED(HEAD "\x80\2}X\1\0\0\0w" TENSOR(STORAGE("FloatStorage", "0", "\6"), "\0", "K\2K\3\x86",
                                            "J\xff\xff\xff\xffK\1\x86") "s."
                                                                        "\x80\2](X\1\0\0\0000e." NUMBERS,
            "a negative stride", "whole numbers");
    REFUSED(HEAD "\x80\2}X\1\0\0\0w" TENSOR(STORAGE("FloatStorage", "0", "\6"), "\0",
                                            "\x8a\7\xff\xff\xff\xff\xff\xff\x7fM\xff\x7f\x86",
                                            "K\0K\0\x86") "s."
                                                          "\x80\2](X\1\0\0\0000e." NUMBERS,
            "more elements than memory", "overflow");
    REFUSED(HEAD "\x80\2}X\1\0\0\0w" TENSOR(STORAGE("FloatStorage", "0", "\6"), "\0",
                                            "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f\x85",
                                            "K\0\x85") "s."
                                                       "\x80\2](X\1\0\0\0000e." NUMBERS,
            "more bytes than memory", "overflow");
    REFUSED(HEAD STATE("X\x8\0\0\0module.w" W) KEYS NUMBERS, "one name twice", "two of this name");
    REFUSED("PK\3\4 and no archive", "an archive that is none", "zip directory");
    char *deep = malloc(1 << 22);
    memcpy(deep, HEAD "\x80\2", sizeof HEAD + 1);
    memset(deep + sizeof HEAD + 1, '(', (1 << 22) - sizeof HEAD - 1);
    refused(deep, 1 << 22, "four million marks", "ends early");
    free(deep);
}

static void cut(void)
{
    static const char whole[] = HEAD STATE("") KEYS NUMBERS;
    int refusals = 0;
    for (size_t n = 15; n < sizeof whole - 1; n++) {
        kolo_weights *w = NULL;
        refusals += open_bytes(&w, whole, n) == KOLO_EINPUT && !w;
        kolo_weights_close(&w);
    }
    is_int(refusals, (int)sizeof whole - 1 - 15, "cut anywhere it is refused");
}

int main(void)
{
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    values();
    idle_stride();
    expanded();
    averages();
    hostile();
    cut();
    unlink(path);
    return done_testing();
}
