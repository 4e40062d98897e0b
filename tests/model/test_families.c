/* test_families.c - model families against transformers: logits, token losses, gradients, packed
 * rows, greedy tokens.
 *
 * Two sources: whole models of the shared goldens (every folder whose type the table knows), and
 * tests/golden/families/NAME.json, where weights and tokens come from a formula and only results
 * are stored (tools/golden/make_families.py). A family joins by its file; nothing here names one.
 */
#include "family_case.h"

#include "afinar/model.h"
#include "format/config/hf_config_check.h"
#include "worse.h"

#include <dirent.h>

/* ---- shared goldens ---- */

typedef struct golden {
    af_weights *w;
    json_t *json;
    int32_t ids[1024], labels[1024]; /* packed; labels shifted */
    int64_t len[8], T, N;
    int rows;
} golden;

static void golden_open(golden *g, const char *dir)
{
    af_error err = {0};
    char path[8192];
    *g = (golden){0};
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    CHECK_OK(af_weights_open(&g->w, path, &err), err);
    snprintf(path, sizeof path, "%s/golden.json", dir);
    g->json = read_json(path);
    const af_stored *ids = case_golden(g->w, "input_ids"), *labels = case_golden(g->w, "labels");
    const int32_t *len = case_golden(g->w, "lengths")->data;
    g->rows = (int)ids->dim[0];
    g->T = ids->dim[1];
    for (int b = 0; b < g->rows; b++) {
        g->len[b] = len[b];
        for (int64_t t = 0; t < len[b]; t++, g->N++) {
            g->ids[g->N] = ((const int32_t *)ids->data)[b * g->T + t];
            g->labels[g->N] =
                t + 1 < len[b] ? ((const int32_t *)labels->data)[b * g->T + t + 1] : -100;
        }
    }
}

/* README there: five times the largest difference between kernels; what is above the usual. */
typedef struct tolerance {
    const char *name;
    double logits, loss, grad; /* grad: relative to the largest value of the tensor */
} tolerance;

static double looser(double x) { return case_on_gpu() ? 10 * x : x; }

static tolerance tolerance_of(const char *name)
{
    static const tolerance more[] = {{"gemma4_ple", 5e-5, 2e-5, 2e-4},
                                     {"gemma4", 4e-5, 1e-5, 5e-5},
                                     {"qwen3_next", 5e-5, 1.5e-5, 5e-5}};
    tolerance t = {name, 2e-5, 2e-5, 5e-5};
    for (size_t i = 0; i < AF_LEN(more); i++)
        t = strcmp(more[i].name, name) == 0 ? more[i] : t;
    return (tolerance){name, looser(t.logits), looser(t.loss), looser(t.grad)};
}

static void check_forward(const char *name, const golden *g, const float *logits, const float *rows,
                          int64_t V)
{
    const af_stored *want = case_golden(g->w, "logits");
    const int32_t *at = case_golden(g->w, "logits_positions")->data;
    const float *loss = case_golden(g->w, "token_loss")->data;
    const tolerance tol = tolerance_of(name);
    double worst = 0, worst_loss = 0;
    int64_t first[8] = {0}, r = 0;
    for (int b = 0; b < g->rows; b++) {
        first[b] = r;
        for (int64_t t = 0; t < g->len[b]; t++, r++)
            if (t + 1 < g->len[b])
                worst_loss = worse(worst_loss, fabs(rows[r * 2] - loss[b * g->T + t + 1]));
    }
    for (int64_t k = 0; k < want->dim[0]; k++)
        for (int64_t v = 0; v < V; v++) {
            const float x = logits[(first[at[2 * k]] + at[2 * k + 1]) * V + v];
            CHECK_MSG(isfinite(x), "%s: logits are not finite", name);
            worst = worse(worst, fabs(x - ((const float *)want->data)[k * V + v]));
        }
    print_message("%-20s logits %.1e, token loss %.1e\n", name, worst, worst_loss);
    CHECK_MSG(worst < tol.logits, "%s: logits differ by %g", name, worst);
    CHECK_MSG(worst_loss < tol.loss, "%s: token losses differ by %g", name, worst_loss);
}

typedef struct grad_check {
    const golden *g;
    const char *name;
    double worst;
    int checked;
} grad_check;

/* A gradient under its name on disk: all values, or the norm alone. */
static void check_gradient(void *user, const char *name, const float *x, int64_t n)
{
    grad_check *c = user;
    const json_t *norm = json_object_get(json_object_get(c->g->json, "grad_norms"), name);
    char key[700], codes[640]; /* of MXFP4: under the name of its blocks */
    snprintf(codes, sizeof codes, "%.600s_blocks", name);
    if (!norm && (norm = json_object_get(json_object_get(c->g->json, "grad_norms"), codes)))
        name = codes;
    snprintf(key, sizeof key, "grad.%s", name);
    const af_stored *want = af_weights_find(c->g->w, key);
    double sum = 0, most = 1e-3, d = 0;
    CHECK_MSG(norm, "%s: the golden has no gradient of %s", c->name, name);
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k] * x[k];
    const double wanted = json_number_value(norm);
    CHECK_MSG(fabs(sqrt(sum) - wanted) < looser(1e-4) * fmax(wanted, 1e-2),
              "%s: the gradient of %s has norm %g, not %g", c->name, name, sqrt(sum), wanted);
    c->checked++;
    if (!want)
        return;
    assert_int_equal(af_weight_count(want), n);
    for (int64_t k = 0; k < n; k++) {
        most = worse(most, fabs(((const float *)want->data)[k]));
        d = worse(d, fabs(x[k] - ((const float *)want->data)[k]));
    }
    CHECK_MSG(d < tolerance_of(c->name).grad * most,
              "%s: the gradient of %s differs by %g (largest %g)", c->name, name, d, most);
    c->worst = worse(c->worst, d / most);
}

static void check_alone(const char *name, const golden *g, model_case *c, const float *logits)
{
    const int64_t V = af_loader_spec(c->loader)->vocab;
    int64_t at = 0;    /* one by one: the same bits */
    if (case_on_gpu()) /* where a GEMM of another size is another algorithm */
        return;
    for (int b = 0; b < g->rows; b++) {
        case_run(c, g->ids + at, g->labels + at, &g->len[b], 1);
        float *one = case_read(c, c->logits);
        CHECK_MSG(memcmp(one, logits + at * V, (size_t)(g->len[b] * V) * sizeof *one) == 0,
                  "%s: sequence %d alone has other logits than in the batch", name, b);
        free(one);
        at += g->len[b];
    }
}

static void check_greedy(const char *name, const char *dir, const golden *g)
{
    af_model *m;
    af_generated r;
    af_error err = {0};
    const af_stored *prompt = case_golden(g->w, "greedy_prompt_ids");
    const af_stored *want = case_golden(g->w, "greedy_ids");
    const int32_t *ids = prompt->data;
    const af_generate_opts o = {.prompt = &ids,
                                .prompt_len = &prompt->dim[0],
                                .sequences = 1,
                                .max_new = want->dim[0],
                                .ignore_eos = true,
                                .ids_only = true};
    CHECK_OK(af_model_open(
                 &m, dir,
                 &(af_model_opts){.device = case_device(), .threads = 2, .compute = AF_COMPUTE_F32},
                 &err),
             err);
    CHECK_OK(af_model_generate(m, &o, &r, &err), err);
    assert_int_equal(r.count, want->dim[0]);
    for (int64_t k = 0; k < r.count; k++)
        CHECK_MSG(r.ids[k] == ((const int32_t *)want->data)[k], "%s: token %d is %d, not %d", name,
                  (int)k, (int)r.ids[k], (int)((const int32_t *)want->data)[k]);
    af_generated_clear(&r);
    af_model_close(m);
}

static void check_folder(const char *name, const char *dir)
{
    golden g;
    model_case c;
    golden_open(&g, dir);
    case_open(&c, dir, &(case_opts){.rows = g.N, .seqs = g.rows, .train = true});
    case_run(&c, g.ids, g.labels, g.len, g.rows);
    float *logits = case_read(&c, c.logits), *rows = case_read(&c, c.rows);
    check_forward(name, &g, logits, rows, af_loader_spec(c.loader)->vocab);
    grad_check gc = {.g = &g, .name = name};
    const bool inner = json_object_get(json_object_get(g.json, "grad_norms"),
                                       "model.language_model.embed_tokens.weight");
    each_gradient(&c, inner ? "model.language_model." : "model.", check_gradient, &gc);
    print_message("%-20s %d gradients %.1e of their largest values\n", name, gc.checked, gc.worst);
    CHECK_MSG(gc.checked == (int)json_object_size(json_object_get(g.json, "grad_norms")),
              "%s: %d gradients of %d", name, gc.checked,
              (int)json_object_size(json_object_get(g.json, "grad_norms")));
    check_alone(name, &g, &c, logits);
    check_greedy(name, dir, &g);
    free(logits);
    free(rows);
    case_close(&c);
    json_decref(g.json);
    af_weights_close(g.w);
}

/* Whether the table has this type. */
static bool is_known(const char *dir)
{
    af_hf_config c;
    char path[8192];
    struct stat st;
    snprintf(path, sizeof path, "%s/golden.json", dir);
    if (stat(path, &st) != 0 || af_hf_config_read(&c, dir, NULL) != AF_OK)
        return false;
    const bool known = af_arch_find(c.model_type) != NULL;
    af_hf_config_clear(&c);
    return known;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void test_shared_goldens(void **state)
{
    (void)state;
    char root[4096], dir[4400];
    struct dirent **list;
    int seen = 0;
    if (!shared_dir())
        skip_because("no shared folder");
    snprintf(root, sizeof root, "%s/golden/families", shared_dir());
    const char *only = getenv("AF_FAMILY"); /* one folder alone */
    const int n = scandir(root, &list, NULL, by_name);
    if (n < 0)
        skip_because("no goldens of families");
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        snprintf(dir, sizeof dir, "%s/%s", root, name);
        if (is_known(dir) && (!only || strcmp(only, name) == 0)) {
            check_folder(name, dir);
            seen++;
        }
        free(list[i]);
    }
    free(list);
    print_message("%d folders\n", seen);
    assert_true(seen > 0 || only);
}

/* ---- formula goldens ---- */

static double listed(const json_t *o, const char *name, size_t i)
{
    const json_t *row = json_object_get(o, name);
    CHECK_MSG(row, "the golden has no gradient of %s", name);
    return json_number_value(json_array_get(row, i));
}

typedef struct formula_check {
    const char *name;
    const json_t *grads; /* name -> [norm, dot] */
    bool together;       /* one entry for the tensors that differ in their layer or expert alone */
    json_t *sums;        /* name -> [norm^2, dot] of those */
    int checked;
} formula_check;

static void compare_gradient(formula_check *c, const char *name, double square, double dot)
{
    const double norm = listed(c->grads, name, 0), want = listed(c->grads, name, 1);
    CHECK_MSG(fabs(sqrt(square) - norm) < looser(5e-5) * fmax(norm, 1e-3) &&
                  fabs(dot - want) < looser(5e-5) * fmax(norm, 1e-3),
              "%s: the gradient of %s has norm %.9g and product %.9g, not %.9g and %.9g", c->name,
              name, sqrt(square), dot, norm, want);
    c->checked++;
}

/* "model.layers.1.mlp.experts.2.up_proj.weight" -> "model.layers.mlp.experts.up_proj.weight" */
static void without_numbers(char *out, const char *name)
{
    while (*name) {
        const size_t digits = strspn(name, "0123456789");
        const bool number = digits && out[-1] == '.' && name[digits] == '.';
        if (number)
            name += digits + 1;
        else
            *out++ = *name++;
    }
    *out = '\0';
}

static void check_formula_gradient(void *user, const char *name, const float *x, int64_t n)
{
    formula_check *c = user;
    char key[640], kind[640];
    double sum = 0, dot = 0;
    snprintf(key, sizeof key, "grad.%s", name);
    for (int64_t k = 0; k < n; k++) {
        sum += (double)x[k] * x[k];
        dot += x[k] * formula_uniform(key, (uint64_t)k);
    }
    if (!c->together) {
        compare_gradient(c, name, sum, dot);
        return;
    }
    without_numbers(kind, name);
    const json_t *old = json_object_get(c->sums, kind);
    json_object_set_new(c->sums, kind,
                        json_pack("[ff]", sum + json_number_value(json_array_get(old, 0)),
                                  dot + json_number_value(json_array_get(old, 1))));
}

static void check_sums(formula_check *c)
{
    const char *kind;
    json_t *v;
    json_object_foreach(c->sums, kind, v)
    {
        compare_gradient(c, kind, json_number_value(json_array_get(v, 0)),
                         json_number_value(json_array_get(v, 1)));
    }
}

static void check_formula(const char *name, const char *path)
{
    formula_model f;
    model_case c;
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    case_open(
        &c, f.dir,
        &(case_opts){.rows = f.N, .seqs = f.rows, .train = true, .loader = {.train_base = true}});
    case_run(&c, f.ids, f.labels, f.len, f.rows);
    float *logits = case_read(&c, c.logits), *loss = case_read(&c, c.loss);
    const double want = json_number_value(json_object_get(j, "loss"));
    CHECK_MSG(fabs(loss[0] - want) < looser(2e-5), "%s: the loss is %.9g, not %.9g", name, loss[0],
              want);
    const json_t *last = json_object_get(j, "logits"); /* of the last token of each row */
    const int64_t V = af_loader_spec(c.loader)->vocab;
    double worst = 0;
    int64_t at = 0;
    for (int b = 0; b < f.rows; b++) {
        at += f.len[b];
        const json_t *row = json_array_get(last, (size_t)b);
        assert_int_equal(json_array_size(row), V);
        for (int64_t v = 0; v < V; v++)
            worst = worse(worst, fabs(logits[(at - 1) * V + v] -
                                      json_number_value(json_array_get(row, (size_t)v))));
    }
    CHECK_MSG(worst < looser(5e-5), "%s: logits differ by %g", name, worst);
    formula_check fc = {.name = name,
                        .grads = json_object_get(j, "grads"),
                        .together = json_is_true(json_object_get(j, "together")),
                        .sums = json_object()};
    each_gradient(&c, "model.", check_formula_gradient, &fc);
    check_sums(&fc);
    json_decref(fc.sums);
    CHECK_MSG(fc.checked == (int)json_object_size(fc.grads), "%s: %d gradients of %d", name,
              fc.checked, (int)json_object_size(fc.grads));
    print_message("%-20s loss %.1e, logits %.1e, %d gradients\n", name, fabs(loss[0] - want), worst,
                  fc.checked);
    free(logits);
    free(loss);
    case_close(&c);
    formula_model_clear(&f);
    json_decref(j);
}

static void test_formula_goldens(void **state)
{
    (void)state;
    char root[4096], path[4400], name[256];
    struct dirent **list;
    int seen = 0;
    snprintf(root, sizeof root, "%s/families", golden_dir());
    const char *only = getenv("AF_FAMILY");
    const int n = scandir(root, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        const char *dot = strstr(list[i]->d_name, ".json");
        snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - list[i]->d_name) : 0,
                 list[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", root, list[i]->d_name);
        if (dot && (!only || strcmp(only, name) == 0)) {
            check_formula(name, path);
            seen++;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    assert_true(seen > 0 || only);
}

/* Logits of a formula model with noise, its embedding `scale` times as large in a table of
 * `spread`. */
static float *noisy_logits(const char *name, const char *key, double scale, double spread,
                           double alpha, int64_t *count)
{
    char path[4400];
    formula_model f;
    model_case c;
    size_t i;
    json_t *rule;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), name);
    json_t *j = read_json(path);
    json_object_set_new(json_object_get(j, "config"), key, json_real(scale));
    json_array_foreach(json_object_get(j, "rules"), i, rule)
    {
        if (strcmp(json_string_value(json_array_get(rule, 0)), "embed") == 0)
            json_array_set_new(rule, 2, json_real(spread));
    }
    formula_model_write(&f, j);
    case_open(&c, f.dir,
              &(case_opts){.rows = f.N, .seqs = f.rows, .train = true, .neftune = alpha});
    case_run(&c, f.ids, f.labels, f.len, f.rows);
    *count = af_tensor_count(c.logits);
    float *logits = case_read(&c, c.logits);
    case_close(&c);
    formula_model_clear(&f);
    json_decref(j);
    return logits;
}

/* NEFTune adds noise to what the embedding of transformers gives. A multiplier that comes later
 * scales the noise as well; one inside the embedding does not. */
static void test_noise_and_multipliers_of_the_embedding(void **state)
{
    (void)state;
    static const struct {
        const char *name, *key;
        double alpha; /* next to 1, where the table has the multiplier */
    } cases[] = {{"granite_swa", "embedding_multiplier", 4},
                 {"falcon_h1", "embedding_multiplier", 4},
                 {"minicpm3", "scale_emb", 1}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        int64_t n, m, o;
        double noise = 0, far = 0;
        float *x = noisy_logits(cases[i].name, cases[i].key, 4, 1, 1, &n);
        float *y = noisy_logits(cases[i].name, cases[i].key, 1, 4, cases[i].alpha, &m);
        float *plain = noisy_logits(cases[i].name, cases[i].key, 1, 4, 0, &o);
        assert_true(n == m && n == o);
        for (int64_t k = 0; k < n; k++) {
            far = worse(far, fabs((double)x[k] - (double)y[k]));
            noise = worse(noise, fabs((double)x[k] - (double)plain[k]));
        }
        CHECK_MSG(far < looser(1e-6) && noise > 1e-3, "%s: %g apart, noise %g", cases[i].name, far,
                  noise);
        free(x);
        free(y);
        free(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula_goldens),
        cmocka_unit_test(test_shared_goldens),
        cmocka_unit_test(test_noise_and_multipliers_of_the_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
