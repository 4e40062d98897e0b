/* test_expert_layouts.c - a folder may have its experts one by one or all in one tensor: both are
 * trained to the same bits, and what is written has the layout that was read. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"
#include "train/weight_files.h"

#include "afinar/convert.h"
#include "afinar/model.h"
#include "model/arch/arch_disk.h"
#include "model/model_reader.h"

#include <math.h>
#include <sys/stat.h>

/* The tiny qwen3_moe, whose experts lie one by one, with all experts of a layer in one tensor. */
static void write_whole(const char *to)
{
    char from[512], path[1000];
    af_error err = {0};
    af_model_reader *in;
    af_safetensors_writer *w;
    snprintf(from, sizeof from, "%s/judged/router-model", golden_dir());
    CHECK_OK(af_model_reader_open_list(&in, from, &err), err);
    CHECK_OK(af_model_reader_match(in, &err), err);
    assert_false(in->spec.experts_whole);
    in->spec.experts_whole = true;
    const af_model_spec *s = &in->spec;
    assert_int_equal(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->tensors; i++) {
            char name[256];
            int64_t dim[AF_DISK_DIMS], at, rows, cols;
            int ndim;
            assert_int_equal(af_disk_count(s, i), 1);
            af_disk_piece(s, i, 0, name, sizeof name, dim, &ndim, &at);
            cols = dim[ndim - 1];
            rows = ndim == 1 ? 1 : ndim == 2 ? dim[0] : dim[0] * dim[1];
            if (pass == 0) {
                CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, ndim, &err), err);
                continue;
            }
            float *x = malloc((size_t)(rows * cols) * sizeof *x);
            af_model_reader_merged_rows(in, i, 0, rows, x);
            CHECK_OK(af_safetensors_writer_data(w, x, (uint64_t)(rows * cols) * 4, &err), err);
            free(x);
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_model_reader_close(in);
    snprintf(path, sizeof path, "cp %s/*.json %s/", from, to);
    assert_int_equal(system(path), 0);
}

static void train(const char *model, const char *out, const char *more)
{
    char text[2000];
    af_train_result result;
    snprintf(text, sizeof text,
             "base_model: %s\ndatasets: [{path: %s/judged/router.jsonl, type: tokens}]\n"
             "output_dir: %s/%s\ndevice: %s\nlearning_rate: 0.01\nbf16: false\nmax_steps: 2\n%s",
             model, golden_dir(), dir, out, test_device(), more);
    train_text(text, &result);
}

/* Up of expert 2 of layer 1 in a folder of each layout. */
static void same_expert(const char *apart, const char *whole)
{
    af_safetensors *x = open_model_weights(apart), *y = open_model_weights(whole);
    const af_stored *one = af_safetensors_find(x, "model.layers.1.mlp.experts.2.up_proj.weight");
    const af_stored *all = af_safetensors_find(y, "model.layers.1.mlp.experts.gate_up_proj");
    assert_non_null(one);
    assert_non_null(all);
    const char *part = (const char *)all->data + (2 * 2 + 1) * one->bytes;
    assert_int_equal(memcmp(one->data, part, one->bytes), 0);
    af_safetensors_close(x);
    af_safetensors_close(y);
}

static void test_both_are_trained_and_written_as_they_came(void **state)
{
    (void)state;
    char apart[512], whole[300], out[2][300];
    snprintf(apart, sizeof apart, "%s/judged/router-model", golden_dir());
    snprintf(whole, sizeof whole, "%s/whole", dir);
    write_whole(whole);
    train(apart, "full-apart", "");
    train(whole, "full-whole", "");
    for (int i = 0; i < 2; i++)
        snprintf(out[i], sizeof out[i], "%s/full-%s", dir, i ? "whole" : "apart");
    same_names(out[0], apart);
    same_names(out[1], whole);
    same_expert(out[0], out[1]);
}

static void test_adapters_are_merged_into_both(void **state)
{
    (void)state;
    char model[512], adapter[300], to[2][300];
    af_error err = {0};
    const char *more = "adapter: lora\nlora_r: 2\nlora_target_linear: true\n";
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "lora-whole" : "lora-apart";
        if (i)
            snprintf(model, sizeof model, "%s/whole", dir);
        else
            snprintf(model, sizeof model, "%s/judged/router-model", golden_dir());
        train(model, name, more);
        snprintf(adapter, sizeof adapter, "%s/%s", dir, name);
        snprintf(to[i], sizeof to[i], "%s/merged-%d", dir, i);
        const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
        CHECK_OK(af_merge_adapters(model, to[i], &o, NULL, &err), err);
        same_names(to[i], model);
    }
    same_expert(to[0], to[1]);
}

/* ---- experts in MXFP4 ---- */

enum { TOKENS = 20 };

static float *logits_of(const char *model, const char *adapter)
{
    af_error err = {0};
    af_model *m;
    int32_t ids[TOKENS];
    const af_model_opts o = {.device = "cpu",
                             .compute = AF_COMPUTE_F32,
                             .adapter = {adapter},
                             .adapter_weight = {1},
                             .adapters = adapter != NULL};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    float *out = malloc((size_t)(TOKENS * af_model_vocab(m)) * sizeof *out);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = 5 + i;
    CHECK_OK(af_model_logits_of(m, ids, TOKENS, out, &err), err);
    af_model_close(m);
    return out;
}

static double farthest(const float *a, const float *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (d > most)
            most = d;
    }
    return most;
}

/* Adapters on codes are trained and merged: the folder has plain experts then, whose order on disk
 * is another than that of the codes. */
static void test_codes_are_trained_and_merged(void **state)
{
    (void)state;
    const char *shared = shared_dir();
    char base[512], adapter[300], to[300], text[2000];
    af_error err = {0};
    af_train_result result;
    if (!shared)
        skip_because("no shared goldens");
    snprintf(base, sizeof base, "%s/golden/families/gpt_oss_mxfp4", shared);
    snprintf(adapter, sizeof adapter, "%s/codes", dir);
    snprintf(to, sizeof to, "%s/codes-merged", dir);
    snprintf(text, sizeof text,
             "base_model: %s\ndatasets: [{path: %s/golden/models/data/train.jsonl}]\n"
             "output_dir: %s\nadapter: lora\nlora_r: 2\nlora_target_modules: [q_proj]\n"
             "lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj, "
             "mlp.router.weight]\nlearning_rate: 0.02\nwarmup_steps: 0\nmax_steps: 2\n"
             "device: %s\nbf16: false\n",
             base, shared, adapter, test_device());
    train_text(text, &result);
    const af_merge_adapter_opts o = {
        .adapter = {adapter}, .weight = {1}, .adapters = 1, .dtype = "f32"};
    CHECK_OK(af_merge_adapters(base, to, &o, NULL, &err), err);
    float *plain = logits_of(base, NULL), *with = logits_of(base, adapter),
          *merged = logits_of(to, NULL);
    const double off = farthest(with, merged, TOKENS * 512);
    CHECK_MSG(off < 2e-5, "merged %g away", off);
    CHECK_MSG(farthest(plain, with, TOKENS * 512) > 0.05, "the adapter changes nothing");
    free(plain);
    free(with);
    free(merged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_are_trained_and_merged),
        cmocka_unit_test(test_both_are_trained_and_written_as_they_came),
        cmocka_unit_test(test_adapters_are_merged_into_both),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
