/* run_swift.c - run files of ms-swift (`swift sft FILE`, `swift rlhf FILE`): its names of keys, its
 * words, and how it names datasets. */
#include "base/file.h"
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

#include <strings.h>

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* Other names of keys. */
static const char *const names[][2] = {
    {"tuner_type", "adapter"},
    {"train_type", "adapter"}, /* older names */
    {"sft_type", "adapter"},
    {"rlhf_type", "rl"},
    {"init_weights", "peft_init_lora_weights"},
    {"lorap_lr_ratio", "loraplus_lr_ratio"},
    {"target_regex", "lora_target_modules"},
    {"split_dataset_ratio", "val_set_size"},
    {"enable_dft_loss", "use_dft_loss"},
    {"system", "default_system"},
    {"train_dataloader_shuffle", "shuffle"},
    {"interleave_prob", "interleave_probs"},
    {"adapters", "lora_model_dir"},
    {"early_stop_interval", "early_stopping_patience"},
    {"eval_dataset", "eval_dataset_args"}, /* benchmarks: without effect */
};

/* Words for values. A NULL key: the value asks for nothing. */
static const struct {
    const char *key, *value, *ours, *as;
} values[] = {
    {"rlhf_type", "rm", "rl", "reward"},
    {"task_type", "causal_lm", "task_type", "CAUSAL_LM"},
    {"task_type", "seq_cls", "task_type", "SEQ_CLS"},
    {"truncation_strategy", "delete", "excess_length_strategy", "drop"},
    {"truncation_strategy", "raise", "excess_length_strategy", "error"},
    {"truncation_strategy", "right", "excess_length_strategy", "truncate"},
    {"loss_scale", "default", "train_on_inputs", "false"},
    {"loss_scale", "all", "train_on_inputs", "true"},
    {"loss_scale", "last_round", "mask_history", "true"},
    {"quant_method", "bnb", NULL, NULL},
    {"quant_bits", "4", "load_in_4bit", "true"},
    {"quant_bits", "8", "load_in_8bit", "true"},
    {"packing_strategy", "binpack", NULL, NULL},
    {"packing_strategy", "sequential", "sample_packing_sequentially", "true"},
    {"stopping_strategy", "first_exhausted", "mix_strategy", "interleave_under"},
    {"stopping_strategy", "all_exhausted", "mix_strategy", "interleave_over"},
    {"deepspeed", "zero0", NULL, NULL},
    {"deepspeed", "zero1", "zero_stage", "1"},
    {"deepspeed", "zero2", "zero_stage", "2"},
    {"deepspeed", "zero2_offload", "zero_stage", "2"},
    {"deepspeed", "zero3", "zero_stage", "3"},
    {"deepspeed", "zero3_offload", "zero_stage", "3"},
    {"fsdp", "fsdp2", "zero_stage", "3"},
    {"lora_bias", "none", NULL, NULL},
};

/* The dataset about the model itself, by its name, as ms-swift knows it; a file of that name where
 * the run file says who the model is. */
static bool is_self_cognition(const af_translation *t, const char *path)
{
    const char *name = af_path_name(path), *end = strrchr(name, '.');
    const size_t n = end ? (size_t)(end - name) : strlen(name);
    const bool said = af_yaml_get(t->root, "model_name") || af_yaml_get(t->root, "model_author");
    return n == strlen("self-cognition") &&
           (strncmp(name, "self-cognition", n) == 0 || strncmp(name, "self_cognition", n) == 0) &&
           (said || !end);
}

static bool has_self_cognition(const af_translation *t)
{
    static const char *const keys[] = {"dataset", "val_dataset"};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml *n = af_yaml_get(t->root, keys[i]);
        const int count = !n ? 0 : n->kind == AF_YAML_LIST ? n->count : 1;
        for (int k = 0; k < count; k++) {
            const af_yaml *v = n->kind == AF_YAML_LIST ? n->item[k] : n;
            const char *text = v->kind == AF_YAML_SCALAR ? v->text : "";
            char name[400];
            if (strncasecmp(text, "hf::", 4) == 0)
                text += 4;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":#"), text);
            if (is_self_cognition(t, name))
                return true;
        }
    }
    return false;
}

static void set_self_cognition(af_source *s, const af_translation *t, const char *path,
                               const char *subset)
{
    static const char *const who[] = {"model_name", "model_author"};
    const char *form = subset && is(subset, "qwen3")         ? "self_cognition:qwen3"
                       : subset && is(subset, "empty_think") ? "self_cognition:empty_think"
                                                             : "self_cognition";
    /* its name on the Hugging Face hub */
    const bool theirs = is(path, "swift/self-cognition") && !af_path_is_taken(path);
    af_source_set(s, "path", theirs ? "modelscope/self-cognition" : path);
    af_source_set(s, "type", form);
    for (size_t i = 0; i < AF_LEN(who); i++) {
        const af_yaml *n = af_yaml_get(t->root, who[i]);
        if (n && !af_yaml_is_null(n))
            af_source_put(s, who[i], n);
    }
}

/* "hf::ID:subset#500": what exists as a path is one, whatever is in its name. */
static af_status read_source(af_source *s, const af_translation *t, const af_yaml *n)
{
    const char *text = n->kind == AF_YAML_SCALAR ? n->text : "", *samples = NULL;
    if (!af_path_is_taken(text) && strstr(text, "::")) {
        if (strncasecmp(text, "hf::", 4) != 0)
            return af_fail(t->err, AF_EUNSUPPORTED,
                           "%s:%d: dataset '%.200s': datasets are files, folders or names of the "
                           "Hugging Face hub (hf::ORG/NAME)",
                           t->name, n->line, text);
        text += 4;
    }
    char *path = af_arena_strdup(t->mem, text);
    if (!path)
        return af_fail_nomem(t->err, "datasets", strlen(text));
    char *mark = af_path_is_taken(path) ? NULL : strrchr(path, '#');
    if (mark) {
        *mark = 0;
        samples = mark + 1;
    }
    if (samples && (!*samples || samples[strspn(samples, "0123456789")]))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: dataset '%.200s': a number of records must follow '#'", t->name,
                       n->line, text);
    char *subset = af_path_is_taken(path) ? NULL : strchr(path, ':');
    if (subset)
        *subset++ = 0;
    if (subset && strchr(subset, '/'))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: dataset '%.200s' has several subsets: give an entry for each",
                       t->name, n->line, text);
    if (is_self_cognition(t, path))
        set_self_cognition(s, t, path, subset);
    else
        af_source_set(s, "path", path);
    if (subset && s->count == 1)
        af_source_set(s, "name", subset);
    if (samples)
        af_source_set(s, "num_samples", samples);
    return AF_OK;
}

static af_status translate_datasets(af_translation *t, const char *as, int i)
{
    const af_yaml *n = t->root->item[i];
    const int count = n->kind == AF_YAML_LIST ? n->count : 1, line = t->root->key_line[i];
    if (count == 0)
        return AF_OK;
    af_source *s = af_arena_take(t->mem, (uint64_t)count * sizeof *s);
    af_status st = s ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *s);
    for (int k = 0; k < count && st == AF_OK; k++) {
        s[k] = (af_source){0};
        st = read_source(&s[k], t, n->kind == AF_YAML_LIST ? n->item[k] : n);
    }
    return st == AF_OK ? af_translate_put(t, as, line, af_source_list(s, count, t->mem, line)) : st;
}

/* A variable of the chat template: there a key of the run. */
static af_status put_variable(af_translation *t, int i)
{
    struct nodes {
        af_yaml map;
        const char *key;
        int key_line;
        af_yaml *item;
    } *n = af_arena_take(t->mem, sizeof *n);
    const int line = t->root->key_line[i];
    if (!n)
        return af_fail_nomem(t->err, t->root->key[i], sizeof *n);
    n->key = t->root->key[i];
    n->key_line = line;
    n->item = t->root->item[i];
    n->map = (af_yaml){.kind = AF_YAML_MAP,
                       .line = line,
                       .count = 1,
                       .key = &n->key,
                       .key_line = &n->key_line,
                       .item = &n->item};
    return af_translate_put(t, "chat_template_kwargs", line, &n->map);
}

static bool translate_value(af_translation *t, int i, af_status *st)
{
    const af_yaml *n = t->root->item[i];
    for (size_t k = 0; k < AF_LEN(values); k++)
        if (is(values[k].key, t->root->key[i]) && af_translate_says(n, values[k].value)) {
            if (values[k].ours)
                *st = af_translate_put(t, values[k].ours, t->root->key_line[i],
                                       af_translate_scalar(t, n->line, values[k].as));
            return true;
        }
    return false;
}

/* "last_round+ignore_empty_think": one of the words of `values`, and what it is joined with. */
static bool put_loss_scale(af_translation *t, const af_yaml *n, int line, af_status *st)
{
    static const char suffix[] = "ignore_empty_think";
    const char *text = n->kind == AF_YAML_SCALAR ? n->text : "", *plus = strrchr(text, '+');
    if (!is(plus ? plus + 1 : text, suffix))
        return false;
    const size_t len = plus ? (size_t)(plus - text) : 0;
    const bool last = len == strlen("last_round") && strncmp(text, "last_round", len) == 0;
    if (!last && len && !(len == strlen("default") && strncmp(text, "default", len) == 0))
        return false;
    *st = af_translate_put(t, "mask_empty_thoughts", line, af_translate_scalar(t, line, "true"));
    if (*st == AF_OK)
        *st = af_translate_put(t, last ? "mask_history" : "train_on_inputs", line,
                               af_translate_scalar(t, line, last ? "true" : "false"));
    return true;
}

static af_status keep_end(af_translation *t, int line)
{
    const af_status st =
        af_translate_put(t, "truncation_mode", line, af_translate_scalar(t, line, "keep_end"));
    return st == AF_OK ? af_translate_put(t, "excess_length_strategy", line,
                                          af_translate_scalar(t, line, "truncate"))
                       : st;
}

bool af_swift_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (t->run->dialect != AF_DIALECT_SWIFT)
        return false;
    if (is(key, "dataset") || is(key, "val_dataset")) {
        *st = translate_datasets(t, is(key, "dataset") ? "datasets" : "test_datasets", i);
        return true;
    }
    if ((is(key, "model_name") || is(key, "model_author")) && has_self_cognition(t))
        return true; /* it is in the entry of that dataset */
    if (is(key, "enable_thinking")) {
        *st = put_variable(t, i);
        return true;
    }
    if (is(key, "loss_scale") && put_loss_scale(t, n, line, st))
        return true;
    if (is(key, "truncation_strategy") && af_translate_says(n, "left")) {
        *st = keep_end(t, line);
        return true;
    }
    if (is(key, "stopping_strategy") && !af_yaml_get(t->root, "interleave_prob"))
        return true; /* of datasets that take turns */
    if (is(key, "template")) {
        *st = af_run_instead_add(t->run, key, line,
                                 "the chat template of the model is used (see 'chat_template')", 0,
                                 t->err);
        return true;
    }
    if (translate_value(t, i, st))
        return true;
    for (size_t k = 0; k < AF_LEN(names); k++)
        if (is(names[k][0], key)) {
            if (n->kind == AF_YAML_LIST && n->count == 1 && is(key, "adapters"))
                n = n->item[0];
            *st = af_translate_put(t, names[k][1], line, n);
            return true;
        }
    return false;
}
