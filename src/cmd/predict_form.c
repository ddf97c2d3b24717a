#include "cmd/predict_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "report/export.h"

typedef struct unreadable {
    int64_t file;
    char *why;
} unreadable;

struct kolo_predict_form {
    enum kolo_predict_kind kind;
    const char *const *path;
    const kolo_class_names *names;
    bool boxes;
    int64_t printed; /* images */
    unreadable *bad; /* those that are not printed yet are [next, count) */
    int64_t next, count, capacity;
};

int kolo_predict_form_open(kolo_predict_form **form, enum kolo_predict_kind kind, const char *const *path,
                           const kolo_class_names *names, bool boxes)
{
    kolo_predict_form *f = *form = kolo_alloc(sizeof *f);
    if (!f) return KOLO_ENOMEM;
    *f = (kolo_predict_form){.kind = kind, .path = path, .names = names, .boxes = boxes};
    if (kind == KOLO_PREDICT_CSV) printf("path,rank,class,name,score,%serror\n", boxes ? "x0,y0,x1,y1," : "");
    if (kind == KOLO_PREDICT_JSON) printf("[");
    return 0;
}

static const char *name_of(const kolo_predict_form *f, int64_t cls)
{
    return f->names->count ? f->names->name[cls] : NULL;
}

static void csv_row(const kolo_predict_form *f, int64_t file, int64_t rank, const kolo_prediction *p,
                    const char *why)
{
    report_csv_text(stdout, f->path[file]);
    if (!p) printf(",,,,");
    else {
        printf(",%lld,%lld,", (long long)rank, (long long)p->cls);
        report_csv_text(stdout, name_of(f, p->cls) ? name_of(f, p->cls) : "");
        printf(",%.6g", p->score);
    }
    for (int k = 0; f->boxes && k < 4; k++) {
        putchar(',');
        if (p) printf("%.1f", p->box[k]);
    }
    putchar(',');
    report_csv_text(stdout, why);
    putchar('\n');
}

/* An image without a box has a row, too. */
static void show_csv(const kolo_predict_form *f, int64_t file, const kolo_prediction *list, int64_t n)
{
    if (n == 0) csv_row(f, file, 0, NULL, "");
    for (int64_t i = 0; i < n; i++) csv_row(f, file, i + 1, &list[i], "");
}

static void begin_json(kolo_predict_form *f, int64_t file)
{
    printf("%s{\"path\":", f->printed++ ? ",\n " : "");
    kolo_json_string(stdout, f->path[file]);
}

static void show_json(kolo_predict_form *f, int64_t file, const kolo_prediction *list, int64_t n)
{
    begin_json(f, file);
    printf(",\"%s\":[", f->boxes ? "boxes" : "classes");
    for (int64_t i = 0; i < n; i++) {
        printf("%s{\"class\":%lld", i ? "," : "", (long long)list[i].cls);
        if (name_of(f, list[i].cls)) {
            printf(",\"name\":");
            kolo_json_string(stdout, name_of(f, list[i].cls));
        }
        printf(",\"score\":");
        kolo_json_number(stdout, list[i].score, 6);
        for (int k = 0; f->boxes && k < 4; k++) {
            printf("%s", k ? "," : ",\"box\":[");
            kolo_json_number(stdout, list[i].box[k], 6);
        }
        printf("%s}", f->boxes ? "]" : "");
    }
    printf("]}");
}

static void show_text(const kolo_predict_form *f, int64_t file, const kolo_prediction *list, int64_t n)
{
    printf("%s\n", f->path[file]);
    for (int64_t i = 0; i < n; i++) {
        const kolo_prediction *p = &list[i];
        const char *name = name_of(f, p->cls), *gap = name ? "  " : "";
        if (f->boxes)
            printf("  %.3f  %lld%s%s  %.1f %.1f %.1f %.1f\n", p->score, (long long)p->cls, gap,
                   name ? name : "", p->box[0], p->box[1], p->box[2] - p->box[0], p->box[3] - p->box[1]);
        else printf("  %6.2f %%  %lld%s%s\n", 100 * p->score, (long long)p->cls, gap, name ? name : "");
    }
}

/* Files that could not be read, of numbers below `file`. */
static void show_unreadable(kolo_predict_form *f, int64_t file)
{
    for (; f->next < f->count && f->bad[f->next].file < file; f->next++) {
        const unreadable *u = &f->bad[f->next];
        if (f->kind == KOLO_PREDICT_CSV) csv_row(f, u->file, 0, NULL, u->why);
        if (f->kind != KOLO_PREDICT_JSON) continue;
        begin_json(f, u->file);
        printf(",\"error\":");
        kolo_json_string(stdout, u->why);
        printf("}");
    }
}

int kolo_predict_form_unreadable(void *context, int64_t file, const char *why)
{
    kolo_predict_form *f = context;
    KOLO_TRY(kolo_grow(&f->bad, &f->capacity, f->count, sizeof *f->bad));
    char *copy = kolo_strdup(why);
    if (!copy) return KOLO_ENOMEM;
    f->bad[f->count++] = (unreadable){file, copy};
    return 0;
}

int kolo_predict_form_show(kolo_predict_form *f, int64_t file, const kolo_prediction *list, int64_t n)
{
    show_unreadable(f, file);
    if (f->kind == KOLO_PREDICT_CSV) show_csv(f, file, list, n);
    else if (f->kind == KOLO_PREDICT_JSON) show_json(f, file, list, n);
    else show_text(f, file, list, n);
    return 0;
}

void kolo_predict_form_close(kolo_predict_form **form)
{
    kolo_predict_form *f = *form;
    if (!f) return;
    show_unreadable(f, INT64_MAX);
    if (f->kind == KOLO_PREDICT_JSON) printf("]\n");
    fflush(stdout);
    for (int64_t i = 0; i < f->count; i++) free(f->bad[i].why);
    free(f->bad);
    free(f);
    *form = NULL;
}
