/* cpu_fast.c - picks the instruction set, and says which nodes have a fast version. */
#define _GNU_SOURCE
#include "ops/common/cpu_fast.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <stdatomic.h>

bool af_cpu_has_bf16(void)
{
#if defined(__aarch64__) && defined(AT_HWCAP2)
    return getauxval(AT_HWCAP2) >> 14 & 1; /* HWCAP2_BF16 */
#else
    return false;
#endif
}

bool af_cpu_has_amx(void)
{
#if defined(__x86_64__)
    enum { AVX512_BF16 = 1 << 5, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE))
        return false;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & AVX512_BF16))
        return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0; /* the kernel grants it per process */
#else
    return false;
#endif
}

#if defined(__x86_64__)
extern const af_fast af_fast_table_sse2, af_fast_table_avx2, af_fast_table_avx512,
    af_fast_table_amx;
static const af_fast *const tables[] = {&af_fast_table_amx, &af_fast_table_avx512,
                                        &af_fast_table_avx2, &af_fast_table_sse2};
#elif defined(__aarch64__)
extern const af_fast af_fast_table_neon, af_fast_table_neonbf16;
static const af_fast *const tables[] = {&af_fast_table_neonbf16, &af_fast_table_neon};
#else
extern const af_fast af_fast_table_portable;
static const af_fast *const tables[] = {&af_fast_table_portable};
#endif

/* What the machine can do does not change: found once, and the same whoever finds it. */
const af_fast *af_fast_get(void)
{
    static _Atomic(const af_fast *) found;
    const af_fast *f = atomic_load_explicit(&found, memory_order_relaxed);
    for (size_t i = 0; !f && i < AF_LEN(tables); i++)
        if (i + 1 == AF_LEN(tables) || tables[i]->usable())
            f = tables[i];
    atomic_store_explicit(&found, f, memory_order_relaxed);
    return f;
}

const af_fast *af_fast_at(int i)
{
    for (size_t t = 0; t < AF_LEN(tables); t++)
        if ((t + 1 == AF_LEN(tables) || tables[t]->usable()) && i-- == 0)
            return tables[t];
    return NULL;
}

const char *af_cpu_isa(void) { return af_fast_get()->name; }

const af_cpu_op *af_cpu_fast(const af_node *n)
{
    static af_fast_chooser *const choose[AF_OP_COUNT] = {
        [AF_OP_LINEAR] = af_linear_fast,
        [AF_OP_LINEAR_DX] = af_linear_dx_fast,
        [AF_OP_LINEAR_DW] = af_linear_dw_fast,
        [AF_OP_ADAPTER_DOWN] = af_adapter_down_fast,
        [AF_OP_ADAPTER_G] = af_adapter_g_fast,
        [AF_OP_ADAPTER_DA] = af_adapter_da_fast,
        [AF_OP_ADAPTER_DB] = af_adapter_db_fast,
        [AF_OP_LINEAR_DBIAS] = af_linear_dbias_fast,
        [AF_OP_MATMUL] = af_matmul_fast,
        [AF_OP_RMSNORM] = af_rmsnorm_fast,
        [AF_OP_RMSNORM_ADD] = af_rmsnorm_add_fast,
        [AF_OP_RMSNORM_BWD] = af_rmsnorm_bwd_fast,
        [AF_OP_RMSNORM_DW] = af_rmsnorm_dw_fast,
        [AF_OP_GLU] = af_glu_fast,
        [AF_OP_GLU_BWD] = af_glu_bwd_fast,
        [AF_OP_ROPE] = af_rope_fast,
        [AF_OP_ROPE_BWD] = af_rope_bwd_fast,
        [AF_OP_EMBEDDING] = af_embedding_fast,
        [AF_OP_BINARY] = af_binary_fast,
        [AF_OP_ACCUM] = af_accum_fast,
        [AF_OP_DROPOUT] = af_dropout_fast,
        [AF_OP_DORA_NORM] = af_dora_norm_fast,
        [AF_OP_ATTENTION] = af_attention_fast,
        [AF_OP_ATTENTION_BWD] = af_attention_bwd_fast,
        [AF_OP_ATTENTION_CACHED] = af_attention_cached_fast,
        [AF_OP_HEAD_LOSS] = af_head_loss_fast,
        [AF_OP_GRAD_NORM] = af_grad_norm_fast,
        [AF_OP_ADAM] = af_adam_fast,
        [AF_OP_ADAM_8BIT] = af_adam_8bit_fast,
        [AF_OP_LION] = af_lion_fast,
        [AF_OP_ADAFACTOR] = af_adafactor_fast,
        [AF_OP_SGD] = af_sgd_fast,
    };
    return choose[n->op] ? choose[n->op](n) : NULL;
}
