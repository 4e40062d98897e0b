/* trainer_setup.c - opens everything a run needs, checking as early as possible and creating
 * nothing on disk. */
#include "base/file.h"
#include "base/rng.h"
#include "data/render/renderer.h"
#include "data/shape/data_source.h"
#include "model/adapter_config.h"
#include "train/checkpoint/run_folder.h"
#include "train/report/metrics.h"
#include "train/report/samples.h"
#include "train/run/method.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdarg.h>

void af_trainer_log(const af_trainer *t, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!t->hooks || !t->hooks->say)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    t->hooks->say(t->hooks->user, line);
}

bool af_trainer_stop_asked(const af_trainer *t)
{
    return t->hooks && t->hooks->stop && *t->hooks->stop;
}

static af_status nothing_left(const af_run_config *run, const af_data_counts *c, af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "%s: no record of the datasets is left to train on: %" PRId64
                   " are longer than sequence_len %" PRId64 " and dropped, %" PRId64
                   " have no token that carries loss (%" PRId64 " were cut at sequence_len)",
                   run->path, c->dropped, run->sequence_len, c->nothing_to_learn, c->truncated);
}

static af_status open_data(af_trainer *t, const af_yaml *list, af_token_store *store,
                           af_data_counts *counts, af_error *err)
{
    const af_run_config *run = t->run;
    const af_data_opts o = {
        .datasets = list,
        .run_path = run->path,
        .model = t->model_path,
        .chat_template = t->chat_template,
        .train_on_inputs = run->train_on_inputs,
        .roles = run->roles_to_train.item,
        .role_count = run->roles_to_train.count,
        .train_on_eos = run->train_on_eos,
        .excess = run->excess,
        .sequence_len = run->sequence_len,
        .vocab = t->spec->vocab,
    };
    const af_status st = af_dataset_open(store, counts, &o, err);
    if (st == AF_OK && store->records == 0)
        return nothing_left(run, counts, err);
    if (st == AF_OK && store->supervised == 0)
        return af_fail(err, AF_EUSAGE,
                       "%s: no token of the datasets carries loss: there is nothing to learn",
                       run->path);
    return st;
}

/* val_set_size: a share or a number of records, drawn by the seed; both parts keep file order. */
static af_status split(af_trainer *t, af_error *err)
{
    const int64_t n = t->store.records;
    const double v = t->run->val_set_size;
    const int64_t held = v < 1 ? (int64_t)ceil((double)n * v) : (int64_t)v;
    char at[300];
    if (held >= n)
        return af_fail(err, AF_EUSAGE,
                       "%s: val_set_size holds out %" PRId64 " of %" PRId64
                       " records: none are left",
                       af_run_key_loc(t->run, "val_set_size", at, sizeof at), held, n);
    bool *out = af_calloc((uint64_t)n, sizeof *out);
    t->train_subset = af_calloc((uint64_t)n, sizeof *t->train_subset);
    t->eval_subset = af_calloc((uint64_t)held, sizeof *t->eval_subset);
    if (!out || !t->train_subset || !t->eval_subset) {
        free(out);
        return af_fail_nomem(err, "the split", (uint64_t)n * 16);
    }
    for (int64_t left = held, i = 0; i < n; i++) { /* selection sampling: exactly `held` */
        const bool pick = (int64_t)af_rng_below((uint64_t)t->run->seed, 0x73706c6974, (uint64_t)i,
                                                (uint64_t)(n - i)) < left;
        out[i] = pick;
        left -= pick;
    }
    for (int64_t i = 0, a = 0, b = 0; i < n; i++)
        if (out[i])
            t->eval_subset[b++] = i;
        else
            t->train_subset[a++] = i;
    free(out);
    t->eval_items = held;
    return AF_OK;
}

static af_stream_opts stream_opts(const af_trainer *t)
{
    return (af_stream_opts){
        .micro_batch = t->run->micro_batch_size,
        .sequence_len = t->run->sequence_len,
        .packing = t->run->packing,
        .sequential = t->run->packing_sequentially,
        .shuffle = t->run->shuffle,
        .seed = (uint64_t)t->run->seed,
        .ahead = t->run->accumulation + 2,
    };
}

static af_status open_eval_stream(af_trainer *t, af_error *err)
{
    const bool own = t->eval_own_store;
    const af_token_store *store = own ? &t->eval_store : &t->store;
    af_stream_opts o = stream_opts(t);
    o.shuffle = false;
    o.packing = false;
    o.subset = own ? NULL : t->eval_subset;
    o.count = t->eval_items;
    o.micro_batch = 1; /* the loop puts as many in a run as fit: every record counts once */
    return af_stream_open(&t->eval_stream, store, &o, err);
}

/* Keys about turns and roles do nothing where no record has them. `c`: how many records of which
 * shape there are. */
static af_status check_turn_keys(const af_run_config *r, const af_data_counts *c, af_error *err)
{
    const int64_t fixed = c->of_tokens + c->of_segments;
    const bool none = c->of_text + fixed == c->records,
               bare = c->of_text + c->of_tokens == c->records;
    const bool no_eos = fixed == c->records ? r->train_on_eos != AF_TRAIN_EOS_TURN
                                            : none && (r->train_on_eos == AF_TRAIN_EOS_ALL ||
                                                       r->train_on_eos == AF_TRAIN_EOS_LAST);
    const struct {
        const char *key;
        bool idle;
    } keys[] = {{"train_on_inputs", bare && r->train_on_inputs},
                {"roles_to_train", none},
                {"train_on_eos", no_eos},
                {"chat_template", none && !r->generate_samples.count}};
    char at[300];
    for (size_t i = 0; i < AF_LEN(keys); i++)
        if (keys[i].idle && af_run_key_is_set(r, keys[i].key))
            return af_fail(err, AF_EUSAGE, "%s: %s has no effect: every dataset is %s",
                           af_run_key_loc(r, keys[i].key, at, sizeof at), keys[i].key,
                           c->of_segments ? "text, tokens or segments" : "plain text or tokens");
    return AF_OK;
}

/* The same before anything is read, where every dataset says its type. */
static af_status check_said_types(const af_run_config *r, af_error *err)
{
    af_arena mem = {0};
    af_data_source *s = NULL;
    int n = 0;
    const af_data_opts o = {.datasets = r->datasets, .run_path = r->path};
    af_status st = af_data_sources_read(&s, &n, &o, &mem, err);
    af_data_counts c = {.records = n + (r->test_datasets != NULL)};
    for (int i = 0; i < n && st == AF_OK; i++) {
        c.of_text += s[i].shape == AF_SHAPE_TEXT;
        c.of_tokens += s[i].shape == AF_SHAPE_TOKENS;
        c.of_segments += s[i].shape == AF_SHAPE_SEGMENTS;
    }
    if (st == AF_OK)
        st = check_turn_keys(r, &c, err);
    af_arena_clear(&mem);
    return st;
}

/* And when every record has shown its shape. */
static af_status check_seen_types(const af_trainer *t, af_error *err)
{
    const af_data_counts *a = &t->counts, *b = &t->eval_counts;
    const af_data_counts c = {.records = a->records + b->records,
                              .of_text = a->of_text + b->of_text,
                              .of_tokens = a->of_tokens + b->of_tokens,
                              .of_segments = a->of_segments + b->of_segments};
    return check_turn_keys(t->run, &c, err);
}

/* A file may change while a run goes on: it is read once, and what was read is written with the
 * results. */
static af_status read_template(af_trainer *t, af_error *err)
{
    const char *given = t->run->chat_template;
    af_template *chat = NULL;
    bool bare;
    if (af_renderer_own_template(given))
        return AF_OK;
    af_status st = af_renderer_template(&chat, &bare, t->model_path, given, err);
    if (st != AF_OK) {
        char at[300];
        return af_fail_prefix(st, err, "%s",
                              af_run_key_loc(t->run, "chat_template", at, sizeof at));
    }
    t->chat_template = af_strdup(bare ? af_template_source(chat, NULL) : given);
    af_template_close(chat);
    return t->chat_template ? AF_OK : af_fail_nomem(err, "the chat template", 0);
}

static af_status open_streams(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    af_stream_opts o = stream_opts(t);
    AF_TRY(check_said_types(t->run, err));
    AF_TRY(read_template(t, err));
    AF_TRY(open_data(t, t->run->datasets, &t->store, &t->counts, err));
    if (t->run->test_datasets) {
        AF_TRY(open_data(t, t->run->test_datasets, &t->eval_store, &t->eval_counts, err));
        t->eval_own_store = true;
        t->eval_items = t->eval_store.records;
    } else if (t->run->val_set_size > 0) {
        AF_TRY(split(t, err));
    }
    AF_TRY(check_seen_types(t, err));
    o.subset = t->train_subset;
    o.count = t->store.records - (t->eval_own_store ? 0 : t->eval_items);
    AF_TRY(af_stream_open(&t->stream, &t->store, &o, err));
    if (t->eval_items)
        AF_TRY(open_eval_stream(t, err));
    t->sequences_max = af_stream_sequences_max(t->stream);
    const int64_t width = t->run->packing || t->run->pad_to_sequence_len
                              ? t->run->sequence_len
                              : (int64_t)t->store.longest;
    t->rows_max = t->run->micro_batch_size * width;
    if (t->eval_items)
        t->rows_max =
            AF_MAX(t->rows_max, (int64_t)(t->eval_own_store ? t->eval_store : t->store).longest);
done:
    return st;
}

static af_status new_adapter(af_trainer *t, af_error *err)
{
    af_adapter_config c;
    af_method_lists lists;
    af_status st = af_method_adapter(&c, &lists, t->run, t->spec, err);
    if (st != AF_OK)
        return st;
    st = af_adapter_new(&t->adapter, &c, t->spec, t->source, (uint64_t)t->run->seed, err);
    if (st == AF_EUSAGE || st == AF_EUNSUPPORTED) {
        char at[300];
        const bool saved = err && strcmp(err->subject, "modules_to_save") == 0;
        const char *key = saved ? "lora_modules_to_save" : "lora_target_modules";
        af_fail_prefix(st, err, "%s", af_run_key_loc(t->run, key, at, sizeof at));
    }
    return st;
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

/* Repeated targets may be written another way, as long as they mean the same modules. */
static af_status check_targets(const af_trainer *t, af_error *err)
{
    static const char *const keys[] = {"lora_target_modules", "lora_target_linear",
                                       "lora_exclude_modules", "lora_layers_to_transform"};
    const af_run_config *r = t->run;
    const char *given = NULL;
    char at[300];
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        given = !given && af_run_key_is_set(r, keys[i]) ? keys[i] : given;
    if (!given)
        return AF_OK;
    af_adapter_config c;
    af_method_lists lists;
    bool *target = af_calloc((uint64_t)t->spec->modules, sizeof *target);
    if (!target)
        return af_fail_nomem(err, "the targets", (uint64_t)t->spec->modules);
    AF_TRY(af_method_adapter(&c, &lists, r, t->spec, err));
    AF_TRY(af_adapter_targets(&c, t->spec, target, err));
    for (int i = 0; i < t->spec->modules; i++)
        if (target[i] != (t->adapter->module[i].rank > 0))
            AF_TRY(af_fail(err, AF_EUSAGE, "%s: %s %s '%s', the adapter in '%s' %s",
                           af_run_key_loc(r, given, at, sizeof at), given,
                           target[i] ? "has" : "has not", t->spec->module[i].path,
                           r->lora_model_dir, target[i] ? "has not" : "has"));
done:
    free(target);
    return st;
}

/* A repeated lora_* value must agree with the adapter it repeats. */
static af_status check_repeated(const af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    const af_adapter_config *c = &t->adapter->config;
    char at[300];
    if (af_run_key_is_set(r, "lora_dropout") && r->lora_dropout != c->dropout)
        return af_fail(err, AF_EUSAGE, "%s: lora_dropout is %g, the adapter in '%s' has %g",
                       af_run_key_loc(r, "lora_dropout", at, sizeof at), r->lora_dropout,
                       r->lora_model_dir, c->dropout);
    if (af_run_key_is_set(r, "lora_modules_to_save") &&
        !same_names(&r->lora_modules_to_save, c->modules_to_save, c->save_count))
        return af_fail(err, AF_EUSAGE,
                       "%s: lora_modules_to_save has %d names, the adapter in '%s' %d others",
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
        return af_fail(err, AF_EUSAGE, "%s: peft_use_rslora is %s, the adapter in '%s' says %s",
                       af_run_key_loc(r, "peft_use_rslora", at, sizeof at),
                       r->rslora ? "true" : "false", r->lora_model_dir,
                       c->rslora ? "true" : "false");
    if (af_run_key_is_set(r, "peft_use_dora") && r->dora != c->dora)
        return af_fail(err, AF_EUSAGE, "%s: peft_use_dora is %s, the adapter in '%s' says %s",
                       af_run_key_loc(r, "peft_use_dora", at, sizeof at),
                       r->dora ? "true" : "false", r->lora_model_dir, c->dora ? "true" : "false");
    return check_targets(t, err);
}

static af_status open_adapter(af_trainer *t, af_error *err)
{
    if (t->run->method == AF_METHOD_FULL)
        return AF_OK;
    t->dropout = t->run->lora_dropout;
    if (!t->run->lora_model_dir)
        return new_adapter(t, err);
    const af_status st = af_adapter_read(&t->adapter, t->spec, t->run->lora_model_dir, err);
    if (st != AF_OK)
        return st;
    t->dropout = t->adapter->config.dropout;
    return check_repeated(t, err);
}

static af_status open_device(af_trainer *t, af_error *err)
{
    char at[300];
    const af_run_config *r = t->run;
    const af_status st = af_device_open(&t->device, r->device, (int)r->threads, err);
    if (st == AF_OK) {
        af_device_allow_tf32(t->device, r->tf32);
        af_device_set_attention(t->device, r->attention);
        return AF_OK;
    }
    af_run_key_loc(r, "device", at, sizeof at);
    return err && strcmp(err->subject, "device") == 0
               ? af_fail_prefix(st, err, "%s", at)
               : af_fail_prefix(st, err, "%s: device '%s'", at, r->device);
}

/* What is asked of a GPU has no effect without one. */
static af_status check_device_keys(const af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    const char *key = r->tf32                             ? "tf32"
                      : r->attention != AF_ATTENTION_AUTO ? "attention"
                      : r->offloading == AF_TRI_YES       ? "activation_offloading"
                                                          : NULL;
    char at[300];
    if (!key || strcmp(af_device_kind(t->device), "cpu") != 0)
        return AF_OK;
    return af_fail(err, AF_EUSAGE, "%s: %s has no effect on the CPU",
                   af_run_key_loc(r, key, at, sizeof at), key);
}

/* Full fine-tuning ends with a folder of plain weights beside the config it began with. */
static af_status check_full(const af_trainer *t, af_error *err)
{
    const af_hf_config *c = af_loader_config(t->source);
    if (t->run->method == AF_METHOD_FULL && c->nested)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: '%s' has more than a text model, which is all that is trained: give "
                       "adapter: lora",
                       t->run->path, t->run->base_model);
    if (t->run->method != AF_METHOD_FULL || (!c->from_gguf && c->quant.method == AF_QUANT_NONE))
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: '%s' is %s: every weight can be trained only in a folder of plain weights; "
                   "give adapter: lora",
                   t->run->path, t->run->base_model,
                   c->from_gguf ? "a GGUF file" : "a quantised model");
}

/* A run never writes over what it starts from. */
static af_status check_output(const af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    char at[300];
    const bool base = af_path_same(r->output_dir, t->model_path);
    if (!base && !(r->lora_model_dir && af_path_same(r->output_dir, r->lora_model_dir)))
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "%s: output_dir '%s' is the folder of %s: the run would write over it",
                   af_run_key_loc(r, "output_dir", at, sizeof at), r->output_dir,
                   base ? "base_model" : "lora_model_dir");
}

static af_status open_model(af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    af_status st = AF_OK;
    char at[300];
    st = af_model_resolve_whole(&t->model_path, r->base_model, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s", af_run_key_loc(r, "base_model", at, sizeof at));
    AF_TRY(check_output(t, err));
    AF_TRY(open_device(t, err));
    AF_TRY(check_device_keys(t, err));
    const bool gpu = strcmp(af_device_kind(t->device), "cpu") != 0;
    const bool bf16 = r->bf16 == AF_TRI_YES || (r->bf16 == AF_TRI_AUTO && gpu);
    t->compute = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    bool untie;
    AF_TRY(af_method_unties(&untie, r, err));
    const af_loader_opts o = {
        .compute = t->compute,
        .untie = untie,
        .load_in_4bit = af_method_quantises(r),
        .keep_blocks = r->load_in_4bit != AF_TRI_YES,
        .quant_mode = AF_QUANT_SHADOW,
    };
    AF_TRY(af_loader_open(&t->source, t->model_path, &o, err));
    t->spec = af_loader_spec(t->source);
    AF_TRY(af_method_check_base(r, af_loader_config(t->source), err));
    st = check_full(t, err);
done:
    return st;
}

static af_status make_schedule(af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    const int64_t items = af_stream_items(t->stream), per = r->micro_batch_size * r->accumulation;
    t->steps_per_epoch = (items + per - 1) / per;
    t->steps = r->max_steps > 0 ? r->max_steps
                                : (int64_t)ceil((double)items * r->num_epochs / (double)per - 1e-9);
    double warm = r->warmup_steps;
    if (warm > 0 && warm < 1)
        warm = ceil(warm * (double)t->steps);
    if (r->warmup_ratio > 0)
        warm = ceil(r->warmup_ratio * (double)t->steps);
    const af_schedule_opts o = {
        .name = r->lr_scheduler,
        .peak = r->learning_rate,
        .steps = t->steps,
        .warmup = (int64_t)warm,
        .min_ratio = r->min_lr_ratio,
        .power = r->lr_power,
        .cycles = r->lr_cycles,
        .decay_steps = (int64_t)ceil(r->decay_ratio * (double)t->steps),
    };
    const af_status st = af_schedule_init(&t->schedule, &o, err);
    char at[300];
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, err, "%s", af_run_key_loc(r, "lr_scheduler", at, sizeof at));
}

static af_status load(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t before = af_resident_own();
    AF_TRY(open_adapter(t, err));
    const uint64_t adapter = af_resident_own() - before;
    AF_TRY(af_samples_new(&t->samples, t, err));
    AF_TRY(af_trainer_fit(t, af_device_memory_free(t->device), err));
    af_trainer_count_program(t, adapter);
    AF_TRY(af_graph_prepare(t->graph, t->device, err));
    AF_TRY(af_loader_write(t->source, &t->leaves, err));
    af_resident_give_back();
    if (t->adapter)
        AF_TRY(af_adapter_upload(t->adapter, &t->leaves, err));
    AF_TRY(af_model_write_rope(&t->leaves, t->run->sequence_len, err));
    af_graph_set_seed(t->graph, (uint64_t)t->run->seed);
    t->bounds = af_calloc((uint64_t)t->bounds_len, sizeof *t->bounds);
    t->row_stats = af_calloc((uint64_t)t->rows_max * 2, sizeof *t->row_stats);
    t->staging = af_calloc((uint64_t)t->rows_max, sizeof *t->staging);
    t->losses = af_calloc((uint64_t)t->run->accumulation, sizeof *t->losses);
    if (!t->bounds || !t->row_stats || !t->staging || !t->losses)
        st = af_fail_nomem(err, "staging", (uint64_t)t->rows_max * 8);
done:
    return st;
}

af_status af_trainer_open(af_trainer *t, const af_run_config *run, const af_train_hooks *hooks,
                          af_error *err)
{
    af_status st = AF_OK;
    *t = (af_trainer){
        .run = run,
        .hooks = hooks,
    };
    af_trainer_count_code(t);
    t->progress.best_eval = t->progress.first_loss = t->progress.last_loss = NAN;
    t->progress.pending = AF_PENDING_EVAL; /* of what was before the first step */
    AF_TRY(open_model(t, err));
    AF_TRY(open_streams(t, err));
    AF_TRY(make_schedule(t, err));
    AF_TRY(load(t, err));
done:
    if (st != AF_OK)
        af_trainer_close(t);
    return st;
}

void af_trainer_drop_graph(af_trainer *t)
{
    af_model_leaves_clear(&t->leaves);
    af_graph_free(t->graph);
    t->graph = NULL;
}

void af_trainer_close(af_trainer *t)
{
    af_stream_close(t->stream);
    af_stream_close(t->eval_stream);
    af_trainer_drop_graph(t);
    af_adapter_free(t->adapter);
    af_token_store_close(&t->store);
    af_token_store_close(&t->eval_store);
    af_loader_close(t->source);
    af_device_close(t->device);
    af_map_close(&t->frozen);
    free(t->train_subset);
    free(t->eval_subset);
    free(t->model_path);
    free(t->chat_template);
    free(t->metrics_path);
    free(t->events_path);
    free(t->bounds);
    free(t->staging);
    free(t->row_stats);
    free(t->losses);
    af_run_folder_let_go(t);
    af_samples_free(t->samples);
    free(t->samples_html);
    free(t->dtype);
    *t = (af_trainer){0};
}
