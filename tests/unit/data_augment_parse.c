/* The text of the option `augment`. */
#include "tap.h"

#include "base/option.h"
#include "data/augment/augment.h"
#include "kolo/error.h"

enum { MOST = 16 };
static kolo_augment_step list[MOST];
static int n;

static void refused(const char *text, const char *words)
{
    const int rc = kolo_augment_parse(text, list, MOST, &n);
    if (!ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), words), "`%s` is refused: %s", text, words))
        diag("status %d: %s", rc, kolo_error_text());
}

static const char *name_of(int i) { return kolo_augmentation_table[list[i].index].name; }

static void test_names(void)
{
    ok(kolo_augment_parse(NULL, list, MOST, &n) == 0 && n == 0 &&
           kolo_augment_parse("", list, MOST, &n) == 0 && n == 0,
       "no text: nothing");
    ok(kolo_augment_parse("cutout,brightness", list, MOST, &n) == 0 && n == 2 && list[0].index == 0 &&
           list[1].index == 1,
       "names without parameters, at the places of the table that their random keys come from");
    ok(kolo_augment_parse(" invert , contrast,", list, MOST, &n) == 0 && n == 2 && list[0].index == 3,
       "blanks and an empty entry do not matter");
    ok(kolo_augment_parse("cutout,invert,cutout", list, MOST, &n) == 0 && list[2].before == 1 &&
           list[1].before == 0,
       "an entry knows how often its name came before");
}

static void test_parameters(void)
{
    int rc = kolo_augment_parse("randaugment(3,14), erase( .25 ),jitter(0.4,0.3,0.2,0.1),grayscale", list,
                                MOST, &n);
    ok(rc == 0 && n == 4 && !strcmp(name_of(1), "erase") && !strcmp(name_of(3), "grayscale"),
       "commas between entries and within parentheses are told apart");
    ok(list[0].parameter[0] == 3 && list[0].parameter[1] == 14 && list[2].parameter[2] == 0.2,
       "numbers are read");
    ok(list[1].parameter[0] == 0.25 && list[1].parameter[2] == 0.33 && list[3].parameter[0] == 0.1,
       "what is not given takes its standard value");
    ok(kolo_augment_parse("erase()", list, MOST, &n) == 0 && list[0].parameter[0] == 0.5,
       "empty parentheses: all standard values");
    char text[64];
    kolo_augment_usage(&kolo_augmentation_table[list[0].index], text, sizeof text);
    ok(!strncmp(text, "erase(probability=0.5, area_min=0.02", 36) && strlen(text) == 63,
       "the usage names parameters and standard values, and is cut off where there is no room");
}

static void test_refusals(void)
{
    refused("randaugmnet(2,9)", "did you mean `randaugment`?");
    refused("frobnicate", "no augmentation `frobnicate`");
    refused("cutout(1)", "cutout has 0 parameters");
    refused("randaugment(2,9,1)", "has 2 parameters: randaugment(n=2, magnitude=9)");
    refused("randaugment(2,31)", "magnitude=31 lies outside 0 to 30");
    refused("randaugment(1.5)", "n=1.5 is no whole number");
    refused("erase(-0.1)", "probability=-0.1 lies outside 0 to 1");
    refused("erase(0.5,0.4,0.1)", "area_max=0.1 lies below area_min=0.4");
    refused("erase(0.5,0.4)", "area_max=0.33 lies below area_min=0.4");
    refused("erase(x)", "`x` is no number for probability");
    refused("erase(nan)", "is no number");
    refused("erase(,0.1)", "is no number");
    refused("erase(0.5", "not closed");
    refused("erase(", "no number");
    refused("erase(0.5 0.1)", "a comma is missing");
    refused("(2)", "a name belongs before");
    refused("erase)", "no augmentation");
    refused("a_name_that_is_longer_than_any_name_in_the_table_could_ever_reasonably_be", "too long");
    refused("invert,invert,invert,invert,invert,invert,invert,invert,invert,invert,invert,invert,invert,"
            "invert,invert,"
            "invert,invert",
            "at most 16");
}

/* Standard values lie within their own limits, names are words. */
static void test_table(void)
{
    int good = 1;
    for (int i = 0; i < kolo_augmentation_count; i++) {
        const kolo_augmentation *a = &kolo_augmentation_table[i];
        char text[256];
        good &= kolo_augment_parse(a->name, list, MOST, &n) == 0;
        kolo_augment_usage(a, text, sizeof text);
        good &= strlen(text) < sizeof text - 1 && a->help[0] != 0;
        if (!good) diag("%s: %s", a->name, kolo_error_text());
    }
    ok(good, "all %d augmentations can be named alone", kolo_augmentation_count);
    ok(kolo_augmentation_count + KOLO_OPERATION_AUGMENT < 256, "their random keys have room");
}

static uint32_t first_word(int64_t pass, int64_t sample, int operation)
{
    kolo_random r = kolo_augment_random(7, pass, sample, operation);
    return kolo_random_u32(&r);
}

static void test_keys(void)
{
    const uint32_t one = first_word(kolo_augment_pass(3, 0), 5, 16);
    ok(kolo_augment_pass(3, 0) == 3,
       "the first view of a sample has the key that a sample had without views");
    ok(one != first_word(kolo_augment_pass(3, 1), 5, 16) &&
           one != first_word(kolo_augment_pass(4, 0), 5, 16) && one != first_word(3, 6, 16) &&
           one != first_word(3, 5, 17),
       "view, epoch, sample and operation have streams of their own");
    static const float mean[3] = {.5f, .5f, .5f}, std[3] = {.2f, .2f, .2f};
    uint8_t pixels[2][12 * 12 * 3] = {{0}};
    kolo_canvas *c;
    kolo_canvas_create(&c, 12, 12, 3, mean, std);
    for (int i = 0; i < 2; i++) {
        kolo_augment_parse(i ? "cutout,cutout" : "cutout", list, MOST, &n);
        c->pixels = pixels[i];
        kolo_augment_apply(list, n, c, 7, 3, 5);
    }
    ok(memcmp(pixels[0], pixels[1], sizeof *pixels), "the second entry of a name draws its own numbers");
    kolo_canvas_destroy(&c);
}

int main(void)
{
    test_names();
    test_parameters();
    test_refusals();
    test_table();
    test_keys();
    return done_testing();
}
