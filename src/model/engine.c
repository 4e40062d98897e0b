/* engine.c - records, prepares and runs a model for inference; see engine.h. */
#include "model/engine.h"
#include "graph/graph_access.h"

static af_status record(af_engine *e, af_error *err)
{
    af_model_leaves *l = &e->leaves;
    af_graph *g = e->graph;
    e->in = af_batch_inputs_new(g, e->N, e->S);
    af_tensor *h = af_model_forward(l, &e->in, NULL);
    if (e->kind == AF_ENGINE_LOSS) {
        e->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &e->N);
        af_graph_output(g, af_model_loss(l, h, e->labels, NULL, 0, &e->out));
    } else {
        e->out = af_model_logits(l, h, NULL);
    }
    af_graph_output(g, e->out);
    return af_graph_status(g, err);
}

static uint64_t host_ints(const af_engine *e) { return (uint64_t)(3 * e->N + e->S + 4); }

/* The output as floats; before that, where it comes as something else, as it comes. */
static uint64_t output_floats(const af_engine *e)
{
    const bool f32 = af_tensor_dtype(e->out) == AF_DTYPE_F32;
    return (uint64_t)af_tensor_count(e->out) * (f32 ? 1 : 2);
}

static af_status take_buffers(af_engine *e, af_error *err)
{
    e->host = af_calloc(host_ints(e), sizeof *e->host);
    e->raw = af_calloc(output_floats(e), sizeof(float));
    return e->host && e->raw ? AF_OK : af_fail_nomem(err, "the output", output_floats(e) * 4);
}

af_status af_engine_leaves(af_model_leaves *out, af_graph *g, const af_engine_from *from,
                           af_device *d, af_error *err)
{
    af_status st = AF_OK;
    const bool cpu = af_device_is_cpu(d);
    if (from->live) {
        assert(cpu);
        return af_model_leaves_borrow(out, g, from->live, err);
    }
    const af_leaves_opts lo = {.compute = from->compute,
                               .adapter = from->adapter,
                               .dtype = af_loader_dtypes(from->loader)};
    AF_TRY(af_model_leaves_init(out, g, af_loader_spec(from->loader), &lo, err));
    AF_TRY(af_loader_bind(from->loader, out, cpu, err));
done:
    return st;
}

af_status af_engine_fill(af_model_leaves *l, const af_engine_from *from, af_error *err)
{
    af_status st = AF_OK;
    if (!from->live)
        AF_TRY(af_loader_write(from->loader, l, err));
    if (!from->live && from->adapter)
        AF_TRY(af_adapter_upload(from->adapter, l, err));
done:
    return st;
}

/* Everything up to the plan. */
static af_status make(af_engine *e, af_device *d, const af_engine_from *from, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_graph_new(&e->graph, err));
    af_graph_set_rows(e->graph, e->N);
    AF_TRY(af_engine_leaves(&e->leaves, e->graph, from, d, err));
    AF_TRY(record(e, err));
done:
    return st;
}

af_status af_engine_open(af_engine *out, af_engine_kind kind, af_device *d,
                         const af_engine_from *from, int64_t N, int64_t S, af_error *err)
{
    af_status st = AF_OK;
    af_engine e = {.kind = kind, .N = N, .S = S};
    AF_TRY(make(&e, d, from, err));
    AF_TRY(af_graph_prepare(e.graph, d, err));
    AF_TRY(af_engine_fill(&e.leaves, from, err));
    AF_TRY(take_buffers(&e, err));
    *out = e;
    e = (af_engine){0};
done:
    af_engine_close(&e);
    return st;
}

void af_engine_close(af_engine *e)
{
    af_graph_free(e->graph);
    af_model_leaves_clear(&e->leaves);
    free(e->host);
    free(e->raw);
    *e = (af_engine){0};
}

/* Where the images of the inputs lie in `host`. */
typedef struct images {
    int32_t *ids, *positions, *labels, *bounds;
} images;

static images images_of(const af_engine *e)
{
    int32_t *at = e->host;
    return (images){
        .ids = at, .positions = at + e->N, .labels = at + 2 * e->N, .bounds = at + 3 * e->N};
}

/* Lays the slices one after another; the number of tokens. */
static int64_t lay_out(const af_engine *e, const images *m, const af_feed *s, int64_t n,
                       int64_t *length)
{
    int64_t row = 0;
    *length = 1;
    for (int64_t k = 0; k < e->S; k++) {
        const af_feed in = k < n ? s[k] : (af_feed){0};
        m->bounds[k] = (int32_t)row;
        for (int64_t t = 0; t < in.n; t++, row++) {
            m->ids[row] = in.ids[t];
            m->positions[row] = (int32_t)t;
            m->labels[row] = in.labels ? in.labels[t] : -100;
        }
        *length = in.n ? AF_MAX(*length, AF_MAX(in.length, in.n)) : *length;
    }
    for (int64_t k = e->S; k < af_tensor_dim(e->in.bounds, 0); k++)
        m->bounds[k] = (int32_t)row;
    assert(row <= e->N);
    return row;
}

static af_status put(af_engine *e, af_tensor *t, const int32_t *v, af_error *err)
{
    return t ? af_tensor_write(e->graph, t, v, af_tensor_bytes(t), err) : AF_OK;
}

af_status af_engine_run(af_engine *e, const af_feed *s, int64_t n, const float **out, af_error *err)
{
    af_status st = AF_OK;
    const images m = images_of(e);
    int64_t length;
    const int64_t live = lay_out(e, &m, s, n, &length);
    AF_TRY(af_model_write_rope(&e->leaves, length, err));
    AF_TRY(put(e, e->in.ids, m.ids, err));
    AF_TRY(put(e, e->in.positions, m.positions, err));
    AF_TRY(put(e, e->in.bounds, m.bounds, err));
    AF_TRY(put(e, e->labels, m.labels, err));
    af_graph_set_live_rows(e->graph, live);
    AF_TRY(af_graph_run(e->graph, AF_RUN_FORWARD, err));
    if (out) {
        const uint64_t count = (uint64_t)af_tensor_live_count(e->out);
        const bool f32 = af_tensor_dtype(e->out) == AF_DTYPE_F32;
        float *f = f32 ? e->raw : (float *)e->raw + count;
        AF_TRY(af_tensor_read_live(e->graph, e->out, e->raw, err));
        if (!f32)
            af_convert(f, AF_DTYPE_F32, e->raw, af_tensor_dtype(e->out), count);
        *out = f;
    }
done:
    return st;
}
