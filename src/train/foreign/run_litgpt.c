/* run_litgpt.c - run files of LitGPT (`litgpt finetune_lora --config FILE`, finetune_full): the
 * maps data, train, eval, log and optimizer as one map of our keys. */
#include "base/file.h"
#include "train/foreign/nested.h"
#include "train/run/run_config.h"

#include <inttypes.h>

enum { GLOBAL_BATCH = 16, MATRICES = 8, NAME_MAX_LEN = 100 };

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* The last part of 'litgpt.data.JSON', also of {class_path: ...}. */
static const char *class_of(const af_yaml *n)
{
    const af_yaml *path = n && n->kind == AF_YAML_MAP ? af_yaml_get(n, "class_path") : n;
    if (!path || path->kind != AF_YAML_SCALAR || af_yaml_is_null(path))
        return "";
    const char *dot = strrchr(path->text, '.');
    return dot ? dot + 1 : path->text;
}

static const char *text_of(const af_yaml *map, const char *key, const char *otherwise)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && n->kind == AF_YAML_SCALAR ? n->text : otherwise;
}

static bool on(const af_yaml *map, const char *key, bool otherwise)
{
    const af_yaml *n = af_nested_given(map, key);
    bool flag;
    return n && af_yaml_bool(n, &flag) ? flag : otherwise;
}

/* Whether these are true or false, where they are given. */
static af_status check_flags(const af_translation *t, const af_yaml *map, const char *const *keys,
                             size_t n)
{
    bool flag;
    for (size_t i = 0; i < n; i++) {
        const af_yaml *v = af_nested_given(map, keys[i]);
        if (v && !af_yaml_bool(v, &flag))
            return af_fail(t->err, AF_EUSAGE, "%s:%d: %s must be true or false", t->name, v->line,
                           keys[i]);
    }
    return AF_OK;
}

bool af_litgpt_is_file(const af_yaml *root)
{
    const af_yaml *dir = af_yaml_get(root, "checkpoint_dir"), *train = af_yaml_get(root, "train"),
                  *data = af_yaml_get(root, "data");
    return dir && dir->kind == AF_YAML_SCALAR && !af_yaml_get(root, "base_model") &&
           ((train && train->kind == AF_YAML_MAP) || af_yaml_get(root, "lora_query") ||
            (data && data->kind == AF_YAML_MAP && af_yaml_get(data, "class_path")));
}

/* ---- model and adapter ---- */

/* checkpoints/ORG/NAME is where LitGPT keeps what it has downloaded from there. */
static af_status put_model(af_translation *t, const af_yaml *n, int line)
{
    static const char prefix[] = "checkpoints/";
    const char *text = n->text;
    if (!af_dir_exists(text) && strncmp(text, prefix, strlen(prefix)) == 0)
        text += strlen(prefix);
    return af_nested_put(t, "base_model", line, text);
}

/* Names of the matrices in the families whose names are not Llama's. LitGPT has adapters for query,
 * key and value apart, whatever the model stores. */
static const struct {
    const char *model;                  /* part of the name */
    const char *qkv, *projection, *mlp; /* `qkv`: all three in one */
} families[] = {{"phi-2", NULL, "dense", "fc1 fc2"},
                {"phi-1", NULL, "dense", "fc1 fc2"},
                {"phi-3", "qkv_proj", "o_proj", "gate_up_proj down_proj"},
                {"phi-4", "qkv_proj", "o_proj", "gate_up_proj down_proj"},
                {"pythia", "query_key_value", "dense", "dense_h_to_4h dense_4h_to_h"},
                {"stablelm-base-alpha", "query_key_value", "dense", "dense_h_to_4h dense_4h_to_h"},
                {"falcon", "query_key_value", "dense", "dense_h_to_4h dense_4h_to_h"},
                {"", NULL, "o_proj", "gate_proj up_proj down_proj"}};

static bool has_name(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (; *text; text++)
        if (strncasecmp(text, name, n) == 0)
            return true;
    return n == 0;
}

static af_status add_words(const af_translation *t, af_yaml *list, const char *words, int line)
{
    char word[NAME_MAX_LEN];
    while (*(words += strspn(words, " "))) {
        const size_t n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        assert(list->count < MATRICES);
        list->item[list->count] = af_translate_scalar(t, line, word);
        if (!list->item[list->count++])
            return af_fail_nomem(t->err, "lora_target_modules", n);
        words += n;
    }
    return AF_OK;
}

static af_status put_matrices(af_translation *t, const char *model, int line)
{
    static const char *const attention[][2] = {
        {"lora_query", "q_proj"}, {"lora_key", "k_proj"}, {"lora_value", "v_proj"}};
    static const char *const flags[] = {"lora_query",      "lora_key", "lora_value",
                                        "lora_projection", "lora_mlp", "lora_head"};
    af_yaml *list = af_arena_take(t->mem, sizeof *list);
    af_yaml **item = af_arena_take(t->mem, MATRICES * sizeof *item);
    size_t k = 0;
    int parts = 0;
    af_status st = AF_OK;
    if (!list || !item)
        return af_fail_nomem(t->err, "lora_target_modules", sizeof *list);
    AF_TRY(check_flags(t, t->root, flags, AF_LEN(flags)));
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .item = item};
    while (!has_name(model, families[k].model))
        k++;
    for (size_t i = 0; i < AF_LEN(attention); i++) {
        const bool wanted = on(t->root, attention[i][0], i != 1);
        parts += wanted;
        if (wanted && !families[k].qkv)
            AF_TRY(add_words(t, list, attention[i][1], line));
    }
    if (parts && families[k].qkv) {
        AF_TRY(add_words(t, list, families[k].qkv, line));
        AF_TRY(af_run_instead_add(t->run, "lora_query", line,
                                  "query, key and value are one matrix here, with one adapter", 0,
                                  t->err));
    }
    if (on(t->root, "lora_projection", false))
        AF_TRY(add_words(t, list, families[k].projection, line));
    if (on(t->root, "lora_mlp", false))
        AF_TRY(add_words(t, list, families[k].mlp, line));
    if (on(t->root, "lora_head", false))
        AF_TRY(add_words(t, list, "lm_head", line));
    AF_TRY(af_translate_put(t, "lora_target_modules", line, list));
done:
    return st;
}

/* finetune_full has none of the keys of LoRA; both are told apart by them, else by the folder of
 * the result. */
static bool has_adapter(const af_yaml *root)
{
    bool any = false;
    for (int i = 0; i < root->count; i++)
        any |= strncmp(root->key[i], "lora_", 5) == 0;
    return any || af_nested_given(root, "quantize") ||
           has_name(text_of(root, "out_dir", ""), "lora");
}

static af_status put_quantize(af_translation *t, const af_yaml *n, int line)
{
    const char *how = n->kind == AF_YAML_SCALAR ? n->text : "";
    how += strncmp(how, "bnb.", 4) == 0 ? 4 : 0;
    if (is(how, "nf4") || is(how, "nf4-dq")) {
        const af_status st = af_nested_put(t, "load_in_4bit", line, "true");
        return st == AF_OK && is(how, "nf4")
                   ? af_nested_put(t, "use_bnb_nested_quant", line, "false")
                   : st;
    }
    if (is(how, "int8-training"))
        return af_nested_put(t, "load_in_8bit", line, "true");
    return af_fail(t->err, AF_EUNSUPPORTED,
                   "%s:%d: quantize '%.40s' is not supported: bnb.nf4, bnb.nf4-dq and "
                   "bnb.int8-training are",
                   t->name, line, n->kind == AF_YAML_SCALAR ? n->text : "");
}

static af_status put_precision(af_translation *t, const af_yaml *n, int line)
{
    const char *text = n->kind == AF_YAML_SCALAR ? n->text : "";
    if (strncmp(text, "bf16-", 5) == 0)
        return af_nested_put(t, "bf16", line, "true");
    if (strncmp(text, "16-", 3) == 0)
        return af_nested_put(t, "fp16", line, "true");
    if (strncmp(text, "32", 2) == 0)
        return af_nested_put(t, "bf16", line, "false");
    return af_fail(t->err, AF_EUSAGE,
                   "%s:%d: precision must be bf16-true, bf16-mixed, 16-true, 16-mixed or 32-true",
                   t->name, line);
}

/* ---- data ---- */

/* Prompts around a question, which other trainers write as `format`. */
#define SYSTEM_TASK                                                                                \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request.\n\n"
#define CHATML(system) system "<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n"
static const char *const styles[][2] = {
    {"default", "{instruction}"},
    {"flan", SYSTEM_TASK "### Instruction:\n{instruction}\n\n### Response:\n"},
    {"platypus", "### Instruction:\n\n{instruction}\n\n### Response:\n"},
    {"falcon", "{instruction}\nAnswer:"},
    {"phi-1", "{instruction}\n\nAnswer:"},
    {"phi-2", "Instruct: {instruction}\nOutput:"},
    {"phi-3", "<|system|>\nYou are a helpful assistant.<|end|>\n<|user|>\n{instruction}<|end|>\n"
              "<|assistant|>\n"},
    {"stablelm-zephyr", "<|user|>\n{instruction}<|endoftext|>\n<|assistant|>\n"},
    {"codellama", "[INST] {instruction} [/INST]"},
    {"tinyllama", "<|system|>\nYou are a friendly chatbot who always gives helpful, detailed, and "
                  "polite answers.</s>\n<|user|>\n{instruction}</s>\n<|assistant|>\n"},
    {"gemma", "<start_of_turn>user\n{instruction}<end_of_turn>\n<start_of_turn>model\n"},
    {"llama3", "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant."
               "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{instruction}<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"qwen2.5", CHATML("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a "
                       "helpful assistant.<|im_end|>\n")},
    {"qwen3", CHATML("")},
    {"smollm2", CHATML("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained "
                       "by Hugging Face<|im_end|>\n")},
};

static af_status set_style(const af_translation *t, af_yaml *e, const af_yaml *style)
{
    af_yaml *form;
    size_t k = 0;
    af_status st = AF_OK;
    if (!style || af_translate_says(style, "alpaca"))
        return af_nested_set_text(t, e, "type", "alpaca");
    while (k < AF_LEN(styles) && !af_translate_says(style, styles[k][0]))
        k++;
    if (k == AF_LEN(styles))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: prompt_style '%.60s' is not supported: alpaca, default, flan, "
                       "phi-2, llama3, gemma, qwen2.5 and others are; else give 'datasets' with a "
                       "'type'",
                       t->name, style->line, style->kind == AF_YAML_SCALAR ? style->text : "");
    form = af_nested_map(t, style->line);
    if (!form)
        return af_fail_nomem(t->err, "type", sizeof *form);
    AF_TRY(af_nested_set_text(t, form, "format", styles[k][1]));
    AF_TRY(af_nested_set_text(t, form, "no_input_format", styles[k][1]));
    AF_TRY(af_nested_set(t, e, "type", form));
done:
    return st;
}

static af_status put_one(af_translation *t, const char *key, const char *path, const af_yaml *args,
                         int line)
{
    af_yaml *e = af_nested_map(t, line), *list = af_arena_take(t->mem, sizeof *list);
    af_yaml **item = af_arena_take(t->mem, sizeof *item);
    af_status st = e && list && item ? AF_OK : af_fail_nomem(t->err, key, sizeof *list);
    AF_TRY(st);
    AF_TRY(af_nested_set_text(t, e, "path", path));
    AF_TRY(set_style(t, e, af_nested_given(args, "prompt_style")));
    *item = e;
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = 1, .item = item};
    AF_TRY(af_translate_put(t, key, line, list));
done:
    return st;
}

/* A file, of which a part is held out, or a folder with train.json and val.json (or .jsonl). */
static af_status put_json(af_translation *t, const af_yaml *args, int line)
{
    static const char *const splits[][2] = {{"train", "datasets"}, {"val", "test_datasets"}};
    const char *path = text_of(args, "json_path", NULL);
    af_status st = AF_OK;
    if (!path)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: the data JSON has no 'json_path'", t->name, line);
    if (!af_dir_exists(path)) {
        AF_TRY(put_one(t, "datasets", path, args, line));
        return af_nested_given(args, "val_split_fraction")
                   ? AF_OK
                   : af_nested_put(t, "val_set_size", line, "0.05");
    }
    for (size_t i = 0; i < AF_LEN(splits); i++) {
        const char *file = af_arena_printf(t->mem, "%s/%s.json", path, splits[i][0]);
        if (file && !af_file_exists(file))
            file = af_arena_printf(t->mem, "%s/%s.jsonl", path, splits[i][0]);
        if (!file)
            return af_fail_nomem(t->err, "json_path", strlen(path));
        AF_TRY(put_one(t, splits[i][1], file, args, line));
    }
done:
    return st;
}

static af_status put_data(af_translation *t, const af_yaml *n, int line)
{
    static const struct {
        const char *name, *path, *share;
    } sets[] = {{"", "yahma/alpaca-cleaned", "0.03865"}, /* the default of LitGPT */
                {"Alpaca", "yahma/alpaca-cleaned", "0.03865"},
                {"Alpaca2k", "mhenrichsen/alpaca_2k_test", "0.05"}};
    static const char *const flags[] = {"mask_prompt"};
    const char *name = class_of(n);
    const af_yaml *args = n && n->kind == AF_YAML_MAP ? af_nested_given(n, "init_args") : NULL;
    const af_yaml *share = af_nested_given(args, "val_split_fraction");
    size_t k = 0;
    af_status st = AF_OK;
    if (n && !*name)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: data has no class_path", t->name, line);
    AF_TRY(check_flags(t, args, flags, AF_LEN(flags)));
    if (args)
        AF_TRY(af_nested_check(t, "init_args of data", args,
                               " json_path mask_prompt val_split_fraction prompt_style "
                               "ignore_index seed num_workers download_dir file_url file_name "
                               "repo_id "));
    AF_TRY(af_nested_put(t, "train_on_inputs", line,
                         on(args, "mask_prompt", false) ? "false" : "true"));
    if (share)
        AF_TRY(af_translate_put(t, "val_set_size", share->line, share));
    if (is(name, "JSON"))
        return put_json(t, args, line);
    while (k < AF_LEN(sets) && !is(sets[k].name, name))
        k++;
    if (k == AF_LEN(sets))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: data '%.60s' of LitGPT is not supported: JSON, Alpaca and Alpaca2k "
                       "are; else give 'datasets'",
                       t->name, line, name);
    AF_TRY(put_one(t, "datasets", text_of(args, "repo_id", sets[k].path), args, line));
    if (!share)
        AF_TRY(af_nested_put(t, "val_set_size", line, sets[k].share));
done:
    return st;
}

/* ---- training ---- */

static const struct litgpt_key {
    const char *key, *ours; /* NULL: what is learnt does not change */
} train_keys[] = {{"save_interval", "save_steps"},
                  {"micro_batch_size", "micro_batch_size"},
                  {"lr_warmup_steps", "warmup_steps"},
                  {"epochs", "num_epochs"},
                  {"max_steps", "max_steps"},
                  {"max_seq_length", "sequence_len"},
                  {"learning_rate", "learning_rate"}, /* before it had `optimizer` */
                  {"weight_decay", "weight_decay"},
                  {"beta1", "adam_beta1"},
                  {"beta2", "adam_beta2"},
                  {"global_batch_size", NULL}, /* see put_train */
                  {"log_interval", NULL},
                  {"min_lr", NULL}}, /* only pretraining reads it */
    eval_keys[] = {{"interval", "eval_steps"}, {"max_new_tokens", NULL},
                   {"max_iters", NULL},        {"initial_validation", NULL},
                   {"final_validation", NULL}, {"evaluate_example", NULL}};

static af_status put_section(af_translation *t, const char *name, const af_yaml *map,
                             const struct litgpt_key *keys, size_t n)
{
    af_status st = AF_OK;
    for (int i = 0; i < map->count && st == AF_OK; i++) {
        size_t k = 0;
        while (k < n && !is(keys[k].key, map->key[i]))
            k++;
        if (af_yaml_is_null(map->item[i]))
            continue;
        if (k == n)
            return af_fail(t->err, AF_EUNSUPPORTED, "%s:%d: '%.60s' of %s is not supported",
                           t->name, map->key_line[i], map->key[i], name);
        if (keys[k].ours)
            st = af_translate_put(t, keys[k].ours, map->key_line[i], map->item[i]);
    }
    return st;
}

static af_status put_train(af_translation *t, const af_yaml *n, int line)
{
    const int64_t all = af_translate_whole(n, "global_batch_size", GLOBAL_BATCH),
                  micro = af_translate_whole(n, "micro_batch_size", 1);
    const af_yaml *given = af_nested_given(n, "global_batch_size");
    char text[32];
    int64_t whole;
    if (n && n->kind != AF_YAML_MAP)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: train must be a map", t->name, line);
    if (given && !af_yaml_i64(given, &whole))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: global_batch_size must be a whole number",
                       t->name, given->line);
    if (micro < 1 || all < micro)
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: global_batch_size is %" PRId64
                       ", less than micro_batch_size %" PRId64,
                       t->name, line, all, micro);
    af_status st = AF_OK;
    snprintf(text, sizeof text, "%" PRId64, all / micro);
    AF_TRY(af_nested_put(t, "gradient_accumulation_steps", line, text));
    if (n)
        AF_TRY(put_section(t, "train", n, train_keys, AF_LEN(train_keys)));
done:
    return st;
}

static af_status put_optimizer(af_translation *t, const af_yaml *n, int line)
{
    const char *name = class_of(n);
    const af_yaml *args = n->kind == AF_YAML_MAP ? af_nested_given(n, "init_args") : NULL;
    if (!af_torch_optim_knows(name))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: optimizer '%.60s' of LitGPT is not supported: see 'optimizer'",
                       t->name, line, name);
    const af_status st = args
                             ? af_nested_check(t, "init_args of optimizer", args,
                                               " lr weight_decay betas eps momentum fused foreach ")
                             : AF_OK;
    return st == AF_OK ? af_torch_optim_put(t, name, args, line, false) : st;
}

/* What LitGPT had for missing settings before `optimizer` named a class. */
static const struct old_setting {
    const char *key, *ours, *usual; /* usual NULL: by the method */
} old_settings[] = {{"learning_rate", "learning_rate", NULL},
                    {"weight_decay", "weight_decay", "0.02"},
                    {"beta1", "adam_beta1", "0.9"},
                    {"beta2", "adam_beta2", "0.95"}};

static bool has_old_settings(const af_yaml *train)
{
    bool any = false;
    for (size_t i = 0; i < AF_LEN(old_settings); i++)
        any |= af_nested_given(train, old_settings[i].key) != NULL;
    return any;
}

static af_status put_old_settings(af_translation *t, const af_yaml *map, int line, bool given)
{
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(old_settings) && st == AF_OK; i++) {
        const struct old_setting *s = &old_settings[i];
        const af_yaml *v = af_nested_given(map, s->key);
        const char *usual = s->usual ? s->usual : has_adapter(t->root) ? "3e-4" : "3e-3";
        if (!v)
            st = af_nested_put(t, s->ours, line, usual);
        else if (given)
            st = af_translate_put(t, s->ours, v->line, v);
    }
    return st;
}

/* optim: {optimizer: galore_adamw, learning_rate, ..., extra_kwargs: "rank=8, scale=0.25"} */
static af_status put_optim(af_translation *t, const af_yaml *n, int line)
{
    const char *name = n->kind == AF_YAML_MAP ? text_of(n, "optimizer", "adamw") : "";
    const bool galore = is(name, "galore_adamw") || is(name, "galore_adamw_8bit");
    const af_yaml *more = af_nested_given(n, "extra_kwargs");
    af_status st = AF_OK;
    if (n->kind != AF_YAML_MAP)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: optim must be a map", t->name, line);
    AF_TRY(af_nested_check(t, "optim", n,
                           " optimizer learning_rate weight_decay beta1 beta2 extra_kwargs "));
    if (!galore && !is(name, "adamw"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: optimizer '%.60s' of LitGPT is not supported: see 'optimizer'",
                       t->name, line, name);
    if (more && !galore)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: extra_kwargs of optim is read with galore_adamw alone", t->name,
                       more->line);
    AF_TRY(af_nested_put(t, "optimizer", line, name));
    if (more)
        AF_TRY(af_translate_put(t, "optim_args", more->line, more));
    st = put_old_settings(t, n, line, true);
done:
    return st;
}

/* csv: what is always written. */
static af_status put_logger(af_translation *t, const af_yaml *n, int line)
{
    return af_translate_says(n, "csv") ? AF_OK : af_translate_put(t, "report_to", line, n);
}

static af_status put_output(af_translation *t, const af_yaml *n, int line)
{
    return af_translate_put(t, "output_dir", line, n);
}

static af_status put_eval(af_translation *t, const af_yaml *n, int line)
{
    return n->kind == AF_YAML_MAP
               ? put_section(t, "eval", n, eval_keys, AF_LEN(eval_keys))
               : af_fail(t->err, AF_EUSAGE, "%s:%d: eval must be a map", t->name, line);
}

static af_status put_nothing(af_translation *t, const af_yaml *n, int line)
{
    (void)t, (void)n, (void)line;
    return AF_OK;
}

static const struct {
    const char *key;
    af_status (*put)(af_translation *t, const af_yaml *n, int line);
} parts[] = {{"checkpoint_dir", put_model},
             {"out_dir", put_output},
             {"precision", put_precision},
             {"quantize", put_quantize},
             {"optimizer", put_optimizer},
             {"optim", put_optim},
             {"logger_name", put_logger},
             {"eval", put_eval},
             {"data", put_nothing}, /* see af_litgpt_join */
             {"train", put_nothing},
             {"log", put_nothing},
             {"devices", put_nothing}, /* of the launcher */
             {"num_nodes", put_nothing},
             {"access_token", put_nothing},
             {"lora_query", put_nothing}, /* see put_matrices */
             {"lora_key", put_nothing},
             {"lora_value", put_nothing},
             {"lora_projection", put_nothing},
             {"lora_mlp", put_nothing},
             {"lora_head", put_nothing}};

static af_status put_entry(af_translation *t, int i)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (af_yaml_is_null(n))
        return AF_OK;
    for (size_t k = 0; k < AF_LEN(parts); k++)
        if (is(parts[k].key, key))
            return parts[k].put(t, n, line);
    if (is(key, "resume") && af_translate_says(n, "false"))
        return AF_OK;
    if (is(key, "resume") && af_translate_says(n, "auto"))
        return af_nested_put(t, "auto_resume_from_checkpoints", line, "true");
    return af_translate_put(t, key, line, n);
}

/* The line of a key, or the first one of the file. */
static int line_of(const af_yaml *root, const char *key)
{
    int line = root->line;
    for (int i = 0; i < root->count; i++)
        if (is(root->key[i], key))
            line = root->key_line[i];
    return line;
}

af_status af_litgpt_join(const af_yaml **out, const af_translation *t)
{
    af_translation part = *t;
    const af_yaml *root = t->root, *train = af_nested_given(root, "train");
    const bool lora = has_adapter(root);
    af_status st = AF_OK;
    part.room = 0;
    part.out = af_arena_take(t->mem, sizeof *part.out);
    if (!part.out)
        return af_fail_nomem(t->err, t->name, sizeof *part.out);
    *part.out = (af_yaml){.kind = AF_YAML_MAP, .line = root->line};
    AF_TRY(af_nested_put(&part, "adapter", root->line, lora ? "lora" : "full"));
    if (lora)
        AF_TRY(put_matrices(&part, text_of(root, "checkpoint_dir", ""), root->line));
    AF_TRY(put_data(&part, af_nested_given(root, "data"), line_of(root, "data")));
    AF_TRY(put_train(&part, train, line_of(root, "train")));
    if (has_old_settings(train))
        AF_TRY(put_old_settings(&part, train, line_of(root, "train"), false));
    if (!af_nested_given(af_nested_given(root, "eval"), "interval"))
        AF_TRY(af_nested_put(&part, "eval_steps", root->line, lora ? "100" : "600"));
    for (int i = 0; i < root->count; i++)
        AF_TRY(put_entry(&part, i));
    *out = part.out;
done:
    return st;
}
