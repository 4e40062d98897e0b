/* decode_graph.c - records, prepares and runs the graph of a decoder; see decode_graph.h. */
#include "decode/decode_graph.h"

#include "graph/graph_access.h"

/* ---- adapters ---- */

static bool group_used(const af_decode_graph *e, int layer, int group)
{
    const af_layer_spec *ls = &e->leaves.spec->layer[layer];
    bool used = false;
    for (int p = 0; p < ls->pieces[group]; p++)
        used |= e->z.module[ls->module[group][p]];
    return used;
}

static void declare_group(af_decode_graph *e, int layer, int group)
{
    const af_model_spec *s = e->leaves.spec;
    const af_layer_spec *ls = &s->layer[layer];
    af_row_adapter *o = &e->group[layer * AF_GROUP_LAYER_COUNT + group];
    const int64_t C = e->z.adapters, P = ls->pieces[group], R = e->z.rank, all = C * P;
    int64_t values = 0;
    o->parts = (int)P;
    o->ranks = (int)R;
    for (int p = 0; p < P; p++) {
        const af_module_spec *m = &s->module[ls->module[group][p]];
        o->part[p] = (af_adapter_part){.out_from = m->out_from, .out_rows = m->out};
        values += m->out * R;
    }
    const int64_t I = s->module[ls->module[group][0]].in;
    o->a = af_graph_weight(e->graph, "rows.a", AF_DTYPE_F32, 3, (int64_t[]){C, P * R, I});
    o->b = af_graph_weight(e->graph, "rows.b", AF_DTYPE_F32, 2, (int64_t[]){C, values});
    o->scale = af_graph_weight(e->graph, "rows.scale", AF_DTYPE_F32, 1, &all);
    o->rank = af_graph_input(e->graph, "rows.rank", AF_DTYPE_I32, 1, &all);
    if (!e->z.columns)
        return;
    const int64_t O = o->part[P - 1].out_from + o->part[P - 1].out_rows;
    o->factor = af_graph_weight(e->graph, "rows.factor", AF_DTYPE_F32, 2, (int64_t[]){C + 1, O});
    o->shift = af_graph_weight(e->graph, "rows.shift", AF_DTYPE_F32, 2, (int64_t[]){C + 1, O});
}

static af_status declare_adapters(af_decode_graph *e, af_error *err)
{
    const int layers = e->leaves.spec->layers;
    const uint64_t bytes = (uint64_t)layers * AF_GROUP_LAYER_COUNT * sizeof *e->group;
    if (!e->z.adapters)
        return AF_OK;
    e->group = af_arena_take(&e->leaves.arena, bytes);
    if (!e->group)
        return af_fail_nomem(err, "adapters", bytes);
    e->adapters.which = af_graph_input(e->graph, "which", AF_DTYPE_I32, 1, &e->z.rows);
    e->adapters.order = af_graph_input(e->graph, "order", AF_DTYPE_I32, 1, &e->z.rows);
    if (e->z.columns)
        e->column = af_graph_input(e->graph, "column", AF_DTYPE_I32, 1, &e->z.rows);
    for (int i = 0; i < layers; i++)
        for (int k = 0; k < AF_GROUP_LAYER_COUNT; k++)
            if (group_used(e, i, k))
                declare_group(e, i, k);
    return af_graph_status(e->graph, err);
}

/* Values of the group's modules of adapter c. */
static void put_adapter(const af_row_adapter *o, const af_decode_values *v, const int *module,
                        int c, float *ta, float *tb, float *scale, int32_t *rank)
{
    const int64_t R = o->ranks;
    const af_adapter *a = v->adapter;
    for (int p = 0; p < o->parts; p++) {
        const af_module_spec *m = &a->spec->module[module[p]];
        const af_adapter_module *am = &a->module[module[p]];
        if (am->rank) /* else the adapter has none for this module */
            memcpy(ta + p * R * m->in, am->a, (size_t)(am->rank * m->in) * sizeof *ta);
        const float *factor = v->columns ? v->columns[module[p]].factor : NULL;
        for (int64_t r = 0; r < m->out; r++, tb += R)
            for (int j = 0; j < am->rank; j++)
                tb[j] = (factor ? factor[r] : 1) * am->b[r * am->rank + j];
        scale[c * o->parts + p] = am->scale;
        rank[c * o->parts + p] = am->rank;
    }
}

/* Factors and shifts of a group's columns: 1 and 0 where an adapter has none. */
static af_status write_columns(af_decode_graph *e, const af_row_adapter *o, const int *module,
                               const af_decode_values *v, int n, af_error *err)
{
    af_status st = AF_OK;
    const int64_t O = af_tensor_dim(o->factor, 1), rows = af_tensor_dim(o->factor, 0);
    const uint64_t bytes = af_tensor_bytes(o->factor);
    float *factor = af_calloc(bytes, 1), *shift = af_calloc(bytes, 1);
    if (!factor || !shift)
        AF_TRY(af_fail_nomem(err, "adapters", 2 * bytes));
    for (int64_t k = 0; k < rows * O; k++)
        factor[k] = 1;
    for (int c = 0; c < n; c++)
        for (int p = 0; v[c].columns && p < o->parts; p++) {
            const af_adapter_columns *from = &v[c].columns[module[p]];
            const int64_t at = (c + 1) * O + o->part[p].out_from;
            const size_t size = (size_t)o->part[p].out_rows * sizeof *factor;
            if (!from->factor)
                continue;
            memcpy(factor + at, from->factor, size);
            memcpy(shift + at, from->shift, size);
        }
    AF_TRY(af_tensor_write(e->graph, o->factor, factor, bytes, err));
    AF_TRY(af_tensor_write(e->graph, o->shift, shift, bytes, err));
done:
    free(factor);
    free(shift);
    return st;
}

static af_status write_group(af_decode_graph *e, const af_row_adapter *o, const int *module,
                             const af_decode_values *v, int n, af_error *err)
{
    af_status st = AF_OK;
    const int C = e->z.adapters;
    const int64_t a_each = af_tensor_count(o->a) / C, b_each = af_tensor_count(o->b) / C;
    const uint64_t na = af_tensor_bytes(o->a), nb = af_tensor_bytes(o->b),
                   ns = af_tensor_bytes(o->scale);
    float *a = af_calloc(na, 1), *b = af_calloc(nb, 1), *scale = af_calloc(ns, 1);
    int32_t *rank = af_calloc(ns, 1);
    if (!a || !b || !scale || !rank)
        AF_TRY(af_fail_nomem(err, "adapters", na + nb));
    for (int c = 0; c < n; c++)
        if (v[c].adapter)
            put_adapter(o, &v[c], module, c, a + c * a_each, b + c * b_each, scale, rank);
    AF_TRY(af_tensor_write(e->graph, o->a, a, na, err));
    AF_TRY(af_tensor_write(e->graph, o->b, b, nb, err));
    AF_TRY(af_tensor_write(e->graph, o->scale, scale, ns, err));
    AF_TRY(af_tensor_write(e->graph, o->rank, rank, ns, err));
    if (o->factor)
        AF_TRY(write_columns(e, o, module, v, n, err));
done:
    free(a);
    free(b);
    free(scale);
    free(rank);
    return st;
}

af_status af_decode_graph_adapters(af_decode_graph *e, const af_decode_values *v, int n,
                                   af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = e->leaves.spec;
    for (int i = 0; e->group && i < s->layers; i++)
        for (int k = 0; k < AF_GROUP_LAYER_COUNT; k++) {
            const af_row_adapter *o = &e->group[i * AF_GROUP_LAYER_COUNT + k];
            if (o->a)
                AF_TRY(write_group(e, o, s->layer[i].module[k], v, n, err));
        }
done:
    return st;
}

/* ---- recording ---- */

static af_status record(af_decode_graph *e, af_error *err)
{
    af_status st = AF_OK;
    af_model_leaves *l = &e->leaves;
    af_graph *g = e->graph;
    const af_decode_sizes *z = &e->z;
    const uint64_t bytes = (uint64_t)l->spec->layers * sizeof *e->cache;
    e->in = af_batch_inputs_new(g, z->rows, z->seqs);
    e->in.start = af_graph_input(g, "start", AF_DTYPE_I32, 1, &z->seqs);
    e->in.pages = af_graph_input(g, "pages", AF_DTYPE_I32, 2, (int64_t[]){z->seqs, z->table});
    e->last = af_graph_picks(g, "last", z->picks);
    e->cache = af_arena_take(&l->arena, bytes);
    if (!e->cache)
        return af_fail_nomem(err, "the caches", bytes);
    const af_cache_sizes c = {z->seqs, z->pages, z->page};
    AF_TRY(af_model_caches(l, e->cache, &c, err));
    AF_TRY(declare_adapters(e, err));
    const af_layer_adapters rows = {e->adapters, e->column, e->group};
    const af_forward_opts o = {.cache = e->cache, .adapters = e->group ? &rows : NULL};
    e->hidden = af_model_forward(l, &e->in, &o);
    if (z->hidden)
        af_graph_output(g, e->hidden);
    e->logits = af_model_logits(l, af_embedding(g, e->last, e->hidden, l->compute), &o);
    af_graph_output(g, e->logits);
    if (z->draws && l->spec->vocab <= AF_DRAW_VOCAB_MAX) {
        e->want = af_graph_input(g, "want", AF_DTYPE_F64, 2, (int64_t[]){z->picks, AF_DRAW_WANTS});
        e->choice = af_token_draw(g, e->logits, e->want, &e->top);
        af_graph_output(g, e->choice);
        af_graph_output(g, e->top);
    }
    AF_TRY(af_graph_status(g, err));
done:
    return st;
}

static uint64_t host_ints(const af_decode_graph *e)
{
    return (uint64_t)(5 * e->z.rows + 2 * e->z.seqs + e->z.picks + 8);
}

static uint64_t drawn_doubles(const af_decode_graph *e)
{
    return (uint64_t)e->z.picks * (AF_DRAW_WANTS + 2 + 2 * AF_DRAW_TOPS_MAX);
}

/* As it comes, and as floats where that is something else. */
static uint64_t raw_floats(const af_decode_graph *e)
{
    const int64_t logits = af_tensor_count(e->logits),
                  hidden = e->z.hidden ? af_tensor_count(e->hidden) : 0;
    return (uint64_t)AF_MAX(logits, hidden) * (e->leaves.compute == AF_DTYPE_F32 ? 1 : 2);
}

/* Everything up to the plan. No other size may be that of the rows, which are live. */
static af_status make(af_decode_graph *e, af_device *d, const af_engine_from *from, af_error *err)
{
    af_status st = AF_OK;
    while (e->z.rows == e->z.seqs || e->z.rows == e->z.seqs + 1 || e->z.rows == e->z.picks)
        e->z.rows++;
    AF_TRY(af_graph_new(&e->graph, err));
    af_graph_set_rows(e->graph, e->z.rows);
    af_graph_set_round_activations(e->graph, e->z.rounded);
    AF_TRY(af_engine_leaves(&e->leaves, e->graph, from, d, err));
    AF_TRY(record(e, err));
done:
    return st;
}

af_status af_decode_graph_open(af_decode_graph *out, af_device *d, const af_engine_from *from,
                               const af_decode_sizes *z, af_error *err)
{
    af_status st = AF_OK;
    af_decode_graph e = {.z = *z};
    AF_TRY(make(&e, d, from, err));
    AF_TRY(af_graph_prepare(e.graph, d, err));
    AF_TRY(af_engine_fill(&e.leaves, from, err));
    e.host = af_calloc(host_ints(&e), sizeof *e.host);
    e.raw = af_calloc(raw_floats(&e), sizeof(float));
    e.drawn = af_calloc(drawn_doubles(&e), sizeof *e.drawn);
    if (!e.host || !e.raw || !e.drawn)
        AF_TRY(af_fail_nomem(err, "logits", raw_floats(&e) * sizeof(float)));
    *out = e;
    e = (af_decode_graph){0};
done:
    af_decode_graph_close(&e);
    return st;
}

af_status af_decode_graph_plan(uint64_t *bytes, af_device *d, const af_engine_from *from,
                               const af_decode_sizes *z, af_error *err)
{
    af_status st = AF_OK;
    af_decode_graph e = {.z = *z};
    af_plan_info p;
    AF_TRY(make(&e, d, from, err));
    AF_TRY(af_graph_plan(e.graph, d, &p, err));
    const uint64_t shared = from->live ? af_graph_shared_bytes(e.graph) : 0;
    *bytes = p.total - shared + host_ints(&e) * sizeof *e.host + raw_floats(&e) * sizeof(float) +
             drawn_doubles(&e) * sizeof *e.drawn;
done:
    af_decode_graph_close(&e);
    return st;
}

void af_decode_graph_close(af_decode_graph *e)
{
    af_graph_free(e->graph);
    af_model_leaves_clear(&e->leaves);
    free(e->host);
    free(e->raw);
    free(e->drawn);
    *e = (af_decode_graph){0};
}

/* ---- runs ---- */

/* Where the images of the inputs lie in `host`. */
typedef struct decode_images {
    int32_t *ids, *positions, *which, *order, *column, *bounds, *start, *last;
    int64_t rows, picks, length; /* of this run */
} decode_images;

/* Rows of one adapter after those of another, then rows without any. */
static void order_rows(const af_decode_sizes *z, const af_decode_feed *f, const int32_t *bounds,
                       int32_t *order)
{
    int64_t rows = 0;
    for (int64_t c = 0; c <= z->adapters; c++)
        for (int64_t k = 0; k < z->seqs; k++)
            for (int64_t t = 0; (f[k].adapter < 0 ? z->adapters : f[k].adapter) == c && t < f[k].n;
                 t++)
                order[rows++] = bounds[k] + (int32_t)t;
    for (; rows < z->rows; rows++)
        order[rows] = (int32_t)rows;
}

static decode_images lay_out(const af_decode_graph *e, const af_decode_feed *f)
{
    const af_decode_sizes *z = &e->z;
    int32_t *at = e->host;
    decode_images m = {.ids = at,
                       .positions = at + z->rows,
                       .which = at + 2 * z->rows,
                       .order = at + 3 * z->rows,
                       .column = at + 4 * z->rows,
                       .length = 1};
    m.bounds = at + 5 * z->rows;
    m.start = m.bounds + z->seqs + 4;
    m.last = m.start + z->seqs;
    for (int64_t k = 0; k < z->seqs; k++) {
        m.bounds[k] = (int32_t)m.rows;
        m.start[k] = (int32_t)f[k].from;
        for (int64_t t = 0; t < f[k].n; t++, m.rows++) {
            m.ids[m.rows] = f[k].ids[t];
            m.positions[m.rows] = (int32_t)(f[k].from + t);
            m.which[m.rows] = f[k].adapter < 0 ? -100 : f[k].adapter;
            m.column[m.rows] = f[k].adapter + 1;
        }
        for (int64_t t = f[k].picks; t > 0; t--)
            m.last[m.picks++] = (int32_t)(m.rows - t);
        m.length = f[k].n ? AF_MAX(m.length, AF_MAX(f[k].length, f[k].from + f[k].n)) : m.length;
    }
    assert(m.rows <= z->rows && m.picks <= z->picks);
    for (int64_t k = z->seqs; k < af_tensor_dim(e->in.bounds, 0); k++)
        m.bounds[k] = (int32_t)m.rows;
    for (int64_t r = m.rows; r < z->rows; r++) { /* a GPU computes rows that nobody wants */
        m.which[r] = -100;
        m.column[r] = 0;
    }
    memset(m.last + m.picks, 0, (size_t)(z->picks - m.picks) * sizeof *m.last);
    if (z->adapters)
        order_rows(z, f, m.bounds, m.order);
    return m;
}

static af_status put(af_decode_graph *e, af_tensor *t, const int32_t *v, af_error *err)
{
    return t ? af_tensor_write(e->graph, t, v, af_tensor_bytes(t), err) : AF_OK;
}

/* Rows of the logits or the hidden states as floats. */
static af_status get(af_decode_graph *e, const af_tensor *t, int64_t from, int64_t rows,
                     const float **out, af_error *err)
{
    const uint64_t count = (uint64_t)(rows * af_tensor_last_dim(t));
    const bool f32 = af_tensor_dtype(t) == AF_DTYPE_F32;
    float *f = f32 ? e->raw : (float *)e->raw + count;
    const af_status st = af_tensor_read_rows(e->graph, t, from, rows, e->raw, err);
    if (st == AF_OK && !f32)
        af_convert(f, AF_DTYPE_F32, e->raw, af_tensor_dtype(t), count);
    *out = f;
    return st;
}

/* Where choice and top lie after want. */
static double *choices(const af_decode_graph *e) { return e->drawn + e->z.picks * AF_DRAW_WANTS; }
static double *tops(const af_decode_graph *e) { return choices(e) + e->z.picks * 2; }

/* *draws, *lists: some row is drawn, some with a list of the most likely tokens. */
static af_status put_wants(af_decode_graph *e, const af_decode_feed *f, bool *draws, bool *lists,
                           af_error *err)
{
    double *at = e->drawn;
    *draws = *lists = false;
    if (!e->want)
        return AF_OK;
    for (int64_t i = 0; i < e->z.picks; i++)
        at[i * AF_DRAW_WANTS] = -1;
    for (int64_t k = 0; k < e->z.seqs; at += f[k++].picks * AF_DRAW_WANTS)
        if (f[k].picks && f[k].draws) {
            memcpy(at + (f[k].picks - 1) * AF_DRAW_WANTS, f[k].want, sizeof f[k].want);
            *draws = true;
            *lists |= f[k].want[AF_DRAW_TOPS] > 0;
        }
    return af_tensor_write(e->graph, e->want, e->drawn, af_tensor_bytes(e->want), err);
}

af_status af_decode_graph_run(af_decode_graph *e, const af_decode_feed *f, const int32_t *pages,
                              bool one, af_error *err)
{
    bool draws, lists;
    af_status st = AF_OK;
    const decode_images m = lay_out(e, f);
    AF_TRY(af_model_write_rope(&e->leaves, m.length, err));
    AF_TRY(put(e, e->in.ids, m.ids, err));
    AF_TRY(put(e, e->in.positions, m.positions, err));
    AF_TRY(put(e, e->in.bounds, m.bounds, err));
    AF_TRY(put(e, e->in.start, m.start, err));
    if (af_tensor_is_stored(e->in.pages)) /* a model may have no attention */
        AF_TRY(put(e, e->in.pages, pages, err));
    AF_TRY(put(e, e->adapters.which, m.which, err));
    AF_TRY(put(e, e->adapters.order, m.order, err));
    AF_TRY(put(e, e->column, m.column, err));
    AF_TRY(put(e, e->last, m.last, err));
    AF_TRY(put_wants(e, f, &draws, &lists, err));
    af_graph_set_one_token(e->graph, one, e->z.least);
    af_graph_set_live_rows(e->graph, m.rows);
    af_graph_set_live_picks(e->graph, m.picks);
    AF_TRY(af_graph_run(e->graph, AF_RUN_FORWARD, err));
    e->live = m.rows;
    if (draws)
        AF_TRY(af_tensor_read_live(e->graph, e->choice, choices(e), err));
    if (lists)
        AF_TRY(af_tensor_read_live(e->graph, e->top, tops(e), err));
done:
    return st;
}

af_status af_decode_graph_logits(af_decode_graph *e, int64_t from, int64_t count,
                                 const float **logits, af_error *err)
{
    return get(e, e->logits, from, count, logits, err);
}

const double *af_decode_graph_choice(const af_decode_graph *e, int64_t row)
{
    return choices(e) + row * 2;
}

const double *af_decode_graph_top(const af_decode_graph *e, int64_t row)
{
    return tops(e) + row * 2 * AF_DRAW_TOPS_MAX;
}

af_status af_decode_graph_hidden(af_decode_graph *e, const float **rows, af_error *err)
{
    return get(e, e->hidden, 0, e->live, rows, err);
}

static af_status move_one(af_decode_graph *to, af_tensor *t, af_decode_graph *from,
                          const af_tensor *f, af_error *err)
{
    af_status st = AF_OK;
    if (!t)
        return AF_OK;
    const uint64_t bytes = af_tensor_bytes(t);
    void *values = af_calloc(bytes, 1);
    if (!values)
        return af_fail_nomem(err, "a cache", bytes);
    AF_TRY(af_tensor_read(from->graph, f, values, bytes, err));
    AF_TRY(af_tensor_write(to->graph, t, values, bytes, err));
done:
    free(values);
    return st;
}

af_status af_decode_graph_move(af_decode_graph *to, af_decode_graph *from, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < to->leaves.spec->layers; i++) {
        const af_layer_cache *t = &to->cache[i], *f = &from->cache[i];
        if (to->leaves.spec->layer[i].kv_from != i)
            continue;
        AF_TRY(move_one(to, t->kv, from, f->kv, err));
        AF_TRY(move_one(to, t->conv, from, f->conv, err));
        AF_TRY(move_one(to, t->state, from, f->state, err));
    }
done:
    return st;
}
