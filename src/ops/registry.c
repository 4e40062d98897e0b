/* registry.c - the tables of ops, made from graph/ops.def: contracts (defined in <family>.c), CPU
 * twins (<family>_cpu.c), fast CPU versions (<family>_fast.c), CUDA launchers (<family>_cuda.c). */
#include "backend/cuda/cuda.h"
#include "ops/common/cpu_fast.h"

#define AF_OP_DEF(NAME, name) extern const af_op_info af_op_##name;
#include "graph/ops.def"
const af_op_info *const af_ops[AF_OP_COUNT] = {
#define AF_OP_DEF(NAME, name) [AF_OP_##NAME] = &af_op_##name,
#include "graph/ops.def"
};

#define AF_OP_DEF(NAME, name) extern const af_cpu_op af_cpu_##name;
#define AF_OP_VIEW(NAME, name)
#include "graph/ops.def"
const af_cpu_op *const af_cpu_ops[AF_OP_COUNT] = {
#define AF_OP_DEF(NAME, name) [AF_OP_##NAME] = &af_cpu_##name,
#define AF_OP_VIEW(NAME, name)
#include "graph/ops.def"
};

#define AF_OP_DEF(NAME, name) extern const af_cuda_op af_cuda_##name;
#define AF_OP_VIEW(NAME, name)
#include "graph/ops.def"
const af_cuda_op *const af_cuda_ops[AF_OP_COUNT] = {
#define AF_OP_DEF(NAME, name) [AF_OP_##NAME] = &af_cuda_##name,
#define AF_OP_VIEW(NAME, name)
#include "graph/ops.def"
};

const af_cpu_op *af_cpu_fast(const af_node *n)
{
    static af_fast_chooser *const choose[AF_OP_COUNT] = {
#define AF_OP_DEF(NAME, name)
#define AF_OP_FAST(NAME, name) [AF_OP_##NAME] = af_##name##_fast,
#include "graph/ops.def"
    };
    return choose[n->op] ? choose[n->op](n) : NULL;
}
