/* test_experts.c - runs on mixtures of experts against transformers + PEFT: adapters on experts,
 * full training with and without the router's loss; and what adapters on experts are on disk. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"
#include "train/weight_files.h"

#include "convert/adapter/adapter_gguf.h"
#include "format/weights/gguf.h"
#include "model/adapter.h"
#include "model/model_reader.h"

static void test_runs_follow_peft(void **state)
{
    (void)state;
    static const char *const runs[][2] = {{"qwen3_moe", "lora-experts"},
                                          {"mixtral", "lora-experts"},
                                          {"gpt_oss", "lora-experts"},
                                          {"mixtral", "full"}};
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600];
    snprintf(root, sizeof root, "%s/golden/families", shared);
    snprintf(data, sizeof data, "%s/golden/models/data/train.jsonl", shared);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(root, root, runs[i][0], runs[i][1], data);
}

/* The first step of two runs that differ in the auxiliary loss alone: of both micro-batches it is
 * added in full, and the row has their mean. */
static void test_the_auxiliary_loss_is_logged(void **state)
{
    (void)state;
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600], metrics[300], *text;
    uint64_t size;
    af_error err = {0};
    snprintf(root, sizeof root, "%s/golden/families", shared);
    snprintf(data, sizeof data, "%s/golden/models/data/train.jsonl", shared);
    check_run(root, root, "mixtral", "full-aux", data);
    snprintf(metrics, sizeof metrics, "%s/out/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, metrics, 1 << 24, &err), err);
    json_t *row = json_loadb(text, strcspn(text, "\n"), 0, NULL),
           *with = load(root, "mixtral/full-aux", "trajectory.json"),
           *without = load(root, "mixtral/full", "trajectory.json");
    const double got = json_number_value(json_object_get(row, "aux_loss"));
    double want = 0;
    for (int i = 0; i < 2; i++) {
        const json_t *steps = json_object_get(i ? without : with, "steps");
        const double loss = json_number_value(json_object_get(json_array_get(steps, 0), "loss"));
        want += (i ? -loss : loss) / 0.02 / 2;
    }
    CHECK_MSG(fabs(got - want) < 1e-4, "%.9g, not %.9g", got, want);
    free(text);
    json_decref(row);
    json_decref(with);
    json_decref(without);
}

/* ---- on disk ---- */

static void golden_path(char out[512], const char *name)
{
    snprintf(out, 512, "%s/%s", golden_dir(), name);
}

/* The tiny qwen3_moe of three layers, and its adapter by PEFT. */
static af_model_reader *open_model(af_adapter **adapter, const char *dir_or_null)
{
    char model[512], from[512];
    af_error err = {0};
    af_model_reader *in;
    golden_path(model, "judged/router-model");
    golden_path(from, "judged/experts-adapter");
    CHECK_OK(af_model_reader_open_list(&in, model, &err), err);
    CHECK_OK(af_model_reader_read_adapter(in, dir_or_null ? dir_or_null : from, adapter, &err),
             err);
    return in;
}

static void test_names_and_bytes_are_pefts(void **state)
{
    (void)state;
    char from[512], out[300], file[400];
    af_error err = {0};
    af_adapter *a;
    af_model_reader *in = open_model(&a, NULL);
    snprintf(out, sizeof out, "%s/adapter", dir);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", out);
    golden_path(from, "judged/experts-adapter/adapter_model.safetensors");
    CHECK_OK(af_adapter_write(a, out, &err), err);
    same_weights(from, file);
    char *text;
    uint64_t size;
    snprintf(file, sizeof file, "%s/adapter_config.json", out);
    CHECK_OK(af_file_read(&text, &size, file, 1 << 20, &err), err);
    json_t *config = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(config, "target_parameters")), 2);
    json_decref(config);
    free(text);
    af_adapter_free(a);
    af_model_reader_close(in);
}

/* llama.cpp has gate and up apart: A twice, B by halves, and one alpha for all. */
static void test_other_formats(void **state)
{
    (void)state;
    char from[512], path[300];
    af_error err = {0};
    af_adapter *a;
    af_gguf *g;
    af_model_reader *in = open_model(&a, NULL);
    snprintf(path, sizeof path, "%s/lora.gguf", dir);
    CHECK_OK(af_adapter_gguf_write(a, "lora", path, &err), err);
    CHECK_OK(af_gguf_open(&g, path, &err), err);
    const af_adapter_module *m = &a->module[a->spec->layer[2].module[AF_GROUP_EXPERTS_GATE_UP][0]];
    const af_stored *ga = af_gguf_find(g, "blk.2.ffn_gate_exps.weight.lora_a"),
                    *ua = af_gguf_find(g, "blk.2.ffn_up_exps.weight.lora_a"),
                    *ub = af_gguf_find(g, "blk.2.ffn_up_exps.weight.lora_b"),
                    *db = af_gguf_find(g, "blk.2.ffn_down_exps.weight.lora_b");
    CHECK_MSG(ga && ua && ub && db && ub->ndim == 3 && ub->dim[0] == 5 && ub->dim[1] == 4,
              "tensors of experts");
    CHECK_MSG(memcmp(ga->data, m->a, ga->bytes) == 0 && memcmp(ua->data, m->a, ua->bytes) == 0,
              "A of gate and up");
    /* expert 3, row 2 of up: row 4 + 2 of the parameter's */
    CHECK_MSG(((const float *)ub->data)[(3 * 4 + 2) * 4 + 1] == m->b[(3 * 8 + 6) * 4 + 1],
              "B of up");
    af_gguf_close(g);
    golden_path(from, "judged/experts-adapter");
    snprintf(path, sizeof path, "%s/mlx", dir);
    CHECK_MSG(af_adapter_to_mlx(from, path, false, &err) != AF_OK &&
                  strstr(err.msg, "target_parameters cannot be written for MLX"),
              "'%s'", err.msg);
    af_adapter_free(a);
    af_model_reader_close(in);
}

/* Row `row` of expert e of a parameter, by the formula. */
static double merged(const af_adapter *a, int m, int64_t e, int64_t row, int64_t col, double base)
{
    const af_module_spec *s = &a->spec->module[m];
    const af_adapter_module *am = &a->module[m];
    double sum = 0;
    for (int j = 0; j < am->rank; j++)
        sum += (double)am->b[(e * s->out + row) * am->rank + j] *
               (double)am->a[(e * am->rank + j) * s->in + col];
    return base + (double)am->scale * sum;
}

static void test_experts_stored_one_by_one_are_merged(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        bool up;
    } cases[] = {{"model.layers.1.mlp.experts.3.up_proj.weight", true},
                 {"model.layers.2.mlp.experts.4.down_proj.weight", false}};
    af_error err = {0};
    af_adapter *a;
    af_model_reader *in = open_model(&a, NULL);
    af_model_reader_set_adapter(in, a);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_model_tensor *t = af_model_reader_find(in, cases[i].tensor);
        const int layer = i ? 2 : 1, e = i ? 4 : 3;
        const af_group group = cases[i].up ? AF_GROUP_EXPERTS_GATE_UP : AF_GROUP_EXPERTS_DOWN;
        const int m = a->spec->layer[layer].module[group][0];
        const int64_t skip = cases[i].up ? a->spec->expert_ffn : 0;
        float row[64];
        af_tensor_view v;
        CHECK_OK(af_tensor_view_open(&v, in, t, &err), err);
        for (int64_t r = 0; r < t->dim[0]; r++) {
            af_tensor_view_rows(&v, r, 1, row);
            for (int64_t c = 0; c < t->dim[1]; c++) {
                const double base = ((const float *)t->stored->data)[r * t->dim[1] + c];
                const double want = merged(a, m, e, skip + r, c, base);
                CHECK_MSG(fabs(row[c] - want) < 1e-6, "%s [%d][%d]: %g, not %g", cases[i].tensor,
                          (int)r, (int)c, (double)row[c], want);
            }
        }
        af_tensor_view_close(&v);
    }
    af_model_reader_close(in);
}

/* What PEFT wrote when every expert was a module: element k of a tensor is known by its name. */
static float old_value(int layer, int e, int part, bool b, int64_t k)
{
    return 0.01f * (float)(1 + layer) + 0.1f * (float)e + (float)part + (b ? 0.5f : 0) +
           0.001f * (float)k;
}

static void write_old(const char *to)
{
    enum { R = 2, D = 8, F = 4 };
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char path[400], name[200];
    float data[R * D];
    af_error err = {0};
    af_safetensors_writer *w;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", to);
    CHECK_OK(af_dir_make(to, &err), err);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3 * 5 * 3 * 2; i++) {
            const int b = i % 2, part = i / 2 % 3, e = i / 6 % 5, layer = i / 30;
            const int64_t in = part == 2 ? F : D, out = part == 2 ? D : F;
            const int64_t dim[2] = {b ? out : R, b ? R : in};
            snprintf(name, sizeof name,
                     "base_model.model.model.layers.%d.mlp.experts.%d.%s.lora_%c.weight", layer, e,
                     parts[part], b ? 'B' : 'A');
            for (int64_t k = 0; k < dim[0] * dim[1]; k++)
                data[k] = old_value(layer, e, part, b, k);
            if (pass == 0)
                CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, 2, &err), err);
            else
                CHECK_OK(af_safetensors_writer_data(
                             w, data, (uint64_t)(dim[0] * dim[1]) * sizeof *data, &err),
                         err);
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    const char *config = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 6, "
                         "\"target_modules\": [\"gate_proj\", \"up_proj\", \"down_proj\"]}";
    snprintf(path, sizeof path, "%s/adapter_config.json", to);
    CHECK_OK(af_file_write(path, config, strlen(config), &err), err);
}

/* PEFT 0.21 makes of it a parameter of twice the rank: gate's ranks, then up's. */
static void test_a_module_for_every_expert(void **state)
{
    (void)state;
    char old[300];
    af_adapter *a;
    snprintf(old, sizeof old, "%s/old", dir);
    write_old(old);
    af_model_reader *in = open_model(&a, old);
    const af_layer_spec *l = &a->spec->layer[1];
    const af_adapter_module *gu = &a->module[l->module[AF_GROUP_EXPERTS_GATE_UP][0]],
                            *down = &a->module[l->module[AF_GROUP_EXPERTS_DOWN][0]];
    assert_int_equal(gu->rank, 4);
    assert_int_equal(down->rank, 2);
    CHECK_MSG(gu->scale == 3 && down->scale == 3, "scales %g, %g", (double)gu->scale,
              (double)down->scale);
    const int e = 3;
    CHECK_MSG(gu->a[(e * 4 + 1) * 8 + 5] == old_value(1, e, 0, false, 1 * 8 + 5), "A of gate");
    CHECK_MSG(gu->a[(e * 4 + 3) * 8 + 5] == old_value(1, e, 1, false, 1 * 8 + 5), "A of up");
    CHECK_MSG(gu->b[(e * 8 + 2) * 4 + 1] == old_value(1, e, 0, true, 2 * 2 + 1), "B of gate");
    CHECK_MSG(gu->b[(e * 8 + 4 + 2) * 4 + 3] == old_value(1, e, 1, true, 2 * 2 + 1), "B of up");
    CHECK_MSG(gu->b[(e * 8 + 2) * 4 + 3] == 0 && gu->b[(e * 8 + 6) * 4 + 1] == 0, "apart");
    CHECK_MSG(down->b[(e * 8 + 7) * 2 + 1] == old_value(1, e, 2, true, 7 * 2 + 1), "B of down");
    af_adapter_free(a);
    af_model_reader_close(in);
}

/* ---- run files ---- */

static af_status short_run(const char *extra, af_error *err)
{
    char path[300];
    af_buf b = {0};
    af_train_result result;
    af_buf_printf(&b,
                  "base_model: %s/judged/router-model\ndatasets: [{path: %s/judged/router.jsonl, "
                  "type: tokens}]\noutput_dir: %s/short\ndevice: %s\nlearning_rate: 0.01\n"
                  "bf16: false\nmax_steps: 2\noverwrite_output_dir: true\n%s",
                  golden_dir(), golden_dir(), dir, test_device(), extra);
    snprintf(path, sizeof path, "%s/short.yaml", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, err), *err);
    af_buf_clear(&b);
    return af_train(path, NULL, 0, NULL, &result, err);
}

static void refused(const char *extra, const char *what)
{
    char text[400];
    af_error err = {0};
    snprintf(text, sizeof text, "adapter: lora\n%s", extra);
    const af_status st = short_run(text, &err);
    CHECK_MSG(st != AF_OK && strstr(err.msg, what), "%s: '%s'", extra, err.msg);
}

/* Whether a tensor of the model that a run leaves has the bytes of the base. */
static bool unchanged(const char *file, const char *name, const char *base_name)
{
    char path[512], from[512];
    snprintf(path, sizeof path, "%s/short/%s", dir, file);
    golden_path(from, "judged/router-model/model.safetensors");
    af_safetensors *x = open_weights(path), *y = open_weights(from);
    const af_stored *a = af_safetensors_find(x, name), *b = af_safetensors_find(y, base_name);
    CHECK_MSG(a && b && a->bytes == b->bytes, "'%s' or '%s'", name, base_name);
    const bool same = memcmp(a->data, b->data, a->bytes) == 0;
    af_safetensors_close(x);
    af_safetensors_close(y);
    return same;
}

static void test_routers_are_trained_or_frozen(void **state)
{
    (void)state;
    static const char router[] = "model.layers.1.mlp.gate.weight",
                      expert[] = "model.layers.1.mlp.experts.2.up_proj.weight";
    af_error err = {0};
    CHECK_OK(short_run("", &err), err);
    CHECK_MSG(!unchanged("model.safetensors", router, router), "full training");
    CHECK_OK(short_run("unfrozen_parameters: ['^(?!.+mlp.gate)']\n", &err), err);
    CHECK_MSG(unchanged("model.safetensors", router, router), "a frozen router");
    CHECK_MSG(!unchanged("model.safetensors", expert, expert), "experts beside it");
    CHECK_OK(short_run("adapter: lora\nlora_modules_to_save: [mlp.gate]\n", &err), err);
    CHECK_MSG(!unchanged("adapter_model.safetensors",
                         "base_model.model.model.layers.1.mlp.gate.weight", router),
              "a router next to adapters");
}

/* What the plan of the last short run says is trained. */
static int64_t planned(void)
{
    char path[300], *text = NULL;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/short.yaml", dir);
    CHECK_OK(af_train_plan(path, NULL, 0, 0, true, &text, &err), err);
    json_t *o = json_loads(text, 0, NULL);
    const int64_t n = json_integer_value(json_object_get(o, "trained_parameters"));
    json_decref(o);
    free(text);
    return n;
}

/* ms-swift's keys: what is not trained, by beginnings of names and by expressions, and what is
 * trained nevertheless. */
static void test_frozen_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.embed_tokens.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.2.up_proj.weight",
        "model.norm.weight"};
    static const struct {
        const char *keys, *same; /* by name: 1 = the base's bytes */
    } cases[] = {
        {"freeze_parameters: [model.embed_tokens, model.layers.1.]\n", "10110"},
        {"freeze_parameters_regex: 'mlp.gate\\.|^model.norm'\n", "01101"},
        {"freeze_parameters_ratio: 1.0\ntrainable_parameters: [model.layers.0.mlp]\n", "10111"},
        {"freeze_parameters: [model]\ntrainable_parameters_regex: '^model.norm|experts'\n",
         "11100"},
    };
    af_error err = {0};
    int64_t all = 0, some;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        CHECK_OK(short_run(cases[i].keys, &err), err);
        for (size_t k = 0; k < AF_LEN(names); k++)
            CHECK_MSG(unchanged("model.safetensors", names[k], names[k]) ==
                          (cases[i].same[k] == '1'),
                      "%s %s", cases[i].keys, names[k]);
    }
    CHECK_OK(short_run("", &err), err);
    all = planned();
    CHECK_OK(short_run("freeze_parameters: [model.norm.]\n", &err), err);
    some = planned();
    CHECK_OK(short_run("unfrozen_parameters: [model.norm.weight]\n", &err), err);
    assert_true(some < all && planned() == all - some);
    assert_int_equal(short_run("freeze_parameters_ratio: 1\ntrainable_parameters: [x]\n", &err),
                     AF_EUSAGE);
    assert_non_null(strstr(err.msg, "trainable_parameters 'x' matches no parameter"));
    assert_int_equal(short_run("freeze_parameters_ratio: 0.5\n", &err), AF_EUNSUPPORTED);
    CHECK_OK(short_run("freeze_parameters: [modle.norm]\n", &err), err); /* with a warning */
    assert_int_equal(planned(), all);
    static const char *const empty[] = {
        "freeze_parameters: [\"\"]\n", "unfrozen_parameters: [\"\"]\n",
        "freeze_parameters: [model]\ntrainable_parameters: [\"\"]\n"};
    for (size_t i = 0; i < AF_LEN(empty); i++) {
        assert_int_equal(short_run(empty[i], &err), AF_EUSAGE);
        CHECK_MSG(strstr(err.msg, "has an empty name"), "%s says '%s'", empty[i], err.msg);
    }
    CHECK_MSG(short_run("freeze_parameters_regex: 'norm)|(gate'\n", &err) != AF_OK &&
                  strstr(err.msg, "'norm)|(gate'"),
              "says '%s'", err.msg);
    assert_int_equal(short_run("freeze_parameters: [model.layers.1.mlp.experts.2.]\n", &err),
                     AF_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "freeze_parameters 'model"));
}

static void test_what_experts_cannot_have(void **state)
{
    (void)state;
    refused("lora_target_parameters: [mlp.experts.gate_up_proj]\nlora_dropout: 0.1\n",
            "lora_dropout above 0 is not possible on 'model.layers.0.mlp.experts.gate_up_proj'");
    refused("lora_target_parameters: [mlp.experts.down_proj]\npeft_use_dora: true\n",
            "DoRA is not possible");
    refused("lora_target_parameters: [mlp.experts.w1]\n",
            "target parameter 'mlp.experts.w1' matches nothing");
    refused("lora_target_parameters: []\n", "lora_target_parameters is an empty list");
    refused("lora_modules_to_save: [experts]\n", "holds experts");
    refused("lora_target_parameters: [mlp.experts.down_proj]\npeft_init_lora_weights: pissa\n",
            "'pissa' on 'model.layers.0.mlp.experts.down_proj' is not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_peft),
        cmocka_unit_test(test_the_auxiliary_loss_is_logged),
        cmocka_unit_test(test_names_and_bytes_are_pefts),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_experts_stored_one_by_one_are_merged),
        cmocka_unit_test(test_a_module_for_every_expert),
        cmocka_unit_test(test_what_experts_cannot_have),
        cmocka_unit_test(test_routers_are_trained_or_frozen),
        cmocka_unit_test(test_frozen_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
