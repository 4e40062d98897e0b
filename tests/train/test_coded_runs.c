/* test_coded_runs.c - bases as other tools publish them (FP8 with block scales, GPTQ, AWQ, int4 and
 * NVFP4 of compressed-tensors), end to end: a small qwen3 whose linears have values that every one
 * of these formats can say exactly. LoRA trains, generates and merges on each, and gives the bytes
 * that the same values stored plain give. (How values that need rounding are rounded:
 * test_coded_weight.c.) */
#include "train/run_folder.h"
#include "train/weight_files.h"

#include "afinar/convert.h"
#include "afinar/model.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"
#include "tensor/dtype.h"

#include <math.h>
#include <unistd.h>

enum { D = 64, F = 96, V = 512, LAYERS = 2, GROUP = 16, BLOCK = 32 };

typedef enum form { PLAIN, FP8, GPTQ, AWQ, INT4, NVFP4, FORMS } form;

static const struct {
    const char *name, *config;
} forms[FORMS] = {
    [PLAIN] = {"plain", ""},
    [FP8] = {"fp8", "\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32]"},
    [GPTQ] = {"gptq", "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 16"},
    [AWQ] = {"awq", "\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemm\""},
    [INT4] = {"int4", "\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\""},
    [NVFP4] = {"nvfp4",
               "\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\""},
};

static const struct {
    const char *name;
    int64_t rows, cols;
} linears[] = {{"self_attn.q_proj", 64, D}, {"self_attn.k_proj", 32, D},
               {"self_attn.v_proj", 32, D}, {"self_attn.o_proj", D, 64},
               {"mlp.gate_proj", F, D},     {"mlp.up_proj", F, D},
               {"mlp.down_proj", D, F}};

/* ---- values: whole numbers that four bits of either kind have, times a power of two ---- */

static int number(int which, int64_t r, int64_t c)
{
    static const int all[] = {-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6};
    uint64_t z = (uint64_t)which * 1000003 + (uint64_t)r * 1009 + (uint64_t)c;
    z = (z + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return all[(z ^ z >> 29) % AF_LEN(all)];
}

static float group_scale(int64_t group) { return group % 2 ? 1.0f / 64 : 1.0f / 32; }
static float block_scale(int64_t r, int64_t c) { return (r + c) % 2 ? 1.0f / 128 : 1.0f / 64; }

static float value(int which, int64_t r, int64_t c)
{
    return (float)number(which, r, c) * group_scale(c / GROUP);
}

/* x as e4m3: exact, and not below its normal numbers. */
static uint8_t e4m3(float x)
{
    int e;
    const float m = frexpf(fabsf(x), &e);
    if (x == 0)
        return 0;
    return (uint8_t)((x < 0) << 7 | (e - 1 + 7) << 3 | (int)((2 * m - 1) * 8));
}

static uint8_t e2m1(int n)
{
    static const uint8_t codes[] = {0, 2, 4, 5, 6, 0, 7};
    return (uint8_t)((n < 0) << 3 | codes[abs(n)]);
}

/* ---- folders ---- */

typedef struct part {
    char name[96];
    af_dtype dtype;
    int ndim;
    int64_t dim[2];
    void *data;
    uint64_t bytes;
} part;

static void *add(part *p, int *n, const char *base, const char *tail, af_dtype t, int64_t a,
                 int64_t b, uint64_t size)
{
    part *x = &p[(*n)++];
    *x = (part){.dtype = t, .ndim = b ? 2 : 1, .dim = {a, b}};
    snprintf(x->name, sizeof x->name, "%s%s", base, tail);
    x->bytes = (uint64_t)(b ? a * b : a) * size;
    x->data = calloc(1, x->bytes);
    assert_non_null(x->data);
    return x->data;
}

static void add_fp8(part *p, int *n, const char *base, int w, int64_t R, int64_t C)
{
    uint8_t *q = add(p, n, base, ".weight", AF_DTYPE_E4M3, R, C, 1);
    float *s = add(p, n, base, ".weight_scale_inv", AF_DTYPE_F32, R / BLOCK, C / BLOCK, 4);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            const float scale = block_scale(r / BLOCK, c / BLOCK);
            s[r / BLOCK * (C / BLOCK) + c / BLOCK] = scale;
            q[r * C + c] = e4m3(value(w, r, c) / scale);
        }
}

/* GPTQ packs along the inputs, AWQ along the outputs in an order of its own. */
static void add_transposed(part *p, int *n, const char *base, int w, int64_t R, int64_t C, bool awq)
{
    static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t G = C / GROUP;
    uint32_t *q =
        add(p, n, base, ".qweight", AF_DTYPE_I32, awq ? C : C / 8, awq ? R / 8 : R, sizeof *q);
    uint32_t *z = add(p, n, base, ".qzeros", AF_DTYPE_I32, G, R / 8, sizeof *z);
    uint16_t *s = add(p, n, base, ".scales", AF_DTYPE_F16, G, R, sizeof *s);
    int32_t *g = awq ? NULL : add(p, n, base, ".g_idx", AF_DTYPE_I32, C, 0, sizeof *g);
    for (int64_t c = 0; c < C; c++) {
        if (g)
            g[c] = (int32_t)(c / GROUP);
        for (int64_t r = 0; r < R; r++) {
            const uint32_t code = (uint32_t)(number(w, r, c) + 8);
            if (awq)
                q[c * (R / 8) + r / 8] |= code << 4 * order[r % 8];
            else
                q[c / 8 * R + r] |= code << 4 * (c % 8);
            s[c / GROUP * R + r] = af_f16_from_f32(group_scale(c / GROUP));
        }
    }
    for (int64_t i = 0; i < G * (R / 8); i++)
        z[i] = awq ? 0x88888888 : 0x77777777; /* the one stores one less */
}

static void add_int4(part *p, int *n, const char *base, int w, int64_t R, int64_t C)
{
    uint32_t *q = add(p, n, base, ".weight_packed", AF_DTYPE_I32, R, C / 8, sizeof *q);
    uint16_t *s = add(p, n, base, ".weight_scale", AF_DTYPE_BF16, R, C / GROUP, sizeof *s);
    int64_t *shape = add(p, n, base, ".weight_shape", AF_DTYPE_I64, 2, 0, sizeof *shape);
    shape[0] = R;
    shape[1] = C;
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            q[r * (C / 8) + c / 8] |= (uint32_t)(number(w, r, c) + 8) << 4 * (c % 8);
            s[r * (C / GROUP) + c / GROUP] = af_bf16_from_f32(group_scale(c / GROUP));
        }
}

static void add_nvfp4(part *p, int *n, const char *base, int w, int64_t R, int64_t C)
{
    uint8_t *q = add(p, n, base, ".weight_packed", AF_DTYPE_U8, R, C / 2, 1);
    uint8_t *s = add(p, n, base, ".weight_scale", AF_DTYPE_E4M3, R, C / GROUP, 1);
    float *global = add(p, n, base, ".weight_global_scale", AF_DTYPE_F32, 1, 0, sizeof *global);
    global[0] = 8; /* scales are divided by it */
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            q[(r * C + c) / 2] |= (uint8_t)(e2m1(number(w, r, c)) << 4 * (c % 2));
            s[r * (C / GROUP) + c / GROUP] = e4m3(group_scale(c / GROUP) * 8);
        }
}

static void add_linear(part *p, int *n, const char *base, form f, int w, int64_t R, int64_t C)
{
    if (f == FP8)
        add_fp8(p, n, base, w, R, C);
    else if (f == GPTQ || f == AWQ)
        add_transposed(p, n, base, w, R, C, f == AWQ);
    else if (f == INT4)
        add_int4(p, n, base, w, R, C);
    else if (f == NVFP4)
        add_nvfp4(p, n, base, w, R, C);
    else {
        float *x = add(p, n, base, ".weight", AF_DTYPE_F32, R, C, sizeof *x);
        for (int64_t i = 0; i < R * C; i++)
            x[i] = value(w, i / C, i % C);
    }
}

static void add_ones(part *p, int *n, const char *base, const char *tail, int64_t count)
{
    float *x = add(p, n, base, tail, AF_DTYPE_F32, count, 0, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = 1;
}

static int list_parts(part *p, form f)
{
    int n = 0;
    float *e = add(p, &n, "model.embed_tokens", ".weight", AF_DTYPE_F32, V, D, sizeof *e);
    for (int64_t i = 0; i < (int64_t)V * D; i++)
        e[i] = (float)number(99, i / D, i % D) / 8;
    add_ones(p, &n, "model.norm", ".weight", D);
    for (int l = 0; l < LAYERS; l++) {
        char base[64], name[128];
        snprintf(base, sizeof base, "model.layers.%d.", l);
        add_ones(p, &n, base, "input_layernorm.weight", D);
        add_ones(p, &n, base, "post_attention_layernorm.weight", D);
        add_ones(p, &n, base, "self_attn.q_norm.weight", 16);
        add_ones(p, &n, base, "self_attn.k_norm.weight", 16);
        for (int k = 0; k < (int)AF_LEN(linears); k++) {
            snprintf(name, sizeof name, "%s%s", base, linears[k].name);
            add_linear(p, &n, name, f, l * 10 + k, linears[k].rows, linears[k].cols);
        }
    }
    return n;
}

static void write_config(const char *path, form f)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"], "
                  "\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, "
                  "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
                  "\"num_key_value_heads\": 2, \"head_dim\": 16, \"dtype\": \"float32\", "
                  "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true, "
                  "\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0",
                  V, D, F, LAYERS);
    if (f != PLAIN)
        af_buf_printf(&b, ", \"quantization_config\": {%s}", forms[f].config);
    af_buf_str(&b, "}\n");
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
}

static void make_folder(const char *to, form f)
{
    char path[400], from[600];
    part p[3 + LAYERS * (4 + AF_LEN(linears) * 4)];
    af_error err = {0};
    af_safetensors_writer *w;
    const int n = list_parts(p, f);
    CHECK_OK(af_dir_make(to, &err), err);
    snprintf(path, sizeof path, "%s/config.json", to);
    write_config(path, f);
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < AF_LEN(files); i++) {
        snprintf(from, sizeof from, "%s/models/qwen2/%s", golden_dir(), files[i]);
        snprintf(path, sizeof path, "%s/%s", to, files[i]);
        CHECK_OK(af_file_copy(from, path, &err), err);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int i = 0; i < n; i++)
        CHECK_OK(af_safetensors_writer_add(w, p[i].name, p[i].dtype, p[i].dim, p[i].ndim, &err),
                 err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < n; i++) {
        CHECK_OK(af_safetensors_writer_data(w, p[i].data, p[i].bytes, &err), err);
        free(p[i].data);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

/* ---- the three things people do ---- */

static void train_on(const char *base, const char *out)
{
    af_buf b = {0};
    char path[300], data[300];
    af_error err = {0};
    af_train_result result;
    snprintf(data, sizeof data, "%s/rows.jsonl", dir);
    for (int r = 0; r < 4; r++) {
        af_buf_str(&b, "{\"input_ids\": [5");
        for (int i = 0; i < 20; i++)
            af_buf_printf(&b, ", %d", 3 + (r * 37 + i * i * 11) % 500);
        af_buf_str(&b, "]}\n");
    }
    CHECK_OK(af_file_write(data, b.data, b.len, &err), err);
    af_buf_clear(&b);
    af_buf_printf(&b,
                  "base_model: %s\ndatasets: [{path: %s}]\noutput_dir: %s\nadapter: lora\n"
                  "lora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmicro_batch_size: 2\n"
                  "max_steps: 4\nlearning_rate: 0.01\nlr_scheduler: constant\nwarmup_steps: 0\n"
                  "bf16: false\ndevice: %s\nseed: 5\n",
                  base, data, out, test_device());
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    CHECK_OK(af_train(path, NULL, 0, NULL, &result, &err), err);
    af_buf_clear(&b);
}

static af_generated generate_with(const char *base, const char *adapter)
{
    static const int32_t ids[] = {5, 17, 101, 33};
    const int32_t *prompt[] = {ids};
    const int64_t len = AF_LEN(ids);
    af_error err = {0};
    af_model *m;
    af_generated g = {0};
    const af_model_opts o = {
        .device = "cpu", .adapter = {adapter}, .adapter_weight = {1}, .adapters = 1};
    CHECK_OK(af_model_open(&m, base, &o, &err), err);
    const af_generate_opts go = {.prompt = prompt,
                                 .prompt_len = &len,
                                 .sequences = 1,
                                 .max_new = 12,
                                 .ignore_eos = true,
                                 .ids_only = true};
    CHECK_OK(af_model_generate(m, &go, &g, &err), err);
    af_model_close(m);
    return g;
}

static void merge_into(const char *base, const char *adapter, const char *out)
{
    af_error err = {0};
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(base, out, &o, NULL, &err), err);
}

static void test_every_form_computes_as_the_plain_base(void **state)
{
    (void)state;
    char base[200], run[200], merged[200], plain_run[300], plain_merged[300], path[300];
    af_generated want = {0};
    snprintf(plain_run, sizeof plain_run, "%s/run-plain/adapter_model.safetensors", dir);
    snprintf(plain_merged, sizeof plain_merged, "%s/merged-plain/model.safetensors", dir);
    for (form f = PLAIN; f < FORMS; f++) {
        snprintf(base, sizeof base, "%s/base-%s", dir, forms[f].name);
        snprintf(run, sizeof run, "%s/run-%s", dir, forms[f].name);
        snprintf(merged, sizeof merged, "%s/merged-%s", dir, forms[f].name);
        make_folder(base, f);
        train_on(base, run);
        merge_into(base, run, merged);
        af_generated g = generate_with(base, run);
        if (f == PLAIN) {
            want = g;
            continue;
        }
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", run);
        same_weights(path, plain_run);
        snprintf(path, sizeof path, "%s/model.safetensors", merged);
        same_weights(path, plain_merged);
        CHECK_MSG(g.count == want.count &&
                      memcmp(g.ids, want.ids, (size_t)g.count * sizeof *g.ids) == 0,
                  "%s: other tokens than from the plain base", forms[f].name);
        af_generated_clear(&g);
    }
    af_generated_clear(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_computes_as_the_plain_base),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
