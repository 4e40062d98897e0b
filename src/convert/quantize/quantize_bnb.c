/* quantize_bnb.c - a model folder with bitsandbytes 4-bit or 8-bit linears; see quantize_bnb.h.
 *
 * Two passes over each linear: the first finds the mean of the block scales (double quantisation
 * needs it, and the JSON that holds it has to be declared before any data is written), the second
 * encodes and streams. Rows are taken in groups that end at a block's end, so that threads can
 * encode groups apart. */
#include "convert/quantize/quantize_bnb.h"
#include "convert/output/model_card.h"
#include "convert/quantize/bnb_linears.h"

#include "base/buf.h"
#include "base/log.h"
#include "convert/output/convert_report.h"
#include "convert/output/model_out.h"
#include "model/arch/arch_disk.h"
#include "tensor/codec_bnb.h"

#include <float.h>
#include <math.h>

enum { NAME_BYTES = 1024, GROUP_VALUES = 1 << 17, GROUPS = 16, BLOCK_MAX = 4096 };

typedef struct bnb_export {
    af_model_reader *in;
    const char *dir; /* the source, for its text files; NULL for GGUF */
    af_dtype type;
    int64_t block;
    bool nested;
    af_pool *pool;
    float *offset; /* by tensor */
    af_safetensors_writer *w;
    af_convert_report *report;
    /* one tensor at a time */
    af_tensor_view view;
    int64_t cols, rows, group_rows;
    float *values, *decoded; /* [GROUPS][group_rows * cols] */
    uint8_t *codes;
    float *absmax; /* of the whole tensor; int8: SCB */
    int64_t first; /* row of group 0 */
    af_error_sums sums[GROUPS];
} bnb_export;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Rows of a group: its elements fill whole blocks. */
static int64_t group_rows(const bnb_export *j)
{
    const int64_t step = j->type == AF_DTYPE_I8 ? 1 : j->block / gcd(j->cols, j->block);
    const int64_t most = AF_MAX(GROUP_VALUES / AF_MAX(j->cols, 1), 1);
    return AF_MAX(most / step, 1) * step;
}

static void group_range(const bnb_export *j, int64_t g, int64_t *from, int64_t *n)
{
    *from = j->first + g * j->group_rows;
    *n = AF_MIN(j->group_rows, j->rows - *from);
}

/* ---- the first pass ---- */

static void find_absmax(void *arg, int64_t from_group, int64_t to_group, int share)
{
    bnb_export *j = arg;
    (void)share;
    for (int64_t g = from_group; g < to_group; g++) {
        int64_t from, n;
        group_range(j, g, &from, &n);
        float *x = j->values + g * j->group_rows * j->cols;
        af_tensor_view_rows(&j->view, from, n, x);
        const int64_t count = n * j->cols, block0 = from * j->cols / j->block;
        for (int64_t at = 0; at < count; at += j->block) {
            float most = 0;
            for (int64_t i = at; i < AF_MIN(at + j->block, count); i++) {
                const float a = fabsf(x[i]);
                most = a > most ? a : most;
            }
            j->absmax[block0 + at / j->block] = most < FLT_MIN ? 0 : most; /* as the GPU: flushed */
        }
    }
}

/* ---- the second pass ---- */

static void encode_rows8(bnb_export *j, int64_t g, int64_t from, int64_t n)
{
    const int64_t at = g * j->group_rows * j->cols;
    for (int64_t r = 0; r < n; r++) {
        const int64_t k = at + r * j->cols;
        j->absmax[from + r] = af_int8_encode_row(j->values + k, j->cols, (int8_t *)j->codes + k);
        af_int8_decode_row((int8_t *)j->codes + k, j->absmax[from + r], j->cols, j->decoded + k);
    }
}

static void encode_group(void *arg, int64_t from_group, int64_t to_group, int share)
{
    bnb_export *j = arg;
    (void)share;
    for (int64_t g = from_group; g < to_group; g++) {
        int64_t from, n;
        group_range(j, g, &from, &n);
        const int64_t at = g * j->group_rows * j->cols, count = n * j->cols;
        af_tensor_view_rows(&j->view, from, n, j->values + at);
        if (j->type == AF_DTYPE_I8) {
            encode_rows8(j, g, from, n);
        } else {
            float *absmax = j->absmax + from * j->cols / j->block;
            uint8_t *codes = j->codes + at / 2;
            af_bnb_encode(j->type, j->values + at, count, j->block, codes, absmax);
            af_bnb_decode(j->type, NULL, codes, absmax, j->block, 0, count, j->decoded + at,
                          AF_DTYPE_F32);
        }
        j->sums[g] = (af_error_sums){0};
        af_error_sums_measure(&j->sums[g], j->values + at, j->decoded + at, count);
    }
}

static af_status open_tensor(bnb_export *j, const af_model_tensor *t, af_error *err)
{
    const af_status st = af_tensor_view_open(&j->view, j->in, t, err);
    if (st != AF_OK)
        return st;
    j->cols = af_model_tensor_cols(t);
    j->rows = af_model_tensor_rows(t);
    j->group_rows = group_rows(j);
    const uint64_t values = (uint64_t)(GROUPS * j->group_rows * j->cols);
    const int64_t scales =
        j->type == AF_DTYPE_I8 ? j->rows : af_bnb_blocks(j->rows * j->cols, j->block);
    j->values = af_calloc(values, sizeof *j->values);
    j->decoded = af_calloc(values, sizeof *j->decoded);
    j->codes = af_calloc(values, 1);
    j->absmax = af_calloc((uint64_t)scales, sizeof *j->absmax);
    if (!j->values || !j->decoded || !j->codes || !j->absmax)
        return af_fail_nomem(err, t->name, values * 9 + (uint64_t)scales * 4);
    return AF_OK;
}

static void close_tensor(bnb_export *j)
{
    af_tensor_view_close(&j->view);
    free(j->values);
    free(j->decoded);
    free(j->codes);
    free(j->absmax);
    j->values = j->decoded = j->absmax = NULL;
    j->codes = NULL;
}

static int64_t groups_at(const bnb_export *j, int64_t first)
{
    return AF_MIN(GROUPS, (j->rows - first + j->group_rows - 1) / j->group_rows);
}

static af_status find_offset(bnb_export *j, int i, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(open_tensor(j, &j->in->tensor[i], err));
    for (j->first = 0; j->first < j->rows; j->first += GROUPS * j->group_rows)
        af_pool_run(j->pool, groups_at(j, j->first), find_absmax, j);
    j->offset[i] = af_bnb_offset(j->absmax, af_bnb_blocks(j->rows * j->cols, j->block));
done:
    close_tensor(j);
    return st;
}

/* ---- declarations ---- */

/* The shortest text that reads back as the same double, as Python prints it. */
static void put_number(af_buf *b, double v)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    af_buf_str(b, text);
    if (!strpbrk(text, ".en"))
        af_buf_str(b, ".0");
}

static void state_text(const bnb_export *j, int i, af_buf *b)
{
    const af_model_tensor *t = &j->in->tensor[i];
    af_buf_printf(b,
                  "{\"quant_type\": \"%s\", \"blocksize\": %" PRId64
                  ", \"dtype\": \"%s\", \"shape\": [%" PRId64 ", %" PRId64 "]",
                  af_dtype_name(j->type), j->block, af_torch_name(t->dtype), t->dim[0], t->dim[1]);
    if (j->nested) {
        af_buf_printf(b, ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\"",
                      AF_BNB_NESTED_BLOCK);
        af_buf_str(b, ", \"nested_offset\": ");
        put_number(b, (double)j->offset[i]);
    }
    af_buf_char(b, '}');
}

static af_status add(bnb_export *j, const char *name, const char *tail, af_dtype dtype, int64_t a,
                     int64_t b, int ndim, af_error *err)
{
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", name, tail);
    return af_safetensors_writer_add(j->w, full, dtype, (int64_t[]){a, b}, ndim, err);
}

/* "x.weight" without ".weight": what SCB hangs on. */
static void module_name(const af_model_tensor *t, char *out, size_t size)
{
    snprintf(out, size, "%.*s", (int)(strlen(t->name) - 7), t->name);
}

static af_status declare_linear(bnb_export *j, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_model_tensor *t = &j->in->tensor[i];
    const int64_t n = af_model_tensor_values(t), blocks = af_bnb_blocks(n, j->block);
    const char *state = j->type == AF_DTYPE_NF4 ? ".quant_state.bitsandbytes__nf4"
                                                : ".quant_state.bitsandbytes__fp4";
    af_buf text = {0};
    char module[NAME_BYTES];
    if (j->type == AF_DTYPE_I8) {
        module_name(t, module, sizeof module);
        AF_TRY(add(j, t->name, "", AF_DTYPE_I8, t->dim[0], t->dim[1], 2, err));
        AF_TRY(add(j, module, ".SCB", AF_DTYPE_F32, t->dim[0], 1, 1, err));
        return add(j, module, ".weight_format", AF_DTYPE_U8, 1, 1, 0, err);
    }
    state_text(j, i, &text);
    AF_TRY(add(j, t->name, "", AF_DTYPE_U8, af_bnb_bytes(n), 1, 2, err));
    AF_TRY(add(j, t->name, ".absmax", j->nested ? AF_DTYPE_U8 : AF_DTYPE_F32, blocks, 1, 1, err));
    AF_TRY(add(j, t->name, ".quant_map", AF_DTYPE_F32, 16, 1, 1, err));
    if (j->nested) {
        const int64_t outer = af_bnb_blocks(blocks, AF_BNB_NESTED_BLOCK);
        AF_TRY(add(j, t->name, ".nested_absmax", AF_DTYPE_F32, outer, 1, 1, err));
        AF_TRY(add(j, t->name, ".nested_quant_map", AF_DTYPE_F32, 256, 1, 1, err));
    }
    AF_TRY(add(j, t->name, state, AF_DTYPE_U8, (int64_t)text.len, 1, 1, err));
done:
    af_buf_clear(&text);
    return st;
}

static af_status declare(bnb_export *j, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < j->in->count; i++) {
        const af_model_tensor *t = &j->in->tensor[i];
        if (af_bnb_packs(t))
            AF_TRY(declare_linear(j, i, err));
        else
            AF_TRY(af_safetensors_writer_add(j->w, t->name, t->dtype, t->dim, t->ndim, err));
    }
done:
    return st;
}

/* ---- data ---- */

static af_status write_scales(bnb_export *j, int i, af_error *err)
{
    af_status st = AF_OK;
    const int64_t blocks = af_bnb_blocks(j->rows * j->cols, j->block);
    const int64_t outer = af_bnb_blocks(blocks, AF_BNB_NESTED_BLOCK);
    uint8_t *q = af_calloc((uint64_t)blocks, 1);
    float *nested = af_calloc((uint64_t)outer, sizeof *nested);
    af_buf text = {0};
    if (!q || !nested)
        AF_TRY(af_fail_nomem(err, "block scales", (uint64_t)blocks));
    if (j->nested) {
        af_bnb_nest(j->absmax, blocks, j->offset[i], q, nested);
        AF_TRY(af_safetensors_writer_data(j->w, q, (uint64_t)blocks, err));
    } else {
        AF_TRY(af_safetensors_writer_data(j->w, j->absmax, (uint64_t)blocks * 4, err));
    }
    AF_TRY(af_safetensors_writer_data(j->w, af_bnb_table(j->type), 64, err));
    if (j->nested) {
        AF_TRY(af_safetensors_writer_data(j->w, nested, (uint64_t)outer * 4, err));
        AF_TRY(af_safetensors_writer_data(j->w, af_bnb_map(true), 1024, err));
    }
    state_text(j, i, &text);
    AF_TRY(af_safetensors_writer_data(j->w, text.data, text.len, err));
done:
    free(q);
    free(nested);
    af_buf_clear(&text);
    return st;
}

static uint64_t linear_bytes(const bnb_export *j, int64_t n)
{
    const uint64_t blocks = (uint64_t)af_bnb_blocks(n, j->block);
    if (j->type == AF_DTYPE_I8)
        return (uint64_t)n + (uint64_t)j->rows * 4;
    return (uint64_t)af_bnb_bytes(n) + (j->nested ? blocks + blocks / 64 : blocks * 4);
}

static af_status write_linear(bnb_export *j, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_model_tensor *t = &j->in->tensor[i];
    af_error_sums all = {0};
    AF_TRY(open_tensor(j, t, err));
    for (j->first = 0; j->first < j->rows; j->first += GROUPS * j->group_rows) {
        const int64_t n = groups_at(j, j->first);
        const int64_t rows = AF_MIN(GROUPS * j->group_rows, j->rows - j->first);
        af_pool_run(j->pool, n, encode_group, j);
        for (int64_t g = 0; g < n; g++)
            af_error_sums_add(&all, &j->sums[g]);
        const int64_t count = rows * j->cols;
        AF_TRY(af_safetensors_writer_data(
            j->w, j->codes, (uint64_t)(j->type == AF_DTYPE_I8 ? count : af_bnb_bytes(count)), err));
    }
    AF_TRY(af_error_sums_check(&all, t->name, j->type, err));
    if (j->type == AF_DTYPE_I8) {
        AF_TRY(af_safetensors_writer_data(j->w, j->absmax, (uint64_t)j->rows * 4, err));
        AF_TRY(af_safetensors_writer_data(j->w, "", 1, err));
    } else {
        AF_TRY(write_scales(j, i, err));
    }
    const int64_t n = af_model_tensor_values(t);
    af_convert_row *row = af_convert_report_add(
        j->report, t->name, j->type == AF_DTYPE_I8 ? "int8" : af_dtype_name(j->type), n,
        linear_bytes(j, n));
    if (row)
        af_error_sums_report(&all, row);
done:
    close_tensor(j);
    return st;
}

static af_status write_data(bnb_export *j, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < j->in->count; i++) {
        const af_model_tensor *t = &j->in->tensor[i];
        uint64_t bytes = 0;
        if (af_bnb_packs(t)) {
            AF_TRY(write_linear(j, i, err));
            continue;
        }
        AF_TRY(af_model_copy_tensor(j->in, t, t->dtype, j->pool, j->w, err));
        (void)af_dtype_bytes(t->dtype, (uint64_t)af_model_tensor_values(t), &bytes);
        af_convert_report_add(j->report, t->name, af_dtype_name(t->dtype),
                              af_model_tensor_values(t), bytes);
    }
done:
    return st;
}

/* ---- the folder ---- */

static json_t *quant_config(const bnb_export *j, af_dtype model)
{
    const bool four = j->type != AF_DTYPE_I8;
    return json_pack(
        "{s:s, s:b, s:b, s:b, s:b, s:s, s:s, s:s, s:b, s:b, s:b, s:o, s:f}", "quant_method",
        "bitsandbytes", "load_in_4bit", four, "load_in_8bit", !four, "_load_in_4bit", four,
        "_load_in_8bit", !four, "bnb_4bit_compute_dtype", four ? af_torch_name(model) : "float32",
        "bnb_4bit_quant_storage", "uint8", "bnb_4bit_quant_type",
        j->type == AF_DTYPE_NF4 ? "nf4" : "fp4", "bnb_4bit_use_double_quant", four && j->nested,
        "llm_int8_enable_fp32_cpu_offload", 0, "llm_int8_has_fp16_weight", 0,
        "llm_int8_skip_modules", af_bnb_skip_modules(j->in), "llm_int8_threshold", 6.0);
}

static af_dtype linear_type(const af_model_reader *in)
{
    for (int i = 0; i < in->count; i++)
        if (af_bnb_packs(&in->tensor[i]))
            return in->tensor[i].dtype;
    return AF_DTYPE_F32;
}

static af_status write_folder(bnb_export *j, const af_output *f, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    char *path = af_path_join(f->temp, "model.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", 0);
    AF_TRY(af_model_copy_text(j->in, f, &config, err));
    json_object_set_new(config, "quantization_config", quant_config(j, linear_type(j->in)));
    AF_TRY(af_json_write(f->temp, "config.json", config, err));
    for (int i = 0; j->nested && i < j->in->count; i++)
        if (af_bnb_packs(&j->in->tensor[i]))
            AF_TRY(find_offset(j, i, err));
    AF_TRY(af_safetensors_writer_new(&j->w, path, AF_SHARD_BYTES, err));
    AF_TRY(declare(j, err));
    AF_TRY(af_safetensors_writer_begin(j->w, err));
    AF_TRY(write_data(j, err));
    st = af_safetensors_writer_commit(j->w, err);
    j->w = NULL;
done:
    af_safetensors_writer_abandon(j->w);
    json_decref(config);
    free(path);
    return st;
}

static const char *dims_text(char *buf, size_t size, const int64_t *dim, int ndim)
{
    size_t n = 0;
    for (int k = 0; k < ndim && n < size; k++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, k ? "x" : "", dim[k]);
    return buf;
}

static af_status check_piece(const af_model_reader *in, const char *name, const int64_t *dim,
                             int ndim, af_error *err)
{
    const af_model_tensor *t = af_model_reader_find(in, name);
    char is[64], want[64];
    if (!t)
        return af_fail(err, AF_EFORMAT, "'%s' has no tensor '%s'", in->path, name);
    dims_text(is, sizeof is, t->dim, t->ndim);
    dims_text(want, sizeof want, dim, ndim);
    if (strcmp(is, want) != 0)
        return af_fail(err, AF_EFORMAT, "'%s' is %s, and by config.json %s", name, is, want);
    return AF_OK;
}

/* Tensors as config.json says, where it is of a family we know. Experts have several spellings,
 * other tensors of olmo_hybrid and kimi_linear too, and a folder of a larger model has its own
 * names: those are left to whoever reads the result. */
static af_status check_shapes(const af_model_reader *in, af_error *err)
{
    af_status st = AF_OK;
    af_model_spec s = {0};
    if (!af_arch_find(in->config.model_type))
        return AF_OK;
    AF_TRY(af_model_spec_init(&s, &in->config, err));
    if (s.arch->gate_up_halves)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "gate_proj and up_proj of this folder are one linear in transformers, which "
                       "cannot join quantised halves"));
    if (!af_model_reader_find(in, "model.embed_tokens.weight"))
        goto done;
    for (int i = 0; i < s.tensors; i++) {
        const af_slot slot = s.tensor[i].slot;
        if (af_slot_is_experts(slot) || s.conv_rows[0] > 0)
            continue;
        for (int p = 0; p < af_disk_count(&s, i); p++) {
            char name[NAME_BYTES];
            int64_t dim[AF_DISK_DIMS], from;
            int ndim;
            af_disk_piece(&s, i, p, name, sizeof name, dim, &ndim, &from);
            AF_TRY(check_piece(in, name, dim, ndim, err));
        }
    }
done:
    af_model_spec_clear(&s);
    return st;
}

static void warn_experts(const af_model_reader *in)
{
    for (int i = 0; i < in->count; i++)
        if (strstr(in->tensor[i].name, ".experts.")) {
            af_log_write(AF_LOG_WARN,
                         "the experts stay as they are: transformers has one parameter for "
                         "all of them, which bitsandbytes does not quantise");
            return;
        }
}

/* Linears of a class of their own, which replace_with_bnb_linear passes by. */
static void warn_linears(const af_model_reader *in)
{
    if (strcmp(in->config.model_type, "falcon") == 0)
        af_log_write(AF_LOG_WARN,
                     "transformers 5.23 will not load this folder: its linears of falcon "
                     "(FalconLinear) are not replaced by those of bitsandbytes and expect weights "
                     "where codes are; afinar reads it");
}

static af_status write_card(const bnb_export *j, const af_output *f, const af_quantize_opts *o,
                            af_error *err)
{
    af_card c = {.library = "transformers",
                 .relation = "quantized",
                 .base = {j->in->path},
                 .base_path = {j->in->path},
                 .bases = 1,
                 .tags = {"bitsandbytes", o->type}};
    af_buf b = {0};
    af_buf_str(&b, "Weights of ");
    af_card_code(&b, af_path_name(j->in->path));
    af_buf_printf(&b, " in the bitsandbytes type `%s`", o->type);
    if (j->type != AF_DTYPE_I8)
        af_buf_printf(&b, ", blocks of %" PRId64 " values%s", j->block,
                      j->nested ? ", scales quantized again" : "");
    if (o->adapter) {
        af_buf_str(&b, ", with the adapter ");
        af_card_code(&b, o->adapter);
        af_buf_str(&b, " merged in first");
    }
    af_buf_str(&b, ".\n");
    return af_card_put(f, &c, &b, err);
}

af_status af_quantize_bnb(af_convert_report **report, af_model_reader *in, const char *out,
                          af_dtype type, const af_quantize_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_output f = {0};
    bnb_export j = {.in = in,
                    .type = type,
                    .block = o->block_size ? o->block_size : 64,
                    .nested = type != AF_DTYPE_I8 && !o->no_double_quant};
    if (j.block < 32 || j.block > BLOCK_MAX || (j.block & (j.block - 1)))
        return af_fail(err, AF_EUSAGE, "block size %" PRId64 " is not a power of two from 32 to %d",
                       j.block, BLOCK_MAX);
    const af_arch *arch = af_arch_find(in->config.model_type);
    if (arch && arch->linears_turned)
        return af_fail(err, AF_EUNSUPPORTED,
                       "models of type '%s' cannot be written in types of bitsandbytes: their "
                       "matrices lie turned; 'load_in_4bit: true' quantises them while a run loads",
                       arch->model_type);
    AF_TRY(check_shapes(in, err));
    AF_TRY(af_folder_open(&f, out, (const char *const[]){in->path, o->adapter}, 2, o->force, err));
    AF_TRY(af_pool_new(&j.pool, o->threads, err));
    AF_TRY(af_convert_report_new(&j.report, in->count, err));
    j.offset = af_calloc((uint64_t)AF_MAX(in->count, 1), sizeof *j.offset);
    if (!j.offset)
        AF_TRY(af_fail_nomem(err, "offsets", (uint64_t)in->count * 4));
    warn_experts(in);
    warn_linears(in);
    AF_TRY(write_folder(&j, &f, err));
    AF_TRY(write_card(&j, &f, o, err));
    AF_TRY(af_output_commit(&f, err));
    af_convert_report_finish(j.report);
    if (in->any_quantised)
        j.report->note = "the source was quantised already: its dequantised values were used";
    *report = j.report;
    j.report = NULL;
done:
    af_output_abandon(&f);
    af_convert_report_free(j.report);
    af_pool_free(j.pool);
    free(j.offset);
    return st;
}
