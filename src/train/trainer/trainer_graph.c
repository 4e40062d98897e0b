/* trainer_graph.c - records the training step of a run.
 *
 * The methods differ in which leaves are trainable and in the groups of the optimizer; the graph,
 * the loop and the checkpoints are the same for all. */
#include "graph/node.h"
#include "ops/optim/optimizer.h"
#include "train/report/metrics.h"
#include "train/trainer/trainer.h"

#include <math.h>

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* As the HF trainer: norms and biases are not decayed, unless the run says all. */
static bool decays(const af_run_config *run, const char *name)
{
    return run->decay_on == AF_DECAY_ALL || (!strstr(name, "norm") && !ends_with(name, ".bias"));
}

/* LoRA+, with the groups of PEFT (optimizers/loraplus.py): B and every vector learn `ratio` times
 * faster, adapters of embeddings at a rate of their own. */
static double plus_ratio(const af_trainer *t)
{
    return t->adapter && t->run->loraplus_lr_ratio > 0 ? t->run->loraplus_lr_ratio : 1.0;
}

static void group_base(const af_trainer *t)
{
    for (int i = 0; i < t->spec->tensors; i++) {
        af_tensor *p = t->leaves.tensor[i];
        const af_tensor_spec *s = &t->spec->tensor[i];
        if (p && af_tensor_gradient(p) && i == t->spec->embed) /* as the HF trainer */
            af_param_whole_moments(p);
        if (p && af_tensor_gradient(p))
            af_tensor_set_group(p, s->ndim == 1 ? plus_ratio(t) : 1.0, decays(t->run, s->name));
    }
}

static void group_adapter(const af_trainer *t)
{
    const double ratio = plus_ratio(t);
    for (int i = 0; i < t->spec->modules; i++) {
        const af_adapter_leaf *m = &t->leaves.module[i];
        if (m->b)
            af_tensor_set_group(m->b, ratio, true);
        if (m->magnitude)
            af_tensor_set_group(m->magnitude, ratio, true);
    }
    const af_adapter_leaf *e = &t->leaves.module[t->spec->embed_module];
    if (e->a && t->run->loraplus_lr_ratio > 0) {
        const double factor = t->run->loraplus_lr_embedding / t->run->learning_rate;
        af_tensor_set_group(e->a, factor, true);
        af_tensor_set_group(e->b, factor, true);
    }
}

static void record_optimizer(af_trainer *t)
{
    const af_run_config *run = t->run;
    const bool own = run->optimizer == AF_OPTIMIZER_ADAFACTOR; /* its own moments: 0 = the usual */
    group_base(t);
    if (t->adapter)
        group_adapter(t);
    af_graph_optimizer(t->graph, &(af_optimizer_opts){
                                     .kind = run->optimizer,
                                     .beta1 = own ? 0 : run->beta1,
                                     .beta2 = own ? 0 : run->beta2,
                                     .eps = own ? 0 : run->epsilon,
                                     .momentum = run->momentum,
                                     .weight_decay = run->weight_decay,
                                     .max_grad_norm = run->max_grad_norm,
                                 });
}

static void record_inputs(af_trainer *t)
{
    af_graph *g = t->graph;
    af_graph_set_rows(g, t->rows_max);
    t->in = af_batch_inputs_new(g, t->rows_max, t->sequences_max);
    t->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &t->rows_max);
    t->scale = af_graph_input(g, "loss_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    t->bounds_len = af_graph_status(g, NULL) == AF_OK ? af_tensor_count(t->in.bounds) : 0;
}

static void set_recompute(af_trainer *t, af_memory_mode r)
{
    const bool some = r.blocks > 0 && r.blocks < t->spec->layers;
    af_graph_set_recompute(t->graph, r.mode, some ? r.blocks : t->spec->layers);
    if (some)
        af_graph_set_recompute_rest(t->graph, (af_recompute)(r.mode - 1));
    t->memory_mode = r;
}

af_status af_trainer_record(af_trainer *t, af_memory_mode r, af_error *err)
{
    af_status st = AF_OK;
    af_model_leaves_clear(&t->leaves);
    af_graph_free(t->graph);
    t->graph = NULL;
    AF_TRY(af_graph_new(&t->graph, err));
    t->graph->same_bits = true;
    record_inputs(t);
    const af_leaves_opts o = {
        .compute = t->compute,
        .train_base = t->run->method == AF_METHOD_FULL,
        .train_adapter = t->adapter != NULL,
        .adapter = t->adapter,
        .dtype = t->source ? af_loader_dtypes(t->source) : t->dtype,
    };
    AF_TRY(af_model_leaves_init(&t->leaves, t->graph, t->spec, &o, err));
    const af_forward_opts f = {.dropout = t->dropout, .neftune = t->run->neftune_alpha};
    af_tensor *h = af_model_forward(&t->leaves, &t->in, &f);
    t->loss = af_model_loss(&t->leaves, h, t->labels, t->scale, 0, &t->rows);
    af_graph_backward(t->graph, t->loss);
    if (t->rows)
        af_graph_output(t->graph, t->rows);
    record_optimizer(t);
    if (t->run->accumulation == 1)
        af_graph_set_one_pass(t->graph);
    set_recompute(t, r);
    st = af_graph_status(t->graph, err);
done:
    return st;
}

static uint64_t copies(const af_trainer *t, const af_plan_info *p)
{
    return (t->adapter ? p->params : 0) + t->samples_bytes;
}

uint64_t af_trainer_copies(const af_trainer *t) { return copies(t, &t->plan); }

uint64_t af_plan_in_place(const af_plan_info *p) { return p->bound - p->returned; }

/* Code and stacks that are touched after the start; what a checkpoint's files that are being
 * checked hold at a time. */
#define LATER_BYTES (UINT64_C(13) << 17)
#define CHECK_BYTES (UINT64_C(1) << 20)

void af_trainer_count_code(af_trainer *t)
{
    const uint64_t all = af_resident_bytes(), own = af_resident_own();
    t->program_bytes = all > own ? all - own : 0;
}

void af_trainer_count_program(af_trainer *t, uint64_t adapter)
{
    af_resident_give_back();
    const uint64_t own = af_resident_own();
    t->program_bytes +=
        LATER_BYTES + (own > adapter ? own - adapter : 0) + AF_MIN(CHECK_BYTES, t->plan.state);
}

uint64_t af_trainer_resident(const af_trainer *t, const af_plan_info *p)
{
    return t->program_bytes + p->total + af_plan_in_place(p) + copies(t, p);
}
