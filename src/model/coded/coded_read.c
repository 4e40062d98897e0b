/* coded_read.c - finds the tensors of a coded weight and checks their sizes; see coded_weight.h.
 * Nothing large is touched: only the groups of columns, where a file lists them, are read. */
#include "model/coded/coded_weight.h"

#include <math.h>
#include <stdarg.h>

enum { NAME_BYTES = 512 };

/* A file's tensors that belong to one weight: "model.layers.0.mlp.up_proj" + tail. */
typedef struct coded_source {
    const af_weights *w;
    const af_hf_config *c;
    const char *name; /* of the weight */
    char base[NAME_BYTES];
    af_error *err;
} coded_source;

static const af_stored *next_to(const coded_source *s, const char *tail)
{
    char name[NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", s->base, tail);
    return af_weights_find(s->w, name);
}

AF_PRINTF(2, 3)
static af_status bad(const coded_source *s, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return af_fail(s->err, AF_EFORMAT, "'%s': %s", s->name, text);
}

static bool is_shape(const af_stored *t, int64_t a, int64_t b)
{
    return t && t->ndim == 2 && t->dim[0] == a && t->dim[1] == b;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void set_size(af_coded_weight *o, int64_t rows, int64_t cols)
{
    o->ndim = 2;
    o->dim[0] = o->rows = rows;
    o->dim[1] = o->cols = cols;
}

/* Groups of columns in the file's own order: all within [0, groups). */
static af_status check_order(const coded_source *s, const af_coded_weight *o, int64_t groups)
{
    if (!o->order)
        return AF_OK;
    if (o->order->dtype != AF_DTYPE_I32 || af_weight_count(o->order) != o->cols)
        return bad(s, "its group index is not one i32 for each of %" PRId64 " columns", o->cols);
    const int32_t *g = o->order->data;
    for (int64_t i = 0; i < o->cols; i++)
        if (g[i] < 0 || g[i] >= groups)
            return bad(s, "column %" PRId64 " is in group %d of %" PRId64, i, (int)g[i], groups);
    return AF_OK;
}

static bool is_number(af_dtype t)
{
    return af_dtype_is_float(t) || t == AF_DTYPE_E8M0 || t == AF_DTYPE_U8 || t == AF_DTYPE_E4M3;
}

/* Scales of a matrix: one, one per row, one per group of a row's columns, or one per block. */
static af_status read_grid(const coded_source *s, af_coded_weight *o)
{
    const af_stored *t = o->scale;
    const int64_t *want = s->c->quant.block;
    if (!is_number(t->dtype))
        return bad(s, "scales of type %s", af_dtype_name(t->dtype));
    if (af_weight_count(t) == 1) {
        o->block[0] = AF_MAX(o->rows, 1);
        o->block[1] = AF_MAX(o->cols, 1);
        o->scale_cols = 1;
        return AF_OK;
    }
    const int64_t rows = t->dim[0], cols = t->ndim == 2 ? t->dim[1] : 1;
    if (t->ndim < 1 || t->ndim > 2 || rows < 1 || cols < 1)
        return bad(s, "scales of %d dimensions", t->ndim);
    const bool blocks =
        want[0] > 0 && rows == ceil_div(o->rows, want[0]) && cols == ceil_div(o->cols, want[1]);
    o->block[0] = blocks ? want[0] : AF_MAX(o->rows / rows, 1); /* codes may be none */
    o->block[1] = blocks ? want[1] : AF_MAX(o->cols / cols, 1);
    o->scale_cols = cols;
    if (!blocks && (o->block[0] * rows != o->rows || o->block[1] * cols != o->cols))
        return bad(s, "%" PRId64 " x %" PRId64 " scales do not fit %" PRId64 " x %" PRId64 " codes",
                   rows, cols, o->rows, o->cols);
    return AF_OK;
}

static af_dtype scale_type(const af_stored *t)
{
    return t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16 ? t->dtype : AF_DTYPE_F32;
}

static af_dtype model_type(const coded_source *s)
{
    return s->c->has_dtype && s->c->dtype != AF_DTYPE_F64 ? s->c->dtype : AF_DTYPE_BF16;
}

/* "....weight" with scales: fp8, or int8 of compressed-tensors. */
static af_status read_plain(const coded_source *s, af_coded_weight *o, const af_stored *codes,
                            const af_stored *scale, bool inverse)
{
    const bool e4 = codes->dtype == AF_DTYPE_E4M3, e5 = codes->dtype == AF_DTYPE_E5M2;
    if (codes->ndim != 2 || (!e4 && !e5 && codes->dtype != AF_DTYPE_I8))
        return bad(s, "it has scales, but its codes are %s", af_dtype_name(codes->dtype));
    o->kind = AF_CODE_PLAIN;
    o->codes = codes;
    o->scale = scale;
    o->zero = inverse ? NULL : next_to(s, ".weight_zero_point");
    o->round = inverse ? model_type(s) : scale_type(scale);
    set_size(o, codes->dim[0], codes->dim[1]);
    const af_status st = read_grid(s, o);
    if (st != AF_OK || !o->zero)
        return st;
    if (af_weight_count(o->zero) != af_weight_count(scale) || o->zero->dtype != AF_DTYPE_I8)
        return bad(s, "its zero points are not one i8 for each scale");
    return AF_OK;
}

/* Two codes per byte. */
static af_status read_fp4(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    o->kind = AF_CODE_FP4;
    o->codes = codes;
    o->scale = next_to(s, ".weight_scale");
    o->global = next_to(s, ".weight_global_scale");
    o->divide = o->global != NULL;
    o->global = o->global ? o->global : next_to(s, ".weight_scale_2");
    o->round = o->divide ? AF_DTYPE_BF16 : model_type(s);
    if (codes->ndim != 2 || codes->dim[1] > INT64_MAX / 2)
        return bad(s, "4-bit codes of %d dimensions", codes->ndim);
    set_size(o, codes->dim[0], codes->dim[1] * 2);
    if (!o->scale || o->scale->ndim != 2 || o->scale->dim[0] != o->rows)
        return bad(s, "its 4-bit codes have no scale for every row");
    if (o->global && (af_weight_count(o->global) != 1 || !af_dtype_is_float(o->global->dtype)))
        return bad(s, "its global scale is not one number");
    const af_status st = read_grid(s, o);
    if (st == AF_OK && (o->block[0] != 1 || (o->block[1] != 16 && o->block[1] != 32)))
        return bad(s, "%" PRId64 " x %" PRId64 " values share a scale, not 16 or 32 of a row",
                   o->block[0], o->block[1]);
    return st;
}

/* compressed-tensors: words, scales, and the shape that was packed. */
static af_status read_words(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    const af_stored *shape = next_to(s, ".weight_shape");
    if (codes->dtype == AF_DTYPE_U8)
        return read_fp4(s, o, codes);
    o->kind = AF_CODE_WORDS;
    o->codes = codes;
    o->scale = next_to(s, ".weight_scale");
    o->zero = next_to(s, ".weight_zero_point");
    o->order = next_to(s, ".weight_g_idx");
    if (!o->scale || codes->ndim != 2 || codes->dtype != AF_DTYPE_I32)
        return bad(s, "its packed codes are not an i32 matrix with scales");
    if (!shape || af_weight_count(shape) != 2 ||
        (shape->dtype != AF_DTYPE_I64 && shape->dtype != AF_DTYPE_I32))
        return bad(s, "the shape of its packed codes is not stored");
    const double rows = af_load_f64(shape->data, shape->dtype, 0),
                 cols = af_load_f64(shape->data, shape->dtype, 1);
    if (rows != (double)codes->dim[0] || !(cols >= 1) || cols > AF_CONFIG_WIDTH_MAX)
        return bad(s, "packed codes of %" PRId64 " rows for a matrix of %g x %g", codes->dim[0],
                   rows, cols);
    set_size(o, codes->dim[0], (int64_t)cols);
    for (o->bits = 1; o->bits <= 8; o->bits++)
        if (ceil_div(o->cols * o->bits, 32) == codes->dim[1])
            break;
    if (o->bits > 8)
        return bad(s, "%" PRId64 " words per row do not hold %" PRId64 " codes of 1 to 8 bits",
                   codes->dim[1], o->cols);
    o->round = scale_type(o->scale);
    af_status st = read_grid(s, o);
    if (st == AF_OK)
        st = check_order(s, o, o->scale_cols);
    if (st != AF_OK || !o->zero)
        return st;
    const int64_t packed = ceil_div(o->rows * o->bits, 32);
    if (!(o->zero->dtype == AF_DTYPE_I32 && o->block[0] == 1 &&
          is_shape(o->zero, packed, o->scale_cols)) &&
        !(o->zero->dtype == AF_DTYPE_I8 && af_weight_count(o->zero) == af_weight_count(o->scale)))
        return bad(s, "its zero points do not fit its scales");
    return AF_OK;
}

static af_status read_transposed(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    const bool awq = s->c->quant.method == AF_QUANT_AWQ;
    if (!awq && s->c->quant.method != AF_QUANT_GPTQ)
        return bad(s, "a qweight is that of GPTQ or AWQ, which quantization_config does not name");
    o->kind = awq ? AF_CODE_AWQ : AF_CODE_GPTQ;
    o->bits = s->c->quant.bits;
    o->codes = codes;
    o->scale = next_to(s, ".scales");
    o->zero = next_to(s, ".qzeros");
    o->order = awq ? NULL : next_to(s, ".g_idx");
    o->zero_add = !awq && !s->c->quant.zeros_as_used;
    if (!o->scale || !o->zero || codes->dtype != AF_DTYPE_I32 || o->zero->dtype != AF_DTYPE_I32 ||
        !af_dtype_is_float(o->scale->dtype) || codes->ndim != 2 || o->scale->ndim != 2 ||
        o->zero->ndim != 2)
        return bad(s, "qweight, qzeros and scales are not two i32 matrices and a float one");
    const int64_t out = o->scale->dim[1], groups = o->scale->dim[0];
    const int64_t packed = AF_MIN(o->zero->dim[1], INT64_MAX / 32) * 32;
    if (!awq && out > 0 && packed % out == 0 && /* modules may have bits of their own */
        (packed / out == 2 || packed / out == 3 || packed / out == 4 || packed / out == 8))
        o->bits = (int)(packed / out);
    const int64_t words = codes->dim[0];
    if (words > INT64_MAX / 32)
        return bad(s, "%" PRId64 " rows of codes", words);
    set_size(o, out, awq ? words : words * 32 / o->bits);
    if (groups < 1 || o->cols < 1 || o->cols % groups || codes->dim[1] != (awq ? out / 8 : out) ||
        (awq && out % 8) || !is_shape(o->zero, groups, ceil_div(out * o->bits, 32)))
        return bad(s,
                   "codes %" PRId64 " x %" PRId64 ", zeros %" PRId64 " x %" PRId64
                   " and scales %" PRId64 " x %" PRId64 " do not fit together",
                   codes->dim[0], codes->dim[1], o->zero->dim[0], o->zero->dim[1], groups, out);
    o->block[0] = 1;
    o->block[1] = o->cols / groups;
    o->round = scale_type(o->scale);
    return check_order(s, o, groups);
}

/* MLX: u32 words along the row, a scale and a bias for each group of columns; with its mode mxfp4
 * an exponent alone. */
static af_status read_mlx(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    const af_stored *t = o->scale = next_to(s, ".scales");
    o->zero = next_to(s, ".biases");
    o->codes = codes;
    if (codes->ndim != 2 || !is_shape(t, codes->dim[0], t->dim[1]) || t->dim[1] < 1 ||
        codes->dim[1] < 1 || codes->dim[1] > AF_CONFIG_WIDTH_MAX)
        return bad(s, "its codes and scales are not two matrices of as many rows");
    const int64_t words = codes->dim[1];
    const bool fp4 =
        !o->zero && t->dtype == AF_DTYPE_U8 && words % 4 == 0 && t->dim[1] == words / 4;
    const int64_t group = fp4 ? 32 : af_quant_group(s->c, s->base);
    if (!o->zero && !fp4)
        return bad(s, "codes of MLX without biases, of another mode than affine and mxfp4");
    o->kind = fp4 ? AF_CODE_FP4 : AF_CODE_AFFINE;
    o->round = fp4 ? model_type(s) : scale_type(t);
    if (t->dim[1] > AF_CONFIG_WIDTH_MAX / group)
        return bad(s, "%" PRId64 " groups of %" PRId64 " columns", t->dim[1], group);
    set_size(o, codes->dim[0], t->dim[1] * group);
    o->bits = (int)AF_MIN(words * 32 / o->cols, 9);
    if (o->bits < 1 || o->bits > 8 || o->cols * o->bits != words * 32)
        return bad(s, "%" PRId64 " words per row do not hold %" PRId64 " codes of 1 to 8 bits",
                   words, o->cols);
    if (o->zero && (!af_dtype_is_float(t->dtype) || o->zero->dtype != t->dtype ||
                    !is_shape(o->zero, t->dim[0], t->dim[1])))
        return bad(s, "its biases do not fit its scales");
    o->block[0] = 1;
    o->block[1] = group;
    o->scale_cols = t->dim[1];
    return AF_OK;
}

/* gpt-oss: [X][out][in/32][16] bytes and [X][out][in/32] exponents; in memory [X][in][out]. */
static af_status read_blocks(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    o->kind = AF_CODE_FP4;
    o->codes = codes;
    o->scale = next_to(s, "_scales");
    const af_stored *t = o->scale;
    if (!t || codes->dtype != AF_DTYPE_U8 || t->dtype != AF_DTYPE_U8 || codes->ndim != 4 ||
        t->ndim != 3 || codes->dim[3] != 16 || memcmp(codes->dim, t->dim, 3 * sizeof *t->dim) != 0)
        return bad(s, "its blocks and scales are not u8 [experts, rows, blocks, 16] and the same "
                      "without the 16");
    o->transposed = true;
    o->ndim = 3;
    o->dim[0] = t->dim[0];
    o->dim[1] = t->dim[2] * 32; /* sizes are those of stored bytes: no overflow */
    o->dim[2] = o->cols = t->dim[1];
    o->rows = o->dim[0] * o->dim[1];
    o->block[0] = 1;
    o->block[1] = 32;
    o->scale_cols = t->dim[2];
    o->round = AF_DTYPE_F32; /* exact */
    return AF_OK;
}

/* The mean of |w|; 0 where there are no values. */
static double mean_size(const af_stored *w)
{
    enum { STEP = 512 };
    float x[STEP];
    double sum = 0;
    const uint64_t n = w->data ? (uint64_t)af_weight_count(w) : 0;
    const uint64_t one = (uint64_t)af_dtype_get(w->dtype)->bytes;
    for (uint64_t i = 0; i < n; i += STEP) {
        const uint64_t k = AF_MIN(n - i, (uint64_t)STEP);
        af_convert(x, AF_DTYPE_F32, (const uint8_t *)w->data + i * one, w->dtype, k);
        for (uint64_t j = 0; j < k; j++)
            sum += fabs((double)x[j]);
    }
    return n ? sum / (double)n : 0;
}

/* [rows / 4][columns] bytes and one scale; or, online, a plain weight of a layer. */
static af_status read_bitnet(const coded_source *s, af_coded_weight *o, const af_stored *codes)
{
    const bool online = s->c->quant.online;
    o->kind = online ? AF_CODE_MEAN : AF_CODE_TERNARY;
    o->codes = codes;
    o->scale = next_to(s, ".weight_scale");
    if (codes->ndim != 2 || codes->dim[0] > INT64_MAX / 4 ||
        (online ? !af_dtype_is_float(codes->dtype) : codes->dtype != AF_DTYPE_U8))
        return bad(s, "%s of %d dimensions is not a weight of BitNet", af_dtype_name(codes->dtype),
                   codes->ndim);
    if (!online &&
        (!o->scale || af_weight_count(o->scale) != 1 || !af_dtype_is_float(o->scale->dtype)))
        return bad(s, "its packed codes have no scale of one number");
    set_size(o, online ? codes->dim[0] : codes->dim[0] * 4, codes->dim[1]);
    o->round = online ? AF_DTYPE_F32 : scale_type(o->scale);
    o->mean = online ? (float)fmax(mean_size(codes), 1e-5) : 0;
    return AF_OK;
}

/* A linear that BitNet has rounded. */
static bool is_bitnet(const coded_source *s, const af_stored *t)
{
    if (s->c->quant.method != AF_QUANT_BITNET || !t || s->c->quant.trained)
        return false;
    return s->c->quant.online ? t->ndim == 2 && strstr(s->name, "layers.") != NULL
                              : next_to(s, ".weight_scale") != NULL;
}

af_status af_coded_weight_read(af_coded_weight *out, bool *found, const af_weights *w,
                               const af_hf_config *c, const char *name, af_error *err)
{
    coded_source s = {.w = w, .c = c, .name = name, .err = err};
    af_coded_weight o = {.name = name};
    const size_t n = strlen(name);
    const bool weight = n > 7 && strcmp(name + n - 7, ".weight") == 0;
    const af_stored *codes, *scale;
    af_status st = AF_OK;
    *found = false;
    if (!af_quant_is_coded(c->quant.method) || n >= NAME_BYTES)
        return AF_OK;
    snprintf(s.base, sizeof s.base, "%.*s", (int)(weight ? n - 7 : n), name);
    const af_stored *plain = af_weights_find(w, name);
    if (c->quant.method == AF_QUANT_MLX) {
        if (!weight || !plain || plain->dtype != AF_DTYPE_U32 || !next_to(&s, ".scales"))
            return AF_OK;
        st = read_mlx(&s, &o, plain);
    } else if (weight && is_bitnet(&s, plain))
        st = read_bitnet(&s, &o, plain);
    else if (!weight && (codes = next_to(&s, "_blocks")))
        st = read_blocks(&s, &o, codes);
    else if (weight && plain && (scale = next_to(&s, ".weight_scale_inv")))
        st = read_plain(&s, &o, plain, scale, true);
    else if (weight && (codes = next_to(&s, ".weight_packed")))
        st = read_words(&s, &o, codes);
    else if (weight && (codes = next_to(&s, ".qweight")))
        st = read_transposed(&s, &o, codes);
    else if (weight && plain && (scale = next_to(&s, ".weight_scale")))
        st = plain->dtype == AF_DTYPE_U8 ? read_fp4(&s, &o, plain)
                                         : read_plain(&s, &o, plain, scale, false);
    else
        return AF_OK;
    if (st != AF_OK)
        return st;
    *found = true;
    *out = o;
    return AF_OK;
}

af_status af_coded_weight_read_part(af_coded_weight *out, bool *found, const af_weights *w,
                                    const af_hf_config *c, const char *name, af_error *err)
{
    if (!af_quant_is_bnb(c->quant.method))
        return af_coded_weight_read(out, found, w, c, name, err);
    af_coded_weight o = {.kind = AF_CODE_BNB, .name = name, .codes = af_weights_find(w, name)};
    const af_status st = af_bnb_weight_read(&o.bnb, found, w, name, c->dtype, err);
    if (st != AF_OK || !*found)
        return st;
    o.round = o.bnb.round;
    o.ndim = AF_MIN(o.bnb.ndim, 3);
    memcpy(o.dim, o.bnb.dim, sizeof o.dim);
    o.cols = o.bnb.cols;
    o.rows = o.bnb.count / o.cols;
    *out = o;
    return AF_OK;
}

bool af_coded_part(const af_weights *w, const af_hf_config *c, const char *name, char *weight,
                   size_t size)
{
    static const struct {
        const char *tail, *beside; /* `beside`: what must be stored, too, or NULL */
        bool codes;
    } tails[] = {
        {".weight_packed", NULL, true},      {".qweight", NULL, true},
        {"_blocks", "_scales", true},        {"_scales", "_blocks", false},
        {".weight_scale_inv", NULL, false},  {".weight_scale", NULL, false},
        {".weight_scale_2", NULL, false},    {".weight_global_scale", NULL, false},
        {".weight_zero_point", NULL, false}, {".weight_shape", NULL, false},
        {".weight_g_idx", NULL, false},      {".qzeros", ".qweight", false},
        {".scales", ".qweight", false},      {".g_idx", ".qweight", false},
        {".input_scale", NULL, false},       {".input_global_scale", NULL, false},
        {".input_scale_ub", NULL, false},    {".input_zero_point", NULL, false},
        {".activation_scale", NULL, false},  {".k_scale", NULL, false},
        {".v_scale", NULL, false},           {".scales", ".weight", false},
        {".biases", ".scales", false},
    };
    const size_t n = strlen(name);
    char other[NAME_BYTES + 32];
    weight[0] = '\0';
    for (size_t i = 0; af_quant_is_coded(c->quant.method) && i < AF_LEN(tails); i++) {
        const size_t t = strlen(tails[i].tail);
        if (n <= t || n - t >= NAME_BYTES || strcmp(name + n - t, tails[i].tail) != 0)
            continue;
        snprintf(other, sizeof other, "%.*s%s", (int)(n - t), name,
                 tails[i].beside ? tails[i].beside : "");
        if (tails[i].beside && !af_weights_find(w, other))
            continue;
        if (tails[i].codes)
            snprintf(weight, size, "%.*s%s", (int)(n - t), name,
                     tails[i].tail[0] == '.' ? ".weight" : "");
        return true;
    }
    return false;
}
