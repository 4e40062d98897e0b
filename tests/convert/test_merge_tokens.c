/* test_merge_tokens.c - models with different vocabularies: ids of the union, rows of the
 * embedding, padding. */
#include "convert_case.h"

#include <jansson.h>

enum { PATH = 1024, V = 128, D = 32 };

/* The words w0 .. and one more, and one added token: 128 in all. */
static void write_tokenizer(const char *dir, const char *last_word, const char *added)
{
    char path[PATH], word[16];
    json_t *vocab = json_object();
    for (int i = 0; i < V - 2; i++) {
        snprintf(word, sizeof word, "w%d", i);
        json_object_set_new(vocab, word, json_integer(i));
    }
    json_object_set_new(vocab, last_word, json_integer(V - 2));
    json_t *t = json_pack("{s:s, s:[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}], s:{s:s, s:o, s:[]}}",
                          "version", "1.0", "added_tokens", "id", V - 1, "content", added,
                          "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1,
                          "model", "type", "BPE", "vocab", vocab, "merges");
    assert_int_equal(
        json_dump_file(t, join(path, sizeof path, dir, "tokenizer.json"), JSON_COMPACT), 0);
    json_decref(t);
}

static void make_model(const char *dir, const char *name, const char *last_word, const char *added)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    af_error err = {0};
    char from[PATH], to[PATH], sub[128];
    CHECK_OK(af_dir_make(dir, &err), err);
    for (size_t i = 0; i < 2; i++) {
        snprintf(sub, sizeof sub, "merge/models/%s/%s", name, files[i]);
        CHECK_OK(af_file_copy(join(from, sizeof from, golden_dir(), sub),
                              join(to, sizeof to, dir, files[i]), &err),
                 err);
    }
    write_tokenizer(dir, last_word, added);
}

typedef struct pair {
    scratch_dir d;
    char base[PATH], a[PATH], out[PATH], yml[PATH];
} pair;

static void pair_new(pair *p)
{
    p->d = scratch_new();
    make_model(join(p->base, sizeof p->base, p->d.path, "base"), "base", "x", "<a>");
    make_model(join(p->a, sizeof p->a, p->d.path, "a"), "a", "y", "<b>");
    join(p->out, sizeof p->out, p->d.path, "out");
    join(p->yml, sizeof p->yml, p->d.path, "c.yml");
}

static af_status merge(pair *p, const char *tokenizer, af_error *err)
{
    char text[4 * PATH];
    const int n = snprintf(text, sizeof text,
                           "merge_method: linear\nbase_model: %s\nmodels:\n"
                           "  - {model: %s, parameters: {weight: 1}}\n"
                           "  - {model: %s, parameters: {weight: 3}}\ndtype: float32\n%s\n",
                           p->base, p->base, p->a, tokenizer);
    CHECK_OK(af_file_write(p->yml, text, (uint64_t)n, err), *err);
    return af_merge_file(p->yml, p->out, &(af_merge_opts){.threads = 2}, NULL, err);
}

static const float *embedding(af_weights **w, const char *dir, int64_t rows)
{
    af_error err = {0};
    CHECK_OK(af_weights_open(w, dir, &err), err);
    const af_stored *t = af_weights_find(*w, "model.embed_tokens.weight");
    assert_true(t && t->dtype == AF_DTYPE_F32 && t->dim[0] == rows && t->dim[1] == D);
    return t->data;
}

static int64_t id_of(const json_t *tokenizer, const char *word)
{
    const json_t *v =
        json_object_get(json_object_get(json_object_get(tokenizer, "model"), "vocab"), word);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* base: w0..w125 x <a>;  a: w0..w125 y <b>;  union: base's, then y, then <b>, then padding */
static void test_union_has_a_row_for_every_token(void **state)
{
    pair p;
    af_error err = {0};
    char path[PATH];
    af_weights *wb, *wa, *wo;
    (void)state;
    pair_new(&p);
    CHECK_OK(merge(&p, "tokenizer: {source: union, pad_to_multiple_of: 4}", &err), err);
    json_t *t = json_load_file(join(path, sizeof path, p.out, "tokenizer.json"), 0, NULL);
    assert_non_null(t);
    assert_int_equal(id_of(t, "x"), 126);
    assert_int_equal(id_of(t, "y"), 128);
    /* in the vocabulary, or readers would number them after y */
    assert_int_equal(id_of(t, "<a>"), 127);
    assert_int_equal(id_of(t, "<b>"), 129);
    assert_int_equal(json_array_size(json_object_get(t, "added_tokens")), 2);
    json_decref(t);
    const float *b = embedding(&wb, p.base, V), *a = embedding(&wa, p.a, V),
                *o = embedding(&wo, p.out, 132);
    const struct {
        int row;
        const float *base, *a;
    } rows[] = {
        {5, b + 5 * D, a + 5 * D},       {126, b + 126 * D, b + 126 * D},
        {127, b + 127 * D, b + 127 * D}, {128, a + 126 * D, a + 126 * D},
        {129, a + 127 * D, a + 127 * D},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < D; k++) {
            const float want = (rows[i].base[k] + 3 * rows[i].a[k]) / 4;
            CHECK_MSG(fabsf(o[rows[i].row * D + k] - want) < 1e-6f, "row %d", rows[i].row);
        }
    for (int k = 0; k < D; k++) { /* padding is the mean of the other rows */
        double mean = 0;
        for (int r = 0; r < 130; r++)
            mean += o[r * D + k] / 130.0;
        assert_true(fabs(o[130 * D + k] - mean) < 1e-6 && fabs(o[131 * D + k] - mean) < 1e-6);
    }
    af_weights_close(wb);
    af_weights_close(wa);
    af_weights_close(wo);
    scratch_free(&p.d);
}

static void test_tokens_come_from_where_the_file_says(void **state)
{
    pair p;
    af_error err = {0};
    char text[3 * PATH];
    af_weights *wa, *wo;
    (void)state;
    pair_new(&p);
    snprintf(text, sizeof text,
             "tokenizer: {source: base, tokens: {w3: {source: %s, force: true}, "
             "\"<new>\": {source: {kind: zero}}, w4: {source: {kind: model_token, model: %s, "
             "token: y}, force: true}}}",
             p.a, p.a);
    CHECK_OK(merge(&p, text, &err), err);
    const float *a = embedding(&wa, p.a, V), *o = embedding(&wo, p.out, 129);
    for (int k = 0; k < D; k++) {
        assert_true(fabsf(o[3 * D + k] - a[3 * D + k]) < 1e-6f);
        assert_true(fabsf(o[4 * D + k] - a[126 * D + k]) < 1e-6f);
        assert_true(o[128 * D + k] == 0);
    }
    af_weights_close(wa);
    af_weights_close(wo);
    scratch_free(&p.d);
}

/* The tokenizer of a folder that is not merged: its ids, rows by text, zeros where no model has
 * one. */
static void test_a_tokenizer_may_come_from_outside(void **state)
{
    pair p;
    af_error err = {0};
    char other[PATH], text[2 * PATH], path[PATH];
    af_weights *wa, *wo;
    (void)state;
    pair_new(&p);
    CHECK_OK(af_dir_make(join(other, sizeof other, p.d.path, "other"), &err), err);
    write_tokenizer(other, "y", "<c>");
    snprintf(text, sizeof text, "tokenizer_source: %s", other);
    CHECK_OK(merge(&p, text, &err), err);
    json_t *t = json_load_file(join(path, sizeof path, p.out, "tokenizer.json"), 0, NULL);
    assert_int_equal(id_of(t, "y"), 126);
    assert_int_equal(id_of(t, "x"), -1);
    json_decref(t);
    assert_true(af_file_exists(join(path, sizeof path, p.out, "config.json")));
    const float *a = embedding(&wa, p.a, V), *o = embedding(&wo, p.out, V);
    for (int k = 0; k < D; k++) {
        assert_true(fabsf(o[126 * D + k] - a[126 * D + k]) < 1e-6f);
        assert_true(o[127 * D + k] == 0);
    }
    af_weights_close(wa);
    af_weights_close(wo);
    scratch_free(&p.d);
}

static void test_impossible_rows_are_refused(void **state)
{
    static const struct {
        const char *tokenizer, *says;
    } cases[] = {
        {"tokenizer: {source: base, tokens: {w3: {source: nobody}}}", "not a model of this merge"},
        {"tokenizer: {source: nobody}", "not union, base"},
        {"tokenizer: {source: base, pad_to_multiple_of: 0}", "pad_to_multiple_of"},
    };
    pair p;
    char text[3 * PATH];
    af_error err = {0};
    (void)state;
    pair_new(&p);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_not_equal(merge(&p, cases[i].tokenizer, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].says), "says '%s'", err.msg);
        assert_false(af_dir_exists(p.out));
    }
    snprintf(text, sizeof text,
             "tokenizer: {source: base, tokens: {w3: {source: {kind: model_token, model: %s, "
             "token_id: 999}, force: true}}}",
             p.a);
    assert_int_not_equal(merge(&p, text, &err), AF_OK);
    CHECK_MSG(strstr(err.msg, "does not have it"), "says '%s'", err.msg);
    scratch_free(&p.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union_has_a_row_for_every_token),
        cmocka_unit_test(test_tokens_come_from_where_the_file_says),
        cmocka_unit_test(test_a_tokenizer_may_come_from_outside),
        cmocka_unit_test(test_impossible_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
