/* test_coded_weight.c - weights that other tools stored as codes against the values of their own
 * code (tools/golden/make_coded.py), bit for bit; and files that do not fit. */
#include "test.h"

#include "base/file.h"
#include "format/weights/safetensors.h"
#include "model/coded/coded_weight.h"
#include "tensor/codec.h"

#include <math.h>
#include <unistd.h>

static const struct {
    const char *name;
    af_quant_method method;
    int bits;
    bool zeros_as_used;
} kinds[] = {
    {"fp8", AF_QUANT_FP8, 0, false},          {"fp8_tensor", AF_QUANT_FP8, 0, false},
    {"int4", AF_QUANT_COMPRESSED, 0, false},  {"int4_zero", AF_QUANT_COMPRESSED, 0, false},
    {"int8", AF_QUANT_COMPRESSED, 0, false},  {"float8", AF_QUANT_COMPRESSED, 0, false},
    {"nvfp4", AF_QUANT_COMPRESSED, 0, false}, {"gptq", AF_QUANT_GPTQ, 4, false},
    {"gptq_order", AF_QUANT_GPTQ, 4, false},  {"gptq_v2", AF_QUANT_GPTQ, 8, true},
    {"gptq_3", AF_QUANT_GPTQ, 3, true},       {"awq", AF_QUANT_AWQ, 4, false},
    {"bitnet", AF_QUANT_BITNET, 0, false},    {"layers.bitnet_online", AF_QUANT_BITNET, 0, false},
};

static af_weights *open_file(const char *name)
{
    char path[4096];
    af_error err = {0};
    af_weights *w;
    snprintf(path, sizeof path, "%s/coded/%s", golden_dir(), name);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    return w;
}

static af_weights *open_golden(void) { return open_file("codes.safetensors"); }

static af_hf_config config_of(af_quant_method method, int bits, bool zeros_as_used)
{
    return (af_hf_config){
        .has_dtype = true,
        .dtype = AF_DTYPE_BF16,
        .quant = {.method = method, .bits = bits, .zeros_as_used = zeros_as_used}};
}

static void compare(const af_weights *w, const af_coded_weight *c, const char *kind, int64_t step)
{
    char name[128];
    snprintf(name, sizeof name, "want.%s", kind);
    const af_stored *want = af_weights_find(w, name);
    assert_non_null(want);
    assert_int_equal(want->ndim, c->ndim);
    for (int i = 0; i < c->ndim; i++)
        assert_int_equal(want->dim[i], c->dim[i]);
    const float near = c->kind == AF_CODE_MEAN ? 2e-7f : 0; /* a mean in float32 there */
    float *x = malloc((size_t)(c->rows * c->cols) * sizeof *x);
    for (int64_t r = 0; r < c->rows; r += step)
        af_coded_weight_rows(c, r, AF_MIN(step, c->rows - r), x + r * c->cols);
    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        const float v = (float)af_load_f64(want->data, want->dtype, (uint64_t)i);
        CHECK_MSG(fabsf(x[i] - v) <= near * fabsf(v), "%s: value %d is %.9g, not %.9g", kind,
                  (int)i, (double)x[i], (double)v);
    }
    free(x);
}

static void test_values_of_their_own_code(void **state)
{
    (void)state;
    af_weights *w = open_golden();
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        af_hf_config c = config_of(kinds[i].method, kinds[i].bits, kinds[i].zeros_as_used);
        c.quant.online = strstr(kinds[i].name, "online") != NULL;
        af_coded_weight code;
        bool found = false;
        char name[128];
        snprintf(name, sizeof name, "%s.weight", kinds[i].name);
        CHECK_OK(af_coded_weight_read(&code, &found, w, &c, name, &err), err);
        CHECK_MSG(found, "%s is not found", name);
        compare(w, &code, kinds[i].name, 5);
        compare(w, &code, kinds[i].name, 1);
    }
    af_weights_close(w);
}

/* tools/golden/make_mlx.py */
static void test_values_of_mlx(void **state)
{
    static const struct {
        const char *name;
        int64_t group;
        int bits;
    } cases[] = {{"affine2", 32, 2}, {"affine3", 32, 3}, {"affine4", 32, 4},
                 {"affine5", 32, 5}, {"affine6", 32, 6}, {"affine8", 32, 8},
                 {"half4", 64, 4},   {"float4", 128, 4}, {"mxfp4", 32, 4}};
    af_weights *w = open_file("mlx.safetensors");
    af_error err = {0};
    char name[128], weight[128];
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hf_config c = config_of(AF_QUANT_MLX, 0, false);
        af_coded_weight code;
        bool found = false;
        c.quant.block[1] = cases[i].group;
        snprintf(name, sizeof name, "%s.weight", cases[i].name);
        CHECK_OK(af_coded_weight_read(&code, &found, w, &c, name, &err), err);
        CHECK_MSG(found && code.bits == cases[i].bits, "%s has %d bits", name, code.bits);
        compare(w, &code, cases[i].name, 5);
        snprintf(name, sizeof name, "%s.scales", cases[i].name);
        assert_true(af_coded_part(w, &c, name, weight, sizeof weight) && !weight[0]);
    }
    const af_hf_config c = config_of(AF_QUANT_MLX, 0, false);
    assert_true(af_coded_part(w, &c, "affine4.biases", weight, sizeof weight) && !weight[0]);
    assert_false(af_coded_part(w, &c, "affine4.weight", weight, sizeof weight));
    af_weights_close(w);
}

/* mlx-lm names no tool, and may give modules a size of their own. */
static void test_quantization_of_mlx(void **state)
{
    static const char *const keys[] = {"quantization", "quantization_config"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config c = {0};
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_hidden_layers\": 4, "
                 "\"num_attention_heads\": 4, \"%s\": {\"group_size\": 64, \"bits\": 4, "
                 "\"lm_head\": {\"group_size\": 32, \"bits\": 6}, \"model.norm\": false, "
                 "\"low\": {\"group_size\": -32}, \"high\": {\"group_size\": 1099511627776}}}",
                 keys[i]);
        CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
        assert_int_equal(c.quant.method, AF_QUANT_MLX);
        assert_int_equal(af_quant_group(&c, "lm_head"), 32);
        assert_int_equal(af_quant_group(&c, "model.norm"), 64);
        assert_int_equal(af_quant_group(&c, "low"), 64); /* sizes that no module can have */
        assert_int_equal(af_quant_group(&c, "high"), 64);
        assert_int_equal(af_quant_group(&c, "model.layers.0.mlp.up_proj"), 64);
        af_hf_config_clear(&c);
    }
}

/* AutoRound has GPTQ's or AWQ's tensors, and says which; modules may have bits of their own. */
static void test_weights_of_auto_round(void **state)
{
    static const struct {
        const char *form;
        af_quant_method method;
        bool zeros_as_used;
    } cases[] = {{"", AF_QUANT_GPTQ, false},
                 {", \"packing_format\": \"auto_round:auto_gptq\"", AF_QUANT_GPTQ, false},
                 {", \"packing_format\": \"auto_round\"", AF_QUANT_GPTQ, true},
                 {", \"packing_format\": \"auto_round:auto_awq\"", AF_QUANT_AWQ, false},
                 {", \"packing_format\": \"auto_round:fp8\"", AF_QUANT_NONE, false}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config c = {0};
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_hidden_layers\": 4, "
                 "\"num_attention_heads\": 4, \"quantization_config\": {\"quant_method\": "
                 "\"intel/auto-round\", \"group_size\": 128, \"bits\": 4%s}}",
                 cases[i].form);
        const af_status st = af_hf_config_parse(&c, text, strlen(text), "config.json", &err);
        CHECK_MSG((st == AF_OK) == (cases[i].method != AF_QUANT_NONE), "'%s': '%s'", cases[i].form,
                  err.msg);
        if (st == AF_OK) {
            assert_int_equal(c.quant.method, cases[i].method);
            assert_int_equal(c.quant.zeros_as_used, cases[i].zeros_as_used);
        }
        af_hf_config_clear(&c);
    }
    af_weights *w = open_golden();
    const af_hf_config four = config_of(AF_QUANT_GPTQ, 4, true);
    af_error err = {0};
    af_coded_weight code;
    bool found = false;
    CHECK_OK(af_coded_weight_read(&code, &found, w, &four, "gptq_3.weight", &err), err);
    assert_int_equal(code.bits, 3);
    compare(w, &code, "gptq_3", 5);
    af_weights_close(w);
}

static void test_forms_of_compressed_tensors_that_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\"format\": \"mxfp6-pack-quantized\"", "'mxfp6-pack-quantized'"},
        {"\"format\": \"dense\", \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}",
         "'sparse-24-bitmask'"},
        {"\"format\": \"dense\", \"sparsity_config\": {\"format\": \"dense\"}", NULL}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config c = {0};
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
                 "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", %s}}",
                 cases[i][0]);
        const af_status st = af_hf_config_parse(&c, text, strlen(text), "config.json", &err);
        CHECK_MSG(cases[i][1] ? st == AF_EUNSUPPORTED && strstr(err.msg, cases[i][1]) : st == AF_OK,
                  "%s: '%s'", cases[i][0], err.msg);
        af_hf_config_clear(&c);
    }
}

/* Older folders have the tool's own file instead of quantization_config; GPTQModel has two names
 * for the form of the zeros. */
static void test_quantization_in_other_files(void **state)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
        "\"intermediate_size\": 96, \"num_hidden_layers\": 4, \"num_attention_heads\": 4%s}";
    static const struct {
        const char *file, *text, *key;
        af_quant_method method;
        int bits;
        bool zeros_as_used;
    } cases[] = {
        {"hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"FP8\"}}", "",
         AF_QUANT_MODELOPT, 4, false},
        {"hf_quant_config.json", "{\"quantization\": {\"quant_algo\": null}}", "", AF_QUANT_NONE, 0,
         false},
        {"quantize_config.json", "{\"bits\": 8, \"group_size\": 128}", "", AF_QUANT_GPTQ, 8, false},
        {"quantize_config.json", "{\"x\": 8}", "", AF_QUANT_NONE, 0, false},
        {"quant_config.json", "{\"w_bit\": 4, \"version\": \"GEMM\"}", "", AF_QUANT_AWQ, 4, false},
        {"quantize_config.json", "{\"bits\": 8}",
         ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"format\": "
         "\"gptq_v2\"}",
         AF_QUANT_GPTQ, 4, true},
        {"quantize_config.json", "{\"bits\": 8, \"checkpoint_format\": \"gptq_v2\"}", "",
         AF_QUANT_GPTQ, 8, true},
    };
    char dir[] = "/tmp/afinar-coded-XXXXXX", path[64], file[64], text[400];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hf_config c = {0};
        af_error err = {0};
        snprintf(text, sizeof text, config, cases[i].key);
        snprintf(file, sizeof file, "%s/%s", dir, cases[i].file);
        CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
        CHECK_OK(af_file_write(file, cases[i].text, strlen(cases[i].text), &err), err);
        CHECK_OK(af_hf_config_read(&c, dir, &err), err);
        CHECK_MSG(c.quant.method == cases[i].method && c.quant.bits == cases[i].bits &&
                      c.quant.zeros_as_used == cases[i].zeros_as_used,
                  "%s %s: method %d, %d bits", cases[i].file, cases[i].text, (int)c.quant.method,
                  c.quant.bits);
        af_hf_config_clear(&c);
        unlink(file);
    }
    unlink(path);
    rmdir(dir);
}

/* The same values from the transposed form, from rows as stored, and from GGUF's blocks. */
static void test_mxfp4_stays_in_four_bits(void **state)
{
    (void)state;
    af_weights *w = open_golden();
    af_error err = {0};
    const af_hf_config c = config_of(AF_QUANT_MXFP4, 0, false);
    af_coded_weight code;
    bool found = false;
    float row[64], again[64];
    uint8_t blocks[34];
    CHECK_OK(af_coded_weight_read(&code, &found, w, &c, "experts.mxfp4", &err), err);
    assert_true(found && af_coded_weight_is_mxfp4(&code) && code.transposed);
    compare(w, &code, "mxfp4", 3);
    for (int64_t r = 0; r < 12; r++) {
        const af_stored *want = af_weights_find(w, "want.mxfp4");
        af_coded_weight_stored_rows(&code, r, 1, row);
        af_coded_weight_mxfp4_row(&code, r, blocks);
        af_codec_decode_row(AF_DTYPE_MXFP4, blocks, again, 64);
        for (int k = 0; k < 64; k++)
            assert_true(row[k] == again[k]); /* -0 is 0 there */
        for (int64_t k = 0; k < 64; k++)
            assert_true(row[k] == (float)af_load_f64(want->data, want->dtype,
                                                     (uint64_t)((r / 6 * 64 + k) * 6 + r % 6)));
    }
    af_weights_close(w);
}

static void test_parts_are_known(void **state)
{
    (void)state;
    af_weights *w = open_golden();
    const af_hf_config c = config_of(AF_QUANT_GPTQ, 4, false), plain = {0};
    char weight[128];
    assert_true(af_coded_part(w, &c, "gptq.qweight", weight, sizeof weight));
    assert_string_equal(weight, "gptq.weight");
    assert_true(af_coded_part(w, &c, "gptq.qzeros", weight, sizeof weight));
    assert_string_equal(weight, "");
    assert_true(af_coded_part(w, &c, "experts.mxfp4_blocks", weight, sizeof weight));
    assert_string_equal(weight, "experts.mxfp4");
    assert_false(af_coded_part(w, &c, "fp8.weight", weight, sizeof weight));
    assert_false(af_coded_part(w, &plain, "gptq.qweight", weight, sizeof weight));
    af_weights_close(w);
}

/* ---- what does not fit ---- */

typedef struct stored_part {
    const char *name;
    af_dtype type;
    int64_t dim[4];
    int ndim;
    int32_t fill;
} stored_part;

/* Weights whose file is gone when they are closed. */
static af_weights *store(const stored_part *part, int n)
{
    char dir[] = "/tmp/afinar-coded-XXXXXX", path[64];
    af_error err = {0};
    af_safetensors_writer *out;
    af_weights *w;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/w.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int i = 0; i < n; i++)
        CHECK_OK(af_safetensors_writer_add(out, part[i].name, part[i].type, part[i].dim,
                                           part[i].ndim, &err),
                 err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < n; i++) {
        uint64_t count = 1, bytes = 0;
        for (int k = 0; k < part[i].ndim; k++)
            count *= (uint64_t)part[i].dim[k];
        assert_true(af_dtype_bytes(part[i].type, count, &bytes));
        int32_t *data = calloc(bytes / 4 + 1, 4);
        for (uint64_t k = 0; k < bytes / 4; k++)
            data[k] = part[i].fill;
        CHECK_OK(af_safetensors_writer_data(out, data, bytes, &err), err);
        free(data);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    unlink(path);
    rmdir(dir);
    return w;
}

static void refuse(const stored_part *part, int n, const af_hf_config *c, const char *name,
                   const char *want)
{
    af_error err = {0};
    af_coded_weight code;
    bool found;
    af_weights *w = store(part, n);
    const af_status st = af_coded_weight_read(&code, &found, w, c, name, &err);
    CHECK_MSG(st == AF_EFORMAT && strstr(err.msg, want), "'%s' instead of '%s'",
              st == AF_OK ? "accepted" : err.msg, want);
    af_weights_close(w);
}

/* compressed-tensors: a last block that is smaller; its size is in the config alone. */
static void test_blocks_of_compressed_tensors(void **state)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
        "\"intermediate_size\": 96, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
        "\"format\": \"float-quantized\", \"config_groups\": {\"group_0\": {\"weights\": "
        "{\"strategy\": \"block\", \"block_structure\": [3, 5]}}}}}";
    const stored_part part[] = {{"a.weight", AF_DTYPE_E4M3, {8, 8}, 2, 0},
                                {"a.weight_scale", AF_DTYPE_F32, {3, 2}, 2, 0}};
    af_error err = {0};
    af_hf_config c = {0};
    af_coded_weight code;
    bool found = false;
    (void)state;
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
    af_weights *w = store(part, 2);
    CHECK_OK(af_coded_weight_read(&code, &found, w, &c, "a.weight", &err), err);
    assert_true(found && code.block[0] == 3 && code.block[1] == 5 && code.scale_cols == 2);
    af_weights_close(w);
    c.quant.block[0] = c.quant.block[1] = 0; /* a guess would be wrong */
    refuse(part, 2, &c, "a.weight", "3 x 2 scales do not fit 8 x 8 codes");
    af_hf_config_clear(&c);
}

static void test_codes_of_mlx_that_do_not_fit(void **state)
{
    (void)state;
    af_hf_config mlx = config_of(AF_QUANT_MLX, 0, false);
    mlx.quant.block[1] = 32;
    const stored_part words[] = {{"a.weight", AF_DTYPE_U32, {4, 7}, 2, 0},
                                 {"a.scales", AF_DTYPE_BF16, {4, 2}, 2, 0},
                                 {"a.biases", AF_DTYPE_BF16, {4, 2}, 2, 0}};
    refuse(words, 3, &mlx, "a.weight", "7 words per row do not hold 64 codes");
    refuse(words, 2, &mlx, "a.weight", "of another mode than affine and mxfp4");
    const stored_part biases[] = {{"a.weight", AF_DTYPE_U32, {4, 8}, 2, 0},
                                  {"a.scales", AF_DTYPE_BF16, {4, 2}, 2, 0},
                                  {"a.biases", AF_DTYPE_BF16, {4, 1}, 2, 0}};
    refuse(biases, 3, &mlx, "a.weight", "its biases do not fit its scales");
    const stored_part rows[] = {{"a.weight", AF_DTYPE_U32, {4, 8}, 2, 0},
                                {"a.scales", AF_DTYPE_BF16, {3, 2}, 2, 0},
                                {"a.biases", AF_DTYPE_BF16, {3, 2}, 2, 0}};
    refuse(rows, 3, &mlx, "a.weight", "not two matrices of as many rows");
    const stored_part other[] = {{"a.weight", AF_DTYPE_U32, {4, 8}, 2, 0},
                                 {"a.scales", AF_DTYPE_BF16, {4, 2}, 2, 0},
                                 {"a.biases", AF_DTYPE_F16, {4, 2}, 2, 0}};
    refuse(other, 3, &mlx, "a.weight", "its biases do not fit its scales");
    const stored_part huge[] = {{"a.weight", AF_DTYPE_U32, {0, 4}, 2, 0},
                                {"a.scales", AF_DTYPE_U8, {0, (INT64_C(1) << 62) + 1}, 2, 0}};
    refuse(huge, 2, &mlx, "a.weight", "of another mode than affine and mxfp4");
    mlx.quant.block[1] = AF_CONFIG_WIDTH_MAX;
    refuse(words, 3, &mlx, "a.weight", "2 groups of");
}

static void test_codes_that_do_not_fit(void **state)
{
    (void)state;
    const af_hf_config fp8 = config_of(AF_QUANT_FP8, 0, false),
                       gptq = config_of(AF_QUANT_GPTQ, 4, false),
                       packed = config_of(AF_QUANT_COMPRESSED, 0, false),
                       mx = config_of(AF_QUANT_MXFP4, 0, false);
    const stored_part grid[] = {{"a.weight", AF_DTYPE_E4M3, {8, 8}, 2, 0},
                                {"a.weight_scale_inv", AF_DTYPE_F32, {3, 9}, 2, 0}};
    refuse(grid, 2, &fp8, "a.weight", "3 x 9 scales do not fit 8 x 8 codes");
    const stored_part type[] = {{"a.weight", AF_DTYPE_BF16, {8, 8}, 2, 0},
                                {"a.weight_scale_inv", AF_DTYPE_F32, {1, 1}, 2, 0}};
    refuse(type, 2, &fp8, "a.weight", "it has scales, but its codes are bf16");
    const stored_part zeros[] = {{"a.qweight", AF_DTYPE_I32, {4, 8}, 2, 0},
                                 {"a.qzeros", AF_DTYPE_I32, {2, 3}, 2, 0},
                                 {"a.scales", AF_DTYPE_F16, {2, 8}, 2, 0}};
    refuse(zeros, 3, &gptq, "a.weight", "do not fit together");
    refuse(zeros, 3, &fp8, "a.weight", "a qweight is that of GPTQ or AWQ");
    const stored_part order[] = {{"a.qweight", AF_DTYPE_I32, {4, 8}, 2, 0},
                                 {"a.qzeros", AF_DTYPE_I32, {2, 1}, 2, 0},
                                 {"a.scales", AF_DTYPE_F16, {2, 8}, 2, 0},
                                 {"a.g_idx", AF_DTYPE_I32, {32}, 1, 7}};
    refuse(order, 4, &gptq, "a.weight", "column 0 is in group 7 of 2");
    const stored_part shape[] = {{"a.weight_packed", AF_DTYPE_I32, {8, 4}, 2, 0},
                                 {"a.weight_scale", AF_DTYPE_BF16, {8, 1}, 2, 0}};
    refuse(shape, 2, &packed, "a.weight", "the shape of its packed codes is not stored");
    const af_hf_config bit = config_of(AF_QUANT_BITNET, 0, false);
    const stored_part bits[] = {{"a.weight", AF_DTYPE_U8, {8, 4}, 2, 0},
                                {"a.weight_scale", AF_DTYPE_BF16, {8, 1}, 2, 0}};
    refuse(bits, 2, &bit, "a.weight", "its packed codes have no scale of one number");
    const stored_part whole[] = {{"a.weight", AF_DTYPE_BF16, {8, 4}, 2, 0},
                                 {"a.weight_scale", AF_DTYPE_BF16, {1}, 1, 0}};
    refuse(whole, 2, &bit, "a.weight", "bf16 of 2 dimensions is not a weight of BitNet");
    const stored_part blocks[] = {{"a_blocks", AF_DTYPE_U8, {2, 4, 2, 8}, 4, 0},
                                  {"a_scales", AF_DTYPE_U8, {2, 4, 2}, 3, 0}};
    refuse(blocks, 2, &mx, "a", "its blocks and scales are not u8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_their_own_code),
        cmocka_unit_test(test_values_of_mlx),
        cmocka_unit_test(test_quantization_of_mlx),
        cmocka_unit_test(test_weights_of_auto_round),
        cmocka_unit_test(test_forms_of_compressed_tensors_that_are_refused),
        cmocka_unit_test(test_quantization_in_other_files),
        cmocka_unit_test(test_mxfp4_stays_in_four_bits),
        cmocka_unit_test(test_parts_are_known),
        cmocka_unit_test(test_blocks_of_compressed_tensors),
        cmocka_unit_test(test_codes_of_mlx_that_do_not_fit),
        cmocka_unit_test(test_codes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
