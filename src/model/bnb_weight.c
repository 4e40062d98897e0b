/* bnb_weight.c - bitsandbytes weights of a folder: finds and checks the parts of one weight, and
 * gives its values. The formula is w = map[code] * absmax[block], absmax itself being nested_map[q]
 * * nested[block of 256] + offset with double quantisation, all in f32, then rounded once. */
#include "model/bnb_weight.h"

#include "tensor/codec_bnb.h"

#include <jansson.h>
#include <math.h>

enum { AF_BNB_BLOCK = 64, NAME_BYTES = 512, BLOCK_MAX = 1 << 16 };

static const af_stored *part_of(const af_weights *w, const char *name, const char *tail)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", name, tail);
    return af_weights_find(w, full);
}

/* A part that must be there with this type and count. */
static af_status need(const void **data, const af_weights *w, const char *name, const char *tail,
                      af_dtype type, int64_t count, af_error *err)
{
    const af_stored *p = part_of(w, name, tail);
    if (!p)
        return af_fail(err, AF_EFORMAT, "'%s' has no part '%s'", name, tail);
    if (p->dtype != type || af_weight_count(p) != count)
        return af_fail(err, AF_EFORMAT,
                       "'%s%s' has %" PRId64 " values of %s, not %" PRId64 " of %s", name, tail,
                       af_weight_count(p), af_dtype_name(p->dtype), count, af_dtype_name(type));
    *data = p->data;
    return AF_OK;
}

static bool read_dtype(af_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        af_dtype type;
    } types[] = {{"bfloat16", AF_DTYPE_BF16}, {"float16", AF_DTYPE_F16}, {"float32", AF_DTYPE_F32}};
    for (size_t i = 0; name && i < AF_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

/* The numbers of the JSON blob. */
static af_status read_state(af_bnb_weight *b, const json_t *state, const char *name, int64_t rows,
                            af_error *err)
{
    const json_t *shape = json_object_get(state, "shape");
    const int64_t block = json_integer_value(json_object_get(state, "blocksize"));
    const int64_t nested = json_integer_value(json_object_get(state, "nested_blocksize"));
    if (!json_is_array(shape) || json_array_size(shape) != 2 ||
        json_integer_value(json_array_get(shape, 0)) != rows ||
        json_integer_value(json_array_get(shape, 1)) != b->cols)
        return af_fail(err, AF_EFORMAT,
                       "'%s': the shape in its quant state is not %" PRId64 "x%" PRId64, name, rows,
                       b->cols);
    if (block < 1 || block > BLOCK_MAX || nested < 0 || nested > BLOCK_MAX)
        return af_fail(err, AF_EFORMAT,
                       "'%s': blocks of %" PRId64 " and %" PRId64 " are not possible", name, block,
                       nested);
    if (!read_dtype(&b->round, json_string_value(json_object_get(state, "dtype"))))
        return af_fail(err, AF_EFORMAT, "'%s': the dtype in its quant state is not a float", name);
    b->block = (int)block;
    b->nested_block = (int)nested;
    b->offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    return AF_OK;
}

static af_status read_4bit(af_bnb_weight *b, const af_weights *w, const char *name, int64_t rows,
                           af_error *err)
{
    af_status st = AF_OK;
    const af_stored *state = part_of(w, name, ".quant_state.bitsandbytes__nf4");
    b->type = state ? AF_DTYPE_NF4 : AF_DTYPE_FP4;
    state = state ? state : part_of(w, name, ".quant_state.bitsandbytes__fp4");
    if (!state || state->bytes > AF_BNB_STATE_MAX)
        return af_fail(err, AF_EFORMAT, "'%s' has no usable quant state", name);
    json_error_t je;
    json_t *root = json_loadb(state->data, state->bytes, 0, &je);
    if (!json_is_object(root))
        AF_TRY(af_fail(err, AF_EFORMAT, "'%s': its quant state is not JSON: %s", name, je.text));
    AF_TRY(read_state(b, root, name, rows, err));
    const int64_t blocks = af_bnb_weight_blocks(b);
    const void *p;
    AF_TRY(need(&p, w, name, "", AF_DTYPE_U8, (b->count + 1) / 2, err));
    b->codes = p;
    AF_TRY(need(&p, w, name, ".quant_map", AF_DTYPE_F32, 16, err));
    b->map = p;
    AF_TRY(need(&b->absmax, w, name, ".absmax", b->nested_block ? AF_DTYPE_U8 : AF_DTYPE_F32,
                blocks, err));
    if (b->nested_block) {
        AF_TRY(need(&p, w, name, ".nested_absmax", AF_DTYPE_F32,
                    (blocks + b->nested_block - 1) / b->nested_block, err));
        b->nested = p;
        AF_TRY(need(&p, w, name, ".nested_quant_map", AF_DTYPE_F32, 256, err));
        b->nested_map = p;
    }
done:
    json_decref(root);
    return st;
}

static af_status read_8bit(af_bnb_weight *b, const af_weights *w, const char *name, int64_t rows,
                           af_error *err)
{
    char module[NAME_BYTES];
    const size_t n = strlen(name), tail = strlen(".weight");
    snprintf(module, sizeof module, "%.*s", (int)(n > tail ? n - tail : n), name);
    const void *p;
    af_status st = need(&p, w, name, "", AF_DTYPE_I8, b->count, err);
    if (st != AF_OK)
        return st;
    b->codes = p;
    b->type = AF_DTYPE_I8;
    st = need(&p, w, module, ".SCB", AF_DTYPE_F32, rows, err);
    b->row_scale = p;
    return st;
}

af_status af_bnb_weight_read(af_bnb_weight *out, const af_weights *w, const char *name,
                             int64_t rows, int64_t cols, af_dtype model_dtype, af_error *err)
{
    const af_stored *t = af_weights_find(w, name);
    af_bnb_weight b = {.name = t->name, .count = rows * cols, .cols = cols, .round = model_dtype};
    const af_status st = t->dtype == AF_DTYPE_I8 ? read_8bit(&b, w, name, rows, err)
                                                 : read_4bit(&b, w, name, rows, err);
    if (st == AF_OK)
        *out = b;
    return st;
}

void af_bnb_weight_clear(af_bnb_weight *b)
{
    free(b->owned);
    *b = (af_bnb_weight){0};
}

int64_t af_bnb_weight_blocks(const af_bnb_weight *b)
{
    return b->block ? (b->count + b->block - 1) / b->block : 0;
}

static float round_to(float x, af_dtype t)
{
    if (t == AF_DTYPE_BF16)
        return af_f32_from_bf16(af_bf16_from_f32(x));
    return t == AF_DTYPE_F16 ? af_f32_from_f16(af_f16_from_f32(x)) : x;
}

static float scale_of(const af_bnb_weight *b, int64_t block)
{
    float scale;
    if (!b->nested_block)
        return ((const float *)b->absmax)[block];
    af_bnb_unnest(b->nested_map, b->absmax, b->nested, b->offset, b->nested_block, block, block + 1,
                  &scale);
    return scale;
}

void af_bnb_weight_decode(const af_bnb_weight *b, int64_t from, int64_t n, float *out)
{
    if (b->type == AF_DTYPE_I8) {
        for (int64_t i = 0; i < n; i++) {
            const float q = (float)((const int8_t *)b->codes)[from + i];
            out[i] = round_to(q * b->row_scale[(from + i) / b->cols] * (1.0f / 127.0f), b->round);
        }
        return;
    }
    float scale = 0;
    for (int64_t i = from; i < from + n; i++) {
        if (i == from || i % b->block == 0)
            scale = scale_of(b, i / b->block);
        const int code = i % 2 ? b->codes[i / 2] & 15 : b->codes[i / 2] >> 4;
        out[i - from] = round_to(b->map[code] * scale, b->round);
    }
}

bool af_bnb_weight_is_standard(const af_bnb_weight *b)
{
    return b->type == AF_DTYPE_NF4 &&
           memcmp(b->map, af_bnb_table(AF_DTYPE_NF4), 16 * sizeof(float)) == 0 &&
           (!b->nested_block || memcmp(b->nested_map, af_bnb_map(true), 256 * sizeof(float)) == 0);
}

af_bnb_weight af_bnb_weight_outline(int64_t count, int64_t cols, af_dtype round)
{
    return (af_bnb_weight){.type = AF_DTYPE_NF4,
                           .count = count,
                           .cols = cols,
                           .block = AF_BNB_BLOCK,
                           .nested_block = AF_BNB_NESTED_BLOCK,
                           .map = af_bnb_table(AF_DTYPE_NF4),
                           .nested_map = af_bnb_map(true),
                           .round = round};
}

/* Codes, scale codes and outer scales lie in one piece of memory. */
af_status af_bnb_weight_make(af_bnb_weight *out, float *x, int64_t count, int64_t cols,
                             af_dtype round, af_error *err)
{
    const int64_t blocks = af_bnb_blocks(count, AF_BNB_BLOCK);
    const int64_t outer = af_bnb_blocks(blocks, AF_BNB_NESTED_BLOCK);
    const uint64_t codes = AF_ALIGN_UP((uint64_t)af_bnb_bytes(count), (uint64_t)64);
    const uint64_t scales = AF_ALIGN_UP((uint64_t)blocks, (uint64_t)64);
    uint8_t *mem = af_calloc(codes + scales + (uint64_t)outer * sizeof(float), 1);
    float *absmax = af_calloc((uint64_t)blocks, sizeof *absmax);
    if (!mem || !absmax) {
        free(mem);
        free(absmax);
        return af_fail_nomem(err, "a 4-bit tensor", codes + scales);
    }
    for (int64_t i = 0; i < count; i++)
        x[i] = round_to(x[i], AF_DTYPE_BF16);
    float *nested = (float *)(void *)(mem + codes + scales);
    af_bnb_encode(AF_DTYPE_NF4, x, count, AF_BNB_BLOCK, mem, absmax);
    const float offset = af_bnb_offset(absmax, blocks);
    af_bnb_nest(absmax, blocks, offset, mem + codes, nested);
    free(absmax);
    *out = af_bnb_weight_outline(count, cols, round);
    out->codes = out->owned = mem;
    out->absmax = mem + codes;
    out->nested = nested;
    out->offset = offset;
    return AF_OK;
}
