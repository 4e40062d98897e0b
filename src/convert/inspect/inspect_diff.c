/* inspect_diff.c - tensor by tensor, what two models have in common. */
#include "convert/inspect/inspect_mixed.h"
#include "convert/inspect/inspect_values.h"
#include "format/config/hf_config.h"
#include "format/weights/bnb_state.h"

static bool same_shape(const af_stored *a, const af_stored *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool same_bytes(const af_stored *a, const af_stored *b)
{
    return a->dtype == b->dtype && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static af_status compare(af_diff_row *row, const af_weights *wa, const af_weights *wb,
                         const af_stored *a, const af_stored *b, af_pool *pool, af_error *err)
{
    af_status st = AF_OK;
    af_stored_values va = {0}, vb = {0};
    bool ra = false, rb = false;
    row->cosine = 1;
    row->kind = AF_DIFF_SAME;
    if (same_shape(a, b) && same_bytes(a, b) && !af_bnb_is_packed(wa, a->name))
        return AF_OK;
    AF_TRY(af_stored_values_init(&va, &ra, wa, a, AF_DTYPE_F32, err));
    AF_TRY(af_stored_values_init(&vb, &rb, wb, b, AF_DTYPE_F32, err));
    const bool packed = va.packed || vb.packed; /* a packed and a plain weight may be compared */
    if (va.count != vb.count || (!packed && !same_shape(a, b)))
        row->kind = AF_DIFF_SHAPE;
    else if (!ra || !rb)
        row->kind = same_bytes(a, b) ? AF_DIFF_SAME : AF_DIFF_UNREAD;
    else
        AF_TRY(af_values_diff(&va, &vb, pool, row, err));
done:
    return st;
}

static af_status start_row(af_diff_row *row, af_diff_report *r, const af_stored *a,
                           const af_stored *b, af_error *err)
{
    const af_stored *t = a ? a : b;
    row->name = af_arena_strdup(af_arena_of(r), t->name);
    row->dtype_a = a ? af_stored_type_name(af_arena_of(r), a) : "";
    row->dtype_b = b ? af_stored_type_name(af_arena_of(r), b) : "";
    row->ndim = t->ndim;
    memcpy(row->dim, t->dim, sizeof row->dim);
    row->count = af_weight_count(t);
    return row->name ? AF_OK : af_fail_nomem(err, "a row", strlen(t->name));
}

static af_status fill(af_diff_report *r, const af_weights *wa, const af_weights *wb, af_pool *pool,
                      af_error *err)
{
    af_status st = AF_OK;
    const int na = af_weights_count(wa), nb = af_weights_count(wb);
    af_diff_row *rows = af_arena_take(af_arena_of(r), (uint64_t)(na + nb + 1) * sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, "the rows", (uint64_t)(na + nb) * sizeof *rows);
    r->rows = rows;
    for (int i = 0; i < na + nb; i++) {
        const af_stored *a = i < na ? af_weights_at(wa, i) : NULL;
        const af_stored *b = a ? af_weights_find(wb, a->name) : af_weights_at(wb, i - na);
        if (!a && af_weights_find(wa, b->name))
            continue;
        if (af_bnb_is_part(a ? wa : wb, a ? a->name : b->name))
            continue; /* seen through the values of the weight it belongs to */
        af_diff_row *row = &rows[r->row_count++];
        AF_TRY(start_row(row, r, a, b, err));
        if (!a || !b)
            row->kind = a ? AF_DIFF_ONLY_A : AF_DIFF_ONLY_B;
        else
            AF_TRY(compare(row, wa, wb, a, b, pool, err));
        r->same += row->kind == AF_DIFF_SAME;
        r->changed += row->kind == AF_DIFF_CHANGED;
        r->other += row->kind > AF_DIFF_CHANGED;
    }
done:
    return st;
}

af_status af_inspect_diff(af_diff_report **out, const char *a, const char *b,
                          const af_inspect_options *options, af_error *err)
{
    AF_NEED(err, out, a, b);
    af_status st = AF_OK;
    af_weights *wa = NULL, *wb = NULL;
    af_pool *pool = NULL;
    char *pa = NULL, *pb = NULL;
    af_diff_report *r = af_arena_owner_new(sizeof *r);
    if (!r)
        AF_TRY(af_fail_nomem(err, "a report", sizeof *r));
    AF_TRY(af_model_resolve(&pa, a, err));
    AF_TRY(af_model_resolve(&pb, b, err));
    AF_TRY(af_weights_open(&wa, pa, err));
    AF_TRY(af_weights_open(&wb, pb, err));
    AF_TRY(af_pool_new(&pool, options ? options->threads : 0, err));
    r->path_a = af_arena_strdup(af_arena_of(r), pa);
    r->path_b = af_arena_strdup(af_arena_of(r), pb);
    if (!af_weights_gguf(wa) == !af_weights_gguf(wb)) /* names of one kind */
        AF_TRY(fill(r, wa, wb, pool, err));
    else
        AF_TRY(af_diff_mixed(r, pa, pb, err));
    *out = r;
    r = NULL;
done:
    af_pool_free(pool);
    af_weights_close(wa);
    af_weights_close(wb);
    free(pa);
    free(pb);
    af_inspect_diff_free(r);
    return st;
}

void af_inspect_diff_free(af_diff_report *r) { af_arena_owner_free(r); }
