/* test_merge_golden.c - mergekit files against mergekit's own results, and properties of merges. */
#include "convert_case.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "worse.h"

#include <jansson.h>

enum { PATH = 1024 };

static char old_dir[PATH];

static int enter(void **state)
{
    char dir[PATH];
    (void)state;
    assert_non_null(getcwd(old_dir, sizeof old_dir));
    return chdir(join(dir, sizeof dir, golden_dir(), "merge")); /* paths are relative to it */
}

static int leave(void **state)
{
    (void)state;
    return chdir(old_dir);
}

static void merge(const char *config, const char *out, uint64_t seed, int threads)
{
    af_error err = {0};
    const af_merge_opts o = {.seed = seed, .threads = threads, .force = true};
    CHECK_OK(af_merge_file(config, out, &o, NULL, &err), err);
}

static void test_methods_agree_with_mergekit(void **state)
{
    static const struct {
        const char *name;
        double tol;      /* absolute; f32 sums in another order */
        double off_part; /* share that may be further away */
    } cases[] = {
        {"linear", 1e-6, 0},
        {"linear_raw", 1e-6, 0},
        {"linear_bf16", 8e-3, 0},
        {"slerp", 1e-6, 0},
        {"slerp_gradient", 1e-6, 0},
        {"nuslerp_base", 1e-6, 0},
        {"nuslerp_columns", 1e-6, 0},
        {"multislerp_base", 1e-6, 0},
        {"karcher", 1e-6, 0},
        {"task_arithmetic", 1e-6, 0},
        {"ties", 1e-6, 0},
        {"ties_raw", 1e-6, 0},
        {"ties_gradient", 1e-6, 0},
        {"breadcrumbs", 1e-6, 0},
        {"breadcrumbs_ties", 1e-6, 0},
        {"model_stock", 1e-6, 0},
        {"sce", 1e-6, 0},
        {"nearswap", 1e-6, 0},
        {"ram", 1e-6, 0},
        {"passthrough", 0, 0},
        {"arcee_fusion", 1e-6, 1e-3}, /* mergekit's KL is in f32: entries on the threshold flip */
    };
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[PATH], out[PATH], golden[PATH];
        snprintf(config, sizeof config, "%s.yml", cases[i].name);
        snprintf(golden, sizeof golden, "%s.safetensors", cases[i].name);
        merge(config, join(out, sizeof out, d.path, cases[i].name), 0, 2);
        const tensor_gap g = compare_files(out, golden, "", cases[i].tol);
        CHECK_MSG((double)g.off <= cases[i].off_part * (double)g.count,
                  "%s: %lld of %lld entries off, worst %g", cases[i].name, (long long)g.off,
                  (long long)g.count, g.worst);
    }
    scratch_free(&d);
}

/* The mask can be read off the result of one model: out = base + w d mask L1(d)/L1(d mask). */
static void check_mask(const char *out, double weight, double kept_want)
{
    af_error err = {0};
    af_weights *o = NULL, *b = NULL, *a = NULL;
    int64_t kept = 0, live = 0;
    double worst = 0;
    CHECK_OK(af_weights_open(&o, out, &err), err);
    CHECK_OK(af_weights_open(&b, "models/base", &err), err);
    CHECK_OK(af_weights_open(&a, "models/a", &err), err);
    for (int i = 0; i < af_weights_count(b); i++) {
        const af_stored *base = af_weights_at(b, i);
        if (strstr(base->name, "embed") || strstr(base->name, "lm_head"))
            continue; /* mergekit's fraction was counted without them */
        const float *x = af_weights_find(a, base->name)->data, *y = base->data;
        const float *z = af_weights_find(o, base->name)->data;
        double all = 0, masked = 0;
        const int64_t n = af_weight_count(base);
        for (int64_t k = 0; k < n; k++) {
            const float delta = x[k] - y[k]; /* a tiny one may be kept and still be invisible */
            const bool keep = fabs((double)z[k] - y[k]) > 0.5 * weight * fabs(delta);
            all += fabs(delta);
            masked += keep ? fabs(delta) : 0;
            kept += keep && delta != 0;
            live += delta != 0;
        }
        for (int64_t k = 0; k < n; k++) {
            const double delta = (double)x[k] - y[k];
            const bool keep = fabs((double)z[k] - y[k]) > 0.5 * weight * fabs(delta);
            const double want = y[k] + (keep ? weight * delta * all / masked : 0);
            worst = worse(worst, fabs(want - z[k]));
        }
    }
    assert_true(worst < 1e-6);
    CHECK_MSG(fabs((double)kept / (double)live - kept_want) < 0.015, "kept %g, not %g",
              (double)kept / (double)live, kept_want);
    af_weights_close(o);
    af_weights_close(b);
    af_weights_close(a);
}

static void test_random_masks_follow_the_formula(void **state)
{
    scratch_dir d = scratch_new();
    char out[PATH];
    (void)state;
    merge("dare_linear_one.yml", join(out, sizeof out, d.path, "dare"), 42, 2);
    check_mask(out, 0.9, 0.30);
    merge("della_linear_one.yml", join(out, sizeof out, d.path, "della"), 42, 2);
    check_mask(out, 0.9, 0.442); /* untouched entries have the low ranks */
    scratch_free(&d);
}

static void test_same_seed_same_bytes_any_threads(void **state)
{
    static const char *const cases[] = {"dare_ties", "della", "ties", "sce", "nuslerp_columns"};
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[PATH], a[PATH], b[PATH], c[PATH];
        snprintf(config, sizeof config, "%s.yml", cases[i]);
        merge(config, join(a, sizeof a, d.path, "a"), 7, 1);
        merge(config, join(b, sizeof b, d.path, "b"), 7, 5);
        merge(config, join(c, sizeof c, d.path, "c"), 8, 2);
        CHECK_MSG(same_tensors(a, b), "%s", cases[i]);
        CHECK_MSG(same_tensors(a, c) == (i > 1), "%s: the seed", cases[i]);
    }
    scratch_free(&d);
}

static void write_config(const scratch_dir *d, const char *text, char *path, size_t size)
{
    af_error err = {0};
    join(path, size, d->path, "merge.yml");
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
}

static void test_a_model_with_itself_is_itself_bit_for_bit(void **state)
{
    static const char *const cases[] = {
        "merge_method: linear\nmodels:\n  - {model: models/a, parameters: {weight: 0.3}}\n"
        "  - {model: models/a, parameters: {weight: 0.45}}\n",
        "merge_method: slerp\nbase_model: models/a\nparameters: {t: 0.37}\nslices:\n"
        "  - sources: [{model: models/a, layer_range: [0, 2]}, {model: ./models/a, layer_range: "
        "[0, "
        "2]}]\n",
        "merge_method: ties\nbase_model: models/a\nmodels:\n"
        "  - {model: ./models/a, parameters: {weight: 0.5, density: 0.5}}\n"
        "  - {model: models/../models/a, parameters: {weight: 0.7}}\n",
        "merge_method: model_stock\nbase_model: models/a\nmodels:\n  - model: ./models/a\n"
        "  - model: models/../models/a\n",
    };
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[PATH], out[PATH];
        write_config(&d, cases[i], config, sizeof config);
        merge(config, join(out, sizeof out, d.path, "out"), 0, 2);
        CHECK_MSG(same_tensors(out, "models/a"), "case %d", (int)i);
    }
    scratch_free(&d);
}

/* No dtype in the file: one input in bf16 does not round the others, whichever comes first. */
static void test_mixed_inputs_without_a_dtype_give_f32(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        scratch_dir d = scratch_new();
        af_error err = {0};
        af_weights *w = NULL;
        char text[3 * PATH], config[PATH], half[PATH], out[PATH];
        write_config(
            &d, "merge_method: passthrough\nout_dtype: bfloat16\nmodels: [{model: models/a}]\n",
            config, sizeof config);
        merge(config, join(half, sizeof half, d.path, "half"), 0, 1);
        snprintf(
            text, sizeof text,
            "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: %s}, {model: %s}]\n",
            first ? "models/b" : half, first ? half : "models/b");
        write_config(&d, text, config, sizeof config);
        merge(config, join(out, sizeof out, d.path, "out"), 0, 1);
        CHECK_OK(af_weights_open(&w, out, &err), err);
        for (int k = 0; k < af_weights_count(w); k++)
            assert_int_equal(af_weights_at(w, k)->dtype, AF_DTYPE_F32);
        af_weights_close(w);
        scratch_free(&d);
    }
}

/* A tied model and one with a separate head, in either order: the result has a head. */
static void test_a_separate_head_is_merged_with_a_tied_one(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        scratch_dir d = scratch_new();
        af_error err = {0};
        af_weights *w = NULL, *a = NULL, *b = NULL;
        char text[3 * PATH], config[PATH], tied[PATH], out[PATH], path[PATH];
        CHECK_OK(af_dir_make(join(tied, sizeof tied, d.path, "tied"), &err), err);
        copy_without_head("models/a/model.safetensors",
                          join(path, sizeof path, tied, "model.safetensors"));
        json_t *c = json_load_file("models/a/config.json", 0, NULL);
        json_object_set_new(c, "tie_word_embeddings", json_true());
        assert_int_equal(json_dump_file(c, join(path, sizeof path, tied, "config.json"), 0), 0);
        json_decref(c);
        snprintf(text, sizeof text,
                 "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: %s}, {model: "
                 "%s}]\n",
                 first ? "models/b" : tied, first ? tied : "models/b");
        write_config(&d, text, config, sizeof config);
        merge(config, join(out, sizeof out, d.path, "out"), 0, 1);
        CHECK_OK(af_weights_open(&w, out, &err), err);
        CHECK_OK(af_weights_open(&a, tied, &err), err);
        CHECK_OK(af_weights_open(&b, "models/b", &err), err);
        const af_stored *head = af_weights_find(w, "lm_head.weight");
        assert_non_null(head);
        const float *x = head->data, *y = af_weights_find(a, "model.embed_tokens.weight")->data,
                    *z = af_weights_find(b, "lm_head.weight")->data;
        for (int64_t i = 0; i < af_weight_count(head); i++)
            assert_true(fabsf(x[i] - (y[i] + z[i]) / 2) < 1e-6f);
        c = json_load_file(join(path, sizeof path, out, "config.json"), 0, NULL);
        assert_true(json_is_false(json_object_get(c, "tie_word_embeddings")));
        json_decref(c);
        af_weights_close(w);
        af_weights_close(a);
        af_weights_close(b);
        scratch_free(&d);
    }
}

/* A copy of models/base with one value everywhere: differences are then equal to the last bit. */
static void filled(const scratch_dir *d, const char *name, float value)
{
    char dir[PATH], path[PATH], *file = NULL, *config = NULL;
    uint64_t size = 0, config_size = 0;
    af_safetensors *s = NULL;
    af_error err = {0};
    CHECK_OK(af_dir_make(join(dir, sizeof dir, d->path, name), &err), err);
    CHECK_OK(af_file_read(&config, &config_size, "models/base/config.json", 1 << 20, &err), err);
    CHECK_OK(af_file_write(join(path, sizeof path, dir, "config.json"), config, config_size, &err),
             err);
    CHECK_OK(af_file_read(&file, &size, "models/base/model.safetensors", 1 << 26, &err), err);
    CHECK_OK(af_safetensors_parse(&s, file, size, "base", &err), err);
    for (int i = 0; i < af_safetensors_count(s); i++) {
        const af_stored *t = af_safetensors_at(s, i);
        assert_int_equal(t->dtype, AF_DTYPE_F32);
        float *x = (float *)(file + ((const char *)t->data - file));
        for (uint64_t k = 0; k < t->bytes / 4; k++)
            x[k] = value;
    }
    af_safetensors_close(s);
    CHECK_OK(af_file_write(join(path, sizeof path, dir, "model.safetensors"), file, size, &err),
             err);
    free(file);
    free(config);
}

static void merge_text(const scratch_dir *d, const char *text, char *out, size_t size)
{
    char config[PATH], full[4 * PATH];
    snprintf(full, sizeof full, text, d->path, d->path, d->path);
    write_config(d, full, config, sizeof config);
    merge(config, join(out, size, d->path, "out"), 0, 2);
}

/* Votes that cancel count as positive, as in mergekit: what went up stays. */
static void test_a_tie_of_votes_is_positive(void **state)
{
    scratch_dir d = scratch_new();
    char out[PATH], up[PATH];
    (void)state;
    filled(&d, "zero", 0);
    filled(&d, "up", 1);
    filled(&d, "down", -1);
    merge_text(&d,
               "merge_method: ties\nbase_model: %s/zero\nmodels:\n"
               "  - {model: %s/down, parameters: {weight: 1, density: 1}}\n"
               "  - {model: %s/up, parameters: {weight: 1, density: 1}}\n",
               out, sizeof out);
    assert_true(same_tensors(out, join(up, sizeof up, d.path, "up")));
    scratch_free(&d);
}

/* Of changes of one size only as many are kept as the density allows, the first ones. */
static void test_equal_magnitudes_do_not_exceed_the_density(void **state)
{
    scratch_dir d = scratch_new();
    char out[PATH];
    af_error err = {0};
    af_weights *a = NULL;
    (void)state;
    filled(&d, "zero", 0);
    filled(&d, "up", 1);
    merge_text(&d,
               "merge_method: ties\nbase_model: %s/zero\nmodels:\n"
               "  - {model: %s/up, parameters: {weight: 1, density: 0.25}}\n#%s\n",
               out, sizeof out);
    CHECK_OK(af_weights_open(&a, out, &err), err);
    for (int i = 0; i < af_weights_count(a); i++) {
        const af_stored *x = af_weights_at(a, i);
        const uint64_t n = x->bytes / 4, keep = (uint64_t)(0.25 * (double)n);
        for (uint64_t k = 0; n > 4 && k < n; k++)
            CHECK_MSG((((const float *)x->data)[k] != 0) == (k < keep), "%s: value %d of %d",
                      x->name, (int)k, (int)n);
    }
    af_weights_close(a);
    scratch_free(&d);
}

/* Weights that cancel mean the middle, as equal weights do. */
static void test_nuslerp_weights_that_cancel_mean_the_middle(void **state)
{
    scratch_dir d = scratch_new();
    char out[PATH], half[PATH];
    (void)state;
    for (int i = 0; i < 2; i++) {
        merge_text(&d,
                   i ? "merge_method: nuslerp\nmodels:\n"
                       "  - {model: models/a, parameters: {weight: 1}}\n"
                       "  - {model: models/b, parameters: {weight: 1}}\n#%s%s%s\n"
                     : "merge_method: nuslerp\nmodels:\n"
                       "  - {model: models/a, parameters: {weight: 1}}\n"
                       "  - {model: models/b, parameters: {weight: -1}}\n#%s%s%s\n",
                   out, sizeof out);
        if (i == 0)
            assert_int_equal(rename(out, join(half, sizeof half, d.path, "half")), 0);
    }
    assert_true(same_tensors(out, half));
    scratch_free(&d);
}

static void test_density_zero_keeps_nothing(void **state)
{
    scratch_dir d = scratch_new();
    char config[PATH], out[PATH];
    (void)state;
    write_config(&d,
                 "merge_method: ties\nbase_model: models/base\nmodels:\n"
                 "  - {model: models/a, parameters: {weight: 1, density: 0}}\n"
                 "  - {model: models/b, parameters: {weight: 1, density: 0}}\n",
                 config, sizeof config);
    merge(config, join(out, sizeof out, d.path, "out"), 0, 1);
    assert_true(same_tensors(out, "models/base"));
    scratch_free(&d);
}

static void test_what_a_file_gets_wrong_is_named(void **state)
{
    static const struct {
        const char *why, *text, *says;
    } cases[] = {
        {"unknown method", "models:\n  - model: models/a\nmerge_method: lineer\n",
         "merge.yml:3: unknown merge_method 'lineer'; did you mean 'linear'?"},
        {"unknown parameter",
         "merge_method: linear\nmodels:\n  - model: models/a\n    parameters: {wieght: 1}\n",
         "merge.yml:4: method 'linear' has no parameter 'wieght'; did you mean 'weight'?"},
        {"unknown key", "merge_method: linear\ndtyp: float32\nmodels: [{model: models/a}]\n",
         "merge.yml:2: unknown key 'dtyp'; did you mean 'dtype'?"},
        {"no weight", "merge_method: linear\nmodels:\n  - model: models/a\n", "has no weight"},
        {"no base", "merge_method: ties\nmodels:\n  - {model: models/a, parameters: {weight: 1}}\n",
         "needs a base_model"},
        {"layers past the end",
         "merge_method: passthrough\nslices:\n  - sources: [{model: models/a, layer_range: [0, "
         "9]}]\n",
         "merge.yml:3: layer_range ends at 9, but 'models/a' has 2 layers"},
        {"no such model", "merge_method: passthrough\nmodels: [{model: models/zzz}]\n",
         "models/zzz"},
        {"a wrong value",
         "merge_method: linear\nmodels:\n  - {model: models/a, parameters: {weight: much}}\n",
         "merge.yml:3: 'weight' is 'much', not a number"},
        {"both forms", "merge_method: linear\nmodels: [{model: a}]\nslices: []\n", "not both"},
        {"two bodies", "merge_method: linear\nmodels: [{model: a}]\nmodules: {default: {}}\n",
         "merge.yml:3: exactly one of 'models', 'slices' and 'modules' is needed, not several"},
        {"another module",
         "merge_method: linear\nmodules: {vision_tower: {models: [{model: a}]}}\n",
         "merge.yml:2: module 'vision_tower' is not supported"},
        {"an empty module", "merge_method: linear\nmodules: {default: {}}\n", "not none"},
        {"no modules", "merge_method: linear\nmodules: []\n", "merge.yml:2: modules is not a map"},
        {"a typo in a module",
         "merge_method: linear\nmodules: {default: {models: [{model: models/a}], parameters: "
         "{wigth: "
         "1}}}\n",
         "merge.yml:2: method 'linear' has no parameter 'wigth'; did you mean 'weight'?"},
        {"a weight in the wrong place",
         "merge_method: linear\nmodels:\n  - {model: models/a, weight: 1}\n",
         "merge.yml:3: 'weight' belongs under 'parameters' of its model"},
        {"mergekit-moe", "base_model: a\nexperts: [{source_model: b}]\n",
         "merge.yml:2: 'experts': files of mergekit-moe are not supported"},
        {"density and epsilon",
         "merge_method: della\nbase_model: models/base\nmodels:\n"
         "  - {model: models/a, parameters: {weight: 1, density: 0.9, epsilon: 0.2}}\n",
         "epsilon"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_dir d = scratch_new();
        char config[PATH], out[PATH];
        af_error err = {0};
        const af_merge_opts o = {.threads = 1};
        write_config(&d, cases[i].text, config, sizeof config);
        CHECK_MSG(af_merge_file(config, join(out, sizeof out, d.path, "out"), &o, NULL, &err) != 0,
                  "%s was accepted", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: says '%s'", cases[i].why, err.msg);
        check_nothing_left(d.path, 1);
        scratch_free(&d);
    }
}

static void keep_warnings(void *user, af_log_level level, const char *line)
{
    char *all = user;
    if (level == AF_LOG_WARN)
        snprintf(all + strlen(all), 1000 - strlen(all), "%s\n", line);
}

/* Merges into a folder of its own; its weights are the caller's. */
static char *merged_bytes(const char *text, uint64_t *size)
{
    scratch_dir d = scratch_new();
    char config[PATH], out[PATH], path[PATH], *bytes = NULL;
    af_error err = {0};
    write_config(&d, text, config, sizeof config);
    merge(config, join(out, sizeof out, d.path, "out"), 1, 1);
    CHECK_OK(af_file_read(&bytes, size, join(path, sizeof path, out, "model.safetensors"), 1 << 24,
                          &err),
             err);
    scratch_free(&d);
    return bytes;
}

/* As mergekit writes its files into model cards; the parameters of a module come before those of
 * the file. */
static void test_a_module_is_its_body(void **state)
{
    static const char *const forms[] = {
        "merge_method: linear\ndtype: float32\nparameters: {weight: 0.25}\nmodels:\n"
        "  - model: models/a\n  - {model: models/b, parameters: {weight: 0.75}}\n",
        "merge_method: linear\ndtype: float32\nparameters: {weight: 9}\nmodules:\n  default:\n"
        "    parameters: {weight: 0.25}\n    models:\n"
        "      - model: models/a\n      - {model: models/b, parameters: {weight: 0.75}}\n",
        "merge_method: linear\ndtype: float32\nparameters: {weight: 0.25}\nmodules:\n  default:\n"
        "    slices:\n    - sources:\n      - {layer_range: [0, 2], model: models/a}\n"
        "      - {layer_range: [0, 2], model: models/b, parameters: {weight: 0.75}}\n"};
    uint64_t size, other;
    char *want = merged_bytes(forms[0], &size);
    (void)state;
    for (size_t i = 1; i < AF_LEN(forms); i++) {
        char *got = merged_bytes(forms[i], &other);
        assert_int_equal(other, size);
        CHECK_MSG(memcmp(got, want, size) == 0, "form %zu gives another model", i);
        free(got);
    }
    free(want);
}

/* mergekit does not read the parameters of other methods, nor layer_range in 'models'. */
static void test_parameters_of_other_methods_are_reported(void **state)
{
    static const char *const plain = "merge_method: slerp\nbase_model: models/a\ndtype: float32\n"
                                     "parameters: {t: 0.5}\nmodels:\n  - model: models/a\n"
                                     "  - model: models/b\n";
    static const char *const more =
        "merge_method: slerp\nbase_model: models/a\ndtype: float32\n"
        "parameters: {t: 0.5, normalize: true, int8_mask: true}\nmodels:\n"
        "  - {model: models/a, layer_range: [0, 2]}\n"
        "  - {model: models/b, layer_range: [0, 2], parameters: {weight: 0.3, density: 2, "
        "normalize: 1}}\n";
    static const char *const says[] = {
        "merge.yml:4: method 'slerp' does not read 'normalize': it changes nothing\n",
        "merge.yml:4: method 'slerp' does not read 'int8_mask'",
        "merge.yml:6: 'layer_range' is for the sources of 'slices'",
        "merge.yml:7: method 'slerp' does not read 'weight'",
        "merge.yml:7: method 'slerp' does not read 'density'"};
    char heard[1000] = "";
    uint64_t size, other;
    char *want = merged_bytes(plain, &size);
    (void)state;
    af_log_set(keep_warnings, heard);
    char *got = merged_bytes(more, &other);
    af_log_set(NULL, NULL);
    assert_int_equal(other, size);
    assert_memory_equal(got, want, size);
    for (size_t i = 0; i < AF_LEN(says); i++)
        CHECK_MSG(strstr(heard, says[i]), "no '%s' in '%s'", says[i], heard);
    int lines = 0;
    for (const char *at = heard; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, AF_LEN(says));
    free(got);
    free(want);
}

static void test_plan_writes_nothing_and_counts(void **state)
{
    scratch_dir d = scratch_new();
    char out[PATH];
    af_error err = {0};
    af_merge_plan p = {0};
    const af_merge_opts o = {.threads = 2, .plan = true};
    (void)state;
    CHECK_OK(af_merge_file("ties.yml", join(out, sizeof out, d.path, "out"), &o, &p, &err), err);
    assert_int_equal(p.models, 4);
    assert_int_equal(p.tensors, 21);
    assert_int_equal(p.write_bytes, p.params * 4);
    assert_int_equal(p.read_bytes, 4 * p.write_bytes);
    assert_true(p.memory_bytes > 0);
    check_nothing_left(d.path, 0);
    scratch_free(&d);
}

static void test_output_that_is_an_input_is_refused(void **state)
{
    af_error err = {0};
    const af_merge_opts o = {.threads = 1};
    (void)state;
    assert_int_not_equal(af_merge_file("linear.yml", "models/a", &o, NULL, &err), 0);
    assert_non_null(strstr(err.msg, "one of the inputs"));
}

/* Every position in every length around one pass of the loop, at any address. */
static void test_values_that_are_not_finite_are_found_anywhere(void **state)
{
    static const struct {
        af_dtype dtype;
        uint32_t largest, infinite, nan, low_nan, minus;
    } types[] = {
        {AF_DTYPE_F32, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0xff800000},
        {AF_DTYPE_BF16, 0x7f7f, 0x7f80, 0x7fc0, 0x7f81, 0xff80},
        {AF_DTYPE_F16, 0x7bff, 0x7c00, 0x7e00, 0x7c01, 0xfc00},
    };
    enum { MOST = 70 };
    uint8_t room[MOST * 4 + 8];
    (void)state;
    for (size_t k = 0; k < AF_LEN(types); k++) {
        const size_t size = (size_t)af_dtype_get(types[k].dtype)->bytes;
        const uint32_t odd[] = {types[k].infinite, types[k].nan, types[k].low_nan, types[k].minus};
        for (int n = 0; n <= MOST; n++) {
            uint8_t *x = room + (size_t)(n % 2) * size;
            for (int i = 0; i < MOST; i++)
                memcpy(x + (size_t)i * size, &types[k].largest, size);
            assert_true(af_all_finite(types[k].dtype, x, n));
            for (int i = 0; i < MOST; i++) {
                memcpy(x + (size_t)i * size, &odd[i % 4], size);
                assert_int_equal(af_all_finite(types[k].dtype, x, n), i >= n);
                memcpy(x + (size_t)i * size, &types[k].largest, size);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods_agree_with_mergekit),
        cmocka_unit_test(test_random_masks_follow_the_formula),
        cmocka_unit_test(test_same_seed_same_bytes_any_threads),
        cmocka_unit_test(test_a_model_with_itself_is_itself_bit_for_bit),
        cmocka_unit_test(test_mixed_inputs_without_a_dtype_give_f32),
        cmocka_unit_test(test_a_separate_head_is_merged_with_a_tied_one),
        cmocka_unit_test(test_a_tie_of_votes_is_positive),
        cmocka_unit_test(test_equal_magnitudes_do_not_exceed_the_density),
        cmocka_unit_test(test_nuslerp_weights_that_cancel_mean_the_middle),
        cmocka_unit_test(test_density_zero_keeps_nothing),
        cmocka_unit_test(test_what_a_file_gets_wrong_is_named),
        cmocka_unit_test(test_a_module_is_its_body),
        cmocka_unit_test(test_parameters_of_other_methods_are_reported),
        cmocka_unit_test(test_plan_writes_nothing_and_counts),
        cmocka_unit_test(test_output_that_is_an_input_is_refused),
        cmocka_unit_test(test_values_that_are_not_finite_are_found_anywhere),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
