/* test_inside.c - text models inside multimodal ones: where their tensors and modules lie, what is
 * left alone, and configs of many spellings. */
#include "family_case.h"

#include "base/buf.h"
#include "convert/input/folder_text.h"
#include "model/adapter_config.h"
#include "model/model_reader.h"

static const char llama_text[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":12,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":32,\"rms_norm_eps\":1e-6}";

/* A tensor as it is to be written. */
typedef struct moved {
    char name[512];
    int64_t dim[4];
    const void *data;
    uint64_t bytes;
    float *made; /* free() */
} moved;

/* Copies the weights of a folder, changed, with tensors of another part. */
static void copy_tensors(const char *from, const char *to,
                         void (*change)(moved *m, const af_stored *t, const void *user),
                         const void *user, const char *const others[2])
{
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    char path[256];
    const int64_t dim[1] = {3};
    const float values[3] = {1, 2, 3};
    CHECK_OK(af_weights_open(&w, from, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_weights_count(w); i++) {
            const af_stored *t = af_weights_at(w, i);
            moved m = {.data = t->data, .bytes = t->bytes};
            memcpy(m.dim, t->dim, sizeof m.dim);
            change(&m, t, user);
            CHECK_OK(pass == 0
                         ? af_safetensors_writer_add(out, m.name, t->dtype, m.dim, t->ndim, &err)
                         : af_safetensors_writer_data(out, m.data, m.bytes, &err),
                     err);
            free(m.made);
        }
        for (int i = 0; i < 2; i++)
            CHECK_OK(pass == 0
                         ? af_safetensors_writer_add(out, others[i], AF_DTYPE_F32, dim, 1, &err)
                         : af_safetensors_writer_data(out, values, sizeof values, &err),
                     err);
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

/* user: what "model." and what the head's name begins with become */
static void change_names(moved *m, const af_stored *t, const void *user)
{
    const char *const *to = user;
    const bool inside = strncmp(t->name, "model.", 6) == 0;
    snprintf(m->name, sizeof m->name, "%s%s", to[!inside], t->name + 6 * inside);
}

static float *logits_of(const char *dir, const formula_model *f, int64_t *n)
{
    model_case c;
    case_open(&c, dir, &(case_opts){.rows = f->N, .seqs = f->rows});
    case_run(&c, f->ids, f->labels, f->len, f->rows);
    *n = f->N * af_loader_spec(c.loader)->vocab;
    float *y = case_read(&c, c.logits);
    case_close(&c);
    return y;
}

static void check_kept(const char *dir, const char *const others[2])
{
    af_error err = {0};
    af_model_reader *r;
    CHECK_OK(af_model_reader_open(&r, dir, &err), err);
    CHECK_OK(af_model_reader_match(r, &err), err);
    int kept = 0;
    for (int i = 0; i < af_weights_count(r->weights); i++)
        kept += af_model_reader_keeps(r, af_weights_at(r->weights, i)->name);
    assert_int_equal(kept, 2);
    for (int i = 0; i < 2; i++)
        assert_true(af_model_reader_keeps(r, others[i]));
    af_model_reader_close(r);
}

static void test_folders_of_many_layouts_compute_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *config, *prefix, *head, *others[2];
    } cases[] = {
        {"{\"model_type\":\"llava\",\"text_config\":%s}",
         "language_model.model.",
         "language_model.",
         {"vision_tower.norm.weight", "multi_modal_projector.linear_1.bias"}},
        {"{\"model_type\":\"deepseek_vl\",\"hidden_size\":7,\"text_config\":%s}",
         "model.language_model.",
         "",
         {"model.vision_model.norm.bias", "model.aligner.linear1.bias"}},
        {"{\"model_type\":\"idefics3\",\"text_config\":%s}",
         "model.text_model.",
         "",
         {"model.vision_model.norm.bias", "model.connector.modality_projection.proj.bias"}},
        {"{\"model_type\":\"emu3\",\"text_config\":%s}",
         "text_model.model.",
         "text_model.",
         {"vqmodel.norm.bias", "model.other"}},
        {"{\"model_type\":\"qwen2_5_omni\",\"thinker_config\":{\"hidden_size\":9,"
         "\"text_config\":%s},\"talker_config\":{\"text_config\":{\"hidden_size\":1}}}",
         "thinker.model.",
         "thinker.",
         {"thinker.visual.merger.ln_q.weight", "talker.model.norm.weight"}},
        {"{\"model_type\":\"qwen2_5_omni\",\"thinker_config\":{\"text_config\":%s}}",
         "thinker.model.language_model.",
         "thinker.",
         {"thinker.visual.merger.ln_q.weight", "token2wav.norm.weight"}},
        {"{\"model_type\":\"internvl_chat\",\"llm_config\":%s}",
         "language_model.model.",
         "language_model.",
         {"vision_model.norm.weight", "mlp1.0.bias"}},
        {"{\"model_type\":\"ovis\",\"llm_config\":%s}",
         "llm.model.",
         "llm.",
         {"visual_tokenizer.head.weight", "vte.weight"}},
        {"{\"model_type\":\"multi_modality\",\"language_config\":%s}",
         "model.",
         "",
         {"vision_model.norm.weight", "model.aligner.bias"}},
        {"{\"model_type\":\"cosmos3_omni\",\"text_config\":%s}",
         "",
         "",
         {"visual.norm.weight", "proj_in.weight"}},
    };
    char path[4096], dir[] = "/tmp/af_inside_XXXXXX";
    af_error err = {0};
    formula_model f;
    int64_t n, m;
    snprintf(path, sizeof path, "%s/families/llama.json", golden_dir());
    json_t *j = read_json(path);
    char *text = json_dumps(json_object_get(j, "config"), 0);
    formula_model_write(&f, j);
    float *want = logits_of(f.dir, &f, &n);
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf b = {0};
        const char *gap = strstr(cases[i].config, "%s");
        af_buf_printf(&b, "%.*s%s%s", (int)(gap - cases[i].config), cases[i].config, text, gap + 2);
        snprintf(path, sizeof path, "%s/config.json", dir);
        CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
        af_buf_clear(&b);
        copy_tensors(f.dir, dir, change_names, (const char *[]){cases[i].prefix, cases[i].head},
                     cases[i].others);
        float *y = logits_of(dir, &f, &m);
        assert_int_equal(n, m);
        assert_memory_equal(y, want, (size_t)n * sizeof *y);
        free(y);
        check_kept(dir, cases[i].others);
    }
    CHECK_OK(af_path_remove(dir, &err), err);
    formula_model_clear(&f);
    free(text);
    free(want);
    json_decref(j);
}

/* A golden and its config, changed by `change`, in a folder of a multimodal model: it computes the
 * same. */
static void check_same(const char *golden, const char *whole_type, const char *type,
                       void (*edit)(json_t *config),
                       void (*change)(moved *m, const af_stored *t, const void *user),
                       const char *const others[2])
{
    char path[4096], dir[] = "/tmp/af_inside_XXXXXX";
    af_error err = {0};
    formula_model f;
    int64_t n, m;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), golden);
    json_t *j = read_json(path), *config = json_deep_copy(json_object_get(j, "config"));
    formula_model_write(&f, j);
    float *want = logits_of(f.dir, &f, &n);
    assert_non_null(mkdtemp(dir));
    json_object_set_new(config, "model_type", json_string(type));
    edit(config);
    json_t *whole = json_pack("{s:s, s:o}", "model_type", whole_type, "text_config", config);
    CHECK_OK(af_json_write(dir, "config.json", whole, &err), err);
    copy_tensors(f.dir, dir, change, NULL, others);
    float *y = logits_of(dir, &f, &m);
    assert_int_equal(n, m);
    assert_memory_equal(y, want, (size_t)n * sizeof *y);
    check_kept(dir, others);
    CHECK_OK(af_path_remove(dir, &err), err);
    formula_model_clear(&f);
    free(y);
    free(want);
    json_decref(whole);
    json_decref(j);
}

static void edit_mllama(json_t *config)
{
    json_object_set_new(config, "num_hidden_layers", json_integer(3));
    json_object_set_new(config, "cross_attention_layers", json_pack("[i]", 1));
}

/* The second layer is the third of the folder; eight rows follow the embedding. */
static void change_mllama(moved *m, const af_stored *t, const void *user)
{
    enum { MORE = 8 };
    (void)user;
    snprintf(m->name, sizeof m->name, "language_model.%s", t->name);
    char *second = strstr(m->name, "layers.1.");
    if (second)
        second[strlen("layers.")] = '2';
    if (!strstr(t->name, "embed_tokens"))
        return;
    m->dim[0] += MORE;
    m->bytes += MORE * (uint64_t)t->dim[1] * sizeof(float);
    m->data = m->made = calloc(1, m->bytes);
    memcpy(m->made, t->data, t->bytes);
}

/* Layers between others that see images alone are left out, with rows of image tokens. */
static void test_layers_that_see_images_are_left_out(void **state)
{
    (void)state;
    check_same("llama", "mllama", "mllama_text_model", edit_mllama, change_mllama,
               (const char *[]){"language_model.model.layers.1.cross_attn_mlp_gate",
                                "vision_model.norm.weight"});
}

/* An adapter of PEFT on such a model: layers 0 and 2 are of text, B of layer 1 is not 0. */
static void test_adapters_of_layers_that_see_images(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\":\"mllama\",\"text_config\":{\"model_type\":\"mllama_text_model\","
        "\"hidden_size\":16,\"intermediate_size\":12,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":32,"
        "\"cross_attention_layers\":[1]}}";
    static const char settings[] =
        "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":2,\"target_modules\":[\"q_proj\"]}";
    static const char *const part[] = {"0.self_attn", "1.cross_attn", "2.self_attn"};
    char dir[] = "/tmp/af_inside_XXXXXX", path[256], name[256];
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    af_adapter *a = NULL;
    af_safetensors_writer *w;
    float values[16] = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    CHECK_OK(af_file_write(path, settings, strlen(settings), &err), err);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int i = 0; i < 6; i++) {
        const int64_t dim[2] = {i % 2 ? 16 : 1, i % 2 ? 1 : 16};
        snprintf(name, sizeof name,
                 AF_ADAPTER_PREFIX "model.language_model.layers.%s.q_proj.lora_%c.weight",
                 part[i / 2], i % 2 ? 'B' : 'A');
        CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, 2, &err), err);
    }
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < 6; i++) {
        values[3] = i == 3;
        CHECK_OK(af_safetensors_writer_data(w, values, sizeof values, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    CHECK_OK(af_hf_config_parse(&c, config, strlen(config), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    CHECK_OK(af_adapter_read(&a, &s, dir, &err), err);
    assert_int_equal(a->others, 1);
    assert_string_equal(a->other[0].path, "model.layers.1.cross_attn.q_proj");
    assert_true(a->other[0].low.b[3] == 1 && a->other[0].low.scale == 2);
    af_adapter_free(a);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void edit_deepseek(json_t *config)
{
    json_object_del(config, "first_k_dense_replace");
    json_object_set_new(config, "mlp_layer_types", json_pack("[ss]", "dense", "sparse"));
}

static void change_deepseek(moved *m, const af_stored *t, const void *user)
{
    (void)user;
    snprintf(m->name, sizeof m->name, "%s", t->name);
}

/* Attention of llama and the experts of DeepSeek, with the names of its own code. */
static void test_deepseek_ocr2(void **state)
{
    (void)state;
    check_same("deepseek", "deepseek_ocr2", "deepseek_ocr2_text", edit_deepseek, change_deepseek,
               (const char *[]){"model.sam_model.neck.0.weight", "model.view_seperator"});
}

static void edit_ocr(json_t *config)
{
    json_t *none = json_pack("{s:b, s:i, s:i, s:i, s:n, s:n, s:s}", "use_mla", 0,
                             "qk_nope_head_dim", 0, "qk_rope_head_dim", 0, "v_head_dim", 0,
                             "kv_lora_rank", "q_lora_rank", "topk_method", "greedy");
    json_object_update(config, none);
    json_decref(none);
}

static void test_deepseek_ocr(void **state)
{
    (void)state;
    check_same("deepseek", "deepseek_vl_v2", "deepseek_v2", edit_ocr, change_deepseek,
               (const char *[]){"model.sam_model.neck.0.weight", "model.view_seperator"});
}

static void edit_ernie(json_t *config)
{
    const json_int_t ffn = json_integer_value(json_object_get(config, "moe_intermediate_size"));
    json_object_set_new(config, "moe_intermediate_size", json_pack("[I, i]", ffn, 4));
}

/* Routers are turned, and the bias of the choice has a row of images. */
static void change_ernie(moved *m, const af_stored *t, const void *user)
{
    (void)user;
    snprintf(m->name, sizeof m->name, "%s", t->name);
    if (strstr(t->name, "e_score_correction_bias")) {
        m->dim[0] = 2;
        m->bytes = 2 * t->bytes;
        m->data = m->made = calloc(1, m->bytes);
        memcpy(m->made, t->data, t->bytes);
    } else if (strstr(t->name, ".mlp.gate.weight")) {
        const float *from = t->data;
        m->dim[0] = t->dim[1];
        m->dim[1] = t->dim[0];
        m->data = m->made = calloc(1, t->bytes);
        for (int64_t r = 0; r < t->dim[0]; r++)
            for (int64_t c = 0; c < t->dim[1]; c++)
                m->made[c * t->dim[0] + r] = from[r * t->dim[1] + c];
    }
}

static void test_experts_of_images_are_left_out(void **state)
{
    (void)state;
    check_same("ernie4_5_moe", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text", edit_ernie, change_ernie,
               (const char *[]){"model.layers.1.mlp.experts.99.up_proj.weight",
                                "model.layers.1.mlp.gate.weight_1"});
}

static void test_wrong_lists(void **state)
{
    (void)state;
    static const struct {
        const char *type, *key, *list, *why;
    } cases[] = {
        {"mllama", "cross_attention_layers", "[0,1]", "leaves a layer of text"},
        {"mllama", "cross_attention_layers", "7", "a list of numbers"},
        {"mllama", "cross_attention_layers", "[\"a\"]", "a list of numbers"},
        {"mllama", "cross_attention_layers", "{}", "a list of numbers"},
        {"ernie4_5_vl_moe", "moe_intermediate_size", "[]", "a list of sizes"},
        {"ernie4_5_vl_moe", "moe_intermediate_size", "[1.5]", "a list of sizes"},
        {"ernie4_5_vl_moe", "moe_intermediate_size", "[1e300, 2]", "a list of sizes"},
        {"ernie4_5_vl_moe", "moe_num_experts", "[-1, 2]", "a list of sizes"},
        {"ernie4_5_vl_moe", "moe_num_experts", "[1, 2, 3]", "sensible length"},
        {"muse_glimmer", "layer_rope_theta", "[0]", "one entry per layer"},
        {"muse_glimmer", "layer_rope_theta", "[0, 5]", "the base of rope_parameters"},
        {"muse_glimmer", "layer_rope_theta", "3", "a list of numbers"},
        {"muse_glimmer", "output_multiplier", "0", "a positive number"},
        {"muse_glimmer", "qk_scale_factor", "\"a\"", "a number"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char json[512];
        af_error err = {0};
        af_hf_config c;
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"text_config\":{\"model_type\":"
                 "\"%s_text%s\",\"hidden_size\":16,\"intermediate_size\":12,"
                 "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                 "\"vocab_size\":32,\"%s\":%s}}",
                 cases[i].type, cases[i].type, strcmp(cases[i].type, "mllama") == 0 ? "_model" : "",
                 cases[i].key, cases[i].list);
        assert_int_equal(af_hf_config_parse(&c, json, strlen(json), "config.json", &err),
                         AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, cases[i].why), "%s", err.msg);
    }
}

/* As PEFT names them; modules of other parts are excluded by a pattern. */
static void test_names_in_memory(void **state)
{
    (void)state;
    static const struct {
        const char *whole, *layer, *head, *other;
    } cases[] = {
        {"llava", "model.language_model.", "", "model.vision_tower.encoder.layers.0.q_proj"},
        {"idefics3", "model.text_model.", "", "model.vision_model.encoder.layers.0.q_proj"},
        {"blip-2", "language_model.model.", "language_model.", "vision_model.layers.0.q_proj"},
        {"kimi_vl", "language_model.model.", "language_model.", "vision_tower.layers.0.q_proj"},
        {"ovis", "llm.model.", "llm.", "visual_tokenizer.layers.0.q_proj"},
        {"qwen2_5_omni", "thinker.model.language_model.", "thinker.", "talker.layers.0.q_proj"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char json[512], want[128];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        bool out = false, in = true;
        snprintf(json, sizeof json, "{\"model_type\":\"%s\",\"text_config\":%s}", cases[i].whole,
                 llama_text);
        CHECK_OK(af_hf_config_parse(&c, json, strlen(json), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &c, &err), err);
        snprintf(want, sizeof want, "%slayers.0.self_attn.q_proj", cases[i].layer);
        assert_string_equal(s.module[0].path, want);
        CHECK_OK(af_pattern_matches(&in, s.outside, want, true, &err), err);
        CHECK_OK(af_pattern_matches(&out, s.outside, cases[i].other, true, &err), err);
        assert_true(out && !in);
        snprintf(want, sizeof want, "%slm_head", cases[i].head);
        assert_string_equal(s.module[s.head_module].path, want);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* Text models of such folders alone have types of their own for blocks of known families. */
static void test_types_that_are_other_families(void **state)
{
    (void)state;
    static const struct {
        const char *type, *same;
        bool bias, tied;
        double theta;
    } cases[] = {
        {"qwen2_5_omni_text", "qwen2", false, true, 1e6},
        {"qwen3_vl_text", "qwen3", false, false, 5e5},
        {"glm4v_text", "glm4", true, false, 1e4},
        {"glm_ocr_text", "glm4", false, false, 1e4},
        {"paddleocr_vl_text", "llama", false, true, 5e5},
        {"hunyuan_vl_text", "hunyuan_v1_dense", false, true, 1e4},
        {"granite_docling_text", "granite", false, true, 1e4},
        {"emu3_text_model", "llama", false, false, 1e6},
        {"internlm", "llama", true, false, 1e4},
        {"PanguEmbedded", "llama", true, false, 1e4},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char json[512];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        snprintf(json, sizeof json,
                 "{\"model_type\":\"x\",\"text_config\":{\"model_type\":\"%s\",\"hidden_size\":16,"
                 "\"intermediate_size\":12,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                 "\"num_key_value_heads\":2,\"vocab_size\":32,\"head_dim\":4,"
                 "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1,1]}}}",
                 cases[i].type);
        CHECK_OK(af_hf_config_parse(&c, json, strlen(json), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &c, &err), err);
        assert_string_equal(c.model_type, cases[i].same);
        assert_string_equal(s.arch->model_type, cases[i].same);
        assert_true(c.attention_bias == cases[i].bias && c.tie_word_embeddings == cases[i].tied);
        assert_true(c.rope.theta == cases[i].theta && c.rope.type == AF_ROPE_DEFAULT);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* Multimodal models of repositories with code whose text keys are those of the whole config. */
static void test_keys_at_the_top(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more, *same, *layer, *head;
    } cases[] = {
        {"dots_ocr", "", "qwen2", "model.", ""},
        {"phi3_v", "", "phi3", "model.", ""},
        {"minicpmv", ",\"version\":2.6", "qwen2", "llm.model.", "llm."},
        {"minicpmv", ",\"version\":4.0", "llama", "llm.model.", "llm."},
        {"minicpmv", ",\"version\":4.5", "qwen3", "llm.model.", "llm."},
        {"minicpmo", ",\"version\":2.6", "qwen2", "llm.model.", "llm."},
        {"minicpmv", ",\"version\":2.0", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char json[512], want[128];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"hidden_size\":16,\"intermediate_size\":12,"
                 "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                 "\"vocab_size\":32,\"head_dim\":4,\"vision_config\":{\"hidden_size\":8}%s}",
                 cases[i].type, cases[i].more);
        CHECK_OK(af_hf_config_parse(&c, json, strlen(json), "config.json", &err), err);
        const af_status st = af_model_spec_init(&s, &c, &err);
        CHECK_MSG((st == AF_OK) == (cases[i].same != NULL), "%s%s: %s", cases[i].type,
                  cases[i].more, err.msg);
        if (st == AF_OK) {
            assert_string_equal(s.arch->model_type, cases[i].same);
            snprintf(want, sizeof want, "%slayers.0.self_attn.%s", cases[i].layer,
                     i == 1 ? "qkv_proj" : "q_proj");
            assert_string_equal(s.module[0].path, want);
            snprintf(want, sizeof want, "%slm_head", cases[i].head);
            assert_string_equal(s.module[s.head_module].path, want);
            af_model_spec_clear(&s);
        }
        af_hf_config_clear(&c);
    }
}

/* Published folders of llava leave out what LlamaConfig has, and those of 4 bits say so at the top.
 */
static void test_keys_left_out(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model_type\":\"llava_next\",\"torch_dtype\":\"float16\",\"eos_token_id\":7,"
        "\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true},"
        "\"text_config\":{\"model_type\":\"mistral\",\"vocab_size\":32064,"
        "\"intermediate_size\":14336}}";
    static const char alone[] = "{\"model_type\":\"mistral\",\"vocab_size\":32064}";
    af_error err = {0};
    af_hf_config c;
    CHECK_OK(af_hf_config_parse(&c, json, strlen(json), "config.json", &err), err);
    assert_int_equal(c.hidden_size, 4096);
    assert_int_equal(c.num_hidden_layers, 32);
    assert_int_equal(c.num_attention_heads, 32);
    assert_int_equal(c.num_key_value_heads, 8);
    assert_int_equal(c.quant.method, AF_QUANT_BNB_4BIT);
    assert_true(c.dtype == AF_DTYPE_F16 && c.eos_count == 1 && c.eos_token_id[0] == 7);
    assert_true(c.tie_open && !c.tie_word_embeddings);
    af_hf_config_clear(&c);
    assert_int_equal(af_hf_config_parse(&c, alone, strlen(alone), "config.json", &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "hidden_size is not there"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_of_many_layouts_compute_the_same),
        cmocka_unit_test(test_layers_that_see_images_are_left_out),
        cmocka_unit_test(test_adapters_of_layers_that_see_images),
        cmocka_unit_test(test_deepseek_ocr2),
        cmocka_unit_test(test_deepseek_ocr),
        cmocka_unit_test(test_keys_at_the_top),
        cmocka_unit_test(test_experts_of_images_are_left_out),
        cmocka_unit_test(test_wrong_lists),
        cmocka_unit_test(test_names_in_memory),
        cmocka_unit_test(test_types_that_are_other_families),
        cmocka_unit_test(test_keys_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
