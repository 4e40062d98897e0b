/* test_methods.c - runs with the methods of tools/golden/make_method_runs.py against PyTorch, PEFT
 * and bitsandbytes, step by step; and what their keys refuse. */
#define _DEFAULT_SOURCE
#include "train/method_runs.h"
#include "train/weight_files.h"

#include "model/arch/arch.h"
#include "train/run/freeze.h"
#include "train/run/method.h"

static void test_int8_base_is_bitsandbytes(void **state)
{
    (void)state;
    check_run("int8");
}

/* The result is a whole model; what was frozen has the bytes of the base. */
static void frozen_is_unchanged(const char *const *trained)
{
    char base[512], out[300];
    int same = 0, other = 0;
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(out, sizeof out, "%s/out", dir);
    af_safetensors *a = open_model_weights(base), *b = open_model_weights(out);
    assert_int_equal(af_safetensors_count(a), af_safetensors_count(b));
    for (int i = 0; i < af_safetensors_count(a); i++) {
        const af_stored *x = af_safetensors_at(a, i), *y = af_safetensors_find(b, x->name);
        bool is_trained = false;
        assert_non_null(y);
        for (int k = 0; trained[k]; k++)
            is_trained |= strstr(x->name, trained[k]) != NULL;
        const bool equal = x->dtype == y->dtype && memcmp(x->data, y->data, x->bytes) == 0;
        CHECK_MSG(equal != is_trained, "%s %s", x->name, equal ? "stayed" : "changed");
        *(equal ? &same : &other) += 1;
    }
    assert_true(same > 0 && other > 0);
    af_safetensors_close(a);
    af_safetensors_close(b);
}

static void test_frozen_runs_follow_pytorch(void **state)
{
    (void)state;
    static const char *const unfrozen[] = {"embed_tokens", "layers.1.mlp", "self_attn.q_proj",
                                           NULL};
    static const char *const freeze[] = {"layers.1.mlp", "norm", NULL};
    static const char *const first[] = {"layers.0.", NULL};
    check_whole_run("unfrozen");
    frozen_is_unchanged(unfrozen);
    check_whole_run("freeze");
    frozen_is_unchanged(freeze);
    check_whole_run("freeze-first");
    frozen_is_unchanged(first);
}

static void test_losses_of_tokens_follow_pytorch(void **state)
{
    static const char *const runs[] = {"asft-lora",  "dft",  "label-smoothing",
                                       "eaft-third", "asft", "eaft"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(runs); i++)
        if (test_takes(i))
            check_run(runs[i]);
}

/* ASFT is anchored where the run starts: at the rounded base of QLoRA. */
static void test_the_divergence_begins_at_zero(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(train("adapter: qlora\nlora_r: 4\nuse_asft_loss: true\nmax_steps: 1\n", &err), err);
    const double kl = first_metric("out", "kl"); /* sums differ on a GPU */
    CHECK_MSG(strcmp(test_device(), "cpu") == 0 ? kl == 0 : fabs(kl) < 1e-6, "kl %g", kl);
}

static double dot(const float *a, int64_t step_a, const float *b, int64_t step_b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i * step_a] * (double)b[i * step_b];
    return sum;
}

/* What is saved is an adapter of twice the rank for the base as it is; its second half is the
 * start, whose directions are orthogonal. */
static void saved_is_converted(void)
{
    char path[600];
    af_error err = {0};
    json_error_t why;
    enum { R = 4 };
    snprintf(path, sizeof path, "%s/out/adapter_config.json", dir);
    json_t *config = json_load_file(path, 0, &why);
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 2 * R);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 16);
    assert_true(json_is_true(json_object_get(config, "init_lora_weights")));
    json_decref(config);
    af_safetensors *f;
    snprintf(path, sizeof path, "%s/out/adapter_model.safetensors", dir);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    const af_stored *a =
        af_safetensors_find(f, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight");
    const af_stored *b =
        af_safetensors_find(f, "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight");
    assert_true(a && b && a->dim[0] == 2 * R && b->dim[1] == 2 * R);
    const int64_t in = a->dim[1], out = b->dim[0];
    for (int k = 0; k < R; k++)
        for (int l = 0; l < k; l++) {
            const float *x = (const float *)a->data + (R + k) * in,
                        *y = (const float *)a->data + (R + l) * in;
            const double size = sqrt(dot(x, 1, x, 1, in) * dot(y, 1, y, 1, in));
            assert_true(fabs(dot(x, 1, y, 1, in)) < 1e-5 * size);
            const float *u = (const float *)b->data + R + k, *v = (const float *)b->data + R + l;
            const double both = sqrt(dot(u, 2 * R, u, 2 * R, out) * dot(v, 2 * R, v, 2 * R, out));
            assert_true(fabs(dot(u, 2 * R, v, 2 * R, out)) < 1e-5 * both);
        }
    af_safetensors_close(f);
}

static void test_starts_from_the_base_are_pefts(void **state)
{
    (void)state;
    check_whole_run("pissa");
    saved_is_converted();
    check_run("pissa-rslora");
    check_run("olora");
    check_whole_run("pissa-dora");
    saved_is_converted();
    check_run("olora-dora");
}

/* Frobenius norm of B A of a module of the run's adapter. The first step of a warm-up has rate 0,
 * so after one step an adapter is still at its start. */
static double start_norm(const char *lines, const char *module)
{
    char path[600], name[200];
    af_error err = {0};
    af_safetensors *f;
    CHECK_OK(train(lines, &err), err);
    snprintf(path, sizeof path, "%s/out/adapter_model.safetensors", dir);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", module);
    const af_stored *a = af_safetensors_find(f, name);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", module);
    const af_stored *b = af_safetensors_find(f, name);
    assert_true(a && b);
    const int64_t r = a->dim[0], in = a->dim[1], out = b->dim[0];
    double sum = 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            const double x =
                dot((const float *)b->data + o * r, 1, (const float *)a->data + i, in, r);
            sum += x * x;
        }
    af_safetensors_close(f);
    return sqrt(sum);
}

/* loftq: the four largest singular values of W - nf4(W), by bitsandbytes and torch. The
 * others change nothing at first: what is saved adds up to zero, B A - B0 A0 of a reduced base. */
static void test_what_starts_add_to_the_base(void **state)
{
    (void)state;
    static const char common[] = "lora_r: 4\nlora_alpha: 4\nlearning_rate: 1e-3\nmax_steps: 1\n";
    static const struct {
        const char *module;
        double norm;
    } loftq[] = {{"model.layers.0.mlp.down_proj", 0.4972714962071122},
                 {"model.layers.1.self_attn.q_proj", 0.4425122600769638}};
    char lines[300];
    snprintf(lines, sizeof lines, "adapter: qlora\npeft_init_lora_weights: loftq\n%s", common);
    for (size_t i = 0; i < AF_LEN(loftq); i++) {
        const double norm = start_norm(lines, loftq[i].module);
        CHECK_MSG(fabs(norm - loftq[i].norm) < 1e-4 * loftq[i].norm, "%s: %.9g, not %.9g",
                  loftq[i].module, norm, loftq[i].norm);
    }
    static const char *const none[] = {"orthogonal", "pissa", "olora"};
    for (size_t i = 0; i < AF_LEN(none); i++) {
        snprintf(lines, sizeof lines, "adapter: lora\npeft_init_lora_weights: %s\n%s", none[i],
                 common);
        const double norm = start_norm(lines, "model.layers.0.mlp.down_proj");
        CHECK_MSG(norm < 1e-5, "%s: B A has norm %g", none[i], norm);
    }
}

/* Of a base that is rounded, rows and what the start adds to them have lengths of their own. */
static void test_magnitudes_are_those_of_the_start(void **state)
{
    (void)state;
    static const char *const starts[] = {"loftq", "pissa"};
    for (size_t i = 0; i < AF_LEN(starts); i++) {
        af_error err = {0};
        char lines[200];
        double loss[2];
        for (int dora = 0; dora < 2; dora++) {
            snprintf(lines, sizeof lines,
                     "adapter: qlora\nlora_r: 4\nmax_steps: 1\npeft_use_dora: %s\n"
                     "peft_init_lora_weights: %s\n",
                     dora ? "true" : "false", starts[i]);
            CHECK_OK(train(lines, &err), err);
            loss[dora] = first_metric("out", "loss");
        }
        CHECK_MSG(fabs(loss[1] - loss[0]) < 2e-6 * loss[0], "%s: %.9g, not %.9g", starts[i],
                  loss[1], loss[0]);
    }
}

/* The base is reduced by the same start, and the trained half of the checkpoint is taken up. */
static void test_a_reduced_run_resumes(void **state)
{
    (void)state;
    check_resumes("adapter: lora\nlora_r: 4\npeft_init_lora_weights: pissa\nlora_bias: true\n"
                  "tokens: [<new1>, <new2>]\n",
                  "adapter_model.safetensors");
    check_resumes("adapter: dora\nlora_r: 4\npeft_init_lora_weights: olora\n",
                  "adapter_model.safetensors");
}

static void test_optimizers_resume(void **state)
{
    (void)state;
    static const char *const kinds[] = {"adam_mini",
                                        "adagrad\noptim_args: lr_decay=0.1",
                                        "nadam",
                                        "radam",
                                        "adopt",
                                        "stable_adamw",
                                        "schedule_free_adamw\noptim_args: r=1",
                                        "lion_8bit",
                                        "apollo\napollo_rank: 4\napollo_update_interval: 2",
                                        "galore\ngalore_rank: 4\ngalore_update_interval: 2",
                                        "ademamix_8bit\noptim_args: beta3=0.99"};
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        char line[100];
        snprintf(line, sizeof line, "optimizer: %s\n", kinds[i]);
        check_resumes(line, "model.safetensors");
    }
}

static void test_embeddings_have_a_rate_of_their_own(void **state)
{
    (void)state;
    check_run("embedding-lr");
}

/* Shapes and settings as PEFT's get_peft_model has them. */
static void test_ranks_of_single_modules(void **state)
{
    (void)state;
    static const struct {
        const char *module;
        int64_t rank;
    } want[] = {{"layers.0.self_attn.q_proj", 4}, {"layers.1.self_attn.q_proj", 7},
                {"layers.0.self_attn.v_proj", 3}, {"layers.1.self_attn.v_proj", 3},
                {"layers.0.mlp.down_proj", 2},    {"layers.1.mlp.down_proj", 2}};
    af_error err = {0};
    char path[300], name[200];
    uint64_t size;
    CHECK_OK(train("adapter: lora\nlora_r: 4\nlora_alpha: 8\nmax_steps: 2\n"
                   "target_modules: [q_proj, v_proj, down_proj]\nalpha_pattern: {q_proj: 3}\n"
                   "rank_pattern: {down_proj: 2, layers.1.self_attn.q_proj: 7, '.*\\.v_proj': 3}\n",
                   &err),
             err);
    snprintf(path, sizeof path, "%s/out/adapter_model.safetensors", dir);
    af_safetensors *f = open_weights(path);
    assert_int_equal(af_safetensors_count(f), 2 * AF_LEN(want));
    for (size_t i = 0; i < AF_LEN(want); i++) {
        snprintf(name, sizeof name, "base_model.model.model.%s.lora_A.weight", want[i].module);
        const af_stored *a = af_safetensors_find(f, name);
        CHECK_MSG(a && a->dim[0] == want[i].rank, "%s", name);
    }
    af_safetensors_close(f);
    char *text = read_output("out", "adapter_config.json", &size);
    json_t *config = json_loadb(text, size, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 4);
    json_t *rank = json_object_get(config, "rank_pattern");
    assert_int_equal(json_integer_value(json_object_get(rank, ".*\\.v_proj")), 3);
    assert_int_equal(json_integer_value(json_object_get(rank, "layers.1.self_attn.q_proj")), 7);
    json_t *alpha = json_object_get(config, "alpha_pattern");
    assert_int_equal(json_integer_value(json_object_get(alpha, "q_proj")), 3);
    json_decref(config);
    free(text);
}

static void test_what_the_keys_refuse(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *must;
    } cases[] = {
        {"unfrozen_parameters: [lm_head]\n", "unfrozen_parameters leaves nothing to train"},
        {"unfrozen_parameters: ['model.embed_tokens.weight[9:3]']\n", "begins at row 9"},
        {"unfrozen_parameters: ['model.embed_tokens.weight[:9000]']\n", "rows 0 to 9000 of"},
        {"unfrozen_parameters: ['model.(']\n", "is not a regular expression"},
        {"adapter: freeze\nfreeze_trainable_modules: [attention]\n",
         "'attention', which the model "},
        {"adapter: freeze\nfreeze_extra_modules: mlp\n", "'mlp', which the model does not have"},
        {"adapter: freeze\nfreeze_trainable_layers: 0\n", "leaves nothing to train"},
        {"adapter: qlora\nload_in_8bit: true\n", "load_in_8bit and adapter: qlora contradict"},
        {"adapter: lora\npeft_init_lora_weights: eva\n", "'eva' is not supported; use one of"},
        {"adapter: lora\npeft_init_lora_weights: loftq\n", "loftq starts from the error of"},
        {"adapter: lora\nlora_r: 3\npeft_init_lora_weights: orthogonal\n", "even rank, not 3"},
        {"adapter: lora\nrank_pattern: {down_prj: 2}\n", "which no adapted module matches"},
        {"adapter: lora\nlora_target_modules: [q_proj]\nalpha_pattern: {k_proj: 2}\n",
         "('alpha_pattern'): lora_alpha_pattern has 'k_proj', which no adapted module matches"},
        {"adapter: lora\nrank_pattern: {q_proj: 2.5}\n", "must be a whole number above 0"},
        {"adapter: lora\nrank_pattern: {q_proj: 1e300}\n", "whole number above 0, at most "},
        {"adapter: lora\nalpha_pattern: {q_proj: 1e300}\n",
         "must be a number above 0, at most 1e+06"},
        {"adapter: lora\nrank_pattern: [2]\n", "must be a map of at most 256 modules"},
        {"adapter: lora\nalpha_pattern: {'(': 2}\n", "is not a regular expression"},
        {"adapter: lora\nrank_pattern: {q_proj: 2, layers.0.self_attn.q_proj: 3}\n",
         "'q_proj' and 'layers.0.self_attn.q_proj' of lora_rank_pattern match "},
        {"adapter: lora\nrank_pattern: {q_proj: 2}\npeft_init_lora_weights: olora\n",
         "a start that changes the base"},
        {"use_eaft: true\nuse_dft_loss: true\n", "use_eaft and use_dft_loss contradict each other"},
        {"use_eaft: true\neaft_k: 21\n", "eaft_k is 21"},
        {"use_asft_loss: true\nteacher_model: x\n", "use_asft_loss and teacher_model contradict"},
        {"use_asft_loss: true\nqat: {weight_dtype: int4}\n", "together with 'use_asft_loss'"},
        {"adapter: lora\nreinit_weights: true\n", "reinit_weights trains all weights: leave out"},
        {"reinit_weights: true\nuse_asft_loss: true\n", "reinit_weights and use_asft_loss"},
        {"adapter: lora\nload_in_4bit: true\nload_in_8bit: true\n", "load_in_8bit and load_"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        CHECK_MSG(train(cases[i].lines, &err) != AF_OK, "accepted: %s", cases[i].lines);
        CHECK_MSG(strstr(err.msg, cases[i].must), "'%s' lacks '%s'", err.msg, cases[i].must);
    }
    static const char *const own[] = {"rank", "alpha"}; /* of an adapter that is there */
    for (size_t i = 0; i < AF_LEN(own); i++) {
        af_error err = {0};
        char lines[600], must[100];
        snprintf(lines, sizeof lines,
                 "adapter: lora\nlora_model_dir: %s/runs/qwen2/lora/initial_adapter\n"
                 "%s_pattern: {q_proj: 2}\n",
                 golden_dir(), own[i]);
        snprintf(must, sizeof must, "lora_%s_pattern is for a new adapter", own[i]);
        CHECK_MSG(train(lines, &err) != AF_OK && strstr(err.msg, must), "'%s'", err.msg);
    }
}

/* As LLaMA-Factory's setup_freeze_training and find_expanded_modules: of 4 layers in 2 parts, 1 and
 * 3. */
static void test_llama_pro_trains_the_layers_that_were_added(void **state)
{
    (void)state;
    static const char text[] = "base_model: x\ndatasets: [{path: y}]\noutput_dir: z\n"
                               "use_llama_pro: true\n";
    static const char *const methods[] = {"adapter: freeze\n", "adapter: lora\n"};
    static af_method_lists lists;
    char path[600];
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    snprintf(path, sizeof path, "%s/models/smollm3", golden_dir());
    CHECK_OK(af_model_config(&config, path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    for (int k = 0; k < 4; k++) {
        const int64_t parts = k < 2 ? 2 : 3;
        af_run_config r = {0};
        af_arena arena = {0};
        af_adapter_config c;
        af_trained t = {0};
        snprintf(path, sizeof path, "%s%sfreeze_trainable_layers: %d\n", text, methods[k % 2],
                 (int)parts);
        CHECK_OK(af_run_config_parse(&r, path, strlen(path), "run.yaml", NULL, 0, &err), err);
        const af_status st = k % 2 ? af_method_adapter(&c, &lists, &r, &spec, &err)
                                   : af_trained_choose(&t, &r, &spec, &arena, &err);
        assert_int_equal(st, parts == 2 ? AF_OK : AF_EUSAGE);
        for (int i = 0; st == AF_OK && t.tensor && i < spec.tensors; i++)
            CHECK_MSG(t.tensor[i] == (spec.tensor[i].layer == 1 || spec.tensor[i].layer == 3), "%s",
                      spec.tensor[i].name);
        if (st == AF_OK && k % 2)
            CHECK_MSG(c.layer_count == 2 && c.layers[0] == 1 && c.layers[1] == 3, "%d layers",
                      c.layer_count);
        if (st != AF_OK)
            CHECK_MSG(strstr(err.msg, "layers 3: it must divide the 4 layers"), "%s", err.msg);
        af_arena_clear(&arena);
        af_run_config_clear(&r);
    }
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
}

/* What transformers' from_config gives: normal matrices of initializer_range, norms of 1, biases
 * and the padding row of 0. Another seed, other values; a resumed run goes on with its own. */
static void test_a_run_from_new_weights(void **state)
{
    (void)state;
    static const char lines[] = "reinit_weights: true\nlearning_rate: 0\n"
                                "max_steps: 2\nsave_steps: 1\n";
    af_error err = {0};
    af_train_result result;
    char text[300], out[600], resume[700];
    uint64_t whole_size, size;
    snprintf(out, sizeof out, "%s/out", dir);
    CHECK_OK(train(lines, &err), err);
    char *whole = read_output("out", "model.safetensors", &whole_size);
    af_safetensors *f = open_model_weights(out);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *x = af_safetensors_at(f, i);
        const bool norm = strstr(x->name, "norm"), bias = strstr(x->name, "bias");
        const int64_t n = (int64_t)(x->bytes / sizeof(float));
        const float *v = x->data;
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < n; k++) {
            sum += (double)v[k];
            squares += (double)v[k] * (double)v[k];
            assert_true(!norm || v[k] == 1);
        }
        const double spread = sqrt(squares / (double)n), want = bias ? 0 : 0.02;
        CHECK_MSG(norm || fabs(spread - want) < 0.001, "%s has %g, not %g", x->name, spread, want);
        CHECK_MSG(norm || fabs(sum / (double)n) < 0.001, "mean of %s", x->name);
        if (strstr(x->name, "embed"))
            for (int64_t c = 0; c < x->dim[1]; c++)
                assert_true(v[509 * x->dim[1] + c] == 0 && v[508 * x->dim[1] + c] != 0);
    }
    af_safetensors_close(f);
    snprintf(text, sizeof text, "%s/run.yaml", dir);
    snprintf(resume, sizeof resume, "resume_from_checkpoint=%s/out/checkpoint-1", dir);
    CHECK_OK(af_train(text, (const char *const[]){resume, "seed=7"}, 2, NULL, &result, &err), err);
    char *again = read_output("out", "model.safetensors", &size);
    assert_true(size == whole_size && memcmp(again, whole, size) == 0);
    free(again);
    snprintf(text, sizeof text, "%sseed: 7\n", lines);
    CHECK_OK(train(text, &err), err);
    again = read_output("out", "model.safetensors", &size);
    assert_true(size == whole_size && memcmp(again, whole, size) != 0);
    free(again);
    free(whole);
}

/* The largest difference of two files' values. */
static double file_distance(const char *a, const char *b)
{
    af_safetensors *f, *g;
    af_error err = {0};
    double most = 0;
    CHECK_OK(af_safetensors_open(&f, a, &err), err);
    CHECK_OK(af_safetensors_open(&g, b, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *x = af_safetensors_at(f, i), *y = af_safetensors_find(g, x->name);
        assert_true(y && y->bytes == x->bytes && x->dtype == AF_DTYPE_F32);
        for (uint64_t k = 0; k < x->bytes / 4; k++)
            most =
                fmax(most, fabs((double)((const float *)x->data)[k] - ((const float *)y->data)[k]));
    }
    af_safetensors_close(f);
    af_safetensors_close(g);
    return most;
}

/* A decay rate of 0 keeps nothing of a moment: then AdamW's step is the sign of the gradient, as
 * Lion's. */
static void test_a_decay_rate_may_be_zero(void **state)
{
    static const char lines[] = "adapter: lora\nlora_r: 4\nlearning_rate: 1e-3\nmax_steps: 2\n";
    char text[300], first[300], second[300];
    af_error err = {0};
    (void)state;
    snprintf(text, sizeof text, "%soptimizer: lion\nadam_beta1: 0\n", lines);
    CHECK_OK(train(text, &err), err);
    snprintf(first, sizeof first, "%s/lion.safetensors", dir);
    snprintf(second, sizeof second, "%s/out/adapter_model.safetensors", dir);
    assert_int_equal(rename(second, first), 0);
    snprintf(text, sizeof text,
             "%soptimizer: adamw\nadam_beta1: 0\nadam_beta2: 0\nadam_epsilon: 1e-30\n", lines);
    CHECK_OK(train(text, &err), err);
    const double off = file_distance(first, second);
    CHECK_MSG(off < 1e-8, "%g", off); /* of steps of 3e-4 */
    CHECK_OK(af_path_remove(first, &err), err);
}

/* Rows without a limit are planned as long as the model's context, others as long as they may be.
 */
static void test_the_length_of_a_plan(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"sequence_len: 16777216\n", " 2 x 256 tokens, "},
                                           {"sequence_len: 100\n", " 2 x 100 tokens, "}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char path[300], *text = NULL;
        af_error err = {0};
        snprintf(path, sizeof path, "%s/plan.yaml", dir);
        write_run(path, "out", cases[i][0]);
        CHECK_OK(af_train_plan(path, NULL, 0, 0, false, &text, &err), err);
        CHECK_MSG(strstr(text, cases[i][1]), "%s: %s", cases[i][0], text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8_base_is_bitsandbytes),
        cmocka_unit_test(test_losses_of_tokens_follow_pytorch),
        cmocka_unit_test(test_the_divergence_begins_at_zero),
        cmocka_unit_test(test_frozen_runs_follow_pytorch),
        cmocka_unit_test(test_starts_from_the_base_are_pefts),
        cmocka_unit_test(test_what_starts_add_to_the_base),
        cmocka_unit_test(test_optimizers_resume),
        cmocka_unit_test(test_magnitudes_are_those_of_the_start),
        cmocka_unit_test(test_a_reduced_run_resumes),
        cmocka_unit_test(test_embeddings_have_a_rate_of_their_own),
        cmocka_unit_test(test_ranks_of_single_modules),
        cmocka_unit_test(test_what_the_keys_refuse),
        cmocka_unit_test(test_llama_pro_trains_the_layers_that_were_added),
        cmocka_unit_test(test_a_run_from_new_weights),
        cmocka_unit_test(test_the_length_of_a_plan),
        cmocka_unit_test(test_a_decay_rate_may_be_zero),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
