/* gemm_tune.c - which of cuBLASLt's algorithms serves a shape.
 *
 * Candidates come from the library's heuristics; the fastest of them is stored in the cache folder,
 * so that the same machine makes the same choice (and the same bits) in every later run. Where
 * nothing can be stored, the first candidate is taken untimed, for the same reason. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/gemm.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"

enum {
    CANDIDATES = 12,
    REPEATS = 3, /* runs timed together */
    ROUNDS = 3,
    ACCESS = 16, /* bytes of the widest access */
    CHOICES_MAX = 8 << 20,
    LT_PREF_WORKSPACE = 1,
    LT_PREF_REDUCTION = 3,
    LT_PREF_ALIGN_A = 5,
    LT_REDUCTION_FIXED = 2 | 4, /* compute type or output type, never in place */
    LT_CONFIG_REDUCTION = 3,
};

static unsigned alignment(const void *p)
{
    const uintptr_t x = (uintptr_t)p;
    unsigned a = 256;
    while (a > 1 && x % a)
        a /= 2;
    return a;
}

/* The alignment of a matrix's address and rows, up to the widest access. */
static unsigned mat_alignment(const af_mat *x, int64_t stride)
{
    const int64_t size = af_dtype_get(x->dtype)->bytes;
    unsigned a = AF_MIN(alignment(x->data), (unsigned)ACCESS);
    while (a > 1 && (x->ld * size % a || stride * size % a))
        a /= 2;
    return a;
}

void af_cuda_gemm_key(const af_cuda_gemm_plan *p, bool exact, char key[AF_GEMM_KEY])
{
    const af_cuda_gemm *m = &p->m;
    const int64_t k = m->ta ? m->a.rows : m->a.cols;
    int n = snprintf(
        key, AF_GEMM_KEY, "%s.%s.%c%c%c%c.%" PRId64 "x%" PRId64 "x%" PRId64 ".b%d.a%u.%u.%u",
        p->tf32 ? "tf32" : af_dtype_name(m->a.dtype), af_dtype_name(m->c.dtype), m->ta ? 't' : 'n',
        m->tb ? 't' : 'n', m->bias ? 'b' : '-',
        m->add.data    ? 'r'
        : m->beta != 0 ? '+'
                       : '=',
        m->c.rows, m->c.cols, k, AF_MAX(m->batch, 1), mat_alignment(&m->a, m->stride_a),
        mat_alignment(&m->b, m->stride_b), mat_alignment(&m->c, m->stride_c));
    if (exact && n > 0 && n < AF_GEMM_KEY)
        snprintf(key + n, (size_t)(AF_GEMM_KEY - n),
                 ".%" PRId64 ".%" PRId64 ".%" PRId64 ".%" PRId64, m->a.ld, m->b.ld, m->c.ld,
                 af_cuda_gemm_addend(m)->ld);
}

const af_cuda_gemm_choice *af_cuda_gemm_choice_find(const af_lt *lt, const char *key)
{
    for (int i = 0; i < lt->n; i++)
        if (strcmp(lt->choice[i]->key, key) == 0)
            return lt->choice[i];
    return NULL;
}

const af_cuda_gemm_choice *af_cuda_gemm_choice_add(af_lt *lt, const char *key,
                                                   const af_lt_algo *algo)
{
    if (lt->n == lt->cap) {
        const int cap = lt->cap ? lt->cap * 2 : 32;
        af_cuda_gemm_choice **p =
            af_realloc(lt->choice, (uint64_t)cap, sizeof(af_cuda_gemm_choice *));
        if (!p)
            return NULL;
        lt->choice = p;
        lt->cap = cap;
    }
    af_cuda_gemm_choice *c = af_calloc(1, sizeof *c);
    char *copy = af_strdup(key);
    if (!c || !copy) {
        free(c);
        free(copy);
        return NULL;
    }
    c->key = copy;
    c->algo = *algo;
    lt->choice[lt->n++] = c;
    return c;
}

/* ---- the file: one line per shape, "key hex"; others are skipped ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_line(char *line, char **key, af_lt_algo *algo)
{
    uint8_t *out = (uint8_t *)algo->data;
    char *space = strchr(line, ' ');
    if (!space || strlen(space + 1) != 2 * sizeof algo->data)
        return false;
    *space = '\0';
    for (size_t i = 0; i < sizeof algo->data; i++) {
        const int hi = hex_digit(space[1 + 2 * i]), lo = hex_digit(space[2 + 2 * i]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t)(hi * 16 + lo);
    }
    *key = line;
    return true;
}

void af_cuda_gemm_choices_read(af_lt *lt, const af_cuda *cu)
{
    char *folder = NULL, *text = NULL, name[160];
    uint64_t size = 0;
    if (af_cache_dir(&folder, "gemm", NULL) != AF_OK)
        return;
    snprintf(name, sizeof name, "%s-cublaslt-%zu-%d.txt", cu->name, lt->version,
             AF_LT_WORKSPACE >> 20);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == '/')
            *p = '-';
    lt->path = af_path_join(folder, name);
    free(folder);
    if (!lt->path || !af_file_exists(lt->path))
        return;
    lt->unreadable = af_file_read(&text, &size, lt->path, CHOICES_MAX, NULL) != AF_OK;
    if (lt->unreadable)
        return;
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *key;
        const bool last = *end == '\0';
        af_lt_algo algo;
        *end = '\0';
        if (parse_line(line, &key, &algo) && !af_cuda_gemm_choice_find(lt, key))
            (void)af_cuda_gemm_choice_add(lt, key, &algo);
        line = last ? end : end + 1;
    }
    lt->stored = lt->n;
    free(text);
}

/* Other processes write to the file, too, and none may lose what another one stored: new lines are
 * appended in one write. Of two lines for a shape the first one counts. The line end before them
 * separates them from one that was cut off. */
void af_cuda_gemm_choices_write(af_lt *lt)
{
    af_buf b = {0};
    af_buf_char(&b, '\n');
    for (int i = lt->stored; i < lt->n; i++) {
        const uint8_t *p = (const uint8_t *)lt->choice[i]->algo.data;
        af_buf_printf(&b, "%s ", lt->choice[i]->key);
        for (size_t k = 0; k < sizeof lt->choice[i]->algo.data; k++)
            af_buf_printf(&b, "%02x", p[k]);
        af_buf_char(&b, '\n');
    }
    if (!b.bad && lt->path && lt->unreadable)
        lt->unreadable = af_file_write(lt->path, b.data, b.len, NULL) != AF_OK;
    else if (!b.bad && lt->path)
        (void)!af_file_append(lt->path, b.data, b.len, false, NULL);
    af_buf_clear(&b);
    lt->stored = lt->n;
}

/* ---- timing ---- */

static int candidates(const af_lt *lt, const af_cuda_gemm_plan *p, af_lt_result out[CANDIDATES])
{
    void *pref = NULL;
    int found = 0, usable = 0;
    const size_t work = AF_LT_WORKSPACE;
    const uint32_t fixed = LT_REDUCTION_FIXED;
    const uint32_t align[] = {mat_alignment(&p->m.b, p->m.stride_b),
                              mat_alignment(&p->m.a, p->m.stride_a),
                              mat_alignment(af_cuda_gemm_addend(&p->m), p->m.stride_c),
                              mat_alignment(&p->m.c, p->m.stride_c)};
    if (lt->api.pref_new(&pref))
        return 0;
    lt->api.pref_set(pref, LT_PREF_WORKSPACE, &work, sizeof work);
    lt->api.pref_set(pref, LT_PREF_REDUCTION, &fixed, sizeof fixed);
    for (int i = 0; i < 4; i++)
        lt->api.pref_set(pref, LT_PREF_ALIGN_A + i, &align[i], sizeof align[i]);
    if (lt->api.heuristic(lt->handle, p->desc, p->la, p->lb, p->ladd, p->lc, pref, CANDIDATES, out,
                          &found))
        found = 0;
    lt->api.pref_free(pref);
    for (int i = 0; i < found; i++) {
        uint32_t scheme = 0;
        size_t n;
        lt->api.algo_get(&out[i].algo, LT_CONFIG_REDUCTION, &scheme, sizeof scheme, &n);
        if (out[i].state == 0 && !(scheme & ~(unsigned)LT_REDUCTION_FIXED) &&
            out[i].workspace <= AF_LT_WORKSPACE)
            out[usable++] = out[i];
    }
    return usable;
}

static const float ALONE_MS = 0.5f; /* such a GEMM is timed alone, without one that warms up, */
static const float LENGTHY_MS = 10; /* and such a one in one more round only */

/* Milliseconds of one GEMM, or a negative number when the algorithm refuses. */
static float time_runs(af_cuda *cu, af_cuda_gemm_plan *p, void *event[2], int repeats)
{
    float ms = -1;
    cu->drv->event_record(event[0], cu->stream);
    for (int i = 0; i < repeats; i++)
        if (af_cuda_gemm_issue(cu, p, NULL) != AF_OK)
            return -1;
    cu->drv->event_record(event[1], cu->stream);
    if (cu->drv->event_sync(event[1]) || cu->drv->event_elapsed(&ms, event[0], event[1]))
        return -1;
    return ms / (float)repeats;
}

/* The first time it is issued loads its kernels: little in a lengthy one. */
static float time_one(af_cuda *cu, af_cuda_gemm_plan *p, void *event[2], int repeats, bool warm)
{
    const float ms = warm ? 0 : time_runs(cu, p, event, 1);
    return ms < 0 || ms > LENGTHY_MS ? ms : time_runs(cu, p, event, repeats);
}

/* The best time of each counts, and every round goes over all that are near the best: something
 * else that runs on the device for a while does not decide what is stored on disk. */
static int fastest(af_cuda *cu, af_cuda_gemm_plan *p, const af_lt_result *c, int n)
{
    void *event[2] = {0};
    float ms[CANDIDATES];
    int best = -1;
    if (cu->drv->event_new(&event[0], 0) || cu->drv->event_new(&event[1], 0))
        n = 0;
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            if (round > 0 && (ms[i] < 0 || ms[i] > 1.3f * ms[best]))
                continue;
            const bool alone = round > 0 && ms[best] > ALONE_MS;
            if (round > 1 && ms[best] > LENGTHY_MS)
                continue;
            p->algo = c[i].algo;
            const float t = time_one(cu, p, event, round == 0 || alone ? 1 : REPEATS, alone);
            ms[i] = round == 0 ? t : t >= 0 ? AF_MIN(ms[i], t) : ms[i];
            if (ms[i] >= 0 && (best < 0 || ms[i] < ms[best]))
                best = i;
        }
    for (int i = 0; i < 2; i++)
        if (event[i])
            cu->drv->event_free(event[i]);
    return best;
}

void af_cuda_fill_noise(af_cuda *cu, const af_kernel *k, const af_mat *x, int batch, int64_t stride)
{
    void *p = x->data;
    int kind = x->dtype == AF_DTYPE_F32 ? 0 : x->dtype == AF_DTYPE_BF16 ? 1 : 2;
    int64_t n = (x->rows - 1) * x->ld + x->cols + (int64_t)(AF_MAX(batch, 1) - 1) * stride;
    void *arg[] = {&p, &n, &kind, NULL};
    if (k)
        (void)cu->drv->launch(k->func, 1024, 1, 1, 256, 1, 1, 0, cu->stream, arg, NULL);
}

static af_status choose(af_cuda *cu, af_cuda_gemm_plan *p, const af_kernel *noise, bool *dirtied,
                        af_error *err)
{
    af_lt *lt = cu->lt;
    af_lt_result c[CANDIDATES], check;
    char key[AF_GEMM_KEY];
    for (int exact = 0; exact < 2; exact++) {
        af_cuda_gemm_key(p, exact, key);
        p->choice = af_cuda_gemm_choice_find(lt, key);
        if (!p->choice)
            break;
        if (lt->api.algo_check(lt->handle, p->desc, p->la, p->lb, p->ladd, p->lc, &p->choice->algo,
                               &check) == 0) {
            p->algo = p->choice->algo;
            return AF_OK;
        }
    }
    const int n = candidates(lt, p, c);
    int best = 0;
    if (n == 0) { /* the library cannot (odd alignment): our kernel can */
        af_cuda_gemm_release(cu, p);
        return af_cuda_gemm_own(cu, p, err);
    }
    if (n > 1 && lt->path) {
        af_cuda_fill_noise(cu, noise, &p->m.a, p->m.batch, p->m.stride_a);
        af_cuda_fill_noise(cu, noise, &p->m.b, p->m.batch, p->m.stride_b);
        *dirtied = true;
        best = fastest(cu, p, c, n);
    }
    if (best < 0)
        return af_fail(err, AF_EDEVICE, "no cuBLASLt algorithm runs for %s", key);
    p->algo = c[best].algo;
    p->choice = af_cuda_gemm_choice_add(lt, key, &p->algo);
    return p->choice ? AF_OK : af_fail_nomem(err, "GEMM choices", sizeof *p->choice);
}

/* Layers have the same GEMMs: what the library has checked once holds for all that are alike. */
typedef struct served {
    char key[AF_GEMM_KEY]; /* with strides */
    const af_cuda_gemm_choice *choice;
} served;
enum { SERVED_MAX = 128 };

static const af_cuda_gemm_choice *served_before(const served *list, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].key, key) == 0)
            return list[i].choice;
    return NULL;
}

static af_status choose_once(af_cuda *cu, af_cuda_gemm_plan *p, const af_kernel *noise,
                             served *list, int *n, bool *dirtied, af_error *err)
{
    char key[AF_GEMM_KEY];
    af_cuda_gemm_key(p, true, key);
    p->choice = p->m.batch <= 1 ? served_before(list, *n, key) : NULL;
    if (p->choice) {
        p->algo = p->choice->algo;
        return AF_OK;
    }
    const af_status st = choose(cu, p, noise, dirtied, err);
    if (st == AF_OK && p->choice && !p->own && p->m.batch <= 1 && list && *n < SERVED_MAX) {
        memcpy(list[*n].key, key, sizeof key);
        list[(*n)++].choice = p->choice;
    }
    return st;
}

af_status af_cuda_gemm_tune(af_cuda *cu, bool *dirtied, af_error *err)
{
    af_lt *lt = cu->lt;
    af_status st = AF_OK;
    int n = 0;
    if (!lt || !lt->untuned)
        return AF_OK;
    served *list = af_calloc(SERVED_MAX, sizeof *list); /* without: each is checked */
    af_kernel *noise = af_cuda_kernel(cu, "gemm.cu", "fill_noise", "AF_T=bf16 AF_C=bf16");
    for (af_cuda_gemm_plan *p = lt->untuned; p; p = p->next)
        AF_TRY(choose_once(cu, p, noise && noise->func ? noise : NULL, list, &n, dirtied, err));
    if (lt->stored < lt->n)
        af_cuda_gemm_choices_write(lt);
done:
    lt->untuned = NULL;
    free(list);
    return st;
}
