/* memory_fit.c - see memory_fit.h. */
#include "train/step/memory_fit.h"
#include "base/proc.h"
#include "dist/comm.h"
#include "graph/graph_access.h"
#include "model/coded/bnb_weight.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/step/resident.h"

#include <math.h>

int af_memory_packed_bits(const af_step_graph *s)
{
    return s->model->loader ? af_loader_packed_bits(s->model->loader) : af_method_quantises(s->run);
}

/* Without weights to look at: codes for the layers' linears when those stay in 4 or 8 bits. */
static af_status guess_types(af_run_model *m, bool packed, af_error *err)
{
    const af_model_spec *spec = m->spec;
    const af_dtype codes = af_method_quantises(m->run) == 8 ? AF_DTYPE_I8 : AF_DTYPE_NF4;
    if (!m->dtype)
        m->dtype = af_calloc((uint64_t)spec->tensors, sizeof *m->dtype);
    if (!m->dtype)
        return af_fail_nomem(err, "the plan", (uint64_t)spec->tensors * sizeof *m->dtype);
    for (int i = 0; i < spec->tensors; i++) {
        m->dtype[i] = packed && af_tensor_is_linear(&spec->tensor[i]) ? codes : m->plain;
    }
    return AF_OK;
}

static af_status guess_scales(af_step_graph *s, af_error *err)
{
    af_model_leaves *l = &s->leaves;
    for (int i = 0; i < s->model->spec->tensors; i++) {
        af_tensor *w = l->tensor[i];
        const af_dtype type = w ? af_tensor_dtype(w) : AF_DTYPE_F32;
        if (type != AF_DTYPE_NF4 && type != AF_DTYPE_I8)
            continue;
        const af_bnb_weight b = af_bnb_weight_outline(type, af_tensor_count(w),
                                                      af_tensor_last_dim(w), s->model->compute);
        const int64_t blocks = af_bnb_weight_blocks(&b);
        af_quant q = {.block = b.block, .nested_block = b.nested_block, .round = b.round};
        q.absmax = af_graph_weight(l->graph, "absmax", b.nested_block ? AF_DTYPE_U8 : AF_DTYPE_F32,
                                   1, &blocks);
        if (b.nested_block) {
            const int64_t outer = (blocks + b.nested_block - 1) / b.nested_block;
            q.nested = af_graph_weight(l->graph, "nested", AF_DTYPE_F32, 1, &outer);
        }
        af_weight_set_quant(w, &q);
    }
    return af_graph_status(l->graph, err);
}

/* Frozen matrices, one after another. */
static af_status bind_frozen(af_step_graph *s, af_error *err)
{
    uint64_t at = 0;
    for (int i = 0; i < s->model->spec->tensors && s->model->frozen.data; i++) {
        af_tensor *w = s->leaves.tensor[i];
        if (!w || af_tensor_role(w) != AF_ROLE_WEIGHT || af_tensor_ndim(w) != 2 ||
            af_tensor_dtype(w) != s->model->plain)
            continue;
        af_tensor_bind_file(w, s->model->frozen.data + at);
        at += AF_ALIGN_UP(af_tensor_bytes(w), (uint64_t)AF_FROZEN_ALIGN);
        assert(at <= s->model->frozen.size);
    }
    return af_graph_status(s->graph, err);
}

/* The graph that answers prompts reads every weight as it is stored: none is returned. */
static void keep_stored(const af_step_graph *s)
{
    for (int i = 0; i < s->model->spec->tensors; i++)
        if (s->leaves.tensor[i])
            af_weight_set_mapped(s->leaves.tensor[i], false);
}

/* On the CPU attention is a small part of a block: its modes are those without it. */
static int add_modes(af_memory_mode *out, int first, int last, bool packed, bool cpu)
{
    int n = 0;
    for (int m = first; m <= last; m++)
        if (!cpu || (m != AF_RECOMPUTE_MOST && m != AF_RECOMPUTE_HOST))
            out[n++] = (af_memory_mode){(af_recompute)m, packed, 0};
    return n;
}

/* On a GPU, dequantising 4-bit weights at each use costs 2 to 3 %: less than any recomputation
 * beyond the cheap one. On the CPU it costs more than all of them. */
int af_memory_modes(const af_step_graph *s, af_memory_mode out[AF_MEMORY_MODES_MAX])
{
    const bool cpu = af_run_model_on_cpu(s->model);
    const bool packs = af_memory_packed_bits(s) != 0;
    const int last = cpu ? AF_RECOMPUTE_BLOCK : AF_RECOMPUTE_OFFLOAD;
    if (af_run_model_splits_weights(s->model)) /* a quarter of the bytes to send */
        return add_modes(out, AF_RECOMPUTE_NONE, last, packs, cpu);
    const int n =
        add_modes(out, AF_RECOMPUTE_NONE, packs && !cpu ? AF_RECOMPUTE_CHEAP : last, false, cpu);
    return packs ? n + add_modes(out + n, cpu ? last : AF_RECOMPUTE_NONE, last, true, cpu) : n;
}

const char *af_memory_mode_name(const af_step_graph *s, af_memory_mode m,
                                char buf[AF_MEMORY_MODE_NAME])
{
    const int n = snprintf(buf, AF_MEMORY_MODE_NAME, "%s%s", af_recompute_name(m.mode),
                           !m.packed                       ? ""
                           : af_memory_packed_bits(s) == 8 ? "+8bit"
                                                           : "+4bit");
    if (m.blocks)
        snprintf(buf + n, (size_t)(AF_MEMORY_MODE_NAME - n), ", %d of %d blocks", m.blocks,
                 s->model->spec->layers);
    return buf;
}

/* Whether the run file allows it. */
static bool allows(const af_step_graph *s, af_memory_mode m)
{
    const af_run_config *run = s->run;
    if (run->offloading == AF_TRI_YES && !af_run_model_on_cpu(s->model))
        return m.mode == AF_RECOMPUTE_OFFLOAD;
    if (run->offloading == AF_TRI_NO &&
        (m.mode == AF_RECOMPUTE_HOST || m.mode == AF_RECOMPUTE_OFFLOAD))
        return false;
    switch (run->checkpointing) {
    case AF_TRI_YES:
        return m.mode >= AF_RECOMPUTE_BLOCK;
    case AF_TRI_NO:
        return m.mode == AF_RECOMPUTE_NONE;
    default:
        /* rebuilding norms and gated units saves a third of the activations. On the CPU that costs
         * 0.5 % of the time, and memory is shared with everything else; on a GPU it costs 3 to 6 %,
         * and what a run leaves free there is of no use to anybody */
        return m.mode >= AF_RECOMPUTE_CHEAP || !af_run_model_on_cpu(s->model);
    }
}

af_status af_memory_plan(af_step_graph *s, af_memory_mode m, af_error *err)
{
    af_status st = AF_OK;
    if (s->model->loader)
        af_loader_set_mode(s->model->loader, m.packed ? AF_QUANT_SCRATCH : AF_QUANT_SHADOW);
    else
        AF_TRY(guess_types(s->model, m.packed, err));
    AF_TRY(af_step_graph_record(s, m, err));
    const bool split = af_run_model_splits_weights(s->model); /* a rank has no whole one to bind */
    AF_TRY(s->model->loader ? af_loader_bind(s->model->loader, &s->leaves,
                                             af_run_model_on_cpu(s->model) && !split, err)
                            : guess_scales(s, err));
    if (!split)
        AF_TRY(bind_frozen(s, err));
    if (s->prompts)
        keep_stored(s);
    AF_TRY(af_graph_plan(s->graph, s->model->device, &s->plan, err));
    AF_TRY(af_prompts_plan(s->prompts, s->model, &s->leaves, &s->prompts_bytes, err));
    if (s->planned_count < AF_PLANNED_MAX)
        s->planned[s->planned_count++] = (af_planned_mode){m, s->plan};
done:
    return st;
}

/* On a GPU, samples are skipped where they do not fit: only the fastest mode leaves space for them.
 */
static bool fits_in(const af_step_graph *s, uint64_t free_bytes)
{
    const bool cpu = af_run_model_on_cpu(s->model);
    const uint64_t more = cpu                                        ? af_memory_copies(s)
                          : s->memory_mode.mode == AF_RECOMPUTE_NONE ? s->prompts_bytes
                                                                     : 0;
    return s->plan.total + more <= free_bytes;
}

/* The smallest mode, whatever the run file sets. */
static af_status try_smallest(af_step_graph *s, uint64_t free_bytes, bool *fits, af_error *err)
{
    af_memory_mode mode[AF_MEMORY_MODES_MAX];
    int n = af_memory_modes(s, mode);
    if (s->run->offloading == AF_TRI_NO && mode[n - 1].mode == AF_RECOMPUTE_OFFLOAD)
        n--;
    const af_status st = af_memory_plan(s, mode[n - 1], err);
    *fits = st == AF_OK && fits_in(s, free_bytes);
    return st;
}

/* Settings that would fit: more recomputation, then fewer rows per pass (and as many more passes),
 * then shorter rows. Empty when nothing does. The plan stays as it was. */
static af_status find_remedy(af_step_graph *s, uint64_t free_bytes, char *out, size_t size,
                             af_error *err)
{
    const af_plan_info plan = s->plan;
    const int64_t rows = s->rows_max, sequences = s->sequences_max;
    const int64_t micro = s->run->micro_batch_size;
    const char *recompute = "";
    bool fits = false;
    af_status st = AF_OK;
    *out = '\0';
    if (s->run->checkpointing == AF_TRI_NO) {
        AF_TRY(try_smallest(s, free_bytes, &fits, err));
        snprintf(out, size, "gradient_checkpointing: true");
        recompute = "gradient_checkpointing: true, "; /* what is tried below needs it, too */
    }
    for (int64_t m = (micro + 1) / 2; !fits && micro > 1; m = (m + 1) / 2) {
        s->rows_max = rows / micro * m;
        s->sequences_max = AF_MAX(sequences / micro * m, 1);
        AF_TRY(try_smallest(s, free_bytes, &fits, err));
        snprintf(out, size,
                 "%smicro_batch_size: %" PRId64 ", gradient_accumulation_steps: %" PRId64,
                 recompute, m, (micro * s->run->accumulation + m - 1) / m);
        if (m == 1)
            break;
    }
    for (int64_t len = rows / micro / 2; !fits && len >= 64; len /= 2) {
        s->rows_max = len;
        s->sequences_max = AF_MAX(AF_MIN(sequences / micro, len), 1);
        AF_TRY(try_smallest(s, free_bytes, &fits, err));
        snprintf(out, size, "%smicro_batch_size: 1, sequence_len: %" PRId64, recompute, len);
    }
done:
    if (!fits)
        *out = '\0';
    s->rows_max = rows;
    s->sequences_max = sequences;
    s->plan = plan;
    return st;
}

static af_status does_not_fit(af_step_graph *s, uint64_t free_bytes, af_error *err)
{
    char remedy[128], text[200] = "", last[AF_MEMORY_MODE_NAME];
    af_memory_mode_name(s, s->memory_mode, last);
    const af_status st = find_remedy(s, free_bytes, remedy, sizeof remedy, err);
    if (st != AF_OK)
        return st;
    const bool full = af_method_trains_base(s->run);
    if (*remedy)
        snprintf(text, sizeof text, "; %s would fit", remedy);
    else if (full)
        snprintf(text, sizeof text, "; no length would fit: try adapter: lora");
    else
        snprintf(text, sizeof text, "; no length would fit: %s",
                 s->run->method == AF_METHOD_LORA ? "try adapter: qlora"
                 : s->run->method == AF_METHOD_OFT && !af_method_quantises(s->run)
                     ? "try load_in_4bit: true"
                     : "take a smaller model");
    const af_plan_info *p = &s->plan;
    return af_fail(err, AF_ENOMEM,
                   "the run needs %.2f GiB with recompute %s, but %.2f GiB are free (weights %.2f, "
                   "trained %.2f, activations %.2f)%s",
                   (double)p->total / 0x1p30, last, (double)free_bytes / 0x1p30,
                   (double)p->weights / 0x1p30, (double)(p->params + p->grads + p->state) / 0x1p30,
                   (double)p->activations / 0x1p30, text);
}

/* ---- partial modes ---- */

bool af_memory_mode_same(af_memory_mode a, af_memory_mode b)
{
    return a.mode == b.mode && a.packed == b.packed && a.blocks == b.blocks;
}

static af_status try_blocks(af_step_graph *s, af_memory_mode m, int blocks, af_error *err)
{
    m.blocks = blocks < s->model->spec->layers ? blocks : 0;
    return af_memory_mode_same(s->memory_mode, m) ? AF_OK : af_memory_plan(s, m, err);
}

/* A number of blocks and the bytes a step needs with them. */
typedef struct block_probe {
    int blocks;
    double bytes;
} block_probe;

static double needed(const af_step_graph *s)
{
    return (double)s->plan.total +
           (double)(af_run_model_on_cpu(s->model) ? af_memory_copies(s) : 0);
}

/* The fewest blocks of m that need no more than `bytes`: more than `no`, at most `yes`. Every block
 * saves about as much, so the number is interpolated; bisection where that does not converge. */
static af_status fewest_blocks(af_step_graph *s, af_memory_mode m, block_probe no, block_probe yes,
                               double bytes, af_error *err)
{
    af_status st = AF_OK;
    for (int tries = 0; yes.blocks - no.blocks > 1; tries++) {
        const double slope = no.bytes - yes.bytes, span = (double)(yes.blocks - no.blocks);
        const double part = tries < 4 && slope > 0 ? (no.bytes - bytes) / slope : 0.5;
        const int guess = no.blocks + (int)ceil(part * span);
        const int at = AF_MAX(AF_MIN(guess, yes.blocks - 1), no.blocks + 1);
        AF_TRY(try_blocks(s, m, at, err));
        *(needed(s) <= bytes ? &yes : &no) = (block_probe){at, needed(s)};
    }
    st = try_blocks(s, m, yes.blocks, err);
done:
    return st;
}

/* Full fine-tuning holds its state several times over: where the activations at the loss exceed
 * that, the first blocks are recomputed for at most a 20th of a step's work, if that saves a
 * larger share of the memory than it adds work. */
#define ECONOMY_WORK (1.0 / 20)

static bool economises(const af_step_graph *s, af_memory_mode m)
{
    return af_method_trains_base(s->run) && af_run_model_on_cpu(s->model) &&
           m.mode == AF_RECOMPUTE_CHEAP && s->run->checkpointing == AF_TRI_AUTO;
}

/* As many blocks as ECONOMY_WORK allows, or fewer where the others save nothing; else m. */
static af_status economise(af_step_graph *s, af_memory_mode m, af_error *err)
{
    af_status st = AF_OK;
    const int layers = s->model->spec->layers;
    const af_memory_mode wide = {AF_RECOMPUTE_WIDE, m.packed, 0};
    AF_TRY(af_memory_plan(s, wide, err));
    const af_plan_info all = s->plan;
    AF_TRY(af_memory_plan(s, m, err));
    const af_plan_info none = s->plan;
    const double each = (all.flops - none.flops) / layers, share = each / none.flops;
    const double saved = 1 - (double)all.total / (double)none.total;
    const int most = each > 0 ? (int)AF_MIN(ECONOMY_WORK / share, (double)layers) : 0;
    if (most == 0 || saved < share)
        goto done;
    AF_TRY(try_blocks(s, wide, most, err));
    const double gain = (double)none.total - (double)s->plan.total;
    const double copies = needed(s) - (double)s->plan.total, before = (double)none.total + copies;
    AF_TRY(fewest_blocks(s, wide, (block_probe){0, before}, (block_probe){most, needed(s)},
                         before - AF_MAX(gain * 0.98, 0), err));
    const int chosen = s->memory_mode.blocks ? s->memory_mode.blocks : layers;
    if (gain / (double)none.total < share * chosen)
        AF_TRY(af_memory_plan(s, m, err));
done:
    return st;
}

/* The last block's backward pass follows its forward pass: what it keeps is in memory at the loss
 * only, where the smallest mode often needs less than its peak. */
#define KEPT_SHARE (1.0 / 48)

af_status af_memory_keep_last(af_step_graph *s, uint64_t free_bytes, af_error *err)
{
    const af_memory_mode all = s->memory_mode;
    const af_plan_info least = s->plan;
    const double most = (double)least.total * (1 + KEPT_SHARE);
    af_status st = AF_OK;
    if (all.mode != AF_RECOMPUTE_OFFLOAD || s->model->spec->layers < 2)
        return AF_OK;
    AF_TRY(try_blocks(s, all, s->model->spec->layers - 1, err));
    if (!fits_in(s, free_bytes) || (double)s->plan.total > most || s->plan.effort >= least.effort)
        AF_TRY(af_memory_plan(s, all, err));
done:
    return st;
}

/* Pinned memory is taken from all other programs: at most three quarters of what is available, for
 * the ranks of this machine together. */
static uint64_t host_limit(const af_step_graph *s)
{
    const uint64_t ranks = (uint64_t)AF_MAX(af_comm_local_size(s->model->comm), 1);
    char text[4096];
    if (s->host_limit)
        return s->host_limit / ranks;
    af_proc_read(text, sizeof text, "/proc/meminfo");
    const uint64_t kib = af_proc_number(text, "MemAvailable:");
    return kib ? kib / 4 * 3 * 1024 / ranks : UINT64_MAX;
}

af_status af_memory_choose(af_step_graph *s, uint64_t free_bytes, bool *fits, af_error *err)
{
    af_memory_mode mode[AF_MEMORY_MODES_MAX];
    const int n = af_memory_modes(s, mode);
    const af_memory_mode *last = NULL; /* the previous one, which did not fit */
    block_probe least = {0, 0};        /* blocks of the next one that do not fit either */
    af_status st = AF_OK;
    *fits = false;
    s->planned_count = 0;
    for (int i = 0; i < n && !*fits; i++) {
        const af_memory_mode m = mode[i];
        if (!allows(s, m))
            continue;
        const bool between = last && m.mode >= AF_RECOMPUTE_WIDE && m.mode <= AF_RECOMPUTE_BLOCK &&
                             m.mode > last->mode && m.packed == last->packed;
        AF_TRY(economises(s, m) ? economise(s, m, err) : af_memory_plan(s, m, err));
        *fits = fits_in(s, free_bytes);
        if (*fits && between)
            AF_TRY(fewest_blocks(s, m, least, (block_probe){s->model->spec->layers, needed(s)},
                                 (double)free_bytes, err));
        if (m.mode == AF_RECOMPUTE_HOST) { /* MOST is the next faster mode of BLOCK, too */
            *fits = *fits && s->plan.host <= host_limit(s);
            continue;
        }
        least = (block_probe){s->memory_mode.blocks, needed(s)};
        last = &mode[i];
    }
    if (*fits)
        st = af_memory_keep_last(s, free_bytes, err);
done:
    return st;
}

/* Ranks that split weights must run the same nodes, and the pieces of one may be a little larger
 * than those of another: what saves most counts. */
static af_status agree_mode(af_step_graph *s, af_error *err)
{
    af_comm *c = s->model->comm;
    const int n = af_comm_size(c);
    af_memory_mode most = s->memory_mode;
    af_memory_mode *all = af_calloc((uint64_t)n, sizeof *all);
    if (!all)
        return af_fail_nomem(err, "ranks", (uint64_t)n * sizeof *all);
    af_status st = af_comm_all_gather(c, &s->memory_mode, all, sizeof *all, err);
    for (int r = 0; r < n && st == AF_OK; r++) {
        const int blocks = all[r].blocks ? all[r].blocks : INT32_MAX; /* 0 = all */
        if (all[r].mode > most.mode ||
            (all[r].mode == most.mode && most.blocks && blocks > most.blocks))
            most = all[r];
    }
    free(all);
    if (st == AF_OK && !af_memory_mode_same(most, s->memory_mode))
        st = af_memory_plan(s, most, err);
    return st;
}

af_status af_memory_fit(af_step_graph *s, uint64_t free_bytes, af_error *err)
{
    bool fits;
    af_status st = af_memory_choose(s, free_bytes, &fits, err);
    if (st == AF_OK && fits && af_run_model_splits_weights(s->model))
        st = agree_mode(s, err);
    return st != AF_OK || fits ? st : does_not_fit(s, free_bytes, err);
}

static uint64_t copies(const af_step_graph *s, const af_plan_info *p)
{
    /* schedule-free: what gradients are taken at, the average, and on a GPU what it is made from */
    const uint64_t averages = !af_optimizer_averages(s->run->optimizer) ? 0
                              : af_run_model_on_cpu(s->model)           ? 2
                                                                        : 3;
    return (s->model->adapter || s->run->sync_ref ? p->params : 0) + averages * p->params +
           s->prompts_bytes;
}

uint64_t af_memory_copies(const af_step_graph *s) { return copies(s, &s->plan); }

uint64_t af_plan_in_place(const af_plan_info *p) { return p->bound - p->returned; }

/* Code and stacks that are touched after the start: as much as the program's code, of which the
 * kernel maps more or less at a time; pages of a checkpoint's files while they are verified. The
 * estimate is meant as a bound: it may be a little too large, not too small. */
#define LATER_BYTES  (UINT64_C(8) << 20)
#define VERIFY_BYTES (UINT64_C(1) << 20)

void af_memory_count_program(af_step_graph *s)
{
    af_resident_trim();
    const uint64_t own = af_resident_own(), adapter = s->model->adapter_bytes;
    s->program_bytes +=
        LATER_BYTES + (own > adapter ? own - adapter : 0) + AF_MIN(VERIFY_BYTES, s->plan.state);
    if (!s->model->loader)
        return;
    /* full fine-tuning copies every weight when the memory of the run is there already; and each
     * checkpoint writes the tokenizer */
    if (!s->model->adapter)
        s->program_bytes += AF_MIN(af_loader_window(s->model->loader), s->plan.params);
    s->program_bytes += af_loader_text_bytes(s->model->loader);
}

uint64_t af_memory_resident(const af_step_graph *s, const af_plan_info *p)
{
    return s->program_bytes + p->total + af_plan_in_place(p) + copies(s, p);
}
