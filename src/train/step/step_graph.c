/* step_graph.c - see step_graph.h.
 *
 * The methods differ in which leaves are trainable and in the groups of the optimizer; the graph,
 * the loop and the checkpoints are the same for all. */
#include "train/step/step_graph.h"

#include "base/log.h"
#include "base/word.h"
#include "graph/graph_access.h"
#include "ops/head/token_draw.h"
#include "ops/optim/optimizer.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_qat.h"
#include "train/step/moment_block.h"
#include "train/step/optim_targets.h"
#include "train/step/ranks.h"
#include "train/step/resident.h"

#include <float.h>

/* As the HF trainer: norms (ln_1 of gpt2, too) and biases (dt_bias, down_proj_bias) are not
 * decayed, unless weight_decay_on is all, nor is what lies inside of them (norm_attn_norm of dbrx,
 * the gated norms of axk2). Sinks are decayed, whatever a file calls them. */
static bool decays(const af_run_config *run, const char *name)
{
    const bool norm = strstr(name, "norm") || strstr(name, ".ln_");
    return run->decay_on == AF_DECAY_ALL || !(norm || strstr(name, "bias"));
}

/* LoRA+, with the groups of PEFT (optimizers/loraplus.py): B and every vector learn `ratio` times
 * faster, adapters of embeddings at a rate of their own. */
static double plus_ratio(const af_step_graph *s)
{
    return s->model->adapter && s->run->loraplus_lr_ratio > 0 ? s->run->loraplus_lr_ratio : 1.0;
}

/* Axolotl's embedding_lr: the factor of the group, or 0 where there is none. */
static double embedding_factor(const af_run_config *run)
{
    if (run->embedding_lr_scale > 0)
        return run->embedding_lr_scale;
    return run->embedding_lr > 0 && run->learning_rate > 0 ? run->embedding_lr / run->learning_rate
                                                           : 0;
}

/* Embeddings, head, and what is trained in full next to an adapter. */
static bool is_embedding(const af_step_graph *s, int tensor)
{
    const af_slot slot = s->model->spec->tensor[tensor].slot;
    return s->model->adapter || slot == AF_SLOT_EMBED || slot == AF_SLOT_HEAD;
}

static void group_base(const af_step_graph *s)
{
    for (int i = 0; i < s->model->spec->tensors; i++) {
        af_tensor *p = s->leaves.tensor[i];
        const af_tensor_spec *spec = &s->model->spec->tensor[i];
        if (p && af_tensor_gradient(p) && i == s->model->spec->embed) /* as the HF trainer */
            af_param_whole_moments(p);
        if (p && !af_run_projects(s->run) && /* see optim_targets.h */
            (spec->layer < 0 || s->model->adapter))
            af_param_outside(p);
        if (p && s->run->optimizer == AF_OPTIMIZER_ADAM_MINI)
            af_param_moment_block(p, af_moment_block(s->model->spec, i));
        if (p && af_tensor_gradient(p))
            af_tensor_set_group(p, spec->ndim == 1 ? plus_ratio(s) : 1.0,
                                spec->slot == AF_SLOT_SINKS || decays(s->run, spec->name));
        if (p && af_tensor_gradient(p) && is_embedding(s, i) && embedding_factor(s->run) > 0)
            af_tensor_set_group(p, embedding_factor(s->run), false);
    }
}

static void group_adapter(const af_step_graph *s)
{
    const double ratio = plus_ratio(s);
    for (int i = 0; i < s->model->spec->modules; i++) {
        const af_adapter_leaf *m = &s->leaves.module[i];
        const bool decay = decays(s->run, s->model->spec->module[i].path);
        if (m->a)
            af_tensor_set_group(m->a, 1.0, decay);
        if (m->b)
            af_tensor_set_group(m->b, ratio, decay);
        if (m->magnitude)
            af_tensor_set_group(m->magnitude, ratio, decay);
        if (m->triangle)
            af_tensor_set_group(m->triangle, 1.0, decay);
        if (m->bias)
            af_tensor_set_group(m->bias, ratio, decays(s->run, "lora_B.bias"));
    }
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (s->leaves.tokens[k]) {
            af_param_outside(s->leaves.tokens[k]);
            if (embedding_factor(s->run) > 0)
                af_tensor_set_group(s->leaves.tokens[k], embedding_factor(s->run), false);
        }
    const int outer[] = {s->model->spec->embed_module, s->model->spec->head_module};
    for (size_t i = 0; i < AF_LEN(outer); i++)
        if (s->leaves.module[outer[i]].a) {
            af_param_outside(s->leaves.module[outer[i]].a);
            af_param_outside(s->leaves.module[outer[i]].b);
            if (embedding_factor(s->run) > 0) {
                af_tensor_set_group(s->leaves.module[outer[i]].a, embedding_factor(s->run), false);
                af_tensor_set_group(s->leaves.module[outer[i]].b, embedding_factor(s->run), false);
            }
        }
    const af_adapter_leaf *e = &s->leaves.module[s->model->spec->embed_module];
    if (e->a && s->run->loraplus_lr_ratio > 0 && s->run->learning_rate > 0) {
        const double factor = s->run->loraplus_lr_embedding / s->run->learning_rate;
        af_tensor_set_group(e->a, factor, true);
        af_tensor_set_group(e->b, factor, true);
    }
}

/* Where only some rows of a tensor are trained. */
static void trained_rows(const af_step_graph *s)
{
    const af_trained *t = &s->model->trained;
    for (int i = 0; i < t->ranges; i++)
        af_param_rows(s->graph, s->leaves.tensor[t->range[i].tensor], t->range[i].from,
                      t->range[i].to);
}

/* The tree halves the micro-batches as often as they have equal halves: so may ranks. */
static int tree_levels(const af_run_config *run)
{
    int levels = 0;
    while (run->order != AF_ORDER_SEQUENTIAL && (run->accumulation >> levels) % 2 == 0)
        levels++;
    return levels;
}

/* What is trained next to a frozen model is small, and stays whole. */
static af_sharding split_of(const af_run_model *m)
{
    return m->zero_stage < 3 ? (af_sharding)m->zero_stage
           : m->adapter      ? AF_SHARD_WEIGHTS
                             : AF_SHARD_PARAMS;
}

/* For the graph 0 is the usual value; in a run file it is 0. */
static double decay_rate(double beta) { return AF_MAX(beta, DBL_MIN); }

static void record_optimizer(af_step_graph *s)
{
    const af_run_config *run = s->run;
    /* their own moments: 0 = the usual */
    const bool own =
        run->optimizer == AF_OPTIMIZER_ADAFACTOR || run->optimizer == AF_OPTIMIZER_RMSPROP ||
        run->optimizer == AF_OPTIMIZER_RMSPROP_8BIT || run->optimizer == AF_OPTIMIZER_ADAGRAD;
    const bool muon = run->optimizer == AF_OPTIMIZER_MUON,
               galore = run->optimizer == AF_OPTIMIZER_GALORE,
               mixes = run->optimizer == AF_OPTIMIZER_ADEMAMIX ||
                       run->optimizer == AF_OPTIMIZER_ADEMAMIX_8BIT;
    const bool beta1 = !own && (!muon || af_run_key_is_set(run, "adam_beta1")),
               beta2 = !own && (!muon || af_run_key_is_set(run, "adam_beta2"));
    const int levels = tree_levels(run);
    const bool each = run->order == AF_ORDER_ANY_RANKS; /* has gradients of its own */
    s->block = each ? 1 : run->accumulation >> levels;
    af_graph_set_carry(s->graph, levels);
    if (each)
        af_graph_set_chain(s->graph, run->accumulation >> levels);
    if (af_run_model_sums_by_nodes(s->model))
        af_graph_set_ranks(s->graph, s->model->rank, s->model->ranks);
    if (s->model->ranks > 1 && s->model->zero_stage >= 1)
        af_graph_set_shard(s->graph, s->model->rank, s->model->ranks, split_of(s->model));
    if (s->block == 1) /* what a carry takes away counts as an update */
        af_graph_set_one_pass(s->graph);
    group_base(s);
    trained_rows(s);
    if (s->model->adapter)
        group_adapter(s);
    af_graph_optimizer(s->graph,
                       &(af_optimizer_opts){
                           .kind = run->optimizer,
                           .beta1 = beta1 ? decay_rate(run->beta1) : 0,
                           .beta2 = beta2 ? decay_rate(run->beta2) : af_optim_arg(run, "alpha", 0),
                           .eps = own ? af_optim_arg(run, "eps", 0) : run->epsilon,
                           .nesterov = af_optim_arg(run, "nesterov", 0) > 0,
                           .lr_decay = af_optim_arg(run, "lr_decay", 0),
                           .warmup_steps = run->warmup_steps >= 1 ? run->warmup_steps : 0,
                           .count_power = af_optim_arg(run, "r", 0),
                           .lr_power = af_optim_arg(run, "weight_lr_power", 2),
                           .slow_beta = mixes ? af_optim_arg(run, "beta3", 0) : 0,
                           .slow_share = mixes ? af_optim_arg(run, "alpha", 0) : 0,
                           .momentum = muon ? 0 : run->momentum,
                           .weight_decay = run->weight_decay,
                           .max_grad_norm = run->max_grad_norm,
                           .rounding = af_method_rounding(run),
                           .seed = (uint64_t)run->seed,
                           .uncorrected = !af_run_corrects_bias(run),
                           .bf16 = s->model->compute == AF_DTYPE_BF16,
                           .rank = galore ? run->galore_rank : run->apollo_rank,
                           .gap = galore ? run->galore_gap : run->apollo_gap,
                           .scale = galore ? run->galore_scale : run->apollo_scale,
                           .projection = run->galore_proj_type,
                           .per_tensor = run->apollo_scale_type == AF_APOLLO_TENSOR,
                           .scale_front = run->apollo_scale_front,
                       });
}

static const af_hf_config *config_of(const af_step_graph *s)
{
    return s->model->loader ? af_loader_config(s->model->loader) : &s->model->config;
}

static void record_inputs(af_step_graph *s)
{
    af_graph *g = s->graph;
    af_graph_set_rows(g, s->rows_max);
    s->in = af_batch_inputs_new(g, s->rows_max, s->sequences_max);
    s->attention_max += s->attention_max == s->rows_max; /* else it would follow the live rows */
    if (s->attention_max)
        af_batch_inputs_share(&s->in, g, s->rows_max, s->attention_max);
    s->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &s->rows_max);
    if (s->model->spec->labels)
        s->row_weight = af_graph_input(g, "score_weight", AF_DTYPE_F32, 2,
                                       (int64_t[]){s->rows_max, s->model->spec->labels});
    else if (af_run_compares(s->run) || af_run_weighs_tokens(s->run))
        s->row_weight = af_graph_input(g, "row_weight", AF_DTYPE_F32, 1, &s->rows_max);
    else
        s->scale = af_graph_input(g, "loss_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    int routers = 0;
    for (int i = 0; i < s->model->spec->layers; i++)
        routers += (s->model->spec->layer[i].mlp == AF_MLP_EXPERTS) +
                   (s->model->spec->arch->attn_experts ? 2 : 0);
    if (s->router_coef > 0)
        s->router = af_router_loss_new(g, s->rows_max, s->model->spec->experts, routers);
    if (s->router_coef > 0 && af_run_compares(s->run))
        s->router_scale = af_graph_input(g, "router_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    s->bounds_len = af_graph_status(g, NULL) == AF_OK ? af_tensor_count(s->in.bounds) : 0;
}

/* The next faster mode; one without host memory where m has none. */
static af_recompute mode_of_rest(const af_step_graph *s, af_recompute m)
{
    if (m == AF_RECOMPUTE_OFFLOAD)
        return AF_RECOMPUTE_CHEAP;
    if (m != AF_RECOMPUTE_BLOCK)
        return (af_recompute)(m - 1);
    return af_run_model_on_cpu(s->model) ? AF_RECOMPUTE_WIDE : AF_RECOMPUTE_MOST;
}

static void set_recompute(af_step_graph *s, af_memory_mode m)
{
    const bool some = m.blocks > 0 && m.blocks < s->model->spec->layers;
    af_graph_set_recompute(s->graph, m.mode, some ? m.blocks : s->model->spec->layers);
    if (some)
        af_graph_set_recompute_rest(s->graph, mode_of_rest(s, m.mode));
    s->memory_mode = m;
}

/* The most likely tokens of each row, for its weight. */
static void record_likely(af_step_graph *s, af_tensor *h)
{
    af_graph *g = s->graph;
    s->likely_want =
        af_graph_input(g, "likely_want", AF_DTYPE_F64, 2, (int64_t[]){s->rows_max, AF_DRAW_WANTS});
    (void)af_token_draw(g, af_model_logits(&s->leaves, h, NULL), s->likely_want, &s->likely);
    if (af_graph_status(g, NULL) == AF_OK)
        af_graph_output(g, s->likely);
}

/* Logits leave the graph, and what the host finds comes back as the gradient by them. */
static void record_uld(af_step_graph *s, af_tensor *h)
{
    af_graph *g = s->graph;
    af_tensor *z = af_model_logits(&s->leaves, h, NULL);
    if (s->leaves.compute != AF_DTYPE_F32)
        z = af_cast(g, z, AF_DTYPE_F32);
    s->uld_ce = s->loss;
    s->uld_logits = z;
    s->uld_grad = af_graph_input(g, "uld_grad", AF_DTYPE_F32, 2,
                                 (int64_t[]){s->rows_max, s->model->spec->vocab});
    s->loss = af_add(g, af_scale(g, s->uld_ce, s->run->kd_ce_alpha),
                     af_sum_all(g, af_mul(g, z, s->uld_grad)));
    if (af_graph_status(g, NULL) == AF_OK) {
        af_graph_output(g, s->uld_ce);
        af_graph_output(g, z);
    }
}

static af_status record_loss(af_step_graph *s, af_error *err)
{
    af_forward_opts f = {.neftune = s->run->neftune_alpha,
                         .router = s->router_coef > 0 ? &s->router : NULL,
                         .fp8 = s->fp8.use};
    if (af_method_has_dropout(s->run)) {
        f.residual_dropout = af_method_residual_dropout(config_of(s), s->model->spec);
        f.embed_dropout = af_method_embed_dropout(config_of(s));
    }
    af_tensor *h = af_model_forward(&s->leaves, &s->in, &f);
    if (s->model->spec->labels) /* its gradient by the scores is what is written to row_weight */
        s->loss = af_model_scores(&s->leaves, h, s->row_weight, &s->rows);
    else
        s->loss = s->row_weight
                      ? af_model_row_losses(&s->leaves, h, s->labels, s->row_weight, &s->rows)
                      : af_model_loss(&s->leaves, h, s->labels, s->scale, s->run->label_smoothing,
                                      &s->rows);
    if (s->run->kd_uld)
        record_uld(s, h);
    if (af_run_weighs_by_entropy(s->run))
        record_likely(s, h);
    if (af_run_model_distils(s->model)) {
        const af_status st = af_teacher_record(&s->teacher, s->model, &s->leaves, &s->in, h,
                                               s->rows_max, &s->loss, err);
        if (st != AF_OK)
            return st;
    }
    s->router_loss = NULL;
    if (s->router_coef > 0 && af_graph_status(s->graph, NULL) == AF_OK) {
        s->router_loss = af_router_loss_value(&s->router, s->graph);
        af_tensor *share = af_scale(s->graph, s->router_loss, s->router_coef);
        if (s->router_scale)
            share = af_mul(s->graph, share, s->router_scale);
        s->loss = af_add(s->graph, s->loss, share);
        af_graph_output(s->graph, s->router_loss);
    }
    af_graph_backward(s->graph, s->loss);
    return AF_OK;
}

af_status af_step_graph_record(af_step_graph *s, af_memory_mode mode, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph_drop(s);
    AF_TRY(af_fp8_plan_make(&s->fp8, s->model, s->rows_max, err));
    AF_TRY(af_graph_new(&s->graph, err));
    af_graph_set_same_bits(s->graph);
    s->scale = s->row_weight = s->router_scale = NULL;
    s->likely_want = s->likely = NULL;
    s->router_coef = af_method_router_coef(s->run, config_of(s), s->model->spec);
    record_inputs(s);
    const af_leaves_opts o = {
        .compute = s->model->compute,
        .train_base = af_method_trains_base(s->run),
        .bf16_params = af_method_bf16_weights(s->run),
        .trained = s->model->trained.tensor,
        .train_adapter = s->model->adapter != NULL,
        .adapter = s->model->adapter,
        .dropout = s->model->dropout,
        .qat = {.type = s->run->qat_type,
                .group = s->run->qat_group,
                .inputs = s->run->qat_inputs,
                .embedding = s->run->qat_embedding,
                .switched = s->run->qat_after > 0},
        .dtype = s->model->loader ? af_loader_dtypes(s->model->loader) : s->model->dtype,
    };
    AF_TRY(af_model_leaves_init(&s->leaves, s->graph, s->model->spec, &o, err));
    AF_TRY(af_run_qat_fits(s->run, &s->leaves, err));
    AF_TRY(record_loss(s, err));
    if (s->rows)
        af_graph_output(s->graph, s->rows);
    if (af_run_projects(s->run))
        AF_TRY(af_optim_targets_mark(s, err));
    record_optimizer(s);
    set_recompute(s, mode);
    st = af_graph_status(s->graph, err);
done:
    return st;
}

void af_step_graph_init(af_step_graph *s, const af_run_config *run, af_run_model *model)
{
    const uint64_t all = af_resident_bytes(), own = af_resident_own();
    *s = (af_step_graph){.run = run, .model = model, .program_bytes = all > own ? all - own : 0};
}

void af_step_graph_drop(af_step_graph *s)
{
    af_teacher_drop(&s->teacher);
    af_model_leaves_clear(&s->leaves);
    af_graph_free(s->graph);
    s->graph = NULL;
}

/* The staging buffers of an earlier graph. */
static void free_buffers(af_step_graph *s)
{
    free(s->bounds);
    free(s->rows_i32);
    free(s->row_stats);
    free(s->row_share);
    free(s->row_weights);
    free(s->spread);
    free(s->likely_rows);
    free(s->losses);
    free(s->router_losses);
}

void af_step_graph_close(af_step_graph *s)
{
    af_step_graph_drop(s);
    af_teacher_clear(&s->teacher);
    af_fp8_plan_clear(&s->fp8);
    free_buffers(s);
    *s = (af_step_graph){0};
}

af_status af_step_graph_load(af_step_graph *s, af_error *err)
{
    af_status st = AF_OK;
    af_run_model *m = s->model;
    AF_TRY(af_graph_prepare(s->graph, m->device, err));
    af_log_time("memory and kernels");
    af_step_ranks_connect(s);
    AF_TRY(af_loader_write(m->loader, &s->leaves, err));
    if (af_run_model_distils(m))
        AF_TRY(af_teacher_load(&s->teacher, m, s->rows_max, err));
    af_resident_trim();
    af_log_time("weights");
    if (m->adapter)
        AF_TRY(af_adapter_upload(m->adapter, &s->leaves, err));
    AF_TRY(af_model_write_rope(&s->leaves, s->run->sequence_len, err));
    if (s->router_coef > 0)
        AF_TRY(af_router_loss_load(&s->router, s->graph, err));
    af_graph_set_seed(s->graph, (uint64_t)s->run->seed);
    free_buffers(s);
    s->bounds = af_calloc((uint64_t)s->bounds_len, sizeof *s->bounds);
    s->row_stats = af_calloc((uint64_t)af_tensor_count(s->rows), sizeof *s->row_stats);
    s->row_weights =
        af_calloc((uint64_t)(s->row_weight ? af_tensor_count(s->row_weight) : s->rows_max),
                  sizeof *s->row_weights);
    s->row_share = af_calloc((uint64_t)s->rows_max, sizeof *s->row_share);
    s->rows_i32 = af_calloc((uint64_t)s->rows_max, sizeof *s->rows_i32);
    const uint64_t micro = (uint64_t)af_ranks_micro(m->comm, s->run);
    s->losses = af_calloc(micro, sizeof *s->losses);
    s->router_losses = af_calloc(micro, sizeof *s->losses);
    s->spread = af_calloc((uint64_t)(2 * (s->attention_max + s->rows_max)), sizeof *s->spread);
    s->likely_rows = af_calloc((uint64_t)s->rows_max * 2 * AF_DRAW_TOPS_MAX, sizeof(double));
    if (!s->likely_rows || !s->spread || !s->bounds || !s->row_stats || !s->row_weights ||
        !s->row_share || !s->rows_i32 || !s->losses || !s->router_losses)
        st = af_fail_nomem(err, "staging buffers", (uint64_t)s->rows_max * 8);
done:
    return st;
}

/* ---- inputs ---- */

/* Live rows from the batch, then `rest`: a device that always runs all rows sees padding there. */
static af_status write_rows(af_step_graph *s, af_tensor *to, const int32_t *from, int64_t n,
                            int32_t rest, af_error *err)
{
    memcpy(s->rows_i32, from, (size_t)n * sizeof *from);
    for (int64_t i = n; i < s->rows_max; i++)
        s->rows_i32[i] = rest;
    return af_tensor_write(s->graph, to, s->rows_i32, (uint64_t)s->rows_max * sizeof *from, err);
}

/* How often each row counts: once per sequence it belongs to, so that a prompt that two answers
 * share counts as the two copies of it would; of KTO, the answers its KL is measured with count
 * nothing. Returns the sum. */
static double count_copies(af_step_graph *s, const af_batch *b)
{
    const int64_t step = s->run->rl == AF_RL_KTO && af_run_has_kl_rows(s->run) ? 2 : 1;
    double all = 0;
    memset(s->row_share, 0, (size_t)s->rows_max * sizeof *s->row_share);
    for (int64_t k = 0; k < b->sequences; k += step)
        for (int64_t i = b->bounds[k]; i < b->bounds[k + 1]; i++, all++)
            s->row_share[b->source ? b->source[i] : i]++;
    return all;
}

/* Each token's share of the auxiliary loss, which is a mean over the micro-batch. */
static af_status write_share(af_step_graph *s, const af_batch *b, float scale, af_error *err)
{
    if (s->router_coef <= 0)
        return AF_OK;
    const double all = count_copies(s, b);
    for (int64_t i = 0; i < s->rows_max && all > 0; i++)
        s->row_share[i] = (float)(s->row_share[i] / (all * s->router.layers));
    const af_status st = af_tensor_write(s->graph, s->router.share, s->row_share,
                                         (uint64_t)s->rows_max * sizeof *s->row_share, err);
    return st == AF_OK && s->router_scale
               ? af_tensor_write(s->graph, s->router_scale, &scale, sizeof scale, err)
               : st;
}

/* The length for ropes that depend on it: the width of the micro-batch, each segment by itself. */
static int64_t rope_length(const af_step_graph *s, const af_batch *b)
{
    int64_t length = s->run->pad_to_sequence_len ? s->run->sequence_len : 1;
    for (int64_t i = 0; i < b->rows && s->model->spec->rope_by_length; i++)
        length = AF_MAX(length, b->positions[i] + 1);
    return length;
}

static void clear_pairs(int32_t *list, int64_t rows)
{
    for (int64_t i = 0; i < 2 * rows; i++)
        list[i] = -100;
}

/* Which rows attention copies, and where the copies of a row are: all of them, then the first. */
static af_status write_spread(af_step_graph *s, const af_batch *b, af_error *err)
{
    af_status st = AF_OK;
    int32_t *there = s->spread, *here = s->spread + 2 * s->attention_max;
    const uint64_t there_bytes = (uint64_t)(2 * s->attention_max) * sizeof *there,
                   here_bytes = (uint64_t)(2 * s->rows_max) * sizeof *here;
    clear_pairs(there, s->attention_max);
    clear_pairs(here, s->rows_max);
    for (int64_t i = 0; i < b->attention_rows; i++) {
        int32_t *copies = here + 2 * b->source[i];
        there[2 * i] = b->source[i];
        copies[copies[0] >= 0] = (int32_t)i;
    }
    AF_TRY(af_tensor_write(s->graph, s->in.spread, there, there_bytes, err));
    AF_TRY(af_tensor_write(s->graph, s->in.gather, here, here_bytes, err));
    for (int64_t i = 0; i < s->rows_max; i++) {
        if (here[2 * i + 1] >= 0)
            there[2 * here[2 * i + 1]] = -100;
        here[2 * i + 1] = -100;
    }
    AF_TRY(af_tensor_write(s->graph, s->in.given, there, there_bytes, err));
    st = af_tensor_write(s->graph, s->in.taken, here, here_bytes, err);
done:
    return st;
}

af_status af_step_graph_begin(af_step_graph *s, int64_t done, af_error *err)
{
    const float on = done >= s->run->qat_after ? 1.0f : 0.0f;
    return s->leaves.qat_on ? af_tensor_write(s->graph, s->leaves.qat_on, &on, sizeof on, err)
                            : AF_OK;
}

/* EAFT: the likely tokens of rows with labels; of an evaluation, none. */
static af_status write_likely(af_step_graph *s, const af_batch *b, bool any, af_error *err)
{
    double *want = s->likely_rows;
    if (!s->likely_want)
        return AF_OK;
    memset(want, 0, (size_t)(s->rows_max * AF_DRAW_WANTS) * sizeof *want);
    for (int64_t i = 0; i < s->rows_max; i++, want += AF_DRAW_WANTS) {
        want[AF_DRAW_TEMPERATURE] = any && i < b->rows && b->labels[i] >= 0 ? 0 : -1;
        want[AF_DRAW_TOPS] = (double)s->run->eaft_k;
    }
    return af_tensor_write(s->graph, s->likely_want, s->likely_rows,
                           af_tensor_bytes(s->likely_want), err);
}

af_status af_step_graph_upload(af_step_graph *s, const af_batch *b, float scale, af_error *err)
{
    const int32_t rows = (int32_t)b->rows;
    af_status st = AF_OK;
    AF_TRY(write_rows(s, s->in.ids, b->ids, b->rows, 0, err));
    AF_TRY(write_rows(s, s->in.positions, b->positions, b->rows, 0, err));
    AF_TRY(write_rows(s, s->labels, b->labels, b->rows, -100, err));
    for (int64_t i = 0; i < s->bounds_len; i++)
        s->bounds[i] = b->bounds[AF_MIN(i, b->sequences)];
    AF_TRY(af_tensor_write(s->graph, s->in.bounds, s->bounds, (uint64_t)s->bounds_len * 4, err));
    if (s->scale)
        AF_TRY(af_tensor_write(s->graph, s->scale, &scale, sizeof scale, err));
    AF_TRY(write_share(s, b, scale, err));
    if (s->in.spread)
        AF_TRY(write_spread(s, b, err));
    AF_TRY(write_likely(s, b, scale > 0, err));
    if (s->leaves.qat_rows)
        AF_TRY(af_tensor_write(s->graph, s->leaves.qat_rows, &rows, sizeof rows, err));
    AF_TRY(af_model_write_rope(&s->leaves, rope_length(s, b), err));
    if (af_run_model_distils(s->model))
        AF_TRY(af_teacher_upload(&s->teacher, s->model, b, s->rows_max, scale, rope_length(s, b),
                                 err));
    af_graph_set_live_rows(s->graph, b->rows);
done:
    return st;
}

af_status af_step_graph_upload_weights(af_step_graph *s, int64_t rows, af_error *err)
{
    const int64_t all = af_tensor_count(s->row_weight), live = all / s->rows_max * rows;
    memset(s->row_weights + live, 0, (size_t)(all - live) * sizeof *s->row_weights);
    return af_tensor_write(s->graph, s->row_weight, s->row_weights,
                           (uint64_t)all * sizeof *s->row_weights, err);
}
