/* Runs on a base that is stored in bitsandbytes form: `qlora` (dequantised to f32) and `qlora-bf16`
 * (rounded to bf16), as the dtype named in the quant state says. The folder is assembled here
 * from the plain model and the stored 4-bit tensors. */
#define _GNU_SOURCE
#include "train/run_folder.h"

#include "afinar/convert.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "format/weights/safetensors.h"

/* The quant state with another dtype, as long as before. */
static void patch_state(char *text, uint64_t size, const char *dtype)
{
    char *at = memmem(text, size, "\"dtype\": \"bfloat16\"", 19), want[24];
    assert_non_null(at);
    snprintf(want, sizeof want, "\"dtype\": \"%s\"", dtype);
    memset(at, ' ', 19);
    memcpy(at, want, strlen(want));
}

/* What a folder takes of the plain model (codes given) or of the codes (NULL): the linears whose
 * name has `keep` stay plain. */
static bool is_taken(const char *name, const af_safetensors *codes, const char *keep)
{
    const bool kept = keep && strstr(name, keep);
    return codes ? kept || !af_safetensors_find(codes, name) : !kept;
}

static void add_all(af_safetensors_writer *w, const af_safetensors *f, const af_safetensors *codes,
                    const char *keep)
{
    af_error err = {0};
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        if (is_taken(t->name, codes, keep))
            CHECK_OK(af_safetensors_writer_add(w, t->name, t->dtype, t->dim, t->ndim, &err), err);
    }
}

static void write_all(af_safetensors_writer *w, const af_safetensors *f,
                      const af_safetensors *codes, const char *keep, const char *dtype)
{
    af_error err = {0};
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        if (!is_taken(t->name, codes, keep))
            continue;
        char *copy = malloc(t->bytes + 1);
        assert_non_null(copy);
        memcpy(copy, t->data, t->bytes);
        if (strstr(t->name, ".quant_state."))
            patch_state(copy, t->bytes, dtype);
        CHECK_OK(af_safetensors_writer_data(w, copy, t->bytes, &err), err);
        free(copy);
    }
}

static void copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    char from[600], to[600];
    af_error err = {0};
    snprintf(from, sizeof from, "%s/%s", from_dir, name);
    snprintf(to, sizeof to, "%s/%s", to_dir, name);
    CHECK_OK(af_file_copy(from, to, &err), err);
}

/* qwen2 with its linears in nf4, but for those whose name has `keep`. */
static void make_folder(const char *to, const char *dtype, const char *keep)
{
    char base[512], path[600], stored[600];
    af_error err = {0};
    af_safetensors *plain, *codes;
    af_safetensors_writer *w;
    json_error_t why;
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    CHECK_OK(af_dir_make(to, &err), err);
    copy_file(base, to, "tokenizer.json");
    copy_file(base, to, "tokenizer_config.json");
    copy_file(base, to, "chat_template.jinja");
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    snprintf(stored, sizeof stored, "%s/runs/qwen2/qlora/quantized.safetensors", golden_dir());
    CHECK_OK(af_safetensors_open(&plain, path, &err), err);
    CHECK_OK(af_safetensors_open(&codes, stored, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    add_all(w, plain, codes, keep);
    add_all(w, codes, NULL, keep);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    write_all(w, plain, codes, keep, dtype);
    write_all(w, codes, NULL, keep, dtype);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(plain);
    af_safetensors_close(codes);
    snprintf(path, sizeof path, "%s/config.json", base);
    json_t *config = json_load_file(path, 0, &why);
    json_object_set_new(config, "quantization_config",
                        json_pack("{s:s,s:b,s:s,s:b,s:s}", "quant_method", "bitsandbytes",
                                  "load_in_4bit", 1, "bnb_4bit_quant_type", "nf4",
                                  "bnb_4bit_use_double_quant", 1, "bnb_4bit_compute_dtype", dtype));
    snprintf(path, sizeof path, "%s/config.json", to);
    assert_int_equal(json_dump_file(config, path, JSON_INDENT(2)), 0);
    json_decref(config);
}

/* Into dir/run. */
static void train_on(const char *base, const char *run, const char *adapter, int steps)
{
    af_buf b = {0};
    char path[300];
    af_error err = {0};
    af_train_result result;
    af_buf_printf(&b,
                  "base_model: %s\ndatasets: [{path: %s/models/data/train.jsonl}]\n"
                  "output_dir: %s/%s\nadapter: %s\nmax_steps: %d\n"
                  "lora_model_dir: %s/runs/qwen2/lora/initial_adapter\n"
                  "micro_batch_size: 2\ngradient_accumulation_steps: 2\n"
                  "weight_decay: 0.01\nweight_decay_on: all\nlr_scheduler: cosine\n"
                  "warmup_steps: 3\nmax_grad_norm: 1.0\nlearning_rate: 0.001\nshuffle: false\n"
                  "bf16: false\ndevice: %s\n",
                  base, golden_dir(), dir, run, adapter, steps, golden_dir(), test_device());
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    CHECK_OK(af_train(path, NULL, 0, NULL, &result, &err), err);
    af_buf_clear(&b);
}

static void test_the_quant_state_decides_the_rounding(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *dtype;
    } cases[] = {{"qlora", "float32"}, {"qlora-bf16", "bfloat16"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char base[256];
        snprintf(base, sizeof base, "%s/base-%s", dir, cases[i].dtype);
        make_folder(base, cases[i].dtype, NULL);
        train_on(base, cases[i].golden, "lora", 30);
        follows_golden(cases[i].golden, cases[i].golden, 1e-5, 5e-6); /* as for adapters */
    }
}

enum { FEW_STEPS = 8 }; /* of runs that are compared with each other */

/* Some folders keep a few linears as they were (llm_int8_skip_modules): a qlora run does not
 * change what is stored, and computes what a lora run over the same folder does. */
static void test_what_a_folder_keeps_plain_stays_plain(void **state)
{
    (void)state;
    char base[256];
    snprintf(base, sizeof base, "%s/base-kept", dir);
    make_folder(base, "float32", ".mlp.gate_proj.");
    train_on(base, "kept-lora", "lora", FEW_STEPS);
    train_on(base, "kept-qlora", "qlora", FEW_STEPS);
    assert_true(same_output("kept-lora", "kept-qlora", "adapter_model.safetensors"));
}

/* Blocks of a GGUF file are a quantised base already: a qlora run takes them as they are, unless
 * it is configured to quantise them to nf4. */
static void test_qlora_takes_gguf_blocks_as_they_are(void **state)
{
    (void)state;
    char model[512], base[256];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    snprintf(base, sizeof base, "%s/q8.gguf", dir);
    const af_export_opts o = {.type = "q8_0"};
    CHECK_OK(af_export(model, base, &o, &report, &verify, &err), err);
    af_convert_report_free(report);
    train_on(base, "gguf-lora", "lora", FEW_STEPS);
    train_on(base, "gguf-qlora", "qlora", FEW_STEPS);
    train_on(base, "gguf-nf4", "qlora\nload_in_4bit: true", FEW_STEPS);
    assert_true(same_output("gguf-lora", "gguf-qlora", "adapter_model.safetensors"));
    assert_false(same_output("gguf-lora", "gguf-nf4", "adapter_model.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_quant_state_decides_the_rounding),
        cmocka_unit_test(test_what_a_folder_keeps_plain_stays_plain),
        cmocka_unit_test(test_qlora_takes_gguf_blocks_as_they_are),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
