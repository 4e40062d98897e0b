/* trainer_fit.c - the ways to run a step, from the fastest to the smallest, and the first of them
 * that fits into memory. */
#include "graph/node.h"
#include "model/bnb_weight.h"
#include "train/report/samples.h"
#include "train/run/method.h"
#include "train/trainer/trainer.h"

#include <math.h>

/* Without weights to look at: nf4 for the layers' linears when those stay in 4 bits. */
static af_status guess_types(af_trainer *t, bool packed, af_error *err)
{
    const af_model_spec *s = t->spec;
    if (!t->dtype)
        t->dtype = af_calloc((uint64_t)s->tensors, sizeof *t->dtype);
    if (!t->dtype)
        return af_fail_nomem(err, "the plan", (uint64_t)s->tensors * sizeof *t->dtype);
    for (int i = 0; i < s->tensors; i++) {
        const bool linear = s->tensor[i].module >= 0 && s->tensor[i].layer >= 0;
        t->dtype[i] = linear && packed ? AF_DTYPE_NF4 : t->plain;
    }
    return AF_OK;
}

static af_status guess_scales(af_trainer *t, af_error *err)
{
    af_model_leaves *l = &t->leaves;
    for (int i = 0; i < t->spec->tensors; i++) {
        af_tensor *w = l->tensor[i];
        if (!w || w->dtype != AF_DTYPE_NF4)
            continue;
        const af_bnb_weight b = af_bnb_weight_outline(af_count(w), af_last(w), t->compute);
        const int64_t blocks = af_bnb_weight_blocks(&b),
                      outer = (blocks + b.nested_block - 1) / b.nested_block;
        af_quant *q = af_arena_take(&l->arena, sizeof *q);
        if (!q)
            return af_fail_nomem(err, "scales of a 4-bit tensor", sizeof *q);
        *q = (af_quant){.block = b.block, .nested_block = b.nested_block, .round = b.round};
        q->absmax = af_graph_weight(l->graph, "absmax", AF_DTYPE_U8, 1, &blocks);
        q->nested = af_graph_weight(l->graph, "nested", AF_DTYPE_F32, 1, &outer);
        w->quant = q;
    }
    return af_graph_status(l->graph, err);
}

/* Frozen matrices, one after another. */
static af_status bind_frozen(af_trainer *t, af_error *err)
{
    uint64_t at = 0;
    for (int i = 0; i < t->spec->tensors && t->frozen.data; i++) {
        af_tensor *w = t->leaves.tensor[i];
        if (!w || w->role != AF_ROLE_WEIGHT || w->ndim != 2 || w->dtype != t->plain)
            continue;
        af_tensor_bind_file(w, t->frozen.data + at);
        at += AF_ALIGN_UP(af_tensor_bytes(w), (uint64_t)AF_FROZEN_ALIGN);
        assert(at <= t->frozen.size);
    }
    return af_graph_status(t->graph, err);
}

/* The graph that answers samples reads every weight as it is stored: none is given back. */
static void keep_stored(const af_trainer *t)
{
    for (int i = 0; i < t->spec->tensors; i++)
        if (t->leaves.tensor[i])
            t->leaves.tensor[i]->mapped = false;
}

static bool on_cpu(const af_trainer *t) { return strcmp(af_device_kind(t->device), "cpu") == 0; }

/* On a GPU, dequantising 4-bit weights at each use costs 2 to 3 %: less than any recomputation
 * beyond the cheap one. On the CPU it costs more than all of them. */
int af_trainer_memory_modes(const af_trainer *t, af_memory_mode out[AF_MEMORY_MODES_MAX])
{
    const bool cpu = on_cpu(t);
    const bool packs = t->source ? af_loader_packs(t->source) : af_method_quantises(t->run);
    const int last = cpu ? AF_RECOMPUTE_BLOCK : AF_RECOMPUTE_OFFLOAD;
    int n = 0;
    for (int m = AF_RECOMPUTE_NONE; m <= (packs && !cpu ? AF_RECOMPUTE_CHEAP : last); m++)
        out[n++] = (af_memory_mode){(af_recompute)m, false, 0};
    for (int m = cpu ? last : AF_RECOMPUTE_NONE; packs && m <= last; m++)
        out[n++] = (af_memory_mode){(af_recompute)m, true, 0};
    return n;
}

const char *af_memory_mode_name(const af_trainer *t, af_memory_mode r,
                                char buf[AF_MEMORY_MODE_NAME])
{
    const int n = snprintf(buf, AF_MEMORY_MODE_NAME, "%s%s", af_recompute_name(r.mode),
                           r.packed ? "+4bit" : "");
    if (r.blocks)
        snprintf(buf + n, (size_t)(AF_MEMORY_MODE_NAME - n), ", %d of %d blocks", r.blocks,
                 t->spec->layers);
    return buf;
}

/* May the run take it? */
static bool allows(const af_trainer *t, af_memory_mode r)
{
    const af_run_config *run = t->run;
    if (run->offloading == AF_TRI_YES && !on_cpu(t))
        return r.mode == AF_RECOMPUTE_OFFLOAD;
    if (run->offloading == AF_TRI_NO && r.mode == AF_RECOMPUTE_OFFLOAD)
        return false;
    switch (run->checkpointing) {
    case AF_TRI_YES:
        return r.mode >= AF_RECOMPUTE_BLOCK;
    case AF_TRI_NO:
        return r.mode == AF_RECOMPUTE_NONE;
    default:
        /* rebuilding norms and gated units saves a third of the activations for 3 % of a GPU's time
         * and 0.5 % of a CPU's */
        return r.mode >= AF_RECOMPUTE_CHEAP;
    }
}

af_status af_trainer_try(af_trainer *t, af_memory_mode r, af_error *err)
{
    af_status st = AF_OK;
    if (t->source)
        af_loader_set_mode(t->source, r.packed ? AF_QUANT_SCRATCH : AF_QUANT_SHADOW);
    else
        AF_TRY(guess_types(t, r.packed, err));
    AF_TRY(af_trainer_record(t, r, err));
    AF_TRY(t->source ? af_loader_bind(t->source, &t->leaves, on_cpu(t), err)
                     : guess_scales(t, err));
    AF_TRY(bind_frozen(t, err));
    if (t->samples)
        keep_stored(t);
    AF_TRY(af_graph_plan(t->graph, t->device, &t->plan, err));
    AF_TRY(af_samples_plan(t, &t->samples_bytes, err));
    if (t->tries < AF_TRIED_MAX)
        t->tried[t->tries++] = (af_tried){r, t->plan};
done:
    return st;
}

static bool fits_in(const af_trainer *t, uint64_t free_bytes)
{
    return t->plan.total + (on_cpu(t) ? af_trainer_copies(t) : 0) <= free_bytes;
}

/* The smallest way, whatever the run says of recomputation. */
static af_status try_smallest(af_trainer *t, uint64_t free_bytes, bool *fits, af_error *err)
{
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX];
    int n = af_trainer_memory_modes(t, memory_mode);
    if (t->run->offloading == AF_TRI_NO && memory_mode[n - 1].mode == AF_RECOMPUTE_OFFLOAD)
        n--;
    const af_status st = af_trainer_try(t, memory_mode[n - 1], err);
    *fits = st == AF_OK && fits_in(t, free_bytes);
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
    const char *recompute = "";
    bool fits = false;
    af_status st = AF_OK;
    *out = '\0';
    if (t->run->checkpointing == AF_TRI_NO) {
        AF_TRY(try_smallest(t, free_bytes, &fits, err));
        snprintf(out, size, "gradient_checkpointing: true");
        recompute = "gradient_checkpointing: true, "; /* what is tried below needs it, too */
    }
    for (int64_t m = (micro + 1) / 2; !fits && micro > 1; m = (m + 1) / 2) {
        t->rows_max = rows / micro * m;
        t->sequences_max = AF_MAX(sequences / micro * m, 1);
        AF_TRY(try_smallest(t, free_bytes, &fits, err));
        snprintf(out, size,
                 "%smicro_batch_size: %" PRId64 ", gradient_accumulation_steps: %" PRId64,
                 recompute, m, (micro * t->run->accumulation + m - 1) / m);
        if (m == 1)
            break;
    }
    for (int64_t len = rows / micro / 2; !fits && len >= 64; len /= 2) {
        t->rows_max = len;
        t->sequences_max = AF_MAX(AF_MIN(sequences / micro, len), 1);
        AF_TRY(try_smallest(t, free_bytes, &fits, err));
        snprintf(out, size, "%smicro_batch_size: 1, sequence_len: %" PRId64, recompute, len);
    }
done:
    if (!fits)
        *out = '\0';
    t->rows_max = rows;
    t->sequences_max = sequences;
    t->plan = plan;
    return st;
}

static af_status does_not_fit(af_trainer *t, uint64_t free_bytes, af_error *err)
{
    char remedy[128], text[200] = "", last[AF_MEMORY_MODE_NAME];
    af_memory_mode_name(t, t->memory_mode, last);
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
                   (double)p->total / 0x1p30, last, (double)free_bytes / 0x1p30,
                   (double)p->weights / 0x1p30, (double)(p->params + p->grads + p->state) / 0x1p30,
                   (double)p->activations / 0x1p30, text);
}

/* ---- some of the blocks ---- */

bool af_memory_mode_same(af_memory_mode a, af_memory_mode b)
{
    return a.mode == b.mode && a.packed == b.packed && a.blocks == b.blocks;
}

static af_status try_blocks(af_trainer *t, af_memory_mode r, int blocks, af_error *err)
{
    r.blocks = blocks < t->spec->layers ? blocks : 0;
    return af_memory_mode_same(t->memory_mode, r) ? AF_OK : af_trainer_try(t, r, err);
}

/* A number of blocks and what they need. */
typedef struct probe {
    int blocks;
    double bytes;
} probe;

static double needed(const af_trainer *t)
{
    return (double)t->plan.total + (double)(on_cpu(t) ? af_trainer_copies(t) : 0);
}

/* The fewest blocks of r that need no more than `bytes`: more than `no`, at most `yes`. Every block
 * saves about as much, so the place is guessed; halving comes where that does not help. */
static af_status fewest_blocks(af_trainer *t, af_memory_mode r, probe no, probe yes, double bytes,
                               af_error *err)
{
    af_status st = AF_OK;
    for (int tries = 0; yes.blocks - no.blocks > 1; tries++) {
        const double slope = no.bytes - yes.bytes, span = (double)(yes.blocks - no.blocks);
        const double part = tries < 4 && slope > 0 ? (no.bytes - bytes) / slope : 0.5;
        const int guess = no.blocks + (int)ceil(part * span);
        const int at = AF_MAX(AF_MIN(guess, yes.blocks - 1), no.blocks + 1);
        AF_TRY(try_blocks(t, r, at, err));
        *(needed(t) <= bytes ? &yes : &no) = (probe){at, needed(t)};
    }
    st = try_blocks(t, r, yes.blocks, err);
done:
    return st;
}

/* A run with every weight trained holds its state several times over, and the peer as well: where
 * the activations at the loss stand out above that, the first blocks are rebuilt for at most a
 * twelfth of a step's work, if that saves a larger share of the memory than it adds work. */
#define ECONOMY_WORK (1.0 / 12)

static bool economises(const af_trainer *t, af_memory_mode r)
{
    return t->run->method == AF_METHOD_FULL && on_cpu(t) && r.mode == AF_RECOMPUTE_CHEAP &&
           t->run->checkpointing == AF_TRI_AUTO;
}

/* As many blocks as ECONOMY_WORK pays for, or fewer where the others save nothing; else r. */
static af_status economise(af_trainer *t, af_memory_mode r, af_error *err)
{
    af_status st = AF_OK;
    const int layers = t->spec->layers;
    const af_memory_mode wide = {AF_RECOMPUTE_WIDE, r.packed, 0};
    AF_TRY(af_trainer_try(t, wide, err));
    const af_plan_info all = t->plan;
    AF_TRY(af_trainer_try(t, r, err));
    const af_plan_info none = t->plan;
    const double each = (all.flops - none.flops) / layers, share = each / none.flops;
    const double saved = 1 - (double)all.total / (double)none.total;
    const int most = each > 0 ? (int)AF_MIN(ECONOMY_WORK / share, (double)layers) : 0;
    if (most == 0 || saved < share)
        goto done;
    AF_TRY(try_blocks(t, wide, most, err));
    const double gain = (double)none.total - (double)t->plan.total;
    const double copies = needed(t) - (double)t->plan.total, before = (double)none.total + copies;
    AF_TRY(fewest_blocks(t, wide, (probe){0, before}, (probe){most, needed(t)},
                         before - AF_MAX(gain * 0.98, 0), err));
    const int taken = t->memory_mode.blocks ? t->memory_mode.blocks : layers;
    if (gain / (double)none.total < share * taken)
        AF_TRY(af_trainer_try(t, r, err));
done:
    return st;
}

af_status af_trainer_choose(af_trainer *t, uint64_t free_bytes, bool *fits, af_error *err)
{
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX];
    const int n = af_trainer_memory_modes(t, memory_mode);
    const af_memory_mode *last = NULL; /* did not fit */
    probe least = {0, 0};              /* nor did so many blocks of the next one */
    af_status st = AF_OK;
    *fits = false;
    t->tries = 0;
    for (int i = 0; i < n && !*fits; i++) {
        const af_memory_mode r = memory_mode[i];
        if (!allows(t, r))
            continue;
        const bool between = last && r.mode >= AF_RECOMPUTE_WIDE && r.mode <= AF_RECOMPUTE_BLOCK &&
                             r.mode == last->mode + 1 && r.packed == last->packed;
        AF_TRY(economises(t, r) ? economise(t, r, err) : af_trainer_try(t, r, err));
        *fits = fits_in(t, free_bytes);
        if (*fits && between)
            AF_TRY(fewest_blocks(t, r, least, (probe){t->spec->layers, needed(t)},
                                 (double)free_bytes, err));
        least = (probe){t->memory_mode.blocks, needed(t)};
        last = &memory_mode[i];
    }
done:
    return st;
}

af_status af_trainer_fit(af_trainer *t, uint64_t free_bytes, af_error *err)
{
    bool fits;
    const af_status st = af_trainer_choose(t, free_bytes, &fits, err);
    return st != AF_OK || fits ? st : does_not_fit(t, free_bytes, err);
}
