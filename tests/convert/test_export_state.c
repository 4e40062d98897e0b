/* test_export_state.c - GGUF files of families with state layers: lfm2 comes back as it was, the
 * types that have no layout here are refused before anything is written. */
#include "convert_case.h"

#include "format/weights/weights.h"

static void family_dir(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/golden/families/%s", shared_dir(), name);
}

/* The stored bytes of a tensor under its two names. */
static void same_values(const af_weights *a, const char *hf, const af_weights *b, const char *gguf)
{
    const af_stored *x = af_weights_find(a, hf), *y = af_weights_find(b, gguf);
    CHECK_MSG(x && y && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0,
              "%s and %s differ", hf, gguf);
}

static void test_lfm2(void **state)
{
    (void)state;
    char model[4400], out[600];
    scratch_dir d = scratch_new();
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    af_weights *a, *b;
    af_error err = {0};
    if (!shared_dir())
        skip_because("no shared goldens");
    family_dir(model, sizeof model, "lfm2");
    CHECK_OK(af_export(model, join(out, sizeof out, d.path, "m.gguf"),
                       &(af_export_opts){.type = "f32"}, &r, &v, &err),
             err);
    assert_true(v.ok); /* the file, read again, gives the same logits */
    CHECK_OK(af_weights_open(&a, model, &err), err);
    CHECK_OK(af_weights_open(&b, out, &err), err);
    same_values(a, "model.layers.0.conv.conv.weight", b, "blk.0.shortconv.conv.weight");
    same_values(a, "model.layers.2.conv.in_proj.weight", b, "blk.2.shortconv.in_proj.weight");
    same_values(a, "model.embedding_norm.weight", b, "token_embd_norm.weight");
    assert_int_equal(af_weights_find(b, "blk.0.shortconv.conv.weight")->ndim, 2);
    af_weights_close(a);
    af_weights_close(b);
    af_convert_report_free(r);
    scratch_free(&d);
}

/* Heads of values other than those of keys, a norm over several groups. */
static void test_others_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_next", "granitemoehybrid"};
    if (!shared_dir())
        skip_because("no shared goldens");
    for (size_t i = 0; i < AF_LEN(names); i++) {
        char model[4400], out[600];
        scratch_dir d = scratch_new();
        af_convert_report *r = NULL;
        af_verify_result v = {0};
        af_error err = {0};
        family_dir(model, sizeof model, names[i]);
        const af_status st = af_export(model, join(out, sizeof out, d.path, "m.gguf"),
                                       &(af_export_opts){.type = "f32"}, &r, &v, &err);
        CHECK_MSG(st == AF_EUNSUPPORTED && strstr(err.msg, "llama.cpp has no"), "%s: %s", names[i],
                  err.msg);
        assert_false(af_file_exists(out));
        scratch_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
