/* run_mlx.c - run files of mlx-lm: their data, layers, optimizer and scale. */
#include "base/file.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "train/run/run_translation.h"

enum { FIELDS = 3, FIRST_RECORD_MAX = 1 << 20 };

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

static af_yaml *scalar(af_arena *mem, const char *text, int line)
{
    af_yaml *n = af_arena_take(mem, sizeof *n);
    if (n)
        *n = (af_yaml){.kind = AF_YAML_SCALAR, .line = line, .text = text, .quoted = true};
    return n;
}

/* Whether its first record is a question and an answer, which mlx-lm renders as a conversation. */
static bool has_completions(const char *path)
{
    char *line = af_calloc(FIRST_RECORD_MAX, 1);
    FILE *f = line ? fopen(path, "r") : NULL;
    json_t *record = NULL;
    if (f && fgets(line, FIRST_RECORD_MAX, f))
        record = af_json_load(line, strlen(line), 0, NULL);
    const bool is = json_is_string(json_object_get(record, "prompt")) &&
                    json_is_string(json_object_get(record, "completion"));
    json_decref(record);
    if (f)
        fclose(f);
    free(line);
    return is;
}

/* A list with one dataset; NULL when there is no memory. */
static af_yaml *one_dataset(af_arena *mem, const char *path, int line)
{
    static const char *const names[FIELDS] = {"path", "field_instruction", "field_output"};
    const char *const values[FIELDS] = {path, "prompt", "completion"};
    struct nodes {
        af_yaml list, entry;
        af_yaml *first[1], *item[FIELDS];
        const char *key[FIELDS];
        int key_line[FIELDS];
    } *n = af_arena_take(mem, sizeof *n);
    bool whole = n;
    for (int i = 0; i < FIELDS && whole; i++) {
        n->key[i] = names[i];
        n->key_line[i] = line;
        n->item[i] = scalar(mem, values[i], line);
        whole = n->item[i];
    }
    if (!whole)
        return NULL;
    n->entry = (af_yaml){.kind = AF_YAML_MAP,
                         .line = line,
                         .count = has_completions(path) ? FIELDS : 1,
                         .key = n->key,
                         .key_line = n->key_line,
                         .item = n->item};
    n->first[0] = &n->entry;
    n->list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = 1, .item = n->first};
    return &n->list;
}

static af_status find(af_yaml **out, const af_yaml *data, const char *file, af_arena *mem,
                      af_error *err)
{
    char *path = af_path_join(data->text, file);
    const char *kept = path ? af_arena_strdup(mem, path) : NULL;
    free(path);
    *out = kept && af_file_exists(kept) ? one_dataset(mem, kept, data->line) : NULL;
    return kept && (*out || !af_file_exists(kept)) ? AF_OK
                                                   : af_fail_nomem(err, "datasets", sizeof **out);
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
                     "one, or set 'datasets'",
                     name, data->line, data->text);
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
    static const char *const keys[][2] = {
        {"eps", "adam_epsilon"}, {"weight_decay", "weight_decay"}, {"momentum", "sgd_momentum"}};
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
        } else if (!is(n->key[i], "bias_correction") || !af_translate_says(v, "true")) {
            st = af_translate_put(t, k < AF_LEN(keys) ? keys[k][1] : n->key[i], line, v);
        }
    }
    return st;
}

/* Keys of mlx-lm that mean something else than their names do here. True when it was one. */
bool af_mlx_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i], *type = af_yaml_get(t->root, "fine_tune_type");
    const int line = t->root->key_line[i];
    const bool mlx = af_dialect_of(t->root) == AF_DIALECT_MLX;
    const bool full = mlx && type && af_translate_says(type, "full");
    if (is(key, "mask_prompt") && af_translate_says(n, "true")) { /* all but the last answer */
        *st = af_translate_put(t, "train_on_inputs", line, af_translate_scalar(t, line, "false"));
        *st = *st == AF_OK
                  ? af_translate_put(t, "mask_history", line, af_translate_scalar(t, line, "true"))
                  : *st;
    } else if (mlx && is(key, "wandb")) { /* its project */
        *st = af_translate_put(t, "report_to", line, af_translate_scalar(t, line, "wandb"));
        *st = *st == AF_OK ? af_translate_put(t, "wandb_project", line, n) : *st;
    } else if (full && is(key, "fine_tune_type")) {
        *st = translate_full(t, i);
    } else if (is(key, "optimizer_config") && n->kind == AF_YAML_MAP) {
        *st = translate_optimizer(t, n);
    } else if (mlx && is(key, "data") && n->kind == AF_YAML_SCALAR) {
        af_yaml *train = NULL, *valid = NULL;
        *st = read_data(&train, &valid, n, t->mem, t->name, t->err);
        *st = *st == AF_OK ? af_translate_put(t, "datasets", line, train) : *st;
        *st = *st == AF_OK && valid ? af_translate_put(t, "test_datasets", line, valid) : *st;
    } else {
        return full && (is(key, "num_layers") || is(key, "lora_layers"));
    }
    return true;
}
