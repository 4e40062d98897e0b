/* checkpoint_load.c - a checkpoint into a prepared graph and the counters of a run. */
#include "base/file.h"
#include "format/weights/safetensors.h"
#include "graph/graph_access.h"
#include "model/arch/arch_disk.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/run/adapter_start.h"

static af_status bad_state(const char *dir, const char *name, af_error *err)
{
    return af_fail(
        err, AF_EFORMAT,
        "'%s' does not match this run: optimizer state '%s' is missing or has another size", dir,
        name);
}

/* This rank's pieces of a state that is split. */
static af_status load_split_state(const af_step_graph *g, const af_safetensors *f, const char *dir,
                                  af_error *err)
{
    af_status st = AF_OK;
    int k = 0;
    for (const af_state_part *p = af_graph_states(g->graph); p && st == AF_OK; p = p->next, k++) {
        char name[160];
        int64_t from, count;
        snprintf(name, sizeof name, "%d.%s", k, p->name);
        const af_stored *e = af_safetensors_find(f, name);
        const uint64_t size = (uint64_t)af_dtype_get(p->dtype)->bytes;
        if (!e || e->dtype != p->dtype || e->bytes != (uint64_t)p->full * size)
            return bad_state(dir, name, err);
        af_graph_state_piece(g->graph, p, af_comm_rank(g->model->comm), &from, &count);
        if (count)
            st = af_tensor_write(g->graph, p->t, (const uint8_t *)e->data + (uint64_t)from * size,
                                 (uint64_t)count * size, err);
    }
    return st;
}

/* A stored tensor into the graph; pages of the file are released as they are read, since the
 * graph has taken its memory already. */
static af_status put_stored(const af_step_graph *g, const af_safetensors *f, af_tensor *x,
                            const af_stored *e, af_error *err)
{
    const af_map *m = af_safetensors_map(f);
    const uint64_t step = UINT64_C(16) << 20;
    const uint8_t *p = e->data;
    const bool mapped = p >= m->data && p < m->data + m->size;
    uint8_t *to = af_tensor_host_view(x);
    if (!to)
        return af_tensor_write(g->graph, x, e->data, e->bytes, err);
    for (uint64_t at = 0; at < e->bytes; at += step) {
        const uint64_t n = AF_MIN(step, e->bytes - at);
        memcpy(to + at, p + at, n);
        if (mapped)
            af_map_forget(m, (uint64_t)(p - m->data) + at, n);
    }
    return AF_OK;
}

static af_status load_state(const af_step_graph *g, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors *f = NULL;
    char *path = af_path_join(dir, "optimizer.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_safetensors_open(&f, path, err));
    if (af_checkpoint_is_split(g))
        AF_TRY(load_split_state(g, f, dir, err));
    int k = 0;
    for (af_tensor *x = NULL;
         !af_checkpoint_is_split(g) && (x = af_graph_next(g->graph, AF_ROLE_STATE, x));) {
        char name[160];
        if (!af_tensor_is_stored(x))
            continue;
        snprintf(name, sizeof name, "%d.%s", k++, af_tensor_name(x));
        const af_stored *e = af_safetensors_find(f, name);
        if (!e || e->dtype != af_tensor_dtype(x) || e->bytes != af_tensor_bytes(x))
            AF_TRY(bad_state(dir, name, err));
        AF_TRY(put_stored(g, f, x, e, err));
    }
    if (af_graph_averages(g->graph)) {
        af_tensor *flat = af_graph_flat_params(g->graph);
        const af_stored *e = af_safetensors_find(f, AF_CHECKPOINT_TAKEN);
        if (!e || e->dtype != AF_DTYPE_F32 || e->bytes != af_tensor_bytes(flat))
            AF_TRY(bad_state(dir, AF_CHECKPOINT_TAKEN, err));
        AF_TRY(af_tensor_write(g->graph, flat, e->data, e->bytes, err));
    }
    if (g->reference) {
        const af_stored *e = af_safetensors_find(f, AF_CHECKPOINT_REFERENCE);
        const uint64_t bytes = (uint64_t)g->reference_count * sizeof(float);
        if (!e || e->dtype != AF_DTYPE_F32 || e->bytes != bytes)
            AF_TRY(bad_state(dir, AF_CHECKPOINT_REFERENCE, err));
        memcpy(g->reference, e->data, bytes);
    }
done:
    af_safetensors_close(f);
    free(path);
    return st;
}

/* One trained tensor from its pieces on disk. */
static af_status load_weight(const af_step_graph *g, const af_safetensors *f, int tensor,
                             const char *dir, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *spec = g->model->spec;
    af_tensor *x = g->leaves.tensor[tensor];
    const int pieces = af_disk_count(spec, tensor);
    const bool turned = af_disk_is_turned(spec, tensor), copied = pieces > 1 || turned;
    const uint64_t size = (uint64_t)af_dtype_get(af_tensor_dtype(x))->bytes;
    uint8_t *whole = copied ? malloc(AF_MAX(af_tensor_bytes(x), 1)) : NULL;
    if (copied && !whole)
        return af_fail_nomem(err, "a checkpoint", af_tensor_bytes(x));
    for (int p = 0; p < pieces; p++) {
        char own[160], name[256];
        int64_t dim[AF_DISK_DIMS], from;
        int ndim;
        af_disk_piece(spec, tensor, p, own, sizeof own, dim, &ndim, &from);
        af_model_reader_disk_name(g->model->loader->reader, own, name, sizeof name);
        const af_stored *e = af_safetensors_find(f, name);
        const uint64_t bytes =
            (uint64_t)(dim[0] * (ndim > 1 ? dim[1] : 1) * (ndim > 2 ? dim[2] : 1)) * size;
        if (!e || e->dtype != af_tensor_dtype(x) || e->bytes != bytes)
            AF_TRY(
                af_fail(err, AF_EFORMAT,
                        "'%s' does not match this run: tensor '%s' is missing or has another size",
                        dir, name));
        if (turned && pieces == 1)
            af_disk_turn(&spec->tensor[tensor], e->data, whole, size, false);
        else if (whole)
            memcpy(whole + (uint64_t)from * size, e->data, bytes);
        else
            AF_TRY(put_stored(g, f, x, e, err));
    }
    if (turned && pieces > 1) { /* they lie one after another now */
        uint8_t *ours = malloc(AF_MAX(af_tensor_bytes(x), 1));
        if (!ours)
            AF_TRY(af_fail_nomem(err, "a checkpoint", af_tensor_bytes(x)));
        af_disk_turn(&spec->tensor[tensor], whole, ours, size, false);
        free(whole);
        whole = ours;
    }
    if (whole)
        st = af_tensor_write(g->graph, x, whole, af_tensor_bytes(x), err);
done:
    free(whole);
    return st;
}

static af_status load_weights(const af_step_graph *g, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors *f = NULL;
    char *path = af_path_join(dir, "model.safetensors");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_safetensors_open(&f, path, err));
    for (int i = 0; i < g->model->spec->tensors; i++)
        if (af_tensor_role(g->leaves.tensor[i]) == AF_ROLE_PARAM)
            AF_TRY(load_weight(g, f, i, dir, err));
done:
    af_safetensors_close(f);
    free(path);
    return st;
}

/* OFT: the same blocks, or the same lack of them. */
static af_status check_blocks(const af_adapter *a, const af_adapter *own, const char *dir,
                              af_error *err)
{
    for (int i = 0; i < own->spec->modules; i++) {
        const af_adapter_module *x = &a->module[i], *y = &own->module[i];
        if (a->as_stored != own->as_stored || x->block != y->block || x->triangles != y->triangles)
            return af_fail(err, AF_EUSAGE,
                           "'%s' has %" PRId64 " rotations of %" PRId64 " inputs on '%s', the run "
                           "%" PRId64 " of %" PRId64,
                           dir, x->triangles, x->block, own->spec->module[i].path, y->triangles,
                           y->block);
    }
    return AF_OK;
}

/* What one of the checkpoint and the run has and the other lacks: it would begin at zero, or what
 * was learnt would get lost. `what` has an article. */
static af_status differs(const char *dir, bool stored, const char *what, const char *where,
                         af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "'%s' has %s%s on '%s', this run has %s: resume with the keys it was made with",
                   dir, stored ? "" : "no ", stored ? what : strchr(what, ' ') + 1, where,
                   stored ? "none" : "one");
}

static af_status check_module(const af_adapter_module *x, const af_adapter_module *y,
                              const char *path, const char *dir, af_error *err)
{
    if (!x->rank != !y->rank)
        return differs(dir, x->rank, "an adapter", path, err);
    if (x->rank != y->rank)
        return af_fail(err, AF_EUSAGE, "'%s' has rank %d on '%s', the run has %d", dir, x->rank,
                       path, y->rank);
    if (!x->magnitude != !y->magnitude)
        return differs(dir, x->magnitude, "a magnitude of DoRA", path, err);
    return !x->bias != !y->bias ? differs(dir, x->bias, "a bias of an adapter", path, err) : AF_OK;
}

/* The same modules, and the same tensors and rows next to them. */
static af_status check_parts(const af_adapter *a, const af_adapter *own, const char *dir,
                             af_error *err)
{
    static const char *const tables[AF_TOKEN_TABLES] = {"the embedding", "the head"};
    const af_model_spec *s = own->spec;
    af_status st = AF_OK;
    for (int i = 0; i < s->modules && st == AF_OK; i++)
        st = check_module(&a->module[i], &own->module[i], s->module[i].path, dir, err);
    for (int i = 0; i < s->tensors && st == AF_OK; i++)
        if (!a->saved[i] != !own->saved[i])
            st = differs(dir, a->saved[i], "a trained tensor", s->tensor[i].name, err);
    for (int k = 0; k < AF_TOKEN_TABLES && st == AF_OK; k++) {
        const af_token_rows *x = &a->tokens[k], *y = &own->tokens[k];
        if (x->count != y->count ||
            (x->count && memcmp(x->index, y->index, (size_t)x->count * sizeof *x->index) != 0))
            st = af_fail(err, AF_EUSAGE,
                         "'%s' has %d trained rows of %s, this run %d%s: resume with the keys it "
                         "was made with",
                         dir, x->count, tables[k], y->count, x->count == y->count ? " others" : "");
    }
    return st;
}

static af_status load_adapter(af_step_graph *g, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL, *saved = NULL, *own = g->model->adapter;
    AF_TRY(af_start_convert(&saved, own, err)); /* the form of what the folder has */
    const int rank = saved ? saved->config.r : own->config.r;
    AF_TRY(af_adapter_read_to_train(&a, g->model->spec, dir, err));
    AF_TRY(check_blocks(a, own, dir, err));
    if (a->config.r != rank)
        AF_TRY(af_fail(err, AF_EUSAGE, "'%s' has rank %d, the run has %d", dir, a->config.r, rank));
    AF_TRY(check_parts(a, saved ? saved : own, dir, err));
    if (saved)
        af_start_restore(own, a);
    st = af_adapter_upload(saved ? own : a, &g->leaves, err);
done:
    af_adapter_free(saved);
    af_adapter_free(a);
    return st;
}

af_status af_checkpoint_verify(const char *dir, af_error *err)
{
    return af_manifest_check(dir, err);
}

af_status af_checkpoint_load(af_step_graph *step, af_run_progress *p, const char *dir,
                             af_error *err)
{
    af_status st = AF_OK;
    uint64_t clock = 0;
    af_run_progress stored = *p;
    char *path = af_path_join(dir, "progress.json");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_checkpoint_verify(dir, err));
    AF_TRY(af_run_progress_read(&stored, &clock, path, err));
    AF_TRY(step->model->adapter ? load_adapter(step, dir, err) : load_weights(step, dir, err));
    AF_TRY(load_state(step, dir, err));
    *p = stored;
    af_graph_set_clock(step->graph, clock);
done:
    free(path);
    return st;
}
