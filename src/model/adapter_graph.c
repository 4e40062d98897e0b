/* adapter_graph.c - adapter values between the host and a graph, where the modules of one
 * projection share tensors. */
#include "model/builder.h"

enum { SHARED_MAX = AF_LINEAR_PIECES };

/* Modules i, i+1, ... that use the same A as module i, which is the first to. */
static int sharers(const af_model_leaves *l, int i, int out[SHARED_MAX])
{
    int n = 0;
    for (int k = i; k < l->spec->modules && k < i + SHARED_MAX; k++)
        if (l->module[k].a == l->module[i].a)
            out[n++] = k;
    return n;
}

static bool is_first(const af_model_leaves *l, int i)
{
    for (int k = i - 1; k >= 0 && k > i - SHARED_MAX; k--)
        if (l->module[k].a == l->module[i].a)
            return false;
    return l->module[i].a != NULL;
}

/* Moves the values of module k between its host arrays and the whole tensors' images. */
static void move(const af_adapter *a, const af_model_leaves *l, int k, float *whole_a,
                 float *whole_b, bool to_graph)
{
    const af_module_spec *m = &l->spec->module[k];
    const af_adapter_module *am = &a->module[k];
    float *at_a = whole_a + l->module[k].a_row * m->in, *at_b = whole_b + l->module[k].b_from;
    const size_t na = (size_t)af_adapter_a_count(m, am->rank) * sizeof *at_a;
    const size_t nb = (size_t)af_adapter_b_count(m, am->rank) * sizeof *at_b;
    memcpy(to_graph ? at_a : am->a, to_graph ? am->a : at_a, na);
    memcpy(to_graph ? at_b : am->b, to_graph ? am->b : at_b, nb);
}

static af_status move_group(const af_adapter *a, const af_model_leaves *l, int i, bool to_graph,
                            af_error *err)
{
    af_status st = AF_OK;
    af_tensor *ta = l->module[i].a, *tb = l->module[i].b;
    const uint64_t na = af_tensor_bytes(ta), nb = af_tensor_bytes(tb);
    int share[SHARED_MAX];
    const int n = sharers(l, i, share);
    float *whole_a = af_calloc(na, 1), *whole_b = af_calloc(nb, 1);
    if (!whole_a || !whole_b)
        AF_TRY(af_fail_nomem(err, "an adapter", na + nb));
    if (!to_graph) {
        AF_TRY(af_tensor_read(l->graph, ta, whole_a, na, err));
        AF_TRY(af_tensor_read(l->graph, tb, whole_b, nb, err));
    }
    for (int k = 0; k < n; k++)
        move(a, l, share[k], whole_a, whole_b, to_graph);
    if (to_graph) {
        AF_TRY(af_tensor_write(l->graph, ta, whole_a, na, err));
        AF_TRY(af_tensor_write(l->graph, tb, whole_b, nb, err));
    }
done:
    free(whole_a);
    free(whole_b);
    return st;
}

static af_status move_one(const af_model_leaves *l, af_tensor *t, float *host, bool to_graph,
                          af_error *err)
{
    return to_graph ? af_tensor_write(l->graph, t, host, af_tensor_bytes(t), err)
                    : af_tensor_read(l->graph, t, host, af_tensor_bytes(t), err);
}

static af_status move_all(const af_adapter *a, const af_model_leaves *l, bool to_graph,
                          af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < l->spec->modules; i++) {
        if (is_first(l, i))
            AF_TRY(move_group(a, l, i, to_graph, err));
        if (l->module[i].magnitude)
            AF_TRY(move_one(l, l->module[i].magnitude, a->module[i].magnitude, to_graph, err));
        if (l->module[i].triangle)
            AF_TRY(move_one(l, l->module[i].triangle, a->module[i].triangle, to_graph, err));
        if (l->module[i].bias)
            AF_TRY(move_one(l, l->module[i].bias, a->module[i].bias, to_graph, err));
    }
    for (int i = 0; i < l->spec->tensors; i++)
        if (a->saved[i])
            AF_TRY(move_one(l, l->tensor[i], a->saved[i], to_graph, err));
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (l->tokens[k])
            AF_TRY(move_one(l, l->tokens[k], a->token_values[k], to_graph, err));
done:
    return st;
}

af_status af_adapter_upload(const af_adapter *a, af_model_leaves *l, af_error *err)
{
    return move_all(a, l, true, err);
}

af_status af_adapter_download(af_adapter *a, const af_model_leaves *l, af_error *err)
{
    return move_all(a, l, false, err);
}
