/* plan.c - `afinar plan`: what a run needs, told from its config and headers alone.
 *
 * The same recording, differentiation and layout as the run itself; only weights, data and memory
 * are left out. */
#include "base/buf.h"
#include "base/file.h"
#include "train/method.h"
#include "train/trainer.h"

#include <jansson.h>

static const char *const mode_names[] = {"none", "cheap", "wide", "block"};

typedef struct outline {
    af_trainer t;
    af_hf_config config; /* when there are no weights to read headers of */
    af_model_spec spec;
    af_dtype *dtype;
    bool from_config;
} outline;

static void close_outline(outline *o)
{
    if (o->from_config) {
        af_model_leaves_clear(&o->t.leaves);
        af_graph_free(o->t.graph);
        o->t.graph = NULL;
        af_adapter_free(o->t.adapter);
        o->t.adapter = NULL;
        af_model_spec_clear(&o->spec);
        af_hf_config_clear(&o->config);
    }
    free(o->dtype);
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

/* Without headers: the config's type, nf4 for the layers' linears of a quantised base. */
static af_status guess_types(outline *o, af_error *err)
{
    const af_model_spec *s = &o->spec;
    o->dtype = af_calloc((uint64_t)s->tensors, sizeof *o->dtype);
    if (!o->dtype)
        return af_fail_nomem(err, "the plan", (uint64_t)s->tensors * sizeof *o->dtype);
    for (int i = 0; i < s->tensors; i++) {
        const bool linear = s->tensor[i].module >= 0 && s->tensor[i].layer >= 0;
        o->dtype[i] = linear && af_method_quantises(o->t.run) ? AF_DTYPE_NF4 : o->config.dtype;
    }
    o->t.dtype = o->dtype;
    return AF_OK;
}

static af_status open_outline(outline *o, const af_run *run, af_error *err)
{
    af_trainer *t = &o->t;
    af_status st = AF_OK;
    t->run = run;
    AF_TRY(af_model_resolve(&t->model_path, run->base_model, err));
    AF_TRY(af_device_open(&t->device, run->device, (int)run->threads, err));
    const bool gpu = strcmp(af_device_kind(t->device), "cpu") != 0;
    t->compute =
        run->bf16 == AF_TRI_YES || (run->bf16 == AF_TRI_AUTO && gpu) ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    if (has_weights(t->model_path)) {
        bool untie;
        AF_TRY(af_method_unties(&untie, run, err));
        const af_source_opts so = {
            .compute = t->compute, .untie = untie, .load_in_4bit = af_method_quantises(run)};
        AF_TRY(af_source_open(&t->source, t->model_path, &so, err));
        t->spec = af_source_spec(t->source);
    } else {
        AF_TRY(af_model_config(&o->config, t->model_path, err));
        AF_TRY(af_model_spec_init(&o->spec, &o->config, err));
        o->from_config = true;
        t->spec = &o->spec;
        AF_TRY(guess_types(o, err));
    }
    t->dropout = run->lora_dropout;
    if (run->method != AF_METHOD_FULL && run->lora_model_dir) {
        AF_TRY(af_adapter_read(&t->adapter, t->spec, run->lora_model_dir, err));
        t->dropout = t->adapter->config.dropout;
    } else if (run->method != AF_METHOD_FULL) {
        af_adapter_config c;
        af_method_lists lists;
        AF_TRY(af_method_adapter(&c, &lists, run, t->spec, err));
        AF_TRY(af_adapter_outline(&t->adapter, &c, t->spec, err));
    }
done:
    return st;
}

static void set_shape(af_trainer *t, int64_t sequence_len)
{
    t->rows_max = t->run->micro_batch_size * sequence_len;
    t->sequences_max = t->run->micro_batch_size * (t->run->packing ? AF_MIN(sequence_len, 64) : 1);
}

static af_status plan_mode(af_trainer *t, af_recompute mode, af_plan_info *out, af_error *err)
{
    af_status st = af_trainer_record(t, mode, err);
    if (st == AF_OK && t->source)
        st = af_source_bind(t->source, &t->leaves, !strcmp(af_device_kind(t->device), "cpu"), err);
    return st == AF_OK ? af_graph_plan(t->graph, t->device, out, err) : st;
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
    af_plan_info mode[AF_RECOMPUTE_BLOCK + 1];
    int chosen; /* -1 = nothing fits */
    uint64_t free_bytes;
    int64_t length[LENGTHS];
    uint64_t total[LENGTHS]; /* at the chosen mode, or the smallest */
} answer;

static af_status fill(answer *a, af_trainer *t, uint64_t memory, af_error *err)
{
    af_status st = AF_OK;
    a->free_bytes = memory ? memory : af_device_memory_free(t->device);
    a->chosen = -1;
    set_shape(t, t->run->sequence_len);
    const int first = t->run->checkpointing == AF_TRI_YES ? AF_RECOMPUTE_BLOCK : AF_RECOMPUTE_NONE;
    const int last = t->run->checkpointing == AF_TRI_NO ? AF_RECOMPUTE_NONE : AF_RECOMPUTE_BLOCK;
    for (int m = AF_RECOMPUTE_NONE; m <= AF_RECOMPUTE_BLOCK; m++) {
        AF_TRY(plan_mode(t, (af_recompute)m, &a->mode[m], err));
        if (a->chosen < 0 && m >= first && m <= last && a->mode[m].total <= a->free_bytes)
            a->chosen = m;
    }
    for (int i = 0; i < LENGTHS; i++) {
        af_plan_info p;
        a->length[i] = AF_MAX(t->run->sequence_len >> 2, 1) << i;
        set_shape(t, a->length[i]);
        AF_TRY(plan_mode(t, (af_recompute)(a->chosen < 0 ? last : a->chosen), &p, err));
        a->total[i] = p.total;
    }
done:
    return st;
}

static bool on_cpu(const af_trainer *t) { return strcmp(af_device_kind(t->device), "cpu") == 0; }

/* On the CPU: with weights read in place and the copies a checkpoint is written from. */
static uint64_t resident(const af_plan_info *p)
{
    return p->total + p->bound + p->params + p->state;
}

static json_t *info_json(const af_plan_info *p)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f}", "inputs", (json_int_t)p->inputs,
                     "weights", (json_int_t)p->weights, "weights_mapped", (json_int_t)p->bound,
                     "params", (json_int_t)p->params, "gradients", (json_int_t)p->grads, "state",
                     (json_int_t)p->state, "activations", (json_int_t)p->activations, "workspace",
                     (json_int_t)p->workspace, "total", (json_int_t)p->total, "flops", p->flops);
}

static char *as_json(const answer *a, const af_trainer *t)
{
    const int m = a->chosen < 0 ? AF_RECOMPUTE_BLOCK : a->chosen;
    json_t *o = json_object(), *modes = json_object(), *lengths = json_array();
    json_object_set_new(o, "parameters", json_integer(t->spec->params));
    json_object_set_new(o, "trained_parameters", json_integer(trained(t)));
    json_object_set_new(o, "device", json_string(af_device_text(t->device)));
    json_object_set_new(o, "compute", json_string(af_dtype_name(t->compute)));
    json_object_set_new(o, "fits", json_boolean(a->chosen >= 0));
    json_object_set_new(o, "recompute", json_string(mode_names[m]));
    json_object_set_new(o, "free_bytes", json_integer((json_int_t)a->free_bytes));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)a->mode[m].total));
    if (on_cpu(t))
        json_object_set_new(o, "resident_bytes", json_integer((json_int_t)resident(&a->mode[m])));
    json_object_set_new(o, "flops_per_step",
                        json_real(a->mode[m].flops * (double)t->run->accumulation));
    json_object_set_new(o, "arenas", info_json(&a->mode[m]));
    for (int i = 0; i <= AF_RECOMPUTE_BLOCK; i++)
        json_object_set_new(modes, mode_names[i], info_json(&a->mode[i]));
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

static char *as_text(const answer *a, const af_trainer *t)
{
    af_buf b = {0};
    const int m = a->chosen < 0 ? AF_RECOMPUTE_BLOCK : a->chosen;
    const af_plan_info *p = &a->mode[m];
    af_buf_printf(&b, "parameters   %.1f M, trained %.2f M; %s, %s\n",
                  (double)t->spec->params / 1e6, (double)trained(t) / 1e6,
                  af_device_text(t->device), af_dtype_name(t->compute));
    af_buf_printf(&b, "batch        %lld x %lld tokens, %lld passes a step, %.3g FLOP a step\n",
                  (long long)t->run->micro_batch_size, (long long)t->run->sequence_len,
                  (long long)t->run->accumulation, p->flops * (double)t->run->accumulation);
    af_buf_printf(&b, "recompute    %s%s\n", mode_names[m],
                  a->chosen < 0 ? " (and even that does not fit)" : "");
    af_buf_printf(&b, "weights      %8.3f GiB, and %.3f GiB read where they lie\n", gib(p->weights),
                  gib(p->bound));
    af_buf_printf(&b, "trained      %8.3f GiB, gradients %.3f, optimizer %.3f\n", gib(p->params),
                  gib(p->grads), gib(p->state));
    af_buf_printf(&b, "activations  %8.3f GiB\nworkspace    %8.3f GiB\n", gib(p->activations),
                  gib(p->workspace));
    af_buf_printf(&b, "peak         %8.3f GiB of %.3f GiB free: %s\n", gib(p->total),
                  gib(a->free_bytes), a->chosen < 0 ? "does not fit" : "fits");
    if (on_cpu(t))
        af_buf_printf(&b, "resident     %8.3f GiB with mapped weights and copies for checkpoints\n",
                      gib(resident(p)));
    af_buf_char(&b, '\n');
    af_buf_str(&b, "recompute      peak GiB   FLOP a step\n");
    for (int i = 0; i <= AF_RECOMPUTE_BLOCK; i++)
        af_buf_printf(&b, "%-10s %12.3f   %.3g (x %.2f)\n", mode_names[i], gib(a->mode[i].total),
                      a->mode[i].flops * (double)t->run->accumulation,
                      a->mode[i].flops / a->mode[0].flops);
    af_buf_printf(&b, "\nsequence_len   peak GiB (recompute %s)\n", mode_names[m]);
    for (int i = 0; i < LENGTHS; i++)
        af_buf_printf(&b, "%12lld %10.3f   %s\n", (long long)a->length[i], gib(a->total[i]),
                      a->total[i] <= a->free_bytes ? "fits" : "does not fit");
    return af_buf_take(&b);
}

af_status af_train_plan(const char *run_file, const char *const *overrides, int count,
                        uint64_t memory, bool json, char **out, af_error *err)
{
    af_run run = {0};
    af_status st = af_run_read(&run, run_file, overrides, count, false, err);
    if (st != AF_OK)
        return st;
    outline o = {0};
    answer a = {0};
    AF_TRY(open_outline(&o, &run, err));
    AF_TRY(fill(&a, &o.t, memory, err));
    *out = json ? as_json(&a, &o.t) : as_text(&a, &o.t);
    if (!*out)
        st = af_fail_nomem(err, "the plan", 4096);
done:
    close_outline(&o);
    af_run_clear(&run);
    return st;
}
