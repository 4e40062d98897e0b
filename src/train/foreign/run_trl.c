/* run_trl.c - keys of TRL and the alignment handbook that another key of the file decides. */
#include "train/foreign/nested.h"
#include "train/run/run_config.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* What is read in place of dataset_name: a list, or a mixture; NULL = dataset_name itself. */
static const char *other_data(const af_yaml *root)
{
    static const char *const others[] = {"datasets", "dataset_mixture"};
    for (size_t i = 0; i < AF_LEN(others); i++) {
        const af_yaml *n = af_nested_given(root, others[i]);
        if (n && n->kind != AF_YAML_SCALAR && n->count)
            return others[i];
    }
    return NULL;
}

static bool names_data(const char *key)
{
    static const char *const keys[] = {"dataset_name", "dataset_config", "dataset_train_split",
                                       "dataset_test_split"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        any |= is(key, keys[i]);
    return any;
}

/* TRL has heads of classes in its reward trainer alone. */
static bool is_reward(const af_yaml *root)
{
    static const char *const others[] = {"rl", "task_type", "num_labels", "class_names"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(others); i++)
        any |= af_nested_given(root, others[i]) != NULL;
    return !any;
}

bool af_trl_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i], *other = other_data(t->root);
    const int line = t->root->key_line[i];
    if (t->run->dialect != AF_DIALECT_TRL || line <= 0)
        return false;
    if (other && names_data(key)) {
        *st = af_run_idle_add(t->run, key, line,
                              is(other, "datasets") ? "'datasets' is read in its place"
                                                    : "'dataset_mixture' is read in its place",
                              t->err);
        return true;
    }
    if (is(key, "lora_task_type") && af_translate_says(t->root->item[i], "SEQ_CLS") &&
        is_reward(t->root)) {
        *st = af_nested_put(t, "rl", line, "reward");
        return true;
    }
    return false;
}
