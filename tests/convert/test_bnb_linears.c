/* test_bnb_linears.c - which tensors quantize packs for bitsandbytes, and which it names as left
 * alone: what transformers 5.23 has in codes when it loads the folder. */
#include "convert_case.h"

#include "afinar/log.h"
#include "convert/quantize/bnb_linears.h"
#include "model/family_case.h"

enum { PATH = 4200 };

/* Linears of AutoModelForCausalLM.from_config for the configs of tests/golden/families. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int ndim;
        bool packed;
    } row[] = {
        {"model.layers.0.self_attn.q_proj.weight", 2, true},
        {"transformer.h.1.attn.c_attn.weight", 2, true},
        {"transformer.blocks.1.attn.Wqkv.weight", 2, true},
        {"transformer.blocks.0.norm_attn_norm.attn.out_proj.weight", 2, true},
        {"transformer.blocks.0.norm_attn_norm.norm_1.weight", 1, false},
        {"model.layers.3.mlp.shared_expert_gate.weight", 2, true},
        {"model.layers.3.mlp.gate_proj.weight", 2, true},
        {"model.layers.3.self_attn.output_gate.weight", 2, true},
        {"model.layers.0.input_layernorm.W_down.weight", 2, true},
        {"model.layers.3.mlp.gate.weight", 2, false},
        {"model.layers.3.block_sparse_moe.gate.weight", 2, false},
        {"model.layers.3.feed_forward.gate.weight", 2, false},
        {"model.layers.3.mixer.gate.weight", 2, false},
        {"model.layers.3.mlp.gate.wg.weight", 2, false},
        {"model.layers.3.mlp.router.weight", 2, false},
        {"model.layers.3.feed_forward.router.weight", 2, false},
        {"model.layers.3.block_sparse_moe.router.layer.weight", 2, false},
        {"model.layers.3.mlp.experts.7.up_proj.weight", 2, false},
        {"model.layers.3.self_attn.indexer.weights_proj.weight", 2, false},
        {"model.layers.3.self_attn.q_norm.weight", 2, false},
        {"model.decoder.project_in.weight", 2, false},
        {"model.embed_tokens.weight", 2, false},
        {"lm_head.weight", 2, false},
        {"model.layers.0.mixer.A_log", 2, false},
        {"model.layers.0.mixer.conv1d.weight", 3, false},
    };
    for (size_t i = 0; i < AF_LEN(row); i++) {
        const af_model_tensor t = {.name = row[i].name, .ndim = row[i].ndim};
        CHECK_MSG(af_bnb_packs(&t) == row[i].packed, "%s", row[i].name);
    }
}

/* Formula models of families as nf4: how many tensors have codes, and what config.json lists. */
static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *family, *skip;
        int packed;
    } row[] = {
        {"mpt", "null", 8},
        {"mixtral",
         "[\"lm_head\",\"model.layers.0.block_sparse_moe.gate\","
         "\"model.layers.1.block_sparse_moe.gate\"]",
         8},
        {"gpt_oss", "[\"lm_head\",\"model.layers.0.mlp.router\",\"model.layers.1.mlp.router\"]", 8},
        {"opt_350m", "[\"lm_head\",\"model.decoder.project_in\",\"model.decoder.project_out\"]",
         12},
    };
    for (size_t i = 0; i < AF_LEN(row); i++) {
        formula_model f;
        char path[PATH], out[256];
        af_error err = {0};
        af_convert_report *r = NULL;
        af_weights *w = NULL;
        int packed = 0;
        scratch_dir d = scratch_new();
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), row[i].family);
        json_t *j = read_json(path);
        formula_model_write(&f, j);
        json_decref(j);
        join(out, sizeof out, d.path, "q");
        const af_quantize_opts o = {.type = "nf4", .threads = 1};
        CHECK_OK(af_quantize(&r, f.dir, out, &o, &err), err);
        af_convert_report_free(r);
        CHECK_OK(af_weights_open(&w, out, &err), err);
        for (int k = 0; k < af_weights_count(w); k++)
            packed += strstr(af_weights_at(w, k)->name, ".quant_state.") != NULL;
        af_weights_close(w);
        j = read_json(join(path, sizeof path, out, "config.json"));
        const json_t *q = json_object_get(j, "quantization_config");
        char *skip =
            json_dumps(json_object_get(q, "llm_int8_skip_modules"), JSON_COMPACT | JSON_ENCODE_ANY);
        CHECK_MSG(packed == row[i].packed, "%s: %d", row[i].family, packed);
        CHECK_MSG(strcmp(skip, row[i].skip) == 0, "%s: %s", row[i].family, skip);
        free(skip);
        json_decref(j);
        formula_model_clear(&f);
        scratch_free(&d);
    }
}

static void keep_warning(void *user, af_log_level level, const char *line)
{
    if (level == AF_LOG_WARN)
        snprintf(user, 512, "%s", line);
}

/* Folders that transformers will not load: one of falcon says so, and is read here. */
static void test_linears_of_their_own(void **state)
{
    (void)state;
    static const char *const family[] = {"falcon", "mpt"};
    for (size_t i = 0; i < AF_LEN(family); i++) {
        formula_model f;
        char path[PATH], out[256], warning[512] = "";
        af_error err = {0};
        af_convert_report *r = NULL;
        af_model_reader *m = NULL;
        scratch_dir d = scratch_new();
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family[i]);
        json_t *j = read_json(path);
        formula_model_write(&f, j);
        json_decref(j);
        af_log_set(keep_warning, warning);
        const af_quantize_opts o = {.type = "nf4", .threads = 1};
        CHECK_OK(af_quantize(&r, f.dir, join(out, sizeof out, d.path, "q"), &o, &err), err);
        af_log_set(NULL, NULL);
        af_convert_report_free(r);
        CHECK_MSG((strstr(warning, "FalconLinear") != NULL) == (i == 0), "%s: '%s'", family[i],
                  warning);
        CHECK_OK(af_model_reader_open(&m, out, &err), err);
        CHECK_OK(af_model_reader_match(m, &err), err);
        af_model_reader_close(m);
        formula_model_clear(&f);
        scratch_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_linears_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
