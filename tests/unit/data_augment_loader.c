/* Augmentations, views and mixing in the loader: the same bytes for any number of readers and ranks. */
#include "data_fixture.h"
#include "tap.h"

#include "base/option.h"
#include "data/augment/augment.h"
#include "data/loader.h"

enum { SIDE = 16, BYTES = SIDE * SIDE * 3, BATCH = 24, ROWS = 240 };

static const char *const everything = "randaugment(2,9),trivialaugment,timm_randaugment,jitter(0.4,0.4,0.4,0."
                                      "1),erase(0.25),erase(1,0.1,0.2,0.5,2,1),"
                                      "blur,three_augment,affine(20,0.1,0.8,1.2,5,5),cutout";

static kolo_loader_config config_of(const kolo_dataset *d)
{
    const kolo_loader_config c = {.dataset = d,
                                  .channels = 3,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .classes = 10,
                                  .train = true,
                                  .seed = 7,
                                  .batch = BATCH,
                                  .ranks = 1,
                                  .tail = KOLO_tail_pad,
                                  .crop = KOLO_crop_resized,
                                  .area_min = .3,
                                  .area_max = 1,
                                  .flip = true,
                                  .interpolation = KOLO_interpolation_bicubic,
                                  .mean = {.5f, .5f, .5f},
                                  .std = {.2f, .2f, .2f},
                                  .readers = 1,
                                  .prefetch = 2};
    return c;
}

/* What ranks saw in some steps, by position in the order. */
typedef struct seen {
    uint8_t pixels[ROWS][BYTES];
    int64_t sample[ROWS];
    int32_t label[ROWS], label2[ROWS];
    float mix[ROWS];
} seen;

static void look(kolo_loader_config c, int ranks, int64_t steps, seen *s)
{
    memset(s, 0, sizeof *s);
    for (int r = 0; r < ranks; r++) {
        kolo_loader *l;
        kolo_batch b;
        c.rank = r;
        c.ranks = ranks;
        if (kolo_loader_create(&l, &c) < 0) {
            ok(0, "a loader of %d ranks: %s", ranks, kolo_error_text());
            return;
        }
        for (int64_t t = 0; t < steps && kolo_loader_next(l, &b) == 0; t++) {
            for (int64_t i = 0; i < b.rows; i++) {
                const int64_t at = t * c.batch + r * b.rows + i;
                memcpy(s->pixels[at], b.pixels + i * BYTES, BYTES);
                s->sample[at] = b.samples[i];
                s->label[at] = b.labels[i * b.words];
                s->label2[at] = b.words == 3 ? b.labels[i * 3 + 1] : -2;
                if (b.words == 3) memcpy(&s->mix[at], &b.labels[i * 3 + 2], sizeof s->mix[at]);
            }
            kolo_loader_release(l, &b);
        }
        kolo_loader_destroy(&l);
    }
}

static seen one, two, plain;

static int equal(const seen *a, const seen *b) { return memcmp(a, b, sizeof *a) == 0; }

static void test_determinism(const kolo_dataset *d, const char *kind)
{
    static const int ranks[] = {2, 3, 4};
    kolo_loader_config c = config_of(d);
    c.augment = everything;
    c.mix = (kolo_mix_config){
        .mixup = 0.8, .cutmix = 1, .probability = 0.9, .cutmix_share = 0.5, .by_pair = true};
    for (c.repeat = 1; c.repeat <= 3; c.repeat++) {
        if (c.repeat == 2) continue; /* 4 ranks have 6 rows: a multiple of 2 and of 6 */
        c.readers = 1;
        look(c, 1, 9, &one);
        for (c.readers = 2; c.readers <= 4; c.readers += 2) {
            look(c, 1, 9, &two);
            ok(equal(&one, &two), "%s, repeat=%d: %d readers give the same bytes, labels and weights as one",
               kind, c.repeat, c.readers);
        }
        c.readers = 2;
        for (int i = 0; i < 3; i++) {
            if (BATCH / ranks[i] % (2 * c.repeat) != 0) continue;
            look(c, ranks[i], 9, &two);
            ok(equal(&one, &two), "%s, repeat=%d: %d ranks together have what one has", kind, c.repeat,
               ranks[i]);
        }
    }
}

static void test_repeat(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d);
    int together = 1, differ = 0, first = 1;
    int64_t seen_of[100] = {0}, distinct = 0;
    look(c, 1, 5, &plain);
    c.repeat = 3;
    look(c, 1, 5, &one);
    for (int i = 0; i < 100; i++) { /* one epoch: 100 rows, padded to 120 */
        together &= one.sample[i] == plain.sample[i / 3];
        if (i % 3 == 0) first &= !memcmp(one.pixels[i], plain.pixels[i / 3], BYTES);
        else differ += memcmp(one.pixels[i], one.pixels[i - 1], BYTES) != 0;
        distinct += !seen_of[one.sample[i]]++;
    }
    ok(together, "three views of a sample follow each other, samples in the order of the epoch");
    ok(first, "the first view is what a sample is shown as without repetition");
    ok(differ > 60, "the others are cropped in their own way (%d of 66)", differ);
    is_int(distinct, 34, "an epoch of 100 rows holds 34 samples");
    ok(one.sample[100] == -1 && one.label[100] == -1, "and ends where it did");
}

/* What kolo_mix_draw says, done to the rows of a loader that does not mix. */
static void test_pairs(const kolo_dataset *d, bool by_pair, int repeat)
{
    kolo_loader_config c = config_of(d);
    int pixels = 1, labels = 1, mixed = 0, self = 0;
    c.repeat = repeat;
    look(c, 1, 5, &plain);
    c.mix = (kolo_mix_config){
        .mixup = 1, .cutmix = 1, .probability = 0.8, .cutmix_share = 0.5, .by_pair = by_pair};
    look(c, 1, 5, &one);
    for (int i = 0; i < 120; i++) {
        const int j = i + repeat;
        if (i / repeat % 2) continue;
        kolo_mix mix = {.weight = 1};
        kolo_random random = kolo_augment_random(c.seed, 0, by_pair ? i : i / BATCH, KOLO_OPERATION_MIX);
        if (j < 100) kolo_mix_draw(&mix, &c.mix, SIDE, SIDE, &random);
        const int both = mix.kind != KOLO_MIX_NONE;
        mixed += both;
        kolo_mix_apply(&mix, plain.pixels[i], plain.pixels[j], SIDE, SIDE, 3);
        pixels &=
            !memcmp(one.pixels[i], plain.pixels[i], BYTES) && !memcmp(one.pixels[j], plain.pixels[j], BYTES);
        labels &= one.label[i] == plain.label[i] && one.label[j] == plain.label[j];
        labels &= one.label2[i] == plain.label[both ? j : i] && one.label2[j] == plain.label[both ? i : j];
        labels &= one.mix[i] == mix.weight && one.mix[j] == mix.weight;
        self += both && one.sample[i] == one.sample[j];
    }
    ok(pixels, "%s, repeat=%d: rows %d apart are mixed as drawn; what has no partner stays",
       by_pair ? "pairs" : "batches", repeat, repeat);
    ok(labels && mixed > 10, "both labels and their weight are told (%d pairs)", mixed);
    is_int(self, 0, "no image is mixed with a view of itself");
}

static void test_refusals(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d);
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_create(&l, &c);
    kolo_loader_next(l, &b);
    ok(b.words == 1, "no second labels where nothing is mixed");
    kolo_loader_destroy(&l);
    c.mix.mixup = 1;
    c.ranks = 8;
    is_int(kolo_loader_create(&l, &c), KOLO_ECONFIG, "3 rows a rank cannot be mixed in pairs");
    ok(strstr(kolo_error_text(), "multiple of 16"), "the error says which batch can: %s", kolo_error_text());
    c = config_of(d);
    c.augment = "randaugment(2,99)";
    is_int(kolo_loader_create(&l, &c), KOLO_ECONFIG, "augmentations are checked when the loader is made: %s",
           kolo_error_text());
    c = config_of(d);
    c.train = false;
    c.mix.mixup = 1;
    c.repeat = 3;
    c.augment = "cutout";
    c.batch = 25;
    kolo_loader_create(&l, &c);
    ok(kolo_loader_next(l, &b) == 0 && b.words == 1 && b.samples[1] == 1,
       "validation is neither mixed nor repeated");
    kolo_loader_destroy(&l);
}

int main(void)
{
    fixture raw = {.count = 100, .shards = 3, .height = 20, .width = 24, .channels = 3};
    fixture jpeg = {
        .count = 100, .shards = 2, .height = 40, .width = 48, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *d = NULL, *e = NULL;
    if (fixture_make(&raw) < 0 || fixture_make(&jpeg) < 0 || kolo_dataset_open(&d, raw.folder) < 0 ||
        kolo_dataset_open(&e, jpeg.folder) < 0)
        diag("%s", kolo_error_text());
    test_determinism(d, "raw");
    test_determinism(e, "jpeg");
    test_repeat(d);
    test_pairs(d, true, 1);
    test_pairs(d, false, 1);
    test_pairs(d, true, 2);
    test_pairs(d, false, 3);
    test_refusals(d);
    kolo_dataset_close(&d);
    kolo_dataset_close(&e);
    fixture_remove(&raw);
    fixture_remove(&jpeg);
    return done_testing();
}
