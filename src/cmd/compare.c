/* kolo compare: what runs have reached, over images, steps and seconds. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "report/compare.h"
#include "report/plot.h"

typedef int writer(FILE *f, const report_run *runs, int n);

/* Writes into memory first, so that an error leaves no half a file. */
static int write_to(const char *path, writer *write, const report_run *runs, int n)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    int rc = f ? write(f, runs, n) : kolo_no_memory(sizeof *f);
    if (f && fclose(f) != 0 && rc == 0) rc = kolo_no_memory(bytes);
    if (rc == 0 && path) rc = kolo_file_write_atomic(path, text, bytes);
    else if (rc == 0) {
        kolo_plain(text); /* names may hold anything */
        fputs(text, stdout);
    }
    free(text);
    return rc;
}

static int compare(const char *const *folder, int n, const char *out)
{
    report_run *run = kolo_alloc((size_t)n * sizeof *run);
    int read = 0, rc = run ? 0 : KOLO_ENOMEM;
    while (rc == 0 && read < n) {
        rc = report_run_read(&run[read], folder[read]);
        read++; /* it is freed after an error, too */
    }
    if (rc == 0) {
        report_sort(run, n);
        rc = write_to(NULL, report_compare_table, run, n);
    }
    if (rc == 0 && *out) rc = write_to(out, report_compare_svg, run, n);
    for (int i = 0; i < read; i++) report_run_free(&run[i]);
    free(run);
    return rc;
}

int kolo_command_compare(int n, char **words)
{
    const char *folder[REPORT_SERIES];
    kolo_options options;
    int runs = 0;
    KOLO_TRY(kolo_command_words(&options, n, words, REPORT_SERIES, folder));
    while (runs < REPORT_SERIES && folder[runs]) runs++;
    const int rc = runs ? compare(folder, runs, options.out)
                        : kolo_fail(KOLO_ECONFIG, "which runs? kolo compare RUN [RUN ...] [out=FILE.svg]");
    kolo_options_free(&options);
    return rc;
}
