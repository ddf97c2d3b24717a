/* Average precision of image labels beside scikit-learn's average_precision_score
 * (tests/peers/image_ap_figures.py), and small cases by hand. */
#include <math.h>
#include <stdlib.h>

#include "golden_image_ap.h"
#include "kolo/error.h"
#include "metrics/image_ap.h"
#include "tap.h"

/* splitmix64, upper 32 bits, as the script has it */
static uint32_t draw(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ z >> 31) >> 32);
}

static void golden(size_t k)
{
    const int samples = golden_image_ap[k].samples, classes = golden_image_ap[k].classes,
              levels = golden_image_ap[k].levels, unknown = golden_image_ap[k].unknown;
    kolo_image_score *s = malloc(sizeof *s * (size_t)(samples * classes));
    int64_t n = 0;
    for (int i = 0; i < samples * classes; i++) {
        const int c = i % classes, yes = c && draw((uint64_t)(3 * i)) % (uint32_t)(c + 2) == 0;
        const float score =
            (float)(draw((uint64_t)(3 * i + 1)) % (uint32_t)levels + (uint32_t)(yes * (levels / 3))) / 1024;
        if (unknown && draw((uint64_t)(3 * i + 2)) % (uint32_t)unknown == 0) continue;
        s[n++] = (kolo_image_score){score, yes ? c : ~c};
    }
    kolo_image_ap r;
    double ap[12], worst = 0;
    is_int(kolo_image_ap_form(&r, ap, s, n, classes), 0, "%d samples, %d classes, %d scores%s", samples,
           classes, levels, unknown ? ", some unknown" : "");
    is_near(r.map, golden_image_ap[k].macro, 1e-12, "  its macro average is scikit-learn's");
    is_near(r.micro, golden_image_ap[k].micro, 1e-12, "  its micro average is");
    for (int c = 0; c < classes; c++) worst = fmax(worst, fabs(ap[c] - golden_image_ap[k].of_class[c]));
    ok(worst < 1e-12 && ap[0] == -1 && r.classes == classes - 1,
       "  and every class's; class 0 has no positive and does not count");
    free(s);
}

static void by_hand(void)
{
    kolo_image_ap r;
    /* class 0 at .9 +, .8 -, .7 +: (1 + 2/3) / 2; class 1 at .5 + and - alike: 1/2 */
    kolo_image_score s[] = {{.7f, 0}, {.5f, 1}, {.9f, 0}, {.5f, ~1}, {.8f, ~0}};
    is_int(kolo_image_ap_form(&r, NULL, s, 5, 2), 0, "two classes by hand");
    is_near(r.map, (5. / 6 + .5) / 2, 1e-12, "equal scores are one threshold");
    /* .9 + .8 - .7 + .5 +-: 1/3 (1 + 2/3 + 3/5) */
    is_near(r.micro, (1 + 2. / 3 + 3. / 5) / 3, 1e-12, "micro: as one class");
    ok(r.positives == 3 && r.negatives == 2, "positives and negatives are counted");
    kolo_image_score nan[] = {{NAN, 0}, {-1e30f, ~0}};
    kolo_image_ap_form(&r, NULL, nan, 2, 1);
    is_near(r.map, .5, 1e-12, "NaN comes last");
    is_int(kolo_image_ap_form(&r, NULL, nan, 0, 1), 0, "nothing at all");
    ok(r.map == 0 && r.micro == 0 && r.classes == 0, "  is worth 0");
    kolo_image_score outside = {1, 7};
    is_int(kolo_image_ap_form(&r, NULL, &outside, 1, 7), KOLO_EINTERNAL, "class 7 of 7 is refused");
}

int main(void)
{
    for (size_t k = 0; k < sizeof golden_image_ap / sizeof *golden_image_ap; k++) golden(k);
    by_hand();
    return done_testing();
}
