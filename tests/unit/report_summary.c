/* summary.json: written whole, read back by the next start. */
#include <cjson/cJSON.h>
#include <unistd.h>

#include "base/file.h"
#include "kolo/error.h"
#include "report/report.h"
#include "tap.h"

int main(void)
{
    char folder[] = "/tmp/kolo_summary_XXXXXX", path[128], *text = NULL;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/summary.json", folder);
    kolo_summary got = {.steps = 5}, want = {.state = "requeue",
                                             .model = "resnet50",
                                             .steps = 3000000000,
                                             .repeated_steps = 7,
                                             .restarts = 2,
                                             .epochs = 3,
                                             .loss = 1.25,
                                             .top1 = .75,
                                             .top5 = -1,
                                             .best_top1 = 0,
                                             .img_per_s = 812.5,
                                             .wait_share = .0125,
                                             .wall_seconds = 1e6,
                                             .ranks = 8,
                                             .nodes = 2,
                                             .threads = 4,
                                             .peak_bytes = 123456789012,
                                             .planned_bytes = 1ull << 40,
                                             .node_hours = 555.5,
                                             .mb_per_s = 99.5,
                                             .cache_hits = 5000000000,
                                             .bad_samples = 3,
                                             .next = "say \"go\"\nor stop"};
    is_int(kolo_summary_read(folder, &got), 0, "none yet");
    setenv("SLURM_JOB_ACCOUNT", "proj1", 1);
    setenv("SLURM_JOB_PARTITION", "cpu", 1);
    setenv("SLURM_JOB_ID", "1234", 1);
    kolo_summary_environment(&want);
    ok(!strcmp(want.account, "proj1") && !strcmp(want.partition, "cpu") && !strcmp(want.job, "1234") &&
           *want.version,
       "Slurm's environment and the version");
    is_int(kolo_summary_write(folder, &want), 0, "written (%s)", kolo_error_text());
    memset(&got, 0x55, sizeof got);
    is_int(kolo_summary_read(folder, &got), 1, "read back");
    ok(!strcmp(got.state, want.state) && !strcmp(got.next, want.next) && !strcmp(got.job, "1234") &&
           !strcmp(got.model, "resnet50"),
       "texts survive");
    ok(got.steps == want.steps && got.repeated_steps == 7 && got.restarts == 2 && got.ranks == 8 &&
           got.peak_bytes == want.peak_bytes && got.planned_bytes == want.planned_bytes,
       "counts survive");
    ok(got.loss == want.loss && got.top1 == want.top1 && got.best_top1 == 0 && got.top5 < 0 &&
           got.wall_seconds == 1e6 && got.mb_per_s == 99.5 && got.cache_hits == 5000000000 &&
           got.bad_samples == 3,
       "figures survive");
    kolo_file_read(path, &text, NULL);
    cJSON *o = cJSON_Parse(text);
    ok(o && cJSON_IsNull(cJSON_GetObjectItem(o, "top5")), "what was not measured is null");
    static const char *const promised[] = {
        "steps",     "repeated_steps", "restarts", "epochs",   "loss",       "top1",         "top5",
        "img_per_s", "wait_share",     "ranks",    "nodes",    "peak_bytes", "wall_seconds", "account",
        "partition", "node_hours",     "version",  "mb_per_s", "cache_hits", "bad_samples",  "metric",
        "ap",        "ap50",           "map",      "ap_micro", "best_ap",    "best_map"};
    int there = 0, n = sizeof promised / sizeof *promised;
    for (int i = 0; i < n; i++) there += cJSON_HasObjectItem(o, promised[i]);
    is_int(there, n, "every promised key is there");
    cJSON_Delete(o);
    free(text);
    want.loss = NAN;
    kolo_summary_write(folder, &want);
    ok(kolo_summary_read(folder, &got) == 1 && got.loss < 0, "a loss that is no number is none");
    FILE *f = fopen(path, "w");
    fputs("{\"steps\": 1e400, \"ranks\": \"x\", \"state\": 5, \"threads\": -3}", f);
    fclose(f);
    ok(kolo_summary_read(folder, &got) == 1 && got.ranks == 0 && got.threads == 0 && !*got.state,
       "foreign values do no harm");
    f = fopen(path, "w");
    fputs("{\"steps\": 1", f);
    fclose(f);
    is_int(kolo_summary_read(folder, &got), 0, "a torn summary is none");
    is_int(kolo_summary_write("/nonexistent", &want) < 0, 1, "a folder that is not there (%s)",
           kolo_error_text());
    kolo_folder_remove(folder);
    return done_testing();
}
