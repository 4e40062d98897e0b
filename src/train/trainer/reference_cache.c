/* reference_cache.c - see reference_cache.h. */
#include "train/trainer/reference_cache.h"

#include "base/file.h"
#include "base/hash.h"
#include "data/store/token_cache.h"
#include "format/weights/gguf.h"
#include "model/adapter_config.h"
#include "train/run/method.h"

#include <math.h>
#include <stdlib.h>

#define MAGIC UINT64_C(0x3146455246414641) /* "AFAFREF1" */

typedef struct header {
    uint64_t magic, records, sum;
} header;

/* ---- the key ---- */

static void hash_text(af_sha256 *h, const char *s) { af_sha256_add(h, s, strlen(s) + 1); }

static af_status hash_file(af_sha256 *h, const char *path, af_error *err)
{
    enum { PIECE = 1 << 22 };
    af_map m;
    const af_status st = af_map_open(&m, path, err);
    if (st != AF_OK)
        return st;
    af_sha256_add(h, &m.size, sizeof m.size);
    for (uint64_t at = 0; at < m.size; at += PIECE) { /* which do not stay resident */
        const uint64_t n = AF_MIN((uint64_t)PIECE, m.size - at);
        af_sha256_add(h, m.data + at, n);
        af_map_forget(&m, at, n);
    }
    af_map_close(&m);
    return AF_OK;
}

static af_status hash_gguf(af_sha256 *h, const char *path, af_error *err)
{
    af_gguf *g;
    af_status st = af_gguf_open(&g, path, err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < af_gguf_files(g) && st == AF_OK; i++)
        st = hash_file(h, af_gguf_path(g, i), err);
    af_gguf_close(g);
    return st;
}

static bool is_weight_file(const char *name)
{
    static const char *const tails[] = {".safetensors", ".gguf", ".bin", "config.json"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < AF_LEN(tails); i++)
        if (n >= strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0)
            return true;
    return false;
}

af_status af_weights_hash(af_sha256 *h, const char *path, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL;
    int n = 0;
    if (!af_dir_exists(path))
        return hash_gguf(h, path, err);
    AF_TRY(af_dir_list(&names, &n, path, err));
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *file = is_weight_file(names[i]) ? af_path_join(path, names[i]) : NULL;
        if (file) {
            hash_text(h, names[i]);
            st = hash_file(h, file, err);
        }
        free(file);
    }
done:
    af_names_free(names, n);
    return st;
}

/* A new adapter whose start is not the base: which matrices it has counts, too. */
static af_status hash_start(af_sha256 *h, const af_run_model *model, const af_run_config *r,
                            af_error *err)
{
    const bool zero = strcmp(r->lora_init, "true") == 0 || strcmp(r->lora_init, "gaussian") == 0 ||
                      strcmp(r->lora_init, "xavier") == 0;
    if (!model->adapter || r->lora_model_dir || (zero && !r->dora))
        return AF_OK;
    char *text = af_adapter_config_text(&model->adapter->config);
    if (!text)
        return af_fail_nomem(err, "the adapter's config", 0);
    hash_text(h, text);
    free(text);
    return AF_OK;
}

/* How values are computed. On a GPU they depend on the other rows of a batch to the last bit. */
static void hash_settings(af_sha256 *h, const af_run_model *model, const af_run_data *data,
                          const af_run_config *r)
{
    char text[400];
    const bool gpu = !af_run_model_on_cpu(model);
    snprintf(text, sizeof text, "%s %d %d %d %" PRId64 " %d %d%s", AF_VERSION, gpu,
             (int)model->compute, af_method_quantises(r), r->sequence_len,
             (int)(r->rl == AF_RL_KTO), data->attention_max > 0, r->fp8 ? " fp8" : "");
    hash_text(h, text);
    if (gpu) {
        snprintf(text, sizeof text, "%d %d %d %" PRId64 " %d %d %" PRId64 " %s", r->tf32,
                 (int)r->attention, (int)r->gemm, r->micro_batch_size, r->packing, r->shuffle,
                 r->seed, af_device_text(model->device));
        hash_text(h, text);
    }
    if (r->rl == AF_RL_KTO) { /* whether there are KL rows, and whose answers they have */
        snprintf(text, sizeof text, "%d %" PRId64 " %a %" PRId64, af_run_has_kl_rows(r),
                 af_run_kl_batch(r), r->val_set_size, r->seed);
        hash_text(h, text);
    }
    if (model->adapter && !r->lora_model_dir) { /* a start that is not the base to the last bit */
        snprintf(text, sizeof text, "%s %" PRId64 " %a %d %d %" PRId64, r->lora_init, r->lora_r,
                 r->lora_alpha, r->rslora, r->dora, r->seed);
        hash_text(h, text);
    }
}

af_status af_reference_path(char **out, const af_run_model *model, const af_run_data *data,
                            const af_run_config *run, bool eval, af_error *err)
{
    af_sha256 h;
    af_status st = AF_OK;
    char hex[65], name[96], *dir = NULL;
    const af_token_store *store = eval ? &data->eval_store : &data->store;
    *out = NULL;
    if (af_cache_dir(&dir, "tokens", NULL) != AF_OK)
        return AF_OK;
    af_sha256_init(&h);
    hash_settings(&h, model, data, run);
    AF_TRY(hash_start(&h, model, run, err));
    af_sha256_add(&h, &store->sum, sizeof store->sum);
    AF_TRY(af_weights_hash(&h, model->path, err));
    if (model->adapter && run->lora_model_dir)
        AF_TRY(af_weights_hash(&h, run->lora_model_dir, err));
    af_sha256_hex(&h, hex);
    snprintf(name, sizeof name, "%.32s.reference", hex);
    *out = af_path_join(dir, name);
    if (!*out)
        st = af_fail_nomem(err, "a path", strlen(dir));
done:
    free(dir);
    return st;
}

/* ---- the file ---- */

int64_t af_reference_load(const char *path, af_pair_reference *table, int64_t records)
{
    char *bytes = NULL;
    uint64_t size = 0;
    header h;
    int64_t known = 0;
    const uint64_t rest = (uint64_t)records * sizeof *table;
    if (!af_file_exists(path) ||
        af_file_read(&bytes, &size, path, sizeof h + rest, NULL) != AF_OK ||
        size != sizeof h + rest)
        goto done;
    memcpy(&h, bytes, sizeof h);
    if (h.magic != MAGIC || h.records != (uint64_t)records ||
        h.sum != af_fnv1a(AF_FNV_START, bytes + sizeof h, rest))
        goto done;
    memcpy(table, bytes + sizeof h, rest);
    for (int64_t i = 0; i < records; i++)
        known += !isnan(table[i].first);
    af_token_cache_touch(path);
done:
    free(bytes);
    return known;
}

af_status af_reference_save(const char *path, const af_pair_reference *table, int64_t records,
                            af_error *err)
{
    af_status st = AF_OK;
    af_out *o = NULL;
    const uint64_t rest = (uint64_t)records * sizeof *table;
    const header h = {MAGIC, (uint64_t)records, af_fnv1a(AF_FNV_START, table, rest)};
    AF_TRY(af_out_open_private(&o, path, err));
    AF_TRY(af_out_write(o, &h, sizeof h, err));
    AF_TRY(af_out_write(o, table, rest, err));
    st = af_out_commit(o, err);
    o = NULL;
done:
    af_out_abandon(o);
    return st;
}
