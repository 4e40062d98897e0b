/* test_adapter_mlx.c - adapters that mlx-lm wrote: values, configs, tied tables. */
#include "model_case.h"

#include "base/buf.h"
#include "format/weights/safetensors.h"
#include "model/adapter_config.h"
#include "model/model_reader.h"

#include <math.h>
#include <unistd.h>

static void turn(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

/* An adapter as mlx-lm writes it. */
static void write_mlx(const af_adapter *a, const char *dir)
{
    char path[256], text[256], name[600];
    af_error err = {0};
    af_safetensors_writer *w;
    const af_model_spec *s = a->spec;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    snprintf(text, sizeof text,
             "{\"fine_tune_type\": \"%s\", \"num_layers\": 16, \"model\": \"org/base\", "
             "\"lora_parameters\": {\"rank\": %d, \"scale\": %.17g, \"dropout\": 0.25}}",
             a->config.dora ? "dora" : "lora", a->config.r, a->config.alpha / a->config.r);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    snprintf(path, sizeof path, "%s/adapters.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->modules; i++) {
            const af_module_spec *m = &s->module[i];
            const af_adapter_module *am = &a->module[i];
            const struct {
                const char *tail;
                const float *data;
                int64_t rows, cols;
            } parts[] = {{"lora_a", am->a, am->rank, m->in},
                         {"lora_b", am->b, m->out, am->rank},
                         {"m", am->magnitude, 1, m->out}};
            for (int k = 0; k < 3 && am->rank; k++) {
                const uint64_t n = (uint64_t)(parts[k].rows * parts[k].cols);
                float *turned = parts[k].data ? malloc(n * sizeof *turned) : NULL;
                snprintf(name, sizeof name, "%s.%s", m->path, parts[k].tail);
                if (turned && pass) {
                    turn(turned, parts[k].data, parts[k].rows, parts[k].cols);
                    CHECK_OK(af_safetensors_writer_data(w, turned, n * sizeof *turned, &err), err);
                } else if (turned) {
                    const int64_t dim[] = {parts[k].cols, parts[k].rows};
                    CHECK_OK(
                        af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, k == 2 ? 1 : 2, &err),
                        err);
                }
                free(turned);
            }
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

static void test_folders_of_mlx_lm_are_read(void **state)
{
    static const char *const cases[][2] = {{"lora", "llama3_tiny"}, {"dora", "qwen2_tiny"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[] = "/tmp/af_adapter_XXXXXX", from[4096], sub[128];
        af_error err = {0};
        model_case c;
        af_adapter *a = NULL, *b = NULL;
        assert_non_null(mkdtemp(dir));
        snprintf(sub, sizeof sub, "models/adapters/%s", cases[i][0]);
        assert_true(case_dir(from, sizeof from, sub));
        case_open_base(&c, cases[i][1], false);
        const af_model_spec *s = af_loader_spec(c.loader);
        CHECK_OK(af_adapter_read(&a, s, from, &err), err);
        write_mlx(a, dir);
        CHECK_OK(af_adapter_read(&b, s, dir, &err), err);
        assert_true(!b->config.mlx && b->config.dora == a->config.dora);
        assert_true(b->config.dropout == 0.25);
        assert_string_equal(b->config.base_model, "org/base");
        for (int m = 0; m < s->modules; m++) {
            const af_adapter_module *x = &a->module[m], *y = &b->module[m];
            const uint64_t rank = (uint64_t)x->rank, out = (uint64_t)s->module[m].out;
            assert_int_equal(x->rank, y->rank);
            assert_true(fabs((double)(x->scale - y->scale)) <= 1e-6);
            if (!rank)
                continue;
            assert_memory_equal(x->a, y->a, rank * (uint64_t)s->module[m].in * sizeof(float));
            assert_memory_equal(x->b, y->b, rank * out * sizeof(float));
            if (x->magnitude)
                assert_memory_equal(x->magnitude, y->magnitude, out * sizeof(float));
        }
        af_adapter_free(b);
        b = NULL;
        snprintf(sub, sizeof sub, "%s/adapter_config.json", dir);
        static const char other[] = "{\"lora_parameters\": {\"rank\": 5}}";
        CHECK_OK(af_file_write(sub, other, sizeof other - 1, &err), err);
        assert_int_equal(af_adapter_read(&b, s, dir, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, "tensor 'model.layers."), "not the stored name: '%s'", err.msg);
        af_adapter_free(a);
        case_close(&c);
        CHECK_OK(af_path_remove(dir, &err), err);
    }
}

/* mlx-lm computes a tied head with the adapter of the embedding: A and B turned. */
static void test_mlx_lm_adapts_the_tied_head_with_the_embedding(void **state)
{
    char dir[] = "/tmp/af_adapter_XXXXXX", from[4096], base[4096];
    af_error err = {0};
    model_case c;
    af_adapter *a = NULL, *b = NULL;
    af_model_reader *in = NULL;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_true(case_dir(from, sizeof from, "models/adapters/embed"));
    assert_true(case_dir(base, sizeof base, "models/gemma2_tiny"));
    case_open_base(&c, "gemma2_tiny", false);
    const af_model_spec *s = af_loader_spec(c.loader);
    CHECK_OK(af_adapter_read(&a, s, from, &err), err);
    const af_adapter_module *e = &a->module[s->embed_module];
    assert_true(s->tied && e->rank && !a->module[s->head_module].rank);
    write_mlx(a, dir);
    CHECK_OK(af_adapter_read(&b, s, dir, &err), err);
    const af_adapter_module *h = &b->module[s->head_module];
    assert_int_equal(h->rank, e->rank);
    assert_true(h->scale == b->module[s->embed_module].scale);
    const int64_t rank = e->rank, vocab = s->module[s->embed_module].in;
    for (int64_t i = 0; i < rank * vocab; i++)
        assert_true(h->b[i] == e->a[i % rank * vocab + i / rank]);
    for (int64_t i = 0, n = s->module[s->embed_module].out; i < rank * n; i++)
        assert_true(h->a[i] == e->b[i % n * rank + i / n]);
    assert_int_equal(af_model_reader_open_merged(&in, base, dir, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "which is the head"), "says '%s'", err.msg);
    af_adapter_free(a);
    af_adapter_free(b);
    af_model_spec apart = *s; /* a head of its own has no adapter then */
    apart.tied = false;
    b = NULL;
    CHECK_OK(af_adapter_read(&b, &apart, dir, &err), err);
    assert_true(b->module[s->embed_module].rank && !b->module[s->head_module].rank);
    af_adapter_free(b);
    case_close(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_wrong_configs_of_mlx_lm(void **state)
{
    static const char *const cases[][2] = {
        {"{\"fine_tune_type\": \"full\", \"lora_parameters\": {}}", "fine_tune_type"},
        {"{\"lora_parameters\": {\"rank\": 0}}", "rank"},
        {"{\"lora_parameters\": {\"scale\": \"x\"}}", "scale"},
        {"{\"lora_parameters\": {\"dropout\": 1}}", "dropout"},
        {"{\"lora_parameters\": []}", "peft_type"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_arena arena = {0};
        af_adapter_config c;
        assert_int_equal(
            af_adapter_config_parse(&c, &arena, cases[i][0], strlen(cases[i][0]), "c.json", &err),
            AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' does not name '%s'", err.msg, cases[i][1]);
        af_arena_clear(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_of_mlx_lm_are_read),
        cmocka_unit_test(test_mlx_lm_adapts_the_tied_head_with_the_embedding),
        cmocka_unit_test(test_wrong_configs_of_mlx_lm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
