#include "report/examples.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/image/jpeg.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "report/plot.h"

enum { MOST = 6, SIDE = 640, SMALL = 48 << 10, QUALITY = 80 };

typedef struct gallery {
    FILE *f;
    const report_run *run;
    kolo_dataset *set;
    kolo_jpeg *jpeg;
    kolo_image image;
    uint8_t *stored, *encoded;
    size_t capacity;
} gallery;

static void put_base64(FILE *f, const uint8_t *data, size_t bytes)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        const unsigned a = data[i], b = i + 1 < bytes ? data[i + 1] : 0, c = i + 2 < bytes ? data[i + 2] : 0;
        fputc(digit[a >> 2], f);
        fputc(digit[(a & 3) << 4 | b >> 4], f);
        fputc(i + 1 < bytes ? digit[(b & 15) << 2 | c >> 6] : '=', f);
        fputc(i + 2 < bytes ? digit[c & 63] : '=', f);
    }
}

/* A JPEG file of a sample, small enough for a page: as it is stored, or made anew. */
static int read_jpeg(gallery *g, int64_t sample, const uint8_t **data, size_t *bytes)
{
    const bool is_jpeg = kolo_dataset_codec(g->set, sample) == KOLO_CODEC_JPEG;
    int height, width, by = 1;
    free(g->stored);
    *bytes = kolo_dataset_bytes(g->set, sample);
    if (!(g->stored = kolo_alloc(*bytes + KOLO_IMAGE_SLACK))) return KOLO_ENOMEM;
    KOLO_TRY(kolo_dataset_read(g->set, sample, g->stored));
    *data = g->stored;
    if (is_jpeg && *bytes <= SMALL) return 0;
    kolo_dataset_size(g->set, sample, &height, &width);
    while (by < 8 && (height > width ? height : width) / by > SIDE) by *= 2;
    const int channels = kolo_dataset_get_info(g->set)->channels;
    if (is_jpeg) {
        KOLO_TRY(kolo_jpeg_decode(g->jpeg, g->stored, *bytes, channels, by, NULL, &g->image, NULL));
    } else {
        KOLO_TRY(kolo_image_shape(&g->image, height, width, channels));
        memcpy(g->image.pixels, g->stored, *bytes);
    }
    KOLO_TRY(kolo_jpeg_encode(&g->image, QUALITY, &g->encoded, &g->capacity, bytes));
    *data = g->encoded;
    return 0;
}

static void put_box(const gallery *g, const double *box, int cls, double score, double unit)
{
    char number[32];
    const char *name = report_class_name(g->run, cls, number, sizeof number);
    fprintf(g->f, "<rect class=\"box %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
            score < 0 ? "true" : "found", box[0], box[1], box[2] - box[0], box[3] - box[1]);
    report_html(g->f, name);
    if (score >= 0) fprintf(g->f, " %.0f %%", 100 * score);
    fputs("</title></rect>", g->f);
    if (score < 0) return;
    fprintf(g->f, "<text class=\"name\" style=\"font-size:%.1fpx\" x=\"%.1f\" y=\"%.1f\">", unit,
            box[0] + unit / 4, box[1] + unit);
    report_html(g->f, name);
    fprintf(g->f, " %.0f %%</text>\n", 100 * score);
}

static void put_true(const gallery *g, int64_t sample, double unit)
{
    const kolo_targets *t = kolo_dataset_targets(g->set);
    for (int64_t i = t->box_offset[sample]; i < t->box_offset[sample + 1]; i++) {
        const double box[4] = {(double)t->box[i][0], (double)t->box[i][1], (double)t->box[i][2],
                               (double)t->box[i][3]};
        if (!(t->box_flags[i] & KOLO_BOX_OUTSIDE)) put_box(g, box, t->box_class[i], -1, unit);
    }
}

static void put_found(const gallery *g, int64_t sample, double unit)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(g->run->examples, "found"))
    {
        double number[7];
        int n = 0;
        for (const cJSON *item = cJSON_IsArray(one) ? one->child : NULL; item && n < 7; item = item->next)
            number[n++] = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (n == 7 && number[0] == (double)sample && number[1] >= 0 && number[1] < 1e6)
            put_box(g, number + 3, (int)number[1], number[2] < 0 ? 0 : number[2], unit);
    }
}

static int put_image(gallery *g, int64_t sample)
{
    const uint8_t *data;
    size_t bytes;
    int height, width;
    KOLO_TRY(read_jpeg(g, sample, &data, &bytes));
    kolo_dataset_size(g->set, sample, &height, &width);
    const double unit = (height > width ? height : width) / 30.0;
    fprintf(
        g->f,
        "<figure class=\"example\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"sample %lld\"><image "
        "width=\"%d\" height=\"%d\" href=\"data:image/jpeg;base64,",
        width, height, (long long)sample, width, height);
    put_base64(g->f, data, bytes);
    fputs("\"/>\n", g->f);
    put_true(g, sample, unit);
    put_found(g, sample, unit);
    fputs("</svg></figure>\n", g->f);
    return 0;
}

int report_write_examples(FILE *f, const report_run *run)
{
    const cJSON *apart = cJSON_GetObjectItemCaseSensitive(run->examples, "apart");
    gallery g = {.f = f, .run = run};
    if (!run->has_options || !cJSON_IsNumber(apart) || !(apart->valuedouble >= 1)) return 0;
    /* that the data are not here any more is no error of the run */
    int rc = kolo_dataset_open(&g.set, run->options.val);
    if (rc < 0) return rc == KOLO_ENOMEM ? rc : 0;
    const kolo_targets *t = kolo_dataset_targets(g.set);
    if (t && t->box_offset) {
        fputs("<h2>Examples</h2>\n<p class=\"soft\">Of the validation data. Dashed: the true boxes; whole: "
              "those that the last evaluation found, from 25 % on.</p>\n<div class=\"figures\">\n",
              f);
        rc = kolo_jpeg_create(&g.jpeg);
        for (int i = 0; i < MOST && rc == 0; i++) {
            const double sample = i * apart->valuedouble;
            if (sample < (double)kolo_dataset_get_info(g.set)->count) rc = put_image(&g, (int64_t)sample);
            if (rc < 0 && rc != KOLO_ENOMEM) rc = 0; /* one that cannot be read is left out */
        }
        fputs("</div>\n", f);
    }
    kolo_jpeg_destroy(&g.jpeg);
    kolo_image_free(&g.image);
    free(g.stored);
    free(g.encoded);
    kolo_dataset_close(&g.set);
    return rc;
}
