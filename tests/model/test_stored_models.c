/* test_stored_models.c - models as other tools store them: GGUF files, bitsandbytes folders, PEFT
 * adapters, against the logits of the goldens; quantisation at load; what adapters may not change.
 */
#define _GNU_SOURCE /* memmem */
#include "family_case.h"

#include "graph/node.h"
#include "tensor/codec_bnb.h"

typedef struct wanted {
    af_weights *w;
    const int32_t *ids;
    int64_t n;
} wanted;

static bool wanted_open(wanted *x, const char *sub)
{
    char path[4096];
    af_error err = {0};
    if (!case_dir(path, sizeof path, sub)) {
        print_message("%s is not here: skipped\n", sub);
        return false;
    }
    CHECK_OK(af_weights_open(&x->w, path, &err), err);
    const af_stored *ids = case_golden(x->w, "ids");
    x->ids = ids->data;
    x->n = af_weight_count(ids);
    return true;
}

/* The logits of one model for the golden's ids; free() them. */
static float *logits_of(const char *sub, const wanted *x, case_opts o)
{
    char dir[4096], adapter[4096];
    model_case c;
    CHECK_MSG(case_dir(dir, sizeof dir, sub), "%s is not here", sub);
    if (o.adapter) {
        CHECK_MSG(case_dir(adapter, sizeof adapter, o.adapter), "%s is not here", o.adapter);
        o.adapter = adapter;
    }
    o.rows = x->n;
    o.seqs = 1;
    case_open(&c, dir, &o);
    case_run(&c, x->ids, NULL, &x->n, 1);
    float *y = case_read(&c, c.logits);
    case_close(&c);
    return y;
}

static double worst_of(const float *a, const float *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = isfinite(a[i]) ? fmax(worst, fabs((double)a[i] - b[i])) : INFINITY;
    return worst;
}

static void check_logits(const char *sub, const wanted *x, const char *key, case_opts o, double tol)
{
    const af_stored *want = case_golden(x->w, key);
    float *y = logits_of(sub, x, o);
    const double d = worst_of(y, want->data, af_weight_count(want));
    print_message("%-36s %-16s %.1e\n", o.adapter ? o.adapter : sub, key, d);
    CHECK_MSG(d < tol, "%s: logits are %g from '%s'", sub, d, key);
    free(y);
}

static void test_gguf_files_compute_as_their_dequantised_weights(void **state)
{
    (void)state;
    static const struct {
        const char *model, *file, *key;
        double tol;
    } cases[] = {
        {"llama", "q8_0.gguf", "dequant.q8_0", 1e-4},
        {"llama", "f16.gguf", "hf", 1e-3}, /* f16 rounding of the weights */
        {"llama_k", "Q4_K_M.gguf", "dequant.Q4_K_M", 1e-4},
        {"qwen2", "q8_0.gguf", "dequant.q8_0", 1e-4},
        {"llama", "hf", "hf", 2e-5},
        {"qwen3", "hf", "hf", 2e-5},
        {"gemma3", "hf", "hf", 2e-5},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char sub[256], logits[256];
        wanted x;
        snprintf(sub, sizeof sub, "convert/gguf_models/%s/%s", cases[i].model, cases[i].file);
        snprintf(logits, sizeof logits, "convert/gguf_models/%s/logits.safetensors",
                 cases[i].model);
        if (!wanted_open(&x, logits))
            skip_because("no shared goldens");
        check_logits(sub, &x, cases[i].key, (case_opts){0}, cases[i].tol);
        af_weights_close(x.w);
    }
}

/* Every architecture's names, permutations and norms in GGUF. */
static void test_gguf_architectures(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama3",  "gemma",   "phi3",    "olmo2",
                                        "granite", "smollm3", "qwen3moe"};
    for (size_t i = 0; i < AF_LEN(archs); i++) {
        char sub[128], logits[128];
        wanted x;
        snprintf(sub, sizeof sub, "models/gguf/%s.gguf", archs[i]);
        snprintf(logits, sizeof logits, "models/gguf/%s.safetensors", archs[i]);
        assert_true(wanted_open(&x, logits));
        check_logits(sub, &x, "logits", (case_opts){0}, 1e-5);
        af_weights_close(x.w);
    }
}

static void test_adapter_on_a_gguf_base_is_the_same(void **state)
{
    (void)state;
    wanted x;
    if (!wanted_open(&x, "convert/gguf_models/llama/logits.safetensors"))
        skip_because("no shared goldens");
    const case_opts o = {.adapter = "convert/gguf_models/llama/lora"};
    check_logits("convert/gguf_models/llama/hf", &x, "lora.hf", o, 2e-5);
    check_logits("convert/gguf_models/llama/f16.gguf", &x, "lora.hf", o, 1e-3);
    af_weights_close(x.w);
}

static void test_bitsandbytes_folders(void **state)
{
    (void)state;
    static const char *const variants[] = {"bf16", "nf4_dq", "fp4", "int8"};
    wanted x;
    if (!wanted_open(&x, "convert/bnb_model/logits.safetensors"))
        skip_because("no shared goldens");
    for (size_t i = 0; i < AF_LEN(variants); i++) {
        char sub[128], key[64];
        snprintf(sub, sizeof sub, "convert/bnb_model/%s", variants[i]);
        snprintf(key, sizeof key, "%s.f32", variants[i]);
        check_logits(sub, &x, key, (case_opts){0}, 1e-4);
    }
    af_weights_close(x.w);
}

/* ---- experts of bitsandbytes, which older versions of transformers packed one by one ---- */

static bool is_expert(const af_stored *t) { return strstr(t->name, ".mlp.experts.") != NULL; }

/* A tensor of `w`, declared or written: an expert as 8-bit rows, or the values these have. */
static void put_expert(af_safetensors_writer *out, const af_stored *t, bool packed, bool declare)
{
    char scales[256];
    af_error err = {0};
    const int64_t rows = t->dim[0], cols = t->dim[1];
    snprintf(scales, sizeof scales, "%.*sSCB", (int)(strlen(t->name) - strlen("weight")), t->name);
    if (declare) {
        CHECK_OK(af_safetensors_writer_add(out, t->name, packed ? AF_DTYPE_I8 : AF_DTYPE_F32,
                                           t->dim, 2, &err),
                 err);
        if (packed)
            CHECK_OK(af_safetensors_writer_add(out, scales, AF_DTYPE_F32, &rows, 1, &err), err);
        return;
    }
    int8_t *codes = malloc((size_t)(rows * cols));
    float *x = malloc((size_t)(rows * cols) * sizeof *x), *scale = malloc((size_t)rows * sizeof *x);
    for (int64_t r = 0; r < rows; r++) {
        scale[r] = af_int8_encode_row((const float *)t->data + r * cols, cols, codes + r * cols);
        af_int8_decode_row(codes + r * cols, scale[r], cols, x + r * cols);
    }
    if (packed) {
        CHECK_OK(af_safetensors_writer_data(out, codes, (uint64_t)(rows * cols), &err), err);
        CHECK_OK(af_safetensors_writer_data(out, scale, (uint64_t)rows * sizeof *scale, &err), err);
    } else {
        CHECK_OK(af_safetensors_writer_data(out, x, (uint64_t)(rows * cols) * sizeof *x, &err),
                 err);
    }
    free(codes);
    free(scale);
    free(x);
}

/* Replaces the folder's weights; config.json says how they are stored. */
static void put_experts(const formula_model *f, const json_t *golden, bool packed)
{
    char path[128], next[128];
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    json_t *config = json_deep_copy(json_object_get(golden, "config"));
    snprintf(path, sizeof path, "%s/config.json", f->dir);
    json_object_set_new(config, "dtype", json_string("float32"));
    if (packed)
        json_object_set_new(
            config, "quantization_config",
            json_pack("{s:s, s:b}", "quant_method", "bitsandbytes", "load_in_8bit", 1));
    char *text = json_dumps(config, 0);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(text);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors", f->dir);
    snprintf(next, sizeof next, "%s/next.safetensors", f->dir);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    CHECK_OK(af_safetensors_writer_new(&out, next, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_weights_count(w); i++) {
            const af_stored *t = af_weights_at(w, i);
            if (is_expert(t))
                put_expert(out, t, packed, pass == 0);
            else
                CHECK_OK(pass == 0 ? af_safetensors_writer_add(out, t->name, t->dtype, t->dim,
                                                               t->ndim, &err)
                                   : af_safetensors_writer_data(out, t->data, t->bytes, &err),
                         err);
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
    assert_int_equal(rename(next, path), 0);
}

static void test_bitsandbytes_experts_one_by_one(void **state)
{
    char path[4200];
    (void)state;
    snprintf(path, sizeof path, "%s/families/dots1.json", golden_dir());
    json_t *golden = read_json(path);
    float *y[2];
    int64_t vocab = 0;
    for (int packed = 0; packed < 2; packed++) {
        formula_model f;
        model_case c;
        formula_model_write(&f, golden);
        put_experts(&f, golden, packed);
        case_open(&c, f.dir, &(case_opts){.rows = f.len[0], .seqs = 1});
        case_run(&c, f.ids, NULL, f.len, 1);
        y[packed] = case_read(&c, c.logits);
        vocab = f.len[0] * af_loader_spec(c.loader)->vocab;
        case_close(&c);
        formula_model_clear(&f);
    }
    assert_true(vocab > 0 && worst_of(y[0], y[1], vocab) == 0);
    free(y[0]);
    free(y[1]);
    json_decref(golden);
}

/* torch.save of a model of transformers 5: the head of gpt_neox is embed_out in folders. */
static void test_head_with_its_name_of_memory(void **state)
{
    static const char old[] = "\"embed_out.weight\"", new[] = "\"lm_head.weight\"  ";
    char path[4200];
    float *y[2];
    int64_t n = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/families/gpt_neox.json", golden_dir());
    json_t *golden = read_json(path);
    for (int renamed = 0; renamed < 2; renamed++) {
        formula_model f;
        model_case c;
        af_error err = {0};
        char *text;
        uint64_t size;
        formula_model_write(&f, golden);
        snprintf(path, sizeof path, "%s/model.safetensors", f.dir);
        CHECK_OK(af_file_read(&text, &size, path, 1 << 26, &err), err);
        char *at = memmem(text, size, old, strlen(old));
        assert_non_null(at);
        if (renamed)
            memcpy(at, new, strlen(new));
        CHECK_OK(af_file_write(path, text, size, &err), err);
        free(text);
        case_open(&c, f.dir, &(case_opts){.rows = f.len[0], .seqs = 1});
        case_run(&c, f.ids, NULL, f.len, 1);
        y[renamed] = case_read(&c, c.logits);
        n = f.len[0] * af_loader_spec(c.loader)->vocab;
        case_close(&c);
        formula_model_clear(&f);
    }
    assert_true(n > 0 && worst_of(y[0], y[1], n) == 0);
    free(y[0]);
    free(y[1]);
    json_decref(golden);
}

/* A copy of a tied golden in `dir` whose embedding is called `embed`, and which has a head of
 * `factor` times that (0 = none). */
static void write_tied(const char *dir, const char *golden, const char *embed, float factor)
{
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    char path[8192], command[16384];
    CHECK_OK(af_weights_open(&w, golden, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    const af_stored *e = case_golden(w, "model.embed_tokens.weight");
    const int n = af_weights_count(w);
    for (int i = 0; i < n; i++) {
        const af_stored *t = af_weights_at(w, i);
        CHECK_OK(af_safetensors_writer_add(out, t == e ? embed : t->name, t->dtype, t->dim, t->ndim,
                                           &err),
                 err);
    }
    if (factor != 0)
        CHECK_OK(af_safetensors_writer_add(out, "lm_head.weight", AF_DTYPE_F32, e->dim, 2, &err),
                 err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < n; i++) {
        const af_stored *t = af_weights_at(w, i);
        CHECK_OK(af_safetensors_writer_data(out, t->data, t->bytes, &err), err);
    }
    assert_int_equal(e->dtype, AF_DTYPE_F32);
    for (int64_t i = 0; factor != 0 && i < e->dim[0] * e->dim[1]; i++) {
        const float v = factor * ((const float *)e->data)[i];
        CHECK_OK(af_safetensors_writer_data(out, &v, sizeof v, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
    snprintf(command, sizeof command, "cp '%s/config.json' '%s/'", golden, dir);
    assert_int_equal(system(command), 0);
}

/* transformers 5: a stored head that is not the embedding is the head, whatever the config says. */
static void test_tied_folders_with_a_stored_head(void **state)
{
    (void)state;
    enum { N = 5 };
    static const struct {
        const char *embed;
        float factor, logits; /* times those of the golden */
    } cases[] = {
        {"model.embed_tokens.weight", 0, 1},
        {"model.embed_tokens.weight", 1, 1},
        {"model.embed_tokens.weight", 2, 2},
        {"lm_head.weight", 0, 1},
    };
    char golden[4096];
    snprintf(golden, sizeof golden, "%s/models/qwen2_tiny", golden_dir());
    float *first = NULL;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[] = "/tmp/af-tied-XXXXXX", command[64];
        const int32_t ids[N] = {1, 7, 3, 9, 2};
        model_case c;
        assert_non_null(mkdtemp(dir));
        write_tied(dir, golden, cases[i].embed, cases[i].factor);
        case_open(&c, dir, &(case_opts){.rows = N, .seqs = 1});
        assert_true(af_loader_spec(c.loader)->tied == (cases[i].logits == 1));
        case_run(&c, ids, NULL, (int64_t[]){N}, 1);
        float *y = case_read(&c, c.logits);
        first = first ? first : y;
        for (int64_t k = 0; k < af_tensor_count(c.logits); k++)
            CHECK_MSG(fabsf(y[k] - cases[i].logits * first[k]) <= 1e-5f,
                      "case %zu: logit %g where %g times %g is meant", i, (double)y[k],
                      (double)cases[i].logits, (double)first[k]);
        if (y != first)
            free(y);
        case_close(&c);
        snprintf(command, sizeof command, "rm -r '%s'", dir);
        assert_int_equal(system(command), 0);
    }
    free(first);
}

static void same_bits(const char *what, float *a, float *b, int64_t n)
{
    CHECK_MSG(memcmp(a, b, (size_t)n * sizeof *a) == 0, "%s: results differ by %g", what,
              worst_of(a, b, n));
    free(a);
    free(b);
}

static void test_shadow_and_scratch_give_the_same_numbers(void **state)
{
    (void)state;
    wanted x;
    if (!wanted_open(&x, "convert/bnb_model/logits.safetensors"))
        skip_because("no shared goldens");
    const int64_t n = x.n * 160;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        case_opts o = {.loader = {.compute = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32}};
        case_opts p = o;
        p.loader.quant_mode = AF_QUANT_SCRATCH;
        same_bits("nf4 folder", logits_of("convert/bnb_model/nf4_dq", &x, o),
                  logits_of("convert/bnb_model/nf4_dq", &x, p), n);
        o.loader.load_in_4bit = p.loader.load_in_4bit = true;
        same_bits("quantised at load", logits_of("convert/bnb_model/bf16", &x, o),
                  logits_of("convert/bnb_model/bf16", &x, p), n);
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        case_opts o = {.loader = {.compute = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32}};
        case_opts p = o;
        p.loader.quant_mode = AF_QUANT_SCRATCH;
        same_bits("int8 folder", logits_of("convert/bnb_model/int8", &x, o),
                  logits_of("convert/bnb_model/int8", &x, p), n);
        o.loader.load_in_8bit = p.loader.load_in_8bit = true;
        same_bits("quantised to int8 at load", logits_of("convert/bnb_model/bf16", &x, o),
                  logits_of("convert/bnb_model/bf16", &x, p), n);
    }
    /* Quantising at load makes the folder's own codes; the folder rounds values to bf16. */
    case_opts o = {.loader = {.load_in_4bit = true}};
    check_logits("convert/bnb_model/bf16", &x, "nf4_dq.f32", o, 5e-2);
    o = (case_opts){.loader = {.load_in_8bit = true}};
    check_logits("convert/bnb_model/bf16", &x, "int8.f32", o, 5e-2);
    af_weights_close(x.w);
}

static void test_peft_folders(void **state)
{
    (void)state;
    static const char *const names[] = {"lora", "lora2", "rslora", "dora", "patterns"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        wanted x;
        char logits[128], adapter[128];
        snprintf(logits, sizeof logits, "convert/peft/%s.safetensors", names[i]);
        snprintf(adapter, sizeof adapter, "convert/peft/%s", names[i]);
        if (!wanted_open(&x, logits))
            skip_because("no shared goldens");
        check_logits("convert/merge/models/base", &x, "logits", (case_opts){.adapter = adapter},
                     1e-5);
        af_weights_close(x.w);
    }
}

static void test_doubling_alpha_doubles_the_delta(void **state)
{
    (void)state;
    wanted x;
    const char *base = "convert/merge/models/base", *adapter = "convert/peft/lora";
    if (!wanted_open(&x, "convert/peft/lora.safetensors"))
        skip_because("no shared goldens");
    const int64_t n = x.n * 128;
    float *none = logits_of(base, &x, (case_opts){0});
    float *zero = logits_of(base, &x, (case_opts){.adapter = adapter, .alpha_factor = 1e-30});
    /* so small that the logits' delta is linear in the scale */
    float *one = logits_of(base, &x, (case_opts){.adapter = adapter, .alpha_factor = 1e-2});
    float *two = logits_of(base, &x, (case_opts){.adapter = adapter, .alpha_factor = 2e-2});
    double d1 = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        d1 += fabs(one[i] - none[i]);
        off += fabs((two[i] - none[i]) - 2 * (one[i] - none[i]));
    }
    CHECK_MSG(off < 0.05 * d1, "the delta is off by %g of %g", off, d1);
    CHECK_MSG(memcmp(none, zero, (size_t)n * sizeof *none) == 0,
              "an adapter of nothing changes the logits by %g", worst_of(none, zero, n));
    free(none);
    free(zero);
    free(one);
    free(two);
    af_weights_close(x.w);
}

/* A plan asks for the memory of 4-bit weights without making them, which takes a while. */
static void test_an_outline_quantises_nothing(void **state)
{
    (void)state;
    char dir[4096];
    af_error err = {0};
    CHECK_MSG(case_dir(dir, sizeof dir, "models/qwen2_tiny"), "no qwen2_tiny");
    for (int outline = 0; outline < 2; outline++) {
        const af_loader_opts o = {
            .load_in_4bit = true, .quant_mode = AF_QUANT_SCRATCH, .outline = outline};
        af_loader *s = NULL;
        af_graph *g = NULL;
        af_model_leaves l = {0};
        int bound = 0;
        CHECK_OK(af_loader_open(&s, dir, &o, &err), err);
        CHECK_OK(af_graph_new(&g, &err), err);
        const af_leaves_opts lo = {.dtype = af_loader_dtypes(s)};
        CHECK_OK(af_model_leaves_init(&l, g, af_loader_spec(s), &lo, &err), err);
        CHECK_OK(af_loader_bind(s, &l, true, &err), err);
        for (int i = 0; i < s->spec->tensors; i++) {
            if (!s->quantise[i])
                continue;
            assert_true(l.tensor[i]->bound && l.tensor[i]->quant->absmax->bound);
            assert_int_equal(s->made[i].codes == NULL, outline);
            bound++;
        }
        assert_true(bound > 0);
        af_model_leaves_clear(&l);
        af_graph_free(g);
        af_loader_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_files_compute_as_their_dequantised_weights),
        cmocka_unit_test(test_gguf_architectures),
        cmocka_unit_test(test_adapter_on_a_gguf_base_is_the_same),
        cmocka_unit_test(test_bitsandbytes_folders),
        cmocka_unit_test(test_bitsandbytes_experts_one_by_one),
        cmocka_unit_test(test_head_with_its_name_of_memory),
        cmocka_unit_test(test_tied_folders_with_a_stored_head),
        cmocka_unit_test(test_shadow_and_scratch_give_the_same_numbers),
        cmocka_unit_test(test_an_outline_quantises_nothing),
        cmocka_unit_test(test_peft_folders),
        cmocka_unit_test(test_doubling_alpha_doubles_the_delta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
