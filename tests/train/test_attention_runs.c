/* test_attention_runs.c - runs on families with unusual attention against transformers + PEFT; and
 * full fine-tuning of a model whose experts lie in another order on disk. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"
#include "train/weight_files.h"

static void test_runs_follow_peft(void **state)
{
    (void)state;
    static const char *const runs[][2] = {{"gemma4", "lora"}, {"gpt_oss", "lora-experts"}};
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600];
    snprintf(root, sizeof root, "%s/golden/families", shared);
    snprintf(data, sizeof data, "%s/golden/models/data/train.jsonl", shared);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(root, root, runs[i][0], runs[i][1], data);
}

static void train_full(const char *shared, const char *model, const char *out, const char *more)
{
    char text[3000];
    af_train_result result;
    snprintf(text, sizeof text,
             "base_model: %s/golden/families/%s\n"
             "datasets: [{path: %s/golden/models/data/train.jsonl}]\noutput_dir: %s/%s\n"
             "warmup_steps: 0\nlr_scheduler: constant\nweight_decay: 0\n"
             "device: %s\nbf16: false\nsave_steps: 1\n%s",
             shared, model, shared, dir, out, test_device(), more);
    train_text(text, &result);
}

/* A learning rate that changes no bit gives the base back: its order is that of the disk; and a
 * resumed run is the run. */
static void test_full_training_keeps_the_order_of_the_disk(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt_oss", "gemma4_ple", "glm4_moe_lite"};
    const char *shared = shared_dir();
    char base[1024], out[600], other[600], more[900];
    if (!shared)
        skip_because("no shared goldens");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char still[64], whole[64], part[64];
        snprintf(still, sizeof still, "still-%s", models[i]);
        snprintf(whole, sizeof whole, "whole-%s", models[i]);
        snprintf(part, sizeof part, "part-%s", models[i]);
        train_full(shared, models[i], still, "learning_rate: 1e-30\nmax_steps: 1\n");
        snprintf(base, sizeof base, "%s/golden/families/%s/model.safetensors", shared, models[i]);
        snprintf(out, sizeof out, "%s/%s/model.safetensors", dir, still);
        same_weights(out, base);
        train_full(shared, models[i], whole, "learning_rate: 1e-3\nmax_steps: 2\n");
        train_full(shared, models[i], part, "learning_rate: 1e-3\nmax_steps: 1\n");
        snprintf(more, sizeof more,
                 "learning_rate: 1e-3\nmax_steps: 2\nresume_from_checkpoint: %s/%s/checkpoint-1\n",
                 dir, part);
        train_full(shared, models[i], part, more);
        snprintf(out, sizeof out, "%s/%s/model.safetensors", dir, whole);
        snprintf(other, sizeof other, "%s/%s/model.safetensors", dir, part);
        same_weights(out, other);
        const weight_gap gap = compare_weights(out, base);
        CHECK_MSG(gap.same < gap.tensors / 2, "%s: %d tensors of the base", out, gap.same);
    }
}

/* What PEFT picks for all-linear: experts and routers where they were linears of modules once. */
static void test_all_linear_is_what_peft_loads(void **state)
{
    (void)state;
    static const struct {
        const char *model, *with, *without;
        int pairs;
    } cases[] = {
        {"gemma4_ple", "model.per_layer_model_projection", NULL, 33},
        {"deepseek_v2", "model.layers.1.mlp.gate", "model.layers.1.mlp.shared_experts.up_proj", 11},
        {"gemma4_moe", "model.layers.1.router.proj", "model.layers.1.experts", 15},
        {"gpt_oss", "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.router", 8},
    };
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64], path[600], name[256];
        snprintf(out, sizeof out, "linear-%s", cases[i].model);
        train_full(shared, cases[i].model, out,
                   "learning_rate: 1e-3\nmax_steps: 1\nadapter: lora\nlora_r: 2\n"
                   "lora_target_linear: true\n");
        snprintf(path, sizeof path, "%s/%s/adapter_model.safetensors", dir, out);
        af_safetensors *f = open_weights(path);
        assert_int_equal(af_safetensors_count(f), 2 * cases[i].pairs);
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", cases[i].with);
        CHECK_MSG(af_safetensors_find(f, name), "no %s", name);
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight",
                 cases[i].without ? cases[i].without : "nothing");
        assert_null(af_safetensors_find(f, name));
        af_safetensors_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_peft),
        cmocka_unit_test(test_full_training_keeps_the_order_of_the_disk),
        cmocka_unit_test(test_all_linear_is_what_peft_loads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
