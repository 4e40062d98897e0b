/* test_adapter_pairs.c - LoHa and LoKr: the change of a weight from what is stored, and as LoRA,
 * against the definition in double. */
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "format/weights/safetensors.h"
#include "model/adapter_config.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

enum { OUT = 40, IN = 72 }; /* of gate_proj: panels of 32, 32 and 8 columns */

static const char model[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":8,"
    "\"hidden_size\":72,\"intermediate_size\":40,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"max_position_embeddings\":16}";

/* W1 or W2 as it is stored: whole, or [rows][rank] and [rank][cols]. */
typedef struct side {
    int64_t rows, rank, cols; /* rank 0: whole */
} side;

typedef struct pair_case {
    const char *why, *type;
    int r;
    side one, two;
} pair_case;

static const pair_case cases[] = {
    {"LoHa", "LOHA", 3, {OUT, 3, IN}, {OUT, 3, IN}},
    {"LoHa of rank 64", "LOHA", 64, {OUT, 64, IN}, {OUT, 64, IN}},
    {"LoKr of two products", "LOKR", 4, {5, 4, 8}, {8, 4, 9}},
    {"LoKr, W1 whole", "LOKR", 6, {2, 0, 2}, {20, 6, 36}},
    {"LoKr, W1 wider than a panel", "LOKR", 6, {20, 6, 36}, {2, 0, 2}},
    {"LoKr of whole matrices", "LOKR", 5, {4, 0, 9}, {10, 0, 8}},
    {"LoKr, whole W1 wider than a panel", "LOKR", 5, {20, 0, 36}, {2, 0, 2}},
    {"LoKr, whole W2 wider than a panel", "LOKR", 5, {4, 0, 2}, {10, 0, 36}},
    {"LoKr of one value", "LOKR", 2, {1, 0, 1}, {OUT, 2, IN}},
};

/* What the cases share. */
typedef struct fixture {
    char dir[64];
    af_model_spec spec;
    int module;
} fixture;

static void fixture_open(fixture *f)
{
    af_error err = {0};
    af_hf_config c;
    snprintf(f->dir, sizeof f->dir, "/tmp/af_pairs_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    CHECK_OK(af_hf_config_parse(&c, model, sizeof model - 1, "model", &err), err);
    CHECK_OK(af_model_spec_init(&f->spec, &c, &err), err);
    af_hf_config_clear(&c);
    for (f->module = 0; !strstr(f->spec.module[f->module].path, "gate_proj"); f->module++)
        assert_true(f->module < f->spec.modules);
}

static void fixture_close(fixture *f)
{
    af_error err = {0};
    af_model_spec_clear(&f->spec);
    CHECK_OK(af_path_remove(f->dir, &err), err);
}

/* Value i of matrix 0, 1 (W1) or 2, 3 (W2). */
static float value_of(int matrix, int64_t i)
{
    return (float)af_rng_normal(7, (uint64_t)matrix, (uint64_t)i);
}

static double at(const side *s, int matrix, int64_t row, int64_t col)
{
    double sum = 0;
    for (int64_t k = 0; k < s->rank; k++)
        sum +=
            (double)value_of(matrix, row * s->rank + k) * value_of(matrix + 1, k * s->cols + col);
    return s->rank ? sum : value_of(matrix, row * s->cols + col);
}

/* The change without the scale; the largest. */
static double define(const pair_case *p, double *out)
{
    const bool each = strcmp(p->type, "LOHA") == 0;
    const int64_t rows = each ? 1 : p->two.rows, cols = each ? 1 : p->two.cols;
    double most = 0;
    for (int64_t o = 0; o < OUT; o++)
        for (int64_t i = 0; i < IN; i++) {
            out[o * IN + i] = at(&p->one, 0, o / rows, i / cols) *
                              at(&p->two, 2, each ? o : o % rows, each ? i : i % cols);
            most = fmax(most, fabs(out[o * IN + i]));
        }
    return most;
}

static void put(af_safetensors_writer *w, const side *s, const char *part, int matrix, int pass)
{
    af_error err = {0};
    for (int k = 0; k < (s->rank ? 2 : 1); k++) {
        char name[128];
        const int64_t dim[2] = {s->rank && k ? s->rank : s->rows,
                                s->rank && !k ? s->rank : s->cols};
        snprintf(name, sizeof name, "base_model.model.model.layers.0.mlp.gate_proj.%s%s", part,
                 !s->rank ? ""
                 : k      ? "_b"
                          : "_a");
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, 2, &err), err);
        for (int64_t i = 0; pass && i < dim[0] * dim[1]; i++) {
            const float x = value_of(matrix + k, i);
            CHECK_OK(af_safetensors_writer_data(w, &x, sizeof x, &err), err);
        }
    }
}

static void put_adapter(const fixture *f, const pair_case *p)
{
    const bool each = strcmp(p->type, "LOHA") == 0;
    af_error err = {0};
    af_safetensors_writer *w = NULL;
    af_buf b = {0};
    char path[128];
    af_buf_printf(&b,
                  "{\"peft_type\":\"%s\",\"r\":%d,\"alpha\":%d,\"target_modules\":[\"gate_proj\"]}",
                  p->type, p->r, 2 * p->r); /* a scale of 2 */
    snprintf(path, sizeof path, "%s/adapter_config.json", f->dir);
    CHECK_OK(af_file_write(path, b.data, strlen(b.data), &err), err);
    af_buf_clear(&b);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", f->dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        put(w, &p->one, each ? "hada_w1" : "lokr_w1", 0, pass);
        put(w, &p->two, each ? "hada_w2" : "lokr_w2", 2, pass);
        if (!pass)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

static af_adapter *read_stored(const fixture *f)
{
    af_error err = {0};
    af_adapter *a = NULL;
    CHECK_OK(af_adapter_read_to_merge(&a, &f->spec, f->dir, AF_TABLES_OF_BASE, &err), err);
    return a;
}

static double worst_of(const float *have, const double *change)
{
    double worst = 0;
    for (int i = 0; i < OUT * IN; i++)
        worst = fmax(worst, fabs(have[i] - 2 * change[i]));
    return worst;
}

static void test_rows_are_those_of_the_definition(void **state)
{
    static float whole[OUT * IN], parts[OUT * IN];
    static double change[OUT * IN];
    (void)state;
    fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        put_adapter(&f, &cases[i]);
        af_adapter *a = read_stored(&f);
        const af_adapter_module *m = &a->module[f.module];
        const double most = define(&cases[i], change);
        memset(whole, 0, sizeof whole);
        memset(parts, 0, sizeof parts);
        af_adapter_pair_add(m, whole, 0, OUT, IN);
        /* f32 sums of up to 64 products against double */
        CHECK_MSG(worst_of(whole, change) < 2e-6 * most, "%s: %g of %g", cases[i].why,
                  worst_of(whole, change), most);
        for (int64_t r = 0, n = 1; r < OUT; r += n, n = n % 5 + 1)
            af_adapter_pair_add(m, parts + r * IN, r, AF_MIN(n, OUT - r), IN);
        CHECK_MSG(memcmp(whole, parts, sizeof whole) == 0, "%s: parts differ", cases[i].why);
        af_adapter_free(a);
    }
    fixture_close(&f);
}

static void test_the_same_change_as_lora(void **state)
{
    static float whole[OUT * IN];
    static double change[OUT * IN];
    (void)state;
    fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_adapter *a = NULL;
        put_adapter(&f, &cases[i]);
        CHECK_OK(af_adapter_read(&a, &f.spec, f.dir, &err), err);
        const af_adapter_module *m = &a->module[f.module];
        const double most = define(&cases[i], change);
        assert_int_equal(a->config.type, AF_PEFT_LORA);
        assert_null(m->pair);
        for (int o = 0; o < OUT; o++)
            for (int c = 0; c < IN; c++) {
                double sum = 0;
                for (int k = 0; k < m->rank; k++)
                    sum += (double)m->b[o * m->rank + k] * m->a[k * IN + c];
                whole[o * IN + c] = (float)(m->alpha / m->rank * sum);
            }
        CHECK_MSG(worst_of(whole, change) < 2e-6 * most, "%s: %g of %g", cases[i].why,
                  worst_of(whole, change), most);
        af_adapter_free(a);
    }
    fixture_close(&f);
}

/* As LoRA of rank 4096 it takes 1.75 MiB. */
static void test_memory_of_merging_is_that_of_the_file(void **state)
{
    const pair_case p = {"", "LOHA", 64, {OUT, 64, IN}, {OUT, 64, IN}};
    const uint64_t stored = 2 * 64 * (OUT + IN) * sizeof(float), most = UINT64_C(1) << 20;
    (void)state;
    fixture f;
    af_error err = {0};
    fixture_open(&f);
    put_adapter(&f, &p);
    af_adapter *a = read_stored(&f);
    CHECK_MSG(a->arena.bytes < stored + 16384, "%" PRIu64 " bytes for %" PRIu64, a->arena.bytes,
              stored);
    assert_int_equal(af_adapter_expand(a, "DIR", most, &err), AF_ENOMEM);
    CHECK_MSG(strstr(err.msg, "'DIR'") && strstr(err.msg, "takes 1.75 MiB") &&
                  strstr(err.msg, "1 MiB are free") && strstr(err.msg, "merge it"),
              "says '%s'", err.msg);
    CHECK_OK(af_adapter_expand(a, "DIR", 2 * most, &err), err);
    assert_int_equal(a->module[f.module].rank, 64 * 64);
    af_adapter_free(a);
    fixture_close(&f);
}

static void test_ranks_that_lora_cannot_have_are_only_merged(void **state)
{
    const pair_case p = {"", "LOHA", 257, {OUT, 257, IN}, {OUT, 257, IN}};
    (void)state;
    fixture f;
    af_error err = {0};
    af_adapter *a = NULL;
    fixture_open(&f);
    put_adapter(&f, &p);
    af_adapter_free(read_stored(&f));
    assert_int_equal(af_adapter_read(&a, &f.spec, f.dir, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "ranks above 65536") && strstr(err.msg, "gate_proj"), "says '%s'",
              err.msg);
    fixture_close(&f);
}

static void test_shapes_that_do_not_fit_are_refused(void **state)
{
    static const pair_case wrong[] = {
        {"LoHa of another width", "LOHA", 3, {OUT, 3, IN}, {OUT, 3, IN - 1}},
        {"LoHa, W1 of another width", "LOHA", 3, {OUT, 3, IN + 1}, {OUT, 3, IN}},
        {"LoHa of another height", "LOHA", 3, {OUT + 1, 3, IN}, {OUT, 3, IN}},
        {"LoKr of another height", "LOKR", 3, {5, 3, 8}, {7, 3, 9}},
        {"LoKr of almost the height", "LOKR", 3, {3, 3, 8}, {13, 3, 9}},
        {"LoKr of another width", "LOKR", 3, {5, 3, 9}, {8, 3, 9}},
        {"LoKr without rows", "LOKR", 3, {0, 0, 8}, {8, 3, 9}},
    };
    (void)state;
    fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        af_error err = {0};
        af_adapter *a = NULL;
        put_adapter(&f, &wrong[i]);
        CHECK_MSG(af_adapter_read_to_merge(&a, &f.spec, f.dir, AF_TABLES_OF_BASE, &err) ==
                      AF_EFORMAT,
                  "%s: '%s'", wrong[i].why, err.msg);
        CHECK_MSG(strstr(err.msg, "do not fit 40 x 72"), "%s: '%s'", wrong[i].why, err.msg);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_of_the_definition),
        cmocka_unit_test(test_the_same_change_as_lora),
        cmocka_unit_test(test_memory_of_merging_is_that_of_the_file),
        cmocka_unit_test(test_ranks_that_lora_cannot_have_are_only_merged),
        cmocka_unit_test(test_shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
