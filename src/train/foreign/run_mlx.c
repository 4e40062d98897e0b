/* run_mlx.c - run files of mlx-lm: their data, layers, optimizer and scale. */
#include "base/file.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* Whether its first record is a question and an answer, which mlx-lm renders as a conversation. */
static bool has_completions(const char *path)
{
    af_map m = {0};
    af_error err;
    if (af_map_open(&m, path, &err) != AF_OK)
        return false;
    const uint8_t *end = memchr(m.data, '\n', m.size);
    json_t *record =
        af_json_load((const char *)m.data, end ? (size_t)(end - m.data) : m.size, 0, NULL);
    const bool is = json_is_string(json_object_get(record, "prompt")) &&
                    json_is_string(json_object_get(record, "completion"));
    json_decref(record);
    af_map_close(&m);
    return is;
}

static af_status find(af_yaml **out, const af_yaml *data, const char *file, af_arena *mem,
                      af_error *err)
{
    char *path = af_path_join(data->text, file);
    af_source s = {0};
    af_source_set(&s, "path", path ? af_arena_strdup(mem, path) : NULL);
    const bool there = path && af_file_exists(path);
    if (there && has_completions(path)) {
        af_source_set(&s, "field_instruction", "prompt");
        af_source_set(&s, "field_output", "completion");
    }
    *out = there && s.value[0] ? af_source_list(&s, 1, mem, data->line) : NULL;
    const bool short_of_memory = !path || (there && !*out);
    free(path);
    return short_of_memory ? af_fail_nomem(err, "datasets", sizeof **out) : AF_OK;
}

static af_status read_data(af_yaml **train, af_yaml **valid, const af_yaml *data, af_arena *mem,
                           const char *name, af_error *err)
{
    af_status st = find(train, data, "train.jsonl", mem, err);
    if (st == AF_OK)
        st = find(valid, data, "valid.jsonl", mem, err);
    if (st == AF_OK && !*train)
        st = af_fail(err, AF_EUSAGE,
                     "%s:%d: data is '%.200s', which is not a folder with a file train.jsonl; give "
                     "one, or set 'datasets' or 'hf_dataset'",
                     name, data->line, data->text);
    return st;
}

/* A string of a map; `otherwise` where it has none. */
static const char *text_of(const af_yaml *map, const char *key, const char *otherwise)
{
    const af_yaml *n = af_yaml_get(map, key);
    return n && n->kind == AF_YAML_SCALAR && !af_yaml_is_null(n) ? n->text : otherwise;
}

static af_status check_keys(const af_translation *t, const char *name, const af_yaml *map,
                            const char *const *known, const char *all)
{
    for (int i = 0; map && !af_yaml_is_null(map) && i < map->count; i++) {
        int k = 0;
        while (map->kind == AF_YAML_MAP && known[k] && !is(known[k], map->key[i]))
            k++;
        if (map->kind != AF_YAML_MAP || !known[k])
            return af_fail(t->err, AF_EUSAGE, "%s:%d: '%s' of %s is not supported (%s)", t->name,
                           map->line, map->kind == AF_YAML_MAP ? map->key[i] : "a list", name, all);
    }
    return AF_OK;
}

/* One dataset of the hub in a split. Fields that it names say which kind of records it has, in
 * mlx-lm's order; without them they are found by themselves. */
static void set_hub(af_source *s, const af_yaml *n, const char *split)
{
    const af_yaml *config = af_yaml_get(n, "config");
    const char *prompt = text_of(n, "prompt_feature", NULL),
               *chat = text_of(n, "chat_feature", NULL),
               *answer = text_of(n, "completion_feature", NULL),
               *text = text_of(n, "text_feature", NULL);
    af_source_set(s, "path", text_of(n, "path", text_of(n, "name", NULL)));
    af_source_set(s, "split", split);
    if (text_of(config, "name", NULL))
        af_source_set(s, "name", text_of(config, "name", NULL));
    if (text_of(config, "revision", NULL))
        af_source_set(s, "revision", text_of(config, "revision", NULL));
    if (prompt || answer) {
        af_source_set(s, "field_instruction", prompt ? prompt : "prompt");
        af_source_set(s, "field_output", answer ? answer : "completion");
    } else if (chat) {
        af_source_set(s, "field_messages", chat);
    } else if (text) {
        af_source_set(s, "field_text", text);
    }
}

static af_status translate_hub(af_translation *t, const af_yaml *n)
{
    static const char *const keys[] = {"path",           "name",
                                       "config",         "train_split",
                                       "valid_split",    "test_split",
                                       "prompt_feature", "completion_feature",
                                       "chat_feature",   "text_feature",
                                       "mask_prompt",    NULL},
                             *const inner[] = {"name", "revision", NULL};
    const int count = n->kind == AF_YAML_LIST ? n->count : 1;
    af_source *s = af_arena_take(t->mem, 2 * (uint64_t)AF_MAX(count, 1) * sizeof *s);
    af_status st = s ? AF_OK : af_fail_nomem(t->err, "hf_dataset", sizeof *s);
    for (int i = 0; i < count && st == AF_OK; i++) {
        const af_yaml *e = n->kind == AF_YAML_LIST ? n->item[i] : n;
        if (e->kind != AF_YAML_MAP || !text_of(e, "path", text_of(e, "name", NULL)))
            return af_fail(t->err, AF_EUSAGE, "%s:%d: hf_dataset must be a map with a 'path'",
                           t->name, e->line);
        st = check_keys(t, "hf_dataset", e, keys,
                        "path, config, train_split, valid_split, "
                        "prompt_feature, completion_feature, "
                        "chat_feature, text_feature");
        if (st == AF_OK)
            st = check_keys(t, "its config", af_yaml_get(e, "config"), inner, "name, revision");
        s[i] = s[count + i] = (af_source){0};
        set_hub(&s[i], e, text_of(e, "train_split", "train[:80%]"));
        set_hub(&s[count + i], e, text_of(e, "valid_split", "train[-10%:]"));
    }
    if (st == AF_OK)
        st = af_translate_put(t, "datasets", n->line, af_source_list(s, count, t->mem, n->line));
    return st == AF_OK ? af_translate_put(t, "test_datasets", n->line,
                                          af_source_list(s + count, count, t->mem, n->line))
                       : st;
}

/* A function of mlx.optimizers.schedulers and its arguments, the peak first. */
static af_status translate_schedule(af_translation *t, const af_yaml *n)
{
    enum { MOST = 3 };
    static const struct {
        const char *name, *key[MOST];
        int least;
    } kinds[] = {{"cosine_decay", {"learning_rate", "lr_decay_steps", "min_lr"}, 2},
                 {"linear_schedule", {"learning_rate", "min_lr", "lr_decay_steps"}, MOST},
                 {"step_decay", {"learning_rate", "lr_gamma", "lr_step_size"}, MOST},
                 {"exponential_decay", {"learning_rate", "lr_gamma"}, 2}};
    static const char *const keys[] = {"name", "warmup", "warmup_init", "arguments", NULL};
    const af_yaml *name = af_yaml_get(n, "name"), *list = af_yaml_get(n, "arguments"),
                  *warmup = af_yaml_get(n, "warmup"), *init = af_yaml_get(n, "warmup_init");
    const int given = list && list->kind == AF_YAML_LIST ? list->count : 0;
    double peak = 0, end = 0;
    size_t k = 0;
    af_status st = check_keys(t, "lr_schedule", n, keys, "name, warmup, warmup_init, arguments");
    while (k < AF_LEN(kinds) && !is(kinds[k].name, text_of(n, "name", "")))
        k++;
    if (st != AF_OK)
        return st;
    if (k == AF_LEN(kinds) || given < kinds[k].least || given > MOST || !kinds[k].key[given - 1])
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: lr_schedule must have a name and arguments as MLX has them: "
                       "cosine_decay [init, decay_steps, end], linear_schedule [init, end, steps], "
                       "step_decay [init, decay_rate, step_size] or exponential_decay [init, "
                       "decay_rate]",
                       t->name, n->line);
    st = af_translate_put(t, "lr_scheduler", name->line, name);
    for (int i = 0; i < given && st == AF_OK; i++) {
        st = af_translate_put(t, kinds[k].key[i], list->item[i]->line, list->item[i]);
        af_yaml_f64(list->item[i], i == 0                          ? &peak
                                   : is(kinds[k].key[i], "min_lr") ? &end
                                                                   : &(double){0});
    }
    if (st == AF_OK && end > peak)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: lr_schedule rises from %g to %g, which is not supported: give "
                       "'warmup'",
                       t->name, n->line, peak, end);
    if (st == AF_OK && warmup)
        st = af_translate_put(t, "warmup_steps", warmup->line, warmup);
    if (st == AF_OK && init)
        st = af_translate_put(t, "warmup_init_lr", init->line, init);
    return st;
}

/* The output of the adapter times `scale`, whatever the rank. `alpha` was a factor (alpha / rank)
 * until version 0.19; since then it is not read. */
af_status af_mlx_scale(af_translation *t, const af_yaml *parameters)
{
    enum { SCALE = 20, RANK = 8 }; /* its defaults */
    const af_yaml *scale = af_yaml_get(parameters, "scale");
    const af_yaml *alpha = af_yaml_get(parameters, "alpha");
    const double rank = (double)af_translate_whole(parameters, "rank", RANK);
    double v = SCALE, factor = rank;
    char text[40];
    if (alpha && !scale)
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: lora_parameters has an 'alpha' and no 'scale', by which mlx-lm "
                       "multiplies: give 'scale' (elsewhere it is alpha / rank)",
                       t->name, alpha->line);
    if (scale && !af_yaml_f64(scale, &v))
        return af_translate_put(t, "lora_alpha", scale->line, scale); /* an error */
    if (alpha && (!af_yaml_f64(alpha, &factor) || factor != rank))
        af_log_write(AF_LOG_WARN,
                     "%s:%d: 'alpha' of lora_parameters is not read, as in mlx-lm since 0.20; "
                     "before, 'scale' was multiplied by alpha / rank",
                     t->name, alpha->line);
    snprintf(text, sizeof text, "%.17g", v * rank);
    return af_translate_put(t, "lora_alpha", parameters->line,
                            af_translate_scalar(t, parameters->line, text));
}

/* mlx-lm trains the last `num_layers` layers, also in full: embeddings, head and last norm never.
 */
static af_status translate_full(af_translation *t, int i)
{
    enum { LAYERS = 16 }; /* its default */
    const int line = t->root->key_line[i];
    const af_yaml *layers = af_yaml_get(t->root, "num_layers");
    layers = layers ? layers : af_yaml_get(t->root, "lora_layers");
    int64_t n = LAYERS;
    const bool number = !layers || af_yaml_is_null(layers) || af_yaml_i64(layers, &n);
    if (number && n <= 0) {
        const af_status st =
            af_translate_put(t, "adapter", line, af_translate_scalar(t, line, "full"));
        return st != AF_OK ? st
                           : af_translate_put(t, "unfrozen_parameters", line,
                                              af_translate_scalar(t, line, "[a-z_.]*layers."));
    }
    const af_status st =
        af_translate_put(t, "adapter", line, af_translate_scalar(t, line, "freeze"));
    return st != AF_OK ? st
           : number    ? af_translate_number(t, "freeze_trainable_layers", i, n)
                       : af_translate_put(t, "freeze_trainable_layers", layers->line,
                                          layers); /* an error */
}

/* Its optimizer_config has a map of settings for each optimizer. */
static af_status translate_optimizer(af_translation *t, const af_yaml *all)
{
    static const char *const keys[][2] = {{"eps", "adam_epsilon"},
                                          {"weight_decay", "weight_decay"},
                                          {"momentum", "sgd_momentum"},
                                          {"bias_correction", "adam_bias_correction"}};
    const af_yaml *name = af_yaml_get(t->root, "optimizer");
    const af_yaml *n = af_yaml_get(all, name && name->kind == AF_YAML_SCALAR ? name->text : "adam");
    af_status st = AF_OK;
    if (n && n->kind != AF_YAML_MAP && !af_yaml_is_null(n))
        return af_translate_put(t, "optimizer_config", all->line, n); /* unknown */
    for (int i = 0; n && i < n->count && st == AF_OK; i++) {
        const af_yaml *v = n->item[i];
        const int line = n->key_line[i];
        size_t k = 0;
        while (k < AF_LEN(keys) && !is(keys[k][0], n->key[i]))
            k++;
        if (is(n->key[i], "betas") && v->kind == AF_YAML_LIST && v->count == 2) {
            st = af_translate_put(t, "adam_beta1", line, v->item[0]);
            st = st == AF_OK ? af_translate_put(t, "adam_beta2", line, v->item[1]) : st;
        } else {
            st = af_translate_put(t, k < AF_LEN(keys) ? keys[k][1] : n->key[i], line, v);
        }
    }
    return st;
}

/* What mlx-lm does not read next to another key. */
static bool is_overruled(const af_yaml *root, const char *key)
{
    static const char *const pairs[][2] = {{"learning_rate", "lr_schedule"},
                                           {"data", "hf_dataset"}};
    for (size_t i = 0; i < AF_LEN(pairs); i++) {
        const af_yaml *by = af_yaml_get(root, pairs[i][1]);
        if (is(key, pairs[i][0]) && by && by->kind != AF_YAML_SCALAR)
            return true;
    }
    return false;
}

/* Its file of weights, next to which the settings of the adapter are. */
static af_status translate_resume(af_translation *t, int i)
{
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    const char *path = n->kind == AF_YAML_SCALAR ? n->text : "", *name = af_path_name(path);
    if (!is(name, "adapters.safetensors"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: resume_adapter_file '%.200s' is not supported: it must be the file "
                       "adapters.safetensors of an adapter's folder",
                       t->name, line, path);
    char *dir = af_arena_strndup(t->mem, path, (uint64_t)(name - path));
    if (!dir)
        return af_fail_nomem(t->err, "lora_model_dir", strlen(path));
    if (name - path > 1)
        dir[name - path - 1] = 0; /* the slash */
    return af_translate_put(t, "lora_model_dir", line,
                            af_translate_scalar(t, line, *dir ? dir : "."));
}

/* Keys of mlx-lm that mean something else than their names do here. True when it was one. */
bool af_mlx_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i], *type = af_yaml_get(t->root, "fine_tune_type");
    const int line = t->root->key_line[i];
    const bool mlx = t->run->dialect == AF_DIALECT_MLX;
    const bool full = mlx && type && af_translate_says(type, "full");
    if (is(key, "mask_prompt") && af_translate_says(n, "true")) { /* all but the last answer */
        *st = af_translate_put(t, "train_on_inputs", line, af_translate_scalar(t, line, "false"));
        *st = *st == AF_OK
                  ? af_translate_put(t, "mask_history", line, af_translate_scalar(t, line, "true"))
                  : *st;
    } else if (mlx && is(key, "wandb")) { /* its project */
        *st = af_translate_put(t, "report_to", line, af_translate_scalar(t, line, "wandb"));
        *st = *st == AF_OK ? af_translate_put(t, "wandb_project", line, n) : *st;
    } else if (mlx && is(key, "resume_adapter_file")) {
        *st = translate_resume(t, i);
    } else if (full && is(key, "fine_tune_type")) {
        *st = translate_full(t, i);
    } else if (is(key, "optimizer_config") && n->kind == AF_YAML_MAP) {
        *st = translate_optimizer(t, n);
    } else if (mlx && is(key, "lr_schedule") && n->kind == AF_YAML_MAP) {
        *st = translate_schedule(t, n);
    } else if (mlx && is(key, "hf_dataset") && !af_yaml_is_null(n)) {
        *st = translate_hub(t, n);
    } else if (mlx && is(key, "data") && n->kind == AF_YAML_SCALAR && !is_overruled(t->root, key)) {
        af_yaml *train = NULL, *valid = NULL;
        *st = read_data(&train, &valid, n, t->mem, t->name, t->err);
        *st = *st == AF_OK ? af_translate_put(t, "datasets", line, train) : *st;
        *st = *st == AF_OK && valid ? af_translate_put(t, "test_datasets", line, valid) : *st;
    } else {
        return (full && (is(key, "num_layers") || is(key, "lora_layers"))) ||
               (mlx && is_overruled(t->root, key));
    }
    return true;
}
