/* row_adapter_fast.c - row_adapter.c through the GEMMs: one per part for neighbouring rows of one
 * adapter. Of either kind (af_graph_set_one_token) a row's sums are the same next to any others. */
#include "ops/common/cpu_fast.h"
#include "ops/linear/linear_in.h"

/* Rows [*r, the result) that have one adapter; *r is moved to the first that has any. */
static int64_t rows_alike(const int32_t *which, int64_t rows, int64_t *r)
{
    while (*r < rows && which[*r] < 0)
        (*r)++;
    int64_t end = *r;
    while (end < rows && which[end] == which[*r])
        end++;
    return end;
}

static void run_rows(const af_node *n, af_cpu *cpu, bool down)
{
    const af_tensor *x = n->in[!down], *w = n->in[down ? 2 : 3];
    const int32_t *which = n->in[down ? 1 : 2]->data, *rank = n->in[4]->data;
    const int64_t rows = af_live(x), I = af_last(n->in[0]), PR = af_last(down ? n->out[0] : x);
    const int P = n->attr.linear.parts;
    for (int64_t r = 0, end; r < rows; r = end) {
        end = rows_alike(which, rows, &r);
        for (int p = 0; r < end && p < P; p++) {
            const af_adapter_part *q = &n->attr.linear.part[p];
            const int64_t c = which[r], k = rank[c * P + p],
                          at = down ? (c * PR + q->rank_from) * I
                                    : c * af_last(w) + af_linear_part_at(n, p);
            if (k == 0)
                continue;
            af_operand b = {.ld = down ? I : q->rank, .dtype = AF_DTYPE_F32, .trans = true};
            b.data = (const float *)w->data + at;
            af_gemm g = af_fast_gemm(
                end - r, down ? k : q->out_rows, down ? I : k,
                af_fast_operand(x, down ? r * I : r * PR + q->rank_from, false), b, n->out[0],
                r * af_last(n->out[0]) + (down ? q->rank_from : q->out_from));
            g.skinny = n->in[0]->graph->one_token;
            g.exact = true;
            g.add = !down;
            g.alpha = down ? ((const float *)n->in[3]->data)[c * P + p] : 1.0f;
            af_fast_gemm_run(&g, cpu);
        }
    }
}

static void down_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, true); }

static void up_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *y = n->in[0];
    if (n->out[0]->data != y->data)
        memcpy(n->out[0]->data, y->data,
               (size_t)(af_live(y) * af_last(y)) * (size_t)af_dtype_get(y->dtype)->bytes);
    run_rows(n, cpu, false);
}

static const af_cpu_op down_op = {down_run, af_fast_gemm_work}, up_op = {up_run, af_fast_gemm_work};

const af_cpu_op *af_row_down_fast(const af_node *n)
{
    return af_fast_type(n->in[0]) ? &down_op : NULL;
}
const af_cpu_op *af_row_up_fast(const af_node *n) { return af_fast_type(n->in[0]) ? &up_op : NULL; }
