/* test_adapter.c - PEFT adapters: logits and gradients as PEFT computes them, folders written and
 * read again, fresh adapters, mixtures, and configs that are refused. */
#include "model_case.h"

#include "afinar/model.h"
#include "base/buf.h"
#include "model/adapter_config.h"
#include "worse.h"

#include <jansson.h>
#include <unistd.h>

static const char *const names[] = {"lora",  "rules",      "dora",      "saved",     "layers",
                                    "fused", "tied_embed", "tied_head", "head",      "embed",
                                    "bias",  "head_dora",  "rows",      "tied_rows", "base_bias"};

/* A base with an adapter whose tensors are trained. */
typedef struct trained {
    model_case c;
    char dir[4000], base[128];
    af_weights *golden;
} trained;

static void build(model_case *c, af_adapter *a, bool train, int64_t n)
{
    af_error err = {0};
    c->N = n;
    c->S = 1;
    CHECK_OK(af_graph_new(&c->graph, &err), err);
    af_graph_set_rows(c->graph, n);
    const af_leaves_opts lo = {
        .adapter = a, .train_adapter = train, .dtype = af_loader_dtypes(c->loader)};
    CHECK_OK(af_model_leaves_init(&c->leaves, c->graph, af_loader_spec(c->loader), &lo, &err), err);
    CHECK_OK(af_loader_bind(c->loader, &c->leaves, true, &err), err);
    c->in = af_batch_inputs_new(c->graph, n, 1);
    c->labels = af_graph_input(c->graph, "labels", AF_DTYPE_I32, 1, &n);
    c->scale = af_graph_input(c->graph, "loss_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    af_tensor *h = af_model_forward(&c->leaves, &c->in, NULL);
    c->logits = af_model_logits(&c->leaves, h, NULL);
    af_graph_output(c->graph, c->logits);
    c->loss = af_model_loss(&c->leaves, h, c->labels, c->scale, 0, &c->rows);
    af_graph_output(c->graph, c->loss);
    af_graph_output(c->graph, c->rows);
    if (train)
        af_graph_backward(c->graph, c->loss);
    CHECK_OK(af_graph_prepare(c->graph, c->device, &err), err);
    CHECK_OK(af_loader_write(c->loader, &c->leaves, &err), err);
    if (a)
        CHECK_OK(af_adapter_upload(a, &c->leaves, &err), err);
}

static void trained_open(trained *t, const char *name)
{
    char path[4200], sub[128];
    af_error err = {0};
    snprintf(sub, sizeof sub, "models/adapters/%s", name);
    CHECK_MSG(case_dir(t->dir, sizeof t->dir, sub), "no %s", sub);
    snprintf(path, sizeof path, "%s/base", t->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%127s", t->base), 1);
    fclose(f);
    bool untie;
    CHECK_OK(af_adapter_unties(&untie, t->dir, &err), err);
    case_open_base(&t->c, t->base, untie);
    snprintf(path, sizeof path, "%s/golden.safetensors", t->dir);
    CHECK_OK(af_weights_open(&t->golden, path, &err), err);
    CHECK_OK(af_adapter_read(&t->c.adapter, af_loader_spec(t->c.loader), t->dir, &err), err);
    build(&t->c, t->c.adapter, true, case_golden(t->golden, "ids")->dim[0]);
}

static void trained_close(trained *t)
{
    af_weights_close(t->golden);
    case_close(&t->c);
}

static void run_backward(trained *t)
{
    af_error err = {0};
    model_case *c = &t->c;
    const int32_t *ids = case_golden(t->golden, "ids")->data;
    const int32_t *labels = case_golden(t->golden, "labels")->data;
    int32_t shifted[64], positions[64], bounds[8] = {0};
    const int64_t n = c->N;
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) {
        positions[i] = (int32_t)i;
        shifted[i] = i + 1 < n ? labels[i + 1] : -100;
        counted += shifted[i] != -100;
    }
    for (int i = 1; i < 8; i++)
        bounds[i] = (int32_t)n;
    const float scale = 1.0f / (float)counted;
    const uint64_t bytes = (uint64_t)n * sizeof *ids;
    CHECK_OK(af_model_write_rope(&c->leaves, n, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.ids, ids, bytes, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.positions, positions, bytes, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->labels, shifted, bytes, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.bounds, bounds, af_tensor_bytes(c->in.bounds), &err),
             err);
    CHECK_OK(af_tensor_write(c->graph, c->scale, &scale, sizeof scale, &err), err);
    CHECK_OK(af_graph_run(c->graph, AF_RUN_GRAD, &err), err);
}

static double off(const float *x, const af_stored *want)
{
    double d = 0;
    for (int64_t i = 0; i < af_weight_count(want); i++)
        d = worse(d, fabs(x[i] - ((const float *)want->data)[i]));
    return d;
}

static const af_stored *grad_of(const trained *t, const char *path, const char *tail)
{
    char key[600];
    snprintf(key, sizeof key, "grad.base_model.model.%s%s", path, tail);
    return case_golden(t->golden, key);
}

static double worst_gradient(trained *t)
{
    model_case *c = &t->c;
    const af_model_spec *s = af_loader_spec(c->loader);
    double worst = 0;
    for (int i = 0; i < s->modules; i++) {
        const af_adapter_leaf *l = &c->leaves.module[i];
        const char *path = s->module[i].path;
        if (!c->adapter->module[i].rank)
            continue;
        float *a = case_read(c, af_tensor_gradient(l->a)),
              *b = case_read(c, af_tensor_gradient(l->b));
        const bool embed = s->module[i].group == AF_GROUP_EMBED;
        const char *tail_a = embed ? ".lora_embedding_A" : ".lora_A.weight";
        const char *tail_b = embed ? ".lora_embedding_B" : ".lora_B.weight";
        worst = worse(worst, off(a + l->a_row * s->module[i].in, grad_of(t, path, tail_a)));
        worst = worse(worst, off(b + l->b_from, grad_of(t, path, tail_b)));
        if (l->bias) {
            float *m = case_read(c, af_tensor_gradient(l->bias));
            worst = worse(worst, off(m, grad_of(t, path, ".lora_B.bias")));
            free(m);
        }
        if (l->magnitude) {
            float *m = case_read(c, af_tensor_gradient(l->magnitude));
            worst = worse(worst, off(m, grad_of(t, path, ".lora_magnitude_vector")));
            free(m);
        }
        free(a);
        free(b);
    }
    for (int i = 0; i < s->tensors; i++)
        if (c->adapter->saved[i]) {
            float *x = case_read(c, af_tensor_gradient(c->leaves.tensor[i]));
            char name[AF_ADAPTER_NAME_BYTES];
            af_adapter_whole_name(c->adapter, i, name);
            worst = worse(worst, off(x, grad_of(t, name + strlen(AF_ADAPTER_PREFIX), "")));
            free(x);
        }
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (c->leaves.tokens[k]) {
            float *x = case_read(c, af_tensor_gradient(c->leaves.tokens[k]));
            const char *path = k ? "lm_head" : "model.embed_tokens";
            const af_stored *want = grad_of(t, path, ".token_adapter.trainable_tokens_delta");
            assert_int_equal(want->dim[0], c->adapter->tokens[k].count);
            worst = worse(worst, off(x, want));
            for (int64_t i = af_weight_count(want); i < af_tensor_count(c->leaves.tokens[k]); i++)
                assert_true(x[i] == 0); /* rows that only fill up */
            free(x);
        }
    return worst;
}

static void test_logits_and_gradients_are_those_of_peft(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(names); i++) {
        trained t;
        trained_open(&t, names[i]);
        run_backward(&t);
        float *logits = case_read(&t.c, t.c.logits), *loss = case_read(&t.c, t.c.loss);
        const double d = off(logits, case_golden(t.golden, "logits")), g = worst_gradient(&t);
        print_message("%-8s logits %.1e, loss %.1e, gradients %.1e\n", names[i], d,
                      off(loss, case_golden(t.golden, "loss")), g);
        CHECK_MSG(d < 1e-5, "%s: logits differ by %g", names[i], d);
        CHECK_MSG(g < 5e-6, "%s: a gradient differs by %g", names[i], g);
        free(logits);
        free(loss);
        trained_close(&t);
    }
}

/* As `afinar logits` opens them: a base and its adapter by their folders. */
static void test_opened_models_compute_as_peft(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(names); i++) {
        trained t;
        char base[4200];
        af_error err = {0};
        af_model *m;
        trained_open(&t, names[i]);
        snprintf(base, sizeof base, "%s/../../%s", t.dir, t.base);
        const af_model_opts o = {.device = "cpu",
                                 .compute = AF_COMPUTE_F32,
                                 .adapter = {t.dir},
                                 .adapter_weight = {1},
                                 .adapters = 1};
        CHECK_OK(af_model_open(&m, base, &o, &err), err);
        const af_stored *want = case_golden(t.golden, "logits");
        float *got = calloc((size_t)af_weight_count(want), sizeof *got);
        assert_non_null(got);
        CHECK_OK(af_model_logits_of(m, case_golden(t.golden, "ids")->data, t.c.N, got, &err), err);
        CHECK_MSG(off(got, want) < 1e-5, "%s: logits differ by %g", names[i], off(got, want));
        free(got);
        af_model_close(m);
        trained_close(&t);
    }
}

/* Downloaded from the graph, written, read: the same values; and PEFT's own keys in the config. */
static void test_folders_survive_a_round_trip(void **state)
{
    (void)state;
    char dir[] = "/tmp/af_adapter_XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < AF_LEN(names); i++) {
        trained t;
        af_error err = {0};
        af_adapter *back = NULL;
        trained_open(&t, names[i]);
        af_adapter *a = t.c.adapter;
        for (int k = 0; k < a->spec->modules; k++)
            if (a->module[k].rank)
                a->module[k].a[0] = -77; /* must come back from the graph */
        CHECK_OK(af_adapter_download(a, &t.c.leaves, &err), err);
        CHECK_OK(af_adapter_write(a, dir, &err), err);
        CHECK_OK(af_adapter_read(&back, a->spec, dir, &err), err);
        for (int k = 0; k < a->spec->modules; k++) {
            const af_module_spec *m = &a->spec->module[k];
            const af_adapter_module *x = &a->module[k], *y = &back->module[k];
            assert_int_equal(x->rank, y->rank);
            if (!x->rank)
                continue;
            assert_true(x->scale == y->scale && x->a[0] != -77);
            assert_memory_equal(x->a, y->a, (size_t)(x->rank * m->in) * sizeof(float));
            assert_memory_equal(x->b, y->b, (size_t)(x->rank * m->out) * sizeof(float));
        }
        af_adapter_free(back);
        trained_close(&t);
    }
    af_error err = {0};
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_config_has_every_key_of_peft_sorted(void **state)
{
    (void)state;
    static const char *const keys[] = {"alora_invocation_tokens",
                                       "alpha_pattern",
                                       "arrow_config",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "corda_config",
                                       "ensure_weight_tying",
                                       "eva_config",
                                       "exclude_modules",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "layer_replication",
                                       "layers_pattern",
                                       "layers_to_transform",
                                       "loftq_config",
                                       "lora_alpha",
                                       "lora_bias",
                                       "lora_dropout",
                                       "megatron_config",
                                       "megatron_core",
                                       "modules_to_save",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "rank_pattern",
                                       "revision",
                                       "target_modules",
                                       "target_parameters",
                                       "task_type",
                                       "trainable_token_indices",
                                       "use_bdlora",
                                       "use_dora",
                                       "use_qalora",
                                       "use_rslora"};
    const char *target[] = {"q_proj", "v_proj"};
    const af_adapter_config c = {
        .r = 16, .alpha = 32, .dropout = 0.05, .target = target, .target_count = 2};
    char *text = af_adapter_config_text(&c);
    json_error_t je;
    json_t *o = json_loads(text, 0, &je);
    assert_non_null(o);
    assert_int_equal(json_object_size(o), AF_LEN(keys));
    const char *at = text;
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\n  \"%s\": ", keys[i]);
        at = strstr(at, quoted);
        CHECK_MSG(at, "key '%s' is missing or out of order", keys[i]);
    }
    assert_non_null(strstr(text, "\"lora_dropout\": 0.05,"));
    assert_non_null(strstr(text, "\"lora_alpha\": 32,"));
    json_decref(o);
    free(text);
}

/* A base of the hub with a revision is two keys in PEFT's file, and one name here. */
static void test_config_revision(void **state)
{
    (void)state;
    static const struct {
        const char *base, *name, *revision;
    } cases[] = {{"org/name@v1.0", "\"org/name\"", "\"v1.0\""},
                 {"org/name", "\"org/name\"", "null"},
                 {"./folder@2", "\"./folder@2\"", "null"},
                 {NULL, "null", "null"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_adapter_config c = {.r = 1, .alpha = 1, .base_model = cases[i].base}, back;
        af_arena arena = {0};
        af_error err = {0};
        char *text = af_adapter_config_text(&c), line[2][96];
        snprintf(line[0], sizeof line[0], "\"base_model_name_or_path\": %s,", cases[i].name);
        snprintf(line[1], sizeof line[1], "\"revision\": %s,", cases[i].revision);
        CHECK_MSG(strstr(text, line[0]) && strstr(text, line[1]), "case %zu: %s", i, text);
        CHECK_OK(af_adapter_config_parse(&back, &arena, text, strlen(text), "config", &err), err);
        if (cases[i].base)
            assert_string_equal(back.base_model, cases[i].base);
        else
            assert_null(back.base_model);
        af_arena_clear(&arena);
        free(text);
    }
}

/* A folder of that name is the base, as it is. */
static void test_a_base_with_an_at_sign_in_its_name(void **state)
{
    (void)state;
    static const char base[] = "org/name@v1.0";
    char dir[] = "/tmp/af_adapter_XXXXXX", before[4096];
    const af_adapter_config c = {.r = 1, .alpha = 1, .base_model = base};
    af_error err = {0};
    assert_non_null(getcwd(before, sizeof before));
    assert_true(mkdtemp(dir) && chdir(dir) == 0);
    CHECK_OK(af_dir_make(base, &err), err);
    char *text = af_adapter_config_text(&c);
    assert_int_equal(chdir(before), 0);
    CHECK_MSG(strstr(text, "\"org/name@v1.0\"") && strstr(text, "\"revision\": null"), "%s", text);
    free(text);
    CHECK_OK(af_path_remove(dir, &err), err);
}

/* B = 0: not one bit changes. */
static void test_a_fresh_adapter_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *base;
        bool dora;
    } cases[] = {{"llama3_tiny", false}, {"qwen2_tiny", false}, {"phi3_longrope", false}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const int32_t ids[] = {3, 9, 4, 11, 30, 7};
        const int64_t n = AF_LEN(ids);
        float *y[2];
        for (int with = 0; with < 2; with++) {
            model_case c;
            af_error err = {0};
            case_open_base(&c, cases[i].base, false);
            const af_adapter_config config = {
                .r = 4, .alpha = 8, .target_regex = "all-linear", .dora = cases[i].dora};
            if (with)
                CHECK_OK(af_adapter_new(&c.adapter, &config, af_loader_spec(c.loader), c.loader, 5,
                                        &err),
                         err);
            build(&c, c.adapter, false, n);
            case_run(&c, ids, NULL, &n, 1);
            y[with] = case_read(&c, c.logits);
            if (with) {
                const af_adapter_module *m = &c.adapter->module[0];
                const int64_t in = af_loader_spec(c.loader)->module[0].in;
                double most = 0, sum = 0;
                for (int64_t k = 0; k < m->rank * in; k++) {
                    most = worse(most, fabs(m->a[k]));
                    sum += m->a[k];
                }
                assert_true(most <= 1 / sqrt((double)in) && most > 0.5 / sqrt((double)in));
                assert_true(fabs(sum) < (double)(m->rank * in) / sqrt((double)in) / 2);
            }
            if (with)
                assert_memory_equal(y[0], y[1],
                                    (size_t)(n * af_loader_spec(c.loader)->vocab) * sizeof(float));
            case_close(&c);
        }
        free(y[0]);
        free(y[1]);
    }
}

static void test_mixtures_add_up(void **state)
{
    (void)state;
    trained t;
    af_error err = {0};
    af_adapter *other = NULL, *mix = NULL;
    char dir[4096];
    trained_open(&t, "lora");
    case_dir(dir, sizeof dir, "models/adapters/layers");
    CHECK_OK(af_adapter_read(&other, t.c.adapter->spec, dir, &err), err);
    const af_adapter *in[2] = {t.c.adapter, other};
    const double weight[2] = {0.5, -2};
    CHECK_OK(af_adapter_mix(&mix, in, weight, 2, &err), err);
    for (int i = 0; i < mix->spec->modules; i++) {
        const af_module_spec *m = &mix->spec->module[i];
        for (int64_t o = 0; o < m->out && mix->module[i].rank; o++)
            for (int64_t k = 0; k < m->in; k++) {
                double want = 0, got = 0;
                for (int p = 0; p < 2; p++)
                    for (int r = 0; r < in[p]->module[i].rank; r++)
                        want += weight[p] * in[p]->module[i].scale *
                                in[p]->module[i].b[o * in[p]->module[i].rank + r] *
                                in[p]->module[i].a[r * m->in + k];
                for (int r = 0; r < mix->module[i].rank; r++)
                    got += (double)mix->module[i].b[o * mix->module[i].rank + r] *
                           mix->module[i].a[r * m->in + k];
                assert_true(fabs(want - got) < 1e-6);
            }
    }
    af_adapter_free(mix);
    af_adapter_free(other);
    trained_close(&t);
}

/* Biases of the base that were trained belong to one adapter; `bias: all` of a model without any
 * says nothing. */
static void test_trained_biases(void **state)
{
    (void)state;
    trained t;
    af_error err = {0};
    af_adapter *mix = NULL, *back = NULL;
    char dir[] = "/tmp/af_adapter_XXXXXX";
    trained_open(&t, "base_bias");
    const af_adapter *in[2] = {t.c.adapter, t.c.adapter};
    assert_string_equal(t.c.adapter->config.bias, "all");
    assert_int_equal(af_adapter_mix(&mix, in, (const double[]){1, 1}, 2, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "adapter 1 has trained biases"), "says '%s'", err.msg);
    trained_close(&t);
    assert_non_null(mkdtemp(dir));
    trained_open(&t, "lora");
    t.c.adapter->config.bias = "all";
    CHECK_OK(af_adapter_write(t.c.adapter, dir, &err), err);
    CHECK_OK(af_adapter_read(&back, t.c.adapter->spec, dir, &err), err);
    assert_null(back->config.bias);
    af_adapter_free(back);
    trained_close(&t);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_wrong_configs_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *why, *json, *says;
    } cases[] = {
        {"another kind", "{\"peft_type\": \"BOFT\", \"target_modules\": [\"q_proj\"]}",
         "peft_type"},
        {"no JSON", "{", "adapter_config.json:1"},
        {"rank zero", "{\"peft_type\": \"LORA\", \"r\": 0, \"target_modules\": [\"q_proj\"]}",
         "r "},
        {"rank of a million",
         "{\"peft_type\": \"LORA\", \"r\": 1000000, \"target_modules\": [\"q_proj\"]}", "r "},
        {"no such module", "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"]}", "c_attn"},
        {"layers of another name",
         "{\"peft_type\": \"LORA\", \"layers_pattern\": \"h\", \"target_modules\": [\"q_proj\"]}",
         "layers_pattern"},
        {"a broken pattern", "{\"peft_type\": \"LORA\", \"target_modules\": \"(q_proj\"}",
         "regular expression"},
        {"a bias", "{\"peft_type\": \"LORA\", \"bias\": true, \"target_modules\": [\"q_proj\"]}",
         "bias"},
        {"a changed base",
         "{\"peft_type\": \"LORA\", \"init_lora_weights\": \"pissa\", \"target_modules\": "
         "[\"q_proj\"]}",
         "init_lora_weights"},
        {"alpha is text",
         "{\"peft_type\": \"LORA\", \"lora_alpha\": \"x\", \"target_modules\": [\"q_proj\"]}",
         "lora_alpha"},
        {"a huge rank in a pattern",
         "{\"peft_type\": \"LORA\", \"rank_pattern\": {\"q_proj\": 1e9}, \"target_modules\": "
         "[\"q_proj\"]}",
         "rank"},
    };
    model_case c;
    af_error err = {0};
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    case_open_base(&c, "llama3_tiny", false);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_adapter *a = NULL;
        CHECK_OK(af_file_write(path, cases[i].json, strlen(cases[i].json), &err), err);
        CHECK_MSG(af_adapter_read(&a, af_loader_spec(c.loader), dir, &err) != AF_OK, "%s passes",
                  cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: '%s' does not name '%s'", cases[i].why,
                  err.msg, cases[i].says);
    }
    CHECK_OK(af_path_remove(dir, &err), err);
    case_close(&c);
}

/* PEFT keeps every configured name, also those that its model does not have: q_proj for a phi3. */
static void test_names_the_model_lacks_are_kept_as_peft_keeps_them(void **state)
{
    (void)state;
    trained t = {0};
    af_error err = {0};
    af_adapter *again = NULL;
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    trained_open(&t, "lora");
    const af_model_spec *s = af_loader_spec(t.c.loader);
    CHECK_OK(af_adapter_write(t.c.adapter, dir, &err), err);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    json_t *o = json_load_file(path, 0, NULL), *targets = json_object_get(o, "target_modules");
    assert_true(json_is_array(targets));
    json_array_append_new(targets, json_string("qkv_proj"));
    json_object_set_new(o, "modules_to_save", json_pack("[s]", "classifier"));
    json_object_set_new(o, "layers_pattern", json_string("layers"));
    assert_int_equal(json_dump_file(o, path, 0), 0);
    json_decref(o);
    CHECK_OK(af_adapter_read(&again, s, dir, &err), err);
    for (int i = 0; i < s->modules; i++)
        assert_int_equal(again->module[i].rank, t.c.adapter->module[i].rank);
    af_adapter_free(again);
    CHECK_OK(af_path_remove(dir, &err), err);
    trained_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_and_gradients_are_those_of_peft),
        cmocka_unit_test(test_opened_models_compute_as_peft),
        cmocka_unit_test(test_folders_survive_a_round_trip),
        cmocka_unit_test(test_config_has_every_key_of_peft_sorted),
        cmocka_unit_test(test_config_revision),
        cmocka_unit_test(test_a_base_with_an_at_sign_in_its_name),
        cmocka_unit_test(test_a_fresh_adapter_changes_nothing),
        cmocka_unit_test(test_mixtures_add_up),
        cmocka_unit_test(test_trained_biases),
        cmocka_unit_test(test_wrong_configs_are_refused_by_name),
        cmocka_unit_test(test_names_the_model_lacks_are_kept_as_peft_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
