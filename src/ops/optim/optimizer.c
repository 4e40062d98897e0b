/* optimizer.c - global norm, clipping and the update of all parameters, as nodes on flat buffers.
 *
 * af_graph_optimizer moves every trained parameter and its gradient into two flat buffers of the
 * same layout (each starts on 256 bytes; 8-bit and 4-bit Adam: on a block; the gaps stay
 * zero), sorted by group, so that an update is one node a group, whatever the number of parameters.
 * (8-bit Adam: more where a matrix inside a parameter does not begin on a block of the others.)
 *
 * With h = hyper (lr, 1 - beta1^t, sqrt(1 - beta2^t), t), g = gradient * clip, lr = h.lr * factor:
 *   sgd       g += wd w;  m = mu m + g;  g = nesterov ? g + mu m : m;  w -= lr g
 *   adam      g += wd w, then as adamw without decay
 *   adamw     w -= lr wd w;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 *             w -= lr / c1 * m / (sqrt(v) / c2 + eps)
 *   rmsprop   g += wd w;  v = b2 v + (1-b2) g^2;  w -= lr g / (sqrt(v) + eps)
 *   ademamix  adamw with m / c1 + 5 slow for m / c1;  slow = b3 slow + (1-b3) g
 *   adagrad, nadam, radam, adopt: see adaptive_cpu.c
 *   muon      see muon_cpu.c
 *   apollo, galore: see lowrank/apollo_cpu.c, lowrank/galore_cpu.c
 *   lion      w -= lr wd w;  w -= lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 *   adafactor see adafactor_cpu.c
 *   adam_mini see adam_mini_cpu.c
 *   lion, rmsprop, ademamix with 8-bit moments: see states_8bit_cpu.c
 *   free_adamw, free_radam, free_sgd: see schedule_free_cpu.c
 *   stable_adamw see stable_adamw_cpu.c
 * Parameters in bf16 (bf16_weights.h) are updated in f32 and rounded; their gradients and moments
 * are f32.
 * A norm that is not finite leaves parameters and moments alone. Gradients always end as zeros. */
#include "ops/optim/optimizer.h"
#include "ops/optim/optim_in.h"
#include "tensor/dtype.h"

#define PLACE_BYTES 256u
#define SHARD_UNIT  256u /* elements: whole blocks of coded moments */

/* What keeps its own moments: a parameter, or in 8-bit Adam a matrix of one. */
typedef struct unit {
    const af_tensor *param;
    int64_t from, to; /* elements of the flat buffers, the gap after a parameter included */
    bool whole;       /* f32 moments in 8-bit and 4-bit Adam */
} unit;

typedef struct param_list {
    af_graph *g;
    const af_optimizer_opts *o;
    af_tensor **param; /* in flat order: groups are runs */
    int n;
    int64_t *first; /* first element in the flat buffers; [n] = their length */
    unit *unit;     /* in the same order */
    int units;
    af_tensor *free_weight; /* output of FREE_WEIGHT */
} param_list;

/* 8-bit moments as bitsandbytes has them. */
static bool is_bnb(const param_list *c)
{
    const af_optimizer_kind k = c->o->kind;
    return k == AF_OPTIMIZER_ADAMW_8BIT ||
           (k >= AF_OPTIMIZER_LION_8BIT && k <= AF_OPTIMIZER_ADEMAMIX_8BIT);
}

/* Elements that share a scale, or 0 where moments are f32. */
static int64_t coded_block(const param_list *c)
{
    if (is_bnb(c))
        return AF_ADAM_8BIT_BLOCK;
    switch (c->o->kind) {
    case AF_OPTIMIZER_ADAMW_TORCH_8BIT:
        return AF_ADAM_8BIT_BLOCK;
    case AF_OPTIMIZER_ADAMW_4BIT:
        return AF_ADAM_4BIT_BLOCK;
    default:
        return 0;
    }
}

/* bitsandbytes fills the last block up, torchao codes whole blocks alone: the gap after them is not
 * theirs. */
static bool fills_blocks(const param_list *c) { return !coded_block(c) || is_bnb(c); }

/* Moments of so many elements stay f32. */
static bool too_small(const param_list *c, int64_t count)
{
    return count < AF_ADAM_8BIT_MIN || (!fills_blocks(c) && count % coded_block(c) != 0);
}

static bool keeps_whole(const param_list *c, const af_tensor *p)
{
    return is_bnb(c) && p->whole_moments;
}

/* Has nodes of its own (optimizer_matrix.c); the others share one node per group. */
static bool by_matrix(const param_list *c, const af_tensor *p)
{
    switch (c->o->kind) {
    case AF_OPTIMIZER_MUON:
    case AF_OPTIMIZER_APOLLO:
    case AF_OPTIMIZER_GALORE:
        return !p->outside && (p->ndim == 2 || p->parts);
    case AF_OPTIMIZER_ADAM_MINI:
        return p->moment_block != 1;
    default:
        return c->o->kind == AF_OPTIMIZER_ADAFACTOR || c->o->kind == AF_OPTIMIZER_STABLE_ADAMW;
    }
}

/* Of a parameter whose matrices stay together: bitsandbytes' rule for the largest, torchao's for
 * each. */
static bool all_small(const param_list *c, const af_tensor *p)
{
    const bool each = !is_bnb(c);
    bool small = p->parts ? !each : too_small(c, af_count(p));
    for (int i = 0; i < p->parts; i++) {
        const bool one = too_small(c, p->part[i][0] * p->part[i][1]);
        small = each ? small || one : small && one;
    }
    return small;
}

static bool stays_f32(const param_list *c, const af_tensor *p)
{
    return coded_block(c) && (keeps_whole(c, p) || all_small(c, p));
}

static bool same_group(const param_list *c, const af_tensor *a, const af_tensor *b)
{
    return a->lr_factor == b->lr_factor && a->decay == b->decay &&
           stays_f32(c, a) == stays_f32(c, b) && by_matrix(c, a) == by_matrix(c, b);
}

/* The trained parameters, members of a group next to each other, else in recording order. */
static bool collect(param_list *c)
{
    af_graph *g = c->g;
    c->param = af_arena_take(&g->mem, (uint64_t)g->n_tensors * sizeof *c->param);
    c->first = af_arena_take(&g->mem, ((uint64_t)g->n_tensors + 1) * sizeof *c->first);
    if (!c->param || !c->first) {
        af_fail_nomem(&g->err, "an optimizer", (uint64_t)g->n_tensors * 16);
        return false;
    }
    int total = 0;
    for (int i = 0; i < g->n_tensors; i++)
        total += g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad;
    for (int start = 0; start < g->n_tensors && c->n < total; start++) {
        const af_tensor *first = g->tensors[start];
        if (first->role != AF_ROLE_PARAM || !first->grad)
            continue;
        bool taken = false;
        for (int k = 0; k < c->n && !taken; k++)
            taken = c->param[k] == first;
        for (int i = start; i < g->n_tensors && !taken; i++) {
            af_tensor *t = g->tensors[i];
            if (t->role == AF_ROLE_PARAM && t->grad && same_group(c, t, first))
                c->param[c->n++] = t;
        }
    }
    for (int i = 1; i < c->n; i++)
        if (c->param[i]->dtype != c->param[0]->dtype) {
            af_graph_bad(g, "parameters '%s' (%s) and '%s' (%s): one optimizer needs one type",
                         c->param[0]->name, af_dtype_name(c->param[0]->dtype), c->param[i]->name,
                         af_dtype_name(c->param[i]->dtype));
            return false;
        }
    return true;
}

/* Gradients and moments: f32 for bf16 parameters. */
static af_dtype state_type(const param_list *c) { return af_grad_type(c->param[0]); }

static void assign_offsets(param_list *c)
{
    const uint64_t size = (uint64_t)af_dtype_get(c->param[0]->dtype)->bytes;
    const uint64_t elems = coded_block(c) ? (uint64_t)coded_block(c) : PLACE_BYTES / size;
    uint64_t at = 0;
    for (int i = 0; i < c->n; i++) {
        c->first[i] = (int64_t)at;
        at += AF_ALIGN_UP((uint64_t)af_count(c->param[i]), elems);
    }
    c->first[c->n] = (int64_t)at;
}

/* Views of what became a view itself refer to its base: a base is never a view. */
static void rebase_views(af_graph *g)
{
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->base && t->base->base && !t->base->cut) { /* of split ones: gather_nodes.c */
            t->base_offset += t->base->base_offset;
            t->base = t->base->base;
        }
    }
}

static void lay_into(af_tensor *t, af_tensor *flat, uint64_t offset)
{
    t->base = flat;
    t->base_offset = offset;
}

/* The parameters [from, to) in a flat buffer, of all of them or of this rank's. */
static af_tensor *range_of(af_graph *g, af_tensor *flat, int64_t from, int64_t to)
{
    const int64_t at = from - (flat == g->grads_flat ? g->grads_from : g->params_from);
    af_tensor *t = af_leaf(g, flat->role, "", flat->dtype, 1, (int64_t[]){to - from});
    if (!af_graph_failed(g))
        lay_into(t, flat, (uint64_t)at * (uint64_t)af_dtype_get(flat->dtype)->bytes);
    return t;
}

/* A gradient that is summed over the ranks as soon as it is whole: this rank keeps a piece. */
static void pass_gradient(param_list *c, int i)
{
    af_tensor *p = c->param[i];
    int64_t from = c->first[i], to = from + af_count(p);
    p->grad->role = AF_ROLE_ACTIVATION;
    if (!af_shard_clip(c->g, c->g->shard.rank, &from, &to))
        return;
    p->own_grad = range_of(c->g, c->g->grads_flat, from, to);
    if (to - from == af_count(p)) { /* updates of matrices see one */
        p->own_grad->ndim = p->ndim;
        memcpy(p->own_grad->dim, p->dim, sizeof p->dim);
        p->own_grad->ld = p->ld;
    }
}

/* A parameter in the flat buffer; of split ones there is a piece of it, or nothing. */
static void lay_param(param_list *c, int i)
{
    af_graph *g = c->g;
    af_tensor *p = c->param[i];
    const int64_t size = af_dtype_get(p->dtype)->bytes;
    int64_t from = c->first[i], to = from + af_count(p);
    p->flat = from;
    if (g->shard.split < AF_SHARD_PARAMS) {
        lay_into(p, g->params_flat, (uint64_t)(from * size));
        return;
    }
    int64_t *cut = af_shard_cuts_of(g, from, to);
    const bool some = af_shard_clip(g, g->shard.rank, &from, &to);
    lay_into(p, g->params_flat, some ? (uint64_t)((from - g->params_from) * size) : 0);
    for (int r = 0; cut && r <= g->shard.ranks; r++)
        cut[r] *= size;
    p->cut = cut;
}

static void flatten(param_list *c)
{
    af_graph *g = c->g;
    const af_dtype t = c->param[0]->dtype, of_grad = state_type(c);
    const int64_t total = c->first[c->n];
    const af_shard *s = &g->shard;
    const bool split = s->split >= AF_SHARD_GRADIENTS;
    const int64_t own = split ? s->cut[s->rank + 1] - s->cut[s->rank] : total;
    const bool apart = s->split >= AF_SHARD_PARAMS;
    g->params_flat = af_leaf(g, AF_ROLE_PARAM, "params", t, 1, apart ? &own : &total);
    af_carry_leaves(g, of_grad, own); /* before the gradients, which may lie elsewhere */
    g->grads_flat = af_leaf(g, AF_ROLE_GRADIENT, "grads", of_grad, 1, s->pass ? &own : &total);
    if (af_graph_failed(g))
        return;
    g->grads_from = s->pass ? s->cut[s->rank] : 0;
    g->params_from = apart ? s->cut[s->rank] : 0;
    const uint64_t grad_size = (uint64_t)af_dtype_get(of_grad)->bytes;
    for (int i = 0; i < c->n; i++) {
        lay_param(c, i);
        if (!s->pass)
            lay_into(c->param[i]->grad, g->grads_flat, (uint64_t)c->first[i] * grad_size);
        else
            pass_gradient(c, i);
    }
    rebase_views(g);
    g->grads_own = split && !s->pass
                       ? range_of(g, g->grads_flat, s->cut[s->rank], s->cut[s->rank + 1])
                       : g->grads_flat;
}

/* bitsandbytes and torchao decide and quantise per matrix. Kernels for f32 moments start at a
 * multiple of 4 elements: matrices of odd sizes stay together. */
static bool comes_apart(const param_list *c, const af_tensor *p)
{
    bool apart = coded_block(c) && p->parts > 1 && !keeps_whole(c, p);
    for (int i = 0; i < p->parts; i++)
        apart &= p->part[i][0] * p->part[i][1] % 4 == 0;
    return apart;
}

static bool find_units(param_list *c)
{
    uint64_t most = 0;
    for (int i = 0; i < c->n; i++)
        most += (uint64_t)AF_MAX(c->param[i]->parts, 1);
    c->unit = af_arena_take(&c->g->mem, most * sizeof *c->unit);
    if (!c->unit) {
        af_fail_nomem(&c->g->err, "an optimizer", most * sizeof *c->unit);
        return false;
    }
    for (int i = 0; i < c->n; i++) {
        const af_tensor *p = c->param[i];
        const int parts = comes_apart(c, p) ? p->parts : 1;
        int64_t at = c->first[i];
        for (int k = 0; k < parts; k++) {
            const int64_t count = p->parts ? p->part[k][0] * p->part[k][1] : af_count(p);
            const bool whole = parts > 1 ? too_small(c, count) : stays_f32(c, p);
            const bool gap = k + 1 == parts && (whole || fills_blocks(c));
            const int64_t to = gap ? c->first[i + 1] : at + count;
            c->unit[c->units++] = (unit){p, at, to, whole};
            at = to;
        }
    }
    return true;
}

/* May b, after a, be updated by the node that begins with a? */
static bool joins(const param_list *c, const unit *a, const unit *b)
{
    const bool same = a->param->lr_factor == b->param->lr_factor &&
                      a->param->decay == b->param->decay && a->whole == b->whole;
    const bool coded = coded_block(c) && !a->whole;
    return same && !by_matrix(c, b->param) && (!coded || (b->from - a->from) % coded_block(c) == 0);
}

/* A state of the parameters [from, to), `per` of them to an element. */
static af_tensor *moment(af_graph *g, int group, const char *what, af_dtype t, int64_t from,
                         int64_t to, int64_t per)
{
    char name[64];
    snprintf(name, sizeof name, "optimizer.%d.%s", group, what);
    return af_state_part_new(g, &(af_state_part){.name = name,
                                                 .dtype = t,
                                                 .full = (to - from + per - 1) / per,
                                                 .from = from,
                                                 .to = to,
                                                 .unit = per});
}

/* Codes and scales of STATES_8BIT. */
static int add_coded(param_list *c, int group, int64_t a, int64_t b, af_tensor **in)
{
    static const char *const names[][2] = {
        {"m8", "m_scale"}, {"v8", "v_scale"}, {"slow8", "slow_scale"}};
    const af_optimizer_kind k = c->o->kind;
    const int first = k == AF_OPTIMIZER_RMSPROP_8BIT,
              count = k == AF_OPTIMIZER_ADEMAMIX_8BIT ? 3 : 1;
    int n = 4;
    for (int s = 0; s < 2 * count; s++)
        in[n++] =
            moment(c->g, group, names[first + s % count][s / count],
                   s < count ? AF_DTYPE_U8 : AF_DTYPE_F32, a, b, s < count ? 1 : coded_block(c));
    return n;
}

/* The states of one update node after its four common inputs; the number of inputs in all. */
static int add_states(param_list *c, int group, af_op op, int64_t a, int64_t b, af_tensor **in)
{
    af_graph *g = c->g;
    const af_dtype t = state_type(c);
    const int64_t block = AF_MAX(coded_block(c), 1);
    int n = 4;
    if (op == AF_OP_STATES_8BIT)
        return add_coded(c, group, a, b, in);
    if (op == AF_OP_ADAM_8BIT || op == AF_OP_ADAM_4BIT) {
        const bool four = op == AF_OP_ADAM_4BIT;
        in[n++] = moment(g, group, four ? "m4" : "m8", AF_DTYPE_U8, a, b, four ? 2 : 1);
        in[n++] = moment(g, group, four ? "v4" : "v8", AF_DTYPE_U8, a, b, four ? 2 : 1);
        in[n++] = moment(g, group, "m_scale", AF_DTYPE_F32, a, b, block);
        in[n++] = moment(g, group, "v_scale", AF_DTYPE_F32, a, b, block);
    } else if (op == AF_OP_ADAM || op == AF_OP_ADEMAMIX) {
        in[n++] = moment(g, group, "m", t, a, b, 1);
        in[n++] = moment(g, group, "v", t, a, b, 1);
        if (op == AF_OP_ADEMAMIX)
            in[n++] = moment(g, group, "slow", t, a, b, 1);
    } else if (op == AF_OP_ADAPTIVE) {
        in[n++] = moment(g, group, "v", t, a, b, 1);
        if (c->o->kind != AF_OPTIMIZER_ADAGRAD)
            in[n++] = moment(g, group, "m", t, a, b, 1);
    } else if (op == AF_OP_FREE) {
        in[n++] = c->free_weight;
        in[n++] = moment(g, group, "z", t, a, b, 1);
        if (c->o->kind != AF_OPTIMIZER_FREE_SGD)
            in[n++] = moment(g, group, "v", t, a, b, 1);
    } else if (op == AF_OP_RMSPROP) {
        in[n++] = moment(g, group, "v", t, a, b, 1);
    } else if (op == AF_OP_LION || (op == AF_OP_SGD && c->o->momentum != 0)) {
        in[n++] = moment(g, group, "m", t, a, b, 1);
    }
    if (c->o->rounding == AF_ROUNDING_KAHAN)
        in[n++] = moment(g, group, "rest", AF_DTYPE_BF16, a, b, 1);
    return n;
}

/* Where moments are coded: what updates those that are not. */
static af_op whole_op(af_optimizer_kind k)
{
    return k == AF_OPTIMIZER_LION_8BIT       ? AF_OP_LION
           : k == AF_OPTIMIZER_RMSPROP_8BIT  ? AF_OP_RMSPROP
           : k == AF_OPTIMIZER_ADEMAMIX_8BIT ? AF_OP_ADEMAMIX
                                             : AF_OP_ADAM;
}

static void update_range(param_list *c, const unit *first, const unit *last, int group)
{
    static const af_op op_of[] = {
        [AF_OPTIMIZER_SGD] = AF_OP_SGD,
        [AF_OPTIMIZER_ADAM] = AF_OP_ADAM,
        [AF_OPTIMIZER_ADAMW] = AF_OP_ADAM,
        [AF_OPTIMIZER_ADAMW_8BIT] = AF_OP_ADAM_8BIT,
        [AF_OPTIMIZER_LION] = AF_OP_LION,
        [AF_OPTIMIZER_ADAFACTOR] = AF_OP_ADAFACTOR,
        [AF_OPTIMIZER_ADAMW_TORCH_8BIT] = AF_OP_ADAM_8BIT,
        [AF_OPTIMIZER_ADAMW_4BIT] = AF_OP_ADAM_4BIT,
        [AF_OPTIMIZER_RMSPROP] = AF_OP_RMSPROP,
        [AF_OPTIMIZER_ADEMAMIX] = AF_OP_ADEMAMIX,
        [AF_OPTIMIZER_MUON] = AF_OP_ADAM,
        [AF_OPTIMIZER_ADAM_MINI] = AF_OP_ADAM,
        [AF_OPTIMIZER_ADAGRAD] = AF_OP_ADAPTIVE,
        [AF_OPTIMIZER_NADAM] = AF_OP_ADAPTIVE,
        [AF_OPTIMIZER_RADAM] = AF_OP_ADAPTIVE,
        [AF_OPTIMIZER_ADOPT] = AF_OP_ADAPTIVE,
        [AF_OPTIMIZER_FREE_ADAMW] = AF_OP_FREE,
        [AF_OPTIMIZER_FREE_RADAM] = AF_OP_FREE,
        [AF_OPTIMIZER_FREE_SGD] = AF_OP_FREE,
        [AF_OPTIMIZER_LION_8BIT] = AF_OP_STATES_8BIT,
        [AF_OPTIMIZER_RMSPROP_8BIT] = AF_OP_STATES_8BIT,
        [AF_OPTIMIZER_ADEMAMIX_8BIT] = AF_OP_STATES_8BIT,
        [AF_OPTIMIZER_APOLLO] = AF_OP_ADAM,
        [AF_OPTIMIZER_GALORE] = AF_OP_ADAM,
    };
    af_graph *g = c->g;
    const af_op op = first->whole ? whole_op(c->o->kind) : op_of[c->o->kind];
    int64_t a = first->from, b = last->to;
    af_tensor *in[AF_NODE_IN_MAX] = {NULL, NULL, g->hyper, g->stats};
    const int n_in = add_states(c, group, op, a, b, in);
    if (af_graph_failed(g) || !af_shard_clip(g, g->shard.rank, &a, &b))
        return;
    in[0] = range_of(g, g->params_flat, a, b);
    in[1] = range_of(g, g->grads_flat, a, b);
    if (af_graph_failed(g))
        return;
    af_node *n = af_node_new(g, op, in, n_in);
    af_optim_set_attr(n, c->o, first->param);
    n->attr.optim.from = a;
}

/* Gradients of the rows that are not trained. */
static void clear_rows(param_list *c, int i)
{
    const af_tensor *p = c->param[i];
    const int64_t width = p->dim[0] ? af_count(p) / p->dim[0] : 0;
    int64_t at = 0;
    for (int k = 0; k <= p->rows_count && p->rows_count && !af_graph_failed(c->g); k++) {
        const int64_t to = k < p->rows_count ? p->rows[k][0] : p->dim[0];
        const int64_t first = c->first[i];
        int64_t a = first + at * width, b = first + to * width;
        if (to > at && (!c->g->shard.pass || af_shard_clip(c->g, c->g->shard.rank, &a, &b))) {
            af_tensor *d = range_of(c->g, c->g->grads_flat, a, b);
            if (!af_graph_failed(c->g))
                af_node_new(c->g, AF_OP_CLEAR, &d, 1);
        }
        at = k < p->rows_count ? p->rows[k][1] : at;
    }
}

/* The units [from, next) are updated by one node. */
static int group_end(const param_list *c, int from)
{
    int to = from + 1;
    while (to < c->units && !by_matrix(c, c->unit[from].param) &&
           joins(c, &c->unit[from], &c->unit[to]))
        to++;
    return to;
}

/* Where a shard may begin, near `at`: no block of a coded moment and no matrix comes apart. */
static int64_t place_cut(const param_list *c, int64_t at)
{
    for (int from = 0, to; from < c->units; from = to) {
        to = group_end(c, from);
        const int64_t a = c->unit[from].from, b = c->unit[to - 1].to;
        if (at < a || at >= b)
            continue;
        if (by_matrix(c, c->unit[from].param))
            break;
        return AF_MIN(a + (int64_t)AF_ALIGN_UP((uint64_t)(at - a), SHARD_UNIT), b);
    }
    for (int i = 0; i < c->n; i++)
        if (at >= c->first[i] && at < c->first[i + 1])
            return 2 * (at - c->first[i]) < c->first[i + 1] - c->first[i] ? c->first[i]
                                                                          : c->first[i + 1];
    return at;
}

static bool cut_shards(param_list *c)
{
    af_shard *s = &c->g->shard;
    const int64_t total = c->first[c->n];
    if (!af_shard_new(c->g))
        return false;
    for (int r = 0; r < s->ranks; r++)
        s->cut[r] = r ? AF_MAX(place_cut(c, total / s->ranks * r), s->cut[r - 1]) : 0;
    s->cut[s->ranks] = total;
    return true;
}

/* What the updates of this shard do not see ends as zeros, too. */
static void clear_others(param_list *c)
{
    af_graph *g = c->g;
    for (int r = 0; r < g->shard.ranks && !g->shard.pass && !af_graph_failed(g); r++) {
        const int64_t from = g->shard.cut[r], to = g->shard.cut[r + 1];
        af_tensor *d =
            r != g->shard.rank && to > from ? range_of(g, g->grads_flat, from, to) : NULL;
        if (d && !af_graph_failed(g))
            af_node_new(g, AF_OP_CLEAR, &d, 1);
    }
}

/* Schedule-free: one rate and weight for the groups of a step. */
static void record_weight(param_list *c)
{
    af_graph *g = c->g;
    g->free_sums = af_state_part_new(
        g, &(af_state_part){
               .name = "optimizer.sums", .dtype = AF_DTYPE_F64, .full = 3, .matrix = true});
    if (af_graph_failed(g))
        return;
    af_node *n =
        af_node_new(g, AF_OP_FREE_WEIGHT, (af_tensor *[]){g->hyper, g->stats, g->free_sums}, 3);
    c->free_weight = af_node_output(g, n, AF_DTYPE_F32, 1, (int64_t[]){AF_FREE_COUNT});
}

static void record(param_list *c)
{
    af_graph *g = c->g;
    af_graph_sum_whole(g);
    for (int i = 0; i < c->n; i++)
        clear_rows(c, i);
    g->hyper = af_leaf(g, AF_ROLE_INPUT, "hyper", AF_DTYPE_F32, 1, (int64_t[]){AF_HYPER_COUNT});
    if (af_graph_failed(g))
        return;
    af_node *norm = af_node_new(g, AF_OP_GRAD_NORM, (af_tensor *[]){g->grads_own}, 1);
    norm->attr.optim.max_norm = c->o->max_grad_norm;
    g->stats = af_node_output(g, norm, AF_DTYPE_F32, 1, (int64_t[]){AF_STATS_COUNT});
    af_graph_output(g, g->stats);
    if (af_optimizer_averages(c->o->kind) && !af_graph_failed(g))
        record_weight(c);
    int group = 0;
    for (int from = 0, to; from < c->units && !af_graph_failed(g); from = to) {
        to = group_end(c, from);
        if (by_matrix(c, c->unit[from].param)) /* units and parameters are the same then */
            group = af_optim_update_matrices(g, c->o, c->param[from], group);
        else
            update_range(c, &c->unit[from], &c->unit[to - 1], group++);
    }
    clear_others(c);
}

void af_graph_optimizer(af_graph *g, const af_optimizer_opts *opts)
{
    if (af_graph_refuses_opts(g, "optimizer", opts) || !af_optimizer_check(g, opts))
        return;
    af_optimizer_opts o = *opts;
    af_optimizer_set_usual(&o);
    param_list c = {.g = g, .o = &o};
    if (!collect(&c) || !af_optimizer_check_type(g, &o, c.n ? c.param[0] : NULL))
        return;
    if (c.n == 0) {
        af_graph_bad(g, "the optimizer has %d parameters with a gradient", c.n);
        return;
    }
    g->phase = AF_PHASE_CARRY;
    g->optimized = true;
    g->beta1 = o.uncorrected ? 0 : o.beta1;
    g->beta2 = o.uncorrected ? 0 : o.beta2;
    g->optimizer = o;
    g->step_numbers = af_optim_step_numbers;
    g->shard.pass = g->shard.split >= AF_SHARD_GRADIENTS && g->one_pass;
    assign_offsets(&c);
    if (!find_units(&c) || !cut_shards(&c))
        return;
    flatten(&c);
    if (!af_graph_failed(g))
        af_carry_nodes(g);
    g->phase = AF_PHASE_UPDATE;
    if (!af_graph_failed(g))
        record(&c);
    af_graph_join_params(g);
}
