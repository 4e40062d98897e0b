/* plan.c - `afinar plan`: what a run needs, told from its config and headers alone.
 *
 * The same recording, differentiation and layout as the run itself; only weights, data and memory
 * are left out. */
#include "base/buf.h"
#include "base/file.h"
#include "train/report/metrics.h"
#include "train/report/samples.h"
#include "train/run/method.h"
#include "train/trainer/trainer.h"

#include <jansson.h>

typedef struct outline {
    af_trainer t;
    af_hf_config config; /* when there are no weights to read headers of */
    af_model_spec spec;
    bool from_config;
    uint64_t adapter; /* bytes of the one that was read */
} outline;

static void close_outline(outline *o)
{
    if (o->from_config) {
        af_trainer_drop_graph(&o->t);
        af_adapter_free(o->t.adapter);
        o->t.adapter = NULL;
        af_model_spec_clear(&o->spec);
        af_hf_config_clear(&o->config);
    }
    af_trainer_close(&o->t);
}

static bool has_weights(const char *path)
{
    if (!af_dir_exists(path))
        return true; /* a file: its header is the config */
    char *one = af_path_join(path, "model.safetensors"),
         *many = af_path_join(path, "model.safetensors.index.json");
    const bool yes = one && many && (af_file_exists(one) || af_file_exists(many));
    free(one);
    free(many);
    return yes;
}

static bool has_tokenizer(const char *path)
{
    char *json = af_path_join(path, "tokenizer.json");
    const bool yes = !af_dir_exists(path) || (json && af_file_exists(json));
    free(json);
    return yes;
}

static af_status open_outline(outline *o, const af_run_config *run, af_error *err)
{
    af_trainer *t = &o->t;
    af_status st = AF_OK;
    t->run = run;
    af_trainer_count_code(t);
    st = af_model_resolve_whole(&t->model_path, run->base_model, err);
    if (st != AF_OK) {
        char at[300];
        return af_fail_prefix(st, err, "%s", af_run_key_loc(run, "base_model", at, sizeof at));
    }
    AF_TRY(af_device_open(&t->device, run->device, (int)run->threads, err));
    const bool gpu = strcmp(af_device_kind(t->device), "cpu") != 0;
    t->compute =
        run->bf16 == AF_TRI_YES || (run->bf16 == AF_TRI_AUTO && gpu) ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    if (has_weights(t->model_path)) {
        bool untie;
        AF_TRY(af_method_unties(&untie, run, err));
        const af_loader_opts so = {.compute = t->compute,
                                   .outline = true,
                                   .untie = untie,
                                   .load_in_4bit = af_method_quantises(run),
                                   .keep_blocks = run->load_in_4bit != AF_TRI_YES};
        AF_TRY(af_loader_open(&t->source, t->model_path, &so, err));
        t->spec = af_loader_spec(t->source);
        AF_TRY(af_method_check_base(run, af_loader_config(t->source), err));
    } else {
        AF_TRY(af_model_config(&o->config, t->model_path, err));
        AF_TRY(af_method_check_base(run, &o->config, err));
        AF_TRY(af_model_spec_init(&o->spec, &o->config, err));
        o->from_config = true;
        t->spec = &o->spec;
        t->plain = t->compute == AF_DTYPE_BF16 ? AF_DTYPE_BF16 : o->config.dtype;
    }
    t->dropout = run->lora_dropout;
    const uint64_t before = af_resident_own();
    if (run->method != AF_METHOD_FULL && run->lora_model_dir) {
        AF_TRY(af_adapter_read(&t->adapter, t->spec, run->lora_model_dir, err));
        t->dropout = t->adapter->config.dropout;
    } else if (run->method != AF_METHOD_FULL) {
        af_adapter_config c;
        af_method_lists lists;
        AF_TRY(af_method_adapter(&c, &lists, run, t->spec, err));
        AF_TRY(af_adapter_outline(&t->adapter, &c, t->spec, err));
    }
    o->adapter = af_resident_own() - before;
done:
    return st;
}

static void set_shape(af_trainer *t, int64_t sequence_len)
{
    t->rows_max = t->run->micro_batch_size * sequence_len;
    t->sequences_max = t->run->micro_batch_size * (t->run->packing ? AF_MIN(sequence_len, 64) : 1);
}

static int64_t trained(const af_trainer *t)
{
    int64_t n = t->adapter ? 0 : t->spec->params;
    for (int i = 0; t->adapter && i < t->spec->modules; i++) {
        const af_module_spec *m = &t->spec->module[i];
        n += t->adapter->module[i].rank * (m->in + m->out);
        n += t->adapter->module[i].rank && t->adapter->config.dora ? m->out : 0;
    }
    for (int i = 0; t->adapter && i < t->spec->tensors; i++)
        if (t->adapter->saved[i])
            n += t->spec->tensor[i].dim[0] *
                 (t->spec->tensor[i].ndim > 1 ? t->spec->tensor[i].dim[1] : 1);
    return n;
}

enum { LENGTHS = 6 };

typedef struct answer {
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX + 1]; /* from the fastest to the smallest */
    af_plan_info plan[AF_MEMORY_MODES_MAX + 1];
    int rungs;
    int taken; /* what a run would take; if none fits, the smallest it may */
    bool fits;
    uint64_t free_bytes;
    int64_t length[LENGTHS];
    uint64_t total[LENGTHS]; /* of `taken` */
} answer;

/* Where it belongs among the others: some of the blocks before all of them. */
static void enter_taken(answer *a, af_memory_mode r, const af_plan_info *plan)
{
    while (a->memory_mode[a->taken].mode != r.mode || a->memory_mode[a->taken].packed != r.packed)
        a->taken++;
    if (r.blocks == 0)
        return;
    for (int i = a->rungs++; i > a->taken; i--) {
        a->memory_mode[i] = a->memory_mode[i - 1];
        a->plan[i] = a->plan[i - 1];
    }
    a->memory_mode[a->taken] = r;
    a->plan[a->taken] = *plan;
}

/* As it was planned on the way to the choice, or now. */
static af_status plan_of(af_trainer *t, af_memory_mode r, af_plan_info *out, af_error *err)
{
    for (int i = 0; i < t->tries; i++)
        if (af_memory_mode_same(t->tried[i].memory_mode, r)) {
            *out = t->tried[i].plan;
            return AF_OK;
        }
    const af_status st = af_trainer_try(t, r, err);
    *out = t->plan;
    return st;
}

static af_status fill(answer *a, af_trainer *t, uint64_t memory, af_error *err)
{
    af_status st = AF_OK;
    a->free_bytes = memory ? memory : af_device_memory_free(t->device);
    set_shape(t, t->run->sequence_len);
    a->rungs = af_trainer_memory_modes(t, a->memory_mode);
    AF_TRY(af_trainer_choose(t, a->free_bytes, &a->fits, err));
    const af_memory_mode taken = t->memory_mode;
    const af_plan_info plan = t->plan;
    for (int i = 0; i < a->rungs; i++)
        AF_TRY(plan_of(t, a->memory_mode[i], &a->plan[i], err));
    enter_taken(a, taken, &plan);
    for (int i = 0; i < LENGTHS; i++) {
        a->length[i] = AF_MAX(t->run->sequence_len >> 2, 1) << i;
        set_shape(t, a->length[i]);
        AF_TRY(af_trainer_try(t, a->memory_mode[a->taken], err));
        a->total[i] = t->plan.total;
    }
    set_shape(t, t->run->sequence_len);
done:
    return st;
}

static bool on_cpu(const af_trainer *t) { return strcmp(af_device_kind(t->device), "cpu") == 0; }

/* An estimate: work against the work of the fastest way (af_plan_info.effort). */
static double slower(const answer *a, int i) { return a->plan[i].effort / a->plan[0].effort; }

static json_t *info_json(const answer *a, int i)
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

static char *as_json(const answer *a, const af_trainer *t)
{
    char name[AF_MEMORY_MODE_NAME];
    const af_plan_info *p = &a->plan[a->taken];
    json_t *o = json_object(), *modes = json_object(), *lengths = json_array();
    json_object_set_new(o, "parameters", json_integer(t->spec->params));
    json_object_set_new(o, "trained_parameters", json_integer(trained(t)));
    json_object_set_new(o, "device", json_string(af_device_text(t->device)));
    json_object_set_new(o, "compute", json_string(af_dtype_name(t->compute)));
    json_object_set_new(o, "fits", json_boolean(a->fits));
    json_object_set_new(o, "recompute",
                        json_string(af_recompute_name(a->memory_mode[a->taken].mode)));
    json_object_set_new(o, "recompute_blocks",
                        json_integer(a->memory_mode[a->taken].blocks
                                         ? a->memory_mode[a->taken].blocks
                                         : t->spec->layers));
    json_object_set_new(o, "stays_in_4bit", json_boolean(a->memory_mode[a->taken].packed));
    json_object_set_new(o, "free_bytes", json_integer((json_int_t)a->free_bytes));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)p->total));
    if (on_cpu(t))
        json_object_set_new(o, "resident_bytes",
                            json_integer((json_int_t)af_trainer_resident(t, p)));
    json_object_set_new(o, "samples_bytes", json_integer((json_int_t)t->samples_bytes));
    json_object_set_new(o, "flops_per_step", json_real(p->flops * (double)t->run->accumulation));
    json_object_set_new(o, "arenas", info_json(a, a->taken));
    for (int i = 0; i < a->rungs; i++)
        json_object_set_new(modes, af_memory_mode_name(t, a->memory_mode[i], name),
                            info_json(a, i));
    json_object_set_new(o, "modes", modes);
    for (int i = 0; i < LENGTHS; i++)
        json_array_append_new(
            lengths, json_pack("{s:I,s:I,s:b}", "sequence_len", (json_int_t)a->length[i], "total",
                               (json_int_t)a->total[i], "fits", a->total[i] <= a->free_bytes));
    json_object_set_new(o, "lengths", lengths);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

static double gib(uint64_t b) { return (double)b / 0x1p30; }

static void put_modes(af_buf *b, const answer *a, const af_trainer *t)
{
    char name[AF_MEMORY_MODE_NAME];
    af_buf_str(b, "recompute                 peak GiB   FLOP a step   estimated time a step\n");
    for (int i = 0; i < a->rungs; i++) {
        const af_plan_info *p = &a->plan[i];
        af_buf_printf(b, "%-23s %10.3f   %.3e     x %.2f",
                      af_memory_mode_name(t, a->memory_mode[i], name), gib(p->total),
                      p->flops * (double)t->run->accumulation, slower(a, i));
        if (p->host)
            af_buf_printf(b, ", %.3f GiB of host memory", gib(p->host));
        af_buf_printf(b, "%s\n", i == a->taken && a->fits ? "  <- taken" : "");
    }
}

static char *as_text(const answer *a, const af_trainer *t)
{
    af_buf b = {0};
    char name[AF_MEMORY_MODE_NAME];
    const af_plan_info *p = &a->plan[a->taken];
    af_memory_mode_name(t, a->memory_mode[a->taken], name);
    af_buf_printf(&b, "parameters   %.1f M, trained %.2f M; %s, %s\n",
                  (double)t->spec->params / 1e6, (double)trained(t) / 1e6,
                  af_device_text(t->device), af_dtype_name(t->compute));
    af_buf_printf(&b, "batch        %lld x %lld tokens, %lld passes a step, %.3g FLOP a step\n",
                  (long long)t->run->micro_batch_size, (long long)t->run->sequence_len,
                  (long long)t->run->accumulation, p->flops * (double)t->run->accumulation);
    af_buf_printf(&b, "recompute    %s%s\n", name, a->fits ? "" : " (and even that does not fit)");
    af_buf_printf(&b, "weights      %8.3f GiB, and %.3f GiB read where they lie", gib(p->weights),
                  gib(p->bound));
    if (p->returned)
        af_buf_printf(&b, " (%.3f GiB only until they are packed)", gib(p->returned));
    af_buf_char(&b, '\n');
    af_buf_printf(&b, "trained      %8.3f GiB, gradients %.3f, optimizer %.3f\n", gib(p->params),
                  gib(p->grads), gib(p->state));
    af_buf_printf(&b, "activations  %8.3f GiB\nworkspace    %8.3f GiB\n", gib(p->activations),
                  gib(p->workspace));
    af_buf_printf(&b, "peak         %8.3f GiB of %.3f GiB free: %s\n", gib(p->total),
                  gib(a->free_bytes), a->fits ? "fits" : "does not fit");
    if (t->samples)
        af_buf_printf(&b, "samples      %8.3f GiB more while they are generated%s\n",
                      gib(t->samples_bytes), on_cpu(t) ? "" : ", left out when that is not free");
    if (on_cpu(t))
        af_buf_printf(
            &b,
            "resident     %8.3f GiB with the program, %smapped weights and a copy of the adapter\n",
            gib(af_trainer_resident(t, p)), t->samples ? "samples, " : "");
    af_buf_char(&b, '\n');
    put_modes(&b, a, t);
    af_buf_printf(&b, "\nsequence_len   peak GiB (recompute %s)\n", name);
    for (int i = 0; i < LENGTHS; i++)
        af_buf_printf(&b, "%12lld %10.3f   %s\n", (long long)a->length[i], gib(a->total[i]),
                      a->total[i] <= a->free_bytes ? "fits" : "does not fit");
    return af_buf_take(&b);
}

af_status af_train_plan(const char *run_file, const char *const *overrides, int count,
                        uint64_t memory, bool json, char **out, af_error *err)
{
    af_run_config run = {0};
    af_status st = af_run_config_read(&run, run_file, overrides, count, false, err);
    if (st != AF_OK)
        return st;
    outline o = {0};
    answer a = {0};
    AF_TRY(open_outline(&o, &run, err));
    AF_TRY(has_tokenizer(o.t.model_path) ? af_samples_new(&o.t.samples, &o.t, err)
                                         : af_samples_outline(&o.t.samples, &o.t, err));
    AF_TRY(fill(&a, &o.t, memory, err));
    af_trainer_count_program(&o.t, o.adapter);
    *out = json ? as_json(&a, &o.t) : as_text(&a, &o.t);
    if (!*out)
        st = af_fail_nomem(err, "the plan", 4096);
done:
    close_outline(&o);
    af_run_config_clear(&run);
    return st;
}
