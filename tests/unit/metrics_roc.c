/* Verification's figures against sums done by hand, and against counting every pair of pairs. */
#include <cjson/cJSON.h>
#include <unistd.h>

#include "base/file.h"
#include "base/philox.h"
#include "kolo/error.h"
#include "metrics/roc.h"
#include "tap.h"

static kolo_pair_scores scores_of(int n, const float *score, const char *same, const char *fold)
{
    kolo_pair_scores s;
    if (kolo_pair_scores_create(&s, n) < 0) exit(1);
    for (int i = 0; i < n; i++) {
        s.score[i] = score[i];
        s.same[i] = same[i] == '1';
        s.fold[i] = fold ? fold[i] - '0' : 0;
    }
    return s;
}

/* Two folds: the threshold of each is that of the other. */
static void test_folds(void)
{
    const float score[] = {.9f, .6f, .5f, .1f, .8f, .35f, .4f, .2f};
    kolo_pair_scores s = scores_of(8, score, "11001100", "00001111");
    kolo_verification v;
    is_int(kolo_roc_measure(&s, NULL, &v), 0, "two folds are measured");
    /* fold 0 with fold 1's threshold, .6 = (.8 + .4) / 2: right are .9, .6 (as large), .5, .1. Fold 1 with
     * .55: .8, .4, .2 of four */
    ok(v.folds == 2 && fabs(v.accuracy - .875) < 1e-12, "accuracy is the mean over folds (%g)", v.accuracy);
    ok(fabs(v.error - .125) < 1e-12, "its standard error is that of the mean, n - 1 (%g)", v.error);
    kolo_pair_scores_free(&s);
    s = scores_of(4, score, "1100", NULL);
    is_int(kolo_roc_measure(&s, NULL, &v), KOLO_EINPUT, "one fold has no threshold of its own: %s",
           kolo_error_text());
    const float high[] = {.97f, .96f, .93f, .5f};
    kolo_pair_scores other = scores_of(4, high, "1100", NULL);
    is_int(kolo_roc_measure(&s, &other, &v), 0, "with development pairs it is measured");
    ok(v.folds == 1 && v.accuracy == .5,
       "it takes that of the development pairs, .945, which finds nobody the same (%g)", v.accuracy);
    ok(fabs(v.error - .25) < 1e-12, "the standard error of 2 right of 4 is .5 / 2 (%g)", v.error);
    kolo_pair_scores_free(&other);
    kolo_pair_scores_free(&s);
    s = scores_of(4, score, "1111", NULL);
    is_int(kolo_roc_measure(&s, NULL, &v), KOLO_EINPUT, "pairs of one kind are refused: %s",
           kolo_error_text());
    s.score[0] = NAN;
    is_int(kolo_roc_measure(&s, NULL, &v), KOLO_EINPUT, "so is a score that is none: %s", kolo_error_text());
    kolo_pair_scores_free(&s);
}

/* Ties among scores: the area is the share of (same, different) pairs in the right order, ties half. */
/* The points as JSON: the area below them is what was measured. */
static void test_points(const kolo_pair_scores *s, const kolo_verification *v)
{
    const char *path = "roc.test.json";
    char *text = NULL;
    is_int(kolo_roc_write(path, "a\"b", s, v), 0, "a path that ends in .json: the points");
    kolo_file_read(path, &text, NULL);
    cJSON *object = cJSON_Parse(text), *points = cJSON_GetObjectItem(object, "points"), *one;
    double area = 0, x = 0, y = 0;
    cJSON_ArrayForEach(one, points)
    {
        const double to_x = cJSON_GetArrayItem(one, 0)->valuedouble,
                     to_y = cJSON_GetArrayItem(one, 1)->valuedouble;
        area += (to_x - x) * (y + to_y) / 2;
        x = to_x;
        y = to_y;
    }
    ok(fabs(area - v->auc) < 1e-4 && x == 1 && y == 1, "the area below them is the AUC (%.6f, %.6f)", area,
       v->auc);
    ok(!strcmp(cJSON_GetObjectItem(object, "pairs")->valuestring, "a\"b"), "their title");
    cJSON_Delete(object);
    free(text);
    unlink(path);
}

static void test_curve(void)
{
    enum { N = 400 };
    kolo_pair_scores s;
    kolo_verification v;
    if (kolo_pair_scores_create(&s, N) < 0) exit(1);
    kolo_random random = kolo_random_at(5, 0, 0);
    for (int i = 0; i < N; i++) {
        s.same[i] = i % 3 == 0;
        s.fold[i] = i % 10;
        s.score[i] = (float)kolo_random_below(&random, 30) + (s.same[i] ? 8 : 0);
    }
    is_int(kolo_roc_measure(&s, NULL, &v), 0, "ten folds are measured");
    double area = 0, pairs = 0, near = 1, tar = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (s.same[i] && !s.same[j]) {
                area += s.score[i] > s.score[j] ? 1 : s.score[i] == s.score[j] ? .5 : 0;
                pairs++;
            }
    ok(fabs(v.auc - area / pairs) < 1e-9, "the area is what counting gives (%.6f, %.6f)", v.auc,
       area / pairs);
    for (int t = -1; t < 40; t++) { /* the equal error rate lies between the points next to it */
        double accepted = 0, refused = 0, same = 0;
        for (int i = 0; i < N; i++) {
            same += s.same[i];
            accepted += !s.same[i] && s.score[i] > (float)t;
            refused += s.same[i] && s.score[i] <= (float)t;
        }
        accepted /= N - same;
        refused /= same;
        near = fmin(near, fmax(fabs(accepted - v.eer), fabs(refused - v.eer)));
        if (accepted <= .01) tar = fmax(tar, 1 - refused);
    }
    ok(near < .05, "at the equal error rate, %.4f, as many are wrongly accepted as refused", v.eer);
    ok(fabs(v.tar - tar) < 1e-9, "true acceptances at .01 false ones are what counting gives (%.4f)", v.tar);
    const char *path = "roc.test.svg";
    char *text = NULL;
    is_int(kolo_roc_write(path, "a<b", &s, &v), 0, "the curve is written");
    ok(kolo_file_read(path, &text, NULL) == 0 && !strncmp(text, "<svg", 4) && strstr(text, "</svg>") &&
           strstr(text, "a&#60;b"),
       "as SVG, its title escaped");
    free(text);
    unlink(path);
    test_points(&s, &v);
    ok(kolo_roc_write("/nowhere/roc.svg", "x", &s, &v) < 0, "a path that cannot be is an error: %s",
       kolo_error_text());
    kolo_pair_scores_free(&s);
}

int main(void)
{
    test_folds();
    test_curve();
    return done_testing();
}
