/* inspect_facts.c - see inspect_facts.h. */
#include "convert/inspect/inspect_facts.h"

#include "base/buf.h"
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "format/text/unicode.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>

enum { FACTS_MAX = 64, META_TEXT_MAX = 4096 };

typedef struct fact_list {
    af_inspect_fact *at;
    int count, cap;
    af_arena *arena;
    af_status st; /* of a file that is there and could not be read */
    af_error *err;
} fact_list;

/* What is wrong with a file is a fact; that the system failed is not. */
static void keep(fact_list *l, const af_error *why)
{
    if (l->st == AF_OK && (why->code == AF_ENOMEM || why->code == AF_EIO))
        l->st = af_fail(l->err, why->code, "%s", why->msg);
}

static void put(fact_list *l, bool number, const char *key, const char *value)
{
    if (l->count == l->cap || !value)
        return;
    const char *k = af_arena_strdup(l->arena, key);
    if (k)
        l->at[l->count++] = (af_inspect_fact){k, value, number};
}

static void say(fact_list *l, const char *key, const char *text)
{
    if (text && *text)
        put(l, false, key, af_arena_strdup(l->arena, text));
}

static void count(fact_list *l, const char *key, int64_t v)
{
    put(l, true, key, af_arena_printf(l->arena, "%" PRId64, v));
}

static void real(fact_list *l, const char *key, double v)
{
    if (isfinite(v))
        put(l, true, key, af_arena_printf(l->arena, "%.9g", v));
}

static void flag(fact_list *l, const char *key, bool v) { put(l, true, key, v ? "true" : "false"); }

static void add_rope(fact_list *l, const af_rope_config *r)
{
    real(l, "rope_theta", r->theta);
    if (r->type != AF_ROPE_DEFAULT) {
        say(l, "rope_type", af_rope_type_name(r->type));
        real(l, "rope_factor", r->factor);
    }
    if (r->partial_rotary_factor != 1)
        real(l, "partial_rotary_factor", r->partial_rotary_factor);
}

static void add_config(fact_list *l, const af_hf_config *c)
{
    say(l, "architecture", *c->architecture ? c->architecture : c->model_type);
    say(l, "model_type", c->model_type);
    count(l, "num_hidden_layers", c->num_hidden_layers);
    count(l, "hidden_size", c->hidden_size);
    count(l, "intermediate_size", c->intermediate_size);
    count(l, "num_attention_heads", c->num_attention_heads);
    count(l, "num_key_value_heads", c->num_key_value_heads);
    count(l, "head_dim", c->head_dim);
    count(l, "vocab_size", c->vocab_size);
    count(l, "max_position_embeddings", c->max_position_embeddings);
    add_rope(l, &c->rope);
    if (c->sliding_window)
        count(l, "sliding_window", c->sliding_window);
    if (c->num_experts) {
        count(l, "num_experts", c->num_experts);
        count(l, "num_experts_per_tok", c->num_experts_per_tok);
    }
    flag(l, "tie_word_embeddings", c->tie_word_embeddings);
    if (c->has_dtype)
        say(l, "dtype", af_dtype_name(c->dtype));
    if (c->quant.method == AF_QUANT_BNB_4BIT)
        say(l, "quantization",
            c->quant.type == AF_DTYPE_NF4
                ? (c->quant.double_quant ? "bitsandbytes nf4, double quantised"
                                         : "bitsandbytes nf4")
                : (c->quant.double_quant ? "bitsandbytes fp4, double quantised"
                                         : "bitsandbytes fp4"));
    if (c->quant.method == AF_QUANT_BNB_8BIT)
        say(l, "quantization", "bitsandbytes int8");
    static const char *const coded[] = {[AF_QUANT_FP8] = "fp8",
                                        [AF_QUANT_MXFP4] = "mxfp4",
                                        [AF_QUANT_COMPRESSED] = "compressed-tensors",
                                        [AF_QUANT_MODELOPT] = "modelopt",
                                        [AF_QUANT_GPTQ] = "gptq",
                                        [AF_QUANT_AWQ] = "awq",
                                        [AF_QUANT_BITNET] = "bitnet",
                                        [AF_QUANT_MLX] = "mlx"};
    if (af_quant_is_coded(c->quant.method))
        say(l, "quantization", coded[c->quant.method]);
}

static json_t *load_json(fact_list *l, const char *dir, const char *name)
{
    char *path = af_path_join(dir, name), *text = NULL;
    uint64_t n = 0;
    json_t *j = NULL;
    af_error why = {0};
    if (path && af_file_exists(path) &&
        af_file_read(&text, &n, path, AF_CONFIG_BYTES_MAX, &why) == AF_OK)
        j = af_json_load(text, n, 0, NULL);
    keep(l, &why);
    free(text);
    free(path);
    return j;
}

/* One value of a JSON object as a fact: strings, numbers, booleans, lists of strings. */
static void add_json(fact_list *l, const json_t *obj, const char *key)
{
    const json_t *j = json_object_get(obj, key);
    if (json_is_string(j)) {
        say(l, key, json_string_value(j));
    } else if (json_is_integer(j)) {
        count(l, key, json_integer_value(j));
    } else if (json_is_real(j)) {
        real(l, key, json_real_value(j));
    } else if (json_is_boolean(j)) {
        flag(l, key, json_is_true(j));
    } else if (json_is_array(j)) {
        af_buf b = {0};
        for (size_t i = 0; i < json_array_size(j); i++) {
            const char *s = json_string_value(json_array_get(j, i));
            af_buf_printf(&b, "%s%s", i ? ", " : "", s ? s : "?");
        }
        say(l, key, b.data);
        af_buf_clear(&b);
    }
}

static bool add_adapter(fact_list *l, const char *dir)
{
    static const char *const keys[] = {"base_model_name_or_path",
                                       "peft_type",
                                       "task_type",
                                       "r",
                                       "init_r",
                                       "lora_alpha",
                                       "alpha",
                                       "lora_dropout",
                                       "use_rslora",
                                       "use_dora",
                                       "target_modules",
                                       "modules_to_save",
                                       "fine_tune_type"};
    json_t *j = load_json(l, dir, "adapter_config.json");
    if (!json_is_object(j)) {
        json_decref(j);
        return false;
    }
    for (size_t i = 0; i < AF_LEN(keys); i++)
        add_json(l, j, keys[i]);
    const double r = json_number_value(json_object_get(j, "r"));
    const double alpha = json_number_value(json_object_get(j, "lora_alpha"));
    const char *type = json_string_value(json_object_get(j, "peft_type"));
    if (r > 0 && type && strcmp(type, "LORA") == 0)
        real(l, "scale", alpha / (json_is_true(json_object_get(j, "use_rslora")) ? sqrt(r) : r));
    json_decref(j);
    return true;
}

static bool add_trainer(fact_list *l, const char *dir)
{
    static const char *const keys[] = {"global_step", "max_steps", "epoch", "num_train_epochs",
                                       "best_metric"};
    json_t *j = load_json(l, dir, "trainer_state.json");
    if (!json_is_object(j)) {
        json_decref(j);
        return false;
    }
    for (size_t i = 0; i < AF_LEN(keys); i++)
        add_json(l, j, keys[i]);
    const json_t *log = json_object_get(j, "log_history");
    for (size_t i = json_array_size(log); i-- > 0;) {
        const json_t *loss = json_object_get(json_array_get(log, i), "loss");
        if (json_is_number(loss)) {
            real(l, "last_loss", json_number_value(loss));
            break;
        }
    }
    json_decref(j);
    return true;
}

static void add_folder(af_inspect_report *r, fact_list *l, const char *path)
{
    af_hf_config c = {0};
    af_error err = {0};
    const bool trainer = add_trainer(l, path), adapter = add_adapter(l, path);
    if (af_file_in(path, "config.json")) {
        if (af_hf_config_read(&c, path, &err) == AF_OK)
            add_config(l, &c);
        else
            say(l, "config", err.msg);
        keep(l, &err);
        af_hf_config_clear(&c);
    }
    if (af_folder_has_tokenizer(path))
        flag(l, "tokenizer", true);
    if (af_file_in(path, "chat_template.jinja"))
        flag(l, "chat_template", true);
    if (af_file_in(path, "optimizer.safetensors"))
        flag(l, "optimizer_state", true);
    r->kind = trainer ? "checkpoint folder" : adapter ? "adapter folder" : "model folder";
}

/* One metadata value for reading: long text and long arrays are cut. */
static const char *gguf_text(af_arena *a, const af_gguf_kv *kv, bool *number)
{
    *number = false;
    if (kv->type == AF_GGUF_STRING) {
        uint64_t n = AF_MIN(kv->str[0].len, META_TEXT_MAX);
        if (n < kv->str[0].len) /* between two characters */
            while (n > META_TEXT_MAX - 3 && af_utf8_is_tail(kv->str[0].at[n]))
                n--;
        return af_arena_strndup(a, kv->str[0].at, n);
    }
    if (kv->type == AF_GGUF_ARRAY)
        return af_arena_printf(a, "[%s x %" PRIu64 "]", af_gguf_type_name(kv->item), kv->count);
    *number = true;
    if (kv->type == AF_GGUF_BOOL)
        return af_gguf_item_int(kv, 0) ? "true" : "false";
    if (kv->type == AF_GGUF_F32 || kv->type == AF_GGUF_F64) {
        *number = isfinite(af_gguf_item_float(kv, 0));
        return af_arena_printf(a, "%.9g", af_gguf_item_float(kv, 0));
    }
    if (kv->type == AF_GGUF_U64) {
        const uint64_t n = (uint64_t)af_gguf_item_int(kv, 0);
        *number = n <= INT64_MAX; /* JSON's reader has no larger integers */
        return af_arena_printf(a, "%" PRIu64, n);
    }
    return af_arena_printf(a, "%" PRId64, af_gguf_item_int(kv, 0));
}

static void add_gguf(af_inspect_report *r, fact_list *l, fact_list *meta, const af_gguf *g)
{
    af_hf_config c = {0};
    af_error err = {0};
    const af_gguf_str name = af_gguf_string(g, "general.name");
    r->kind = "GGUF file";
    count(l, "gguf_version", af_gguf_version(g));
    if (name.at)
        put(l, false, "name", af_arena_strndup(l->arena, name.at, AF_MIN(name.len, 256)));
    const af_gguf_str type = af_gguf_string(g, "general.type");
    if (type.len == 7 && memcmp(type.at, "adapter", 7) == 0)
        r->kind = "GGUF adapter file";
    else if (af_hf_config_from_gguf(&c, g, &err) == AF_OK)
        add_config(l, &c);
    else
        say(l, "config", err.msg);
    keep(l, &err);
    af_hf_config_clear(&c);
    for (int i = 0; i < af_gguf_kv_count(g); i++) {
        bool number;
        const af_gguf_kv *kv = af_gguf_kv_at(g, i);
        const char *text = gguf_text(meta->arena, kv, &number);
        put(meta, number, kv->key, text);
    }
}

static void add_safetensors(fact_list *meta, const af_safetensors *s)
{
    for (int i = 0; i < af_safetensors_meta_count(s); i++) {
        const char *key, *value;
        af_safetensors_meta_at(s, i, &key, &value);
        say(meta, key, value);
    }
}

af_status af_inspect_facts(af_inspect_report *r, const char *path, const af_weights *w,
                           af_error *err)
{
    const af_gguf *g = w ? af_weights_gguf(w) : NULL;
    const af_safetensors *s = w && !g && af_weights_files(w) ? af_weights_safetensors(w, 0) : NULL;
    const int n = g ? af_gguf_kv_count(g) : s ? af_safetensors_meta_count(s) : 0;
    fact_list facts = {af_arena_take(af_arena_of(r), FACTS_MAX * sizeof(af_inspect_fact)),
                       0,
                       FACTS_MAX,
                       af_arena_of(r),
                       AF_OK,
                       err};
    fact_list meta = {
        af_arena_take(af_arena_of(r), (uint64_t)AF_MAX(n, 1) * sizeof(af_inspect_fact)),
        0,
        n,
        af_arena_of(r),
        AF_OK,
        err};
    if (!facts.at || !meta.at)
        return af_fail_nomem(err, "the report", (uint64_t)n * sizeof(af_inspect_fact));
    r->kind = w && !g && !s ? "file of torch.save" : "safetensors file";
    if (g)
        add_gguf(r, &facts, &meta, g);
    if (s)
        add_safetensors(&meta, s);
    if (af_dir_exists(path))
        add_folder(r, &facts, path);
    r->facts = facts.at;
    r->fact_count = facts.count;
    r->meta = meta.at;
    r->meta_count = meta.count;
    return facts.st;
}
