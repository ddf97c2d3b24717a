/* Safetensors: round trip, the layout that other readers want, and headers that lie. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/safetensors.h"
#include "kolo/error.h"
#include "tap.h"

static char folder[] = "/tmp/kolo_safetensors_XXXXXX";
static char path[128], other[128];

static const float matrix[6] = {1, -2, 3.5f, 4, 5, 6e-20f}, vector[3] = {.25f, .5f, .75f};
static const uint16_t half[4] = {0x3F80, 0xC000, 0x0000, 0x7F80}; /* 1, -2, 0, inf */
static const int64_t counter = 1234567890123;
static const kolo_weight sample[] = {
    {"layer.\"weight\"\n\xC3\xBC", KOLO_F32, 2, {2, 3}, matrix, sizeof matrix, NULL},
    {"odd", KOLO_F32, 1, {3}, vector, sizeof vector, NULL},
    {"half", KOLO_BF16, 2, {2, 2}, half, sizeof half, NULL},
    {"bn.num_batches_tracked", KOLO_I64, 0, {0}, &counter, sizeof counter, NULL},
    {"empty", KOLO_F32, 2, {0, 7}, NULL, 0, NULL},
};
enum { SAMPLES = sizeof sample / sizeof *sample };
static const char *const metadata[] = {"format", "pt", "made by", "a \"test\"", NULL};

static void round_trip(void)
{
    kolo_weights *w = NULL;
    is_int(kolo_weights_write(path, sample, SAMPLES, metadata), 0, "written");
    is_int(kolo_weights_open(&w, path, NULL), 0, "read back (%s)", kolo_error_text());
    is_int(kolo_weights_count(w), SAMPLES, "the metadata is no tensor");
    int same = 1, aligned = 1;
    for (int i = 0; i < SAMPLES; i++) {
        const kolo_weight *t = kolo_weights_at(w, i);
        same &= !strcmp(t->name, sample[i].name) && t->type == sample[i].type && t->rank == sample[i].rank &&
                !memcmp(t->dim, sample[i].dim, sizeof t->dim) && t->bytes == sample[i].bytes &&
                (t->bytes == 0 || !memcmp(t->data, sample[i].data, t->bytes));
        aligned &= (uintptr_t)t->data % kolo_dtype_size(t->type) == 0;
        same &= kolo_weights_find(w, sample[i].name) == t;
    }
    ok(same, "names, types, shapes and bytes survive, in the order given");
    ok(aligned, "every tensor is aligned to its type");
    ok(!kolo_weights_find(w, "nothing") && !kolo_weights_at(w, SAMPLES) && !kolo_weights_at(w, -1),
       "what is not there is not found");
    float values[4];
    kolo_weight_to_f32(kolo_weights_find(w, "half"), values, 4);
    ok(values[0] == 1 && values[1] == -2 && values[2] == 0 && isinf(values[3]), "bf16 becomes f32");
    kolo_weights_close(&w);
    ok(!w, "closed");
    char *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    kolo_weights_write(other, sample, SAMPLES, metadata);
    kolo_file_read(path, &a, &na);
    kolo_file_read(other, &b, &nb);
    ok(na == nb && !memcmp(a, b, na), "two writes give the same bytes");
    free(a);
    free(b);
}

/* The format, read by code that shares nothing with ours. */
static void python(void)
{
    static const char script[] =
        "import json,struct,sys\n"
        "b=open(sys.argv[1],'rb').read(); n=struct.unpack('<Q',b[:8])[0]; "
        "h=json.loads(b[8:8+n].decode('utf-8'))\n"
        "assert n%8==0 and h.pop('__metadata__')=={'format':'pt','made by':'a \"test\"'}\n"
        "t=sorted(h.items(),key=lambda kv:kv[1]['data_offsets']); end=0\n"
        "for k,v in t:\n"
        "    assert v['data_offsets'][0]==end,k; end=v['data_offsets'][1]\n"
        "assert 8+n+end==len(b)\n"
        "def get(k,f):\n"
        "    s,e=h[k]['data_offsets']; return struct.unpack(f,b[8+n+s:8+n+e])\n"
        "assert get('odd','<3f')==(.25,.5,.75) and h['odd']['dtype']=='F32' and h['odd']['shape']==[3]\n"
        "assert get('bn.num_batches_tracked','<q')==(1234567890123,) and "
        "h['bn.num_batches_tracked']['shape']==[]\n"
        "assert get('layer.\"weight\"\\n\\u00fc','<6f')[:3]==(1,-2,3.5)\n"
        "assert get('half','<4H')==(0x3f80,0xc000,0,0x7f80) and h['empty']['shape']==[0,7]\n";
    if (system("python3 -c 'import json' 2>/dev/null") != 0) {
        skip("no python3 here");
        return;
    }
    char *command = kolo_format("python3 - '%s'", path);
    FILE *p = popen(command, "w");
    fputs(script, p);
    is_int(pclose(p), 0, "Python's json and struct find the same tensors, no hole, nothing behind");
    free(command);
}

/* Writes LENGTH (-1: the true one), header, and `data` zero bytes to `other`. */
static void forge(const char *header, size_t bytes, int64_t length, size_t data)
{
    char *file = calloc(1, 8 + bytes + data);
    uint64_t n = length < 0 ? bytes : (uint64_t)length;
    for (int i = 0; i < 8; i++) file[i] = (char)(n >> 8 * i);
    memcpy(file + 8, header, bytes);
    FILE *f = fopen(other, "w");
    fwrite(file, 1, 8 + bytes + data, f);
    fclose(f);
    free(file);
}

/* Sets of tensors that only their names tell apart. */
static void sets(void)
{
    static const float x[] = {1, 2, 3};
    const kolo_weight both[] = {{"model_ema.a", KOLO_F32, 1, {1}, x, 4, NULL},
                                {"model.a", KOLO_F32, 1, {1}, x + 1, 4, NULL}},
                      kept[] = {{"a", KOLO_F32, 1, {1}, x, 4, NULL},
                                {"ema:a", KOLO_F32, 1, {1}, x + 2, 4, NULL}};
    kolo_weights *w = NULL;
    char key[256];
    kolo_weights_write(other, both, 2, NULL);
    kolo_weights_open(&w, other, NULL);
    ok(w && kolo_weights_count(w) == 1 && *(const float *)kolo_weights_find(w, "a")->data == 2 &&
           !strcmp(kolo_weights_chosen_set(w), "model") && !strcmp(kolo_weights_other_set(w), "model_ema"),
       "of weights and their average the weights are taken, and both known");
    kolo_weights_close(&w);
    snprintf(key, sizeof key, "%s:model_ema", other);
    kolo_weights_open(&w, key, NULL);
    ok(w && kolo_weights_count(w) == 1 && *(const float *)kolo_weights_find(w, "a")->data == 1,
       "FILE:KEY takes the other");
    kolo_weights_close(&w);
    kolo_weights_write(other, both, 1, NULL);
    kolo_weights_open(&w, other, NULL);
    ok(w && kolo_weights_find(w, "model_ema.a") && !kolo_weights_other_set(w),
       "of one set names stay as they are");
    kolo_weights_close(&w);
    kolo_weights_write(other, kept, 2, NULL);
    kolo_weights_open(&w, other, NULL);
    ok(w && kolo_weights_count(w) == 2 && !kolo_weights_chosen_set(w) &&
           !strcmp(kolo_weights_other_set(w), "ema"),
       "a checkpoint's own file is whole");
    kolo_weights_close(&w);
    snprintf(key, sizeof key, "%s:ema", other);
    kolo_weights_open(&w, key, NULL);
    ok(w && kolo_weights_count(w) == 1 && *(const float *)kolo_weights_find(w, "a")->data == 3,
       "unless its averages are asked for");
    kolo_weights_close(&w);
}

static void refused(const char *what, const char *header, int64_t length, size_t data, const char *word)
{
    kolo_weights *w = NULL;
    forge(header, strlen(header), length, data);
    int rc = kolo_weights_open(&w, other, NULL);
    ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), word) && !w, "refused: %s", what);
    if (rc != KOLO_EINPUT || !strstr(kolo_error_text(), word)) diag("rc %d, text: %s", rc, kolo_error_text());
    kolo_weights_close(&w);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void liars(void)
{
    kolo_weights *w = NULL;
    forge("{\"a\":" T("F32", "[1]", "[0,4]") "}  ", strlen("{\"a\":" T("F32", "[1]", "[0,4]") "}  "), -1, 4);
    is_int(kolo_weights_open(&w, other, NULL), 0, "the frame of these cases is a good file (%s)",
           kolo_error_text());
    kolo_weights_close(&w);
    refused("header longer than the file", "{}", 1000, 4, "longer than the file");
    refused("header length of 2^64-1", "{}", INT64_MAX, 4, "longer than the file");
    refused("not an object", "[1,2]", -1, 8, "starts with \"........[1,2]");
    refused("not JSON", "{\"a\":}", -1, 8, "not valid JSON");
    refused("text behind the object", "{} x", -1, 8, "behind its header");
    refused("a cut object", "{\"a\":" T("F32", "[1]", "[0,4]"), -1, 4, "not valid JSON");
    refused("two of a name", "{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", -1, 8,
            "two of this name");
    refused("overlap", "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", -1, 12,
            "overlaps");
    refused("the same place twice", "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[0,8]") "}",
            -1, 8, "overlaps");
    refused("a hole", "{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", -1, 12,
            "hole");
    refused("bytes of nobody", "{\"a\":" T("F32", "[1]", "[0,4]") "}", -1, 8, "belong to no tensor");
    refused("a truncated file", "{\"a\":" T("F32", "[4]", "[0,16]") "}", -1, 12, "behind the end");
    refused("end before begin", "{\"a\":" T("F32", "[1]", "[4,0]") "}", -1, 4, "before it begins");
    refused("shape and size apart", "{\"a\":" T("F32", "[3]", "[0,8]") "}", -1, 8, "do not agree");
    refused("a shape that overflows", "{\"a\":" T("F32", "[4294967296,4294967296,4]", "[0,0]") "}", -1, 4,
            "overflows");
    refused("negative offset", "{\"a\":" T("F32", "[1]", "[-4,0]") "}", -1, 4, "whole numbers");
    refused("fractional offset", "{\"a\":" T("F32", "[1]", "[0,4.5]") "}", -1, 8, "whole numbers");
    refused("offset beyond 2^53", "{\"a\":" T("F32", "[1]", "[0,1e300]") "}", -1, 8, "whole numbers");
    refused("negative dimension", "{\"a\":" T("F32", "[-1,-1]", "[0,4]") "}", -1, 4, "whole number");
    refused("seven dimensions", "{\"a\":" T("F32", "[1,1,1,1,1,1,1]", "[0,4]") "}", -1, 4, "6 dimensions");
    refused("F8_E4M3, by name", "{\"a\":" T("F8_E4M3", "[4]", "[0,4]") "}", -1, 4, "F8_E4M3");
    refused("an unknown member", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", -1, 4,
            "whole numbers");
    refused("a type that is not read", "{\"a\":" T("U32", "[1]", "[0,4]") "}", -1, 4,
            "I8 to I64, U8, U16 and BOOL");
    refused("a member twice",
            "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4,
            "entry");
    refused("a tensor that is a number", "{\"a\":7}", -1, 4, "entry");
    refused("a name with a NUL in it", "{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", -1, 4, "NUL");
    enum { DEEP = 200000 };
    char *deep = malloc(DEEP + 8);
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', DEEP);
    deep[DEEP + 5] = 0;
    refused("200,000 brackets deep", deep, -1, 4, "not valid JSON");
    free(deep);
    refused("shorter than its length field", "", -1, 0, "too short");
    is_int(kolo_weights_open(&w, folder, NULL), KOLO_EINPUT, "refused: a folder (%s)", kolo_error_text());
    is_int(kolo_weights_open(&w, "/nonexistent/file", NULL), KOLO_EINPUT, "refused: no such file (%s)",
           kolo_error_text());
}

/* Bytes of a good file changed by a fixed rule; the reader says yes or no, and everything it
 * hands out can be read. */
static void mutations(void)
{
    char *good = NULL;
    size_t bytes = 0;
    kolo_file_read(path, &good, &bytes);
    static const char interesting[] = "{}[]\",:0123456789eE-+.\\u\x00\xFF";
    uint32_t state = 12345, sum = 0;
    int yes = 0, no = 0, wrong = 0;
    for (int round = 0; round < 4000; round++) {
        char *bad = malloc(bytes);
        memcpy(bad, good, bytes);
        size_t length = bytes;
        for (int k = 0; k <= round % 4; k++) {
            state = state * 1664525 + 1013904223;
            size_t at = (state >> 8) % bytes;
            state = state * 1664525 + 1013904223;
            bad[at] = round % 2 ? interesting[(state >> 8) % (sizeof interesting - 1)] : (char)(state >> 16);
        }
        if (round % 16 == 15) length = (state >> 4) % bytes;
        FILE *f = fopen(other, "w");
        fwrite(bad, 1, length, f);
        fclose(f);
        free(bad);
        kolo_weights *w = NULL;
        int rc = kolo_weights_open(&w, other, NULL);
        if (rc == 0) yes++;
        else if (rc == KOLO_EINPUT && !w) no++;
        else wrong++;
        for (int i = 0; rc == 0 && i < kolo_weights_count(w); i++) {
            const kolo_weight *t = kolo_weights_at(w, i);
            for (size_t b = 0; b < t->bytes; b++) sum += ((const unsigned char *)t->data)[b];
        }
        kolo_weights_close(&w);
    }
    ok(wrong == 0 && yes > 0 && no > 1000, "4000 mutated files: %d taken, %d refused, none misread (%u)", yes,
       no, sum & 1);
    free(good);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    snprintf(other, sizeof other, "%s/b.safetensors", folder);
    round_trip();
    sets();
    python();
    liars();
    mutations();
    is_int(kolo_weights_write("/nonexistent/x/y", sample, SAMPLES, NULL), KOLO_EIO,
           "a folder that is not there: an error (%s)", kolo_error_text());
    kolo_folder_remove(folder);
    return done_testing();
}
