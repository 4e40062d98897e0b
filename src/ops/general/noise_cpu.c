/* noise_cpu.c - the twin of noise.c. */
#include "base/rng.h"
#include "ops/common/twin.h"
#include "ops/general/dropout.h"

#include <math.h>

static void noise_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const uint32_t *clock = n->in[2]->data;
    const int32_t *bounds = n->in[1]->data;
    const uint64_t seed = clock[0] | (uint64_t)clock[1] << 32;
    const uint64_t stream =
        af_dropout_stream(n->attr.noise.stream, clock[2] | (uint64_t)clock[3] << 32);
    const double alpha = clock[3] >> 31 ? 0 : n->attr.noise.alpha; /* evaluating */
    const int64_t N = af_live_dim(n->out[0]), D = n->out[0]->dim[1], S = n->in[1]->dim[0] - 1;
    for (int64_t r = 0, s = 0; r < N; r++) {
        while (s < S && bounds[s + 1] <= r)
            s++;
        const int64_t L = s < S ? bounds[s + 1] - bounds[s] : 0; /* 0: after the last sequence */
        const float size = L ? (float)(alpha / sqrt((double)L * (double)D)) : 0.0f;
        for (int64_t i = r * D; i < r * D + D; i++) {
            const float u = af_rng_f32(seed, stream, (uint64_t)i);
            af_st(n->out[0], i, af_ld(n->in[0], i) + (double)((2.0f * u - 1.0f) * size));
        }
    }
}

const af_cpu_op af_cpu_noise = {noise_run, NULL};
