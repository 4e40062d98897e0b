/* model_graph.c - the forward pass of an open model for a caller's own loss; see
 * afinar/model_graph.h. The same leaves and builder as training and inference. */
#include "afinar/model_graph.h"

#include "base/publish.h"
#include "graph/graph_access.h"
#include "model/model_state.h"

struct af_model_graph {
    af_model *m; /* borrowed */
    af_graph *graph;
    af_model_leaves leaves;
    af_adapter *made;    /* new adapter, owned; NULL when the model's own is trained */
    af_adapter *adapter; /* the one that is trained, or NULL */
    af_batch_inputs in;
    af_tensor *hidden, *logits, *labels;
    af_tensor **param;
    int params;
    int64_t rows, sequences;
    int32_t *host; /* ids, positions, labels [rows], bounds */
    bool prepared;
};

static af_status check(const af_model *m, const af_record_opts *o, af_error *err)
{
    enum { ROWS_MAX = 1 << 24 };
    if (o->rows < 1 || o->rows > ROWS_MAX || o->sequences < 0 || o->sequences > o->rows)
        return af_fail(err, AF_EUSAGE,
                       "%" PRId64 " rows and %" PRId64
                       " sequences per batch; rows must be 1 to %d, sequences 0 to rows",
                       o->rows, o->sequences, ROWS_MAX);
    if (o->lora_r < 0 || o->lora_r > AF_ADAPTER_RANK_MAX || !(o->lora_alpha >= 0) ||
        !(o->lora_dropout >= 0 && o->lora_dropout < 1))
        return af_fail(err, AF_EUSAGE,
                       "lora_r %d, lora_alpha %g or lora_dropout %g is out of range", o->lora_r,
                       o->lora_alpha, o->lora_dropout);
    if (o->lora_r && m->adapter)
        return af_fail(err, AF_EUSAGE,
                       "lora_r %d: the model was opened with an adapter; use lora_r 0 to train it",
                       o->lora_r);
    return AF_OK;
}

static af_status make_adapter(af_model_graph *r, const af_record_opts *o, af_error *err)
{
    const af_adapter_config c = {.r = o->lora_r,
                                 .alpha = o->lora_alpha > 0 ? o->lora_alpha : 2.0 * o->lora_r,
                                 .dropout = o->lora_dropout,
                                 .target_regex = "all-linear",
                                 .base_model = r->m->path};
    return af_adapter_new(&r->made, &c, af_loader_spec(r->m->loader), r->m->loader, o->seed, err);
}

static void add_param(af_model_graph *r, af_tensor *t)
{
    for (int i = 0; i < r->params; i++) /* modules of a fused projection share tensors */
        if (r->param[i] == t)
            return;
    if (t)
        r->param[r->params++] = t;
}

/* The adapter's tensors, and those of modules_to_save. */
static af_status list_params(af_model_graph *r, af_error *err)
{
    const af_model_spec *s = r->leaves.spec;
    const uint64_t most =
        r->adapter ? 4 * (uint64_t)s->modules + (uint64_t)s->tensors + AF_TOKEN_TABLES : 0;
    r->param = af_calloc(most, sizeof *r->param);
    if (!r->param)
        return af_fail_nomem(err, "the parameters", most * sizeof *r->param);
    for (int i = 0; r->adapter && i < s->modules; i++) {
        add_param(r, r->leaves.module[i].a);
        add_param(r, r->leaves.module[i].b);
        add_param(r, r->leaves.module[i].magnitude);
        add_param(r, r->leaves.module[i].bias);
    }
    for (int k = 0; r->adapter && k < AF_TOKEN_TABLES; k++)
        add_param(r, r->leaves.tokens[k]);
    for (int i = 0; r->adapter && i < s->tensors; i++)
        add_param(r, r->adapter->saved[i] ? r->leaves.tensor[i] : NULL);
    return AF_OK;
}

static af_status record(af_model_graph *r, const af_record_opts *o, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_graph_new(&r->graph, err));
    af_graph_set_rows(r->graph, r->rows);
    af_graph_set_seed(r->graph, o->seed);
    if (o->lora_r)
        AF_TRY(make_adapter(r, o, err));
    r->adapter = r->made ? r->made : r->m->adapter;
    const af_leaves_opts lo = {.compute = r->m->compute,
                               .train_adapter = r->adapter != NULL,
                               .adapter = r->adapter,
                               .dropout = o->lora_dropout,
                               .dtype = af_loader_dtypes(r->m->loader)};
    r->in = af_batch_inputs_new(r->graph, r->rows, r->sequences);
    AF_TRY(af_model_leaves_init(&r->leaves, r->graph, af_loader_spec(r->m->loader), &lo, err));
    AF_TRY(list_params(r, err));
    r->hidden = af_model_forward(&r->leaves, &r->in, NULL);
    AF_TRY(af_graph_status(r->graph, err));
    const uint64_t ints = 3 * (uint64_t)r->rows + (uint64_t)af_tensor_count(r->in.bounds);
    r->host = af_calloc(ints, sizeof *r->host);
    if (!r->host)
        AF_TRY(af_fail_nomem(err, "a batch", ints * sizeof *r->host));
done:
    return st;
}

af_status af_model_record(af_model_graph **out, af_model *m, const af_record_opts *o, af_error *err)
{
    AF_NEED(err, out, m, o);
    af_status st = check(m, o, err);
    if (st != AF_OK)
        return st;
    af_model_graph *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, "a recording", sizeof *r);
    r->m = m;
    r->rows = o->rows;
    r->sequences = AF_MAX(o->sequences, 1);
    st = record(r, o, err);
    if (st == AF_OK)
        *out = r;
    else
        af_model_graph_free(r);
    return st;
}

void af_model_graph_free(af_model_graph *r)
{
    if (!r)
        return;
    af_graph_free(r->graph);
    af_model_leaves_clear(&r->leaves);
    af_adapter_free(r->made);
    free(r->param);
    free(r->host);
    free(r);
}

af_graph *af_model_graph_graph(af_model_graph *r) { return r ? r->graph : NULL; }
af_tensor *af_model_graph_hidden(af_model_graph *r) { return r ? r->hidden : NULL; }
int af_model_graph_param_count(const af_model_graph *r) { return r ? r->params : 0; }

af_tensor *af_model_graph_logits(af_model_graph *r)
{
    if (!r)
        return NULL;
    if (!r->logits)
        r->logits = af_model_logits(&r->leaves, r->hidden, NULL);
    return r->logits;
}

af_tensor *af_model_graph_labels(af_model_graph *r)
{
    if (!r)
        return NULL;
    if (!r->labels)
        r->labels = af_graph_input(r->graph, "labels", AF_DTYPE_I32, 1, &r->rows);
    return r->labels;
}

af_tensor *af_model_graph_param(const af_model_graph *r, int i)
{
    return i >= 0 && i < af_model_graph_param_count(r) ? r->param[i] : NULL;
}

af_status af_model_graph_prepare(af_model_graph *r, af_error *err)
{
    AF_NEED(err, r);
    af_status st = AF_OK;
    if (r->prepared)
        return af_fail(err, AF_EUSAGE, "af_model_graph_prepare: the graph is prepared already");
    const bool cpu = af_device_is_cpu(r->m->device);
    AF_TRY(af_loader_bind(r->m->loader, &r->leaves, cpu, err));
    AF_TRY(af_graph_prepare(r->graph, r->m->device, err));
    AF_TRY(af_loader_write(r->m->loader, &r->leaves, err));
    if (r->adapter)
        AF_TRY(af_adapter_upload(r->adapter, &r->leaves, err));
    r->prepared = true;
done:
    return st;
}

static af_status put(af_model_graph *r, af_tensor *t, const int32_t *v, af_error *err)
{
    return t ? af_tensor_write(r->graph, t, v, af_tensor_bytes(t), err) : AF_OK;
}

af_status af_model_graph_feed(af_model_graph *r, const af_token_row *row, int n, af_error *err)
{
    AF_NEED(err, r, row);
    af_status st = AF_OK;
    if (!r->prepared || n < 1 || n > r->sequences)
        return af_fail(err, AF_EUSAGE, "af_model_graph_feed: %s",
                       !r->prepared ? "the graph is not prepared"
                                    : "wrong number of sequences for this recording");
    int32_t *ids = r->host, *positions = ids + r->rows, *labels = positions + r->rows;
    int32_t *bounds = labels + r->rows;
    const int64_t bounds_count = af_tensor_count(r->in.bounds);
    int64_t at = 0, longest = 1;
    for (int64_t k = 0; k < bounds_count; k++) {
        bounds[k] = (int32_t)at;
        const af_token_row x = k < n ? row[k] : (af_token_row){0};
        if (x.count < 0 || x.count > r->rows - at)
            return af_fail(err, AF_EUSAGE, "a batch of more than %" PRId64 " tokens", r->rows);
        if (x.count && !x.ids)
            return af_fail(err, AF_EUSAGE,
                           "af_model_graph_feed: the ids of row %" PRId64 " are NULL", k);
        AF_TRY(af_model_check_ids(r->m, x.ids, x.count, err));
        for (int64_t t = 0; t < x.count; t++, at++) {
            ids[at] = x.ids[t];
            positions[at] = (int32_t)t;
            labels[at] = x.labels && t + 1 < x.count ? x.labels[t + 1] : -100;
        }
        longest = AF_MAX(longest, x.count);
    }
    if (at == 0)
        return af_fail(err, AF_EUSAGE, "a batch without tokens");
    for (int64_t t = at; t < r->rows; t++) { /* a GPU runs all rows: these carry no loss */
        ids[t] = positions[t] = 0;
        labels[t] = -100;
    }
    AF_TRY(af_model_write_rope(&r->leaves, longest, err));
    AF_TRY(put(r, r->in.ids, ids, err));
    AF_TRY(put(r, r->in.positions, positions, err));
    AF_TRY(put(r, r->in.bounds, bounds, err));
    AF_TRY(put(r, r->labels, labels, err));
    af_graph_set_live_rows(r->graph, at);
done:
    return st;
}

af_status af_model_graph_save(af_model_graph *r, const char *dir, af_error *err)
{
    AF_NEED(err, r, dir);
    if (!r->adapter || !r->prepared)
        return af_fail(err, AF_EUSAGE, "af_model_graph_save: %s",
                       !r->adapter ? "the model has no adapter" : "the graph is not prepared");
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors", NULL};
    af_status st = AF_OK;
    af_output o = {0};
    AF_TRY(af_output_open_folder(&o, dir, names, true, err));
    AF_TRY(af_adapter_download(r->adapter, &r->leaves, err));
    AF_TRY(af_adapter_write(r->adapter, o.temp, err));
    st = af_output_commit(&o, err);
done:
    af_output_abandon(&o);
    return st;
}
