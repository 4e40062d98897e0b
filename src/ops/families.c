/* families.c - the families of ops that do something for a graph as a whole, by backend. */
#include "ops/attention/attention_choice.h"
#include "ops/common/cpu_packs.h"
#include "ops/glu/glu_adapter.h"
#include "ops/linear/linear_cuda.h"
#include "ops/moe/moe_fuse.h"
#include "ops/norm/norm_residual.h"

const af_cpu_family *const af_cpu_families[AF_CPU_FAMILIES] = {&af_cpu_packs_family};

const af_cuda_family *const af_cuda_families[AF_CUDA_FAMILIES] = {
    &af_cuda_norm_family, &af_cuda_linear_family, &af_cuda_glu_family, &af_cuda_attention_family,
    &af_cuda_experts_family};
