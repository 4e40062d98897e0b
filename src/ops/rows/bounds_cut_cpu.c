/* bounds_cut_cpu.c - the twin of bounds_cut.c. */
#include "backend/cpu/cpu.h"

static void bounds_cut_run(const af_node *n, af_cpu *cpu)
{
    const int32_t *from = n->in[0]->data;
    int32_t *to = n->out[0]->data;
    const int64_t S = n->in[0]->dim[0] - 1, chunk = n->attr.cut.chunk;
    int64_t at = 0;
    (void)cpu;
    for (int64_t s = 0; s < S; s++)
        for (int64_t r = from[s]; r < from[s + 1]; r += chunk) {
            assert(at < n->out[0]->dim[0]);
            to[at++] = (int32_t)r;
        }
    while (at < n->out[0]->dim[0])
        to[at++] = from[S];
}

const af_cpu_op af_cpu_bounds_cut = {bounds_cut_run, NULL};
