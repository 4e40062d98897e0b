/* ranks.c - see ranks.h. */
#include "train/step/ranks.h"
#include "afinar/version.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/pool.h"
#include "graph/graph_access.h"
#include "train/run/run_keys.h"

#include <stdlib.h>

/* ---- agreement ---- */

/* What may differ between ranks: where they compute. */
static bool is_local(const char *key)
{
    return strcmp(key, "device") == 0 || strcmp(key, "threads") == 0;
}

/* The line of a key in the text of a run file, "" when it is not there. */
static const char *line_of(const char *text, const char *key, uint64_t *bytes)
{
    const size_t n = strlen(key);
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1)
        if (strncmp(at, key, n) == 0 && at[n] == ':') {
            const char *value = at + n + 1 + (at[n + 1] == ' ');
            *bytes = (uint64_t)(end - value);
            return value;
        }
    *bytes = 0;
    return "";
}

static af_status agree_keys(af_comm *c, const char *text, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < af_keys_count && st == AF_OK; i++) {
        uint64_t bytes;
        const char *value = line_of(text, af_keys[i].name, &bytes);
        if (!is_local(af_keys[i].name))
            st = af_comm_agree(c, af_keys[i].name, value, bytes, err);
    }
    return st;
}

static af_status agree_run(af_comm *c, const af_run_config *run, af_error *err)
{
    char *text = NULL;
    uint64_t all = AF_FNV_START;
    af_status st = af_run_config_text(run, &text, err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < af_keys_count; i++) {
        uint64_t bytes;
        const char *value = line_of(text, af_keys[i].name, &bytes);
        if (!is_local(af_keys[i].name))
            all = af_fnv1a(all + (uint64_t)i, value, bytes);
    }
    st = af_comm_agree(c, "the run file", &all, sizeof all, err);
    if (st == AF_EUSAGE) /* which key is it? */
        st = agree_keys(c, text, err);
    free(text);
    return st;
}

static af_status check_ranks(const af_comm *c, const af_run_config *run, af_error *err)
{
    const int n = af_comm_size(c);
    int stage;
    af_status st = af_run_zero_stage(run, &stage, err);
    if (st == AF_OK)
        st = af_run_order_check(run, n, stage, err);
    /* what rank 0 does alone, or by looking at weights */
    const char *key = run->fp8 ? "fp8" : run->generate_samples.count ? "generate_samples" : NULL;
    if (st == AF_OK && stage == AF_ZERO_MAX && n > 1 && key)
        return af_fail(err, AF_EUSAGE,
                       "%s: %s needs whole weights, which no rank has with zero_stage %d: leave it "
                       "out, or use zero_stage 2",
                       run->path, key, stage);
    return st;
}

af_status af_ranks_open(af_comm **out, const af_run_config *run, const af_train_hooks *hooks,
                        bool *common, af_error *err)
{
    *common = false;
    const af_comm_opts o = {.backend = run->dist_backend,
                            .timeout = (double)run->ddp_timeout,
                            .lost = hooks ? hooks->lost : NULL,
                            .waits = hooks ? hooks->log : NULL,
                            .stop = hooks ? hooks->stop : NULL,
                            .user = hooks ? hooks->user : NULL};
    af_status st = af_comm_open(out, &o, err);
    if (st != AF_OK || !*out)
        return st;
    AF_TRY(check_ranks(*out, run, err));
    AF_TRY(af_comm_agree(*out, "the version of afinar", af_version(), strlen(af_version()), err));
    AF_TRY(agree_run(*out, run, err));
done:
    *common = st == AF_EUSAGE; /* not: no memory, or a rank that failed before */
    return st;
}

af_status af_ranks_agree_data(af_comm *c, const af_run_data *d, af_error *err)
{
    if (!c)
        return AF_OK;
    uint64_t sum[2] = {AF_FNV_START, AF_FNV_START};
    const af_token_store *store[2] = {&d->store, &d->eval_store};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < store[k]->records; i++)
            sum[k] = af_fnv1a(sum[k] + (uint64_t)i, af_token_words(store[k], i),
                              (uint64_t)store[k]->index[i].count * sizeof(uint32_t));
    const af_status st = af_comm_agree(c, "datasets", &sum[0], sizeof *sum, err);
    return st == AF_OK ? af_comm_agree(c, "test_datasets", &sum[1], sizeof *sum, err) : st;
}

/* Of large tensors samples: another revision of a model differs all over. The order of tensors,
 * which follows that of files, does not count. */
static uint64_t hash_weights(const af_weights *w)
{
    enum { WHOLE = 1 << 16, PIECE = 64, SAMPLES = 4096 };
    const int count = af_weights_count(w);
    const uint64_t pieces = (uint64_t)AF_MAX(SAMPLES / AF_MAX(count, 1), 1);
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        const af_stored *t = af_weights_at(w, i);
        const uint8_t *data = t->data;
        uint64_t h = af_fnv1a(AF_FNV_START, t->name, strlen(t->name));
        h = af_fnv1a(h + (uint64_t)t->dtype, t->dim, sizeof t->dim);
        if (t->bytes <= WHOLE)
            h = af_fnv1a(h, data, t->bytes);
        for (uint64_t k = 0; k < pieces && t->bytes > WHOLE; k++)
            h = af_fnv1a(h, data + (t->bytes - PIECE) / pieces * k, PIECE);
        sum += h;
        af_weights_forget(w, t);
    }
    return sum;
}

/* The weights in w, or of an adapter's folder; neither: there is nothing to agree on. */
static af_status agree_weights(af_comm *c, const char *what, const af_weights *w, const char *dir,
                               af_error *err)
{
    af_weights *own = NULL;
    af_status st = AF_OK;
    if (!w && !dir)
        return AF_OK;
    if (dir)
        AF_TRY(af_adapter_open_values(&own, dir, err));
    const uint64_t sum = hash_weights(dir ? own : w);
    st = af_comm_agree(c, what, &sum, sizeof sum, err);
done:
    af_weights_close(own);
    return st;
}

af_status af_ranks_agree_model(af_comm *c, const af_run_model *m, af_error *err)
{
    const af_run_config *r = m->run;
    af_status st = AF_OK;
    if (!c)
        return AF_OK;
    AF_TRY(agree_weights(c, "the content of base_model", m->loader->reader->weights, NULL, err));
    AF_TRY(agree_weights(c, "the content of lora_model_dir", NULL, r->lora_model_dir, err));
    AF_TRY(agree_weights(c, "the content of teacher_model",
                         m->teacher ? m->teacher->reader->weights : NULL, NULL, err));
    st = agree_weights(c, "the content of teacher_adapter", NULL, r->teacher_adapter, err);
done:
    return st;
}

af_status af_ranks_agree_checkpoint(af_comm *c, const char *dir, af_error *err)
{
    enum { LONGEST = 1 << 24 };
    char *path = NULL, *text = NULL;
    uint64_t size;
    af_status st = AF_OK;
    if (!c)
        return AF_OK;
    path = af_path_join(dir, "manifest.json"); /* it has the checksums of all files */
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(af_file_read(&text, &size, path, LONGEST, err));
    const uint64_t sum = af_fnv1a(AF_FNV_START, text, size);
    st = af_comm_agree(c, "the checkpoint to resume from", &sum, sizeof sum, err);
done:
    free(text);
    free(path);
    return st;
}

/* ---- devices ---- */

/* Several ranks may share a GPU where NCCL was told so. */
static bool may_share(void)
{
    const char *v = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return v && strcmp(v, "1") == 0;
}

static af_status own_gpu(const af_comm *c, af_device **out, const char *device, af_error *err)
{
    char name[32];
    af_error why = {0};
    const bool asked = strncmp(device, "cuda", 4) == 0;
    snprintf(name, sizeof name, "cuda:%d", af_comm_local_rank(c));
    if (af_device_open(out, name, 1, &why) == AF_OK)
        return AF_OK;
    if (af_device_open(out, "cuda:0", 1, NULL) != AF_OK) /* no GPU at all */
        return asked ? af_fail(err, why.code, "%s", why.msg) : AF_OK;
    if (may_share())
        return AF_OK;
    af_device_close(*out);
    *out = NULL;
    return af_fail(err, AF_EUSAGE, "%d ranks run on this machine, and %s", af_comm_local_size(c),
                   why.msg);
}

af_status af_ranks_device(af_comm *c, af_device **out, const af_run_config *run, af_error *err)
{
    int threads = (int)run->threads;
    if (!c)
        return af_device_open(out, run->device, threads, err);
    *out = NULL;
    if (strcmp(run->device, "cuda") == 0 || strcmp(run->device, "auto") == 0) {
        const af_status st = own_gpu(c, out, run->device, err);
        if (st != AF_OK || *out)
            return st;
    }
    if (!threads)
        threads = AF_MAX(af_cpu_count() / af_comm_local_size(c), 1);
    return af_device_open(out, strcmp(run->device, "auto") == 0 ? "cpu" : run->device, threads,
                          err);
}

/* Measured with 2 and 4 ranks (docs/measurements/cuda.md). */
uint64_t af_ranks_nccl_bytes(int ranks, bool started)
{
    static const uint64_t START = 600ull << 20, FIRST = 272ull << 20, NEXT = 32ull << 20;
    uint64_t sum = ranks > 1 ? FIRST + (started ? 0 : START) : 0;
    const bool power = (ranks & (ranks - 1)) == 0; /* else every rank is a neighbour */
    for (int n = 2; n < ranks; n = power ? 2 * n : n + 1)
        sum += NEXT;
    return sum;
}

af_status af_ranks_memory(af_comm *c, const af_device *d, uint64_t *bytes, af_error *err)
{
    *bytes = af_device_memory_free(d);
    if (!c)
        return AF_OK;
    if (af_device_is_cpu(d) || may_share())
        *bytes /= (uint64_t)af_comm_local_size(c);
    if (af_comm_wants_nccl(c) && !af_device_is_cpu(d))
        *bytes -= AF_MIN(*bytes, af_ranks_nccl_bytes(af_comm_size(c), true));
    const int n = af_comm_size(c);
    uint64_t *all = af_calloc((uint64_t)n, sizeof *all);
    if (!all)
        return af_fail_nomem(err, "ranks", (uint64_t)n * sizeof *all);
    const af_status st = af_comm_all_gather(c, bytes, all, sizeof *bytes, err);
    for (int i = 0; i < n && st == AF_OK; i++)
        *bytes = AF_MIN(*bytes, all[i]);
    free(all);
    return st;
}

/* ---- parts ---- */

/* The items [from, to) of n that this rank computes. */
static void part_of(const af_comm *c, int64_t n, int64_t *from, int64_t *to)
{
    const int64_t size = af_comm_size(c), each = (n + size - 1) / size;
    *from = AF_MIN(af_comm_rank(c) * each, n);
    *to = AF_MIN(*from + each, n);
}

void af_ranks_even_part(const af_run_model *m, int64_t n, int64_t *from, int64_t *to)
{
    const int64_t size = af_comm_size(m->comm);
    part_of(m->comm, n, from, to);
    if (af_run_model_splits_weights(m))
        *to = *from + (n + size - 1) / size;
}

af_status af_ranks_share(af_comm *c, void *items, uint64_t size, int64_t n, af_error *err)
{
    int64_t from, to;
    const uint64_t ranks = (uint64_t)af_comm_size(c), each = ((uint64_t)n + ranks - 1) / ranks;
    if (!c || n == 0)
        return AF_OK;
    uint8_t *all = af_calloc(each * ranks, size);
    if (!all)
        return af_fail_nomem(err, "results of all ranks", each * ranks * size);
    uint8_t *mine = all + (uint64_t)af_comm_rank(c) * each * size;
    part_of(c, n, &from, &to);
    memcpy(mine, (const uint8_t *)items + (uint64_t)from * size, (uint64_t)(to - from) * size);
    const af_status st = af_comm_all_gather(c, mine, all, each * size, err);
    if (st == AF_OK)
        memcpy(items, all, (uint64_t)n * size);
    free(all);
    return st;
}

af_status af_ranks_any(af_comm *c, bool *yes, af_error *err)
{
    if (!c)
        return AF_OK;
    const int n = af_comm_size(c);
    uint8_t *all = af_calloc((uint64_t)n, 1), mine = *yes;
    if (!all)
        return af_fail_nomem(err, "ranks", (uint64_t)n);
    const af_status st = af_comm_all_gather(c, &mine, all, 1, err);
    for (int i = 0; i < n; i++)
        *yes |= all[i] != 0;
    free(all);
    return st;
}

af_status af_ranks_tell(af_comm *c, char **text, bool *flag, af_error *err)
{
    af_status st = AF_OK;
    if (!c)
        return AF_OK;
    uint64_t head[2] = {*text ? strlen(*text) + 1 : 0, *flag};
    AF_TRY(af_comm_broadcast(c, head, sizeof head, 0, err));
    *flag = head[1] != 0;
    if (head[0] == 0)
        return AF_OK;
    if (af_comm_rank(c) > 0) {
        *text = malloc(head[0]);
        if (!*text)
            return af_fail_nomem(err, "a text of rank 0", head[0]);
    }
    st = af_comm_broadcast(c, *text, head[0], 0, err);
done:
    return st;
}
