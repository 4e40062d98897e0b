/* merge_text.c - the files around the merged weights: config, tokenizer, chat template. */
#include "convert/merge/merge_run.h"
#include "format/chat/chat_template.h"

/* Whether the layers of the result are those of one model, all of them in their order. */
static bool same_layers(const af_merge_run *r, const af_model_reader *shape)
{
    int64_t next = 0;
    for (int i = 0; i < r->config->slices; i++) {
        const af_merge_source *s = &r->config->slice[i].source[0];
        if (s->from != next)
            return false;
        next = s->to;
    }
    return next == shape->config.num_hidden_layers;
}

/* The entry of a layer in a list that config.json has; GGUF files say as much by their metadata. */
static json_t *layer_entry(const af_hf_config *c, const char *key, int64_t layer)
{
    json_t *from = c->raw ? json_object_get(af_config_own(c->raw), key) : NULL;
    if (json_array_size(from) == (size_t)c->num_hidden_layers)
        return json_incref(json_array_get(from, (size_t)layer));
    const bool known = c->layer_types && (c->layer_types[layer] == AF_LAYER_SLIDING ||
                                          c->layer_types[layer] == AF_LAYER_FULL);
    if (from || !known || strcmp(key, "layer_types") != 0)
        return NULL;
    return json_string(c->layer_types[layer] == AF_LAYER_SLIDING ? "sliding_attention"
                                                                 : "full_attention");
}

/* A list with one entry per layer: each layer of the result has that of the layer it is made of. */
static bool put_layer_list(const af_merge_run *r, json_t *own, const char *key)
{
    json_t *list = json_array();
    for (int i = 0; i < r->config->slices; i++) {
        const af_merge_source *s = &r->config->slice[i].source[0];
        for (int64_t l = s->from; l < s->to; l++)
            if (json_array_append_new(list, layer_entry(&r->in[s->model]->config, key, l)) != 0) {
                json_decref(list);
                return false;
            }
    }
    return json_object_set_new(own, key, list) == 0;
}

/* How many layers there are, by the word of the family, and what each of them is. */
static void put_layers(const af_merge_run *r, json_t *own)
{
    static const char *const count[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
    static const char *const list[] = {"layer_types", "mlp_layer_types", "layers_block_type",
                                       "no_rope_layers", "attention_layers"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(count); i++)
        if (json_object_get(own, count[i])) {
            json_object_set_new(own, count[i], json_integer(r->layers));
            any = true;
        }
    if (!any)
        json_object_set_new(own, count[0], json_integer(r->layers));
    for (size_t i = 0; i < AF_LEN(list); i++)
        if (json_object_get(own, list[i]) && put_layer_list(r, own, list[i]) &&
            json_object_get(own, "attention_types")) /* gpt_neo: the same, with a count */
            json_object_set_new(own, "attention_types",
                                json_pack("[[O, i]]", json_object_get(own, list[i]), 1));
}

static const struct {
    const char *name, *text;
} templates[] = {
    {"chatml", "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
               "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if "
               "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3", "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}{{ "
               "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
               "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if "
               "add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' "
               "}}{% endif %}"},
    {"alpaca", "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' "
               "%}{{ message['content'] + '\\n\\n' }}{% elif message['role'] == 'user' %}{{ '### "
               "Instruction:\\n' + message['content'] + '\\n\\n' }}{% else %}{{ '### "
               "Response:\\n' + message['content'] + eos_token + '\\n\\n' }}{% endif %}{% endfor "
               "%}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% set start = 0 %}{% set system = '' %}{% if messages[0]['role'] == 'system' "
     "%}{% set start = 1 %}{% set system = messages[0]['content'] + '\\n\\n' %}{% endif %}{% for "
     "message in messages[start:] %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) "
     "%}{{ raise_exception('after the system message, user and assistant must take turns') }}{% "
     "endif %}{% if message['role'] == 'user' %}{{ ' [INST] ' + (system if loop.first else '') + "
     "message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% "
     "endif %}{% endfor %}"},
    {"exaone", "{% for message in messages %}{{ '[|' + message['role'] + '|]' + "
               "message['content'] }}{% if message['role'] != 'user' %}{{ '[|endofturn|]' }}{% "
               "endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '[|assistant|]' "
               "}}{% endif %}"},
};

/* "auto": the template most models have; the first of them on a tie. */
static af_status common_template(const af_merge_run *r, char **out, af_error *err)
{
    af_status st = AF_OK;
    char *text[AF_MERGE_MODELS_MAX] = {0};
    int best = -1, votes = 0;
    for (int m = 0; m < r->config->models; m++)
        if (!af_model_reader_is_gguf(r->in[m]))
            AF_TRY(af_folder_template(&text[m], r->in[m]->path, err));
    for (int m = 0; m < r->config->models; m++) {
        int n = 0;
        for (int k = 0; text[m] && k < r->config->models; k++)
            n += text[k] && strcmp(text[k], text[m]) == 0;
        if (n > votes) {
            votes = n;
            best = m;
        }
    }
    if (best >= 0) {
        *out = text[best];
        text[best] = NULL;
    }
done:
    for (int m = 0; m < AF_MERGE_MODELS_MAX; m++)
        free(text[m]);
    return st;
}

static af_status choose_template(const af_merge_run *r, char **out, af_error *err)
{
    const char *want = r->config->chat_template;
    *out = NULL;
    if (!want)
        return AF_OK;
    if (strcmp(want, "auto") == 0)
        return common_template(r, out, err);
    const char *text = want;
    for (size_t i = 0; i < AF_LEN(templates); i++)
        if (strcmp(templates[i].name, want) == 0)
            text = templates[i].text;
    if (text == want && !strchr(want, '{'))
        return af_fail(err, AF_EUSAGE,
                       "%s: chat_template '%.60s' is not auto, chatml, llama3, alpaca, mistral, "
                       "exaone, or a template",
                       r->config->file, want);
    *out = af_strdup(text);
    return *out ? AF_OK : af_fail_nomem(err, "a template", strlen(text));
}

static void put_number(json_t *config, const char *key, int64_t v)
{
    json_object_set_new(af_config_own(config), key, json_integer(v));
}

af_status af_merge_text(const af_merge_run *r, const af_output *f, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    char *template = NULL;
    const af_model_reader *from = r->in[r->tokens.text_model];
    const af_model_reader *shape =
        r->in[r->config->base >= 0 ? r->config->base : r->config->slice[0].source[0].model];
    if (r->tokens.text_dir)
        AF_TRY(af_folder_copy_text(f, r->tokens.text_dir, err));
    else
        AF_TRY(af_model_copy_text(from, f, &config, err));
    if ((shape != from || !config) && shape->config.raw) {
        json_decref(config);
        config = json_deep_copy(shape->config.raw);
        if (!config)
            AF_TRY(af_fail_nomem(err, "config.json", 0));
        json_object_del(config, "quantization_config");
        json_object_del(config, "quantization"); /* MLX's */
    }
    if (!same_layers(r, shape))
        put_layers(r, af_config_own(config));
    for (int i = 0; i < r->items; i++)
        if (r->item[i].embed)
            put_number(config, "vocab_size", r->item[i].dim[0]);
    if (r->untied && shape->config.tie_word_embeddings) {
        json_object_set_new(config, "tie_word_embeddings", json_false());
        json_object_set_new(af_config_own(config), "tie_word_embeddings", json_false());
    }
    if (r->items)
        af_config_set_dtype(config, r->item[0].dtype);
    AF_TRY(af_json_write(f->temp, "config.json", config, err));
    if (r->tokens.active)
        AF_TRY(af_json_write(f->temp, "tokenizer.json", r->tokens.tokenizer, err));
    AF_TRY(choose_template(r, &template, err));
    if (template)
        AF_TRY(af_template_put(f->temp, template, strlen(template), err));
done:
    json_decref(config);
    free(template);
    return st;
}
