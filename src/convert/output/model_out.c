/* model_out.c - see model_out.h. */
#include "convert/output/model_out.h"

#include "base/file.h"
#include "base/log.h"
#include "convert/input/gguf_text.h"
#include "convert/output/convert_report.h"
#include "format/chat/chat_template.h"
#include "format/text/json_text.h"
#include "format/tokenizer/token_edit.h"
#include "format/tokenizer/tokenizer.h"
#include "model/adapter_texts.h"

#include <stdatomic.h>

enum { PIECE_VALUES = 1 << 16, PIECES = 32 };

typedef struct tensor_writer {
    const af_tensor_view *v;
    int64_t cols, rows, piece_rows, first;
    af_dtype dtype;
    uint64_t size; /* of an element */
    float *values; /* [PIECES][piece_rows * cols] */
    uint8_t *bytes;
    atomic_bool nonfinite; /* a value is not finite */
    atomic_bool too_large; /* a finite value is larger than dtype can hold */
} tensor_writer;

af_status af_fail_overflow(af_error *err, const char *name, af_dtype dtype)
{
    return af_fail(err, AF_EUSAGE,
                   "tensor '%s' has values larger than %s can hold: choose another type", name,
                   af_dtype_name(dtype));
}

static void convert_piece(void *arg, int64_t from, int64_t to, int share)
{
    tensor_writer *c = arg;
    (void)share;
    for (int64_t p = from; p < to; p++) {
        const int64_t row = c->first + p * c->piece_rows;
        const int64_t n = AF_MIN(c->piece_rows, c->rows - row);
        float *x = c->values + p * c->piece_rows * c->cols;
        af_tensor_view_rows(c->v, row, n, x);
        if (!c->nonfinite && !af_tensor_view_rows_finite(c->v, row, n, x))
            c->nonfinite = true;
        uint8_t *bytes = c->bytes + (uint64_t)(p * c->piece_rows * c->cols) * c->size;
        af_convert(bytes, c->dtype, x, AF_DTYPE_F32, (uint64_t)(n * c->cols));
        if (!af_all_finite(c->dtype, bytes, n * c->cols) &&
            af_all_finite(AF_DTYPE_F32, x, n * c->cols))
            c->too_large = true;
    }
}

static af_status copy_rows(tensor_writer *c, af_pool *pool, af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    c->piece_rows = AF_MAX(PIECE_VALUES / AF_MAX(c->cols, 1), 1);
    c->size = (uint64_t)af_dtype_get(c->dtype)->bytes;
    const int64_t step = AF_MIN(PIECES * c->piece_rows, c->rows);
    const uint64_t count = (uint64_t)(step * c->cols);
    c->values = af_calloc(count, sizeof *c->values);
    c->bytes = af_calloc(count, c->size);
    if (!c->values || !c->bytes)
        AF_TRY(af_fail_nomem(err, "rows of a tensor", count * (4 + c->size)));
    for (c->first = 0; c->first < c->rows; c->first += step) {
        const int64_t n = AF_MIN(step, c->rows - c->first);
        af_pool_run(pool, (n + c->piece_rows - 1) / c->piece_rows, convert_piece, c);
        AF_TRY(af_safetensors_writer_data(w, c->bytes, (uint64_t)(n * c->cols) * c->size, err));
    }
done:
    free(c->values);
    free(c->bytes);
    return st;
}

/* As it is: looked at while a cache holds it, then written. */
static af_status copy_bytes(const af_stored *s, bool *nonfinite, af_safetensors_writer *w,
                            af_error *err)
{
    const uint64_t piece = UINT64_C(1) << 18, size = (uint64_t)af_dtype_get(s->dtype)->bytes;
    uint64_t at = 0, n;
    af_status st;
    do {
        const uint8_t *data = (const uint8_t *)s->data + at;
        n = AF_MIN(piece, s->bytes - at);
        *nonfinite = *nonfinite || !af_all_finite(s->dtype, data, (int64_t)(n / size));
        st = af_safetensors_writer_data(w, data, n, err);
    } while (st == AF_OK && (at += n) < s->bytes);
    return st;
}

/* Once per model, for its first tensor. */
static void warn_nonfinite(af_model_reader *in, const af_tensor_view *v)
{
    af_tensor_view base = *v;
    base.overlay = (af_overlay){.saved = in->resized ? v->overlay.saved : NULL}; /* more rows */
    af_log_write(AF_LOG_WARN, "tensor '%s' of %s '%s' has values that are NaN or infinite",
                 v->t->name, af_tensor_view_finite(&base) ? "the adapter for" : "model", in->path);
    in->warned_nonfinite = true;
}

af_status af_model_copy_tensor(af_model_reader *in, const af_model_tensor *t, af_dtype dtype,
                               af_pool *pool, af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    af_tensor_view v = {0};
    bool nonfinite = false; /* a value is not finite */
    AF_TRY(af_tensor_view_open(&v, in, t, err));
    if (af_tensor_view_is_raw(&v) && t->stored->dtype == dtype) {
        AF_TRY(copy_bytes(t->stored, &nonfinite, w, err));
    } else {
        tensor_writer c = {.v = &v,
                           .cols = af_model_tensor_cols(t),
                           .rows = af_model_tensor_rows(t),
                           .dtype = dtype};
        AF_TRY(copy_rows(&c, pool, w, err));
        nonfinite = c.nonfinite;
        if (c.too_large)
            AF_TRY(af_fail_overflow(err, t->name, dtype));
    }
    if (nonfinite && !in->warned_nonfinite)
        warn_nonfinite(in, &v);
done:
    af_tensor_view_close(&v);
    return st;
}

static af_dtype type_of(const af_model_tensor *t, const af_dtype *all)
{
    return all && af_dtype_is_float(t->dtype) ? *all : t->dtype;
}

af_status af_model_write_weights(af_model_reader *in, const char *dir, const af_dtype *dtype,
                                 int threads, af_convert_report *report, af_error *err)
{
    af_status st = AF_OK;
    af_pool *pool = NULL;
    af_safetensors_writer *w = NULL;
    char *path = af_path_join(dir, "model.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_pool_new(&pool, threads, err));
    AF_TRY(af_safetensors_writer_new(&w, path, AF_SHARD_BYTES, err));
    for (int i = 0; i < in->count; i++) {
        const af_model_tensor *t = &in->tensor[i];
        AF_TRY(af_safetensors_writer_add(w, t->name, type_of(t, dtype), t->dim, t->ndim, err));
    }
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int i = 0; i < in->count; i++) {
        const af_model_tensor *t = &in->tensor[i];
        const af_dtype type = type_of(t, dtype);
        const int64_t n = af_model_tensor_values(t);
        uint64_t bytes = 0;
        AF_TRY(af_model_copy_tensor(in, t, type, pool, w, err));
        (void)af_dtype_bytes(type, (uint64_t)n, &bytes);
        if (report)
            af_convert_report_add(report, t->name, af_dtype_name(type), n, bytes);
    }
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    af_safetensors_writer_abandon(w);
    af_pool_free(pool);
    free(path);
    return st;
}

static af_status own_text(const af_model_reader *in, const af_output *f, json_t **config,
                          af_error *err)
{
    if (af_model_reader_is_gguf(in))
        return af_gguf_text(af_weights_gguf(in->weights), &in->config, f->temp, config, err);
    *config = json_deep_copy(in->config.raw);
    if (!*config)
        return af_fail_nomem(err, "config.json", 0);
    json_object_del(*config, "quantization_config");
    json_object_del(*config, "quantization"); /* MLX's */
    return af_folder_copy_text(f, in->path, err);
}

/* One id, or a list of them. */
static bool has_id(const json_t *ids, int64_t id)
{
    bool has = json_is_integer(ids) && json_integer_value(ids) == id;
    for (size_t i = 0; json_is_array(ids) && i < json_array_size(ids) && !has; i++)
        has = json_integer_value(json_array_get(ids, i)) == id;
    return has;
}

static bool same_end(const af_tokenizer *t, const char *base)
{
    af_tokenizer *other = NULL;
    const bool opens = af_tokenizer_open(&other, base, NULL) == AF_OK;
    const char *a = af_tokenizer_eos_text(t), *b = opens ? af_tokenizer_eos_text(other) : NULL;
    const bool same = a && b && strcmp(a, b) == 0;
    af_tokenizer_close(other);
    return same;
}

/* Where an answer of this tokenizer ends with another token than one of the base, it does so by the
 * configs, too, as transformers' Trainer has it. config.json is not in the folder yet. */
static af_status align_ends(const af_model_reader *in, const af_output *f, json_t *config,
                            af_error *err)
{
    static const char key[] = "eos_token_id", name[] = "generation_config.json";
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    json_t *generation = NULL;
    char *path = af_path_join(f->temp, name);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(f->temp));
    AF_TRY(af_tokenizer_open(&t, f->temp, err));
    if (same_end(t, in->path))
        goto done;
    const char *eos = af_tokenizer_eos_text(t);
    const int64_t id = eos && *eos ? af_tokenizer_id(t, eos, strlen(eos)) : -1;
    if (id >= 0 && json_object_get(config, key) && !has_id(json_object_get(config, key), id))
        json_object_set_new(config, key, json_integer(id));
    if (id >= 0 && af_file_exists(path)) {
        AF_TRY(af_json_read_file(&generation, path, err));
        if (!has_id(json_object_get(generation, key), id))
            AF_TRY(af_token_ids_align(f->temp, err));
    }
done:
    json_decref(generation);
    af_tokenizer_close(t);
    free(path);
    return st;
}

/* The tokenizer an adapter was trained with takes the place of the base's, all files of it. Where
 * it is the base's, the older forms of its vocabulary that only the base has stay true. */
static af_status take_tokenizer(const af_model_reader *in, const af_output *f, json_t *config,
                                af_error *err)
{
    const bool own = af_adapter_own_tokenizer(in->tokenizer_dir, in->path, in->config.vocab_size);
    const af_status st = af_folder_replace_tokenizer(f, in->tokenizer_dir, own, err);
    return st == AF_OK ? align_ends(in, f, config, err) : st;
}

af_status af_model_copy_text(const af_model_reader *in, const af_output *f, json_t **config,
                             af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    AF_TRY(own_text(in, f, config, err));
    if (in->template_dir || in->tokenizer_dir)
        AF_TRY(af_folder_template(&text, in->template_dir ? in->template_dir : f->temp, err));
    if (in->tokenizer_dir)
        AF_TRY(take_tokenizer(in, f, *config, err));
    if (text)
        AF_TRY(af_template_put(f->temp, text, strlen(text), err));
    if (text)
        AF_TRY(af_template_put_own(f->temp, in->template_dir ? in->template_dir : in->path, err));
done:
    free(text);
    return st;
}

const char *af_torch_name(af_dtype t)
{
    return t == AF_DTYPE_BF16   ? "bfloat16"
           : t == AF_DTYPE_F16  ? "float16"
           : t == AF_DTYPE_F64  ? "float64"
           : t == AF_DTYPE_E4M3 ? "float8_e4m3fn"
                                : "float32";
}

bool af_torch_type(af_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        af_dtype type;
    } names[] = {{"float32", AF_DTYPE_F32}, {"bfloat16", AF_DTYPE_BF16}, {"float16", AF_DTYPE_F16},
                 {"f32", AF_DTYPE_F32},     {"bf16", AF_DTYPE_BF16},     {"f16", AF_DTYPE_F16},
                 {"fp32", AF_DTYPE_F32},    {"fp16", AF_DTYPE_F16},      {"half", AF_DTYPE_F16},
                 {"float", AF_DTYPE_F32}};
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].type;
            return true;
        }
    return false;
}

void af_config_set_dtype(json_t *config, af_dtype dtype)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        if (json_object_get(config, keys[i])) {
            json_object_set_new(config, keys[i], json_string(af_torch_name(dtype)));
            any = true;
        }
    if (!any)
        json_object_set_new(config, "torch_dtype", json_string(af_torch_name(dtype)));
}
