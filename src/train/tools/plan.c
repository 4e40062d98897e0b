/* plan.c - `afinar plan`: the memory and time of a run, from its config and headers alone.
 *
 * Recording, differentiation and layout are those of the run itself; only weights, data and memory
 * are left out. */
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "train/run/run_keys.h"
#include "train/step/memory_fit.h"
#include "train/step/run_data.h"
#include "train/step/setting_warnings.h"
#include "train/tools/plan_ranks.h"
#include "train/trainer/trainer.h"

#include <jansson.h>

/* A run as far as it can be planned without weights and data. */
typedef struct run_outline {
    af_run_model model;
    af_prompts *prompts;
    af_step_graph step;
} run_outline;

static void close_outline(run_outline *o)
{
    af_step_graph_close(&o->step);
    af_run_model_close(&o->model);
    af_prompts_free(o->prompts);
}

static bool has_tokenizer(const char *path)
{
    return !af_dir_exists(path) || af_folder_has_tokenizer(path);
}

static af_status open_outline(run_outline *o, const af_run_config *run, af_error *err)
{
    af_status st = AF_OK;
    const char *path;
    af_step_graph_init(&o->step, run, &o->model);
    AF_TRY(af_run_model_open_outline(&o->model, run, err));
    AF_TRY(af_trainer_check_best_metric(run, &o->model, err));
    path = o->model.texts;
    AF_TRY(has_tokenizer(path) ? af_prompts_new(&o->prompts, run, path, run->chat_template, err)
                               : af_prompts_outline(&o->prompts, run, err));
    o->step.prompts = o->prompts;
    if (has_tokenizer(path)) /* a model that can be trained, not only its config */
        st = af_run_data_peek(run, &o->model, err);
done:
    return st;
}

/* Rows without a limit are planned as long as the model's context. */
static int64_t planned_length(const af_step_graph *s)
{
    enum { USUAL = 2048 };
    const int64_t context = af_spec_context(s->model->spec);
    if (s->run->sequence_len < AF_SEQUENCE_UNLIMITED)
        return s->run->sequence_len;
    return context > 0 ? context : USUAL;
}

static void set_shape(af_step_graph *s, int64_t sequence_len)
{
    s->rows_max = s->run->micro_batch_size * sequence_len;
    s->sequences_max = s->run->micro_batch_size * (s->run->packing ? AF_MIN(sequence_len, 64) : 1);
    if (!s->run->rl)
        return;
    /* two sequences of sequence_len, of which half is the prompt */
    const bool shares = af_run_data_shares(s->run, s->model->spec);
    s->rows_max = s->rows_max / 2 * (shares ? 3 : 4);
    s->sequences_max *= 2;
    s->attention_max = shares ? s->run->micro_batch_size * sequence_len * 2 : 0;
}

/* Elements of the base that are trained: all, or those of some tensors, or of some of their rows.
 */
static int64_t trained_of_base(const af_run_model *m)
{
    const af_trained *t = &m->trained;
    int64_t n = t->tensor ? 0 : m->spec->params;
    for (int i = 0; t->tensor && i < m->spec->tensors; i++) {
        const af_tensor_spec *p = &m->spec->tensor[i];
        int64_t rows = 0, width = 1;
        for (int k = 1; k < p->ndim; k++)
            width *= p->dim[k];
        for (int k = 0; k < t->ranges; k++)
            rows += t->range[k].tensor == i ? t->range[k].to - t->range[k].from : 0;
        n += t->tensor[i] ? (rows ? rows : p->dim[0]) * width : 0;
    }
    return n;
}

static int64_t trained(const af_step_graph *s)
{
    int64_t n = s->model->adapter ? 0 : trained_of_base(s->model);
    for (int i = 0; s->model->adapter && i < s->model->spec->modules; i++) {
        const af_module_spec *m = &s->model->spec->module[i];
        const af_adapter_module *am = &s->model->adapter->module[i];
        n += am->triangles ? am->triangles * am->block * (am->block - 1) / 2
                           : m->copies * am->rank * (m->in + m->out);
        n += am->rank && s->model->adapter->config.dora ? m->out : 0;
        n += am->rank && s->model->adapter->config.lora_bias ? m->out : 0;
    }
    for (int i = 0; s->model->adapter && i < s->model->spec->tensors; i++)
        if (s->model->adapter->saved[i])
            n += s->model->spec->tensor[i].dim[0] *
                 (s->model->spec->tensor[i].ndim > 1 ? s->model->spec->tensor[i].dim[1] : 1);
    for (int k = 0; s->model->adapter && k < AF_TOKEN_TABLES; k++)
        n += s->model->adapter->tokens[k].count * s->model->spec->embed_width;
    return n;
}

enum { LENGTHS = 6 };

typedef struct plan_table {
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX + 1]; /* from the fastest to the smallest */
    af_plan_info plan[AF_MEMORY_MODES_MAX + 1];
    int modes;
    int used; /* the one a run would use; if none fits, the smallest allowed */
    bool fits;
    uint64_t free_bytes;
    int64_t length[LENGTHS];
    uint64_t total[LENGTHS]; /* of `used` */
    af_plan_ranks ranks;     /* ranks 0 = not asked for */
    af_stage_plan stage[AF_STAGES];
} plan_table;

/* Inserts it among the others: some of the blocks before all of them. */
static void insert_used(plan_table *a, af_memory_mode r, const af_plan_info *plan)
{
    while (a->memory_mode[a->used].mode != r.mode || a->memory_mode[a->used].packed != r.packed)
        a->used++;
    if (r.blocks == 0)
        return;
    for (int i = a->modes++; i > a->used; i--) {
        a->memory_mode[i] = a->memory_mode[i - 1];
        a->plan[i] = a->plan[i - 1];
    }
    a->memory_mode[a->used] = r;
    a->plan[a->used] = *plan;
}

/* As it was planned during the choice, or now. */
static af_status plan_of(af_step_graph *s, af_memory_mode r, af_plan_info *out, af_error *err)
{
    for (int i = 0; i < s->planned_count; i++)
        if (af_memory_mode_same(s->planned[i].memory_mode, r)) {
            *out = s->planned[i].plan;
            return AF_OK;
        }
    const af_status st = af_memory_plan(s, r, err);
    *out = s->plan;
    return st;
}

static af_status fill(plan_table *a, af_step_graph *s, uint64_t memory, af_error *err)
{
    af_status st = AF_OK;
    a->free_bytes = memory ? memory : af_device_memory_free(s->model->device);
    set_shape(s, planned_length(s));
    a->modes = af_memory_modes(s, a->memory_mode);
    AF_TRY(af_memory_choose(s, a->free_bytes, &a->fits, err));
    const af_memory_mode used = s->memory_mode;
    const af_plan_info plan = s->plan;
    for (int i = 0; i < a->modes; i++)
        AF_TRY(plan_of(s, a->memory_mode[i], &a->plan[i], err));
    insert_used(a, used, &plan);
    for (int i = 0; i < LENGTHS; i++) {
        a->length[i] = AF_MAX(planned_length(s) >> 2, 1) << i;
        set_shape(s, a->length[i]);
        AF_TRY(af_memory_plan(s, a->memory_mode[a->used], err));
        a->total[i] = s->plan.total;
    }
    set_shape(s, planned_length(s));
    if (a->ranks.ranks)
        st = af_plan_stages(s, &a->ranks, a->free_bytes, a->stage, err);
done:
    return st;
}

/* An estimate: effort relative to the fastest mode (af_plan_info.effort). */
static double slower(const plan_table *a, int i) { return a->plan[i].effort / a->plan[0].effort; }

static json_t *info_json(const plan_table *a, int i)
{
    const af_plan_info *p = &a->plan[i];
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "inputs",
                     (json_int_t)p->inputs, "weights", (json_int_t)p->weights, "weights_mapped",
                     (json_int_t)p->bound, "weights_given_back", (json_int_t)p->returned, "params",
                     (json_int_t)p->params, "gradients", (json_int_t)p->grads, "state",
                     (json_int_t)p->state, "activations", (json_int_t)p->activations, "workspace",
                     (json_int_t)p->workspace, "host", (json_int_t)p->host, "total",
                     (json_int_t)p->total, "flops", p->flops, "time_estimate", slower(a, i));
}

static char *as_json(const plan_table *a, const af_step_graph *s)
{
    char name[AF_MEMORY_MODE_NAME];
    const af_plan_info *p = &a->plan[a->used];
    json_t *o = json_object(), *modes = json_object(), *lengths = json_array(),
           *idle = json_array();
    json_object_set_new(o, "parameters", json_integer(s->model->spec->params));
    json_object_set_new(o, "trained_parameters", json_integer(trained(s)));
    json_object_set_new(o, "device", json_string(af_device_text(s->model->device)));
    json_object_set_new(o, "compute", json_string(af_dtype_name(s->model->compute)));
    json_object_set_new(o, "fits", json_boolean(a->fits));
    json_object_set_new(o, "recompute",
                        json_string(af_recompute_name(a->memory_mode[a->used].mode)));
    json_object_set_new(o, "recompute_blocks",
                        json_integer(a->memory_mode[a->used].blocks ? a->memory_mode[a->used].blocks
                                                                    : s->model->spec->layers));
    const int bits = a->memory_mode[a->used].packed ? af_memory_packed_bits(s) : 0;
    json_object_set_new(o, "stays_in_4bit", json_boolean(bits == 4));
    json_object_set_new(o, "stays_in_8bit", json_boolean(bits == 8));
    json_object_set_new(o, "free_bytes", json_integer((json_int_t)a->free_bytes));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)p->total));
    if (af_run_model_on_cpu(s->model))
        json_object_set_new(o, "resident_bytes",
                            json_integer((json_int_t)af_memory_resident(s, p)));
    json_object_set_new(o, "samples_bytes", json_integer((json_int_t)s->prompts_bytes));
    json_object_set_new(o, "flops_per_step", json_real(p->flops * (double)s->run->accumulation));
    json_object_set_new(o, "arenas", info_json(a, a->used));
    for (int i = 0; i < a->modes; i++)
        json_object_set_new(modes, af_memory_mode_name(s, a->memory_mode[i], name),
                            info_json(a, i));
    json_object_set_new(o, "modes", modes);
    for (int i = 0; i < LENGTHS; i++)
        json_array_append_new(
            lengths, json_pack("{s:I,s:I,s:b}", "sequence_len", (json_int_t)a->length[i], "total",
                               (json_int_t)a->total[i], "fits", a->total[i] <= a->free_bytes));
    json_object_set_new(o, "lengths", lengths);
    for (const af_idle_key *k = s->run->idle->first; k; k = k->next)
        json_array_append_new(idle, json_string(k->key));
    json_object_set_new(o, "keys_without_effect", idle);
    if (a->ranks.ranks)
        json_object_set_new(o, "ranks", af_plan_stages_json(a->stage, &a->ranks));
    char *text = af_json_dump(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

static double gib(uint64_t b) { return (double)b / 0x1p30; }

static void put_modes(af_buf *b, const plan_table *a, const af_step_graph *s)
{
    char name[AF_MEMORY_MODE_NAME];
    af_buf_str(b, "recompute                 peak GiB   FLOP/step     estimated time per step\n");
    for (int i = 0; i < a->modes; i++) {
        const af_plan_info *p = &a->plan[i];
        af_buf_printf(b, "%-23s %10.3f   %.3e     x %.2f",
                      af_memory_mode_name(s, a->memory_mode[i], name), gib(p->total),
                      p->flops * (double)s->run->accumulation, slower(a, i));
        if (p->host)
            af_buf_printf(b, ", %.3f GiB of host memory", gib(p->host));
        af_buf_printf(b, "%s\n", i == a->used && a->fits ? "  <- used" : "");
    }
}

static char *as_text(const plan_table *a, const af_step_graph *s)
{
    af_buf b = {0};
    char name[AF_MEMORY_MODE_NAME], keys[300];
    const af_plan_info *p = &a->plan[a->used];
    af_memory_mode_name(s, a->memory_mode[a->used], name);
    af_buf_printf(&b, "parameters   %.1f M, trained %.2f M; %s, %s\n",
                  (double)s->model->spec->params / 1e6, (double)trained(s) / 1e6,
                  af_device_text(s->model->device), af_dtype_name(s->model->compute));
    if (*af_device_no_gpu(s->model->device))
        af_buf_printf(&b, "device       no GPU is used: %s\n", af_device_no_gpu(s->model->device));
    af_buf_str(&b, "method       ");
    af_run_method_text(s->run, &b);
    af_buf_char(&b, '\n');
    af_buf_printf(&b, "batch        %lld x %lld tokens, %lld passes per step, %.3g FLOP per step\n",
                  (long long)s->run->micro_batch_size, (long long)planned_length(s),
                  (long long)s->run->accumulation, p->flops * (double)s->run->accumulation);
    if (af_run_compares(s->run))
        af_buf_printf(&b, "pairs        prompts of half that length, %s\n",
                      af_run_data_shares(s->run, s->model->spec)
                          ? "computed once for both answers"
                          : "computed twice: this model, or NEFTune, needs a copy per answer");
    af_buf_printf(&b, "recompute    %s%s\n", name, a->fits ? "" : " (does not fit either)");
    af_buf_printf(&b, "weights      %8.3f GiB, and %.3f GiB mapped in place", gib(p->weights),
                  gib(p->bound));
    if (p->returned)
        af_buf_printf(&b, " (%.3f GiB of that until packed)", gib(p->returned));
    af_buf_char(&b, '\n');
    af_buf_printf(&b, "trained      %8.3f GiB, gradients %.3f, optimizer %.3f\n", gib(p->params),
                  gib(p->grads), gib(p->state));
    af_buf_printf(&b, "activations  %8.3f GiB\nworkspace    %8.3f GiB\n", gib(p->activations),
                  gib(p->workspace));
    af_buf_printf(&b, "peak         %8.3f GiB of %.3f GiB free: %s\n", gib(p->total),
                  gib(a->free_bytes), a->fits ? "fits" : "does not fit");
    if (s->prompts)
        af_buf_printf(&b, "samples      %8.3f GiB more during generation%s\n",
                      gib(s->prompts_bytes),
                      af_run_model_on_cpu(s->model) ? "" : ", skipped if not free");
    if (af_run_model_on_cpu(s->model))
        af_buf_printf(
            &b,
            "resident     %8.3f GiB with the program, %smapped weights and a copy of the adapter\n",
            gib(af_memory_resident(s, p)), s->prompts ? "samples, " : "");
    if (af_run_idle_text(s->run, keys, sizeof keys))
        af_buf_printf(&b, "keys         %s\n", keys);
    af_buf_char(&b, '\n');
    put_modes(&b, a, s);
    af_buf_printf(&b, "\nsequence_len   peak GiB (recompute %s)\n", name);
    for (int i = 0; i < LENGTHS; i++)
        af_buf_printf(&b, "%12lld %10.3f   %s\n", (long long)a->length[i], gib(a->total[i]),
                      a->total[i] <= a->free_bytes ? "fits" : "does not fit");
    if (a->ranks.ranks)
        af_plan_stages_text(&b, a->stage, &a->ranks);
    return af_buf_take(&b);
}

static af_status take_ranks(plan_table *a, const af_run_config *run, const af_plan_ranks *r,
                            af_error *err)
{
    if (!r)
        return AF_OK;
    const bool halves = r->ranks > 0 && (r->ranks & (r->ranks - 1)) == 0;
    if (r->ranks < 1 || r->ranks_per_node < 0 || r->ranks_per_node > r->ranks ||
        (halves && r->ranks_per_node & (r->ranks_per_node - 1)))
        return af_fail(err, AF_EUSAGE,
                       "%d ranks, %d on a machine: both must be powers of two, the second at most "
                       "the first",
                       r->ranks, r->ranks_per_node);
    const af_status st = af_run_order_check(run, r->ranks, 0, err);
    if (st != AF_OK)
        return st;
    if (!(r->bandwidth >= 0 && r->bandwidth_far >= 0))
        return af_fail(err, AF_EUSAGE, "a bandwidth of %g and %g bytes per second is not possible",
                       r->bandwidth, r->bandwidth_far);
    a->ranks = *r;
    a->ranks.ranks_per_node = r->ranks_per_node ? r->ranks_per_node : r->ranks;
    a->ranks.bandwidth = r->bandwidth > 0 ? r->bandwidth : 10e9;
    a->ranks.bandwidth_far = r->bandwidth_far > 0 ? r->bandwidth_far : a->ranks.bandwidth;
    return AF_OK;
}

af_status af_train_plan(const char *run_file, const char *const *overrides, int count,
                        uint64_t memory, bool json, char **out, af_error *err)
{
    return af_train_plan_ranks(run_file, overrides, count, memory, NULL, json, out, err);
}

af_status af_train_plan_ranks(const char *run_file, const char *const *overrides, int count,
                              uint64_t memory, const af_plan_ranks *ranks, bool json, char **out,
                              af_error *err)
{
    AF_NEED(err, run_file, overrides || !count, out);
    af_run_config run = {0};
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = af_run_config_read(&run, run_file, overrides, count, err);
    if (st != AF_OK)
        return st;
    run_outline o = {0};
    plan_table a = {0};
    AF_TRY(take_ranks(&a, &run, ranks, err));
    AF_TRY(open_outline(&o, &run, err));
    af_run_idle_log(&run);
    af_warn_settings(&o.model);
    af_memory_count_program(&o.step);
    AF_TRY(fill(&a, &o.step, memory, err));
    *out = json ? as_json(&a, &o.step) : as_text(&a, &o.step);
    if (!*out)
        st = af_fail_nomem(err, "the plan", 4096);
done:
    close_outline(&o);
    af_run_config_clear(&run);
    return st;
}
