/* nonfinite.c - what to say when numbers stop being numbers: the step, the first bad tensor, the
 * records of the batch.
 *
 * The step is repeated with the state it found (an update with a bad norm changes nothing). Where
 * the loss itself is bad, the forward pass is walked node by node: on the CPU every output can be
 * looked at before its memory is used again. A GPU runs the pass as a whole: there weights are
 * looked at, and what is kept for the backward pass, and the message says so. */
#include "base/buf.h"
#include "base/file.h"
#include "graph/backend.h"
#include "train/trainer.h"

#include <math.h>

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

enum { PIECE = 4096 };

/* Whether what is in use of a tensor is finite; other types than floats always are. */
static bool is_finite(const af_trainer *tr, const af_tensor *t)
{
    float part[PIECE];
    if (!af_dtype_is_float(t->dtype) || !t->data)
        return true;
    const int64_t n = t->ndim == 1 ? af_live(t) : af_live(t) * af_last(t);
    const uint8_t *p = t->data;
    void *copy = tr->device->ops->host ? NULL : malloc(AF_MAX(af_tensor_bytes(t), 1));
    if (!tr->device->ops->host) {
        if (!copy || af_tensor_read(tr->graph, t, copy, af_tensor_bytes(t), NULL) != AF_OK) {
            free(copy);
            return true; /* not known to be bad */
        }
        p = copy;
    }
    bool finite = true;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t now = AF_MIN(PIECE, n - at);
        af_convert(part, AF_DTYPE_F32, p + at * af_dtype_get(t->dtype)->bytes, t->dtype,
                   (uint64_t)now);
        finite &= all_finite(part, now);
    }
    free(copy);
    return finite;
}

/* The first named input of a node: the weight it works with. */
static const char *weight_of(const af_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->name[0] &&
            (n->in[i]->role == AF_ROLE_PARAM || n->in[i]->role == AF_ROLE_WEIGHT))
            return n->in[i]->name;
    return NULL;
}

/* Outputs are looked at that are in use beyond position `kept`. */
static bool describe(const af_trainer *t, const af_node *n, int kept, char *out, size_t size)
{
    const char *weight = weight_of(n), *more = kept < 0 ? "" : ", of those that are kept";
    for (int i = 0; i < n->n_in; i++)
        if ((n->in[i]->role == AF_ROLE_PARAM || n->in[i]->role == AF_ROLE_WEIGHT) &&
            n->in[i]->name[0] && !is_finite(t, n->in[i])) {
            snprintf(out, size, "%s", n->in[i]->name);
            return true;
        }
    for (int i = 0; i < n->n_out; i++) {
        const af_tensor *x = n->out[i], *root = x->base ? x->base : x;
        if (root->role != AF_ROLE_ACTIVATION || root->last <= kept || is_finite(t, x))
            continue;
        const char *op = af_ops[n->op]->name;
        if (weight)
            snprintf(out, size, "the output of %s (%s)%s", weight, op, more);
        else if (n->block >= 0)
            snprintf(out, size, "the output of %s in layer %d%s", op, n->block, more);
        else
            snprintf(out, size, "the output of %s%s", op, more);
        return true;
    }
    return false;
}

/* After a forward pass as a whole. */
static bool look_at_kept(af_trainer *t, char *out, size_t size)
{
    const af_graph *g = t->graph;
    int end = 0;
    while (end < g->n_nodes && g->nodes[end]->phase == AF_PHASE_FORWARD)
        end++;
    if (af_graph_run(t->graph, AF_RUN_FORWARD, NULL) != AF_OK)
        return false;
    for (int i = 0; i < end; i++)
        if (describe(t, g->nodes[i], end - 1, out, size))
            return true;
    return false;
}

/* The first bad tensor of the forward pass of the batch that is uploaded; false = none found. */
static bool walk_forward(af_trainer *t, char *out, size_t size)
{
    af_graph *g = t->graph;
    af_node **const nodes = g->nodes;
    const int n = g->n_nodes;
    bool found = false;
    if (!t->device->ops->host)
        return look_at_kept(t, out, size);
    const uint64_t clock = af_clock(g); /* every node sees the dropout of the batch */
    g->n_nodes = 1;
    for (int i = 0; i < n && !found; i++) {
        g->nodes = nodes + i;
        af_set_clock(g, clock);
        if (nodes[i]->phase == AF_PHASE_FORWARD && af_graph_run(g, AF_RUN_FORWARD, NULL) == AF_OK)
            found = describe(t, nodes[i], -1, out, size);
    }
    g->nodes = nodes;
    g->n_nodes = n;
    return found;
}

/* The first parameter whose gradient is not finite, after a repeated gradient run. */
static bool bad_gradient(af_trainer *t, char *out, size_t size, af_error *err)
{
    for (int i = 0; i < t->graph->n_tensors; i++) {
        const af_tensor *p = t->graph->tensors[i];
        if (p->role != AF_ROLE_PARAM || !p->grad || p->base == NULL || !p->name[0])
            continue;
        float *v = af_calloc((uint64_t)af_count(p), sizeof *v);
        const bool bad =
            v && af_tensor_read(t->graph, p->grad, v, af_tensor_bytes(p->grad), err) == AF_OK &&
            !all_finite(v, af_count(p));
        free(v);
        if (bad) {
            snprintf(out, size, "the gradient of %s", p->name);
            return true;
        }
    }
    return false;
}

/* "file:line" of the records of a micro-batch, and the same as JSON. */
static void name_records(af_trainer *t, const af_batch *b, af_buf *text, af_buf *json)
{
    for (int64_t i = 0; i < b->sequences; i++) {
        const af_token_index *e = &t->store.index[b->record[i]];
        const char *file = af_dataset_file(&t->store, (int)e->source);
        if (i < 8)
            af_buf_printf(text, "%s%s:%" PRIu64, text->len ? ", " : "", af_path_name(file),
                          e->line);
        af_buf_printf(json, "%s{\"record\": %" PRId64 ", \"line\": %" PRIu64 ", \"tokens\": %u}",
                      json->len ? ", " : "", b->record[i], e->line, e->count);
    }
}

af_status af_trainer_explain_nonfinite(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_buf text = {0}, json = {0}, file = {0};
    char bad[256] = "";
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    const uint64_t clock = af_clock(t->graph) - (uint64_t)t->run->accumulation;
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        const af_batch *b;
        float loss = NAN;
        af_set_clock(t->graph, clock + (uint64_t)k);
        if (af_stream_get(t->stream, t->progress.micro + k, &b, err) != AF_OK ||
            af_trainer_upload(t, b, scale, err) != AF_OK ||
            af_graph_run(t->graph, AF_RUN_GRAD, err) != AF_OK ||
            af_tensor_read(t->graph, t->loss, &loss, sizeof loss, err) != AF_OK)
            break;
        af_set_clock(t->graph, clock + (uint64_t)k);
        if (!isfinite(loss) && !walk_forward(t, bad, sizeof bad))
            snprintf(bad, sizeof bad, "the loss");
        if (*bad || bad_gradient(t, bad, sizeof bad, err)) {
            name_records(t, b, &text, &json);
            break;
        }
    }
    char name[64];
    snprintf(name, sizeof name, "replay-%" PRId64 ".json", t->progress.step + 1);
    char *path = t->run->output_dir ? af_path_join(t->run->output_dir, name) : NULL;
    af_buf_printf(
        &file,
        "{\"step\": %" PRId64 ", \"micro_batch\": %" PRId64 ", \"seed\": %" PRId64
        ", \"loss\": \"%g\", \"grad_norm\": \"%g\", \"first_bad\": \"%s\", \"records\": [%s]}\n",
        t->progress.step + 1, t->progress.micro, t->run->seed, r->loss, r->grad_norm, bad,
        json.data ? json.data : "");
    if (path && file.data && af_file_write(path, file.data, file.len, err) != AF_OK)
        path[0] = '\0';
    af_fail(err, AF_EUSAGE,
            "step %" PRId64
            ": loss %g, gradient norm %g: the first bad tensor is %s, in a batch of %s; the last "
            "checkpoint is untouched%s%s",
            t->progress.step + 1, r->loss, r->grad_norm, *bad ? bad : "not found again",
            text.data ? text.data : "?", path && path[0] ? ", the batch is in " : "",
            path && path[0] ? path : "");
    af_buf_clear(&text);
    af_buf_clear(&json);
    af_buf_clear(&file);
    free(path);
    return AF_EUSAGE;
}
