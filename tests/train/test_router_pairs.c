/* test_router_pairs.c - preference runs with the auxiliary loss of routers against TRL
 * (tools/golden/make_router_pairs.py). Prompts that pairs share count twice there, and the answers
 * that KTO measures its KL with do not count. */
#define _DEFAULT_SOURCE
#include "test.h"

#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static char dir[] = "/tmp/afinar-router-XXXXXX";

/* The model with the tokenizer of its pairs. */
static int setup(void **state)
{
    static const char *const file[] = {"router-model/config.json", "router-model/model.safetensors",
                                       "router-pairs/tokenizer.json",
                                       "router-pairs/tokenizer_config.json"};
    char from[600], to[300];
    (void)state;
    if (!mkdtemp(dir) || setenv("XDG_CACHE_HOME", dir, 1))
        return 1;
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        snprintf(from, sizeof from, "%s/judged/%s", golden_dir(), file[i]);
        snprintf(to, sizeof to, "%s%s", dir, strchr(file[i], '/'));
        char *whole = realpath(from, NULL);
        const int failed = !whole || symlink(whole, to);
        free(whole);
        if (failed)
            return 1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    af_error err;
    return af_path_remove(dir, &err) != AF_OK;
}

static void train(const char *name, const json_t *keys, const char *more, af_error *err)
{
    af_buf b = {0};
    char path[300];
    const char *key;
    json_t *v;
    const bool kto = strcmp(json_string_value(json_object_get(keys, "rl")), "kto") == 0;
    af_buf_printf(&b,
                  "base_model: %s\noutput_dir: %s/%s\ndatasets: [{path: "
                  "%s/judged/router-pairs/%s.jsonl}]\nshuffle: false\nbf16: false\ndevice: %s\n"
                  "logging_steps: 1\n%s",
                  dir, dir, name, golden_dir(), kto ? "kto" : "pairs", test_device(), more);
    json_object_foreach((json_t *)keys, key, v)
    {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        af_buf_printf(&b, "%s: %s\n", key, text);
        free(text);
    }
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, err), *err);
    af_buf_clear(&b);
    (void)!af_train(path, NULL, 0, NULL, NULL, err);
}

static void follow(const char *name, const json_t *run)
{
    char path[300], *text;
    uint64_t size;
    af_error err = {0};
    size_t i = 0;
    const char *key;
    json_t *v;
    train(name, json_object_get(run, "keys"), "", &err);
    CHECK_MSG(err.code == AF_OK, "%s: %s", name, err.msg);
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, name);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, i++) {
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        json_object_foreach(json_array_get(json_object_get(run, "steps"), i), key, v)
        {
            const double got = json_number_value(json_object_get(row, key)),
                         want = json_number_value(v);
            CHECK_MSG(fabs(got - want) <= 2e-5 * fmax(want, 1), "%s step %zu: %s is %.9g, not %.9g",
                      name, i + 1, key, got, want);
        }
        assert_true(json_number_value(json_object_get(row, "aux_loss")) > 1.9);
        json_decref(row);
    }
    assert_int_equal(i, json_array_size(json_object_get(run, "steps")));
    free(text);
}

static void test_runs_follow_trl(void **state)
{
    (void)state;
    char path[600];
    json_error_t why;
    const char *name;
    json_t *run;
    snprintf(path, sizeof path, "%s/judged/router-pairs/runs.json", golden_dir());
    json_t *runs = json_load_file(path, 0, &why);
    CHECK_MSG(runs, "%s: %s", path, why.text);
    json_object_foreach(runs, name, run) follow(name, run);
    json_decref(runs);
}

/* The key turns it off; and reward models have none. */
static void test_it_is_left_out(void **state)
{
    (void)state;
    char path[300], *text;
    uint64_t size;
    af_error err = {0};
    json_t *keys =
        json_pack("{s:s,s:b,s:i}", "rl", "dpo", "output_router_logits", 0, "max_steps", 1);
    train("off", keys, "", &err);
    CHECK_MSG(err.code == AF_OK, "%s", err.msg);
    snprintf(path, sizeof path, "%s/off/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    assert_null(strstr(text, "aux_loss"));
    free(text);
    json_object_set_new(keys, "rl", json_string("reward"));
    json_object_set_new(keys, "output_router_logits", json_true());
    train("no", keys, "", &err);
    CHECK_MSG(strstr(err.msg, "is not added to 'rl: reward'"), "%s", err.msg);
    json_decref(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_trl),
        cmocka_unit_test(test_it_is_left_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
