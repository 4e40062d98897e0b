/* family_case.h - models whose weights and tokens come from a formula, and gradients by the names
 * their tensors have on disk. The formula is also in tools/golden/make_families.py. */
#ifndef AF_FAMILY_CASE_H
#define AF_FAMILY_CASE_H

#include "model/model_case.h"

#include "base/file.h"
#include "format/text/json_text.h"
#include "format/weights/safetensors.h"
#include "model/arch/arch_disk.h"

#include <jansson.h>
#include <unistd.h>

static inline json_t *read_json(const char *path)
{
    af_map map;
    af_error err = {0};
    json_error_t je;
    CHECK_OK(af_map_open(&map, path, &err), err);
    json_t *j = af_json_load((const char *)map.data, map.size, 0, &je);
    CHECK_MSG(j, "%s:%d: %s", path, je.line, je.text);
    af_map_close(&map);
    return j;
}

/* x, values of a tensor, in the order they have on disk. */
static inline float *case_disk_order(const af_model_spec *s, int tensor, float *x)
{
    if (!af_disk_is_turned(s, tensor))
        return x;
    float *y = af_disk_turned(s, tensor, x, AF_DTYPE_F32);
    free(x);
    return y;
}

/* Calls `with` for every gradient of a model, split as its tensors are on disk. */
static inline void each_gradient(model_case *c, const char *prefix,
                                 void (*with)(void *, const char *, const float *, int64_t),
                                 void *user)
{
    const af_model_spec *s = af_loader_spec(c->loader);
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor *grad = af_tensor_gradient(c->leaves.tensor[i]);
        if (!grad)
            continue;
        float *x = case_disk_order(s, i, case_read(c, grad));
        for (int p = 0; p < af_disk_count(s, i); p++) {
            char name[512], disk[600];
            int64_t dim[AF_DISK_DIMS], from, n = 1;
            int ndim;
            af_disk_piece(s, i, p, name, sizeof name, dim, &ndim, &from);
            for (int k = 0; k < ndim; k++)
                n *= dim[k];
            const bool inside = strncmp(name, "model.", 6) == 0;
            snprintf(disk, sizeof disk, "%s%s", inside ? prefix : "", name + (inside ? 6 : 0));
            with(user, disk, x + from, n);
        }
        free(x);
    }
}

/* The i-th number of a stream, in [-1, 1): multiples of 2^-23. */
static inline double formula_uniform(const char *stream, uint64_t i)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (const char *p = stream; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(1099511628211);
    uint64_t z = h + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 40) / 8388608.0 - 1.0;
}

typedef struct formula_model {
    char dir[64];
    int32_t ids[512], labels[512]; /* labels shifted */
    int64_t len[8], N;
    int rows;
} formula_model;

/* Base and spread of a tensor: the first rule [substring, base, spread] that its name has. */
static inline void formula_rule(const json_t *rules, const char *name, double *base, double *spread)
{
    size_t i;
    const json_t *r;
    json_array_foreach(rules, i, r)
    {
        if (!strstr(name, json_string_value(json_array_get(r, 0))))
            continue;
        *base = json_number_value(json_array_get(r, 1));
        *spread = json_number_value(json_array_get(r, 2));
        return;
    }
    fail_msg("no rule for %s", name);
}

static inline void formula_tensor(af_safetensors_writer *w, const json_t *rules, const char *name,
                                  int64_t n)
{
    af_error err = {0};
    double base = 0, spread = 0;
    formula_rule(rules, name, &base, &spread);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t k = 0; k < n; k++)
        x[k] = (float)(base + spread * formula_uniform(name, (uint64_t)k));
    CHECK_OK(af_safetensors_writer_data(w, x, (uint64_t)n * sizeof *x, &err), err);
    free(x);
}

/* Every tensor of the spec as it is on disk: declared (pass 0), then written (pass 1). */
static inline void formula_tensors(af_safetensors_writer *w, const af_model_spec *s,
                                   const json_t *rules, bool declare)
{
    af_error err = {0};
    for (int i = 0; i < s->tensors; i++)
        for (int p = 0; p < af_disk_count(s, i); p++) {
            char name[512];
            int64_t dim[AF_DISK_DIMS], from, n = 1;
            int ndim;
            af_disk_piece(s, i, p, name, sizeof name, dim, &ndim, &from);
            for (int k = 0; k < ndim; k++)
                n *= dim[k];
            if (declare)
                CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, ndim, &err), err);
            else
                formula_tensor(w, rules, name, n);
        }
}

static inline void formula_tokens(formula_model *f, const json_t *j, int64_t vocab)
{
    const json_t *lens = json_object_get(j, "lengths");
    f->rows = (int)json_array_size(lens);
    for (int b = 0; b < f->rows; b++) {
        f->len[b] = json_integer_value(json_array_get(lens, (size_t)b));
        for (int64_t t = 0; t < f->len[b]; t++, f->N++) {
            const double u = formula_uniform("tokens", (uint64_t)f->N);
            f->ids[f->N] = (int32_t)((u + 1) / 2 * (double)vocab);
            f->labels[f->N] = -100;
            if (t > 0)
                f->labels[f->N - 1] = f->ids[f->N];
        }
    }
}

/* A folder with config.json and weights of the formula. */
static inline void formula_model_write(formula_model *f, const json_t *j)
{
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    af_safetensors_writer *w;
    char path[128];
    *f = (formula_model){.dir = "/tmp/afinar-family-XXXXXX"};
    assert_non_null(mkdtemp(f->dir));
    snprintf(path, sizeof path, "%s/config.json", f->dir);
    char *text = json_dumps(json_object_get(j, "config"), 0);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    CHECK_OK(af_hf_config_read(&c, f->dir, &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", f->dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    formula_tensors(w, &s, json_object_get(j, "rules"), true);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    formula_tensors(w, &s, json_object_get(j, "rules"), false);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    formula_tokens(f, j, s.vocab);
    free(text);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

static inline void formula_model_clear(formula_model *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", f->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", f->dir);
    unlink(path);
    rmdir(f->dir);
}
#endif
