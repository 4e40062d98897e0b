/* run_model.c - see run_model.h. */
#include "train/step/run_model.h"
#include "base/file.h"
#include "base/log.h"
#include "dist/comm_device.h"
#include "graph/graph_access.h"
#include "model/adapter_config.h"
#include "model/coded/fresh_weights.h"
#include "train/run/adapter_start.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/step/ranks.h"
#include "train/step/resident.h"
#include "train/step/start_labels.h"
#include "train/step/teacher.h"

/* Names the key that a wrong adapter comes from. */
static af_status adapter_key(const af_run_model *m, af_status st, af_error *err)
{
    char at[300];
    if (st != AF_EUSAGE && st != AF_EUNSUPPORTED)
        return st;
    const bool saved = strcmp(err->subject, "modules_to_save") == 0;
    const bool tokens = strcmp(err->subject, "trainable_token_indices") == 0;
    const bool bias = strcmp(err->subject, "lora_bias") == 0;
    const bool params = strcmp(err->subject, "target_parameters") == 0;
    const bool listed = af_run_key_is_set(m->run, "trainable_token_indices");
    const char *key = saved    ? "lora_modules_to_save"
                      : tokens ? (listed ? "trainable_token_indices" : "tokens")
                      : bias   ? "lora_bias"
                      : params ? "lora_target_parameters"
                               : "lora_target_modules";
    af_run_key_loc(m->run, key, at, sizeof at);
    return saved || tokens || bias || !af_run_key_is_set(m->run, key)
               ? af_fail_prefix(st, err, "%s", at) /* these name it themselves */
               : af_fail_prefix(st, err, "%s: %s", at, key);
}

/* What the run file asks for. */
static af_status adapter_config(af_run_model *m, af_adapter_config *c, af_method_lists *lists,
                                af_error *err)
{
    af_status st = af_method_adapter(c, lists, m->run, m->spec, err);
    if (st != AF_OK)
        return st;
    c->labels = m->labels;
    st = af_run_tokens_train(&m->tokens, c, m->run, m->spec, err);
    return st == AF_OK || m->run->trainable_tokens ? st : adapter_key(m, st, err);
}

/* Names the key of first values that are not possible. */
static af_status start_key(const af_run_model *m, af_status st, af_error *err)
{
    char at[300];
    return st == AF_OK
               ? st
               : af_fail_prefix(st, err, "%s",
                                af_run_key_loc(m->run, "peft_init_lora_weights", at, sizeof at));
}

/* First values that depend on the base. */
static af_status start_adapter(af_run_model *m, af_error *err)
{
    return start_key(m,
                     af_start_fill(m->adapter, m->loader, af_method_quantises(m->run),
                                   (uint64_t)m->run->seed, (int)m->run->threads, err),
                     err);
}

static af_status new_adapter(af_run_model *m, af_error *err)
{
    af_adapter_config c;
    af_method_lists lists;
    af_status st = adapter_config(m, &c, &lists, err);
    if (st != AF_OK)
        return st;
    st = af_adapter_new(&m->adapter, &c, m->spec, m->loader, (uint64_t)m->run->seed, err);
    if (st == AF_OK)
        return start_adapter(m, err);
    return adapter_key(m, st, err);
}

static bool same_names(const af_strings *a, const char *const *b, int count)
{
    bool same = a->count == count;
    for (int i = 0; i < count && same; i++) {
        same = false;
        for (int k = 0; k < a->count && !same; k++)
            same = strcmp(a->item[k], b[i]) == 0;
    }
    return same;
}

/* Repeated targets may be written differently as long as they match the same modules. */
static af_status check_targets(const af_run_model *m, af_error *err)
{
    static const char *const keys[] = {
        "lora_target_modules",  "lora_target_linear",       "lora_target_parameters",
        "lora_exclude_modules", "lora_layers_to_transform", "num_layers",
        "use_llama_pro"};
    const af_run_config *r = m->run;
    const char *key = NULL;
    char at[300];
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        key = !key && af_run_key_is_set(r, keys[i]) ? keys[i] : key;
    if (!key)
        return AF_OK;
    af_adapter_config c;
    af_method_lists lists;
    bool *target = af_calloc((uint64_t)m->spec->modules, sizeof *target);
    if (!target)
        return af_fail_nomem(err, "the targets", (uint64_t)m->spec->modules);
    AF_TRY(af_method_adapter(&c, &lists, r, m->spec, err));
    AF_TRY(af_adapter_targets(&c, m->spec, target, err));
    for (int i = 0; i < m->spec->modules; i++)
        if (target[i] != (m->adapter->module[i].rank > 0))
            AF_TRY(af_fail(
                err, AF_EUSAGE, "%s: '%s' is %s '%s' but not %s %s",
                af_run_key_loc(r, key, at, sizeof at), m->spec->module[i].path,
                target[i] ? "listed in" : "adapted in", target[i] ? key : r->lora_model_dir,
                target[i] ? "adapted in" : "listed in", target[i] ? r->lora_model_dir : key));
done:
    free(target);
    return st;
}

/* A repeated lora_* value must agree with the adapter it repeats. */
static af_status check_repeated(af_run_model *m, af_error *err)
{
    const af_run_config *r = m->run;
    const af_adapter_config *c = &m->adapter->config;
    char at[300];
    const af_status type = af_method_check_type(r, c, err);
    if (type != AF_OK)
        return type;
    if (af_run_key_is_set(r, "lora_dropout") && r->lora_dropout != c->dropout)
        return af_fail(err, AF_EUSAGE, "%s: lora_dropout is %g, the adapter in '%s' has %g",
                       af_run_key_loc(r, "lora_dropout", at, sizeof at), r->lora_dropout,
                       r->lora_model_dir, c->dropout);
    if (af_run_key_is_set(r, "lora_modules_to_save") && !m->spec->labels &&
        !same_names(&r->lora_modules_to_save, c->modules_to_save, c->save_count))
        return af_fail(err, AF_EUSAGE,
                       "%s: lora_modules_to_save has %d names, the adapter in '%s' has %d others",
                       af_run_key_loc(r, "lora_modules_to_save", at, sizeof at),
                       r->lora_modules_to_save.count, r->lora_model_dir, c->save_count);
    if (af_run_key_is_set(r, "lora_r") && r->lora_r != c->r)
        return af_fail(err, AF_EUSAGE, "%s: lora_r is %" PRId64 ", the adapter in '%s' has %d",
                       af_run_key_loc(r, "lora_r", at, sizeof at), r->lora_r, r->lora_model_dir,
                       c->r);
    if (af_run_key_is_set(r, "lora_alpha") && r->lora_alpha != c->alpha)
        return af_fail(err, AF_EUSAGE, "%s: lora_alpha is %g, the adapter in '%s' has %g",
                       af_run_key_loc(r, "lora_alpha", at, sizeof at), r->lora_alpha,
                       r->lora_model_dir, c->alpha);
    if (af_run_key_is_set(r, "peft_use_rslora") && r->rslora != c->rslora)
        return af_fail(err, AF_EUSAGE, "%s: peft_use_rslora is %s, the adapter in '%s' has %s",
                       af_run_key_loc(r, "peft_use_rslora", at, sizeof at),
                       r->rslora ? "true" : "false", r->lora_model_dir,
                       c->rslora ? "true" : "false");
    if (af_run_key_is_set(r, "peft_use_dora") && r->dora != c->dora)
        return af_fail(err, AF_EUSAGE, "%s: peft_use_dora is %s, the adapter in '%s' has %s",
                       af_run_key_loc(r, "peft_use_dora", at, sizeof at),
                       r->dora ? "true" : "false", r->lora_model_dir, c->dora ? "true" : "false");
    if (af_run_key_is_set(r, "lora_bias") && r->lora_bias != c->lora_bias)
        return af_fail(err, AF_EUSAGE, "%s: lora_bias is %s, the adapter in '%s' has %s",
                       af_run_key_loc(r, "lora_bias", at, sizeof at),
                       r->lora_bias ? "true" : "false", r->lora_model_dir,
                       c->lora_bias ? "true" : "false");
    const char *own = r->lora_rank_pattern    ? "lora_rank_pattern"
                      : r->lora_alpha_pattern ? "lora_alpha_pattern"
                                              : NULL;
    if (own)
        return af_fail(err, AF_EUSAGE, "%s: %s is for a new adapter; the one in '%s' has its own",
                       af_run_key_loc(r, own, at, sizeof at), own, r->lora_model_dir);
    af_adapter_config wanted = {0};
    if (r->trainable_tokens) {
        const af_status st = af_run_tokens_train(&m->tokens, &wanted, r, m->spec, err);
        if (st != AF_OK)
            return st;
    }
    for (int k = 0; k < AF_TOKEN_TABLES && r->trainable_tokens; k++)
        if (!af_token_rows_same(&wanted.tokens[k], &c->tokens[k]))
            return af_fail(
                err, AF_EUSAGE, "%s: trainable_token_indices are not those of the adapter in '%s'",
                af_run_key_loc(r, "trainable_token_indices", at, sizeof at), r->lora_model_dir);
    return check_targets(m, err);
}

/* Names the key of an adapter that cannot be read. */
static af_status continued(const af_run_config *r, af_status st, af_error *err)
{
    char at[300];
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, err, "%s", af_run_key_loc(r, "lora_model_dir", at, sizeof at));
}

/* What a folder has to train: AdaLoRA may have pruned all of it. */
static af_status check_rank(const af_adapter *a, const char *dir, af_error *err)
{
    bool some = a->config.bias != NULL;
    for (int i = 0; i < a->spec->modules; i++)
        some |= a->module[i].rank > 0;
    for (int i = 0; i < a->spec->tensors; i++)
        some |= a->saved[i] != NULL;
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        some |= a->tokens[k].count > 0;
    return some ? AF_OK
                : af_fail(err, AF_EUSAGE,
                          "every module of the adapter in '%s' was pruned to rank 0: nothing of it "
                          "is left to train",
                          dir);
}

static af_status read_continued(af_run_model *m, const af_run_config *r, af_error *err)
{
    af_status st = af_adapter_read_to_train(&m->adapter, m->spec, r->lora_model_dir, err);
    if (st == AF_OK)
        st = check_rank(m->adapter, r->lora_model_dir, err);
    return continued(r, st, err);
}

static void set_dropout(af_run_model *m)
{
    m->dropout = m->adapter && af_method_has_dropout(m->run) ? m->adapter->config.dropout : 0;
}

af_status af_run_model_open_adapter(af_run_model *m, af_error *err)
{
    af_status st = AF_OK;
    const af_run_config *r = m->run;
    const uint64_t before = af_resident_own();
    if (af_method_trains_base(r))
        return AF_OK;
    if (!r->lora_model_dir) {
        st = new_adapter(m, err);
    } else {
        AF_TRY(read_continued(m, r, err));
        m->adapter->grown = af_loader_is_grown(m->loader) ? m->loader : NULL;
        if (m->spec->labels && !m->adapter->config.labels)
            m->adapter->config.labels = m->labels;
        st = r->own_result ? AF_OK : check_repeated(m, err);
    }
    set_dropout(m);
    m->adapter_bytes = af_resident_own() - before;
done:
    return st;
}

bool af_run_model_on_cpu(const af_run_model *m) { return af_device_is_cpu(m->device); }

bool af_run_model_uses_nccl(const af_run_model *m)
{
    const af_comm_backend b = m->run->dist_backend;
    if (m->comm || af_run_model_on_cpu(m))
        return m->gpus != NULL;
    return b == AF_COMM_AUTO || b == AF_COMM_NCCL;
}

int af_run_model_zero_max(const af_run_model *m)
{
    return af_run_model_on_cpu(m) || af_run_model_uses_nccl(m) ? AF_ZERO_MAX : AF_SHARD_STATE;
}

bool af_run_model_sums_by_nodes(const af_run_model *m)
{
    return m->ranks > 1 && (!m->comm || m->gpus || af_run_model_on_cpu(m));
}

static af_status open_device(af_run_model *m, af_error *err)
{
    char at[300];
    const af_run_config *r = m->run;
    const af_status st = af_ranks_device(m->comm, &m->device, r, err);
    if (st == AF_OK) {
        af_device_allow_tf32(m->device, r->tf32);
        af_device_set_attention(m->device, r->attention);
        af_device_set_gemm(m->device, r->gemm);
        return AF_OK;
    }
    af_run_key_loc(r, "device", at, sizeof at);
    return strcmp(err->subject, "device") == 0
               ? af_fail_prefix(st, err, "%s", at)
               : af_fail_prefix(st, err, "%s: device '%s'", at, r->device);
}

/* Keys for a GPU have no effect without one. */
static af_status note_idle_keys(const af_run_model *m, af_error *err)
{
    const af_run_config *r = m->run;
    static const char *const why = "the run is on the CPU";
    const struct {
        const char *key;
        bool set;
    } keys[] = {{"tf32", r->tf32},
                {"attention", r->attention != AF_ATTENTION_AUTO},
                {"gemm", r->gemm != AF_GEMM_AUTO},
                {"activation_offloading", r->offloading == AF_TRI_YES}};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(keys) && st == AF_OK && af_run_model_on_cpu(m); i++)
        if (keys[i].set)
            st = af_run_idle_add(r, keys[i].key, af_run_key_line(r, keys[i].key), why, err);
    static const char *const of_ranks[] = {"dist_backend", "zero_stage",  "deepspeed",
                                           "fsdp",         "fsdp_config", "ddp_timeout"};
    for (size_t i = 0; i < AF_LEN(of_ranks) && st == AF_OK && m->ranks <= 1; i++)
        if (af_run_key_is_set(r, of_ranks[i]))
            st = af_run_idle_add(r, of_ranks[i], af_run_key_line(r, of_ranks[i]),
                                 "the run is one process", err);
    return st;
}

/* The auxiliary loss of a router is nothing in a model without one. */
static af_status note_router_keys(const af_run_model *m, af_error *err)
{
    static const char *const keys[] = {"output_router_logits", "router_aux_loss_coef"};
    const af_run_config *r = m->run;
    const bool asked[] = {r->router_logits, r->router_loss_coef > 0};
    const bool off = af_run_key_is_set(r, keys[0]) && !r->router_logits;
    af_status st = AF_OK;
    for (size_t i = 0; st == AF_OK && i < AF_LEN(keys); i++)
        if (asked[i] && (off || !m->spec->arch->moe || m->spec->arch->no_router_loss))
            st = af_run_idle_key(r, keys[i],
                                 off                  ? "output_router_logits is false"
                                 : m->spec->arch->moe ? "routers of this family have no such loss"
                                                      : "the model has no experts",
                                 err);
    return st;
}

/* Full fine-tuning ends with a folder of plain weights and the config it began with. */
static af_status check_full(const af_run_model *m, af_error *err)
{
    const af_hf_config *c = m->loader ? af_loader_config(m->loader) : &m->config;
    const bool plain = c->quant.method == AF_QUANT_NONE || c->quant.online;
    if (!af_method_trains_base(m->run) || (!c->from_gguf && plain))
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: '%s' is %s: full fine-tuning needs a folder of plain weights; set adapter: "
                   "lora",
                   m->run->path, m->run->base_model,
                   c->from_gguf ? "a GGUF file" : "a quantised model");
}

/* A run never overwrites what it reads. */
static af_status check_output(const af_run_model *m, af_error *err)
{
    const af_run_config *r = m->run;
    const char *const inputs[][2] = {{"base_model", m->path},
                                     {"lora_model_dir", r->lora_model_dir},
                                     {"teacher_model", r->teacher_model},
                                     {"teacher_adapter", r->teacher_adapter}};
    char at[300];
    for (size_t i = 0; i < AF_LEN(inputs); i++)
        if (inputs[i][1] && af_path_same(r->output_dir, inputs[i][1]))
            return af_fail(err, AF_EUSAGE,
                           "%s: output_dir '%s' is the folder of %s: the run would overwrite it",
                           af_run_key_loc(r, "output_dir", at, sizeof at), r->output_dir,
                           inputs[i][0]);
    return AF_OK;
}

static af_status resolve(af_run_model *m, const af_run_config *run, af_error *err)
{
    char at[300];
    *m = (af_run_model){.run = run};
    const af_status st = af_model_resolve_whole(&m->path, run->base_model, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s", af_run_key_loc(run, "base_model", at, sizeof at));
    af_status made = af_run_tokens_open(&m->tokens, run, m->path, err);
    if (made == AF_OK)
        made = af_run_rope_open(&m->rope, run, m->path, err);
    m->texts = m->tokens.dir ? m->tokens.dir : m->path;
    return made;
}

static void choose_compute(af_run_model *m)
{
    const bool gpu = !af_run_model_on_cpu(m);
    const bool bf16 = m->run->bf16 == AF_TRI_YES || (m->run->bf16 == AF_TRI_AUTO && gpu);
    m->compute = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
}

static af_status label_key(const af_run_model *m, af_status st, af_error *err)
{
    char at[300];
    if (st == AF_OK || strcmp(err->subject, "labels") != 0)
        return st;
    return af_fail_prefix(st, err, "%s", af_run_key_loc(m->run, "num_labels", at, sizeof at));
}

static af_status check_rope(const af_run_model *m, af_error *err)
{
    char at[300];
    return !m->rope.scaling || m->spec->ropes > 0
               ? AF_OK
               : af_fail(err, AF_EUSAGE, "%s: rope_scaling: '%s' has no rotary positions",
                         af_run_key_loc(m->run, "rope_scaling", at, sizeof at), m->run->base_model);
}

static af_status check_fresh(const af_run_model *m, af_error *err)
{
    char at[300];
    const af_status st = m->run->reinit_weights ? af_fresh_check(m->spec, err) : AF_OK;
    return st == AF_OK ? AF_OK
                       : af_fail_prefix(st, err, "%s: reinit_weights",
                                        af_run_key_loc(m->run, "reinit_weights", at, sizeof at));
}

static af_status open_loader(af_run_model *m, bool outline, af_error *err)
{
    af_status st = AF_OK;
    const af_run_config *r = m->run;
    const char *from = af_method_trains_base(r) ? NULL : r->lora_model_dir;
    bool untie;
    int64_t own = 0; /* rows of an adapter that has an embedding of its own */
    AF_TRY(continued(r, af_method_unties(&untie, r, err), err));
    AF_TRY(af_start_labels(&m->label_opts, r, m->path, &m->arena, err));
    if (from)
        AF_TRY(continued(r, af_adapter_vocab(&own, from, err), err));
    const af_loader_opts o = {
        .compute = m->compute,
        .untie = untie,
        .labels = m->label_opts.count,
        .label_seed = (uint64_t)r->seed,
        .vocab = AF_MAX(own, m->tokens.vocab),
        .vocab_dir = own ? from : NULL,
        .load_in_4bit = af_method_quantises(r) == 4,
        .plain_experts = !r->quantize_experts,
        .load_in_8bit = af_method_quantises(r) == 8,
        .keep_blocks = r->load_in_4bit != AF_TRI_YES && !r->load_in_8bit,
        .quant_mode = AF_QUANT_SHADOW,
        .on_cpu = m->device && af_device_is_cpu(m->device),
        .outline = outline,
        .rope = m->rope.scaling ? &m->rope : NULL,
        .train_base = af_method_trains_base(r),
        .fresh = r->reinit_weights,
        .fresh_seed = (uint64_t)r->seed,
    };
    AF_TRY(label_key(m, af_loader_open(&m->loader, m->path, &o, err), err));
    m->spec = af_loader_spec(m->loader);
    AF_TRY(check_rope(m, err));
    if (m->spec->labels && !af_run_scores(r))
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "%s: '%s' is a model that classifies: set task_type: SEQ_CLS (or 'rl: "
                       "reward')",
                       r->path, r->base_model));
    m->labels = m->spec->labels ? af_run_label_text(&m->label_opts, &m->arena) : NULL;
    if (m->spec->labels && !m->labels)
        AF_TRY(af_fail_nomem(err, "labels", 0));
    if (af_loader_is_grown(m->loader))
        AF_TRY(af_run_tokens_fit(&m->tokens, m->path, m->spec->vocab, err));
    if (m->rope.scaling && af_method_trains_base(r)) /* the result has it in its config.json */
        AF_TRY(af_run_tokens_rope(&m->tokens, m->path, &m->rope, err));
    m->texts = m->tokens.dir ? m->tokens.dir : m->path;
    AF_TRY(af_method_check_base(r, af_loader_config(m->loader), err));
    AF_TRY(af_trained_choose(&m->trained, r, m->spec, &m->arena, err));
    AF_TRY(check_fresh(m, err));
    st = af_teacher_open(m, outline, err);
done:
    return st;
}

static af_status check_stage(const af_run_model *m, af_error *err)
{
    const int most = af_run_model_zero_max(m);
    return m->zero_stage <= most
               ? AF_OK
               : af_fail(err, AF_EUSAGE,
                         "%s: zero_stage %d%s does not run on GPUs without NCCL: use %d",
                         m->run->path, m->zero_stage,
                         m->run->order == AF_ORDER_ANY_RANKS ? " (any_ranks with accumulation)"
                                                             : "",
                         most);
}

af_status af_run_model_open(af_run_model *m, const af_run_config *run, af_comm *comm, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(resolve(m, run, err));
    m->comm = comm;
    m->rank = af_comm_rank(comm);
    m->ranks = af_comm_size(comm);
    if (comm)
        AF_TRY(af_run_zero_stage(run, &m->zero_stage, err));
    m->zero_stage = af_run_order_stage(run, m->ranks, m->zero_stage);
    AF_TRY(check_output(m, err));
    AF_TRY(open_device(m, err));
    af_log_time("device");
    AF_TRY(af_comm_device_for(&m->gpus, comm, m->device, err));
    AF_TRY(check_stage(m, err));
    choose_compute(m);
    AF_TRY(open_loader(m, false, err));
    AF_TRY(check_full(m, err));
    AF_TRY(note_router_keys(m, err));
    st = note_idle_keys(m, err);
done:
    return st;
}

/* ---- outline ---- */

static bool has_weights(const char *path)
{
    return !af_dir_exists(path) || af_weights_in(path); /* a file: its header is the config */
}

static af_status read_config(af_run_model *m, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_model_config(&m->config, m->path, err));
    AF_TRY(af_rope_change_config(&m->config, m->rope.scaling ? &m->rope : NULL, err));
    AF_TRY(af_method_check_base(m->run, &m->config, err));
    m->config.vocab_size = AF_MAX(m->config.vocab_size, m->tokens.vocab);
    AF_TRY(af_start_labels(&m->label_opts, m->run, m->path, &m->arena, err));
    m->config.labels = m->label_opts.count;
    AF_TRY(af_model_spec_init(&m->own_spec, &m->config, err));
    m->has_own_spec = true;
    m->spec = &m->own_spec;
    AF_TRY(check_rope(m, err));
    m->plain = m->compute == AF_DTYPE_BF16 ? AF_DTYPE_BF16 : m->config.dtype;
    AF_TRY(af_trained_choose(&m->trained, m->run, m->spec, &m->arena, err));
    st = check_fresh(m, err);
done:
    return st;
}

af_status af_run_model_outline_adapter(af_run_model *m, af_error *err)
{
    af_adapter_config c;
    af_method_lists lists;
    af_status st = adapter_config(m, &c, &lists, err);
    if (st != AF_OK)
        return st;
    st = adapter_key(m, af_adapter_outline(&m->adapter, &c, m->spec, err), err);
    if (st != AF_OK)
        return st;
    st = af_start_outline(m->adapter, m->loader, af_method_quantises(m->run), err);
    return start_key(m, st, err);
}

af_status af_run_model_open_outline(af_run_model *m, const af_run_config *run, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(resolve(m, run, err));
    AF_TRY(check_output(m, err));
    AF_TRY(open_device(m, err));
    choose_compute(m);
    AF_TRY(has_weights(m->path) ? open_loader(m, true, err) : read_config(m, err));
    AF_TRY(check_full(m, err));
    AF_TRY(note_router_keys(m, err));
    AF_TRY(note_idle_keys(m, err));
    const uint64_t before = af_resident_own();
    if (!af_method_trains_base(run) && run->lora_model_dir) {
        AF_TRY(read_continued(m, run, err));
        AF_TRY(af_method_check_type(run, &m->adapter->config, err));
    } else if (!af_method_trains_base(run)) {
        AF_TRY(af_run_model_outline_adapter(m, err));
    }
    set_dropout(m);
    m->adapter_bytes = af_resident_own() - before;
done:
    return st;
}

void af_run_model_close(af_run_model *m)
{
    af_capture_close(&m->capture);
    af_adapter_free(m->teacher_adapter);
    af_loader_close(m->teacher);
    af_adapter_free(m->adapter);
    af_loader_close(m->loader);
    if (m->has_own_spec)
        af_model_spec_clear(&m->own_spec);
    af_hf_config_clear(&m->config);
    af_comm_device_close(m->gpus);
    af_device_close(m->device);
    af_map_close(&m->frozen);
    af_arena_clear(&m->arena);
    af_run_tokens_close(&m->tokens);
    af_run_rope_close(&m->rope);
    free(m->path);
    free(m->dtype);
    *m = (af_run_model){0};
}
