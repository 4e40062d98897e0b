/* test_adapter_targets.c - which modules an adapter changes, and what they are called. */
#include "model_case.h"

#include "base/buf.h"
#include "format/weights/safetensors.h"
#include "model/adapter_config.h"
#include "model/model_reader.h"

#include <math.h>
#include <unistd.h>

static void test_misspelt_names_of_a_fresh_adapter_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *target[2], *saved[1];
        int saved_count;
        const char *says;
    } cases[] = {
        {{"q_proj", "v_porj"}, {NULL}, 0, "v_porj"},
        {{"q_proj", "v_proj"}, {"lm_haed"}, 1, "lm_haed"},
    };
    model_case c;
    case_open_base(&c, "llama3_tiny", false);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_adapter *a = NULL;
        const af_adapter_config config = {.r = 4,
                                          .alpha = 8,
                                          .target = cases[i].target,
                                          .target_count = 2,
                                          .modules_to_save = cases[i].saved,
                                          .save_count = cases[i].saved_count};
        CHECK_MSG(af_adapter_outline(&a, &config, af_loader_spec(c.loader), &err) != AF_OK,
                  "'%s' passes", cases[i].says);
        CHECK_MSG(strstr(err.msg, cases[i].says), "'%s' does not name '%s'", err.msg,
                  cases[i].says);
    }
    case_close(&c);
}

static void test_what_is_not_an_adapter_is_said(void **state)
{
    (void)state;
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256], inside[256];
    af_error err = {0};
    bool untie;
    assert_non_null(mkdtemp(dir));
    snprintf(inside, sizeof inside, "%s/checkpoint-5", dir);
    snprintf(path, sizeof path, "%s/checkpoint-5/adapter_config.json", dir);
    CHECK_OK(af_dir_make(inside, &err), err);
    CHECK_OK(af_file_write(path, "{}", 2, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "inside has one") && strstr(err.msg, inside), "says '%s'", err.msg);
    assert_int_equal(af_adapter_unties(&untie, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "adapter_config.json nor a GGUF file"), "says '%s'", err.msg);
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK_OK(af_file_write(path, "{}", 2, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "is a model, not an adapter"), "says '%s'", err.msg);
    CHECK_OK(af_path_remove(dir, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "no such folder"), "says '%s'", err.msg);
}

static void turn(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

/* An adapter as mlx-lm writes it. */
static void write_mlx(const af_adapter *a, const char *dir)
{
    char path[256], text[256], name[600];
    af_error err = {0};
    af_safetensors_writer *w;
    const af_model_spec *s = a->spec;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    snprintf(text, sizeof text,
             "{\"fine_tune_type\": \"%s\", \"num_layers\": 16, \"model\": \"org/base\", "
             "\"lora_parameters\": {\"rank\": %d, \"scale\": %.17g, \"dropout\": 0.25}}",
             a->config.dora ? "dora" : "lora", a->config.r, a->config.alpha / a->config.r);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    snprintf(path, sizeof path, "%s/adapters.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->modules; i++) {
            const af_module_spec *m = &s->module[i];
            const af_adapter_module *am = &a->module[i];
            const struct {
                const char *tail;
                const float *data;
                int64_t rows, cols;
            } parts[] = {{"lora_a", am->a, am->rank, m->in},
                         {"lora_b", am->b, m->out, am->rank},
                         {"m", am->magnitude, 1, m->out}};
            for (int k = 0; k < 3 && am->rank; k++) {
                const uint64_t n = (uint64_t)(parts[k].rows * parts[k].cols);
                float *turned = parts[k].data ? malloc(n * sizeof *turned) : NULL;
                snprintf(name, sizeof name, "%s.%s", m->path, parts[k].tail);
                if (turned && pass) {
                    turn(turned, parts[k].data, parts[k].rows, parts[k].cols);
                    CHECK_OK(af_safetensors_writer_data(w, turned, n * sizeof *turned, &err), err);
                } else if (turned) {
                    const int64_t dim[] = {parts[k].cols, parts[k].rows};
                    CHECK_OK(
                        af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, k == 2 ? 1 : 2, &err),
                        err);
                }
                free(turned);
            }
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

static void test_folders_of_mlx_lm_are_read(void **state)
{
    static const char *const cases[][2] = {{"lora", "llama3_tiny"}, {"dora", "qwen2_tiny"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[] = "/tmp/af_adapter_XXXXXX", from[4096], sub[128];
        af_error err = {0};
        model_case c;
        af_adapter *a = NULL, *b = NULL;
        assert_non_null(mkdtemp(dir));
        snprintf(sub, sizeof sub, "models/adapters/%s", cases[i][0]);
        assert_true(case_dir(from, sizeof from, sub));
        case_open_base(&c, cases[i][1], false);
        const af_model_spec *s = af_loader_spec(c.loader);
        CHECK_OK(af_adapter_read(&a, s, from, &err), err);
        write_mlx(a, dir);
        CHECK_OK(af_adapter_read(&b, s, dir, &err), err);
        assert_true(!b->config.mlx && b->config.dora == a->config.dora);
        assert_true(b->config.dropout == 0.25);
        assert_string_equal(b->config.base_model, "org/base");
        for (int m = 0; m < s->modules; m++) {
            const af_adapter_module *x = &a->module[m], *y = &b->module[m];
            const uint64_t rank = (uint64_t)x->rank, out = (uint64_t)s->module[m].out;
            assert_int_equal(x->rank, y->rank);
            assert_true(fabs((double)(x->scale - y->scale)) <= 1e-6);
            if (!rank)
                continue;
            assert_memory_equal(x->a, y->a, rank * (uint64_t)s->module[m].in * sizeof(float));
            assert_memory_equal(x->b, y->b, rank * out * sizeof(float));
            if (x->magnitude)
                assert_memory_equal(x->magnitude, y->magnitude, out * sizeof(float));
        }
        af_adapter_free(b);
        b = NULL;
        snprintf(sub, sizeof sub, "%s/adapter_config.json", dir);
        static const char other[] = "{\"lora_parameters\": {\"rank\": 5}}";
        CHECK_OK(af_file_write(sub, other, sizeof other - 1, &err), err);
        assert_int_equal(af_adapter_read(&b, s, dir, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, "tensor 'model.layers."), "not the stored name: '%s'", err.msg);
        af_adapter_free(a);
        case_close(&c);
        CHECK_OK(af_path_remove(dir, &err), err);
    }
}

/* mlx-lm computes a tied head with the adapter of the embedding: A and B turned. */
static void test_mlx_lm_adapts_the_tied_head_with_the_embedding(void **state)
{
    char dir[] = "/tmp/af_adapter_XXXXXX", from[4096], base[4096];
    af_error err = {0};
    model_case c;
    af_adapter *a = NULL, *b = NULL;
    af_model_reader *in = NULL;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_true(case_dir(from, sizeof from, "models/adapters/embed"));
    assert_true(case_dir(base, sizeof base, "models/gemma2_tiny"));
    case_open_base(&c, "gemma2_tiny", false);
    const af_model_spec *s = af_loader_spec(c.loader);
    CHECK_OK(af_adapter_read(&a, s, from, &err), err);
    const af_adapter_module *e = &a->module[s->embed_module];
    assert_true(s->tied && e->rank && !a->module[s->head_module].rank);
    write_mlx(a, dir);
    CHECK_OK(af_adapter_read(&b, s, dir, &err), err);
    const af_adapter_module *h = &b->module[s->head_module];
    assert_int_equal(h->rank, e->rank);
    assert_true(h->scale == b->module[s->embed_module].scale);
    const int64_t rank = e->rank, vocab = s->module[s->embed_module].in;
    for (int64_t i = 0; i < rank * vocab; i++)
        assert_true(h->b[i] == e->a[i % rank * vocab + i / rank]);
    for (int64_t i = 0, n = s->module[s->embed_module].out; i < rank * n; i++)
        assert_true(h->a[i] == e->b[i % n * rank + i / n]);
    assert_int_equal(af_model_reader_open_merged(&in, base, dir, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "which is the head"), "says '%s'", err.msg);
    af_adapter_free(a);
    af_adapter_free(b);
    case_close(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_wrong_configs_of_mlx_lm(void **state)
{
    static const char *const cases[][2] = {
        {"{\"fine_tune_type\": \"full\", \"lora_parameters\": {}}", "fine_tune_type"},
        {"{\"lora_parameters\": {\"rank\": 0}}", "rank"},
        {"{\"lora_parameters\": {\"scale\": \"x\"}}", "scale"},
        {"{\"lora_parameters\": {\"dropout\": 1}}", "dropout"},
        {"{\"lora_parameters\": []}", "peft_type"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_arena arena = {0};
        af_adapter_config c;
        assert_int_equal(
            af_adapter_config_parse(&c, &arena, cases[i][0], strlen(cases[i][0]), "c.json", &err),
            AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' does not name '%s'", err.msg, cases[i][1]);
        af_arena_clear(&arena);
    }
}

/* In llama3_tiny with an untied head, exactly the modules that `want` selects have a rank. */
static void check_targets(const af_adapter_config *config, bool (*want)(const char *path))
{
    model_case c;
    af_error err = {0};
    af_adapter *a = NULL;
    case_open_base(&c, "llama3_tiny", true);
    const af_model_spec *s = af_loader_spec(c.loader);
    CHECK_OK(af_adapter_outline(&a, config, s, &err), err);
    for (int i = 0; i < s->modules; i++) {
        const char *path = s->module[i].path;
        CHECK_MSG((a->module[i].rank == config->r) == want(path), "%s has rank %d", path,
                  a->module[i].rank);
    }
    af_adapter_free(a);
    case_close(&c);
}

static bool is_head_or_q_of_layer_1(const char *path)
{
    return !strcmp(path, "lm_head") || !strcmp(path, "model.layers.1.self_attn.q_proj");
}

/* layers_to_transform does not apply to a module that is named in full. */
static void test_a_head_with_selected_layers_is_a_target(void **state)
{
    (void)state;
    static const char *const target[] = {"q_proj", "lm_head"};
    static const int64_t layers[] = {1};
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 2,
                                       .layers = layers,
                                       .layer_count = 1},
                  is_head_or_q_of_layer_1);
}

static bool is_q_or_later_up(const char *path)
{
    return strstr(path, ".q_proj") ||
           (strstr(path, ".up_proj") && strcmp(path, "model.layers.0.mlp.up_proj") != 0);
}

/* What modules_to_save names is trained whole and not adapted, as in PEFT. */
static void test_modules_to_save_are_not_targets(void **state)
{
    (void)state;
    static const char *const target[] = {"q_proj", "up_proj", "lm_head"};
    static const char *const saved[] = {"lm_head", "layers.0.mlp.up_proj"};
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 3,
                                       .exclude_regex = "q_proj", /* no whole path: as PEFT */
                                       .modules_to_save = saved,
                                       .save_count = 2},
                  is_q_or_later_up);
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 3,
                                       .exclude_regex = "model", /* where a path begins */
                                       .modules_to_save = saved,
                                       .save_count = 2},
                  is_q_or_later_up);
    assert_true(af_path_ends_in("lm_head", saved, 2));
    assert_false(af_path_ends_in("lm_head", (const char *const[]){""}, 1));
    const char *const whole[] = {"mlp"};
    assert_true(af_path_ends_in("model.layers.0.mlp.up_proj", whole, 1));
    assert_false(af_path_ends_in("model.layers.0.mlps.up_proj", whole, 1));
    assert_false(af_path_ends_in("model.layers.0.x.mlp_up", whole, 1));
}

/* layers_pattern is the name of the model's list, whatever its family calls it. */
static void test_layers_are_in_the_list_of_the_family(void **state)
{
    (void)state;
    static const struct {
        const char *type, *list, *other, *target;
    } cases[] = {{"gpt2", "h", "layers", "c_attn"}, {"llama", "layers", "h", "q_proj"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config config;
        af_model_spec s;
        bool target[64];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 32, \"hidden_size\": 16, "
                 "\"intermediate_size\": 12, \"num_hidden_layers\": 2, "
                 "\"num_attention_heads\": 4}",
                 cases[i].type);
        CHECK_OK(af_hf_config_parse(&config, text, strlen(text), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &config, &err), err);
        assert_true(s.modules <= (int)AF_LEN(target));
        af_adapter_config c = {.r = 4,
                               .target = &cases[i].target,
                               .target_count = 1,
                               .layers = (int64_t[]){1},
                               .layer_count = 1,
                               .layer_list = &cases[i].list,
                               .layer_lists = 1};
        CHECK_OK(af_adapter_targets(&c, &s, target, &err), err);
        c.layer_list = (const char *const[]){cases[i].other, ""}; /* empty: any list, as in PEFT */
        c.layer_lists = 2;
        CHECK_OK(af_adapter_targets(&c, &s, target, &err), err);
        c.layer_lists = 1;
        assert_int_equal(af_adapter_targets(&c, &s, target, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, "layers_pattern is"), "says '%s'", err.msg);
        af_model_spec_clear(&s);
        af_hf_config_clear(&config);
    }
}

/* What PEFT calls embedding and head in models that have other names for them. */
static void test_tables_of_older_families(void **state)
{
    (void)state;
    static const struct {
        const char *type, *embed, *head;
    } cases[] = {{"gpt_neox", "gpt_neox.embed_in", "lm_head"},
                 {"falcon", "transformer.word_embeddings", "lm_head"},
                 {"gpt2", "transformer.wte", "lm_head"},
                 {"bloom", "transformer.word_embeddings", "lm_head"},
                 {"mpt", "transformer.wte", "lm_head"},
                 {"opt", "model.decoder.embed_tokens", "lm_head"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512], name[AF_ADAPTER_NAME_BYTES], want[AF_ADAPTER_NAME_BYTES];
        af_error err = {0};
        af_hf_config config;
        af_model_spec s;
        const char *last = strrchr(cases[i].embed, '.') + 1;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 32, \"hidden_size\": 16, "
                 "\"intermediate_size\": 12, \"num_hidden_layers\": 1, "
                 "\"num_attention_heads\": 4, \"tie_word_embeddings\": false}",
                 cases[i].type);
        CHECK_OK(af_hf_config_parse(&config, text, strlen(text), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &config, &err), err);
        assert_string_equal(s.module[s.embed_module].path, cases[i].embed);
        assert_string_equal(s.module[s.head_module].path, cases[i].head);
        const af_adapter a = {.spec = &s};
        af_adapter_tokens_name(&a, AF_TOKENS_EMBED, name);
        snprintf(want, sizeof want, "base_model.model.%s.token_adapter.trainable_tokens_delta",
                 cases[i].embed);
        assert_string_equal(name, want);
        af_adapter_saved_name(&s, &s.tensor[s.head], name);
        assert_string_equal(name, "base_model.model.lm_head.weight");
        assert_true(af_path_is_table(last, false) && !af_path_is_table(last, true));
        assert_true(af_adapter_config_unties(
            &(af_adapter_config){.modules_to_save = &last, .save_count = 1}));
        af_model_spec_clear(&s);
        af_hf_config_clear(&config);
    }
    assert_false(af_path_is_table("model.embed", false));
    assert_false(af_path_is_table("c_attn", false) || af_path_is_table("c_attn", true));
}

/* The config of a golden as the text part of a multimodal model. */
static void nested_spec(af_hf_config *config, af_model_spec *spec, const char *golden)
{
    af_error err = {0};
    char path[4096], *text;
    uint64_t size;
    af_buf whole = {0};
    snprintf(path, sizeof path, "%s/models/%s/config.json", golden_dir(), golden);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    af_buf_printf(&whole, "{\"model_type\": \"gemma3\", \"text_config\": %s}", text);
    CHECK_OK(af_hf_config_parse(config, whole.data, whole.len, path, &err), err);
    CHECK_OK(af_model_spec_init(spec, config, &err), err);
    af_buf_clear(&whole);
    free(text);
}

/* transformers has such a model's text part in "model.language_model", older versions in
 * "language_model.model", and it may have been trained alone. */
static void test_text_parts_of_larger_models_have_their_names(void **state)
{
    (void)state;
    static const char *const stored[] = {
        "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.language_model.norm.weight",
        "base_model.model.model.language_model.embed_tokens.lora_embedding_B",
    };
    static const char *const targets[] = {"q_proj", "embed_tokens"}, *const saved[] = {"norm"};
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256];
    model_case c;
    af_hf_config config;
    af_model_spec spec;
    af_error err = {0};
    af_adapter *a, *back;
    af_weights *w;
    assert_non_null(mkdtemp(dir));
    case_open_base(&c, "gemma3_text", false);
    nested_spec(&config, &spec, "gemma3_text");
    const af_adapter_config want = {.r = 2,
                                    .alpha = 4,
                                    .target = targets,
                                    .target_count = 2,
                                    .modules_to_save = saved,
                                    .save_count = 1};
    for (int alone = 0; alone < 2; alone++) {
        const af_model_spec *s = alone ? af_loader_spec(c.loader) : &spec;
        CHECK_OK(af_adapter_new(&a, &want, s, c.loader, 5, &err), err);
        CHECK_OK(af_adapter_write(a, dir, &err), err);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
        CHECK_OK(af_weights_open(&w, path, &err), err);
        for (size_t i = 0; i < AF_LEN(stored); i++)
            CHECK_MSG((af_weights_find(w, stored[i]) != NULL) != alone, "%s", stored[i]);
        af_weights_close(w);
        for (int k = 0; k < 2; k++) { /* a GGUF file has the text part alone */
            CHECK_OK(af_adapter_read(&back, k ? af_loader_spec(c.loader) : &spec, dir, &err), err);
            for (int i = 0; i < spec.modules; i++)
                if (a->module[i].rank)
                    assert_memory_equal(a->module[i].a, back->module[i].a,
                                        (size_t)(2 * spec.module[i].in) * sizeof(float));
            af_adapter_free(back);
        }
        af_adapter_free(a);
    }
    const af_adapter_config regex = {.r = 2, .target_regex = "model\\.language_model\\..*q_proj"};
    CHECK_OK(af_adapter_outline(&a, &regex, &spec, &err), err);
    af_adapter_free(a);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
    case_close(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

/* Copies the tensors of an adapter, `from` in their names replaced, and one more of zeros. */
static void rewrite(const char *dir, const char *from, const char *to, const char *more,
                    const int64_t dim[2])
{
    char path[256], name[512];
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        const char *at = strstr(t->name, from);
        snprintf(name, sizeof name, "%.*s%s%s", at ? (int)(at - t->name) : 0, t->name, at ? to : "",
                 at ? at + strlen(from) : t->name);
        CHECK_OK(af_safetensors_writer_add(out, name, t->dtype, t->dim, t->ndim, &err), err);
    }
    if (more)
        CHECK_OK(af_safetensors_writer_add(out, more, AF_DTYPE_F32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < af_weights_count(w); i++)
        CHECK_OK(af_safetensors_writer_data(out, af_weights_at(w, i)->data,
                                            af_weights_at(w, i)->bytes, &err),
                 err);
    float *zeros = more ? calloc((size_t)(dim[0] * dim[1]), sizeof *zeros) : NULL;
    if (more)
        CHECK_OK(af_safetensors_writer_data(out, zeros, (uint64_t)(dim[0] * dim[1]) * sizeof *zeros,
                                            &err),
                 err);
    free(zeros);
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

/* Names of other versions, and tables that PEFT stores though they are not trained. */
static void test_other_names_and_frozen_tables_are_read(void **state)
{
    (void)state;
    static const char *const targets[] = {"q_proj"};
    static const char *const inner[] = {"model.language_model.", "language_model.model."};
    char dir[] = "/tmp/af_adapter_XXXXXX";
    model_case c;
    af_error err = {0};
    af_adapter *a, *back;
    assert_non_null(mkdtemp(dir));
    case_open_base(&c, "gemma3_text", false);
    const af_model_spec *s = af_loader_spec(c.loader);
    const af_adapter_config want = {.r = 2, .alpha = 4, .target = targets, .target_count = 1};
    for (int k = 0; k < 3; k++) {
        CHECK_OK(af_adapter_new(&a, &want, s, c.loader, 5, &err), err);
        CHECK_OK(af_adapter_write(a, dir, &err), err);
        if (k < 2)
            rewrite(dir, "base_model.model.model.",
                    k ? "base_model.model.language_model.model."
                      : "base_model.model.model.language_model.",
                    NULL, NULL);
        else
            rewrite(dir, "none", "", "base_model.model.model.embed_tokens.weight",
                    (int64_t[]){s->vocab, s->width});
        if (af_adapter_read(&back, s, dir, &err) != AF_OK)
            fail_msg("%s: %s", k < 2 ? inner[k] : "embedding", err.msg);
        for (int i = 0; i < s->modules; i++)
            if (a->module[i].rank)
                assert_memory_equal(a->module[i].a, back->module[i].a,
                                    (size_t)(2 * s->module[i].in) * sizeof(float));
        af_adapter_free(back);
        af_adapter_free(a);
        CHECK_OK(af_path_remove(dir, &err), err);
    }
    case_close(&c);
}

/* Baichuan 2: rows of the head are divided by their lengths. */
static void test_a_normed_head_takes_no_adapter(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"baichuan\", \"vocab_size\": 32, \"hidden_size\": 16, "
        "\"z_loss_weight\": 0,"
        " \"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 4}";
    static const char *const head[] = {"W_pack", "lm_head"};
    static const int64_t row = 3;
    const af_adapter_config cases[] = {{.r = 2, .alpha = 4, .target = head, .target_count = 2},
                                       {.r = 2,
                                        .alpha = 4,
                                        .target = head,
                                        .target_count = 1,
                                        .tokens[AF_TOKENS_HEAD] = {.index = &row, .count = 1}},
                                       {.r = 2, .alpha = 4, .target = head, .target_count = 1}};
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_adapter *a = NULL;
        const af_status st = af_adapter_outline(&a, &cases[i], &s, &err);
        assert_int_equal(st == AF_OK, i == 2);
        CHECK_MSG(i == 2 || strstr(err.msg, "divided by their lengths"), "%s", err.msg);
        af_adapter_free(a);
    }
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

/* Muse Glimmer: PEFT would add an adapter's output after the norm that the embedding ends with. */
static void test_a_normed_embedding_takes_no_adapter(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"muse_glimmer_text\", \"vocab_size\": 32, \"hidden_size\": 16, "
        "\"head_dim\": 4, \"intermediate_size\": 12, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4}";
    static const char *const names[] = {"q_proj", "embed_tokens"};
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    for (int n = 1; n <= 2; n++) {
        af_adapter *a = NULL;
        const af_adapter_config with = {.r = 2, .alpha = 4, .target = names, .target_count = n};
        assert_int_equal(af_adapter_outline(&a, &with, &s, &err) == AF_OK, n == 1);
        CHECK_MSG(n == 1 || strstr(err.msg, "divided by their lengths"), "%s", err.msg);
        af_adapter_free(a);
    }
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misspelt_names_of_a_fresh_adapter_are_refused),
        cmocka_unit_test(test_what_is_not_an_adapter_is_said),
        cmocka_unit_test(test_folders_of_mlx_lm_are_read),
        cmocka_unit_test(test_mlx_lm_adapts_the_tied_head_with_the_embedding),
        cmocka_unit_test(test_wrong_configs_of_mlx_lm),
        cmocka_unit_test(test_a_head_with_selected_layers_is_a_target),
        cmocka_unit_test(test_layers_are_in_the_list_of_the_family),
        cmocka_unit_test(test_tables_of_older_families),
        cmocka_unit_test(test_modules_to_save_are_not_targets),
        cmocka_unit_test(test_text_parts_of_larger_models_have_their_names),
        cmocka_unit_test(test_other_names_and_frozen_tables_are_read),
        cmocka_unit_test(test_a_normed_head_takes_no_adapter),
        cmocka_unit_test(test_a_normed_embedding_takes_no_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
