/* bnb_state.c - see bnb_state.h. */
#include "format/weights/bnb_state.h"

#include "format/text/json_text.h"
#include "tensor/codec_bnb.h"

#include <jansson.h>

enum { NAME_MAX_BYTES = 1024, STATE_MAX_BYTES = 1 << 16 };

/* The tensor "NAME" + suffix, or NULL. */
static const af_stored *companion(const af_weights *w, const char *name, const char *suffix)
{
    char full[NAME_MAX_BYTES];
    const int n = snprintf(full, sizeof full, "%s%s", name, suffix);
    return n > 0 && n < (int)sizeof full ? af_weights_find(w, full) : NULL;
}

static af_status wrong(const char *name, const char *what, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "quantised weight '%s': %s", name, what);
}

/* A tensor that must exist with this dtype and at least `count` elements. */
static af_status need(const void **out, const af_weights *w, const char *name, const char *suffix,
                      af_dtype dtype, int64_t count, af_error *err)
{
    const af_stored *t = companion(w, name, suffix);
    if (!t)
        return af_fail(err, AF_EFORMAT, "quantised weight '%s' has no tensor '%s%s'", name, name,
                       suffix);
    if (t->dtype != dtype || af_weight_count(t) != count)
        return af_fail(
            err, AF_EFORMAT, "tensor '%s%s' is %s with %" PRId64 " elements, not %s with %" PRId64,
            name, suffix, af_dtype_name(t->dtype), af_weight_count(t), af_dtype_name(dtype), count);
    *out = t->data;
    return AF_OK;
}

/* The codes are bytes of any type: bnb_4bit_quant_storage. */
static af_status need_codes(const uint8_t **out, const af_weights *w, const char *name,
                            int64_t bytes, af_error *err)
{
    const af_stored *t = af_weights_find(w, name);
    if (t->bytes != (uint64_t)bytes)
        return af_fail(err, AF_EFORMAT, "tensor '%s' has %" PRIu64 " bytes of codes, not %" PRId64,
                       name, t->bytes, bytes);
    *out = t->data;
    return AF_OK;
}

static af_status read_shape(af_bnb_state *s, const json_t *shape, const char *name, af_error *err)
{
    if (!json_is_array(shape) || json_array_size(shape) < 1 ||
        json_array_size(shape) > AF_WEIGHT_NDIM_MAX)
        return wrong(name, "its quant_state has no shape", err);
    s->ndim = (int)json_array_size(shape);
    uint64_t count = 1;
    for (int i = 0; i < s->ndim; i++) {
        const json_int_t d = json_integer_value(json_array_get(shape, (size_t)i));
        if (d < 1 || !af_mul_ok(count, (uint64_t)d, &count) || count > INT64_MAX / 2)
            return wrong(name, "its quant_state has an impossible shape", err);
        s->dim[i] = d;
    }
    s->count = (int64_t)count;
    return AF_OK;
}

static bool read_dtype(af_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        af_dtype dtype;
    } names[] = {{"bfloat16", AF_DTYPE_BF16}, {"float16", AF_DTYPE_F16}, {"float32", AF_DTYPE_F32}};
    for (size_t i = 0; name && i < AF_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].dtype;
            return true;
        }
    return false;
}

static af_status read_nested(af_bnb_state *s, const json_t *j, const af_weights *w,
                             const char *name, int64_t blocks, af_error *err)
{
    af_status st = AF_OK;
    const json_t *offset = json_object_get(j, "nested_offset");
    s->nested_block = json_integer_value(json_object_get(j, "nested_blocksize"));
    if (s->nested_block < 1 || s->nested_block > 1 << 20 || !json_is_number(offset))
        return wrong(name, "its quant_state lacks nested_blocksize or nested_offset", err);
    s->nested_offset = (float)json_number_value(offset);
    const int64_t outer = af_bnb_blocks(blocks, s->nested_block);
    const void *q, *am, *map;
    AF_TRY(need(&q, w, name, ".absmax", AF_DTYPE_U8, blocks, err));
    AF_TRY(need(&am, w, name, ".nested_absmax", AF_DTYPE_F32, outer, err));
    AF_TRY(need(&map, w, name, ".nested_quant_map", AF_DTYPE_F32, 256, err));
    s->nested = q;
    s->nested_absmax = am;
    s->nested_map = map;
done:
    return st;
}

static af_status read_state(af_bnb_state *s, const json_t *j, const af_weights *w, const char *name,
                            af_error *err)
{
    af_status st = AF_OK;
    const void *p;
    AF_TRY(read_shape(s, json_object_get(j, "shape"), name, err));
    s->block = json_integer_value(json_object_get(j, "blocksize"));
    if (s->block < 1 || s->block > 1 << 20)
        return wrong(name, "its quant_state has no valid blocksize", err);
    if (!read_dtype(&s->dtype, json_string_value(json_object_get(j, "dtype"))))
        return wrong(name, "its quant_state names no known dtype", err);
    const int64_t blocks = af_bnb_blocks(s->count, s->block);
    AF_TRY(need_codes(&s->codes, w, name, af_bnb_bytes(s->count), err));
    AF_TRY(need(&p, w, name, ".quant_map", AF_DTYPE_F32, 16, err));
    s->table = p;
    if (json_object_get(j, "nested_blocksize")) {
        AF_TRY(read_nested(s, j, w, name, blocks, err));
    } else {
        AF_TRY(need(&p, w, name, ".absmax", AF_DTYPE_F32, blocks, err));
        s->absmax = p;
    }
done:
    return st;
}

static af_status find_4bit(af_bnb_state *s, const af_stored *blob, const af_weights *w,
                           const char *name, af_error *err)
{
    if (blob->dtype != AF_DTYPE_U8 || blob->bytes > STATE_MAX_BYTES)
        return wrong(name, "its quant_state is not a short row of bytes", err);
    json_error_t je;
    json_t *j = af_json_load(blob->data, blob->bytes, 0, &je);
    if (!json_is_object(j)) {
        json_decref(j);
        return wrong(name, "its quant_state is not a JSON object", err);
    }
    const af_status st = read_state(s, j, w, name, err);
    json_decref(j);
    return st;
}

/* LLM.int8: "x.weight" in i8 and its "x.SCB". */
static af_status find_int8(af_bnb_state *s, const af_stored *t, const af_stored *scb,
                           const char *name, af_error *err)
{
    if (t->ndim != 2 || scb->dtype != AF_DTYPE_F32 || af_weight_count(scb) != t->dim[0])
        return wrong(name, "its SCB is not one f32 per row", err);
    s->type = AF_DTYPE_I8;
    s->dtype = AF_DTYPE_F16;
    s->ndim = 2;
    memcpy(s->dim, t->dim, sizeof s->dim);
    s->count = af_weight_count(t);
    s->block = t->dim[1];
    s->codes = t->data;
    s->absmax = scb->data;
    return AF_OK;
}

/* The stem of "stem.weight" with another ending, or NULL. */
static const af_stored *sibling(const af_weights *w, const char *name, const char *ending)
{
    char full[NAME_MAX_BYTES];
    const size_t n = strlen(name), tail = strlen(".weight");
    if (n <= tail || strcmp(name + n - tail, ".weight") != 0)
        return NULL;
    const int k = snprintf(full, sizeof full, "%.*s%s", (int)(n - tail), name, ending);
    return k > 0 && k < (int)sizeof full ? af_weights_find(w, full) : NULL;
}

af_status af_bnb_state_find(af_bnb_state *out, bool *found, const af_weights *w, const char *name,
                            af_error *err)
{
    af_bnb_state s = {0};
    af_status st = AF_OK;
    const af_stored *t = af_weights_find(w, name);
    const af_stored *nf4 = companion(w, name, ".quant_state.bitsandbytes__nf4");
    const af_stored *fp4 = companion(w, name, ".quant_state.bitsandbytes__fp4");
    const af_stored *scb = sibling(w, name, ".SCB");
    *found = false;
    if (!t)
        return AF_OK;
    if (nf4 && fp4)
        return wrong(name, "it has both an nf4 and an fp4 quant_state", err);
    s.type = nf4 ? AF_DTYPE_NF4 : AF_DTYPE_FP4;
    if (nf4 || fp4)
        AF_TRY(find_4bit(&s, nf4 ? nf4 : fp4, w, name, err));
    else if (t->dtype == AF_DTYPE_I8 && scb)
        AF_TRY(find_int8(&s, t, scb, name, err));
    else
        return AF_OK;
    *out = s;
    *found = true;
done:
    return st;
}

bool af_bnb_is_packed(const af_weights *w, const char *name)
{
    const af_stored *t = af_weights_find(w, name);
    return t && (companion(w, name, ".quant_state.bitsandbytes__nf4") ||
                 companion(w, name, ".quant_state.bitsandbytes__fp4") ||
                 (t->dtype == AF_DTYPE_I8 && sibling(w, name, ".SCB")));
}

bool af_bnb_is_part(const af_weights *w, const char *name)
{
    static const char *const parts[] = {
        ".absmax",
        ".quant_map",
        ".nested_absmax",
        ".nested_quant_map",
        ".quant_state.bitsandbytes__nf4",
        ".quant_state.bitsandbytes__fp4",
    };
    char stem[NAME_MAX_BYTES];
    const size_t n = strlen(name);
    for (size_t i = 0; i < AF_LEN(parts) && n < sizeof stem; i++) {
        const size_t k = strlen(parts[i]);
        if (n <= k || strcmp(name + n - k, parts[i]) != 0)
            continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(n - k), name);
        return companion(w, stem, parts[4]) || companion(w, stem, parts[5]);
    }
    static const char *const rows[] = {".SCB", ".weight_format"};
    for (size_t i = 0; i < AF_LEN(rows) && n + 8 < sizeof stem; i++) {
        const size_t k = strlen(rows[i]);
        if (n <= k || strcmp(name + n - k, rows[i]) != 0)
            continue;
        snprintf(stem, sizeof stem, "%.*s.weight", (int)(n - k), name);
        const af_stored *t = af_weights_find(w, stem);
        return t && t->dtype == AF_DTYPE_I8;
    }
    return false;
}
