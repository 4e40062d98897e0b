/* model_case.h - a model of the goldens in a graph, for tests: packed rows in, logits, losses and
 * gradients out. */
#ifndef AF_MODEL_CASE_H
#define AF_MODEL_CASE_H

#include "test.h"

#include "format/weights/weights.h"
#include "model/loader.h"

#include <math.h>
#include <sys/stat.h>

/* AF_DEVICE=cuda runs the goldens on a GPU, in f32 too: other sums, ten times the differences. */
static inline const char *case_device(void)
{
    const char *d = getenv("AF_DEVICE");
    return d ? d : "cpu";
}
static inline bool case_on_gpu(void) { return strcmp(case_device(), "cpu") != 0; }

typedef struct model_case {
    af_device *device;
    af_loader *loader;
    af_adapter *adapter;
    af_model_leaves leaves;
    af_graph *graph;
    af_batch_inputs in;
    af_tensor *labels, *scale, *logits, *loss, *rows;
    int64_t N, S;
    int64_t counted; /* labels the loss is divided by; 0 = those of the run */
} model_case;

typedef struct case_opts {
    int64_t rows, seqs;
    bool train; /* full: every tensor is a param, and there is a backward */
    af_loader_opts loader;
    const char *adapter; /* a PEFT folder */
    double alpha_factor; /* scales times this; 0 = 1 */
    af_recompute recompute;
    double neftune; /* alpha of the noise on embeddings */
} case_opts;

/* The folder of a golden, in the tree or in the shared folder; NULL when it is in neither. */
static inline const char *case_dir(char *buf, size_t size, const char *sub)
{
    struct stat st;
    const char *roots[2] = {golden_dir(), NULL};
    char shared[4096];
    if (shared_dir()) {
        snprintf(shared, sizeof shared, "%s/golden", shared_dir());
        roots[1] = shared;
    }
    for (int i = 0; i < 2; i++) {
        /* the tree has the merged weights of PEFT's goldens, not their logits */
        if (!roots[i] || (i == 0 && strncmp(sub, "convert/peft/", 13) == 0))
            continue;
        /* in the tree, convert/bnb_model and similar folders are one level higher */
        const bool inner = i == 0 && strncmp(sub, "convert/", 8) == 0;
        snprintf(buf, size, "%s/%s", roots[i], inner ? sub + 8 : sub);
        if (stat(buf, &st) != 0)
            continue;
        /* a model may be in the tree without the numbers to compare it with */
        char golden[8192];
        snprintf(golden, sizeof golden, "%s/golden.safetensors", buf);
        const bool model = strncmp(sub, "models/", 7) == 0 && !strchr(sub + 7, '/');
        if (!model || stat(golden, &st) == 0)
            return buf;
    }
    return NULL;
}

static inline void case_open(model_case *c, const char *dir, const case_opts *o)
{
    af_error err = {0};
    *c = (model_case){.N = o->rows, .S = o->seqs};
    CHECK_OK(af_device_open(&c->device, case_device(), 2, &err), err);
    CHECK_OK(af_loader_open(&c->loader, dir, &o->loader, &err), err);
    const af_model_spec *s = af_loader_spec(c->loader);
    if (o->adapter) {
        CHECK_OK(af_adapter_read(&c->adapter, s, o->adapter, &err), err);
        for (int i = 0; i < s->modules; i++)
            c->adapter->module[i].scale *= (float)(o->alpha_factor ? o->alpha_factor : 1);
    }
    CHECK_OK(af_graph_new(&c->graph, &err), err);
    af_graph_set_rows(c->graph, c->N);
    const af_leaves_opts lo = {.compute = o->loader.compute,
                               .train_base = o->train,
                               .adapter = c->adapter,
                               .dtype = af_loader_dtypes(c->loader)};
    CHECK_OK(af_model_leaves_init(&c->leaves, c->graph, s, &lo, &err), err);
    CHECK_OK(af_loader_bind(c->loader, &c->leaves, true, &err), err);
    c->in = af_batch_inputs_new(c->graph, c->N, c->S);
    c->labels = af_graph_input(c->graph, "labels", AF_DTYPE_I32, 1, &c->N);
    c->scale = af_graph_input(c->graph, "loss_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    const af_forward_opts fo = {.neftune = o->neftune};
    af_tensor *h = af_model_forward(&c->leaves, &c->in, &fo);
    c->logits = af_model_logits(&c->leaves, h, NULL);
    af_graph_output(c->graph, c->logits);
    c->loss = af_model_loss(&c->leaves, h, c->labels, c->scale, 0, &c->rows);
    af_graph_output(c->graph, c->loss);
    af_graph_output(c->graph, c->rows);
    if (o->train)
        af_graph_backward(c->graph, c->loss);
    af_graph_set_recompute(c->graph, o->recompute, s->layers);
    CHECK_OK(af_graph_prepare(c->graph, c->device, &err), err);
    CHECK_OK(af_loader_write(c->loader, &c->leaves, &err), err);
    if (c->adapter)
        CHECK_OK(af_adapter_upload(c->adapter, &c->leaves, &err), err);
}

static inline void case_close(model_case *c)
{
    af_graph_free(c->graph);
    af_model_leaves_clear(&c->leaves);
    af_adapter_free(c->adapter);
    af_loader_close(c->loader);
    af_device_close(c->device);
}

/* Runs sequences of `len` tokens that are stored one after another in ids. `labels` (shifted) may
 * be NULL. */
static inline void case_run(model_case *c, const int32_t *ids, const int32_t *labels,
                            const int64_t *len, int n)
{
    af_error err = {0};
    const int64_t nb = af_tensor_dim(c->in.bounds, 0);
    int32_t *buf = calloc((size_t)(4 * c->N + nb), sizeof *buf);
    int32_t *i = buf, *p = buf + c->N, *l = buf + 2 * c->N, *b = buf + 3 * c->N;
    int64_t live = 0, longest = 1, counted = 0;
    for (int s = 0; s < n; s++) {
        for (int64_t t = 0; t < len[s]; t++, live++) {
            i[live] = ids[live];
            p[live] = (int32_t)t;
            l[live] = labels ? labels[live] : -100;
            counted += l[live] != -100;
        }
        b[s + 1] = (int32_t)live;
        longest = len[s] > longest ? len[s] : longest;
    }
    for (int64_t s = n + 1; s < nb; s++)
        b[s] = (int32_t)live;
    counted = c->counted ? c->counted : counted;
    const float scale = 1.0f / (float)(counted ? counted : 1);
    const uint64_t rows = (uint64_t)c->N * sizeof *i;
    CHECK_OK(af_model_write_rope(&c->leaves, longest, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.ids, i, rows, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.positions, p, rows, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->labels, l, rows, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->in.bounds, b, (uint64_t)nb * sizeof *b, &err), err);
    CHECK_OK(af_tensor_write(c->graph, c->scale, &scale, sizeof scale, &err), err);
    af_graph_set_live_rows(c->graph, live);
    CHECK_OK(af_graph_run(c->graph,
                          af_tensor_gradient(c->leaves.tensor[0]) ? AF_RUN_GRAD : AF_RUN_FORWARD,
                          &err),
             err);
    free(buf);
}

/* A tensor of the graph as floats; free() it. */
static inline float *case_read(model_case *c, const af_tensor *t)
{
    af_error err = {0};
    const uint64_t n = (uint64_t)af_tensor_count(t);
    void *raw = malloc(af_tensor_bytes(t));
    float *x = malloc(n * sizeof *x);
    CHECK_OK(af_tensor_read(c->graph, t, raw, af_tensor_bytes(t), &err), err);
    af_convert(x, AF_DTYPE_F32, raw, af_tensor_dtype(t), n);
    free(raw);
    return x;
}

static inline const af_stored *case_golden(const af_weights *w, const char *name)
{
    const af_stored *t = af_weights_find(w, name);
    CHECK_MSG(t, "the golden has no '%s'", name);
    return t;
}

/* A golden model alone, without a graph. */
static inline void case_open_base(model_case *c, const char *base, bool untie)
{
    char dir[4096], sub[256];
    af_error err = {0};
    *c = (model_case){0};
    snprintf(sub, sizeof sub, "models/%s", base);
    CHECK_MSG(case_dir(dir, sizeof dir, sub), "no %s", sub);
    CHECK_OK(af_device_open(&c->device, case_device(), 2, &err), err);
    CHECK_OK(af_loader_open(&c->loader, dir, &(af_loader_opts){.untie = untie}, &err), err);
}
#endif
