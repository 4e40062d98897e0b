/* nonfinite.c - what to say when numbers stop being numbers: the step, the first bad tensor, the
 * records of the batch.
 *
 * The step is repeated with the state it found (an update with a bad norm changes nothing). Where
 * the loss itself is bad, the forward pass is walked node by node: on the CPU every output can be
 * looked at before its memory is used again. */
#include "base/buf.h"
#include "base/file.h"
#include "graph/node.h"
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

/* Whether what is in use of a tensor on the host is finite; other types than floats always are. */
static bool host_finite(const af_tensor *t)
{
    float part[PIECE];
    if (!af_dtype_is_float(t->dtype) || !t->data)
        return true;
    const int64_t n = t->dim[0] ? af_count(t) / t->dim[0] * af_live(t) : 0;
    const uint8_t *p = t->data;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t now = AF_MIN(PIECE, n - at);
        af_convert(part, AF_DTYPE_F32, p + at * af_dtype_get(t->dtype)->bytes, t->dtype,
                   (uint64_t)now);
        if (!all_finite(part, now))
            return false;
    }
    return true;
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

static bool describe(const af_node *n, char *out, size_t size)
{
    const char *weight = weight_of(n);
    for (int i = 0; i < n->n_in; i++)
        if ((n->in[i]->role == AF_ROLE_PARAM || n->in[i]->role == AF_ROLE_WEIGHT) &&
            n->in[i]->name[0] && !host_finite(n->in[i])) {
            snprintf(out, size, "%s", n->in[i]->name);
            return true;
        }
    for (int i = 0; i < n->n_out; i++)
        if (!host_finite(n->out[i])) {
            if (weight)
                snprintf(out, size, "the output of %s (%s)", weight, af_ops[n->op]->name);
            else if (n->block >= 0)
                snprintf(out, size, "the output of %s in layer %d", af_ops[n->op]->name, n->block);
            else
                snprintf(out, size, "the output of %s", af_ops[n->op]->name);
            return true;
        }
    return false;
}

/* The first bad tensor of the forward pass of the batch that is uploaded; false = none found. */
static bool walk_forward(af_trainer *t, char *out, size_t size)
{
    af_graph *g = t->graph;
    af_node **const nodes = g->nodes;
    const int n = g->n_nodes;
    bool found = false;
    if (strcmp(af_device_kind(t->device), "cpu") != 0)
        return false;
    g->n_nodes = 1;
    for (int i = 0; i < n && !found; i++) {
        g->nodes = nodes + i;
        if (nodes[i]->phase == AF_PHASE_FORWARD && af_graph_run(g, AF_RUN_FORWARD, NULL) == AF_OK)
            found = describe(nodes[i], out, size);
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
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        const af_batch *b;
        float loss = NAN;
        if (af_stream_get(t->stream, t->progress.micro + k, &b, err) != AF_OK ||
            af_trainer_upload(t, b, scale, err) != AF_OK ||
            af_graph_run(t->graph, AF_RUN_GRAD, err) != AF_OK ||
            af_tensor_read(t->graph, t->loss, &loss, sizeof loss, err) != AF_OK)
            break;
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
