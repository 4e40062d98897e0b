/* run_sections.c - run files whose keys are in sections: those of Unsloth's program (`unsloth train
 * --config FILE`) and of AutoTrain (`autotrain --config FILE`). The keys in one map, their values,
 * and datasets. */
#include "base/file.h"
#include "data/read/records.h"
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

static const char *const unsloth_sections[] = {"data", "training", "lora", "logging", NULL};
static const char *const autotrain_sections[] = {"params", NULL}; /* `data` is read as a whole */

static bool is_section(const char *const *names, const af_yaml *root, int i)
{
    while (*names && !is(*names, root->key[i]))
        names++;
    return *names && root->item[i]->kind == AF_YAML_MAP;
}

bool af_unsloth_has_sections(const af_yaml *root)
{
    for (int i = 0; i < root->count; i++)
        if (is_section(unsloth_sections, root, i))
            return true;
    return false;
}

bool af_autotrain_is_file(const af_yaml *root)
{
    const af_yaml *data = af_yaml_get(root, "data");
    return af_yaml_get(root, "task") && af_yaml_get(root, "project_name") && data &&
           data->kind == AF_YAML_MAP;
}

af_status af_sections_join(const af_yaml **out, const af_translation *t)
{
    const af_yaml *root = t->root;
    const char *const *names =
        t->run->dialect == AF_DIALECT_UNSLOTH ? unsloth_sections : autotrain_sections;
    int count = 0;
    for (int i = 0; i < root->count; i++)
        count += is_section(names, root, i) ? root->item[i]->count : 1;
    af_yaml *all = af_arena_take(t->mem, sizeof *all);
    const char **key = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *key);
    int *line = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *line);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    if (!all || !key || !line || !item)
        return af_fail_nomem(t->err, t->name, (uint64_t)count * sizeof *item);
    *all = *root;
    all->key = key;
    all->key_line = line;
    all->item = item;
    all->count = 0;
    for (int i = 0; i < root->count; i++) {
        const bool inside = is_section(names, root, i);
        const af_yaml *from = inside ? root->item[i] : root;
        for (int k = inside ? 0 : i; k < (inside ? from->count : i + 1); k++) {
            key[all->count] = from->key[k];
            line[all->count] = from->key_line[k];
            item[all->count++] = from->item[k];
        }
    }
    *out = all;
    return AF_OK;
}

/* ---- Unsloth: datasets ---- */

/* Whether the first record of a file is an instruction and its output. */
static bool has_instructions(const char *path)
{
    af_records_kind kind;
    af_records *records = NULL;
    af_record first = {0};
    af_error err;
    if (af_records_kind_of(&kind, path, NULL, &err) == AF_OK &&
        af_records_open(&records, path, kind, &err) == AF_OK &&
        af_records_next(records, &first, &err) != AF_OK)
        first.json = NULL;
    const bool has = json_is_string(json_object_get(first.json, "instruction")) &&
                     json_is_string(json_object_get(first.json, "output"));
    json_decref(first.json);
    af_records_close(records);
    return has;
}

static const af_yaml *given(const af_yaml *root, const char *key)
{
    const af_yaml *n = af_yaml_get(root, key);
    const bool empty = !n || af_yaml_is_null(n) || (n->kind == AF_YAML_LIST && n->count == 0);
    return empty ? NULL : n;
}

static const char *path_of(const af_yaml *n, int i)
{
    const af_yaml *e = n->kind != AF_YAML_LIST ? n : i < n->count ? n->item[i] : NULL;
    return e && e->kind == AF_YAML_SCALAR ? e->text : "";
}

/* Records of this form are rendered by a prompt of its own, not by the chat template. */
static bool is_alpaca(const af_yaml *root)
{
    const af_yaml *format = given(root, "format_type"), *n = given(root, "local_dataset");
    n = n ? n : given(root, "dataset");
    if (format && !af_translate_says(format, "auto"))
        return af_translate_says(format, "alpaca");
    return n && af_file_exists(path_of(n, 0)) && has_instructions(path_of(n, 0));
}

static af_status translate_datasets(af_translation *t, int i)
{
    const af_yaml *n = t->root->item[i], *format = given(t->root, "format_type");
    const int count = n->kind == AF_YAML_LIST ? n->count : 1, line = t->root->key_line[i];
    const bool raw = format && af_translate_says(format, "raw"), alpaca = is_alpaca(t->root);
    const bool unknown = !format || af_translate_says(format, "auto");
    if (given(t->root, "dataset") && given(t->root, "local_dataset"))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: dataset and local_dataset: give one", t->name,
                       line);
    af_source *s = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *s);
    if (!s)
        return af_fail_nomem(t->err, "datasets", (uint64_t)count * sizeof *s);
    for (int k = 0; k < count; k++) {
        s[k] = (af_source){0};
        af_source_set(&s[k], "path", path_of(n, k));
        if (raw || alpaca)
            af_source_set(&s[k], "type", raw ? "text" : "alpaca:unsloth");
    }
    if (unknown && !af_file_exists(path_of(n, 0))) {
        const af_status st = af_run_instead_add(
            t->run, "format_type", line,
            "records with instruction and output are rendered by the chat template here; "
            "'format_type: alpaca' takes Unsloth's prompt",
            0, t->err);
        if (st != AF_OK)
            return st;
    }
    return af_translate_put(t, "datasets", line, af_source_list(s, count, t->mem, line));
}

/* ---- Unsloth: keys ---- */

/* Keys that ask for nothing next to another one, or with this value. */
static bool asks_nothing(const af_yaml *root, const char *key, const af_yaml *n)
{
    static const char *const of_lora[] = {"load_in_4bit", "lora_r",     "lora_alpha",
                                          "lora_dropout", "use_rslora", "target_modules",
                                          "use_dora",     "use_loftq"};
    const af_yaml *type = af_yaml_get(root, "training_type"),
                  *wandb = af_yaml_get(root, "enable_wandb");
    bool nothing = is(key, "format_type") || (is(key, "max_steps") && af_translate_says(n, "0")) ||
                   (is(key, "save_steps") && af_translate_says(n, "0")) ||
                   (is(key, "target_modules") && af_translate_says(n, ""));
    if (is(key, "wandb_project"))
        nothing = !wandb || !af_translate_says(wandb, "true");
    for (size_t i = 0; i < AF_LEN(of_lora) && type && af_translate_says(type, "full"); i++)
        nothing |= is(key, of_lora[i]);
    return nothing;
}

static bool is_format(const af_yaml *n)
{
    static const char *const names[] = {"auto",     "alpaca",         "chatml",
                                        "sharegpt", "conversational", "raw"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (af_translate_says(n, names[i]))
            return true;
    return false;
}

bool af_unsloth_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (t->run->dialect != AF_DIALECT_UNSLOTH)
        return false;
    if (is(key, "dataset") || is(key, "local_dataset")) {
        if (given(t->root, key))
            *st = translate_datasets(t, i);
        return true;
    }
    if (is(key, "format_type") && !is_format(n)) {
        *st = af_fail(t->err, AF_EUSAGE,
                      "%s:%d: format_type must be one of: auto, alpaca, chatml, sharegpt, "
                      "conversational, raw",
                      t->name, line);
        return true;
    }
    if (is(key, "train_on_completions") && af_translate_says(n, "true") && is_alpaca(t->root)) {
        *st = af_run_idle_add(t->run, key, line,
                              "records with instruction and output are trained whole, as there",
                              t->err);
        return true;
    }
    if (is(key, "gradient_checkpointing") && af_translate_says(n, "none")) {
        *st = af_translate_put(t, key, line, af_translate_scalar(t, line, "false"));
        return true;
    }
    return asks_nothing(t->root, key, n);
}

/* ---- AutoTrain: datasets ---- */

/* A name in `column_mapping`, or next to the other keys. */
static const char *column(const af_yaml *root, const char *key, const char *otherwise)
{
    const af_yaml *map = given(af_yaml_get(root, "data"), "column_mapping");
    const af_yaml *n = map && map->kind == AF_YAML_MAP ? given(map, key) : NULL;
    n = n ? n : given(root, key);
    return n && n->kind == AF_YAML_SCALAR ? n->text : otherwise;
}

/* "sft", "dpo", ...: `llm-sft`, or `llm` with a `trainer`; NULL for a task of another kind. */
static const char *trainer_of(const af_yaml *root)
{
    const af_yaml *task = af_yaml_get(root, "task"), *trainer = given(root, "trainer");
    const char *name = task->kind == AF_YAML_SCALAR ? task->text : "";
    if (strncmp(name, "llm", 3) != 0)
        return NULL;
    if (name[3] == '-' || name[3] == ':')
        return name + 4;
    return trainer && trainer->kind == AF_YAML_SCALAR ? trainer->text : "default";
}

static bool renders(const af_yaml *data)
{
    const af_yaml *n = given(data, "chat_template");
    return n && !af_translate_says(n, "none");
}

/* A dataset in a split, which may have the configuration before it: "config:split". */
static af_yaml *source_in(af_translation *t, const af_yaml *data, const af_yaml *split)
{
    const char *trainer = trainer_of(t->root), *mark, *name = split ? path_of(split, 0) : "train";
    const bool texts = !trainer || is(trainer, "sft") || is(trainer, "default");
    af_source s = {0};
    af_source_set(&s, "path", path_of(given(data, "path"), 0));
    if ((mark = strchr(name, ':'))) {
        const char *config = af_arena_strndup(t->mem, name, (uint64_t)(mark - name));
        if (!config)
            return NULL;
        af_source_set(&s, "name", config);
    }
    af_source_set(&s, "split", mark ? mark + 1 : name);
    if (texts && renders(data)) {
        af_source_set(&s, "field_messages", column(t->root, "text_column", "text"));
    } else if (texts) {
        af_source_set(&s, "type", "text");
        af_source_set(&s, "field_text", column(t->root, "text_column", "text"));
    } else {
        af_source_set(&s, "field_chosen", column(t->root, "text_column", "text"));
        af_source_set(&s, "field_rejected", column(t->root, "rejected_text_column", "rejected"));
        if (column(t->root, "prompt_text_column", NULL))
            af_source_set(&s, "field_prompt", column(t->root, "prompt_text_column", NULL));
    }
    return af_source_list(&s, 1, t->mem, data->line);
}

static af_status check_data(const af_translation *t, const af_yaml *data)
{
    static const char known[] = " path train_split valid_split chat_template column_mapping ";
    const af_yaml *template = given(data, "chat_template");
    char word[100];
    for (int i = 0; i < data->count; i++) {
        snprintf(word, sizeof word, " %.90s ", data->key[i]);
        if (!strstr(known, word))
            return af_fail(t->err, AF_EUSAGE, "%s:%d: unknown key '%s' of data (it has%.*s)",
                           t->name, data->key_line[i], data->key[i], (int)sizeof known - 2, known);
    }
    if (!given(data, "path"))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: data has no path", t->name, data->line);
    if (template && !af_translate_says(template, "tokenizer") &&
        !af_translate_says(template, "chatml") && !af_translate_says(template, "none"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: chat_template '%.60s' of AutoTrain is not supported: tokenizer, "
                       "chatml and none are",
                       t->name, template->line, path_of(template, 0));
    return AF_OK;
}

static af_status translate_data(af_translation *t, int i)
{
    const af_yaml *data = t->root->item[i], *valid = given(data, "valid_split");
    const af_yaml *template = given(data, "chat_template");
    const int line = t->root->key_line[i];
    af_status st = AF_OK;
    AF_TRY(check_data(t, data));
    AF_TRY(af_translate_put(t, "datasets", line, source_in(t, data, given(data, "train_split"))));
    if (valid)
        AF_TRY(af_translate_put(t, "test_datasets", line, source_in(t, data, valid)));
    if (template && af_translate_says(template, "chatml")) {
        AF_TRY(af_translate_put(t, "chat_template", line, template));
        st = af_run_instead_add(t->run, "tokens of AutoTrain", template->line,
                                "its <|im_start|>user, ... are not added", 0, t->err);
    }
done:
    return st;
}

/* ---- AutoTrain: keys ---- */

static const char *const autotrain_names[][2] = {
    {"project_name", "output_dir"},
    {"lr", "learning_rate"},
    {"epochs", "num_epochs"},
    {"batch_size", "micro_batch_size"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"scheduler", "lr_scheduler"},
};

/* Words for values. A NULL key: the value asks for nothing, with "" whatever it is. */
static const struct {
    const char *key, *value, *ours, *as;
} autotrain_values[] = {
    {"peft", "false", "adapter", "full"},
    {"quantization", "int4", "load_in_4bit", "true"},
    {"quantization", "int8", "load_in_8bit", "true"},
    {"quantization", "none", NULL, NULL},
    {"mixed_precision", "bf16", "bf16", "true"},
    {"mixed_precision", "fp16", "fp16", "true"},
    {"mixed_precision", "none", NULL, NULL},
    {"log", "wandb", "report_to", "wandb"},
    {"log", "tensorboard", NULL, NULL},
    {"log", "none", NULL, NULL},
    {"logging_steps", "-1", NULL, NULL},
    {"text_column", "", NULL, NULL}, /* of the datasets */
    {"rejected_text_column", "", NULL, NULL},
    {"prompt_text_column", "", NULL, NULL},
    {"trainer", "", NULL, NULL},          /* see `task` */
    {"model_max_length", "", NULL, NULL}, /* see `block_size` */
    {"hub", "", NULL, NULL},
    {"username", "", NULL, NULL},
    {"backend", "", NULL, NULL},
    {"padding", "", NULL, NULL},
    {"unsloth", "", NULL, NULL},
    {"distributed_backend", "", NULL, NULL},
    {"add_eos_token", "", NULL, NULL},
    {"max_completion_length", "", NULL, NULL},
};

/* What it trains, by the trainer; supervised texts are packed. */
static af_status translate_task(af_translation *t, int i)
{
    const char *trainer = trainer_of(t->root);
    const int line = t->root->key_line[i];
    const bool sft = trainer && is(trainer, "sft"), plain = trainer && is(trainer, "default");
    af_status st = AF_OK;
    if (trainer && (is(trainer, "dpo") || is(trainer, "orpo") || is(trainer, "reward")))
        return af_translate_put(t, "rl", line, af_translate_scalar(t, line, trainer));
    if (!sft && !plain)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: task '%.60s' of AutoTrain is not supported: llm-sft, llm-dpo, "
                       "llm-orpo and llm-reward are",
                       t->name, line, path_of(t->root->item[i], 0));
    if (plain)
        AF_TRY(af_translate_put(t, "stage", line, af_translate_scalar(t, line, "pt")));
    AF_TRY(af_translate_put(t, "sample_packing", line, af_translate_scalar(t, line, "true")));
    if (sft) /* which leaves keys of preference training without effect */
        AF_TRY(af_translate_put(t, "rl", line, af_translate_scalar(t, line, "none")));
    if (sft)
        st = af_run_instead_add(t->run, "blocks of AutoTrain", line,
                                "records are packed whole, not cut out of one stream of texts", 0,
                                t->err);
done:
    return st;
}

/* Its block has no more tokens than model_max_length, which is 2048 unless the file says more. */
static af_status translate_block(af_translation *t, int i)
{
    enum { MODEL_MAX = 2048, BLOCK = 1024 };
    const int64_t most = af_translate_whole(t->root, "model_max_length", MODEL_MAX);
    int64_t block = 0;
    if (!af_yaml_i64(t->root->item[i], &block)) /* which is an error then */
        return af_translate_put(t, "sequence_len", t->root->key_line[i], t->root->item[i]);
    return af_translate_number(t, "sequence_len", i, AF_MIN(block < 1 ? BLOCK : block, most));
}

static af_status translate_peft(af_translation *t, int i)
{
    const int line = t->root->key_line[i];
    const af_status st = af_translate_put(t, "adapter", line, af_translate_scalar(t, line, "lora"));
    return st != AF_OK || af_yaml_get(t->root, "quantization")
               ? st /* 4 bits, where the file says nothing */
               : af_translate_put(t, "load_in_4bit", line, af_translate_scalar(t, line, "true"));
}

/* Settings of an adapter in a file that has none. */
static bool is_left_over(const af_yaml *root, const char *key)
{
    const af_yaml *peft = given(root, "peft");
    return (!peft || !af_translate_says(peft, "true")) &&
           (is(key, "quantization") || is(key, "target_modules") || is(key, "lora_r") ||
            is(key, "lora_alpha") || is(key, "lora_dropout") || is(key, "merge_adapter"));
}

bool af_autotrain_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (t->run->dialect != AF_DIALECT_AUTOTRAIN)
        return false;
    if (is(key, "task") || is(key, "data") || is(key, "block_size") ||
        (is(key, "peft") && af_translate_says(n, "true"))) {
        *st = is(key, "task")         ? translate_task(t, i)
              : is(key, "data")       ? translate_data(t, i)
              : is(key, "block_size") ? translate_block(t, i)
                                      : translate_peft(t, i);
        return true;
    }
    if (is_left_over(t->root, key))
        return true;
    for (size_t k = 0; k < AF_LEN(autotrain_values); k++)
        if (is(autotrain_values[k].key, key) &&
            (!*autotrain_values[k].value || af_translate_says(n, autotrain_values[k].value))) {
            if (autotrain_values[k].ours)
                *st = af_translate_put(t, autotrain_values[k].ours, line,
                                       af_translate_scalar(t, line, autotrain_values[k].as));
            return true;
        }
    for (size_t k = 0; k < AF_LEN(autotrain_names); k++)
        if (is(autotrain_names[k][0], key)) {
            *st = af_translate_put(t, autotrain_names[k][1], line, n);
            return true;
        }
    return false;
}
