/* run_unsloth.c - run files of Unsloth's program (`unsloth train --config FILE`): the keys of their
 * sections (data, training, lora, logging) in one map, its values, and its datasets. */
#include "base/file.h"
#include "data/read/records.h"
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

static const char *const sections[] = {"data", "training", "lora", "logging"};

static bool is_section(const af_yaml *root, int i)
{
    bool section = false;
    for (size_t k = 0; k < AF_LEN(sections); k++)
        section |= is(sections[k], root->key[i]) && root->item[i]->kind == AF_YAML_MAP;
    return section;
}

bool af_unsloth_has_sections(const af_yaml *root)
{
    for (int i = 0; i < root->count; i++)
        if (is_section(root, i))
            return true;
    return false;
}

af_status af_unsloth_join(const af_yaml **out, const af_translation *t)
{
    const af_yaml *root = t->root;
    int count = 0;
    for (int i = 0; i < root->count; i++)
        count += is_section(root, i) ? root->item[i]->count : 1;
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
        const bool inside = is_section(root, i);
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

/* ---- datasets ---- */

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
    const af_yaml *e = n->kind == AF_YAML_LIST ? n->item[i] : n;
    return e->kind == AF_YAML_SCALAR ? e->text : "";
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

/* ---- keys ---- */

/* Keys that ask for nothing next to another one, or with this value. */
static bool asks_nothing(const af_yaml *root, const char *key, const af_yaml *n)
{
    static const char *const of_lora[] = {"load_in_4bit", "lora_r",     "lora_alpha",
                                          "lora_dropout", "use_rslora", "target_modules",
                                          "use_dora",     "use_loftq"};
    const af_yaml *type = af_yaml_get(root, "training_type"),
                  *wandb = af_yaml_get(root, "enable_wandb");
    bool nothing = is(key, "format_type") || (is(key, "max_steps") && af_translate_says(n, "0")) ||
                   (is(key, "save_steps") && af_translate_says(n, "0"));
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
