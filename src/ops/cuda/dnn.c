/* Plans: an engine and its knobs made ready to run. */
#include "ops/cuda/dnn_descriptor.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* For every plan without a handle cuDNN 9.19 opens NVRTC, 100 MB, and closes it again, which takes most of
 * the time of a plan. It is held open as long as the process lives; where it is missing nothing changes. */
static void hold_compiler(void)
{
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    (void)dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

int kolo_dnn_profile(descriptor *profile, const char *json)
{
    static pthread_once_t held = PTHREAD_ONCE_INIT;
    int rc;
    pthread_once(&held, hold_compiler);
    KOLO_TRY_GOTO(rc, dnn_make(profile, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
    KOLO_TRY_GOTO(rc, dnn_set(*profile, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              (int64_t)strlen(json) + 1, json));
    KOLO_TRY_GOTO(rc, dnn_finalize(*profile));
    return 0;
fail:
    dnn_destroy(profile);
    return rc;
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* Notes of an engine as bits. Those that this header does not know yet are left out: a rule cannot name
 * them. */
static int read_notes(descriptor engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      uint32_t *bits)
{
    int note[32]; /* cuDNN's enumerations are ints */
    int64_t n = 0;
    *bits = 0;
    KOLO_TRY(dnn_get(engine, name, type, 32, &n, note));
    for (int64_t i = 0; i < n; i++)
        if (note[i] >= 0 && note[i] < 32) *bits |= 1u << note[i];
    return 0;
}

static int make_engine(const kolo_dnn_graph *g, kolo_dnn_plan *p)
{
    KOLO_TRY(dnn_make(&p->engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    KOLO_TRY(dnn_set_descriptor(p->engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph));
    KOLO_TRY(dnn_set_int64(p->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &p->choice.engine));
    KOLO_TRY(dnn_set_gpu(g, p->engine, -1, CUDNN_ATTR_ENGINE_DEVICEPROP));
    KOLO_TRY(dnn_finalize(p->engine));
    KOLO_TRY(read_notes(p->engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &p->notes));
    return read_notes(p->engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &p->behaviours);
}

static int make_knob(descriptor *out, cudnnBackendKnobType_t type, int64_t value)
{
    KOLO_TRY(dnn_make(out, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    KOLO_TRY(dnn_set(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &value));
    return dnn_finalize(*out);
}

static int make_config(kolo_dnn_plan *p)
{
    const kolo_dnn_choice *c = &p->choice;
    descriptor knob[KOLO_DNN_KNOBS] = {NULL};
    int rc = dnn_make(&p->config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (rc >= 0) rc = dnn_set_descriptor(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, p->engine);
    for (int i = 0; i < c->knobs && rc >= 0; i++) rc = make_knob(&knob[i], c->knob[i].type, c->knob[i].value);
    if (rc >= 0 && c->knobs)
        rc = dnn_set(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, c->knobs,
                     knob);
    if (rc >= 0) rc = dnn_finalize(p->config);
    for (int i = 0; i < c->knobs; i++) dnn_destroy(&knob[i]);
    return rc;
}

/* 0 or 1. Asked first with what the engine is, because to make the plan may mean to compile it. */
static int check_rules(const kolo_dnn_plan *p, const kolo_dnn_rules *rules)
{
    uint32_t notes = p->notes & rules->notes, behaviours = p->behaviours & rules->behaviours;
    if (!notes && !behaviours && p->workspace <= rules->workspace) return 0;
    kolo_fail(KOLO_ECONFIG,
              "cuDNN's engine %lld is excluded: notes 0x%x, behaviours 0x%x, workspace %zu bytes",
              (long long)p->choice.engine, notes, behaviours, p->workspace);
    return 1;
}

static int make_plan(const kolo_dnn_graph *g, kolo_dnn_plan *p, const kolo_dnn_rules *rules)
{
    int64_t bytes = 0, n;
    KOLO_TRY(make_engine(g, p));
    if (check_rules(p, rules)) return 1;
    KOLO_TRY(make_config(p));
    KOLO_TRY(dnn_make(&p->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    KOLO_TRY(dnn_set_gpu(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
    KOLO_TRY(dnn_set_descriptor(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, p->config));
    KOLO_TRY(dnn_finalize(p->plan));
    KOLO_TRY(dnn_get(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    p->workspace = (size_t)bytes;
    return check_rules(p, rules);
}

int kolo_dnn_plan_create(kolo_dnn_plan **out, const kolo_dnn_graph *graph, const kolo_dnn_choice *choice,
                         const kolo_dnn_rules *rules)
{
    kolo_dnn_plan *p = *out = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->handle = graph->handle;
    p->choice = *choice;
    int rc = make_plan(graph, p, rules);
    if (rc) kolo_dnn_plan_destroy(out);
    return rc ? 1 : 0; /* whatever cuDNN says against it, another engine may do */
}

void kolo_dnn_plan_destroy(kolo_dnn_plan **plan)
{
    kolo_dnn_plan *p = *plan;
    if (!p) return;
    dnn_destroy(&p->plan);
    dnn_destroy(&p->config);
    dnn_destroy(&p->engine);
    free(p);
    *plan = NULL;
}

static int fill_pack(descriptor pack, void *const part[KOLO_DNN_PARTS], void *workspace)
{
    int64_t uid[KOLO_DNN_PARTS];
    void *pointer[KOLO_DNN_PARTS];
    int n = 0;
    for (int i = 0; i < KOLO_DNN_PARTS; i++) {
        if (!part[i]) continue;
        uid[n] = i + 1;
        pointer[n++] = part[i];
    }
    KOLO_TRY(dnn_set_int64(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, n, uid));
    KOLO_TRY(dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointer));
    KOLO_TRY(dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    return dnn_finalize(pack);
}

/* A finalized pack cannot be changed, so each run has its own: half a microsecond, and none
 * when a step is replayed. */
int kolo_dnn_plan_run(const kolo_dnn_plan *p, void *const part[KOLO_DNN_PARTS], void *workspace)
{
    descriptor pack;
    int rc = dnn_make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (rc >= 0) rc = fill_pack(pack, part, workspace);
    if (rc >= 0) rc = KOLO_DNN(cudnnBackendExecute(p->handle, p->plan, pack));
    dnn_destroy(&pack);
    return rc;
}

void kolo_dnn_plan_name(const kolo_dnn_plan *p, char *text, size_t size)
{
    static const struct {
        uint32_t bits;
        const char *name;
    } note[] = {{1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "tensor cores"},
                {1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds inputs"},
                {1u << CUDNN_NUMERICAL_NOTE_FFT, "FFT"},
                {1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                     1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                     1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
                 "Winograd"},
                {1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "not deterministic"}};
    char choice[KOLO_DNN_TEXT];
    kolo_dnn_choice_write(&p->choice, choice);
    size_t n = (size_t)snprintf(text, size, "cuDNN %.60s", choice);
    for (size_t i = 0; i < sizeof note / sizeof *note; i++)
        if (p->notes & note[i].bits && n < size)
            n += (size_t)snprintf(text + n, size - n, ", %s", note[i].name);
}
