/* merge_rows.c - rows of embeddings and heads in the vocabulary of a merge. */
#include "convert/merge/merge_run.h"

static int view_of_model(const af_merge_inputs *in, int model)
{
    for (int i = 0; i < in->item->n; i++)
        if (in->item->source[i]->model == model)
            return i;
    return -1;
}

/* The row a model has for a token, -1 = none. */
static int32_t own_row(const af_merge_inputs *in, int view, int64_t row)
{
    const af_merge_tokens *k = &in->r->tokens;
    const int32_t own = k->map[in->item->source[view]->model * k->rows + row];
    return own < af_model_tensor_rows(in->item->tensor[view]) ? own : -1;
}

static bool is_forced(const af_merge_tokens *k, int64_t row)
{
    return row < k->used && k->force[row];
}

/* What stands in for a token that a model does not have: what the config says, else the base's row,
 * else the mean of those that have it, else zeros. */
static void read_stand_in(const af_merge_inputs *in, int64_t row, int64_t cols, float *out,
                          float *spare)
{
    const af_merge_tokens *k = &in->r->tokens;
    const int from = k->from_model[row];
    int n = 0;
    if (from >= 0) {
        af_tensor_view_rows(&in->view[view_of_model(in, from)], k->from_row[row], 1, out);
        return;
    }
    memset(out, 0, (size_t)cols * sizeof *out);
    if (from == -2)
        return;
    /* Also of methods that do not use it otherwise. */
    const int base = in->r->config->base >= 0 ? view_of_model(in, in->r->config->base) : -1;
    if (base >= 0 && own_row(in, base, row) >= 0) {
        af_tensor_view_rows(&in->view[base], own_row(in, base, row), 1, out);
        return;
    }
    for (int v = 0; v < in->item->n; v++) {
        const int32_t own = own_row(in, v, row);
        if (own < 0)
            continue;
        af_tensor_view_rows(&in->view[v], own, 1, spare);
        for (int64_t i = 0; i < cols; i++)
            out[i] += spare[i];
        n++;
    }
    for (int64_t i = 0; i < cols; i++)
        out[i] /= (float)AF_MAX(n, 1);
}

void af_merge_token_rows(const af_merge_inputs *in, int view, int64_t row, int64_t rows, float *out,
                         float *spare)
{
    const af_merge_tokens *k = &in->r->tokens;
    const int64_t cols = af_model_tensor_cols(in->item->tensor[view]);
    for (int64_t i = 0; i < rows; i++, out += cols) {
        if (row + i >= k->used) {
            memcpy(out, in->mean + view * cols, (size_t)cols * sizeof *out);
            continue;
        }
        const int32_t own = own_row(in, view, row + i);
        if (own >= 0 && !is_forced(k, row + i))
            af_tensor_view_rows(&in->view[view], own, 1, out);
        else
            read_stand_in(in, row + i, cols, out, spare);
    }
}

static af_status make_means(af_merge_inputs *in, af_error *err)
{
    const af_merge_tokens *k = &in->r->tokens;
    const int64_t cols = af_model_tensor_cols(in->item->tensor[0]);
    double *sum = af_calloc((uint64_t)cols, sizeof *sum);
    float *row = af_calloc((uint64_t)cols, 2 * sizeof *row);
    in->mean = af_calloc((uint64_t)(in->item->n * cols), sizeof *in->mean);
    for (int v = 0; sum && row && in->mean && v < in->item->n; v++) {
        memset(sum, 0, (size_t)cols * sizeof *sum);
        for (int64_t r = 0; r < k->used; r++) {
            af_merge_token_rows(in, v, r, 1, row, row + cols);
            for (int64_t i = 0; i < cols; i++)
                sum[i] += row[i];
        }
        for (int64_t i = 0; i < cols; i++)
            in->mean[v * cols + i] = (float)(sum[i] / (double)k->used);
    }
    const bool made = sum && row && in->mean;
    free(sum);
    free(row);
    return made ? AF_OK : af_fail_nomem(err, in->item->name, (uint64_t)cols * 8);
}

af_status af_merge_token_rows_prepare(af_merge_inputs *in, af_error *err)
{
    const af_merge_tokens *k = &in->r->tokens;
    for (int64_t row = 0; row < k->used; row++) {
        const int from = k->from_model[row], view = from >= 0 ? view_of_model(in, from) : -1;
        bool needed = from >= 0 && is_forced(k, row);
        for (int v = 0; from >= 0 && v < in->item->n; v++)
            needed |= own_row(in, v, row) < 0;
        if (!needed)
            continue;
        if (view < 0)
            return af_fail(err, AF_EUSAGE,
                           "token %" PRId64 " is to come from '%s', which has no part in '%s'", row,
                           in->r->config->model[from], in->item->name);
        if (k->from_row[row] >= af_model_tensor_rows(in->item->tensor[view]))
            return af_fail(err, AF_EUSAGE,
                           "token %" PRId64 " is to come from row %" PRId32
                           " of '%s' in '%s', which has %" PRId64 " rows",
                           row, k->from_row[row], in->item->name, in->r->config->model[from],
                           af_model_tensor_rows(in->item->tensor[view]));
    }
    return k->rows > k->used ? make_means(in, err) : AF_OK;
}
