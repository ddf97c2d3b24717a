/* COCO's and VOC's rules on small cases by hand, and the results file; figures of
 * pycocotools are golden cases. */
#include <unistd.h>

#include "base/file.h"
#include "kolo/error.h"
#include "metrics/ap.h"
#include "tap.h"

static kolo_ap_truth truth(int64_t image, int cls, double x, double side)
{
    return (kolo_ap_truth){.image = image, .cls = cls, .box = {x, 0, side, side}, .area = side * side};
}
static kolo_ap_found found(int64_t image, int cls, double x, double side, double score)
{
    return (kolo_ap_found){.image = image, .cls = cls, .box = {x, 0, side, side}, .score = score};
}

static void coco(void)
{
    kolo_ap_truth t[3] = {truth(1, 0, 0, 50), truth(1, 0, 100, 20), truth(2, 0, 0, 200)};
    kolo_ap_found f[5] = {found(1, 0, 0, 50, .9), found(1, 0, 0, 50, .8), found(1, 0, 100, 20, .7),
                          found(2, 0, 0, 200, .6), found(2, 1, 0, 10, 1)};
    kolo_ap ap;
    is_int(kolo_ap_coco(&ap, t, 3, f, 5, 2), 0, "three truths, a second box on one of them");
    /* recalls 1/3 at 1, 2/3 at 2/3 -> 3/4 from the right, 1 at 3/4 */
    is_near(ap.line[0], (34 * 1 + 67 * .75) / 101, 1e-12, "AP counts the envelope at 101 recalls");
    is_near(ap.line[3], 1, 1e-12, "of small objects only small ones are asked for");
    is_near(ap.line[6], 2.0 / 3, 1e-12, "AR1 has one result an image");
    is_near(ap.cls[1].ap[0][0], -1, 0, "a class without truth counts for nothing");
    kolo_ap_free(&ap);

    t[0].crowd = true;
    is_int(kolo_ap_coco(&ap, t, 3, f, 4, 1), 0, "with a crowd");
    is_near(ap.line[0], 1, 1e-12, "any number of results may lie in it, and it need not be found");
    kolo_ap_free(&ap);
    t[0].crowd = false;

    f[0].cls = 7;
    is_int(kolo_ap_coco(&ap, t, 3, f, 5, 2), KOLO_EINPUT, "a class that there is not is refused");
    f[0] = found(1, 0, 0, 50, NAN);
    is_int(kolo_ap_coco(&ap, t, 3, f, 5, 2), KOLO_EINPUT, "so is a score that is no number");
    is_int(kolo_ap_coco(&ap, t, 0, f, 0, 2), 0, "nothing at all");
    is_near(ap.line[0], -1, 0, "is -1");
    kolo_ap_free(&ap);
}

static void voc(void)
{
    kolo_ap_truth t[4] = {truth(1, 0, 0, 10), truth(1, 0, 20, 10), truth(2, 0, 0, 10), truth(2, 1, 0, 10)};
    kolo_ap_found f[5] = {found(1, 0, 0, 10, .9), found(1, 0, 1, 10, .8), found(2, 0, 0, 10, .7),
                          found(2, 0, 60, 10, .6), found(1, 0, 20, 10, .5)};
    double ap[2], mean;
    is_int(kolo_ap_voc(ap, &mean, t, 4, f, 5, 2, .5, false), 0, "VOC of two classes");
    /* right wrong right wrong right: precision 1, 2/3, 3/5 at recalls 1/3, 2/3, 1 */
    is_near(ap[0], (1 + 2.0 / 3 + 3.0 / 5) / 3, 1e-12, "the area below the envelope (2010)");
    is_near(mean, ap[0] / 2, 1e-12, "a class of which nothing is found counts as 0");
    is_int(kolo_ap_voc(ap, &mean, t, 4, f, 5, 2, .5, true), 0, "VOC at eleven recalls");
    is_near(ap[0], (4 + 3 * 2.0 / 3 + 4 * 3.0 / 5) / 11, 1e-12, "eleven points (2007)");
    t[1].ignore = true;
    is_int(kolo_ap_voc(ap, &mean, t, 3, f, 5, 2, .5, false), 0, "with a difficult object");
    is_near(ap[0], (1 + 2.0 / 3) / 2, 1e-12, "who finds it is neither right nor wrong");
    is_near(ap[1], -1, 0, "and no truth is no figure");
}

static void file(void)
{
    char path[] = "/tmp/kolo_ap_XXXXXX", *text = NULL;
    const int64_t category[2] = {3, 90};
    kolo_ap_found f[2] = {{.image = 7, .cls = 1, .box = {1.005, 2.3456, 30.1, 4}, .score = 1 / 3.0},
                          {.cls = 0}};
    close(mkstemp(path));
    for (int i = 0; i < 2; i++) kolo_ap_round(f[i].box, &f[i].score);
    is_int(kolo_ap_write(path, f, 2, category), 0, "results are written");
    is_int(kolo_file_read(path, &text, NULL), 0, "and read");
    is_text(text,
            "[\n{\"image_id\":7,\"category_id\":90,\"bbox\":[1.00,2.35,30.10,4.00],\"score\":0.333333},"
            "\n{\"image_id\":0,\"category_id\":3,\"bbox\":[0.00,0.00,0.00,0.00],\"score\":0.000000}\n]\n",
            "as COCO has them");
    ok(f[0].box[1] == 2.35 && f[0].box[2] == 30.1 && f[0].score == 0.333333,
       "what is evaluated is what is written");
    ok(kolo_ap_write("/nowhere/results.json", f, 2, category) < 0, "a folder that is not there is an error");
    free(text);
    unlink(path);
}

int main(void)
{
    coco();
    voc();
    file();
    return done_testing();
}
