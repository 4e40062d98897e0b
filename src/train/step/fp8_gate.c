/* fp8_gate.c - see fp8_gate.h. */
#include "train/step/fp8_gate.h"
#include "graph/graph_access.h"
#include "ops/linear/fp8_error.h"
#include "train/step/memory_fit.h"

#include <math.h>

/* The group whose first piece this is. With dropout in DoRA one weight is in several products: the
 * largest error counts. */
static void note(void *user, const af_tensor *weight, bool backward, double error)
{
    af_step_graph *s = user;
    for (int i = 0; i < s->fp8.count; i++) {
        af_fp8_group *g = &s->fp8.group[i];
        const af_layer_spec *l = &s->model->spec->layer[g->layer];
        for (int k = 0; k < l->pieces[g->group]; k++) {
            const int w = s->model->spec->module[l->module[g->group][k]].weight;
            if (s->leaves.tensor[w] != weight)
                continue;
            g->measured = true;
            if (!(error <= g->error[backward])) /* NaN, too */
                g->error[backward] = error;
            return;
        }
    }
}

/* The gradients of a run that must leave no trace. */
static af_status forget_gradients(af_step_graph *s, af_error *err)
{
    af_tensor *g = af_graph_flat_gradients(s->graph);
    const uint64_t bytes = af_tensor_bytes(g);
    void *zeros = af_calloc(AF_MAX(bytes, (uint64_t)1), 1);
    if (!zeros)
        return af_fail_nomem(err, "gradients", bytes);
    const af_status st = af_tensor_write(s->graph, g, zeros, bytes, err);
    free(zeros);
    return st;
}

static af_status run_batch(af_step_graph *s, af_stream *stream, af_error *err)
{
    af_status st = AF_OK;
    const af_batch *b;
    const uint64_t clock = af_graph_clock(s->graph);
    AF_TRY(af_stream_get(stream, 0, &b, err));
    const float scale = 1.0f / (float)AF_MAX(b->supervised, INT64_C(1));
    AF_TRY(af_step_graph_upload(s, b, scale, err));
    if (s->row_weight) { /* the weights that a loss gives its rows are not known yet */
        const int64_t all = af_tensor_count(s->row_weight);
        for (int64_t i = 0; i < all; i++)
            s->row_weights[i] = scale;
        AF_TRY(af_step_graph_upload_weights(s, b->rows, err));
    }
    AF_TRY(af_fp8_measure(s->graph, note, s, err));
    AF_TRY(forget_gradients(s, err));
    af_graph_set_clock(s->graph, clock);
done:
    return st;
}

af_status af_fp8_gate(af_step_graph *s, af_stream *stream, af_error *err)
{
    af_status st = AF_OK;
    af_fp8_plan *p = &s->fp8;
    if (af_fp8_plan_in(p, AF_FP8_USED) == 0)
        return AF_OK;
    AF_TRY(run_batch(s, stream, err));
    for (int i = 0; i < p->count; i++) {
        af_fp8_group *g = &p->group[i];
        if (g->state == AF_FP8_USED && !g->measured)
            g->state = AF_FP8_TRAINED;
        for (int pass = 0; pass < 2; pass++)
            if (g->measured && !(g->error[pass] <= AF_FP8_ERROR_MAX))
                g->state = AF_FP8_BROKE;
    }
    p->checked = true;
    if (af_fp8_plan_in(p, AF_FP8_BROKE)) {
        AF_TRY(af_memory_plan(s, s->memory_mode, err));
        st = af_step_graph_load(s, err);
    }
done:
    return st;
}
