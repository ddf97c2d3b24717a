/* The backend of a GPU that is only described, where the CUDA half is not there to plan for it: every tensor
 * lies as on a GPU (nhwc.h), so memory is known to the byte but for the workspaces, which only the library's
 * own planner knows. Nothing can be run. */
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
#include "ops/nhwc.h"

static int refuse(const kolo_kernel *kernel, void *const *args, void *workspace, const kolo_step *step,
                  int slot)
{
    (void)args, (void)workspace, (void)step, (void)slot;
    return kolo_fail(KOLO_EINTERNAL,
                     "%s: this GPU is only described (gpu=); it can be planned for, not computed on",
                     kernel->key);
}

static int described_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    (void)r;
    k->run = refuse;
    snprintf(k->name, sizeof k->name, "chosen on the GPU");
    return 0;
}

static const kolo_op_row row = {kolo_nhwc_layout, described_prepare};
static const kolo_op_row *const rows[KOLO_OP_COUNT] = {
#define OP(name, ...) [KOLO_OP_##name] = &row,
#include "graph/ops.def"
#undef OP
};

static const char *version(void) { return "none"; }
static const char *machine(kolo_backend *b) { return b->gpu->name; }

static int open_described(kolo_backend *b)
{
    return b->gpu ? 0 : kolo_fail(KOLO_EINTERNAL, "no GPU is described");
}

static void close_described(kolo_backend *b) { (void)b; }

static size_t memory(kolo_backend *b, const char **source)
{
    if (source) *source = b->gpu->name;
    return b->gpu->memory;
}

static const kolo_device_table device = {.memory = memory};

const kolo_backend_type kolo_described_backend = {
    .name = "cuda",
    .version = version,
    .rows = rows,
    .open = open_described,
    .machine = machine,
    .close = close_described,
    .blocks = kolo_nhwc_blocks,
    .to_canonical = kolo_nhwc_to_canonical,
    .from_canonical = kolo_nhwc_from_canonical,
    .device = &device,
};
