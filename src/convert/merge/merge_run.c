/* merge_run.c - one merge: opens the models, runs the method over every tensor, writes. */
#include "convert/merge/merge_run.h"
#include "convert/output/model_card.h"

#include "base/log.h"
#include "convert/output/convert_report.h"
#include "convert/output/model_out.h"

enum { CHUNK_BLOCKS = 64, PAUSE_CHUNKS = 32 };

/* ---- rows ---- */

/* Whether n values of `size` bytes are 0 or -0. */
static bool is_zero(const void *values, uint64_t n, uint64_t size)
{
    const uint8_t *p = values;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < size; k++)
            if (p[i * size + k] & (k + 1 == size ? 0x7f : 0xff))
                return false;
    return true;
}

/* Values that are not of the merge's type already. */
static void round_values(af_dtype dtype, float *x, int64_t n)
{
    enum { RUN = 512 };
    uint16_t half[RUN];
    for (int64_t i = 0; i < n; i += RUN) {
        const uint64_t count = (uint64_t)AF_MIN(RUN, n - i);
        af_convert(half, dtype, x + i, AF_DTYPE_F32, count);
        af_convert(x + i, AF_DTYPE_F32, half, dtype, count);
    }
}

static void read_rows(const af_merge_inputs *in, int view, int64_t row, int64_t rows, float *out,
                      float *spare)
{
    const af_model_tensor *t = in->item->tensor[view];
    const bool tokens = in->item->embed && in->r->tokens.active; /* means of rows */
    if (tokens)
        af_merge_token_rows(in, view, row, rows, out, spare);
    else
        af_tensor_view_rows(&in->view[view], row, rows, out);
    af_merge_watch *w = in->r->watch;
    if (in->last && !w->nonfinite &&
        !(tokens ? af_all_finite(AF_DTYPE_F32, out, rows * af_model_tensor_cols(t))
                 : af_tensor_view_rows_finite(&in->view[view], row, rows, out)))
        w->nonfinite = true;
    if (in->last && !w->input_nonzero &&
        !is_zero(out, (uint64_t)(rows * af_model_tensor_cols(t)), sizeof *out))
        w->input_nonzero = true;
    const af_merge_config *c = in->r->config;
    const bool half = c->has_dtype && (c->dtype == AF_DTYPE_BF16 || c->dtype == AF_DTYPE_F16);
    if (half && (tokens || !af_tensor_view_is_raw(&in->view[view]) || t->stored->dtype != c->dtype))
        round_values(c->dtype, out, rows * af_model_tensor_cols(t));
}

static void read_block(const af_merge_task *t, int64_t row, int64_t rows, float *const *x,
                       float *base)
{
    const af_merge_inputs *in = t->user;
    /* After the inputs there is scratch of four blocks. */
    float *spare = x[t->n - 1] + t->block_rows * t->cols;
    for (int k = 0; k < t->n; k++)
        read_rows(in, in->view_of[k], row, rows, x[k], spare);
    if (in->base >= 0)
        read_rows(in, in->base, row, rows, base, spare);
}

/* Mapped pages count as ours until they are released. */
static void forget_pages(const af_merge_task *t)
{
    const af_merge_inputs *in = t->user;
    for (int i = 0; i < in->item->n; i++)
        if (in->item->tensor[i]->stored)
            af_weights_forget(in->view[i].in->weights, in->item->tensor[i]->stored);
}

/* Once, for the first tensor: a merge carries it into the result, or drops it, silently.
 */
static void warn_nonfinite(const af_merge_inputs *in, af_merge_watch *w)
{
    const af_merge_item *m = in->item;
    for (int i = 0; i < m->n && !w->warned; i++) {
        if (af_tensor_view_finite(&in->view[i]))
            continue;
        w->warned = true;
        af_log_write(AF_LOG_WARN, "tensor '%s' of model '%s' has values that are NaN or infinite",
                     m->tensor[i]->name, in->r->config->model[m->source[i]->model]);
    }
}

/* ---- parameters ---- */

typedef struct param_slot {
    const char *key;
    double *value;
    double absent;
} param_slot;

static af_status read_weights(const af_merge_run *r, const af_merge_item *m, int view,
                              af_merge_task *t, af_error *err)
{
    af_merge_weights *w = &t->w[t->n];
    const param_slot list[] = {{"weight", &w->weight, 1},
                               {"density", &w->density, 1},
                               {"gamma", &w->gamma, 0.01},
                               {"epsilon", &w->epsilon, 0.15},
                               {"scale", &w->scale, 1}};
    for (size_t i = 0; i < AF_LEN(list); i++) {
        bool found;
        const af_status st = af_merge_param(r->config, list[i].key, m->tensor[view]->name, m->t,
                                            &r->config->slice[m->slice], m->source[view],
                                            list[i].value, &found, err);
        if (st != AF_OK)
            return st;
        if (!found)
            *list[i].value = list[i].absent;
        t->has_scale |= found && i == 4;
        if (i == 1 && !(w->density >= 0 && w->density <= 1))
            return af_fail(err, AF_EUSAGE, "%s:%d: density %g of '%s' is not between 0 and 1",
                           r->config->file, m->source[view]->line, w->density,
                           r->config->model[m->source[view]->model]);
        if (!found && i == 0 && r->config->method->needs_weight)
            return af_fail(err, AF_EUSAGE, "%s:%d: '%s' has no weight for tensor '%s'",
                           r->config->file, m->source[view]->line,
                           r->config->model[m->source[view]->model], m->name);
    }
    return AF_OK;
}

static af_status read_shared(const af_merge_run *r, const af_merge_item *m, af_merge_task *t,
                             af_error *err)
{
    double normalize, rescale, flatten, row_wise, normalize_weights, filter_wise, iterations;
    af_merge_shared *p = &t->p;
    const param_slot list[] = {{"t", &p->t, 0},
                               {"lambda", &p->lambda, 1},
                               {"eps", &p->eps, 1e-8},
                               {"tol", &p->tol, 1e-5},
                               {"select_topk", &p->select_topk, 1},
                               {"epsilon", &p->epsilon, 1e-5},
                               {"r", &p->r, 0.1},
                               {"alpha", &p->alpha, 0.2},
                               {"max_iter", &iterations, 10},
                               {"normalize", &normalize, r->config->method->normalize},
                               {"rescale", &rescale, 1},
                               {"nuslerp_flatten", &flatten, 1},
                               {"nuslerp_row_wise", &row_wise, 0},
                               {"normalize_weights", &normalize_weights, 1},
                               {"filter_wise", &filter_wise, 0}};
    for (size_t i = 0; i < AF_LEN(list); i++) {
        bool found;
        const af_status st =
            af_merge_param(r->config, list[i].key, m->name, m->t, &r->config->slice[m->slice], NULL,
                           list[i].value, &found, err);
        if (st != AF_OK)
            return st;
        if (!found)
            *list[i].value = list[i].absent;
        if (!found && i == 0 && r->config->method->needs_t)
            return af_fail(err, AF_EUSAGE, "%s: method '%s' needs 't' for tensor '%s'",
                           r->config->file, r->config->method->name, m->name);
    }
    p->max_iter = (int)iterations;
    p->normalize = normalize != 0;
    p->rescale = rescale != 0;
    p->flatten = flatten != 0;
    p->row_wise = row_wise != 0;
    p->normalize_weights = normalize_weights != 0;
    p->filter_wise = filter_wise != 0;
    return AF_OK;
}

/* ---- one tensor ---- */

static af_status set_up(const af_merge_run *r, const af_merge_item *m, af_merge_inputs *in,
                        af_merge_task *t, af_error *err)
{
    af_status st = AF_OK;
    *in = (af_merge_inputs){.r = r, .item = m, .base = -1};
    *t = (af_merge_task){.name = m->name,
                         .cols = m->ndim ? m->dim[m->ndim - 1] : 1,
                         .count = 1,
                         .seed = r->o->seed,
                         .pool = r->pool,
                         .read = read_block,
                         .pause = forget_pages,
                         .user = in};
    for (int i = 0; i < m->ndim; i++)
        t->count *= m->dim[i];
    t->rows = t->cols ? t->count / t->cols : 0;
    t->block_rows = AF_MAX(AF_MERGE_BLOCK_VALUES / AF_MAX(t->cols, 1), 1);
    t->blocks = (t->rows + t->block_rows - 1) / t->block_rows;
    for (int i = 0; i < m->n; i++) {
        AF_TRY(af_tensor_view_open(&in->view[i], r->in[m->source[i]->model], m->tensor[i], err));
        if (m->source[i]->model == r->config->slice[m->slice].base && in->base < 0) {
            in->base = i;
            continue;
        }
        AF_TRY(read_weights(r, m, i, t, err));
        in->view_of[t->n++] = i;
    }
    t->has_base = in->base >= 0;
    if (m->embed && r->tokens.active)
        AF_TRY(af_merge_token_rows_prepare(in, err));
    AF_TRY(read_shared(r, m, t, err));
done:
    return st;
}

static af_status write_chunks(const af_merge_run *r, const af_merge_item *m, af_merge_task *t,
                              af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t size = (uint64_t)af_dtype_get(m->dtype)->bytes;
    const int64_t step = AF_MIN(CHUNK_BLOCKS, t->blocks);
    const uint64_t count = (uint64_t)(step * t->block_rows * t->cols);
    float *out = af_calloc(AF_MAX(count, 1), sizeof *out);
    uint8_t *bytes = af_calloc(AF_MAX(count, 1), size);
    if (!out || !bytes)
        AF_TRY(af_fail_nomem(err, m->name, count * (4 + size)));
    for (int64_t from = 0; from < t->blocks; from += step) {
        const int64_t n = AF_MIN(step, t->blocks - from);
        const int64_t rows = AF_MIN(n * t->block_rows, t->rows - from * t->block_rows);
        AF_TRY(af_merge_emit(t, r->config->method->emit, from, n, out, err));
        af_convert(bytes, m->dtype, out, AF_DTYPE_F32, (uint64_t)(rows * t->cols));
        if (m->dtype == AF_DTYPE_F16 && !r->watch->nonfinite &&
            !af_all_finite(m->dtype, bytes, rows * t->cols)) /* inputs are rounded to it first */
            AF_TRY(af_fail_overflow(err, m->name, m->dtype));
        if (!r->watch->output_nonzero)
            r->watch->output_nonzero = !is_zero(bytes, (uint64_t)(rows * t->cols), size);
        AF_TRY(af_safetensors_writer_data(w, bytes, (uint64_t)(rows * t->cols) * size, err));
        if (from / step % PAUSE_CHUNKS == PAUSE_CHUNKS - 1)
            forget_pages(t);
    }
done:
    free(out);
    free(bytes);
    return st;
}

static af_status merge_item(const af_merge_run *r, const af_merge_item *m, af_safetensors_writer *w,
                            af_error *err)
{
    af_status st = AF_OK;
    af_merge_inputs *in = af_calloc(1, sizeof *in);
    af_merge_task *t = af_calloc(1, sizeof *t);
    if (!in || !t)
        AF_TRY(af_fail_nomem(err, m->name, sizeof *in + sizeof *t));
    AF_TRY(set_up(r, m, in, t, err));
    if (r->config->method->prepare)
        AF_TRY(r->config->method->prepare(t, err));
    in->last = true;
    r->watch->input_nonzero = r->watch->output_nonzero = false;
    AF_TRY(write_chunks(r, m, t, w, err));
    if (r->watch->input_nonzero && !r->watch->output_nonzero && r->watch->zeros++ == 0)
        r->watch->first_zero = m->name;
    if (r->watch->nonfinite && !r->watch->warned)
        warn_nonfinite(in, r->watch);
done:
    for (int i = 0; in && i < m->n; i++)
        if (in->view[i].in)
            af_tensor_view_close(&in->view[i]);
    if (in)
        free(in->mean);
    if (t) {
        free(t->equal_before);
        free(t->by_row);
    }
    free(t);
    free(in);
    return st;
}

/* ---- all ---- */

static af_status write_model(const af_merge_run *r, const af_output *f, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors_writer *w = NULL;
    char *path = af_path_join(f->temp, "model.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", 0);
    AF_TRY(af_safetensors_writer_new(&w, path,
                                     r->o->shard_bytes ? r->o->shard_bytes : AF_SHARD_BYTES, err));
    for (int i = 0; i < r->items; i++)
        AF_TRY(af_safetensors_writer_add(w, r->item[i].name, r->item[i].dtype, r->item[i].dim,
                                         r->item[i].ndim, err));
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int i = 0; i < r->items; i++)
        AF_TRY(merge_item(r, &r->item[i], w, err));
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    af_safetensors_writer_abandon(w);
    free(path);
    return st;
}

/* The card names the models and holds the merge file. */
static af_status write_card(const af_merge_run *r, const af_output *f, af_error *err)
{
    enum { FILE_MAX = 1 << 26, SHOWN_MAX = 1 << 20 };
    af_status st = AF_OK;
    const af_merge_config *m = r->config;
    af_card c = {.library = "transformers", .relation = "merge", .tags = {"mergekit", "merge"}};
    af_buf b = {0};
    char *text = NULL;
    uint64_t n = 0;
    af_buf_printf(&b, "A merge of language models with the method `%s`", m->method->name);
    if (m->base >= 0) {
        af_buf_str(&b, " and the base ");
        af_card_code(&b, m->model[m->base]);
    }
    af_buf_str(&b, ".\n\n## Models\n\n");
    for (int i = 0; i < m->models; i++) {
        c.base[c.bases] = m->model[i];
        c.base_path[c.bases++] = r->in[i]->path;
        af_buf_str(&b, "- ");
        af_card_code(&b, m->model[i]);
        af_buf_char(&b, '\n');
    }
    if (af_file_exists(m->file)) /* not - for stdin */
        st = af_file_read(&text, &n, m->file, FILE_MAX, err);
    if (text && n <= SHOWN_MAX) {
        af_buf_str(&b, "\n## Merge configuration\n\n");
        af_card_fence(&b, "yaml", text, n);
    }
    free(text);
    if (st == AF_OK)
        st = af_card_put(f, &c, &b, err);
    else
        af_buf_clear(&b);
    return st;
}

/* Weights that cancel, a scale of 0, a density that drops everything: never what is wanted. */
static void warn_zeros(const af_merge_run *r)
{
    const af_merge_watch *w = r->watch;
    if (w->zeros == r->items)
        af_log_write(AF_LOG_WARN,
                     "the result is all zeros: check the weights, densities and scales in %s",
                     r->config->file);
    else if (w->zeros)
        af_log_write(
            AF_LOG_WARN,
            "%d of %d tensors of the result are all zeros although those of the models are "
            "not, the first is '%s': check the weights, densities and scales in %s",
            w->zeros, r->items, w->first_zero, r->config->file);
}

static void fill_plan(const af_merge_run *r, af_merge_plan *p)
{
    *p = (af_merge_plan){
        .tensors = r->items, .models = r->config->models, .method = r->config->method->name};
    uint64_t most = 0;
    for (int i = 0; i < r->items; i++) {
        const af_merge_item *m = &r->item[i];
        uint64_t n = 1, bytes = 0;
        for (int k = 0; k < m->ndim; k++)
            n *= (uint64_t)m->dim[k];
        p->params += (int64_t)n;
        (void)af_dtype_bytes(m->dtype, n, &bytes);
        p->write_bytes += bytes;
        const uint64_t cols = m->ndim ? (uint64_t)m->dim[m->ndim - 1] : 1;
        const uint64_t block = AF_MAX(AF_MERGE_BLOCK_VALUES, cols) * 4;
        uint64_t mapped = 0;
        for (int k = 0; k < m->n; k++)
            if (m->tensor[k]->stored) {
                const af_stored *s = m->tensor[k]->stored;
                const uint64_t stretch = AF_MERGE_STRETCH * block / 4 * s->bytes;
                p->read_bytes += s->bytes;
                mapped += AF_MIN(s->bytes, stretch / (uint64_t)AF_MAX(af_weight_count(s), 1));
            }
        most = AF_MAX(most,
                      mapped + block * (uint64_t)(m->n + 5) * (uint64_t)af_pool_threads(r->pool) +
                          block * CHUNK_BLOCKS * 2 +
                          (uint64_t)m->n * 2 * (8 << 16) * (uint64_t)af_pool_threads(r->pool));
    }
    p->memory_bytes = most;
}

/* Tensors of one name mean other things in models of other architectures, and what only some of
 * them have would be left out. */
static af_status check_types(const af_merge_run *r, af_error *err)
{
    const af_model_reader *a = r->in[0];
    for (int i = 1; i < r->config->models && !r->o->mixed; i++) {
        const af_model_reader *b = r->in[i];
        if (strcmp(a->config.model_type, b->config.model_type) != 0)
            return af_fail(err, AF_EUSAGE,
                           "%s: '%s' is a %s and '%s' a %s: models of different architectures are "
                           "merged with --allow-crimes only",
                           r->config->file, r->config->model[0], a->config.model_type,
                           r->config->model[i], b->config.model_type);
    }
    return AF_OK;
}

static af_status run_all(af_merge_run *r, const char *out, af_merge_plan *plan, af_error *err)
{
    af_status st = AF_OK;
    const char *paths[AF_MERGE_MODELS_MAX];
    af_output f = {0};
    for (int i = 0; i < r->config->models; i++) {
        st = af_model_reader_open_list(&r->in[i], r->config->model[i], err);
        if (st != AF_OK) {
            af_fail_prefix(st, err, "%s: model '%s'", r->config->file, r->config->model[i]);
            goto done;
        }
        paths[i] = r->in[i]->path;
    }
    AF_TRY(check_types(r, err));
    AF_TRY(af_pool_new(&r->pool, r->o->threads, err));
    AF_TRY(af_merge_tokens_init(&r->tokens, r, err));
    AF_TRY(af_merge_plan_items(r, err));
    if (plan)
        fill_plan(r, plan);
    if (r->o->plan)
        goto done;
    AF_TRY(af_folder_open(&f, out, paths, r->config->models, r->o->force, err));
    AF_TRY(af_merge_text(r, &f, err));
    AF_TRY(write_model(r, &f, err));
    warn_zeros(r);
    AF_TRY(write_card(r, &f, err));
    AF_TRY(af_output_commit(&f, err));
done:
    af_output_abandon(&f);
    return st;
}

af_status af_merge_config_run(const af_merge_config *c, const char *out, const af_merge_opts *o,
                              af_merge_plan *plan, af_error *err)
{
    af_merge_watch watch = {0};
    af_merge_run *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, "a merge", sizeof *r);
    r->config = c;
    r->o = o;
    r->watch = &watch;
    const af_status st = run_all(r, out, plan, err);
    for (int i = 0; i < AF_MERGE_MODELS_MAX; i++)
        af_model_reader_close(r->in[i]);
    af_merge_tokens_clear(&r->tokens);
    af_pool_free(r->pool);
    af_arena_clear(&r->arena);
    free(r);
    return st;
}
