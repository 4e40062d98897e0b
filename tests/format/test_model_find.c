/* How MODEL names are resolved: folders, the cache of the hub, and what is no model. */
#define _GNU_SOURCE
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/hub/hub_name.h"
#include "test.h"

#include <unistd.h>

#define CONFIG                                                                                     \
    "{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":64,\"intermediate_size\":96,"    \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4}"

static char tmp_dir[] = "/tmp/afinar-find-XXXXXX";

static void write_in(const char *name, const char *text)
{
    char path[1024];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", tmp_dir, name);
    char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(dir);
}

static void test_names_resolve_to_folders_and_the_cache(void **state)
{
    (void)state;
    af_error err = {0};
    char *path = NULL, want[1024];
    CHECK_OK(af_model_resolve(&path, tmp_dir, &err), err);
    assert_string_equal(path, tmp_dir);
    free(path);
    write_in("hub/models--org--name/refs/main", "abc123\n");
    write_in("hub/models--org--name/snapshots/abc123/config.json", CONFIG);
    write_in("hub/models--org--name/snapshots/abc123/generation_config.json",
             "{\"eos_token_id\":[2,7],\"temperature\":0.6,\"do_sample\":true}");
    setenv("HF_HOME", tmp_dir, 1);
    unsetenv("HF_HUB_CACHE");
    CHECK_OK(af_model_resolve(&path, "org/name", &err), err);
    snprintf(want, sizeof want, "%s/hub/models--org--name/snapshots/abc123", tmp_dir);
    assert_string_equal(path, want);
    af_hf_config c = {0};
    CHECK_OK(af_model_config(&c, path, &err), err);
    assert_int_equal(c.eos_count, 2);
    af_hf_config_clear(&c);
    free(path);
    snprintf(want, sizeof want, "%s/hub", tmp_dir);
    setenv("HF_HUB_CACHE", want, 1);
    setenv("HF_HOME", "/nowhere", 1);
    CHECK_OK(af_model_resolve(&path, "org/name", &err), err);
    free(path);
    assert_int_equal(af_model_resolve(&path, "org/other", &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "org/other"));
    assert_int_equal(af_model_resolve(&path, "../../no-such-model", &err), AF_EUSAGE);
    assert_int_equal(af_model_resolve(&path, "no.gguf", &err), AF_EUSAGE);
    write_in("hub/models--org--evil/refs/main", "../../../x");
    assert_int_equal(af_model_resolve(&path, "org/evil", &err), AF_EFORMAT);
    write_in("hub/models--org--gone/refs/main", "123");
    assert_int_equal(af_model_resolve(&path, "org/gone", &err), AF_EIO);
}

static af_status refuse_fetch(void *user, char **dir, const af_hub_repo *r,
                              const char *const *include, int n, af_error *err)
{
    (void)user, (void)dir, (void)include, (void)n;
    return af_fail(err, AF_EIO, "fetches %s", r->name);
}

/* A snapshot of huggingface_hub with all files is used without asking the hub. */
static void test_what_is_cached_whole_is_not_fetched(void **state)
{
    (void)state;
    af_error err = {0};
    char *path = NULL, hub[1024];
    write_in("hub/models--org--mlx/refs/main", "abc123");
    write_in("hub/models--org--mlx/snapshots/abc123/adapters.safetensors", "");
    write_in("hub/models--org--cut/refs/main", "abc123");
    write_in("hub/models--org--cut/snapshots/abc123/model-00001-of-00002.safetensors", "");
    snprintf(hub, sizeof hub, "%s/hub", tmp_dir);
    setenv("HF_HUB_CACHE", hub, 1);
    af_hub_fetch_set(refuse_fetch, NULL);
    CHECK_OK(af_model_resolve(&path, "org/mlx", &err), err);
    free(path);
    assert_int_equal(af_model_resolve(&path, "org/cut", &err), AF_EIO);
    assert_string_equal(err.msg, "fetches org/cut");
    write_in("hub/models--org--cut/snapshots/abc123/model-00002-of-00002.safetensors", "");
    CHECK_OK(af_model_resolve(&path, "org/cut", &err), err);
    free(path);
    write_in("hub/models--org--cut/snapshots/abc123/model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\"}}");
    assert_int_equal(af_model_resolve(&path, "org/cut", &err), AF_EIO);
    write_in("hub/models--org--gguf/refs/main", "abc123");
    write_in("hub/models--org--gguf/snapshots/abc123/m-00001-of-00002.gguf", "");
    assert_int_equal(af_model_resolve(&path, "org/gguf", &err), AF_EIO);
    write_in("hub/models--org--gguf/snapshots/abc123/m-00002-of-00002.gguf", "");
    CHECK_OK(af_model_resolve(&path, "org/gguf", &err), err);
    free(path);
    write_in("hub/models--org--end/refs/main", "abc123"); /* the last ones are not all */
    write_in("hub/models--org--end/snapshots/abc123/model-00002-of-00002.safetensors", "");
    assert_int_equal(af_model_resolve(&path, "org/end", &err), AF_EIO);
    assert_string_equal(err.msg, "fetches org/end");
    af_hub_fetch_set(NULL, NULL);
}

static void test_what_is_not_a_model_is_said(void **state)
{
    (void)state;
    char path[1024], *found = NULL;
    af_error err = {0};
    af_hf_config c = {0};
    write_in("run/checkpoint-5/config.json", "{}");
    write_in("run/checkpoint-10/config.json", "{}");
    write_in("run/logs/x", "");
    snprintf(path, sizeof path, "%s/run", tmp_dir);
    assert_int_equal(af_model_config(&c, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "a folder inside has one: '") && strstr(err.msg, "/checkpoint-10'"),
              "says '%s'", err.msg);
    write_in("run/model.onnx", "\x08\x07");
    snprintf(path, sizeof path, "%s/run/model.onnx", tmp_dir);
    assert_int_equal(af_model_resolve_whole(&found, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "is not a GGUF file"), "says '%s'", err.msg);
    assert_int_equal(af_model_resolve(&found, "https://huggingface.co/org/name", &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "not by an address"), "says '%s'", err.msg);
}

static void test_an_adapter_given_as_a_model_names_its_base(void **state)
{
    static const struct {
        const char *config, *base;
    } cases[] = {
        {"{\"base_model_name_or_path\": \"org/tiny\", \"r\": 8}", "its base, 'org/tiny',"},
        {"{\"base_model_name_or_path\": null}", "its base, 'MODEL',"},
        {"not JSON", "its base, 'MODEL',"},
    };
    char dir[1024];
    af_hf_config c = {0};
    (void)state;
    snprintf(dir, sizeof dir, "%s/lora", tmp_dir);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        write_in("lora/adapter_config.json", cases[i].config);
        assert_int_equal(af_model_config(&c, dir, &err), AF_EUSAGE);
        CHECK_MSG(strstr(err.msg, cases[i].base) && strstr(err.msg, "--adapter '"), "%s", err.msg);
    }
    af_error err = {0};
    write_in("lora/params.json", "{\"dim\": 4}");
    assert_int_equal(af_model_config(&c, dir, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "has params.json and no config.json"), "%s", err.msg);
    write_in("lora/config.json", CONFIG);
    CHECK_OK(af_model_config(&c, dir, &err), err);
    af_hf_config_clear(&c);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(tmp_dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return af_path_remove(tmp_dir, NULL) == AF_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_resolve_to_folders_and_the_cache),
        cmocka_unit_test(test_what_is_cached_whole_is_not_fetched),
        cmocka_unit_test(test_what_is_not_a_model_is_said),
        cmocka_unit_test(test_an_adapter_given_as_a_model_names_its_base),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
