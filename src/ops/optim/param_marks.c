/* param_marks.c - what an optimizer should know of a parameter: see optimizer.h. */
#include "graph/node.h"
#include "ops/optim/optimizer.h"

void af_param_parts(af_graph *g, af_tensor *param, int n, const int64_t (*dim)[2])
{
    if (af_graph_failed(g))
        return;
    int64_t(*part)[2] = af_arena_take(&g->mem, (uint64_t)n * sizeof *part);
    if (!part) {
        af_fail_nomem(&g->err, "the parts of a parameter", (uint64_t)n * sizeof *part);
        return;
    }
    memcpy(part, dim, (size_t)n * sizeof *part);
    param->part = (const int64_t(*)[2])part;
    param->parts = n;
}

void af_param_rows(af_graph *g, af_tensor *param, int64_t from, int64_t to)
{
    const int n = param->rows_count;
    if (af_graph_failed(g))
        return;
    int64_t(*rows)[2] = af_arena_take(&g->mem, (uint64_t)(n + 1) * sizeof *rows);
    if (!rows) {
        af_fail_nomem(&g->err, "the rows of a parameter", (uint64_t)n * sizeof *rows);
        return;
    }
    if (n)
        memcpy(rows, param->rows, (size_t)n * sizeof *rows);
    rows[n][0] = from;
    rows[n][1] = to;
    param->rows = (const int64_t(*)[2])rows;
    param->rows_count = n + 1;
}

void af_param_whole_moments(af_tensor *param) { param->whole_moments = true; }
void af_param_moment_block(af_tensor *param, int64_t block)
{
    assert(block == 0 || af_count(param) % block == 0);
    param->moment_block = block;
}
void af_param_outside(af_tensor *param) { param->outside = true; }
