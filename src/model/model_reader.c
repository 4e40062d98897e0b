/* model_reader.c - opens a model and lists its tensors; see model_reader.h. */
#include "base/file.h"
#include "format/weights/bnb_state.h"
#include "model/arch/arch_disk.h"
#include "model/tensor_layout.h"

enum { NAME_BYTES = 512 };

static af_dtype plain_type(const af_model_reader *in, af_dtype stored)
{
    if (stored == AF_DTYPE_F32 || stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16 ||
        stored == AF_DTYPE_F64)
        return stored;
    return in->has_config && in->config.has_dtype ? in->config.dtype : AF_DTYPE_F32;
}

/* *taken: s is codes, listed as the weight they make, or belongs to such codes. */
static af_status list_coded(af_model_reader *in, const af_stored *s, bool *taken, af_error *err)
{
    char name[NAME_BYTES];
    af_coded_weight c;
    bool found = false;
    *taken = af_coded_part(in->weights, &in->config, s->name, name, sizeof name);
    if (*taken && !name[0])
        return AF_OK;
    const char *weight = *taken ? name : s->name;
    const af_status st = af_coded_weight_read(&c, &found, in->weights, &in->config, weight, err);
    if (st != AF_OK || !found)
        return st;
    af_model_tensor *t = &in->tensor[in->count++];
    *t = (af_model_tensor){.name = af_arena_strdup(&in->arena, weight),
                           .ndim = c.ndim,
                           .dtype = plain_type(in, AF_DTYPE_I8),
                           .stored = s};
    memcpy(t->dim, c.dim, sizeof c.dim);
    for (int i = c.ndim; i < AF_WEIGHT_NDIM_MAX; i++)
        t->dim[i] = 1;
    *taken = in->any_quantised = true;
    return t->name ? AF_OK : af_fail_nomem(err, "a name", sizeof name);
}

static af_status list_folder(af_model_reader *in, af_error *err)
{
    const int n = af_weights_count(in->weights);
    in->tensor = af_arena_take(&in->arena, (uint64_t)(n + 1) * sizeof *in->tensor);
    if (!in->tensor)
        return af_fail_nomem(err, "the tensor list", (uint64_t)n * sizeof *in->tensor);
    for (int i = 0; i < n; i++) {
        const af_stored *s = af_weights_at(in->weights, i);
        af_bnb_weight b;
        bool packed = false, coded = false;
        af_status st = list_coded(in, s, &coded, err);
        if (st == AF_OK && (coded || af_bnb_is_part(in->weights, s->name)))
            continue;
        if (st == AF_OK)
            st = af_bnb_weight_read(&b, &packed, in->weights, s->name, plain_type(in, AF_DTYPE_I8),
                                    err);
        if (st != AF_OK)
            return st;
        af_model_tensor *t = &in->tensor[in->count++];
        *t = (af_model_tensor){.name = s->name, .ndim = s->ndim, .dtype = s->dtype, .stored = s};
        memcpy(t->dim, s->dim, sizeof t->dim);
        if (packed) {
            in->any_quantised = true;
            t->ndim = b.ndim;
            memcpy(t->dim, b.dim, sizeof t->dim);
            t->dtype = b.round;
        }
    }
    return AF_OK;
}

/* The type one tensor of a GGUF file has as a plain one: what was trained, where the file says. */
static af_dtype gguf_type(const af_model_reader *in, const af_tensor_spec *t)
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

static af_status list_gguf(af_model_reader *in, af_error *err)
{
    const af_model_spec *s = &in->spec;
    uint64_t n = 0;
    for (int i = 0; i < s->tensors; i++)
        n += (uint64_t)af_disk_count(s, i);
    in->tensor = af_arena_take(&in->arena, n * sizeof *in->tensor);
    if (!in->tensor)
        return af_fail_nomem(err, "the tensor list", n * sizeof *in->tensor);
    for (int i = 0; i < s->tensors; i++)
        for (int p = 0; p < af_disk_count(s, i); p++) {
            const af_stored *w = af_weights_find(in->weights, s->tensor[i].gguf);
            af_model_tensor *t = &in->tensor[in->count++];
            char name[NAME_BYTES];
            int64_t dim[AF_DISK_DIMS], from;
            af_disk_piece(s, i, p, name, sizeof name, dim, &t->ndim, &from);
            t->name = af_arena_strdup(&in->arena, name);
            if (!t->name)
                return af_fail_nomem(err, "a name", sizeof name);
            for (int k = 0; k < AF_DISK_DIMS; k++)
                t->dim[k] = k == 0 || k < t->ndim ? dim[k] : 1;
            t->spec = i;
            t->spec_row = from / s->tensor[i].dim[s->tensor[i].ndim - 1];
            t->dtype = gguf_type(in, &s->tensor[i]);
            in->any_quantised |= w && af_dtype_is_block(w->dtype);
        }
    return AF_OK;
}

static af_status list_tensors(af_model_reader *in, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_weights_open(&in->weights, in->path, err));
    AF_TRY(af_model_config(&in->config, in->path, err));
    in->has_config = true;
    if (in->config.quant.method == AF_QUANT_BITNET)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "'%s': linears of BitNet round their inputs, which GGUF files and merged "
                       "folders cannot say: use the model and its adapters as they are",
                       in->path));
    if (af_weights_gguf(in->weights)) {
        AF_TRY(af_model_reader_match(in, err));
        AF_TRY(list_gguf(in, err));
    } else {
        AF_TRY(list_folder(in, err));
    }
done:
    return st;
}

af_status af_model_reader_open(af_model_reader **out, const char *path, af_error *err)
{
    af_model_reader *in = af_calloc(1, sizeof *in);
    char *copy = af_strdup(path);
    if (!in || !copy) {
        free(in);
        free(copy);
        return af_fail_nomem(err, "a model", sizeof *in);
    }
    in->path = copy;
    *out = in;
    return AF_OK;
}

/* Opens "MODEL" without an adapter. */
static af_status open_plain(af_model_reader **out, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    char *path = NULL;
    AF_TRY(af_model_resolve_whole(&path, model, err));
    AF_TRY(af_model_reader_open(&in, path, err));
    AF_TRY(list_tensors(in, err));
    *out = in;
    in = NULL;
done:
    af_model_reader_close(in);
    free(path);
    return st;
}

static af_status add_adapter(af_model_reader *in, const char *dir, af_error *err)
{
    af_adapter *a = NULL;
    const af_status st = af_model_reader_read_adapter(in, dir, &a, err);
    if (st == AF_OK)
        af_model_reader_set_adapter(in, a);
    return st;
}

af_status af_model_reader_open_list(af_model_reader **out, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    char *base = NULL, *dir = NULL;
    const char *plus = af_dir_exists(model) || af_file_exists(model) ? NULL : strrchr(model, '+');
    if (!plus)
        return open_plain(out, model, err);
    base = af_strndup(model, (uint64_t)(plus - model));
    if (!base)
        return af_fail_nomem(err, "a path", strlen(model));
    AF_TRY(open_plain(&in, base, err));
    AF_TRY(af_model_resolve(&dir, plus + 1, err));
    AF_TRY(add_adapter(in, dir, err));
    *out = in;
    in = NULL;
done:
    free(base);
    free(dir);
    af_model_reader_close(in);
    return st;
}

af_status af_model_reader_open_merged(af_model_reader **out, const char *model, const char *adapter,
                                      af_error *err)
{
    af_model_reader *in = NULL;
    af_status st = af_model_reader_open_list(&in, model, err);
    if (st == AF_OK && adapter)
        st = add_adapter(in, adapter, err);
    if (st == AF_OK)
        *out = in;
    else
        af_model_reader_close(in);
    return st;
}

void af_model_reader_close(af_model_reader *in)
{
    if (!in)
        return;
    af_adapter_free(in->adapter);
    af_weights_close(in->weights);
    af_weights_close(in->vocab_weights);
    af_model_spec_clear(&in->spec);
    af_model_spec_clear(&in->new_vocab);
    if (in->has_config)
        af_hf_config_clear(&in->config);
    af_arena_clear(&in->arena);
    free(in->path);
    free(in);
}

bool af_model_tensor_same_shape(const af_model_tensor *a, const af_model_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

const af_model_tensor *af_model_reader_find(const af_model_reader *in, const char *name)
{
    for (int i = 0; i < in->count; i++)
        if (strcmp(in->tensor[i].name, name) == 0)
            return &in->tensor[i];
    return NULL;
}

bool af_model_reader_is_gguf(const af_model_reader *in)
{
    return af_weights_gguf(in->weights) != NULL;
}
