/* free_average.c - schedule-free optimizers: the average in the place of the parameters, and back.
 *
 * Parameters hold y = (1 - b1) z + b1 x; x = y + (1 - 1/b1) (z - y). What learns is kept as it is
 * and put back, so that looking at the average changes no bit of the training. */
#include "base/base.h"
#include "graph/graph_access.h"
#include "ops/optim/optim_in.h"
#include "tensor/dtype.h"

/* x of the parameters [from, from + n), from z and y in place. */
static void to_average(float *y, const float *z, int64_t n, double b1)
{
    const float share = (float)(1 - 1 / b1);
    for (int64_t i = 0; i < n; i++)
        y[i] += share * (z[i] - y[i]);
}

static bool is_z(const af_state_part *p)
{
    const size_t n = strlen(p->name);
    return p->t && n > 2 && strcmp(p->name + n - 2, ".z") == 0;
}

/* values: y of all parameters; becomes x. */
static af_status find_average(af_graph *g, float *values, af_error *err)
{
    af_status st = AF_OK;
    double sums[3];
    float *z = NULL;
    AF_TRY(af_tensor_read(g, g->free_sums, sums, sizeof sums, err));
    if (sums[2] == 0) /* nothing was learnt yet */
        return AF_OK;
    for (const af_state_part *p = af_graph_states(g); p; p = p->next) {
        const float *view = is_z(p) ? af_tensor_host_view(p->t) : NULL;
        const uint64_t bytes = is_z(p) ? af_tensor_bytes(p->t) : 0;
        if (!bytes)
            continue;
        if (!view) { /* on a GPU */
            free(z);
            z = malloc(bytes);
            if (!z)
                AF_TRY(af_fail_nomem(err, "the average of the weights", bytes));
            AF_TRY(af_tensor_read(g, p->t, z, bytes, err));
        }
        to_average(values + p->from, view ? view : z, p->full, g->optimizer.beta1);
    }
done:
    free(z);
    return st;
}

static af_status show(af_graph *g, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t bytes = af_tensor_bytes(g->params_flat);
    float *taken = malloc(bytes), *values = malloc(bytes);
    if (!taken || !values)
        AF_TRY(af_fail_nomem(err, "the average of the weights", 2 * bytes));
    AF_TRY(af_tensor_read(g, g->params_flat, taken, bytes, err));
    memcpy(values, taken, bytes);
    AF_TRY(find_average(g, values, err));
    AF_TRY(af_tensor_write(g, g->params_flat, values, bytes, err));
    g->taken = taken;
    taken = NULL;
done:
    free(taken);
    free(values);
    return st;
}

af_status af_graph_average(af_graph *g, bool on, af_error *err)
{
    AF_NEED(err, g);
    if (!g->prepared)
        return af_fail(err, AF_EUSAGE, "af_graph_average: the graph is not prepared");
    if (!g->free_sums || on == (g->taken != NULL))
        return AF_OK;
    if (g->params_flat->dtype != AF_DTYPE_F32)
        return af_fail(err, AF_EUNSUPPORTED, "the average is of f32 parameters, not of %s",
                       af_dtype_name(g->params_flat->dtype));
    if (on)
        return show(g, err);
    const af_status st =
        af_tensor_write(g, g->params_flat, g->taken, af_tensor_bytes(g->params_flat), err);
    if (st == AF_OK) {
        free(g->taken);
        g->taken = NULL;
    }
    return st;
}

bool af_graph_averages(const af_graph *g) { return g->free_sums != NULL; }
const float *af_graph_taken(const af_graph *g) { return g->taken; }
