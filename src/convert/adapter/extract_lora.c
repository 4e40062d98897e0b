/* extract_lora.c - the difference of two models as a PEFT adapter: af_extract_lora.
 *
 * Every linear of the layers gets B = U sqrt(S), A = sqrt(S) V^T of its difference; alpha = r, so
 * that the scale is 1. Linears that do not differ are left out. What an adapter cannot hold
 * (embeddings, norms, biases) is named in the log when it differs. */
#include "afinar/convert.h"
#include "base/log.h"
#include "convert/input/folder_text.h"
#include "convert/input/layer_names.h"
#include "convert/output/folder_out.h"
#include "convert/output/model_card.h"
#include "model/adapter_config.h"
#include "model/model_reader.h"
#include "tensor/svd.h"

#include <math.h>

enum { NAME_BYTES = 1024 };

typedef struct lora_part {
    const af_model_tensor *base, *model;
    const char *path;      /* of the module, as PEFT has it */
    int64_t rank, in, out; /* rank: of the adapter; what is above that of the matrix is 0 */
    float *a, *b;          /* [rank][in], [out][rank] */
} lora_part;

typedef struct lora_extraction {
    af_model_reader *base, *model;
    af_pool *pool;
    int rank;
    lora_part *list;
    int count, skipped;
    double all2, kept2;
    af_arena arena;
} lora_extraction;

static bool has_any(const char *name, const char *const *part, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(name, part[i]))
            return true;
    return false;
}

/* PEFT has adapters on routers of this name, of the rank of all others. */
static bool is_gate(const char *name) { return strstr(name, ".mlp.gate.weight") != NULL; }

/* Routers that are no linears in transformers 5. */
static bool is_other_router(const char *name)
{
    const size_t n = strlen(name), m = strlen(".gate.weight");
    return strstr(name, ".router.") ||
           (n >= m && strcmp(name + n - m, ".gate.weight") == 0 && !is_gate(name));
}

/* A linear that PEFT can adapt: inside the layers, next to them, or the head. */
static bool is_linear(const af_model_tensor *t)
{
    static const char *const outside[] = {".project_in.", ".project_out."};
    const size_t n = strlen(t->name);
    if (t->ndim != 2 || n < 7 || strcmp(t->name + n - 7, ".weight") != 0)
        return false;
    if (strncmp(t->name, "lm_head.", 8) == 0)
        return true;
    return (af_name_in_layer(t->name) || has_any(t->name, outside, AF_LEN(outside))) &&
           !af_name_of_norm(t->name) && !is_other_router(t->name);
}

/* Whether the tensor of a multimodal repository is of its text model: PEFT calls modules of the
 * others by names that the folder does not tell. */
static bool is_text(const lora_extraction *j, const char *name)
{
    const af_model_reader *in = j->base;
    return !in->config.nested || !in->matched ||
           strncmp(name, in->prefix, strlen(in->prefix)) == 0 || strstr(name, "lm_head.");
}

/* "model.layers.0.self_attn.q_proj" of the weight's name, in memory. */
static const char *module_path(lora_extraction *j, const char *name)
{
    char own[NAME_BYTES], whole[NAME_BYTES];
    snprintf(whole, sizeof whole, "%s", name);
    if (j->base->config.nested && j->base->matched) {
        af_model_reader_own_name(j->base, name, own, sizeof own);
        af_spec_whole_name(&j->base->spec, own, whole, sizeof whole);
    }
    return af_arena_strndup(&j->arena, whole, strlen(whole) - strlen(".weight"));
}

/* Matrices of Conv1D lie turned on disk, [in][out]: their A is of the rows. */
static bool is_turned(const lora_extraction *j)
{
    const af_arch *a = af_arch_find(j->base->config.model_type);
    return a && a->linears_turned;
}

static af_status read_delta(lora_extraction *j, const af_model_tensor *x, const af_model_tensor *y,
                            float *out, af_error *err)
{
    af_status st = AF_OK;
    af_tensor_view vx = {0}, vy = {0};
    float *row = af_calloc((uint64_t)af_model_tensor_cols(x), sizeof *row);
    if (!row)
        return af_fail_nomem(err, x->name, (uint64_t)af_model_tensor_cols(x) * 4);
    AF_TRY(af_tensor_view_open(&vx, j->base, x, err));
    AF_TRY(af_tensor_view_open(&vy, j->model, y, err));
    const int64_t rows = af_model_tensor_rows(x), cols = af_model_tensor_cols(x);
    for (int64_t r = 0; r < rows; r++) {
        af_tensor_view_rows(&vx, r, 1, row);
        af_tensor_view_rows(&vy, r, 1, out + r * cols);
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] -= row[c];
    }
done:
    free(row);
    if (vx.in)
        af_tensor_view_close(&vx);
    if (vy.in)
        af_tensor_view_close(&vy);
    return st;
}

static af_status decompose(lora_extraction *j, lora_part *p, const float *d, af_error *err)
{
    af_status st = AF_OK;
    const int64_t rows = af_model_tensor_rows(p->base), cols = af_model_tensor_cols(p->base),
                  W = p->rank, R = AF_MIN(W, AF_MIN(rows, cols));
    const bool turned = is_turned(j) && strncmp(p->base->name, "lm_head.", 8) != 0;
    p->in = turned ? rows : cols;
    p->out = turned ? cols : rows;
    double *s = af_calloc((uint64_t)R, sizeof *s);
    double *u = af_calloc((uint64_t)(R * rows), sizeof *u);
    double *v = af_calloc((uint64_t)(R * cols), sizeof *v);
    p->a = af_arena_take(&j->arena, (uint64_t)(W * p->in) * sizeof *p->a);
    p->b = af_arena_take(&j->arena, (uint64_t)(W * p->out) * sizeof *p->b);
    if (!s || !u || !v || !p->a || !p->b)
        AF_TRY(af_fail_nomem(err, p->base->name, (uint64_t)(R * (rows + cols)) * 12));
    AF_TRY(af_svd(d, rows, cols, R, 0, 0, j->pool, s, u, v, err));
    for (int64_t k = 0; k < R; k++) {
        const double root = sqrt(s[k]);
        const double *of_in = turned ? u + k * rows : v + k * cols,
                     *of_out = turned ? v + k * cols : u + k * rows;
        j->kept2 += s[k] * s[k];
        for (int64_t c = 0; c < p->in; c++)
            p->a[k * p->in + c] = (float)(root * of_in[c]);
        for (int64_t r = 0; r < p->out; r++)
            p->b[r * W + k] = (float)(root * of_out[r]);
    }
done:
    free(s);
    free(u);
    free(v);
    return st;
}

static af_status add_tensor(lora_extraction *j, const af_model_tensor *x, af_error *err)
{
    af_status st = AF_OK;
    const af_model_tensor *y = af_model_reader_find(j->model, x->name);
    const int64_t n = af_model_tensor_values(x);
    double sum = 0;
    if (!y || !af_model_tensor_same_shape(x, y))
        return af_fail(err, AF_EFORMAT, "tensor '%s' is %s in '%s'", x->name,
                       y ? "of another shape" : "missing", j->model->path);
    float *d = af_calloc((uint64_t)n, sizeof *d);
    if (!d)
        return af_fail_nomem(err, x->name, (uint64_t)n * 4);
    AF_TRY(read_delta(j, x, y, d, err));
    for (int64_t i = 0; i < n; i++)
        sum += (double)d[i] * d[i];
    if (sum != 0 && (!is_linear(x) || !is_text(j, x->name))) { /* also when it is not a number */
        j->skipped++;
        af_log_write(AF_LOG_WARN, "'%s' differs, but an adapter does not hold it", x->name);
    } else if (!isfinite(sum)) {
        st =
            af_fail(err, AF_EFORMAT, "the difference of tensor '%s' in '%s' and '%s' is not finite",
                    x->name, j->base->path, j->model->path);
    } else if (sum > 0) {
        lora_part *p = &j->list[j->count++];
        *p = (lora_part){.base = x, .model = y, .path = module_path(j, x->name)};
        if (!p->path)
            AF_TRY(af_fail_nomem(err, x->name, NAME_BYTES));
        p->rank = is_gate(x->name) ? j->rank : AF_MIN(j->rank, AF_MIN(x->dim[0], x->dim[1]));
        j->all2 += sum;
        AF_TRY(decompose(j, p, d, err));
    }
done:
    free(d);
    return st;
}

/* ---- the adapter's files ---- */

static void put_targets(const lora_extraction *j, json_t *config)
{
    json_t *list = json_array(), *ranks = json_object(), *alphas = json_object();
    for (int i = 0; i < j->count; i++) {
        const char *path = j->list[i].path;
        json_array_append_new(list, json_string(path));
        if (j->list[i].rank != j->rank) { /* narrower than the rank */
            json_object_set_new(ranks, path, json_integer(j->list[i].rank));
            json_object_set_new(alphas, path, json_integer(j->list[i].rank));
        }
    }
    json_object_set_new(config, "target_modules", list);
    json_object_set_new(config, "rank_pattern", ranks);
    json_object_set_new(config, "alpha_pattern", alphas);
}

static af_status write_config(const lora_extraction *j, const af_output *f, const char *base,
                              af_error *err)
{
    json_t *c = json_pack("{s:s, s:s, s:i, s:i, s:f, s:b, s:b, s:b, s:b, s:n, s:s, s:b}",
                          "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", j->rank, "lora_alpha",
                          j->rank, "lora_dropout", 0.0, "use_rslora", 0, "use_dora", 0,
                          "inference_mode", 1, "fan_in_fan_out", is_turned(j), "modules_to_save",
                          "bias", "none", "init_lora_weights", 1);
    if (!c)
        return af_fail_nomem(err, "adapter_config.json", 0);
    af_adapter_put_base(c, base);
    put_targets(j, c);
    const af_status st = af_json_write(f->temp, "adapter_config.json", c, err);
    json_decref(c);
    return st;
}

static af_status write_values(const lora_extraction *j, const af_output *f, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors_writer *w = NULL;
    char name[NAME_BYTES];
    char *path = af_path_join(f->temp, "adapter_model.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", 0);
    AF_TRY(af_safetensors_writer_new(&w, path, 0, err));
    for (int i = 0; i < j->count; i++) {
        const lora_part *p = &j->list[i];
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", p->path);
        AF_TRY(
            af_safetensors_writer_add(w, name, AF_DTYPE_F32, (int64_t[]){p->rank, p->in}, 2, err));
        snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", p->path);
        AF_TRY(
            af_safetensors_writer_add(w, name, AF_DTYPE_F32, (int64_t[]){p->out, p->rank}, 2, err));
    }
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int i = 0; i < j->count; i++) {
        const lora_part *p = &j->list[i];
        const uint64_t R = (uint64_t)p->rank * 4;
        AF_TRY(af_safetensors_writer_data(w, p->a, R * (uint64_t)p->in, err));
        AF_TRY(af_safetensors_writer_data(w, p->b, R * (uint64_t)p->out, err));
    }
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    af_safetensors_writer_abandon(w);
    free(path);
    return st;
}

static af_status write_card(const lora_extraction *j, const af_output *f, const char *base,
                            const char *model, af_error *err)
{
    af_card c = {.library = "peft",
                 .relation = "adapter",
                 .base = {base},
                 .base_path = {j->base->path},
                 .bases = 1,
                 .tags = {"lora"}};
    af_buf b = {0};
    af_buf_str(&b, "The difference of ");
    af_card_code(&b, model);
    af_buf_str(&b, " and ");
    af_card_code(&b, base);
    af_buf_printf(
        &b, " as a LoRA adapter of rank %d. It represents %.2f %% of the squared difference.\n",
        j->rank, 100 * (j->all2 > 0 ? j->kept2 / j->all2 : 1));
    return af_card_put(f, &c, &b, err);
}

af_status af_extract_lora(const char *base, const char *model, const char *out,
                          const af_extract_opts *o, double *kept, af_error *err)
{
    AF_NEED(err, base, model, out, o);
    af_status st = AF_OK;
    const int rank = o->rank;
    lora_extraction j = {.rank = rank};
    af_output f = {0};
    if (rank < 1 || rank > AF_ADAPTER_RANK_MAX)
        return af_fail(err, AF_EUSAGE, "rank %d is not between 1 and %d", rank,
                       AF_ADAPTER_RANK_MAX);
    AF_TRY(af_model_reader_open_list(&j.base, base, err));
    AF_TRY(af_model_reader_open_list(&j.model, model, err));
    if (j.base->config.nested && af_arch_find(j.base->config.model_type))
        AF_TRY(af_model_reader_match(j.base, err)); /* for the names */
    AF_TRY(af_folder_open(&f, out, (const char *const[]){j.base->path, j.model->path}, 2, o->force,
                          err));
    AF_TRY(af_pool_new(&j.pool, o->threads, err));
    j.list = af_calloc((uint64_t)AF_MAX(j.base->count, 1), sizeof *j.list);
    if (!j.list)
        AF_TRY(af_fail_nomem(err, "the tensor list", (uint64_t)j.base->count * sizeof *j.list));
    for (int i = 0; i < j.base->count; i++)
        AF_TRY(add_tensor(&j, &j.base->tensor[i], err));
    if (j.count == 0)
        AF_TRY(af_fail(err, AF_EUSAGE, "'%s' and '%s' do not differ in any linear", base, model));
    AF_TRY(write_config(&j, &f, base, err));
    AF_TRY(write_values(&j, &f, err));
    AF_TRY(write_card(&j, &f, base, model, err));
    AF_TRY(af_output_commit(&f, err));
    if (kept)
        *kept = j.all2 > 0 ? j.kept2 / j.all2 : 1;
done:
    af_output_abandon(&f);
    free(j.list);
    af_pool_free(j.pool);
    af_model_reader_close(j.base);
    af_model_reader_close(j.model);
    af_arena_clear(&j.arena);
    return st;
}
