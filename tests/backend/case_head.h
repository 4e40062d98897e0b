/* case_head.h - the head with its loss. */
#ifndef AF_CASE_HEAD_H
#define AF_CASE_HEAD_H

#include "backend/cases.h"

static void case_head(rec *r)
{
    static const int32_t label[21] = {3, -100, 7, 0, 54, 12, -100, 1, 20, 60,  2,
                                      9, 9,    9, 8, 7,  6,  5,    4, 3,  -100};
    af_tensor *rows;
    af_tensor *scale =
        rec_add(r, af_graph_input(r->g, "s", AF_DTYPE_F32, 1, (int64_t[]){1}), 0.1, 0.2);
    const af_head_opts o = {
        .scale = scale, .chunk_rows = 8, .softcap = 10, .rows = &rows, .smoothing = 0.1};
    af_tensor *x = act_2(r, 21, 48);
    af_tensor *loss = af_head_loss(r->g, x, param_2(r, 61, 48), ints(r, 21, label), &o);
    out(r, loss);
    out(r, rows);
    af_graph_backward(r->g, loss);
    for (int i = 0; i < r->leaves; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM)
            r->out[r->outs++] = r->leaf[i].t->grad;
}
/* Rows that stay in the registers of a cluster on Hopper. */
static void head_long(rec *r, int32_t V, double smoothing)
{
    static int32_t label[6];
    const int32_t of[6] = {V - 1, 0, -100, V / 2, 4095, 4096};
    memcpy(label, of, sizeof label);
    af_tensor *rows;
    const af_head_opts o = {.rows = &rows, .smoothing = smoothing, .logit_scale = 0.5};
    af_tensor *x = act_2(r, 6, 8);
    af_tensor *w = in_2(r, V, 8);
    af_tensor *loss = af_head_loss(r->g, x, w, ints(r, 6, label), &o);
    out(r, loss);
    out(r, rows);
    af_graph_backward(r->g, loss);
    r->out[r->outs++] = r->leaf[0].t->grad;
}
static void case_head_long(rec *r) { head_long(r, 65541, 0.1); }
static void case_head_longer(rec *r) { head_long(r, 151936, 0); }
static void case_head_longest(rec *r) { head_long(r, 196609, 0); }
/* Values and weights per row; the head is frozen or trained. */
static void head_rows(rec *r, bool trained)
{
    static const int32_t label[21] = {3, -100, 7, 0, 54, 12, -100, 1, 20, 60,  2,
                                      9, 9,    9, 8, 7,  6,  5,    4, 3,  -100};
    af_tensor *rows;
    af_tensor *weight =
        rec_add(r, af_graph_input(r->g, "u", AF_DTYPE_F32, 1, (int64_t[]){21}), 0.1, 0.2);
    const af_head_opts o = {
        .row_weight = weight, .chunk_rows = 8, .stats = true, .rows = &rows, .logit_scale = 0.7};
    af_tensor *x = act_2(r, 21, 48), *w = trained ? param_2(r, 61, 48) : in_2(r, 61, 48);
    af_tensor *loss = af_head_loss(r->g, x, w, ints(r, 21, label), &o);
    out(r, rows);
    af_graph_backward(r->g, loss);
    for (int i = 0; i < r->leaves; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM)
            r->out[r->outs++] = r->leaf[i].t->grad;
}
static void case_head_rows(rec *r) { head_rows(r, false); }
static void case_head_rows_trained(rec *r) { head_rows(r, true); }
#endif
