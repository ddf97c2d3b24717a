#include "train/by_class.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

/* An event is one line of 64 KiB at most; a table of answers is summed over ranks at every evaluation. */
enum { MOST_TOLD = 4096, MOST_ANSWERS = 1024, MOST_CONFUSIONS = 1000 };

int kolo_by_class_create(kolo_by_class *by, int64_t classes, bool precisions)
{
    const size_t n = (size_t)classes + 1;
    *by = (kolo_by_class){.classes = classes};
    if (!(by->images = kolo_alloc(n * sizeof *by->images))) goto fail;
    if (precisions && !(by->ap = kolo_alloc(n * sizeof *by->ap))) goto fail;
    if (!precisions && !(by->right = kolo_alloc(n * sizeof *by->right))) goto fail;
    if (!precisions && classes <= MOST_ANSWERS && !(by->answers = kolo_alloc(n * n * sizeof *by->answers)))
        goto fail;
    return 0;
fail:
    kolo_by_class_free(by);
    return KOLO_ENOMEM;
}

void kolo_by_class_free(kolo_by_class *by)
{
    free(by->images);
    free(by->right);
    free(by->answers);
    free(by->ap);
    free(by->example);
    *by = (kolo_by_class){0};
}

void kolo_by_class_count(kolo_by_class *by, const float *x, int64_t label)
{
    int64_t answer = 0;
    for (int64_t c = 1; c < by->classes; c++)
        if (x[c] > x[answer]) answer = c;
    by->images[label]++;
    by->right[label] += answer == label;
    if (by->answers) by->answers[label * by->classes + answer]++;
}

int kolo_by_class_sum(kolo_by_class *by, kolo_comm *comm)
{
    const int64_t n = by->classes;
    KOLO_TRY(kolo_comm_allreduce(comm, by->images, n, KOLO_I64, KOLO_SUM));
    KOLO_TRY(kolo_comm_allreduce(comm, by->right, n, KOLO_I64, KOLO_SUM));
    return by->answers ? kolo_comm_allreduce(comm, by->answers, n * n, KOLO_I64, KOLO_SUM) : 0;
}

int kolo_by_class_keep(kolo_by_class *by, const kolo_example *example)
{
    KOLO_TRY(kolo_grow(&by->example, &by->example_capacity, by->examples, sizeof *by->example));
    by->example[by->examples++] = *example;
    return 0;
}

static void put_counts(FILE *f, const char *key, const int64_t *count, int64_t n)
{
    fprintf(f, ",\"%s\":[", key);
    for (int64_t c = 0; c < n; c++) fprintf(f, "%s%lld", c ? "," : "", (long long)count[c]);
    fputc(']', f);
}

static void put_precisions(FILE *f, const double *ap, int64_t n)
{
    fputs(",\"ap\":[", f);
    for (int64_t c = 0; c < n; c++) {
        if (c) fputc(',', f);
        if (ap[c] < 0) fputs("null", f);
        else fprintf(f, "%.4g", ap[c]);
    }
    fputc(']', f);
}

typedef struct confusion {
    int64_t label, answer, count;
} confusion;

static int by_count(const void *a, const void *b)
{
    const confusion *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return (x->answer > y->answer) - (x->answer < y->answer);
}

/* Wrong answers, the most frequent first. */
static int put_confusions(FILE *f, const kolo_by_class *by)
{
    const int64_t n = by->classes;
    confusion *list = NULL;
    int64_t count = 0, capacity = 0;
    for (int64_t i = 0; i < n * n; i++) {
        if (!by->answers[i] || i / n == i % n) continue;
        if (kolo_grow(&list, &capacity, count, sizeof *list) < 0) {
            free(list);
            return KOLO_ENOMEM;
        }
        list[count++] = (confusion){i / n, i % n, by->answers[i]};
    }
    if (count) qsort(list, (size_t)count, sizeof *list, by_count);
    fputs(",\"confused\":[", f);
    for (int64_t i = 0; i < count && i < MOST_CONFUSIONS; i++)
        fprintf(f, "%s[%lld,%lld,%lld]", i ? "," : "", (long long)list[i].label, (long long)list[i].answer,
                (long long)list[i].count);
    fputc(']', f);
    free(list);
    return 0;
}

static int put_examples(FILE *f, const kolo_by_class *by)
{
    fprintf(f, ",\"apart\":%lld,\"found\":[", (long long)by->apart);
    for (int64_t i = 0; i < by->examples; i++) {
        const kolo_example *e = &by->example[i];
        fprintf(f, "%s[%lld,%lld,%.3f,%.1f,%.1f,%.1f,%.1f]", i ? "," : "", (long long)e->sample,
                (long long)e->cls, e->score, e->box[0], e->box[1], e->box[2], e->box[3]);
    }
    fputc(']', f);
    return 0;
}

static int put_classes(FILE *f, const kolo_by_class *by)
{
    put_counts(f, "images", by->images, by->classes);
    if (by->right) put_counts(f, "right", by->right, by->classes);
    if (by->ap) put_precisions(f, by->ap, by->classes);
    return by->answers ? put_confusions(f, by) : 0;
}

static int write_event(kolo_events *events, const char *name, int64_t step, const kolo_by_class *by,
                       int (*put)(FILE *f, const kolo_by_class *by))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return kolo_no_memory(sizeof *f);
    fprintf(f, "\"step\":%lld", (long long)step);
    int rc = put(f, by);
    if (fclose(f) != 0 && rc == 0) rc = kolo_no_memory(bytes);
    if (rc == 0) rc = kolo_events_write(events, name, "%s", text);
    free(text);
    return rc;
}

int kolo_by_class_report(const kolo_by_class *by, int64_t step, kolo_events *events)
{
    if (by->classes && by->classes <= MOST_TOLD)
        KOLO_TRY(write_event(events, "classes", step, by, put_classes));
    return by->apart ? write_event(events, "examples", step, by, put_examples) : 0;
}
