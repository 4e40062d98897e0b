/* cuda_rows.c - few live rows. A graph that generates is planned for a chunk of the prompt, but
 * most of its runs bring one token per sequence. Its nodes are prepared again for small numbers of
 * rows, by the same launchers on the same memory, and a run takes the smallest that holds its live
 * rows.
 */
#include "backend/cuda/cuda_graph.h"

static const int64_t level_rows[AF_ROW_LEVELS] = {0, 256, 128, 64, 32, 8, 1}; /* level 0: all */

enum { SMALL_ROWS = 64 }; /* a graph of so many is not worth more levels */

/* Rows a level computes. */
static int64_t rows_of_level(const af_graph *g, int level)
{
    return level == 0 ? g->rows : AF_MIN(g->rows, level_rows[level]);
}

int af_cuda_levels(const af_graph *g)
{
    bool generates = false;
    for (int i = 0; i < g->n_nodes; i++)
        generates |= g->nodes[i]->op == AF_OP_ATTENTION_CACHED;
    return generates && !g->differentiated && g->rows > SMALL_ROWS ? AF_ROW_LEVELS : 1;
}

void af_cuda_set_level(af_graph *g, int level)
{
    af_cuda_graph *cg = g->backend;
    const int64_t rows = rows_of_level(g, level), picks = AF_MIN(rows, g->picks);
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->live)
            g->tensors[i]->dim[0] = g->tensors[i]->live == &g->live_picks ? picks : rows;
    cg->level = level;
}

/* A decoder's prompts take all rows, its single tokens those of a full batch: the kernels, and with
 * them a row's bits, do not depend on how many sequences there are. */
int af_cuda_level_of(const af_graph *g)
{
    const af_cuda_graph *cg = g->backend;
    const int64_t rows = !g->picks ? g->live_rows : AF_MAX(g->live_rows, g->least_rows);
    int level = 0;
    while ((!g->picks || g->one_token) && level + 1 < cg->levels && rows <= level_rows[level + 1])
        level++;
    return level;
}
