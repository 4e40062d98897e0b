/* imatrix_collect.c - see imatrix_collect.h.
 *
 * The graph of a chunk gets one more output a group of linears, the column sums of x*x; they are
 * added up in double over the chunks. Modules that read the same input (q, k, v) share the sums.
 * Not here: inputs of experts, which live inside one op; their tensors are quantised without. */
#include "convert/quantize/imatrix_collect.h"

#include "base/log.h"
#include "graph/graph_access.h"
#include "model/model_state.h"

typedef struct tapped {
    int layer;
    af_group group;
    af_tensor *squares; /* f32 [I] */
    double *sum;        /* [I] */
} tapped;

typedef struct collector {
    const af_model_spec *spec;
    af_graph *graph;
    af_model_leaves leaves;
    af_batch_inputs in;
    tapped *tap;
    int taps;
    float *row; /* [widest I] */
    af_arena arena;
} collector;

static void add_tap(void *user, int layer, af_group group, af_tensor *x)
{
    collector *c = user;
    af_tensor *s = af_sum(c->graph, af_mul(c->graph, x, x), 0, false);
    af_graph_output(c->graph, s);
    c->tap[c->taps++] = (tapped){.layer = layer, .group = group, .squares = s};
}

static af_status open_graph(collector *c, af_model *m, int64_t N, af_error *err)
{
    af_status st = AF_OK;
    const bool cpu = af_device_is_cpu(m->device);
    const af_leaves_opts lo = {
        .compute = m->compute, .adapter = m->adapter, .dtype = af_loader_dtypes(m->loader)};
    const af_forward_opts fo = {.tap = add_tap, .tap_user = c};
    int64_t widest = 1;
    c->spec = af_loader_spec(m->loader);
    c->tap =
        af_arena_take(&c->arena, (uint64_t)c->spec->layers * AF_GROUP_LAYER_COUNT * sizeof *c->tap);
    if (!c->tap)
        return af_fail_nomem(err, "an importance matrix", (uint64_t)c->spec->layers);
    AF_TRY(af_graph_new(&c->graph, err));
    AF_TRY(af_model_leaves_init(&c->leaves, c->graph, c->spec, &lo, err));
    AF_TRY(af_loader_bind(m->loader, &c->leaves, cpu, err));
    c->in = af_batch_inputs_new(c->graph, N, 1);
    (void)af_model_forward(&c->leaves, &c->in, &fo);
    AF_TRY(af_graph_prepare(c->graph, m->device, err));
    AF_TRY(af_loader_write(m->loader, &c->leaves, err));
    if (m->adapter)
        AF_TRY(af_adapter_upload(m->adapter, &c->leaves, err));
    for (int i = 0; i < c->taps; i++) {
        const int64_t n = af_tensor_count(c->tap[i].squares);
        widest = AF_MAX(widest, n);
        c->tap[i].sum = af_arena_take(&c->arena, (uint64_t)n * sizeof *c->tap[i].sum);
        if (!c->tap[i].sum)
            AF_TRY(af_fail_nomem(err, "an importance matrix", (uint64_t)n * 8));
    }
    c->row = af_arena_take(&c->arena, (uint64_t)widest * sizeof *c->row);
    if (!c->row)
        AF_TRY(af_fail_nomem(err, "an importance matrix", (uint64_t)widest * 4));
done:
    return st;
}

static af_status run_chunk(collector *c, const int32_t *ids, int64_t N, af_error *err)
{
    af_status st = AF_OK;
    int32_t positions[AF_IMATRIX_CHUNK], bounds[4] = {0, (int32_t)N, (int32_t)N, (int32_t)N};
    for (int64_t i = 0; i < N; i++)
        positions[i] = (int32_t)i;
    AF_TRY(af_model_write_rope(&c->leaves, N, err));
    AF_TRY(af_tensor_write(c->graph, c->in.ids, ids, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(c->graph, c->in.positions, positions, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(c->graph, c->in.bounds, bounds, af_tensor_bytes(c->in.bounds), err));
    AF_TRY(af_graph_run(c->graph, AF_RUN_FORWARD, err));
    for (int i = 0; i < c->taps; i++) {
        const int64_t n = af_tensor_count(c->tap[i].squares);
        AF_TRY(af_tensor_read(c->graph, c->tap[i].squares, c->row, (uint64_t)n * 4, err));
        for (int64_t k = 0; k < n; k++)
            c->tap[i].sum[k] += c->row[k];
    }
done:
    return st;
}

/* ---- the text ---- */

/* The token the tokenizer puts before every text; -1 = none. */
static af_status first_token(int32_t *out, const af_tokenizer *k, af_error *err)
{
    af_encoding plain = {0}, special = {0};
    af_status st = AF_OK;
    *out = -1;
    AF_TRY(af_tokenizer_encode(k, &plain, "a", 1, false, err));
    AF_TRY(af_tokenizer_encode(k, &special, "a", 1, true, err));
    if (special.count > plain.count && plain.count > 0 && special.ids[0] != plain.ids[0])
        *out = special.ids[0];
done:
    af_encoding_clear(&plain);
    af_encoding_clear(&special);
    return st;
}

static af_status run_text(collector *c, af_model *m, const char *text, const af_collect_opts *o,
                          af_imatrix *out, af_error *err)
{
    af_status st = AF_OK;
    af_map map = {0};
    af_encoding e = {0};
    const af_tokenizer *k;
    int32_t bos, ids[AF_IMATRIX_CHUNK];
    AF_TRY(af_map_open(&map, text, err));
    AF_TRY(af_model_tokenizer(m, &k, err));
    AF_TRY(first_token(&bos, k, err));
    st = af_tokenizer_encode(k, &e, (const char *)map.data, map.size, true, err);
    if (st != AF_OK)
        AF_TRY(af_fail_prefix(st, err, "%s", text));
    if (e.count < 2)
        AF_TRY(af_fail(err, AF_EUSAGE, "%s has %" PRId64 " tokens: nothing to measure on", text,
                       e.count));
    AF_TRY(af_model_check_ids(m, e.ids, e.count, err));
    const int64_t N = AF_MIN(e.count, AF_IMATRIX_CHUNK);
    const int64_t all = e.count / N, chunks = o->chunks ? AF_MIN(o->chunks, all) : all;
    AF_TRY(open_graph(c, m, N, err));
    for (int64_t i = 0; i < chunks; i++) {
        memcpy(ids, e.ids + i * N, (size_t)N * sizeof *ids);
        ids[0] = bos >= 0 ? bos : ids[0];
        AF_TRY(run_chunk(c, ids, N, err));
        af_log_write(AF_LOG_DEBUG, "importance: chunk %" PRId64 " of %" PRId64, i + 1, chunks);
    }
    out->chunk_size = N;
    out->chunks = chunks;
    af_log_write(AF_LOG_INFO, "importance matrix: %" PRId64 " chunks of %" PRId64 " tokens", chunks,
                 N);
done:
    af_encoding_clear(&e);
    af_map_close(&map);
    return st;
}

/* ---- the entries ---- */

static af_status add_entry(af_imatrix *m, const char *name, const tapped *t, int64_t tokens,
                           af_error *err)
{
    const int64_t n = af_tensor_count(t->squares);
    af_imatrix_entry *e;
    const af_status st = af_imatrix_add(m, &e, name, strlen(name), n, 1, err);
    if (st != AF_OK)
        return st;
    e->counts[0] = (float)tokens;
    for (int64_t k = 0; k < n; k++) {
        e->sums[k] = (float)t->sum[k];
        e->values[k] = e->sums[k] / e->counts[0];
    }
    return AF_OK;
}

static af_status make_entries(const collector *c, af_imatrix *m, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = c->spec;
    const int64_t tokens = m->chunks * m->chunk_size;
    int experts = 0;
    AF_TRY(af_imatrix_reserve(m, s->modules + s->layers, err));
    for (int i = 0; i < c->taps; i++) {
        const tapped *t = &c->tap[i];
        const af_layer_spec *ls = &s->layer[t->layer];
        experts += t->group == AF_GROUP_ROUTER;
        for (int p = 0; p < ls->pieces[t->group]; p++) {
            const af_module_spec *mod = &s->module[ls->module[t->group][p]];
            AF_TRY(add_entry(m, s->tensor[mod->weight].gguf, t, tokens, err));
        }
    }
    if (experts)
        af_log_write(AF_LOG_WARN, "the experts of %d layers are not part of the importance matrix",
                     experts);
done:
    return st;
}

af_status af_imatrix_collect(af_imatrix *out, const char *model, const char *text,
                             const af_collect_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_model *m = NULL;
    collector c = {0};
    af_imatrix im = {0};
    af_model_opts mo = {.device = o->device, .threads = o->threads, .compute = AF_COMPUTE_F32};
    if (o->adapter) {
        mo.adapter[0] = o->adapter;
        mo.adapter_weight[0] = 1;
        mo.adapters = 1;
    }
    AF_TRY(af_model_open(&m, model, &mo, err));
    AF_TRY(run_text(&c, m, text, o, &im, err));
    AF_TRY(make_entries(&c, &im, err));
    im.dataset = af_arena_strdup(&im.arena, af_path_name(text));
    *out = im;
    im = (af_imatrix){0};
done:
    af_graph_free(c.graph);
    af_model_leaves_clear(&c.leaves);
    af_arena_clear(&c.arena);
    af_imatrix_clear(&im);
    af_model_close(m);
    return st;
}
