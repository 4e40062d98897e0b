/* trainer_graph.c - records the training step of a run, and fits it into memory.
 *
 * The methods differ in which leaves are trainable and in the groups of the optimizer; the graph,
 * the loop and the checkpoints are the same for all. */
#include "train/trainer.h"

#include <math.h>

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* As the HF trainer: norms and biases are not decayed, unless the run says all. */
static bool decays(const af_run *run, const char *name)
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
        if (p && af_gradient(p))
            af_param_group(p, s->ndim == 1 ? plus_ratio(t) : 1.0, decays(t->run, s->name));
    }
}

static void group_adapter(const af_trainer *t)
{
    const double ratio = plus_ratio(t);
    for (int i = 0; i < t->spec->modules; i++) {
        const af_adapter_leaf *m = &t->leaves.module[i];
        if (m->b)
            af_param_group(m->b, ratio, true);
        if (m->magnitude)
            af_param_group(m->magnitude, ratio, true);
    }
    const af_adapter_leaf *e = &t->leaves.module[t->spec->embed_module];
    if (e->a && t->run->loraplus_lr_ratio > 0) {
        const double factor = t->run->loraplus_lr_embedding / t->run->learning_rate;
        af_param_group(e->a, factor, true);
        af_param_group(e->b, factor, true);
    }
}

static void record_optimizer(af_trainer *t)
{
    const af_run *run = t->run;
    const bool own = run->optimizer == AF_OPTIMIZER_ADAFACTOR; /* its own moments: 0 = the usual */
    group_base(t);
    if (t->adapter)
        group_adapter(t);
    af_optimizer(t->graph, &(af_optimizer_opts){
                               .kind = (af_optimizer_kind)run->optimizer,
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
    af_set_rows(g, t->rows_max);
    t->in = af_batch_inputs_new(g, t->rows_max, t->sequences_max);
    t->labels = af_input(g, "labels", AF_DTYPE_I32, 1, &t->rows_max);
    t->scale = af_input(g, "loss_scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    t->bounds_len = af_graph_status(g, NULL) == AF_OK ? af_tensor_count(t->in.bounds) : 0;
}

af_status af_trainer_record(af_trainer *t, af_recompute mode, af_error *err)
{
    af_status st = AF_OK;
    af_model_leaves_clear(&t->leaves);
    af_graph_free(t->graph);
    t->graph = NULL;
    AF_TRY(af_graph_new(&t->graph, err));
    record_inputs(t);
    const af_leaves_opts o = {
        .compute = t->compute,
        .train_base = t->run->method == AF_METHOD_FULL,
        .train_adapter = t->adapter != NULL,
        .adapter = t->adapter,
        .dtype = t->source ? af_source_dtypes(t->source) : t->dtype,
    };
    AF_TRY(af_model_leaves_init(&t->leaves, t->graph, t->spec, &o, err));
    const af_forward_opts f = {.dropout = t->dropout, .neftune = t->run->neftune_alpha};
    af_tensor *h = af_model_forward(&t->leaves, &t->in, &f);
    t->loss = af_model_loss(&t->leaves, h, t->labels, t->scale, 0, &t->rows);
    af_backward(t->graph, t->loss);
    if (t->rows)
        af_output(t->graph, t->rows);
    record_optimizer(t);
    af_set_recompute(t->graph, mode, t->spec->layers);
    t->recompute = mode;
    st = af_graph_status(t->graph, err);
done:
    return st;
}

uint64_t af_trainer_copies(const af_trainer *t) { return t->plan.params + t->plan.state; }

uint64_t af_trainer_resident(const af_trainer *t)
{
    return t->program_bytes + t->plan.total + t->plan.bound + af_trainer_copies(t);
}

static const char *const mode_names[] = {"none", "cheap", "wide", "block"};

/* Records and plans; *fits tells whether that is within `free_bytes`. */
static af_status try_mode(af_trainer *t, af_recompute mode, uint64_t free_bytes, bool *fits,
                          af_error *err)
{
    const bool cpu = strcmp(af_device_kind(t->device), "cpu") == 0;
    af_status st = af_trainer_record(t, mode, err);
    if (st == AF_OK && t->source)
        st = af_source_bind(t->source, &t->leaves, cpu, err);
    if (st == AF_OK)
        st = af_graph_plan(t->graph, t->device, &t->plan, err);
    *fits = st == AF_OK && t->plan.total + (cpu ? af_trainer_copies(t) : 0) <= free_bytes;
    return st;
}

/* Settings that would fit: more recomputation, then fewer rows in a pass (and as many more passes),
 * then shorter rows. Empty when not even that does. Leaves the plan as it finds it. */
static af_status find_remedy(af_trainer *t, uint64_t free_bytes, char *out, size_t size,
                             af_error *err)
{
    const af_plan_info plan = t->plan;
    const int64_t rows = t->rows_max, sequences = t->sequences_max;
    const int64_t micro = t->run->micro_batch_size;
    bool fits = false;
    af_status st = AF_OK;
    *out = '\0';
    if (t->run->checkpointing == AF_TRI_NO) {
        AF_TRY(try_mode(t, AF_RECOMPUTE_BLOCK, free_bytes, &fits, err));
        snprintf(out, size, "gradient_checkpointing: true");
    }
    for (int64_t m = (micro + 1) / 2; !fits && micro > 1; m = (m + 1) / 2) {
        t->rows_max = rows / micro * m;
        t->sequences_max = AF_MAX(sequences / micro * m, 1);
        AF_TRY(try_mode(t, AF_RECOMPUTE_BLOCK, free_bytes, &fits, err));
        snprintf(out, size, "micro_batch_size: %" PRId64 ", gradient_accumulation_steps: %" PRId64,
                 m, (micro * t->run->accumulation + m - 1) / m);
        if (m == 1)
            break;
    }
    for (int64_t len = rows / micro / 2; !fits && len >= 64; len /= 2) {
        t->rows_max = len;
        t->sequences_max = AF_MAX(AF_MIN(sequences / micro, len), 1);
        AF_TRY(try_mode(t, AF_RECOMPUTE_BLOCK, free_bytes, &fits, err));
        snprintf(out, size, "micro_batch_size: 1, sequence_len: %" PRId64, len);
    }
done:
    if (!fits)
        *out = '\0';
    t->rows_max = rows;
    t->sequences_max = sequences;
    t->plan = plan;
    return st;
}

static af_status does_not_fit(af_trainer *t, af_recompute last, uint64_t free_bytes, af_error *err)
{
    char remedy[128], text[200] = "";
    const af_status st = find_remedy(t, free_bytes, remedy, sizeof remedy, err);
    if (st != AF_OK)
        return st;
    const bool full = t->run->method == AF_METHOD_FULL;
    if (*remedy)
        snprintf(text, sizeof text, "; %s would fit", remedy);
    else if (full)
        snprintf(text, sizeof text, "; no length would fit: try adapter: lora");
    else
        snprintf(text, sizeof text, "; no length would fit: %s",
                 t->run->method == AF_METHOD_LORA ? "try adapter: qlora" : "take a smaller model");
    const af_plan_info *p = &t->plan;
    return af_fail(err, AF_ENOMEM,
                   "the run needs %.2f GiB with recompute %s, %.2f GiB are free (weights %.2f, "
                   "trained %.2f, activations %.2f)%s",
                   (double)p->total / 0x1p30, mode_names[last], (double)free_bytes / 0x1p30,
                   (double)p->weights / 0x1p30, (double)(p->params + p->grads + p->state) / 0x1p30,
                   (double)p->activations / 0x1p30, text);
}

af_status af_trainer_fit(af_trainer *t, uint64_t free_bytes, af_error *err)
{
    af_recompute first = AF_RECOMPUTE_NONE, last = AF_RECOMPUTE_BLOCK;
    if (t->run->checkpointing == AF_TRI_YES)
        first = AF_RECOMPUTE_BLOCK;
    else if (t->run->checkpointing == AF_TRI_NO)
        last = AF_RECOMPUTE_NONE;
    /* on a GPU rebuilding norms and gated units costs 3 % and saves a third of the activations */
    if (strcmp(af_device_kind(t->device), "cpu") != 0 && t->run->checkpointing == AF_TRI_AUTO)
        first = AF_RECOMPUTE_CHEAP;
    for (af_recompute mode = first; mode <= last; mode++) {
        bool fits;
        const af_status st = try_mode(t, mode, free_bytes, &fits, err);
        if (st != AF_OK || fits)
            return st;
    }
    return does_not_fit(t, last, free_bytes, err);
}
