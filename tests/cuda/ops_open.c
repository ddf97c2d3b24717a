/* The cuda backend on a machine that cannot serve it, and on one that fails: what is said, with which status,
 * and that nothing is left behind. */
#include "base/plugin.h"
#include "cuda_rig.h"
#include "kolo/error.h"
#include "ops/backend.h"
#include "standin/tell.h"

static int64_t (*count_of)(const char *what);

static int create(kolo_backend **b, int device)
{
    kolo_backend_config config = {.threads = 1, .device = device};
    return kolo_backend_create(b, "cuda", &config);
}

/* Opening fails with `status`, and every one of these words. */
static void refused(const char *what, int device, int status, const char *word, const char *other)
{
    kolo_backend *b = NULL;
    is_int(create(&b, device), status, "%s: refused", what);
    ok(strstr(kolo_error_text(), word) && strstr(kolo_error_text(), other), "and why: %s", kolo_error_text());
    ok(!b && count_of("alive") == 0, "nothing is left of it (%d)", (int)count_of("alive"));
}

static void test_machines(void)
{
    setenv("STANDIN_DRIVER", "0", 1);
    refused("no driver", 0, KOLO_ELAUNCH, "no NVIDIA driver", "device=cpu");
    setenv("STANDIN_DRIVER", "11080", 1);
    refused("an old driver", 0, KOLO_ELAUNCH, "up to 11.8", "update the driver");
    unsetenv("STANDIN_DRIVER");
    setenv("STANDIN_CAPABILITY", "75", 1);
    refused("an old GPU", 0, KOLO_ELAUNCH, "capability 7.5", "8.0");
    unsetenv("STANDIN_CAPABILITY");
    refused("a GPU that is not there", 3, KOLO_ELAUNCH, "GPU 3", "1 can be seen");
    setenv("STANDIN_DEVICES", "0", 1);
    refused("no GPU at all", 0, KOLO_ELAUNCH, "GPU 0", "0 can be seen");
    unsetenv("STANDIN_DEVICES");
}

/* The next call of this name fails with this code. */
static void fail_next(const char *call, int code)
{
    char text[128];
    snprintf(text, sizeof text, "%s:%lld:%d", call, (long long)count_of(call) + 1, code);
    setenv("STANDIN_FAIL", text, 1);
}

/* Every call that opening makes, failing in its turn. */
static void test_calls(void)
{
    static const struct {
        const char *call;
        int code, status;
    } step[] = {
        {"cudaGetDeviceProperties", 46, KOLO_ELAUNCH}, /* devices unavailable */
        {"cudaInitDevice", 46, KOLO_ELAUNCH},
        {"cudaSetDevice", 46, KOLO_ELAUNCH},
        {"cudaDeviceGetStreamPriorityRange", 1, KOLO_EINTERNAL},
        {"cudaStreamCreateWithPriority", 2, KOLO_ENOMEM}, /* out of memory */
        {"cudaMalloc", 2, KOLO_ENOMEM},
        {"cudaMemsetAsync", 1, KOLO_EINTERNAL},
        {"cudaMemcpyAsync", 1, KOLO_EINTERNAL},
        {"cudnnCreate", 1001, KOLO_ELAUNCH}, /* not initialised */
        {"cudnnSetStream", 2000, KOLO_EINTERNAL},
        {"cublasLtCreate", 3, KOLO_ENOMEM}, /* allocation failed */
    };
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        fail_next(step[i].call, step[i].code);
        bool lists = i == 0; /* asked for before the GPU has a name, by launch/ */
        refused(step[i].call, 0, step[i].status, lists ? "nvidia-smi" : step[i].call,
                lists ? "GPUs of this node" : "Stand-in GPU");
    }
    unsetenv("STANDIN_FAIL");
}

/* After a capture that failed: an error with this word, no replay, nothing more alive than before,
 * and the work goes on. */
static void capture_failed(kolo_backend *b, float *x, int64_t alive, const char *what, const char *word)
{
    kolo_replay *replay = NULL;
    is_int(kolo_backend_capture_end(b, &replay), KOLO_EINTERNAL, "%s: no replay", what);
    unsetenv("STANDIN_FAIL");
    ok(!replay && strstr(kolo_error_text(), word), "and why: %s", kolo_error_text());
    ok(count_of("alive") == alive && kolo_backend_fill(b, KOLO_LANE_COMPUTE, x, 0, 64) == 0 &&
           kolo_backend_finish(b) == 0,
       "the work goes on as before");
}

static void test_replay_failures(void)
{
    void (*forgive)(void);
    void *symbol = kolo_cuda_symbol("standin_forgive");
    memcpy(&forgive, &symbol, sizeof forgive);
    kolo_backend *b = NULL;
    is_int(create(&b, 0), 0, "opened");
    float *x = b ? kolo_backend_alloc(b, 64) : NULL;
    if (!x) return;
    const char *const call[] = {"cudaGraphInstantiate", "cudaGraphUpload"};
    int64_t alive = count_of("alive");
    for (int i = 0; i < 2; i++) {
        ok(kolo_backend_capture(b) == 0 && kolo_backend_fill(b, KOLO_LANE_COMPUTE, x, 1, 64) == 0,
           "a capture");
        fail_next(call[i], 1);
        capture_failed(b, x, alive, call[i], call[i]);
    }
    ok(kolo_backend_capture(b) == 0 && kolo_backend_finish(b) < 0, "a wait inside a capture is an error");
    capture_failed(b, x, alive, "so is its end", "cudaStreamEndCapture");
    is_int(kolo_backend_capture(b), 0, "a capture that nobody ends");
    kolo_backend_free(b, (void **)&x, 64);
    kolo_backend_destroy(&b);
    is_int(count_of("alive"), 0, "is ended with the backend");
    forgive(); /* what was provoked here */
}

/* A kernel touches a wrong address. That is found later, by whoever asks next, and stays. */
static void test_broken(void)
{
    kolo_backend *b = NULL;
    kolo_event *event = NULL;
    is_int(create(&b, 0), 0, "opened again");
    float *x = b ? kolo_backend_alloc(b, 64) : NULL;
    if (!x) return;
    is_int(kolo_event_create(b, &event, false), 0, "an event");
    fail_next("launch", 0);
    int rc = kolo_backend_fold(b, x, x, 16);
    if (rc == 0) rc = kolo_event_record(event, KOLO_LANE_COMPUTE);
    if (rc == 0) rc = kolo_event_wait(event, 10);
    unsetenv("STANDIN_FAIL");
    is_int(rc, KOLO_ELAUNCH, "the GPU breaks");
    ok(strstr(kolo_error_text(), "GPU 0 (Stand-in GPU, 0000:10:00.0)") &&
           strstr(kolo_error_text(), "cudaErrorIllegalAddress") &&
           strstr(kolo_error_text(), "checkpoints written so far are whole") &&
           strstr(kolo_error_text(), "dmesg"),
       "which GPU, how, and what to do: %s", kolo_error_text());
    is_int(kolo_backend_fill(b, KOLO_LANE_COMPUTE, x, 0, 64), KOLO_ELAUNCH, "whatever comes next fails");
    is_int(kolo_backend_read(b, event, x, 4), KOLO_ELAUNCH, "also a read");
    is_int(kolo_event_done(event), KOLO_ELAUNCH, "a poll");
    is_int(kolo_backend_finish(b), KOLO_ELAUNCH, "and the last wait");
    ok(strstr(kolo_error_text(), "dmesg"), "with the same words");
    kolo_event_destroy(&event);
    kolo_backend_free(b, (void **)&x, 64);
    kolo_backend_destroy(&b);
    ok(!b, "what is left can be closed");
}

int main(void)
{
    if (!cuda_rig()) skip_all("failures are only made on the stand-in for a GPU");
    void *symbol = kolo_cuda_symbol("standin_count");
    memcpy(&count_of, &symbol, sizeof count_of);
    if (!symbol) skip_all("%s", kolo_error_text());
    test_machines();
    test_calls();
    test_replay_failures();
    test_broken();
    return done_testing();
}
