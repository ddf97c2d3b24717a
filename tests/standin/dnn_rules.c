/* What descriptors of cuDNN's backend interface hold, and what is told of an engine. */
#include <stdlib.h>
#include <string.h>

#include "standin/dnn.h"

enum { ONE = 1, SIDES = 2, MANY = 64 };
enum use { NEEDED, WANTED, TOLD }; /* must be set; may be set; can only be asked for */

typedef struct rule {
    cudnnBackendDescriptorType_t descriptor;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t most; /* values; ONE: exactly one */
    enum use use;
    cudnnBackendDescriptorType_t of; /* of the descriptors it holds */
} rule;

#define TENSOR CUDNN_BACKEND_TENSOR_DESCRIPTOR
#define GEOMETRY CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
#define FORWARD CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define DATA CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define FILTER CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
#define STATS CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR
#define MODE CUDNN_BACKEND_POINTWISE_DESCRIPTOR
#define POINTWISE CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define NORM CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR
#define GRAPH CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
#define HEURISTIC CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
#define ENGINE CUDNN_BACKEND_ENGINE_DESCRIPTOR
#define CONFIG CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
#define KNOB CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR
#define KNOB_INFO CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR
#define PLAN CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define PACK CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
#define CHILD CUDNN_TYPE_BACKEND_DESCRIPTOR
#define INT CUDNN_TYPE_INT64

static const rule rules[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, ONE, NEEDED, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, INT, MANY, NEEDED, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, INT, MANY, NEEDED, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, INT, ONE, NEEDED, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, INT, ONE, NEEDED, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, ONE, WANTED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, INT, ONE, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, ONE, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, ONE, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, INT, SIDES, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, INT, SIDES, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_DILATIONS, INT, SIDES, NEEDED, 0},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, INT, SIDES, NEEDED, 0},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CHILD, ONE, NEEDED, GEOMETRY},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CHILD, ONE, NEEDED, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CHILD, ONE, NEEDED, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CHILD, ONE, NEEDED, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CHILD, ONE, NEEDED, GEOMETRY},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CHILD, ONE, NEEDED, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CHILD, ONE, NEEDED, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CHILD, ONE, NEEDED, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, ONE, WANTED, 0},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CHILD, ONE, NEEDED, GEOMETRY},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CHILD, ONE, NEEDED, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CHILD, ONE, NEEDED, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CHILD, ONE, NEEDED, TENSOR},
    {STATS, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, ONE, NEEDED, 0},
    {STATS, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, ONE, NEEDED, 0},
    {STATS, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CHILD, ONE, NEEDED, TENSOR},
    {STATS, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CHILD, ONE, NEEDED, TENSOR},
    {STATS, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CHILD, ONE, NEEDED, TENSOR},
    {MODE, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, ONE, NEEDED, 0},
    {MODE, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, ONE, NEEDED, 0},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CHILD, ONE, NEEDED, MODE},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CHILD, ONE, NEEDED, TENSOR},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CHILD, ONE, WANTED, TENSOR},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CHILD, ONE, WANTED, TENSOR},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CHILD, ONE, WANTED, TENSOR},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CHILD, ONE, WANTED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, ONE, NEEDED, 0},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, CHILD, ONE, NEEDED, TENSOR},
    {NORM, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, CHILD, ONE, NEEDED, TENSOR},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, ONE, WANTED, 0},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, CHILD, MANY, NEEDED, 0},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, INT, ONE, TOLD, 0},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CHILD, ONE, NEEDED, GRAPH},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, ONE, NEEDED, 0},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_RESULTS, CHILD, MANY, TOLD, CONFIG},
    {ENGINE, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CHILD, ONE, NEEDED, GRAPH},
    {ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, INT, ONE, NEEDED, 0},
    {ENGINE, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MANY, TOLD, 0},
    {ENGINE, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MANY, TOLD, 0},
    {ENGINE, CUDNN_ATTR_ENGINE_KNOB_INFO, CHILD, MANY, TOLD, KNOB_INFO},
    {CONFIG, CUDNN_ATTR_ENGINECFG_ENGINE, CHILD, ONE, NEEDED, ENGINE},
    {CONFIG, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CHILD, MANY, WANTED, KNOB},
    {KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, ONE, NEEDED, 0},
    {KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, INT, ONE, NEEDED, 0},
    {KNOB_INFO, CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE, ONE, TOLD, 0},
    {KNOB_INFO, CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, INT, ONE, TOLD, 0},
    {KNOB_INFO, CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, INT, ONE, TOLD, 0},
    {KNOB_INFO, CUDNN_ATTR_KNOB_INFO_STRIDE, INT, ONE, TOLD, 0},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, ONE, NEEDED, 0},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CHILD, ONE, NEEDED, CONFIG},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, INT, ONE, TOLD, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, INT, MANY, NEEDED, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, MANY, NEEDED, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, ONE, WANTED, 0},
};
enum { RULES = sizeof rules / sizeof *rules };

size_t dnn_kind_known(cudnnBackendDescriptorType_t type)
{
    size_t n = 0;
    for (int i = 0; i < RULES; i++) n += rules[i].descriptor == type;
    return n;
}

static const rule *find_rule(const dnn_object *o, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < RULES; i++)
        if (rules[i].descriptor == o->type && rules[i].name == name) return &rules[i];
    return NULL;
}

/* Two knobs of one type are no configuration. */
static bool twice(const void *data, int64_t count)
{
    cudnnBackendDescriptor_t const *d = data;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < i; k++)
            if (d[i] == d[k]) return true;
    return false;
}

cudnnStatus_t dnn_may_set(const dnn_object *o, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *data)
{
    const rule *r = find_rule(o, name);
    if (!r || r->use == TOLD)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d is not one of this descriptor", (int)name);
    bool operation = o->type == FORWARD || o->type == DATA || o->type == FILTER;
    if (type != r->type && !(r->type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE))
        return dnn_fail(operation ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                        "attribute %d is of another type", (int)name);
    if (count < 1 || (r->most == ONE && count != 1) || count > MANY)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d: %lld values", (int)name, (long long)count);
    if (!data) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d: no values", (int)name);
    if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES && twice(data, count))
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "setKnobChoices");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_may_get(const dnn_object *o, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type)
{
    const rule *r = find_rule(o, name);
    if (!r) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d is not one of this descriptor", (int)name);
    if (type != r->type)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d is of another type", (int)name);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- engines ---- */

enum { KNOB_MOST_TILE = 3, KNOB_MOST_SPLIT = 2 };
#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)
typedef struct engine {
    enum dnn_flavour flavour;
    uint32_t notes, notes16; /* of f32, of 16-bit types */
    uint32_t behaviours;
    bool f32, half, refuses; /* refuses: no plan can be made of it */
    size_t workspace;        /* beside the usual */
} engine;

/* By their global index. The fast ones each have something that a program may not want. */
static const engine engines[] = {
    {DNN_PLAIN, 0, NOTE(TENSOR_CORE), 0, true, true, false, 0},
    {DNN_RANDOM, NOTE(NONDETERMINISTIC), NOTE(NONDETERMINISTIC) | NOTE(TENSOR_CORE), 0, true, true, false, 0},
    {DNN_TF32, NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS), 0, 0, true, false, false, 4096},
    {DNN_WINOGRAD, NOTE(WINOGRAD_TILE_4x4), NOTE(WINOGRAD_TILE_4x4) | NOTE(TENSOR_CORE), 0, true, true, false,
     65536},
    {DNN_HALF_SUMS, 0, NOTE(REDUCED_PRECISION_REDUCTION) | NOTE(TENSOR_CORE), 0, false, true, false, 0},
    {DNN_PLAIN, 0, NOTE(TENSOR_CORE), 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, true, true, false, 0},
    {DNN_PLAIN, 0, NOTE(TENSOR_CORE), 0, true, true, true, 0},
    {DNN_PLAIN, 0, NOTE(TENSOR_CORE), 0, true, true, false, (size_t)8 << 30},
};
enum { ENGINES = sizeof engines / sizeof *engines };

/* Where several operations are done at once f16 has an engine for all but the narrowest inputs, and bf16, for
 * a convolution with statistics alone, one that is compiled first. */
static bool fits_several(const engine *e, const dnn_graph *g)
{
    const dnn_conv *c = &g->conv;
    const bool strided = c->stride[0] > 1 || c->stride[1] > 1, norm_alone = g->steps == 7;
    if (!g->name || c->tensor[DNN_X].dim[1] <= 8 || c->groups > 1) return false;
    if (c->pass == DNN_DATA && strided && !norm_alone) return false;
    if (c->tensor[DNN_W].type == CUDNN_DATA_HALF) return e == engines;
    return c->tensor[DNN_W].type == CUDNN_DATA_BFLOAT16 && g->steps == 2 && e->behaviours != 0;
}

static bool fits(const engine *e, const dnn_graph *g)
{
    const dnn_conv *c = &g->conv;
    bool f32 = c->tensor[0].type == CUDNN_DATA_FLOAT,
         mixed = c->tensor[0].type != c->tensor[1].type || c->tensor[0].type != c->tensor[2].type;
    if (g->steps > 1) return fits_several(e, g);
    if (mixed) return e->behaviours != 0;
    if (e->flavour == DNN_WINOGRAD)
        for (int d = 0; d < 2; d++)
            if (c->tensor[1].dim[2 + d] != 3 || c->stride[d] != 1 || c->dilation[d] != 1 || c->groups > 1)
                return false;
    return f32 ? e->f32 : e->half;
}

static int list_bits(uint32_t bits, int *list)
{
    int n = 0;
    for (int i = 0; i < 32; i++)
        if (bits >> i & 1) list[n++] = i;
    return n;
}

static dnn_object *knob_info(int type, int64_t most)
{
    const int64_t zero = 0, one = 1;
    dnn_object *o = dnn_new(KNOB_INFO);
    dnn_put(o, CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    dnn_put(o, CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, INT, 1, &zero);
    dnn_put(o, CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, INT, 1, &most);
    dnn_put(o, CUDNN_ATTR_KNOB_INFO_STRIDE, INT, 1, &one);
    o->finalized = true;
    return o;
}

static cudnnStatus_t finalize_engine(dnn_object *o)
{
    int64_t index = dnn_int(o, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
    dnn_graph g;
    dnn_graph_describe(dnn_child(o, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), &g);
    if (index < 0 || index >= ENGINES || !fits(&engines[index], &g))
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld does not do this", (long long)index);
    const engine *e = &engines[index];
    int list[32], n = list_bits(g.conv.tensor[DNN_W].type == CUDNN_DATA_FLOAT ? e->notes : e->notes16, list);
    dnn_put(o, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, n, list);
    n = list_bits(e->behaviours, list);
    dnn_put(o, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, n, list);
    dnn_object *const knobs[2] = {knob_info(CUDNN_KNOB_TYPE_TILE_SIZE, KNOB_MOST_TILE),
                                  knob_info(CUDNN_KNOB_TYPE_SPLIT_K_SLC, KNOB_MOST_SPLIT)};
    dnn_put(o, CUDNN_ATTR_ENGINE_KNOB_INFO, CHILD, 2, knobs);
    return CUDNN_STATUS_SUCCESS;
}

static dnn_object *knob_choice(int type, int64_t value)
{
    dnn_object *o = dnn_new(KNOB);
    dnn_put(o, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    dnn_put(o, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, INT, 1, &value);
    o->finalized = true;
    return o;
}

static dnn_object *proposal(dnn_object *graph, int64_t index, int64_t tile, int64_t split)
{
    dnn_object *e = dnn_new(ENGINE), *o = dnn_new(CONFIG);
    graph->references++;
    dnn_put(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CHILD, 1, &graph);
    dnn_put(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, INT, 1, &index);
    e->finalized = finalize_engine(e) == CUDNN_STATUS_SUCCESS;
    dnn_object *const knobs[2] = {knob_choice(CUDNN_KNOB_TYPE_TILE_SIZE, tile),
                                  knob_choice(CUDNN_KNOB_TYPE_SPLIT_K_SLC, split)};
    dnn_put(o, CUDNN_ATTR_ENGINECFG_ENGINE, CHILD, 1, &e);
    dnn_put(o, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CHILD, 2, knobs);
    o->finalized = true;
    return o;
}

/* Mode B proposes most, and first what a careless program would regret; last are the tiles of the plain
 * engine, among them the fastest of all (dnn_conv_seconds). */
static cudnnStatus_t finalize_heuristic(dnn_object *o)
{
    static const int64_t all[] = {6, 7, 5, 4, 2, 1, 3, 0, 0};
    enum { LISTED = sizeof all / sizeof *all };
    int64_t mode = dnn_int(o, CUDNN_ATTR_ENGINEHEUR_MODE, 0), count = 0;
    dnn_object *graph = dnn_child(o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0), *result[32];
    dnn_graph g;
    dnn_graph_describe(graph, &g);
    for (size_t i = mode == CUDNN_HEUR_MODE_B ? 0 : 5; i < LISTED; i++)
        if (fits(&engines[all[i]], &g)) result[count++] = proposal(graph, all[i], 1, i == 7);
    for (int i = 0; mode == CUDNN_HEUR_MODE_B && i < (KNOB_MOST_TILE + 1) * (KNOB_MOST_SPLIT + 1); i++)
        if (fits(&engines[0], &g))
            result[count++] =
                proposal(graph, 0, i / (KNOB_MOST_SPLIT + 1), KNOB_MOST_SPLIT - i % (KNOB_MOST_SPLIT + 1));
    dnn_put(o, CUDNN_ATTR_ENGINEHEUR_RESULTS, CHILD, count, result);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the other kinds ---- */

static cudnnStatus_t finalize_tensor(const dnn_object *o)
{
    int64_t dims = dnn_find(o, CUDNN_ATTR_TENSOR_DIMENSIONS)->count,
            align = dnn_int(o, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (dims != dnn_find(o, CUDNN_ATTR_TENSOR_STRIDES)->count)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "_nbDims != _nbStrides");
    if (dims != 4 || align < 1 || align & (align - 1)) {
        standin_defect("a tensor of %lld dimensions, alignment %lld", (long long)dims, (long long)align);
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the stand-in knows tensors of 4 dimensions");
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_operation(const dnn_object *o)
{
    dnn_conv c;
    dnn_conv_describe(o, &c);
    const char *wrong = dnn_conv_wrong(&c);
    return wrong ? dnn_fail(CUDNN_STATUS_BAD_PARAM, "%s", wrong) : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_graph(dnn_object *o)
{
    const int64_t n = ENGINES;
    dnn_graph g;
    const char *wrong = dnn_graph_describe(o, &g);
    if (wrong) {
        standin_defect("a graph of operations: %s", wrong);
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "%s", wrong);
    }
    dnn_put(o, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, INT, 1, &n);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_config(const dnn_object *o)
{
    const dnn_value *knobs = dnn_find(o, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    for (int i = 0; knobs && i < knobs->count; i++) {
        const dnn_object *k = dnn_child(o, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        int64_t type = dnn_int(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 0),
                value = dnn_int(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0);
        int64_t most = type == CUDNN_KNOB_TYPE_TILE_SIZE     ? KNOB_MOST_TILE
                       : type == CUDNN_KNOB_TYPE_SPLIT_K_SLC ? KNOB_MOST_SPLIT
                                                             : -1;
        if (value < 0 || value > most)
            return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "knob %lld:%lld is not one of this engine",
                            (long long)type, (long long)value);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_plan(dnn_object *o)
{
    const dnn_object *config = dnn_child(o, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const dnn_object *its = dnn_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    const dnn_value *knobs = dnn_find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    const engine *e = &engines[dnn_int(its, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0)];
    if (e->refuses) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "no kernel for this engine");
    dnn_graph *g = o->graph = malloc(sizeof *g);
    if (!g) abort();
    dnn_graph_describe(dnn_child(its, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), g);
    g->conv.flavour = e->flavour;
    g->conv.tile = 1;
    for (int i = 0; knobs && i < knobs->count; i++) {
        const dnn_object *k = dnn_child(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        const int64_t type = dnn_int(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 0),
                      value = dnn_int(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0);
        if (type == CUDNN_KNOB_TYPE_SPLIT_K_SLC) g->conv.split = value;
        if (type == CUDNN_KNOB_TYPE_TILE_SIZE) g->conv.tile = value;
    }
    g->conv.backwards = g->conv.split & 1;
    int64_t bytes = (int64_t)(1024 + e->workspace + (size_t)g->conv.tensor[DNN_W].dim[0] * 64);
    g->workspace = (size_t)bytes;
    dnn_put(o, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, INT, 1, &bytes);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_pack(const dnn_object *o)
{
    bool same = dnn_find(o, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count ==
                dnn_find(o, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count;
    return same ? CUDNN_STATUS_SUCCESS : dnn_fail(CUDNN_STATUS_BAD_PARAM, "ptrs_count != uids_count");
}

/* What it needs is there, and finalized. */
static cudnnStatus_t complete(const dnn_object *o)
{
    for (int i = 0; i < RULES; i++) {
        const rule *r = &rules[i];
        if (r->descriptor != o->type || r->use == TOLD) continue;
        const dnn_value *v = dnn_find(o, r->name);
        if (!v && r->use == NEEDED)
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d is not set", (int)r->name);
        for (int k = 0; v && v->type == CHILD && k < v->count; k++) {
            const dnn_object *child = dnn_child(o, r->name, k);
            if (r->of && child->type != r->of)
                return dnn_fail(CUDNN_STATUS_BAD_PARAM, "attribute %d holds another kind of descriptor",
                                (int)r->name);
            if (!child->finalized)
                return dnn_fail(CUDNN_STATUS_BAD_PARAM,
                                "attribute %d holds a descriptor that is not finalized", (int)r->name);
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_finalize(dnn_object *o)
{
    cudnnStatus_t rc = complete(o);
    if (rc != CUDNN_STATUS_SUCCESS) return rc;
    switch ((int)o->type) {
    case TENSOR: return finalize_tensor(o);
    case FORWARD:
    case DATA:
    case FILTER: return finalize_operation(o);
    case GRAPH: return finalize_graph(o);
    case HEURISTIC: return finalize_heuristic(o);
    case ENGINE: return finalize_engine(o);
    case CONFIG: return finalize_config(o);
    case PLAN: return finalize_plan(o);
    case PACK: return finalize_pack(o);
    default: return CUDNN_STATUS_SUCCESS;
    }
}
