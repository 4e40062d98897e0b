/* char_transformer.c - a character-level transformer, trained from scratch on a text, that then
 * generates text.
 *
 * One function records the model; it is called twice: with parameters, attention over whole windows
 * and a loss for training, and with plain weights and a key-value cache for generating one
 * character after another. The blocks are those of current language models: RMS norm, rotary
 * positions, causal attention, a gated feed-forward layer. Usage: example_char_transformer [STEPS]
 * [FILE] */
#include "afinar/graph.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    HEADS = 4,
    E = 12, /* head size */
    D = HEADS * E,
    F = 2 * D, /* width of the feed-forward layer */
    T = 160,   /* characters in a window */
    BATCH = 2,
    N = BATCH * T,
    WRITTEN = T, /* not longer than the windows of training ... */
    PROMPT = 24, /* ... of which these come from the middle of the text */
    PARAMS = 3 + 6 * LAYERS,
};

#define TEMPERATURE 0.5

static const char sample[] =
    "The tuner came at nine and opened the piano. He struck one key, listened, and turned the pin "
    "a "
    "little. He struck the key again and listened again. A string is never right at once, he said; "
    "it comes nearer each time, and each time by less. The first turns are large and the last are "
    "small. Too large a turn and the string is past its note, too small and the day is over before "
    "the work. He struck the next key, listened, and turned the pin a little. At noon the piano "
    "was "
    "in tune. He closed the lid, took his hat, and said that he would come again, because a string "
    "that is right today will not be right for ever.\n";

typedef struct model {
    af_graph *g;
    bool training;
    int vocabulary;
    af_tensor *ids, *positions, *bounds, *start, *freq; /* inputs */
    af_tensor *labels, *scale, *loss, *logits;
    af_tensor *param[PARAMS];
    int n;
} model;

typedef struct text {
    int32_t *id;
    int64_t count;
    int vocabulary;
    unsigned char letter[256]; /* of an id */
} text;

static double uniform(uint64_t *state) /* [0, 1): xorshift */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* ---- the model ---- */

static af_tensor *param(model *m, const char *name, int ndim, int64_t rows, int64_t cols)
{
    const int64_t dim[2] = {rows, cols};
    af_tensor *t = m->training ? af_graph_param(m->g, name, AF_DTYPE_F32, ndim, dim)
                               : af_graph_weight(m->g, name, AF_DTYPE_F32, ndim, dim);
    m->param[m->n++] = t;
    return t;
}

static af_tensor *project(model *m, af_tensor *x, const char *name, int64_t out, int64_t in)
{
    return af_linear(m->g, x,
                     &(af_linear_opts){.weight = {param(m, name, 2, out, in)}, .pieces = 1});
}

/* x + attention(norm(x)), then x + feed_forward(norm(x)). x: [N][D] */
static af_tensor *block(model *m, af_tensor *x)
{
    af_graph *g = m->g;
    const af_rope_opts rope = {.heads = HEADS, .kv_heads = HEADS, .head_dim = E};
    const af_attention_opts att = {
        .heads = HEADS, .kv_heads = HEADS, .head_dim = E, .causal = true};
    af_tensor *h = af_rmsnorm(g, x, param(m, "norm1", 1, D, 0), 1e-6, false);
    af_tensor *qkv = af_rope(g, project(m, h, "qkv", 3 * D, D), m->positions, m->freq, &rope);
    if (m->training) {
        h = af_attention(g, qkv, m->bounds, &att);
    } else {
        af_tensor *cache =
            af_graph_state(g, "cache", AF_DTYPE_F32, 3, (int64_t[]){1, WRITTEN, 2 * D});
        h = af_attention_cached(g, qkv, cache, m->bounds, m->start, &att);
    }
    x = af_add(g, x, project(m, h, "out", D, D));
    h = af_rmsnorm(g, x, param(m, "norm2", 1, D, 0), 1e-6, false);
    h = af_glu(g, project(m, h, "gate_up", 2 * F, D), AF_ACT_SILU);
    return af_add(g, x, project(m, h, "down", D, F));
}

static void record(model *m)
{
    af_graph *g = m->g;
    const int64_t rows = m->training ? N : 1, sequences = m->training ? BATCH : 1;
    m->ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &rows);
    m->positions = af_graph_input(g, "positions", AF_DTYPE_I32, 1, &rows);
    m->bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){sequences + 1});
    m->start = m->training ? NULL : af_graph_input(g, "start", AF_DTYPE_I32, 1, (int64_t[]){1});
    m->freq = af_graph_input(g, "freq", AF_DTYPE_F32, 1, (int64_t[]){E / 2});
    af_tensor *x =
        af_embedding(g, m->ids, param(m, "embedding", 2, m->vocabulary, D), AF_DTYPE_F32);
    for (int i = 0; i < LAYERS; i++)
        x = block(m, x);
    x = af_rmsnorm(g, x, param(m, "norm", 1, D, 0), 1e-6, false);
    if (!m->training) {
        m->logits = project(m, x, "head", m->vocabulary, D);
        af_graph_output(g, m->logits);
        return;
    }
    m->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &rows);
    m->scale = af_graph_input(g, "scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    m->loss = af_head_loss(g, x, param(m, "head", 2, m->vocabulary, D), m->labels,
                           &(af_head_opts){.scale = m->scale});
    af_graph_backward(g, m->loss);
    af_graph_optimizer(
        g,
        &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.01, .max_grad_norm = 1});
}

static af_status open_model(model *m, af_device *device, af_error *err)
{
    float freq[E / 2];
    for (int i = 0; i < E / 2; i++)
        freq[i] = (float)pow(10000, -2.0 * i / E);
    af_status st = af_graph_new(&m->g, err);
    if (st != AF_OK)
        return st;
    record(m);
    st = af_graph_prepare(m->g, device, err);
    return st ? st : af_tensor_write(m->g, m->freq, freq, sizeof freq, err);
}

/* Norms start at one, matrices small and random. */
static af_status init(model *m, uint64_t *state, af_error *err)
{
    for (int k = 0; k < m->n; k++) {
        const int64_t count = af_tensor_count(m->param[k]);
        const bool norm = af_tensor_ndim(m->param[k]) == 1;
        float *v = malloc((size_t)count * sizeof *v);
        for (int64_t i = 0; v && i < count; i++)
            v[i] = norm ? 1.0f : (float)(0.2 * (uniform(state) - 0.5));
        const af_status st =
            v ? af_tensor_write(m->g, m->param[k], v, (uint64_t)count * sizeof *v, err) : AF_ENOMEM;
        free(v);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* ---- training ---- */

static af_status write_batch(model *m, const text *t, uint64_t *state, af_error *err)
{
    int32_t ids[N], labels[N], positions[N], bounds[BATCH + 1];
    const float scale = 1.0f / N;
    for (int b = 0; b < BATCH; b++) {
        const int64_t from = (int64_t)(uniform(state) * (double)(t->count - T));
        bounds[b] = b * T;
        for (int i = 0; i < T; i++) {
            ids[b * T + i] = t->id[from + i];
            labels[b * T + i] = t->id[from + i + 1];
            positions[b * T + i] = i;
        }
    }
    bounds[BATCH] = N;
    af_status st = af_tensor_write(m->g, m->ids, ids, sizeof ids, err);
    st = st ? st : af_tensor_write(m->g, m->labels, labels, sizeof labels, err);
    st = st ? st : af_tensor_write(m->g, m->positions, positions, sizeof positions, err);
    st = st ? st : af_tensor_write(m->g, m->bounds, bounds, sizeof bounds, err);
    return st ? st : af_tensor_write(m->g, m->scale, &scale, sizeof scale, err);
}

static af_status train(model *m, const text *t, long steps, uint64_t *state, af_error *err)
{
    af_status st = AF_OK;
    for (long s = 0; s < steps && !st; s++) {
        float loss;
        const double warm = s < 10 ? (double)(s + 1) / 10 : 1;
        af_graph_set_learning_rate(
            m->g, 5e-3 * warm * (0.55 + 0.45 * cos(3.14159265 * (double)s / (double)steps)));
        st = write_batch(m, t, state, err);
        st = st ? st : af_graph_run(m->g, AF_RUN_STEP, err);
        if (!st && (s % 50 == 0 || s == steps - 1)) {
            st = af_tensor_read(m->g, m->loss, &loss, sizeof loss, err);
            printf("step %4ld  loss %.4f\n", s, loss);
        }
    }
    return st;
}

/* ---- generation ---- */

static af_status copy_params(model *to, const model *from, af_error *err)
{
    for (int k = 0; k < from->n; k++) {
        const uint64_t bytes = af_tensor_bytes(from->param[k]);
        void *v = malloc(bytes);
        af_status st = v ? af_tensor_read(from->g, from->param[k], v, bytes, err) : AF_ENOMEM;
        st = st ? st : af_tensor_write(to->g, to->param[k], v, bytes, err);
        free(v);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* Draws from softmax(logits / TEMPERATURE). */
static int choose(const float *logits, int n, uint64_t *state)
{
    double max = logits[0], sum = 0, at;
    for (int i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp((logits[i] - max) / TEMPERATURE);
    at = uniform(state) * sum;
    for (int i = 0; i < n; i++)
        if ((at -= exp((logits[i] - max) / TEMPERATURE)) < 0)
            return i;
    return n - 1;
}

static af_status write_on(model *m, const text *t, uint64_t *state, af_error *err)
{
    const int32_t bounds[2] = {0, 1};
    float logits[256];
    const int32_t *prompt = t->id + (t->count - T) / 2;
    int32_t id = prompt[0];
    af_status st = af_tensor_write(m->g, m->bounds, bounds, sizeof bounds, err);
    for (int32_t i = 0; i < WRITTEN && !st; i++) {
        putchar(t->letter[id]);
        st = af_tensor_write(m->g, m->ids, &id, sizeof id, err);
        st = st ? st : af_tensor_write(m->g, m->positions, &i, sizeof i, err);
        st = st ? st : af_tensor_write(m->g, m->start, &i, sizeof i, err);
        st = st ? st : af_graph_run(m->g, AF_RUN_FORWARD, err);
        st = st ? st
                : af_tensor_read(m->g, m->logits, logits,
                                 (uint64_t)t->vocabulary * sizeof logits[0], err);
        if (st == AF_OK)
            id = i + 1 < PROMPT ? prompt[i + 1] : choose(logits, t->vocabulary, state);
    }
    putchar('\n');
    return st;
}

/* ---- the text ---- */

static bool read_text(text *t, const char *path)
{
    size_t size = sizeof sample - 1, cap = 1 << 22;
    int id_of[256];
    unsigned char *data = malloc(cap);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!data || (path && !f)) {
        free(data);
        return false;
    }
    if (f) {
        size = fread(data, 1, cap, f);
        fclose(f);
    } else {
        memcpy(data, sample, size);
    }
    memset(id_of, -1, sizeof id_of);
    t->id = malloc(size * sizeof *t->id);
    for (size_t i = 0; t->id && i < size; i++) {
        if (id_of[data[i]] < 0) {
            t->letter[t->vocabulary] = data[i];
            id_of[data[i]] = t->vocabulary++;
        }
        t->id[i] = id_of[data[i]];
    }
    t->count = (int64_t)size;
    free(data);
    return t->id && t->count > T + 1;
}

int main(int argc, char **argv)
{
    long steps = 300;
    const char *path = NULL;
    for (int i = 1; i < argc; i++)
        if (isdigit((unsigned char)argv[i][0]))
            steps = strtol(argv[i], NULL, 10);
        else
            path = argv[i];
    text t = {0};
    if (!read_text(&t, path)) {
        fprintf(stderr, "char_transformer: %s has no %d characters\n", path ? path : "", T + 2);
        free(t.id);
        return 1;
    }
    uint64_t state = 88172645463325252u;
    af_error err = {0};
    af_device *device = NULL;
    model learner = {.training = true, .vocabulary = t.vocabulary};
    model writer = {.vocabulary = t.vocabulary};
    af_status st = af_device_open(&device, "cpu", 0, &err);
    st = st ? st : open_model(&learner, device, &err);
    st = st ? st : init(&learner, &state, &err);
    st = st ? st : train(&learner, &t, steps, &state, &err);
    st = st ? st : open_model(&writer, device, &err);
    st = st ? st : copy_params(&writer, &learner, &err);
    st = st ? st : write_on(&writer, &t, &state, &err);
    if (st != AF_OK)
        fprintf(stderr, "char_transformer: %s\n", err.msg);
    af_graph_free(learner.g);
    af_graph_free(writer.g);
    af_device_close(device);
    free(t.id);
    return st != AF_OK;
}
