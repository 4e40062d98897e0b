/* attention_choice.c - offers attention to cuDNN, times it against the own kernel, stores the
 * choice.
 *
 * A stored choice is a line "key own" or "key cudnn-VERSION", with the times that were measured;
 * the first line of a key counts. The key has the shape and a hash of the own kernel's text. */
#include "ops/attention/attention_choice.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "ops/common/cuda_ops.h"

#include <math.h>

enum {
    ROWS_MIN = 1024, /* fewer are not worth a choice */
    WORK_BYTES = 64 << 10,
    WORK_SEQUENCE = 512, /* bytes of workspace for each sequence */
    SPAN_BLOCKS = 64,
    SPAN_THREADS = 256,
    ROUNDS = 4,
    REPEATS = 4,
    CHOICES_MAX = 4 << 20,
    KEY_MAX = 128,
};
/* Of the own kernel's time: what cuDNN must stay below. Well outside of noise. */
static const float margin = 0.9f;

static bool takes(const af_cuda *cu, const af_node *n, bool best)
{
    const int E = n->attr.attention.head_dim;
    const bool asked = cu->attention == AF_ATTENTION_CUDNN && af_rows(n->in[0]) > 0;
    const bool looked_at =
        cu->attention == AF_ATTENTION_AUTO && !best && af_rows(n->in[0]) >= ROWS_MIN;
    return (asked || looked_at) && n->in[0]->dtype == AF_DTYPE_BF16 && n->attr.attention.causal &&
           n->attr.attention.window == 0 && n->attr.attention.softcap == 0 && E % 8 == 0 &&
           E <= 128 && n->in[1]->dim[0] > 1;
}

static uint64_t list_bytes(int64_t n, uint64_t size)
{
    return AF_ALIGN_UP((uint64_t)n * size, UINT64_C(256));
}

static uint64_t dnn_work_bytes(int64_t sequences)
{
    return WORK_BYTES + AF_ALIGN_UP((uint64_t)sequences * WORK_SEQUENCE, UINT64_C(256));
}

uint64_t af_attention_dnn_work(const af_cuda *cu, const af_node *n, bool best)
{
    const int64_t S = n->in[1]->dim[0] - 1;
    return takes(cu, n, best) ? 3 * list_bytes(S + 1, 8) + list_bytes(S, 4) + dnn_work_bytes(S) : 0;
}

/* To a power of two: a plan takes its length from the bounds, and fewer of them have to be made. */
static int64_t round_up(int64_t n)
{
    int64_t r = 256;
    while (r < n)
        r *= 2;
    return r;
}

static void place(af_dnn_use *u, uint8_t *work)
{
    const int64_t S = u->a.S;
    u->at_qkv = (int64_t *)(void *)work;
    u->at_o = (int64_t *)(void *)(work += list_bytes(S + 1, 8));
    u->at_lse = (int64_t *)(void *)(work += list_bytes(S + 1, 8));
    u->length = (int32_t *)(void *)(work += list_bytes(S + 1, 8));
    u->work = work + list_bytes(S, 4);
    u->work_bytes = dnn_work_bytes(S);
}

static void launch_spans(af_cuda *cu, af_node *n, af_dnn_use *u)
{
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "attention_spans.cu", "attention_spans", ""),
                       SPAN_BLOCKS, 1, 1, SPAN_THREADS, 0);
    af_arg_ptr(l, u->at_qkv);
    af_arg_ptr(l, u->at_o);
    af_arg_ptr(l, u->at_lse);
    af_arg_ptr(l, u->length);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i32(l, u->a.S);
    af_arg_i32(l, af_rows(n->in[0]));
    af_arg_i32(l, u->a.H);
    af_arg_i32(l, u->a.E);
    af_arg_i64(l, u->a.ld_qkv);
    af_arg_i64(l, u->a.ld_o);
    u->before = l;
}

/* The first of the list. */
static void **uses_of(const af_graph *g) { return af_cuda_slot(g, &af_cuda_attention_family); }

static af_kernel *noise_kernel(af_cuda *cu)
{
    return af_cuda_kernel(cu, "gemm.cu", "fill_noise", "AF_T=bf16 AF_C=bf16");
}

static af_status issue_dnn(af_cuda *cu, const af_alternative *a, af_error *err)
{
    const af_dnn_use *u = (const af_dnn_use *)a;
    return af_dnn_issue(cu, u->plan, u->pack, "attention", err);
}

/* The step appended last. */
static af_step *last_step(const af_cuda *cu, const af_node *n)
{
    const af_exec *e = af_exec_of(n, cu->cg->level);
    return e && e->n > 0 ? &e->step[e->n - 1] : NULL;
}

af_dnn_use *af_attention_offer(af_cuda *cu, af_node *n, bool best)
{
    const af_tensor *qkv = n->in[0], *o = n->out[0];
    if (!takes(cu, n, best) || !cu->work || !af_cuda_rows_fit(qkv, 8) || !af_cuda_rows_fit(o, 8))
        return NULL;
    af_dnn_use *u = af_arena_take(&cu->cg->mem, sizeof *u);
    if (!u)
        return NULL; /* the launch that follows reports it */
    *u = (af_dnn_use){.alternative.issue = issue_dnn,
                      .node = n,
                      .scale = (float)n->attr.attention.scale,
                      .low = -INFINITY,
                      .a = {.S = n->in[1]->dim[0] - 1,
                            .T = round_up(af_rows(qkv)),
                            .H = n->attr.attention.heads,
                            .K = n->attr.attention.kv_heads,
                            .E = n->attr.attention.head_dim,
                            .ld_qkv = qkv->ld,
                            .ld_o = o->ld}};
    place(u, cu->work);
    launch_spans(cu, n, u);
    af_step *s = last_step(cu, n);
    if (s) {
        s->alternative = &u->alternative;
        s->prelude = true;
    }
    return u;
}

void af_attention_over(af_cuda *cu, af_node *n, af_dnn_use *u, const af_launch *own)
{
    af_step *s = u ? last_step(cu, n) : NULL;
    if (!s || !own)
        return;
    assert(s->launch == own);
    s->alternative = &u->alternative;
    u->own = own;
    void **list = uses_of(cu->graph);
    u->next = *list;
    *list = u;
    (void)noise_kernel(cu); /* built with the others, for timing */
}

/* ---- plan and addresses ---- */

static void describe(af_dnn_graph *g, const void *of) { af_dnn_attention_forward(g, of); }

static const af_dnn_plan *plan_for(af_cuda *cu, const af_dnn_use *u)
{
    char key[KEY_MAX];
    const af_dnn_attention *a = &u->a;
    snprintf(key, sizeof key,
             "attention s%" PRId64 " t%" PRId64 " h%" PRId64 " k%" PRId64 " e%" PRId64 " ld%" PRId64
             " %" PRId64,
             a->S, a->T, a->H, a->K, a->E, a->ld_qkv, a->ld_o);
    const af_dnn_plan *p = af_dnn_plan_get(cu, key, describe, a);
    return p && p->work <= u->work_bytes ? p : NULL;
}

static bool bind(const af_cuda *cu, af_dnn_use *u)
{
    const af_node *n = u->node;
    uint16_t *q = n->in[0]->data, *k = q + u->a.H * u->a.E, *v = k + u->a.K * u->a.E;
    static const int64_t id[] = {AF_DNN_Q,         AF_DNN_K,        AF_DNN_V,        AF_DNN_O,
                                 AF_DNN_LSE,       AF_DNN_LENGTH_Q, AF_DNN_LENGTH_K, AF_DNN_AT_QKV,
                                 AF_DNN_AT_O,      AF_DNN_AT_LSE,   AF_DNN_SCALE,    AF_DNN_LOW,
                                 AF_DNN_LOW_CAUSAL};
    void *const at[AF_LEN(id)] = {q,         k,         v,         n->out[0]->data, n->out[1]->data,
                                  u->length, u->length, u->at_qkv, u->at_o,         u->at_lse,
                                  &u->scale, &u->low,   &u->low};
    u->pack = af_dnn_bind(cu->dnn, id, at, (int)AF_LEN(id), u->work);
    return u->pack != NULL;
}

static bool take_over(af_cuda *cu, af_dnn_use *u)
{
    u->plan = plan_for(cu, u);
    u->alternative.chosen = u->plan && bind(cu, u);
    return u->alternative.chosen;
}

static void give_up(const af_cuda *cu, af_dnn_use *u)
{
    if (u->pack)
        af_dnn_unbind(cu->dnn, u->pack);
    u->alternative.chosen = false;
    u->pack = NULL;
    u->plan = NULL;
}

/* ---- the file of choices ---- */

static void key_of(const af_dnn_use *u, char key[KEY_MAX])
{
    const char *file = u->own->kernel->module->file, *text = af_kernel_source(file);
    const uint64_t hash = af_fnv1a(AF_FNV_START, text, strlen(text));
    snprintf(key, KEY_MAX,
             "bf16.s%" PRId64 ".t%" PRId64 ".h%" PRId64 ".k%" PRId64 ".e%" PRId64 ".%016" PRIx64,
             u->a.S, u->a.T, u->a.H, u->a.K, u->a.E, hash);
}

static char *choices_path(const af_cuda *cu)
{
    char *folder = NULL, name[160];
    if (af_cache_dir(&folder, "attention", NULL) != AF_OK)
        return NULL;
    snprintf(name, sizeof name, "%s.txt", cu->name);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == '/')
            *p = '-';
    char *path = af_path_join(folder, name);
    free(folder);
    return path;
}

typedef enum choice { UNKNOWN, OWN, CUDNN } choice;

/* Of the first line of this key; *version: of the library that was timed. */
static choice stored_choice(const char *path, const char *key, size_t *version)
{
    char *text = NULL;
    uint64_t size = 0;
    choice c = UNKNOWN;
    const size_t n = strlen(key);
    *version = 0;
    if (!path || !af_file_exists(path) ||
        af_file_read(&text, &size, path, CHOICES_MAX, NULL) != AF_OK)
        return UNKNOWN;
    for (const char *p = text; *p && c == UNKNOWN; p += strcspn(p, "\n"), p += *p == '\n') {
        if (strncmp(p, key, n) != 0 || p[n] != ' ')
            continue;
        if (strncmp(p + n + 1, "own", 3) == 0)
            c = OWN;
        else if (sscanf(p + n + 1, "cudnn-%zu", version) == 1)
            c = CUDNN;
    }
    free(text);
    return c;
}

/* ---- timing ---- */

static af_status issue_one(af_cuda *cu, const af_dnn_use *u, bool dnn)
{
    const af_launch *l = dnn ? u->before : u->own;
    if (af_cuda_issue_launch(cu, l, NULL) != AF_OK)
        return AF_EDEVICE;
    return dnn ? issue_dnn(cu, &u->alternative, NULL) : AF_OK;
}

/* Milliseconds of one pass, or a negative number. */
static float time_one(af_cuda *cu, const af_dnn_use *u, bool dnn, void *event[2])
{
    float ms = -1;
    cu->drv->event_record(event[0], cu->stream);
    for (int i = 0; i < REPEATS; i++)
        if (issue_one(cu, u, dnn) != AF_OK)
            return -1;
    cu->drv->event_record(event[1], cu->stream);
    if (cu->drv->event_sync(event[1]) || cu->drv->event_elapsed(&ms, event[0], event[1]))
        return -1;
    return ms / REPEATS;
}

/* Sequences of one length, random numbers. */
static af_status fill(af_cuda *cu, const af_dnn_use *u)
{
    const af_tensor *qkv = u->node->in[0], *bounds = u->node->in[1];
    const int64_t N = af_rows(qkv), n = bounds->dim[0];
    const af_kernel *noise = noise_kernel(cu);
    const af_mat m = af_mat_of(qkv);
    int32_t *b = af_calloc((uint64_t)n, sizeof *b);
    if (!b)
        return AF_ENOMEM;
    for (int64_t s = 0; s < n; s++)
        b[s] = (int32_t)(s * N / (n - 1));
    const int r = cu->drv->copy_up(bounds->data, b, (size_t)n * 4, cu->stream);
    cu->drv->stream_sync(cu->stream);
    free(b);
    af_cuda_fill_noise(cu, noise && noise->func ? noise : NULL, &m, 1, 0);
    return r ? AF_EDEVICE : AF_OK;
}

/* The shortest times of both, alternating; the first round loads code. */
static bool race(af_cuda *cu, const af_dnn_use *u, float ms[2])
{
    void *event[2] = {0};
    bool good = fill(cu, u) == AF_OK && cu->drv->event_new(&event[0], 0) == 0 &&
                cu->drv->event_new(&event[1], 0) == 0;
    for (int i = 0; i < 2 * ROUNDS && good; i++) {
        const int dnn = i % 2;
        const float t = time_one(cu, u, dnn, event);
        good = t >= 0;
        if (i < 4 || t < ms[dnn])
            ms[dnn] = t;
    }
    for (int i = 0; i < 2; i++)
        if (event[i])
            cu->drv->event_free(event[i]);
    return good;
}

/* Times a shape that was not timed here before, and stores the answer. */
static choice measure(af_cuda *cu, af_dnn_use *u, const char *path, const char *key, bool *dirtied)
{
    char line[KEY_MAX + 96], by[32] = "own";
    float ms[2] = {0};
    const bool can = take_over(cu, u), timed = can && race(cu, u, ms);
    *dirtied |= can;
    give_up(cu, u);
    if (can && !timed)
        return OWN; /* the device failed: what follows reports it */
    const choice c = can && ms[1] < margin * ms[0] ? CUDNN : OWN;
    if (c == CUDNN)
        snprintf(by, sizeof by, "cudnn-%zu", cu->dnn->version);
    af_log_write(AF_LOG_INFO, "attention by %s: own kernel %.3f ms, cuDNN %.3f ms", by,
                 (double)ms[0], (double)ms[1]);
    snprintf(line, sizeof line, "%s %s (own %.4f ms, cuDNN %.4f ms)\n", key, by, (double)ms[0],
             (double)ms[1]);
    (void)!af_file_append(path, line, strlen(line), false, NULL);
    return c;
}

static af_status open_library(af_cuda *cu, af_error *err)
{
    return cu->dnn ? AF_OK : af_dnn_open(cu, cu->test ? cu->test->cudnn : NULL, err);
}

/* From the cache, else by timing. */
static choice choose(af_cuda *cu, af_dnn_use *u, const char *path, bool *dirtied)
{
    char key[KEY_MAX];
    size_t version;
    af_error why = {0};
    key_of(u, key);
    const choice stored = stored_choice(path, key, &version);
    if (stored == OWN || !path)
        return OWN;
    if (open_library(cu, &why) != AF_OK) {
        if (stored == CUDNN)
            af_log_write(AF_LOG_WARN,
                         "attention was faster with cuDNN here, but now own kernels do it: %s",
                         why.msg);
        return OWN;
    }
    if (stored == CUDNN && version == cu->dnn->version)
        return CUDNN;
    return measure(cu, u, path, key, dirtied);
}

static bool same_shape(const af_dnn_use *a, const af_dnn_use *b)
{
    return a->a.S == b->a.S && a->a.T == b->a.T && a->a.H == b->a.H && a->a.K == b->a.K &&
           a->a.E == b->a.E && a->own->kernel == b->own->kernel;
}

static af_status choose_all(af_cuda *cu, af_graph *g, bool *dirtied, af_error *err)
{
    af_status st = AF_OK;
    af_dnn_use *const list = *uses_of(g);
    choice c = UNKNOWN;
    int taken = 0, all = 0;
    const af_dnn_use *before = NULL;
    char *path = list ? choices_path(cu) : NULL;
    if (list && cu->attention == AF_ATTENTION_CUDNN) {
        st = open_library(cu, err);
        if (st != AF_OK)
            AF_TRY(af_fail_prefix(st, err, "attention: cudnn"));
    }
    for (af_dnn_use *u = list; u; before = u, u = u->next) {
        if (cu->attention == AF_ATTENTION_CUDNN)
            c = CUDNN;
        else if (!before || !same_shape(before, u))
            c = choose(cu, u, path, dirtied);
        all++;
        if (c == CUDNN && take_over(cu, u)) {
            taken++;
        } else if (c == CUDNN) {
            give_up(cu, u);
            af_log_write(AF_LOG_WARN,
                         "cuDNN has no attention for %" PRId64 " heads of %" PRId64
                         ": own kernels do it",
                         u->a.H, u->a.E);
        }
    }
    if (taken)
        af_log_write(AF_LOG_INFO, "attention: cuDNN %zu computes %d of %d forward passes",
                     cu->dnn->version, taken, all);
done:
    free(path);
    return st;
}

static void release(af_cuda *cu, af_graph *g)
{
    for (af_dnn_use *u = *uses_of(g); u; u = u->next)
        give_up(cu, u);
    *uses_of(g) = NULL; /* their memory is the backend's */
}

const af_cuda_family af_cuda_attention_family = {.choose = choose_all, .release = release};
