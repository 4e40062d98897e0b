/* adapter_mlx.c - PEFT folders to mlx-lm's adapters and back; see adapter_gguf.h.
 *
 * mlx-lm stores "PATH.lora_a" [in][r] and "PATH.lora_b" [r][out], both turned, and DoRA's
 * magnitudes "PATH.m" [out] in adapters.safetensors, and one rank and one scale for all in
 * adapter_config.json. Where PEFT's scale differs between modules the difference is folded into
 * lora_b; smaller ranks are filled up with zeros. */
#include "base/buf.h"
#include "base/log.h"
#include "base/word.h"
#include "convert/adapter/adapter_gguf.h"
#include "convert/input/folder_text.h"
#include "convert/output/folder_out.h"
#include "convert/output/model_card.h"
#include "format/hub/hub_name.h"
#include "format/weights/weights.h"
#include "model/adapter_config.h"

#include <math.h>

enum { NAME_BYTES = 1024 };

#define PEFT_PREFIX "base_model.model."

af_status af_adapter_kind_of(af_adapter_kind *out, const char *dir, af_error *err)
{
    json_t *j = NULL;
    *out = AF_ADAPTER_NONE;
    if (!af_dir_exists(dir))
        return AF_OK;
    const af_status st = af_json_read(&j, dir, "adapter_config.json", err);
    if (st == AF_OK && json_object_get(j, "peft_type"))
        *out = AF_ADAPTER_PEFT;
    else if (st == AF_OK && json_object_get(j, "fine_tune_type"))
        *out = AF_ADAPTER_MLX;
    json_decref(j);
    return st;
}

/* One matrix: read as f32, transposed, scaled, filled up with zeros to to[0] rows of to[1]. */
static af_status write_turned(af_safetensors_writer *w, const af_stored *t, const int64_t to[2],
                              float scale, af_error *err)
{
    const int64_t rows = t->dim[0], cols = t->ndim == 2 ? t->dim[1] : 1;
    const uint64_t n = (uint64_t)(rows * cols), all = (uint64_t)(to[0] * to[1]);
    float *x = af_calloc(n, sizeof *x), *y = af_calloc(all, sizeof *y);
    af_status st = AF_OK;
    if (!x || !y)
        AF_TRY(af_fail_nomem(err, t->name, (n + all) * sizeof *x));
    af_convert(x, AF_DTYPE_F32, t->data, t->dtype, n);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[c * to[1] + r] = x[r * cols + c] * scale;
    AF_TRY(af_safetensors_writer_data(w, y, all * sizeof *y, err));
done:
    free(x);
    free(y);
    return st;
}

/* "PATH" and which of a, b and m, of a tensor's name in either format. */
static bool split_name(const char *name, char *path, char *which)
{
    static const struct {
        const char *tail;
        char which;
    } tails[] = {{".lora_A.weight", 'a'},
                 {".lora_B.weight", 'b'},
                 {".lora_a", 'a'},
                 {".lora_b", 'b'},
                 {".lora_magnitude_vector.weight", 'm'},
                 {".lora_magnitude_vector", 'm'},
                 {".m", 'm'}};
    const size_t skip =
        strncmp(name, PEFT_PREFIX, strlen(PEFT_PREFIX)) == 0 ? strlen(PEFT_PREFIX) : 0;
    for (size_t i = 0; i < AF_LEN(tails); i++) {
        const size_t n = strlen(name), t = strlen(tails[i].tail);
        if (n > t + skip && n < NAME_BYTES && strcmp(name + n - t, tails[i].tail) == 0) {
            snprintf(path, NAME_BYTES, "%.*s", (int)(n - t - skip), name + skip);
            *which = tails[i].which;
            return true;
        }
    }
    return false;
}

static double scale_of(const af_adapter_config *c, const char *path, int64_t rank, af_error *err,
                       af_status *st)
{
    double alpha = 0;
    *st =
        af_adapter_pattern_value(&alpha, c->alpha_pattern, c->alpha_patterns, path, c->alpha, err);
    return c->rslora ? alpha / sqrt((double)rank) : alpha / (double)rank;
}

/* PEFT's copy of an adapted head or embedding, which the base has. */
static bool is_base_copy(const char *name) { return af_ends_with(name, ".base_layer.weight"); }

/* Whether a part of the path is a number. */
static bool is_numbered(const char *path)
{
    for (const char *p = strchr(path, '.'); p; p = strchr(p, '.')) {
        const size_t n = strspn(++p, "0123456789");
        if (n && (p[n] == '.' || !p[n]))
            return true;
    }
    return false;
}

/* What mlx-lm looks for, each once: module names inside a layer ("self_attn.q_proj"), and whole
 * ones of modules outside ("lm_head"). */
static af_status keys_in(const af_weights *w, json_t **out, af_error *err)
{
    json_t *seen = json_object(), *list = json_array();
    for (int i = 0; i < af_weights_count(w); i++) {
        char path[NAME_BYTES], which;
        if (!split_name(af_weights_at(w, i)->name, path, &which))
            continue;
        const char *p = strstr(path, "layers.");
        const bool inside = p && strchr(p + 7, '.');
        p = inside ? strchr(p + 7, '.') + 1 : path;
        if (is_numbered(p)) {
            json_decref(seen);
            json_decref(list);
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%.200s' cannot be written for MLX: %s of this model have another name "
                           "in mlx-lm",
                           path, inside ? "experts" : "layers");
        }
        if (!json_object_get(seen, p)) {
            json_object_set_new(seen, p, json_true());
            json_array_append_new(list, json_string(p));
        }
    }
    json_decref(seen);
    *out = list;
    return AF_OK;
}

/* Whether a tensor has the form that both formats give it: a matrix, of magnitudes one row. */
static bool has_form(const af_stored *t, char which)
{
    const bool row = t->ndim == 1 || (t->ndim == 2 && (t->dim[0] == 1 || t->dim[1] == 1));
    return af_dtype_is_float(t->dtype) && (which == 'm' ? row : t->ndim == 2);
}

/* What both directions need: the files, the rank of all modules, and PEFT's scales. */
typedef struct turn {
    const af_weights *in;
    bool mlx; /* the format to write */
    int64_t rank;
    const af_adapter_config *config; /* NULL: b stays as it is */
    double scale;                    /* of all modules */
} turn;

/* Its sizes in the other format. */
static void turned_sizes(const turn *t, const af_stored *x, char which, int64_t dim[2])
{
    dim[0] = x->ndim == 2 ? x->dim[1] : 1;
    dim[1] = x->dim[0];
    if (which != 'm')
        dim[(which == 'a') == t->mlx] = t->rank;
}

/* Its name and sizes in the other format. */
static af_status declare(af_safetensors_writer *w, const turn *t, const af_stored *x,
                         const char *module, char which, af_error *err)
{
    char name[NAME_BYTES + 64];
    int64_t dim[2];
    const bool magnitude = which == 'm';
    turned_sizes(t, x, which, dim);
    const int64_t row = dim[0] * dim[1];
    if (magnitude)
        snprintf(name, sizeof name, t->mlx ? "%s.m" : PEFT_PREFIX "%s.lora_magnitude_vector",
                 module);
    else
        snprintf(name, sizeof name, t->mlx ? "%s.lora_%c" : PEFT_PREFIX "%s.lora_%c.weight", module,
                 t->mlx ? which : which - 32);
    return af_safetensors_writer_add(w, name, AF_DTYPE_F32, magnitude ? &row : dim,
                                     magnitude ? 1 : 2, err);
}

static af_status put(af_safetensors_writer *w, const turn *t, const af_stored *x, bool data,
                     af_error *err)
{
    af_status st = AF_OK;
    char module[NAME_BYTES], which;
    int64_t dim[2];
    double fold = 1;
    if (t->mlx && is_base_copy(x->name)) {
        if (data)
            af_log_write(AF_LOG_WARN, "'%s' is left out: the model has these weights", x->name);
        return AF_OK;
    }
    if (!split_name(x->name, module, &which) || !has_form(x, which) ||
        (which == 'b' && x->dim[t->mlx] > t->rank)) /* which no A has */
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s' cannot be written in the other format",
                       x->name);
    if (!data)
        return declare(w, t, x, module, which, err);
    if (t->config && which == 'b')
        fold = scale_of(t->config, module, x->dim[1], err, &st) / t->scale;
    turned_sizes(t, x, which, dim);
    return st == AF_OK ? write_turned(w, x, dim, (float)fold, err) : st;
}

/* Declares and writes every tensor under its new name. */
static af_status write_all(const turn *t, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors_writer *w = NULL;
    AF_TRY(af_safetensors_writer_new(&w, path, 0, err));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_weights_count(t->in); i++)
            AF_TRY(put(w, t, af_weights_at(t->in, i), pass == 1, err));
        if (pass == 0)
            AF_TRY(af_safetensors_writer_begin(w, err));
    }
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    af_safetensors_writer_abandon(w);
    return st;
}

static af_status write_card(const af_output *f, const char *dir, bool mlx, const json_t *config,
                            af_error *err)
{
    const char *key = mlx ? "model" : "base_model_name_or_path";
    const char *base = json_string_value(json_object_get(config, key));
    const bool known = base && *base;
    af_card c = {.library = mlx ? "mlx" : "peft",
                 .relation = known ? "adapter" : NULL,
                 .base = {base},
                 .base_path = {base},
                 .bases = known,
                 .tags = {"lora"}};
    af_buf b = {0};
    af_buf_str(&b, "The adapter ");
    af_card_code(&b, af_path_name(dir));
    af_buf_printf(&b, " in the format of %s.\n", mlx ? "mlx-lm" : "PEFT");
    return af_card_put(f, &c, &b, err);
}

static af_status finish(const turn *t, const char *out, const char *dir, bool force,
                        const json_t *config, af_error *err)
{
    af_status st = AF_OK;
    af_output f = {0};
    char *path = NULL;
    AF_TRY(af_folder_open(&f, out, &dir, 1, force, err));
    path = af_path_join(f.temp, t->mlx ? "adapters.safetensors" : "adapter_model.safetensors");
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    AF_TRY(write_all(t, path, err));
    AF_TRY(af_json_write(f.temp, "adapter_config.json", config, err));
    AF_TRY(write_card(&f, dir, t->mlx, config, err));
    AF_TRY(af_output_commit(&f, err));
done:
    af_output_abandon(&f);
    free(path);
    return st;
}

/* The largest rank that the tensors have: "rank" of the config may be missing in old files. */
static int64_t rank_in(const af_weights *w, bool mlx)
{
    char module[NAME_BYTES], which;
    int64_t rank = 1;
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        if (split_name(t->name, module, &which) && which == 'a' && t->ndim == 2)
            rank = AF_MAX(rank, t->dim[mlx]);
    }
    return rank;
}

af_status af_adapter_to_mlx(const char *dir, const char *out, bool force, af_error *err)
{
    af_status st = AF_OK;
    af_weights *w = NULL;
    af_arena arena = {0};
    af_adapter_config c = {0};
    json_t *config = NULL;
    AF_TRY(af_adapter_config_read(&c, &arena, dir, err));
    const char *more = c.type != AF_PEFT_LORA                   ? af_peft_forms[c.type].name
                       : c.lora_bias                            ? "lora_bias"
                       : c.save_count                           ? "modules_to_save"
                       : c.param_count                          ? "target_parameters"
                       : c.tokens[0].count || c.tokens[1].count ? "trainable_token_indices"
                                                                : NULL;
    if (more)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED, "%s: %s cannot be written for MLX", dir, more));
    AF_TRY(af_weights_open(&w, dir, err));
    const double scale = c.alpha == 0 ? 1 : c.rslora ? c.alpha / sqrt(c.r) : c.alpha / c.r;
    const turn t = {.in = w, .mlx = true, .rank = rank_in(w, false), .config = &c, .scale = scale};
    const char *base = c.base_model ? c.base_model : "";
    const size_t name = af_hub_is_name(base) ? strcspn(base, "@") : strlen(base);
    json_t *keys = NULL;
    AF_TRY(keys_in(w, &keys, err));
    /* num_layers counts from the last layer; -1 = all, since the adapter need not be on those */
    config = json_pack("{s:s, s:s%, s:i, s:{s:I, s:f, s:f, s:o}}", "fine_tune_type",
                       c.dora ? "dora" : "lora", "model", base, name, "num_layers", -1,
                       "lora_parameters", "rank", (json_int_t)t.rank, "scale", scale, "dropout",
                       c.dropout, "keys", keys);
    if (!config)
        AF_TRY(af_fail_nomem(err, "adapter_config.json", 0));
    AF_TRY(finish(&t, out, dir, force, config, err));
done:
    af_weights_close(w);
    af_arena_clear(&arena);
    json_decref(config);
    return st;
}

/* Embeddings have matrices of other names in PEFT, and without the model nothing tells whether they
 * are the head, too. */
static af_status check_no_table(const af_weights *w, const char *dir, af_error *err)
{
    char module[NAME_BYTES], which;
    for (int i = 0; i < af_weights_count(w); i++)
        if (split_name(af_weights_at(w, i)->name, module, &which) &&
            af_path_is_table(module, false))
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s adapts '%s': writing that for PEFT needs the model (afinar merge "
                           "MODEL --adapter '%s' --adapter-only)",
                           dir, module, dir);
    return AF_OK;
}

static json_t *targets_in(const af_weights *w)
{
    json_t *list = json_array();
    char module[NAME_BYTES], which;
    for (int i = 0; i < af_weights_count(w); i++)
        if (split_name(af_weights_at(w, i)->name, module, &which) && which == 'a')
            json_array_append_new(list, json_string(module));
    return list;
}

af_status af_adapter_from_mlx(const char *dir, const char *out, bool force, af_error *err)
{
    af_status st = AF_OK;
    af_weights *w = NULL;
    json_t *mlx = NULL, *config = NULL;
    char *path = af_path_join(dir, "adapters.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_json_read(&mlx, dir, "adapter_config.json", err));
    const char *type = json_string_value(json_object_get(mlx, "fine_tune_type"));
    const bool dora = type && strcmp(type, "dora") == 0;
    if (!type || (!dora && strcmp(type, "lora") != 0))
        AF_TRY(af_fail(err, AF_EUNSUPPORTED, "%s: fine_tune_type '%.32s' is not lora or dora", dir,
                       type ? type : "?"));
    AF_TRY(af_weights_open(&w, path, err));
    AF_TRY(check_no_table(w, dir, err));
    const json_t *p = json_object_get(mlx, "lora_parameters"), *s = json_object_get(p, "scale");
    const json_t *base = json_object_get(mlx, "model");
    const int64_t rank = rank_in(w, true);
    const turn t = {.in = w, .rank = rank};
    const double alpha = (json_is_number(s) ? json_number_value(s) : 20.0) * (double)rank;
    config = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:o, s:b, s:b, s:b, s:s, s:b, s:n}",
                       "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path",
                       json_is_string(base) ? json_string_value(base) : "", "r", (json_int_t)rank,
                       "lora_alpha", alpha, "lora_dropout",
                       json_number_value(json_object_get(p, "dropout")), "target_modules",
                       targets_in(w), "use_rslora", 0, "use_dora", dora, "inference_mode", 1,
                       "bias", "none", "fan_in_fan_out", 0, "modules_to_save");
    if (!config)
        AF_TRY(af_fail_nomem(err, "adapter_config.json", 0));
    AF_TRY(finish(&t, out, dir, force, config, err));
done:
    af_weights_close(w);
    json_decref(mlx);
    json_decref(config);
    free(path);
    return st;
}
