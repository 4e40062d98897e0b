/* graph_access.c - the graph as model, train and bench see it; see graph_access.h. */
#include "graph/graph_access.h"
#include "graph/backend.h"
#include "graph/graph_test.h"

int af_graph_block(const af_graph *g) { return g->block; }

af_role af_tensor_role(const af_tensor *t) { return t->role; }
const int64_t *af_tensor_dims(const af_tensor *t) { return t->dim; }
int64_t af_tensor_last_dim(const af_tensor *t) { return af_last(t); }

int64_t af_tensor_live_count(const af_tensor *t)
{
    return t->ndim == 1 ? af_live(t) : af_live(t) * af_last(t);
}

bool af_tensor_is_stored(const af_tensor *t) { return !t->base && t->data; }

void *af_tensor_host_view(const af_tensor *t) { return t->cut ? NULL : af_tensor_piece_view(t); }

const int64_t *af_tensor_cuts(const af_tensor *t) { return t->cut; }

void af_tensor_piece(const af_tensor *t, uint64_t *from, uint64_t *to)
{
    const int rank = t->graph->shard.rank;
    *from = t->cut ? (uint64_t)t->cut[rank] : 0;
    *to = t->cut ? (uint64_t)t->cut[rank + 1] : af_tensor_bytes(t);
}

void *af_tensor_piece_view(const af_tensor *t)
{
    return t->graph->device && t->graph->device->ops->host ? t->data : NULL;
}

af_tensor *af_graph_next(const af_graph *g, af_role role, const af_tensor *after)
{
    for (int i = after ? after->id + 1 : 0; i < g->n_tensors; i++)
        if (g->tensors[i]->role == role)
            return g->tensors[i];
    return NULL;
}

void af_weight_set_quant(af_tensor *w, const af_quant *q)
{
    if (!w->graph || af_graph_failed(w->graph))
        return;
    if (w->role != AF_ROLE_WEIGHT || w->graph->planned) {
        af_graph_bad(w->graph, "set_quant: tensor '%s' %s", w->name,
                     w->graph->planned ? "is planned already" : "is not a weight");
        return;
    }
    w->quant = af_arena_take(&w->graph->mem, sizeof *w->quant);
    if (w->quant)
        *w->quant = *q;
    else
        (void)af_fail_nomem(&w->graph->err, "scales of a 4-bit tensor", sizeof *w->quant);
}

af_quant *af_weight_quant(const af_tensor *w) { return w->quant; }
bool af_weight_is_bound(const af_tensor *w) { return w->bound != NULL; }
void af_weight_set_mapped(af_tensor *w, bool mapped) { w->mapped = mapped && w->bound; }

bool af_graph_can_write_nf4(const af_graph *g) { return g->device->ops->write_nf4 != NULL; }

af_status af_weight_write_nf4(af_graph *g, af_tensor *w, const uint16_t *rows, af_error *err)
{
    return g->device->ops->write_nf4(g->device, g, w, rows, err);
}

bool af_graph_can_write_noise(const af_graph *g) { return g->device->ops->write_noise != NULL; }

af_status af_weight_write_noise(af_graph *g, af_tensor *w, const af_random_fill *n, af_error *err)
{
    return g->device->ops->write_noise(g->device, g, w, n, err);
}

void af_graph_set_test(af_graph *g, const af_graph_test *t) { g->test = t; }
void af_graph_set_same_bits(af_graph *g) { g->same_bits = true; }
uint64_t af_graph_shared_bytes(const af_graph *g) { return g->shared_bytes; }
af_tensor *af_graph_flat_gradients(const af_graph *g) { return g->grads_flat; }
af_tensor *af_graph_flat_params(const af_graph *g) { return g->params_flat; }
bool af_device_is_cpu(const af_device *d) { return d->ops->host; }

/* Activations among the outputs that are still in use after position `end`. */
static bool show(const af_node *n, int end, af_ran_node_fn *stop, void *user)
{
    af_ran_node r = {.op = af_ops[n->op]->name,
                     .block = n->block,
                     .in = (const af_tensor *const *)n->in,
                     .n_in = n->n_in,
                     .whole_pass = end >= 0};
    for (int i = 0; i < n->n_out; i++) {
        const af_tensor *root = n->out[i]->base ? n->out[i]->base : n->out[i];
        if (root->role == AF_ROLE_ACTIVATION && root->last > end)
            r.out[r.n_out++] = n->out[i];
    }
    return stop(user, &r);
}

af_status af_graph_run_until(af_graph *g, af_ran_node_fn *stop, void *user, bool *stopped,
                             af_error *err)
{
    const af_device *d = g ? g->device : NULL;
    const bool one_by_one = d && d->ops->host;
    int end = 0; /* of the forward pass */
    *stopped = false;
    af_status st = (one_by_one ? af_graph_begin_run : af_graph_run)(g, AF_RUN_FORWARD, err);
    for (int i = 0; st == AF_OK && i < g->n_nodes; i++)
        if (g->nodes[i]->phase == AF_PHASE_FORWARD)
            end = i;
    for (int i = 0; st == AF_OK && i <= end && !*stopped; i++) {
        if (g->nodes[i]->phase != AF_PHASE_FORWARD)
            continue;
        if (one_by_one)
            st = d->ops->run_nodes(g->device, g, AF_RUN_FORWARD, i, i + 1, err);
        if (st == AF_OK)
            *stopped = show(g->nodes[i], one_by_one ? -1 : end, stop, user);
    }
    return st;
}

double af_device_fp8_gain(const af_device *d, int64_t rows, int64_t out, int64_t in)
{
    return d->ops->fp8_gain ? d->ops->fp8_gain(d, rows, out, in) : 1;
}
