/* layout_case.h - folders of one model in several layouts: trained, written back, compared. */
#ifndef AF_LAYOUT_CASE_H
#define AF_LAYOUT_CASE_H
#define _DEFAULT_SOURCE
#include "model/family_case.h"

#include "train/golden_run.h" /* its `dir` is a global */
#include "train/weight_files.h"

#include "afinar/convert.h"
#include "afinar/model.h"

enum { TOKENS = 12 };

static void logits_of(const char *model, float *out)
{
    af_error err = {0};
    af_model *m;
    int32_t ids[TOKENS];
    const af_model_opts o = {.device = "cpu", .compute = AF_COMPUTE_F32};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    assert_int_equal(af_model_vocab(m), 20);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 7 + 3) % 20;
    CHECK_OK(af_model_logits_of(m, ids, TOKENS, out, &err), err);
    af_model_close(m);
}

static af_status try_train(const char *model, const char *out, const char *more, af_error *err)
{
    char text[2000], path[2][300];
    af_train_result result;
    static const char line[] = "{\"input_ids\": [3, 10, 17, 4, 11, 18, 5, 12, 19, 6]}\n";
    snprintf(path[0], sizeof path[0], "%s/d.jsonl", dir);
    snprintf(path[1], sizeof path[1], "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path[0], line, strlen(line), err), *err);
    snprintf(text, sizeof text,
             "base_model: %s\ndatasets: [{path: %s, type: tokens}]\noutput_dir: %s\ndevice: %s\n"
             "learning_rate: 0.01\nwarmup_steps: 0\nbf16: false\nmax_steps: 1\n%s",
             model, path[0], out, test_device(), more);
    CHECK_OK(af_file_write(path[1], text, strlen(text), err), *err);
    return af_train(path[1], NULL, 0, NULL, &result, err);
}

static void train(const char *model, const char *out, const char *more)
{
    af_error err = {0};
    CHECK_OK(try_train(model, out, more, &err), err);
}
#endif
