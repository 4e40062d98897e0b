/* test_family_adapters.c - adapters on families whose linears are no plain ones: inputs that are
 * rounded (BitNet), weights that several layers share (zamba2). Goldens of families with "lora"
 * have logits of PEFT; the values of the adapter come from the formula. */
#include "family_case.h"

#include "afinar/convert.h"
#include "model/adapter_config.h"

#include <dirent.h>
#include <math.h>

enum { RANK = 2 };

static void write_config(const char *dir, const json_t *targets)
{
    char path[256];
    af_error err = {0};
    json_t *c = json_pack("{ss, si, si, sO}", "peft_type", "LORA", "r", RANK, "lora_alpha",
                          2 * RANK, "target_modules", targets);
    char *text = json_dumps(c, 0);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(text);
    json_decref(c);
}

static bool is_target(const af_module_spec *m, const json_t *targets)
{
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        if (m->layer >= 0 && af_path_in_list(m->path, &name, 1))
            return true;
    }
    return false;
}

/* A and B of every target: declared (without rules), then written. */
static void adapter_tensors(af_safetensors_writer *w, const af_model_spec *s, const json_t *targets,
                            const json_t *rules)
{
    af_error err = {0};
    for (int i = 0; i < 2 * s->modules; i++) {
        const af_module_spec *m = &s->module[i / 2];
        char name[AF_ADAPTER_NAME_BYTES];
        const int64_t dim[2] = {i % 2 ? m->out : RANK, i % 2 ? RANK : m->in};
        if (!is_target(m, targets))
            continue;
        af_adapter_low_name(name, m, i % 2 ? 'B' : 'A');
        if (!rules)
            CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, 2, &err), err);
        else
            formula_tensor(w, rules, name, dim[0] * dim[1]);
    }
}

/* router: the range of B of a router. */
static void write_adapter(const char *dir, const json_t *targets, double router)
{
    json_t *rules = json_pack("[[sif], [sif]]", "router.classifier.lora_B", 0, router, "", 0, 0.1);
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    af_safetensors_writer *w;
    char path[256];
    write_config(dir, targets);
    CHECK_OK(af_hf_config_read(&c, dir, &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    adapter_tensors(w, &s, targets, NULL);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    adapter_tensors(w, &s, targets, rules);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    json_decref(rules);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

static void remove_adapter(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    unlink(path);
}

static void check_family(const char *name, const json_t *j)
{
    formula_model f;
    model_case c;
    af_error err = {0};
    const json_t *lora = json_object_get(j, "lora"), *want = json_object_get(lora, "logits");
    double worst = 0, most = 1;
    formula_model_write(&f, j);
    write_adapter(f.dir, json_object_get(lora, "target_modules"), 0.1);
    case_open(&c, f.dir, &(case_opts){.rows = f.len[0], .seqs = 1, .adapter = f.dir});
    case_run(&c, f.ids, NULL, f.len, 1);
    float *x = case_read(&c, c.logits);
    const int64_t V = af_loader_spec(c.loader)->vocab;
    assert_int_equal(json_array_size(want), V);
    for (int64_t v = 0; v < V; v++) {
        const double y = json_number_value(json_array_get(want, (size_t)v));
        worst = fmax(worst, fabs(x[(f.len[0] - 1) * V + v] - y));
        most = fmax(most, fabs(y));
    }
    print_message("%s: logits %.1e from PEFT's\n", name, worst);
    CHECK_MSG(worst < 2e-5 * most, "%s: logits differ by %g from PEFT's", name, worst);
    /* neither can be merged */
    const af_merge_adapter_opts o = {.adapter = {f.dir}, .weight = {1}, .adapters = 1};
    assert_true(af_merge_adapters(f.dir, "/tmp/afinar-family-never", &o, NULL, &err) != AF_OK);
    CHECK_MSG(strstr(err.msg, "cannot be merged") || strstr(err.msg, "round their inputs"), "%s",
              err.msg);
    free(x);
    case_close(&c);
    remove_adapter(f.dir);
    formula_model_clear(&f);
}

static void test_adapters_are_those_of_peft(void **state)
{
    (void)state;
    char root[4096], path[4400];
    struct dirent **list;
    int seen = 0;
    snprintf(root, sizeof root, "%s/families", golden_dir());
    const int n = scandir(root, &list, NULL, NULL);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, list[i]->d_name);
        json_t *j = strstr(path, ".json") ? read_json(path) : NULL;
        if (json_object_get(j, "lora")) {
            check_family(list[i]->d_name, j);
            seen++;
        }
        json_decref(j);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    assert_true(seen >= 2);
}

/* PEFT's all-linear has the router of longcat_flash, which no gradient reaches: B stays 0. */
static void test_an_unmoved_router_is_left_out(void **state)
{
    (void)state;
    char path[4400];
    snprintf(path, sizeof path, "%s/families/longcat_flash.json", golden_dir());
    json_t *j = read_json(path), *targets = json_pack("[ss]", "q_b_proj", "classifier");
    for (int moved = 0; moved < 2; moved++) {
        formula_model f;
        af_hf_config c;
        af_model_spec s;
        af_adapter *a = NULL;
        af_error err = {0};
        formula_model_write(&f, j);
        write_adapter(f.dir, targets, moved);
        CHECK_OK(af_hf_config_read(&c, f.dir, &err), err);
        CHECK_OK(af_model_spec_init(&s, &c, &err), err);
        const af_status st = af_adapter_read(&a, &s, f.dir, &err);
        CHECK_MSG((st == AF_OK) == !moved, "moved %d: %s", moved, err.msg);
        af_adapter_free(a);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
        remove_adapter(f.dir);
        formula_model_clear(&f);
    }
    json_decref(targets);
    json_decref(j);
}

/* New tokens would need new values of the head's bias. */
static void test_a_head_with_a_bias_takes_no_new_tokens(void **state)
{
    static const char *const families[] = {"phi", "gptj"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(families); i++) {
        char path[4400];
        formula_model f;
        af_error err = {0};
        af_loader *l = NULL;
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), families[i]);
        json_t *j = read_json(path);
        formula_model_write(&f, j);
        const af_loader_opts plain = {.compute = AF_DTYPE_F32};
        CHECK_OK(af_loader_open(&l, f.dir, &plain, &err), err);
        const int64_t vocab = af_loader_spec(l)->vocab;
        af_loader_close(l);
        const af_loader_opts grown = {.compute = AF_DTYPE_F32, .vocab = vocab + 2};
        assert_int_equal(af_loader_open(&l, f.dir, &grown, &err), AF_EUNSUPPORTED);
        CHECK_MSG(strstr(err.msg, "takes no new tokens: its head has a bias"), "%s", err.msg);
        formula_model_clear(&f);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters_are_those_of_peft),
        cmocka_unit_test(test_an_unmoved_router_is_left_out),
        cmocka_unit_test(test_a_head_with_a_bias_takes_no_new_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
