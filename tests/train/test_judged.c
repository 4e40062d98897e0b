/* test_judged.c - short runs of the tiny qwen2 against PyTorch + PEFT: optimizers, LoRA+, packing,
 * a padding token in the data (tests/golden/judged, made by tools/judge/make_judged.py); and of the
 * tiny qwen3_moe with the auxiliary loss of its router against the Trainer of transformers
 * (tools/golden/make_router_loss.py). */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"

#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static void write_run(const json_t *c, const char *path)
{
    af_buf b = {0};
    af_error err = {0};
    const char *key;
    json_t *run = json_object_get(c, "run"), *v;
    const char *router = json_string_value(json_object_get(c, "router"));
    const char *data = json_is_true(json_object_get(c, "pads")) ? "judged/pads.jsonl"
                       : router                                 ? "judged/router.jsonl"
                                                                : "models/data/train_tokens.jsonl";
    json_object_foreach(run, key, v)
    {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        af_buf_printf(&b, "%s: %s\n", key, json_is_string(v) ? json_string_value(v) : text);
        free(text);
    }
    af_buf_printf(&b, "base_model: %s/%s\noutput_dir: %s/out\n", golden_dir(),
                  router ? router : "models/qwen2", dir);
    af_buf_printf(&b, "datasets: [{path: %s/%s, type: tokens}]\noverwrite_output_dir: true\n",
                  golden_dir(), data);
    const char *start = json_string_value(json_object_get(c, "start"));
    if (json_object_get(run, "adapter"))
        af_buf_printf(&b, "lora_model_dir: %s/%s\n", golden_dir(),
                      start    ? start
                      : router ? "judged/router-adapter"
                               : "runs/qwen2/lora/initial_adapter");
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Losses within 1e-5, norms within 1e-5 of their size (5e-5 where every weight is trained): the
 * goldens' suggested tolerances. */
static void compare(const char *name, const char *line, size_t len, const json_t *want, double norm)
{
    json_t *row = json_loadb(line, len, 0, NULL);
    const bool router = strncmp(name, "router", 6) == 0; /* two experts a token: at least about 2 */
    CHECK_MSG(router ? number(row, "aux_loss") > 1.9 : !json_object_get(row, "aux_loss"),
              "%s: aux_loss %g", name, number(row, "aux_loss"));
    const double step = number(row, "step"), size = fmax(1, number(want, "grad_norm"));
    CHECK_MSG(fabs(number(row, "loss") - number(want, "loss")) <= 1e-5,
              "%s step %g: loss %.9g, %.9g", name, step, number(row, "loss"), number(want, "loss"));
    CHECK_MSG(fabs(number(row, "grad_norm") - number(want, "grad_norm")) <= norm * size,
              "%s step %g: norm %.9g, %.9g", name, step, number(row, "grad_norm"),
              number(want, "grad_norm"));
    CHECK_MSG(fabs(number(row, "learning_rate") - number(want, "lr")) <= 1e-9, "%s step %g: rate",
              name, step);
    CHECK_MSG(number(row, "supervised_tokens") == number(want, "label_tokens"),
              "%s step %g: supervised tokens", name, step);
    json_decref(row);
}

static void check_case(const char *name)
{
    char path[512], run[128], *text;
    uint64_t size;
    json_error_t why;
    af_error err = {0};
    af_train_result result;
    size_t i = 0;
    int done = 0;
    snprintf(path, sizeof path, "%s/judged/%s.json", golden_dir(), name);
    json_t *c = json_load_file(path, 0, &why);
    CHECK_MSG(c, "%s: %s", path, why.text);
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    write_run(c, run);
    snprintf(path, sizeof path, "device=%s", test_device());
    const json_t *steps = json_object_get(c, "steps");
    const bool some = test_sanitized && json_array_size(steps) > SANITIZED_STEPS;
    const af_train_hooks hooks = {.user = &done, .step = count_a_step, .stop = stop_when_sanitized};
    const af_status st = af_train(run, (const char *const[]){path}, 1, &hooks, &result, &err);
    CHECK_MSG(st == (some ? AF_ESTOPPED : AF_OK), "%s: %s", name, err.msg);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    const double norm = strstr(name, "full") ? 5e-5 : 1e-5;
    for (char *line = text, *end; *line; line = end + 1, i++) {
        end = strchr(line, '\n');
        compare(name, line, (size_t)(end - line), json_array_get(steps, i), norm);
    }
    assert_int_equal(i, some ? SANITIZED_STEPS : json_array_size(steps));
    free(text);
    json_decref(c);
}

static void test_runs_follow_pytorch_and_peft(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "adafactor-lora",     "loraplus-matrices", "sgd-packed",      "adam-inverse-sqrt",
        "full-padding-token", "full-adafactor",    "full-adam-mini",  "full-apollo",
        "full-apollo-mini",   "full-galore",       "full-galore-both"};
    for (size_t i = 0; i < AF_LEN(cases); i++)
        check_case(cases[i]);
}

/* Padding does not count, gradients reach router and adapters, and with accumulation the auxiliary
 * losses of the micro-batches are added up. */
static void test_router_loss_follows_the_trainer(void **state)
{
    (void)state;
    check_case("router-full");
    check_case("router-full-accumulated");
    check_case("router-full-layers");
    check_case("router-lora");
    check_case("router-experts");
    check_case("router-linear");
    check_case("router-qlora");
}

/* The loss of the first step of a run of the case "router-lora". */
static double first_loss(const char *dft, const char *coefficient)
{
    const char *const set[] = {dft, coefficient, "output_router_logits=true", "max_steps=1",
                               "logging_steps=1"};
    char path[512], run[128];
    af_error err = {0};
    af_train_result result;
    json_error_t why;
    snprintf(path, sizeof path, "%s/judged/router-lora.json", golden_dir());
    json_t *c = json_load_file(path, 0, &why);
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    write_run(c, run);
    json_decref(c);
    CHECK_OK(af_train(run, set, AF_LEN(set), NULL, &result, &err), err);
    return result.first_loss;
}

/* DFT weighs the loss of tokens; that of routers has its coefficient, as without DFT. */
static void test_router_loss_next_to_dft(void **state)
{
    (void)state;
    double more[2];
    for (int dft = 0; dft < 2; dft++) {
        const char *key = dft ? "use_dft_loss=true" : "use_dft_loss=false";
        more[dft] = first_loss(key, "router_aux_loss_coef=0.25") -
                    first_loss(key, "router_aux_loss_coef=0.125");
    }
    CHECK_MSG(more[0] > 0.125 * 1.9 && fabs(more[0] - more[1]) < 1e-5, "%.9g, with DFT %.9g",
              more[0], more[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs_follow_pytorch_and_peft),
                                       cmocka_unit_test(test_router_loss_follows_the_trainer),
                                       cmocka_unit_test(test_router_loss_next_to_dft)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
