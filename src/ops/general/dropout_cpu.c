/* dropout_cpu.c - the twin of dropout.c. */
#include "base/rng.h"
#include "ops/common/twin.h"
#include "ops/general/dropout.h"

static void dropout_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const uint32_t *clock = n->in[1]->data;
    const uint64_t seed = clock[0] | (uint64_t)clock[1] << 32;
    const uint64_t stream =
        af_dropout_stream(n->attr.dropout.stream, clock[2] | (uint64_t)clock[3] << 32);
    const double p = clock[3] >> 31 ? 0 : n->attr.dropout.p; /* evaluating */
    const int64_t count = af_live_count(n->out[0]);
    for (int64_t i = 0; i < count; i++) {
        const bool kept = p == 0 || af_rng_f32(seed, stream, (uint64_t)i) >= (float)p;
        af_st(n->out[0], i, kept ? af_ld(n->in[0], i) / (1 - p) : 0);
    }
}

const af_cpu_op af_cpu_dropout = {dropout_run, NULL};
