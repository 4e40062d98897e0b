/* model_input.c - see model_input.h. */
#include "convert/input/model_input.h"

#include "convert/input/adapter_apply.h"
#include "convert/input/gguf_text.h"
#include "model/adapter_texts.h"
#include "tensor/codec.h"
#include "tensor/codec_bnb.h"

enum { NAME_BYTES = 512 };

static af_dtype plain_type(const af_given *in, af_dtype stored)
{
    if (stored == AF_DTYPE_F32 || stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16 ||
        stored == AF_DTYPE_F64)
        return stored;
    return in->has_config && in->config.has_dtype ? in->config.dtype : AF_DTYPE_F32;
}

static af_status list_folder(af_given *in, af_error *err)
{
    const int n = af_weights_count(in->weights);
    in->tensor = af_arena_take(&in->arena, (uint64_t)(n + 1) * sizeof *in->tensor);
    if (!in->tensor)
        return af_fail_nomem(err, "the tensor list", (uint64_t)n * sizeof *in->tensor);
    for (int i = 0; i < n; i++) {
        const af_stored *s = af_weights_at(in->weights, i);
        af_bnb_state state;
        bool packed = false;
        if (af_bnb_is_part(in->weights, s->name))
            continue;
        const af_status st = af_bnb_state_find(&state, &packed, in->weights, s->name, err);
        if (st != AF_OK)
            return st;
        af_given_tensor *t = &in->tensor[in->count++];
        *t = (af_given_tensor){.name = s->name, .ndim = s->ndim, .dtype = s->dtype, .stored = s};
        memcpy(t->dim, s->dim, sizeof t->dim);
        if (packed) {
            t->quantised = in->any_quantised = true;
            t->ndim = state.ndim;
            memcpy(t->dim, state.dim, sizeof t->dim);
            t->dtype = state.type == AF_DTYPE_I8 ? plain_type(in, state.type) : state.dtype;
        }
    }
    return AF_OK;
}

static bool is_quantised(const af_source *s, const char *gguf, bool *known)
{
    const af_stored *t = af_weights_find(af_source_weights(s), gguf);
    *known = t != NULL;
    return t && af_dtype_is_block(t->dtype);
}

/* The type one tensor of a GGUF file has as a plain one: what was trained, where the file says. */
static af_dtype gguf_type(const af_given *in, const af_tensor_spec *t)
{
    const af_stored *s = af_weights_find(in->weights, t->gguf);
    if (in->config.has_dtype)
        return in->config.dtype;
    if (s && af_dtype_is_float(s->dtype) && t->ndim > 1)
        return s->dtype;
    /* Norms are always f32 there: the matrices know better. */
    const af_stored *embd = af_weights_find(in->weights, "token_embd.weight");
    return embd && af_dtype_is_float(embd->dtype) ? embd->dtype : AF_DTYPE_F32;
}

static af_status list_gguf(af_given *in, af_error *err)
{
    const af_model_spec *s = af_source_spec(in->source);
    uint64_t n = 0;
    for (int i = 0; i < s->tensors; i++)
        n += (uint64_t)af_disk_count(s, i);
    in->tensor = af_arena_take(&in->arena, n * sizeof *in->tensor);
    if (!in->tensor)
        return af_fail_nomem(err, "the tensor list", n * sizeof *in->tensor);
    for (int i = 0; i < s->tensors; i++)
        for (int p = 0; p < af_disk_count(s, i); p++) {
            af_given_tensor *t = &in->tensor[in->count++];
            char name[NAME_BYTES];
            int64_t dim[2], from;
            bool known;
            af_disk_piece(s, i, p, name, sizeof name, dim, &t->ndim, &from);
            t->name = af_arena_strdup(&in->arena, name);
            if (!t->name)
                return af_fail_nomem(err, "a name", sizeof name);
            t->dim[0] = dim[0];
            t->dim[1] = t->ndim > 1 ? dim[1] : 1;
            t->spec = i;
            t->spec_row = from / s->tensor[i].dim[s->tensor[i].ndim - 1];
            t->quantised = is_quantised(in->source, s->tensor[i].gguf, &known);
            t->dtype = gguf_type(in, &s->tensor[i]);
            in->any_quantised |= t->quantised;
        }
    return AF_OK;
}

static af_status open_source(af_given *in, af_error *err)
{
    const af_source_opts o = {.compute = AF_DTYPE_F32, .untie = in->untied};
    return in->source ? AF_OK : af_source_open(&in->source, in->path, &o, err);
}

static af_status open_parts(af_given *in, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_weights_open(&in->weights, in->path, err));
    AF_TRY(af_model_config(&in->config, in->path, err));
    in->has_config = true;
    if (af_weights_gguf(in->weights)) {
        AF_TRY(open_source(in, err));
        AF_TRY(list_gguf(in, err));
    } else {
        AF_TRY(list_folder(in, err));
    }
done:
    return st;
}

/* Opens "MODEL" without an adapter. */
static af_status open_plain(af_given **out, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_given *in = af_calloc(1, sizeof *in);
    if (!in)
        return af_fail_nomem(err, "a model", sizeof *in);
    AF_TRY(af_model_resolve_whole(&in->path, model, err));
    AF_TRY(open_parts(in, err));
    *out = in;
    in = NULL;
done:
    af_given_close(in);
    return st;
}

af_status af_given_open(af_given **out, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_given *in = NULL;
    af_adapter *a = NULL;
    char *base = NULL, *dir = NULL;
    const char *plus = af_dir_exists(model) || af_file_exists(model) ? NULL : strrchr(model, '+');
    if (!plus)
        return open_plain(out, model, err);
    base = af_strndup(model, (uint64_t)(plus - model));
    if (!base)
        return af_fail_nomem(err, "a path", strlen(model));
    AF_TRY(open_plain(&in, base, err));
    AF_TRY(af_model_resolve(&dir, plus + 1, err));
    AF_TRY(af_given_read_adapter(in, dir, &a, err));
    af_given_set_adapter(in, a);
    *out = in;
    in = NULL;
done:
    free(base);
    free(dir);
    af_given_close(in);
    return st;
}

void af_given_close(af_given *in)
{
    if (!in)
        return;
    af_adapter_free(in->adapter);
    af_source_close(in->source);
    af_weights_close(in->weights);
    if (in->resized)
        af_model_spec_clear(&in->wide);
    if (in->has_config)
        af_hf_config_clear(&in->config);
    af_arena_clear(&in->arena);
    free(in->path);
    free(in);
}

bool af_given_same_shape(const af_given_tensor *a, const af_given_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

const af_given_tensor *af_given_find(const af_given *in, const char *name)
{
    for (int i = 0; i < in->count; i++)
        if (strcmp(in->tensor[i].name, name) == 0)
            return &in->tensor[i];
    return NULL;
}

bool af_given_is_gguf(const af_given *in) { return af_weights_gguf(in->weights) != NULL; }

af_status af_given_spec(af_given *in, const af_model_spec **out, af_error *err)
{
    const af_status st = open_source(in, err);
    if (st == AF_OK)
        *out = in->resized ? &in->wide : af_source_spec(in->source);
    return st;
}

/* PEFT unties a model whose embedding or head it saves: then the head is a tensor of its own. */
static af_status untie(af_given *in, af_error *err)
{
    const af_given_tensor *embed = af_given_find(in, "model.embed_tokens.weight");
    if (!in->config.tie_word_embeddings || in->untied)
        return AF_OK;
    if (af_given_is_gguf(in) || !embed)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter has an embedding or head of its own, and the tied ones of '%s' "
                       "cannot be taken apart",
                       in->path);
    af_source_close(in->source);
    in->source = NULL;
    in->untied = true;
    if (!af_given_find(in, "lm_head.weight")) {
        in->tensor[in->count] = *embed; /* there is room for one more */
        in->tensor[in->count++].name = "lm_head.weight";
    }
    return AF_OK;
}

/* The vocabulary was changed before the adapter was trained: embedding and head are its own. */
static af_status resize(af_given *in, const char *dir, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    if (af_given_is_gguf(in) || !in->may_resize || !in->config.raw)
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%s' has %" PRId64 " rows of embedding, '%s' has %" PRId64
                       ": merge it alone into a folder of the model first (afinar merge)",
                       dir, rows, in->path, in->config.vocab_size);
    const bool tied = in->config.tie_word_embeddings && !in->untied;
    for (int i = 0; i < in->count; i++) {
        char name[NAME_BYTES];
        af_given_tensor *t = &in->tensor[i];
        af_source_own_name(in->source, t->name, name, sizeof name);
        const bool head = strcmp(name, "lm_head.weight") == 0;
        if (head && tied) { /* a copy of the embedding, which is no longer that */
            memmove(t, t + 1, (size_t)(in->count - i - 1) * sizeof *t);
            in->count--;
            i--;
        } else if (head || strcmp(name, "model.embed_tokens.weight") == 0) {
            t->dim[0] = rows;
        }
    }
    af_hf_config c = in->config;
    c.tie_word_embeddings = tied;
    in->config.vocab_size = c.vocab_size = rows;
    json_t *text = json_object_get(in->config.raw, "text_config");
    json_object_set_new(text ? text : in->config.raw, "vocab_size", json_integer(rows));
    AF_TRY(af_model_spec_init(&in->wide, &c, err));
    in->resized = true;
done:
    return st;
}

static bool has_tokenizer(const char *dir)
{
    char *path = af_path_join(dir, "tokenizer.json");
    const bool has = path && af_file_exists(path);
    free(path);
    return has;
}

af_status af_given_read_adapter(af_given *in, const char *dir, af_adapter **out, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *spec;
    bool unties = false;
    int64_t rows = 0;
    AF_TRY(af_adapter_unties(&unties, dir, err));
    if (unties)
        AF_TRY(untie(in, err));
    AF_TRY(af_given_spec(in, &spec, err));
    AF_TRY(af_adapter_vocab(&rows, dir, err));
    if (rows && rows != spec->vocab && !in->resized) {
        AF_TRY(resize(in, dir, rows, err));
        AF_TRY(af_given_spec(in, &spec, err));
        AF_TRY(af_adapter_read_resized(out, spec, dir, err));
    } else {
        AF_TRY(af_adapter_read(out, spec, dir, err));
    }
    const bool first = in->adapters_read++ == 0;
    const char *copy = first ? af_arena_strdup(&in->arena, dir) : NULL;
    in->texts = copy && has_tokenizer(dir) && af_adapter_has_template(dir) ? copy : NULL;
    in->tokens = copy && af_adapter_has_tokenizer(dir, in->path, spec->vocab) ? copy : NULL;
    for (int i = 0; i < spec->modules; i++)
        if ((*out)->module[i].rank && spec->tensor[spec->module[i].weight].module != i) {
            st = af_fail(err, AF_EUNSUPPORTED,
                         "'%s' changes '%s', which shares its weights with the embedding", dir,
                         spec->module[i].path);
            af_adapter_free(*out);
            *out = NULL;
            goto done;
        }
done:
    return st;
}

void af_given_set_adapter(af_given *in, af_adapter *a)
{
    af_adapter_free(in->adapter);
    in->adapter = a;
}

/* ---- views ---- */

static void find_adapter_part(af_given_view *v)
{
    const af_adapter *a = v->in->adapter;
    char name[512];
    if (!a)
        return;
    af_source_own_name(v->in->source, v->t->name, name, sizeof name);
    const int i = af_model_spec_tensor(a->spec, name);
    if (i < 0)
        return;
    const int m = a->spec->tensor[i].module;
    v->saved = a->saved[i];
    if ((!v->saved || a->resized) && m >= 0 && a->module[m].rank)
        v->module = &a->module[m];
    v->embedding = m >= 0 && a->spec->module[m].group == AF_GROUP_EMBED;
}

af_status af_given_view_open(af_given_view *v, af_given *in, const af_given_tensor *t,
                             af_error *err)
{
    *v = (af_given_view){.in = in, .t = t};
    find_adapter_part(v);
    if (!t->stored)
        return AF_OK;
    const af_status st =
        af_bnb_state_find(&v->state, &v->packed, in->weights, t->stored->name, err);
    if (st != AF_OK)
        return st;
    if (!v->packed && !af_codec_can_decode(t->stored->dtype))
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s' has type %s, which cannot be read",
                       t->name, af_dtype_name(t->stored->dtype));
    if (v->packed) {
        const int64_t blocks = af_bnb_blocks(v->state.count, v->state.block);
        v->absmax = af_calloc((uint64_t)blocks, sizeof *v->absmax);
        if (!v->absmax)
            return af_fail_nomem(err, t->name, (uint64_t)blocks * sizeof *v->absmax);
        af_bnb_state_absmax(&v->state, v->absmax);
    }
    return AF_OK;
}

void af_given_view_close(af_given_view *v)
{
    if (v->in && v->t->stored)
        af_weights_forget(v->in->weights, v->t->stored);
    if (v->in && !v->t->stored) {
        const af_model_spec *s = af_source_spec(v->in->source);
        const af_stored *t =
            af_weights_find(af_source_weights(v->in->source), s->tensor[v->t->spec].gguf);
        if (t)
            af_weights_forget(af_source_weights(v->in->source), t);
    }
    free(v->absmax);
    *v = (af_given_view){0};
}

/* What bitsandbytes dequantises to: rounded once to the dtype the weight had. */
static void read_packed(const af_given_view *v, int64_t from, int64_t n, float *out)
{
    const af_bnb_state *s = &v->state;
    if (s->type == AF_DTYPE_I8) {
        const int64_t cols = s->block;
        for (int64_t r = 0; r < n; r++)
            af_int8_decode_row((const int8_t *)s->codes + (from + r) * cols, v->absmax[from + r],
                               cols, out + r * cols);
    } else {
        const int64_t cols = af_given_cols(v->t);
        af_bnb_decode(s->type, s->table, s->codes, v->absmax, s->block, from * cols,
                      (from + n) * cols, out, AF_DTYPE_F32);
    }
    const int64_t count = n * af_given_cols(v->t);
    for (int64_t i = 0; v->t->dtype == AF_DTYPE_BF16 && i < count; i++)
        out[i] = af_f32_from_bf16(af_bf16_from_f32(out[i]));
    for (int64_t i = 0; v->t->dtype == AF_DTYPE_F16 && i < count; i++)
        out[i] = af_f32_from_f16(af_f16_from_f32(out[i]));
}

/* Norms that GGUF stores as 1 + w: the bits that were lost in it, where the writer kept them. */
static void add_rest(const af_given_view *v, const af_model_spec *s, float *out)
{
    char key[512];
    snprintf(key, sizeof key, AF_GGUF_REST_KEY "%s", s->tensor[v->t->spec].gguf);
    const af_gguf_kv *kv = af_gguf_find_kv(af_weights_gguf(v->in->weights), key);
    if (!kv || kv->type != AF_GGUF_ARRAY || kv->item != AF_GGUF_F32 ||
        kv->count != (uint64_t)af_given_cols(v->t))
        return;
    for (uint64_t i = 0; i < kv->count; i++)
        out[i] += (float)af_gguf_item_float(kv, i);
}

static void read_base(const af_given_view *v, int64_t from, int64_t n, float *out)
{
    const af_given_tensor *t = v->t;
    const int64_t cols = af_given_cols(t);
    if (!t->stored) {
        /* The loader has interleaved vectors as rows of one value. */
        const af_model_spec *s = af_source_spec(v->in->source);
        const bool single = t->ndim == 1 && s->arch->gguf_permuted && s->tensor[t->spec].row_heads;
        const af_status st = af_source_rows(v->in->source, t->spec, t->spec_row + from,
                                            single ? cols : n, out, NULL);
        assert(st == AF_OK); /* it can only fail while quantising */
        (void)st;
        if (t->ndim == 1 && s->arch->gguf_norm_one)
            add_rest(v, s, out);
    } else if (v->packed) {
        read_packed(v, from, n, out);
    } else {
        uint64_t skip = 0;
        const bool ok = af_dtype_bytes(t->stored->dtype, (uint64_t)(from * cols), &skip);
        assert(ok);
        (void)ok;
        af_codec_decode_row(t->stored->dtype, (const uint8_t *)t->stored->data + skip, out,
                            n * cols);
    }
}

void af_given_view_rows(const af_given_view *v, int64_t from, int64_t n, float *out)
{
    const int64_t cols = af_given_cols(v->t);
    if (v->saved)
        memcpy(out, v->saved + from * cols, (size_t)(n * cols) * sizeof *out);
    else
        read_base(v, from, n, out);
    if (v->module && v->embedding)
        af_adapter_apply_embedding(v->module, out, from, n, cols, v->t->dim[0]);
    else if (v->module)
        af_adapter_apply_rows(v->module, out, from, n, cols);
}

bool af_given_view_is_plain(const af_given_view *v)
{
    return v->t->stored && !v->packed && !v->module && !v->saved;
}

bool af_given_rows_finite(const af_given_view *v, int64_t from, int64_t n, const float *rows)
{
    const af_stored *s = v->t->stored;
    const int64_t cols = af_given_cols(v->t);
    uint64_t skip = 0;
    if (!af_given_view_is_plain(v) || !af_dtype_bytes(s->dtype, (uint64_t)(from * cols), &skip))
        return af_all_finite(AF_DTYPE_F32, rows, n * cols);
    return af_all_finite(s->dtype, (const uint8_t *)s->data + skip, n * cols);
}

bool af_given_view_finite(const af_given_view *v)
{
    const int64_t rows = af_given_height(v->t);
    float *row = af_calloc((uint64_t)AF_MAX(af_given_cols(v->t), 1), sizeof *row);
    bool finite = true; /* where there is no memory to look, too */
    for (int64_t r = 0; row && finite && r < rows; r++) {
        af_given_view_rows(v, r, 1, row);
        finite = af_given_rows_finite(v, r, 1, row);
    }
    free(row);
    return finite;
}
