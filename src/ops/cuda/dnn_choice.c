/* Engines and their knobs: as text, and which of them cuDNN proposes for a graph. */
#include "ops/cuda/dnn_descriptor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

void kolo_dnn_choice_write(const kolo_dnn_choice *c, char text[KOLO_DNN_TEXT])
{
    int n = snprintf(text, KOLO_DNN_TEXT, "%lld", (long long)c->engine);
    for (int i = 0; i < c->knobs && n < KOLO_DNN_TEXT; i++)
        n += snprintf(text + n, (size_t)(KOLO_DNN_TEXT - n), " %d:%lld", (int)c->knob[i].type,
                      (long long)c->knob[i].value);
}

bool kolo_dnn_choice_read(kolo_dnn_choice *c, const char *text)
{
    int n = 0, type;
    long long value;
    memset(c, 0, sizeof *c);
    if (sscanf(text, "%lld%n", &value, &n) != 1 || value < 0) return false;
    c->engine = value;
    for (text += n; *text; text += n) {
        if (c->knobs == KOLO_DNN_KNOBS || sscanf(text, " %d:%lld%n", &type, &value, &n) != 2 || type < 0)
            return false;
        c->knob[c->knobs].type = (cudnnBackendKnobType_t)type;
        c->knob[c->knobs++].value = value;
    }
    return true;
}

static bool choice_same(const kolo_dnn_choice *a, const kolo_dnn_choice *b)
{
    bool same = a->engine == b->engine && a->knobs == b->knobs;
    for (int i = 0; same && i < a->knobs; i++)
        same = a->knob[i].type == b->knob[i].type && a->knob[i].value == b->knob[i].value;
    return same;
}

/* The content of a configuration that the heuristics made. */
static int read_knobs(descriptor config, kolo_dnn_choice *c)
{
    descriptor knob[KOLO_DNN_KNOBS] = {NULL};
    int64_t n = 0, one;
    int rc = 0;
    for (int i = 0; i < KOLO_DNN_KNOBS && rc >= 0; i++)
        rc = dnn_make(&knob[i], CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (rc >= 0) /* asked for the number alone, cuDNN says 0 */
        rc = dnn_get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KOLO_DNN_KNOBS,
                     &n, knob);
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = dnn_get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                     &c->knob[i].type);
        if (rc >= 0)
            rc = dnn_get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                         &c->knob[i].value);
    }
    c->knobs = (int)n;
    for (int i = 0; i < KOLO_DNN_KNOBS; i++) dnn_destroy(&knob[i]);
    return rc;
}

static int read_choice(descriptor config, kolo_dnn_choice *c)
{
    descriptor engine;
    int64_t n = 0;
    memset(c, 0, sizeof *c);
    int rc = dnn_make(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (rc >= 0)
        rc = dnn_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (rc >= 0) rc = dnn_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &c->engine);
    dnn_destroy(&engine);
    return rc < 0 ? rc : read_knobs(config, c);
}

typedef struct proposals {
    kolo_dnn_choice *list;
    int64_t count, capacity;
} proposals;

static int add_proposal(proposals *p, descriptor config)
{
    kolo_dnn_choice c;
    KOLO_TRY(read_choice(config, &c));
    for (int64_t i = 0; i < p->count; i++)
        if (choice_same(&p->list[i], &c)) return 0;
    KOLO_TRY(kolo_grow(&p->list, &p->capacity, p->count, sizeof *p->list));
    p->list[p->count++] = c;
    return 0;
}

static int add_results(descriptor heuristic, proposals *p)
{
    int64_t most = 0, n = 0;
    KOLO_TRY(
        dnn_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &most, NULL));
    descriptor *config = kolo_alloc((size_t)(most + 1) * sizeof *config);
    if (!config) return KOLO_ENOMEM;
    int rc = 0;
    for (int64_t i = 0; i < most && rc >= 0; i++)
        rc = dnn_make(&config[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (rc >= 0 && most)
        rc = dnn_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &n,
                     config);
    for (int64_t i = 0; i < n && rc >= 0; i++) rc = add_proposal(p, config[i]);
    for (int64_t i = 0; i < most; i++) dnn_destroy(&config[i]);
    free(config);
    return rc;
}

static int cuda_dnn_query(const kolo_dnn_graph *g, cudnnBackendHeurMode_t mode, proposals *p)
{
    descriptor h;
    int rc;
    KOLO_TRY_GOTO(rc, dnn_make(&h, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    KOLO_TRY_GOTO(rc, dnn_set_descriptor(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph));
    KOLO_TRY_GOTO(rc, dnn_set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    KOLO_TRY_GOTO(rc, dnn_set_gpu(g, h, -1, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
    KOLO_TRY_GOTO(rc, dnn_finalize(h));
    KOLO_TRY_GOTO(rc, add_results(h, p));
fail:
    dnn_destroy(&h);
    return rc;
}

int kolo_dnn_proposals(const kolo_dnn_graph *graph, kolo_dnn_choice **list, int64_t *count)
{
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A,
                                                  CUDNN_HEUR_MODE_FALLBACK};
    proposals p = {NULL, 0, 0};
    int rc = 0;
    for (size_t i = 0; i < sizeof mode / sizeof *mode; i++) {
        rc = cuda_dnn_query(graph, mode[i], &p);
        if (rc < 0) kolo_debug("cuDNN's heuristic %d proposes nothing: %s", (int)mode[i], kolo_error_text());
    }
    *list = p.list;
    *count = p.count;
    return p.count ? 0 : rc; /* one mode may fail, not all */
}
