/* gguf_text.c - see gguf_text.h. */
#include "convert/input/gguf_text.h"

#include "convert/input/config_dense.h"
#include "convert/input/gguf_spm_text.h"
#include "format/text/json_text.h"
#include "format/tokenizer/tokenizer_pre.h"

#include <math.h>

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_BYTE = 6 };

/* ---- config.json ---- */

static void put_rope_numbers(json_t *o, const af_rope_config *r)
{
    if (r->type == AF_ROPE_DEFAULT)
        return;
    json_object_set_new(o, "factor", json_real(r->factor));
    if (r->original_max_position_embeddings)
        json_object_set_new(o, "original_max_position_embeddings",
                            json_integer(r->original_max_position_embeddings));
    if (r->attention_factor > 0)
        json_object_set_new(o, "attention_factor", json_real(r->attention_factor));
    if (r->type == AF_ROPE_YARN) {
        json_object_set_new(o, "beta_fast", json_real(r->beta_fast));
        json_object_set_new(o, "beta_slow", json_real(r->beta_slow));
        json_object_set_new(o, "truncate", json_boolean(r->truncate));
    }
    if (r->type == AF_ROPE_YARN && r->mscale_all_dim > 0) {
        json_object_set_new(o, "mscale", json_real(r->mscale));
        json_object_set_new(o, "mscale_all_dim", json_real(r->mscale_all_dim));
    }
    if (r->type == AF_ROPE_LLAMA3) {
        json_object_set_new(o, "low_freq_factor", json_real(r->low_freq_factor));
        json_object_set_new(o, "high_freq_factor", json_real(r->high_freq_factor));
    }
    for (int k = 0; k < 2; k++) {
        const double *f = k ? r->long_factor : r->short_factor;
        json_t *list = f ? json_array() : NULL;
        for (int i = 0; f && i < (k ? r->long_count : r->short_count); i++)
            json_array_append_new(list, json_real(f[i]));
        if (list)
            json_object_set_new(o, k ? "long_factor" : "short_factor", list);
    }
}

static json_t *rope_json(const af_rope_config *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "rope_type", json_string(af_rope_type_name(r->type)));
    json_object_set_new(o, "rope_theta", json_real(r->theta));
    put_rope_numbers(o, r);
    if (r->partial_rotary_factor != 1)
        json_object_set_new(o, "partial_rotary_factor", json_real(r->partial_rotary_factor));
    return o;
}

static void put_rope(json_t *o, const af_hf_config *c)
{
    json_object_set_new(o, "rope_theta", json_real(c->rope.theta));
    if (c->has_local_rope) {
        json_t *both = json_object();
        json_object_set_new(both, "full_attention", rope_json(&c->rope));
        json_object_set_new(both, "sliding_attention", rope_json(&c->local_rope));
        json_object_set_new(o, "rope_parameters", both);
        json_object_set_new(o, "rope_local_base_freq", json_real(c->local_rope.theta));
        return;
    }
    json_object_set_new(o, "rope_parameters", rope_json(&c->rope));
    if (c->rope.type != AF_ROPE_DEFAULT) {
        json_t *scaling = rope_json(&c->rope);
        json_object_del(scaling, "rope_theta");
        json_object_set_new(o, "rope_scaling", scaling);
    }
    if (c->rope.partial_rotary_factor != 1)
        json_object_set_new(o, "partial_rotary_factor", json_real(c->rope.partial_rotary_factor));
}

static void put_family(json_t *o, const af_hf_config *c)
{
    const bool gemma = strncmp(c->model_type, "gemma", 5) == 0;
    json_object_set_new(o, gemma ? "hidden_activation" : "hidden_act", json_string(c->hidden_act));
    if (gemma)
        json_object_set_new(o, "hidden_act", json_string(c->hidden_act));
    if (c->sliding_window) {
        json_t *types = json_array();
        json_object_set_new(o, "sliding_window", json_integer(c->sliding_window));
        for (int64_t i = 0; i < c->num_hidden_layers; i++)
            json_array_append_new(types, json_string(c->layer_types[i] == AF_LAYER_SLIDING
                                                         ? "sliding_attention"
                                                         : "full_attention"));
        json_object_set_new(o, "layer_types", types);
    }
    if (c->attn_logit_softcapping > 0)
        json_object_set_new(o, "attn_logit_softcapping", json_real(c->attn_logit_softcapping));
    if (c->final_logit_softcapping > 0)
        json_object_set_new(o, "final_logit_softcapping", json_real(c->final_logit_softcapping));
    if (gemma && strcmp(c->model_type, "gemma") != 0)
        json_object_set_new(
            o, "query_pre_attn_scalar",
            json_integer((json_int_t)(c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar
                                                                   : (double)c->head_dim)));
    const bool mixtral = strcmp(c->model_type, "mixtral") == 0;
    if (c->num_experts) {
        json_object_set_new(o, mixtral ? "num_local_experts" : "num_experts",
                            json_integer(c->num_experts));
        json_object_set_new(o, "num_experts_per_tok", json_integer(c->num_experts_per_tok));
    }
    if (c->router.shared_ffn)
        json_object_set_new(o, "shared_expert_intermediate_size",
                            json_integer(c->router.shared_ffn));
    if (c->num_experts && !mixtral) {
        json_object_set_new(o, "moe_intermediate_size", json_integer(c->moe_intermediate_size));
        json_object_set_new(o, "norm_topk_prob", json_boolean(c->norm_topk_prob));
        json_object_set_new(o, "decoder_sparse_step", json_integer(c->decoder_sparse_step));
        json_object_set_new(o, "mlp_only_layers", json_array());
    }
}

static void put_ids(json_t *o, const af_hf_config *c)
{
    json_t *eos = c->eos_count == 1 ? json_integer(c->eos_token_id[0]) : json_array();
    for (int i = 0; c->eos_count > 1 && i < c->eos_count; i++)
        json_array_append_new(eos, json_integer(c->eos_token_id[i]));
    if (c->eos_count)
        json_object_set(o, "eos_token_id", eos);
    json_decref(eos);
    if (c->bos_token_id >= 0)
        json_object_set_new(o, "bos_token_id", json_integer(c->bos_token_id));
    if (c->pad_token_id >= 0)
        json_object_set_new(o, "pad_token_id", json_integer(c->pad_token_id));
}

json_t *af_config_json(const af_hf_config *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "architectures", json_pack("[s]", c->architecture));
    json_object_set_new(o, "model_type", json_string(c->model_type));
    const struct {
        const char *key;
        int64_t v;
    } ints[] = {{"vocab_size", c->vocab_size},
                {"hidden_size", c->hidden_size},
                {"intermediate_size", c->intermediate_size},
                {"num_hidden_layers", c->num_hidden_layers},
                {"num_attention_heads", c->num_attention_heads},
                {"num_key_value_heads", c->num_key_value_heads},
                {"head_dim", c->head_dim},
                {"max_position_embeddings", c->max_position_embeddings}};
    for (size_t i = 0; i < AF_LEN(ints); i++)
        json_object_set_new(o, ints[i].key, json_integer(ints[i].v));
    /* GGUF keeps f32: the short decimal that gives the same f32 is what the config had. */
    char text[32];
    snprintf(text, sizeof text, "%.7g", c->rms_norm_eps);
    json_object_set_new(o, "rms_norm_eps", json_real(strtod(text, NULL)));
    json_object_set_new(o, "initializer_range", json_real(c->initializer_range));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
    json_object_set_new(o, "attention_bias", json_boolean(c->attention_bias));
    json_object_set_new(o, "attention_dropout", json_real(0));
    json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
    json_object_set_new(o, "use_cache", json_true());
    put_rope(o, c);
    put_family(o, c);
    af_config_dense(o, c);
    af_config_state(o, c);
    af_config_experts(o, c);
    af_config_gemma4(o, c);
    put_ids(o, c);
    const char *dtype = c->dtype == AF_DTYPE_BF16  ? "bfloat16"
                        : c->dtype == AF_DTYPE_F16 ? "float16"
                                                   : "float32";
    json_object_set_new(o, "torch_dtype", json_string(dtype));
    json_object_set_new(o, "dtype", json_string(dtype));
    return o;
}

/* ---- tokenizer.json ---- */

static json_t *text_of(af_gguf_str s) { return json_stringn(s.at, s.len); }

static json_t *vocab_json(const af_gguf_kv *tokens)
{
    json_t *v = json_object();
    for (uint64_t i = 0; i < tokens->count; i++)
        json_object_setn_new(v, tokens->str[i].at, tokens->str[i].len, json_integer((json_int_t)i));
    return v;
}

static json_t *added_json(const af_gguf *g, const af_gguf_kv *tokens, const af_gguf_kv *types)
{
    json_t *list = json_array();
    for (uint64_t i = 0; types && i < tokens->count && i < types->count; i++) {
        const int64_t t = af_gguf_item_int(types, i);
        if (t != TYPE_CONTROL && t != TYPE_UNKNOWN && t != TYPE_USER)
            continue;
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                            text_of(tokens->str[i]), "single_word", 0, "lstrip", 0, "rstrip",
                            af_gguf_token_strips(g, tokens->str[i].at, tokens->str[i].len),
                            "normalized", 0, "special", t != TYPE_USER));
    }
    return list;
}

static json_t *merges_json(const af_gguf_kv *merges)
{
    json_t *list = json_array();
    for (uint64_t i = 0; merges && merges->str && i < merges->count; i++) {
        const af_gguf_str m = merges->str[i];
        const char *space = m.len > 1 ? memchr(m.at + 1, ' ', m.len - 1) : NULL;
        if (space)
            json_array_append_new(list,
                                  json_pack("[s%, s%]", m.at, (size_t)(space - m.at), space + 1,
                                            (size_t)(m.len - (uint64_t)(space - m.at) - 1)));
    }
    return list;
}

/* <s> in front, when the file says so; always with Gemma 4, as llama.cpp has it. */
static json_t *post_json(const af_gguf *g, const af_gguf_kv *tokens, bool bos_default, bool raw)
{
    const int64_t bos = af_gguf_int(g, "tokenizer.ggml.bos_token_id", -1);
    if ((!raw && !af_gguf_bool(g, "tokenizer.ggml.add_bos_token", bos_default)) || bos < 0 ||
        (uint64_t)bos >= tokens->count)
        return json_null();
    const af_gguf_str s = tokens->str[bos];
    return json_pack(
        "{s:s, s:[{s:{s:s%, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s%, s:i}}, {s:{s:s, s:i}}, "
        "{s:{s:s%, s:i}}, {s:{s:s, s:i}}], s:{s%:{s:s%, s:[I], s:[s%]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", s.at, (size_t)s.len,
        "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", s.at,
        (size_t)s.len, "type_id", 0, "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id",
        s.at, (size_t)s.len, "type_id", 1, "Sequence", "id", "B", "type_id", 1, "special_tokens",
        s.at, (size_t)s.len, "id", s.at, (size_t)s.len, "ids", (json_int_t)bos, "tokens", s.at,
        (size_t)s.len);
}

static af_status bpe_json(const af_gguf *g, const af_gguf_kv *tokens, json_t *o, bool *add_bos,
                          bool raw, af_error *err)
{
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "decoder"};
    const int64_t unk = raw ? af_gguf_int(g, "tokenizer.ggml.unknown_token_id", -1) : -1;
    const af_pre_name *pre;
    const af_status st = af_pre_name_of(&pre, g, raw, err);
    if (st != AF_OK)
        return st;
    json_t *p = af_pre_name_parts(pre);
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        json_t *part = json_object_get(p, parts[i]);
        if (part)
            json_object_set(o, parts[i], part);
    }
    json_decref(p);
    /* Other readers require every field of it. */
    if (!raw)
        json_object_update_missing_new(
            json_object_get(o, "decoder"),
            json_pack("{s:b, s:b, s:b}", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1));
    *add_bos = pre->flags & AF_PRE_ADD_BOS;
    json_t *merges = merges_json(af_gguf_find_kv(g, "tokenizer.ggml.merges"));
    json_object_set_new(o, "model",
                        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type",
                                  "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", raw, "byte_fallback", raw,
                                  "ignore_merges", (pre->flags & AF_PRE_IGNORE_MERGES) != 0,
                                  "vocab", vocab_json(tokens), "merges", merges));
    if (unk >= 0 && (uint64_t)unk < tokens->count)
        json_object_set_new(json_object_get(o, "model"), "unk_token",
                            json_stringn(tokens->str[unk].at, tokens->str[unk].len));
    return AF_OK;
}

/* tokenizer.json from the tokenizer.ggml.* keys: byte-level BPE, or BPE with byte fallback for
 * SentencePiece vocabularies. json_decref it. */
AF_CHECKED static af_status tokenizer_json(const af_gguf *g, json_t **out, af_error *err)
{
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens");
    const af_gguf_kv *types = af_gguf_find_kv(g, "tokenizer.ggml.token_type");
    const af_gguf_str model = af_gguf_string(g, "tokenizer.ggml.model");
    if (!tokens || !tokens->str)
        return af_fail(err, AF_EFORMAT, "the GGUF file has no tokenizer.ggml.tokens");
    json_t *o = json_pack("{s:s, s:n, s:n, s:o, s:n, s:n, s:n, s:n}", "version", "1.0",
                          "truncation", "padding", "added_tokens", added_json(g, tokens, types),
                          "normalizer", "pre_tokenizer", "post_processor", "decoder");
    bool add_bos = true;
    af_status st;
    const bool raw = model.len == 6 && memcmp(model.at, "gemma4", 6) == 0;
    if (raw || (model.len == 4 && memcmp(model.at, "gpt2", 4) == 0))
        st = bpe_json(g, tokens, o, &add_bos, raw, err);
    else if (model.len == 5 && memcmp(model.at, "llama", 5) == 0)
        st = af_gguf_spm_json(g, tokens, types, o, err);
    else
        st = af_fail(err, AF_EUNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not known",
                     (int)AF_MIN(model.len, 60), model.at ? model.at : "");
    if (st != AF_OK) {
        json_decref(o);
        return st;
    }
    json_object_set_new(o, "post_processor", post_json(g, tokens, add_bos, raw));
    *out = o;
    return AF_OK;
}

/* ---- the rest ---- */

static void put_token(json_t *o, const af_gguf *g, const char *key, const char *name,
                      const af_gguf_kv *tokens)
{
    const int64_t id = af_gguf_int(g, key, -1);
    if (id >= 0 && tokens && tokens->str && (uint64_t)id < tokens->count)
        json_object_set_new(o, name, text_of(tokens->str[id]));
}

static af_status write_tokenizer(const af_gguf *g, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens");
    json_t *o = NULL, *config = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");
    if (!tokens)
        goto done;
    AF_TRY(tokenizer_json(g, &o, err));
    AF_TRY(af_json_write(dir, "tokenizer.json", o, err));
    put_token(config, g, "tokenizer.ggml.bos_token_id", "bos_token", tokens);
    put_token(config, g, "tokenizer.ggml.eos_token_id", "eos_token", tokens);
    put_token(config, g, "tokenizer.ggml.padding_token_id", "pad_token", tokens);
    put_token(config, g, "tokenizer.ggml.unknown_token_id", "unk_token", tokens);
    AF_TRY(af_json_write(dir, "tokenizer_config.json", config, err));
done:
    json_decref(o);
    json_decref(config);
    return st;
}

/* Files carried along whole. *seen tells which of the important ones were there. */
static af_status write_carried(const af_gguf *g, const char *dir, json_t **config, bool *tokenizer,
                               bool *template, bool *generation, af_error *err)
{
    af_status st = AF_OK;
    const size_t n = strlen(AF_GGUF_FILE_KEY);
    for (int i = 0; i < af_gguf_kv_count(g); i++) {
        const af_gguf_kv *kv = af_gguf_kv_at(g, i);
        if (strncmp(kv->key, AF_GGUF_FILE_KEY, n) != 0)
            continue;
        if (kv->type == AF_GGUF_ARRAY && strcmp(kv->key + n, "tokenizer.model") == 0 &&
            kv->item == AF_GGUF_U8) {
            AF_TRY(af_text_write(dir, kv->key + n, (const char *)kv->data, kv->bytes, err));
            *tokenizer = true;
        }
        if (kv->type != AF_GGUF_STRING)
            continue;
        const char *name = kv->key + n;
        if (!af_path_is_inner(name) || strchr(name, '/'))
            AF_TRY(af_fail(err, AF_EFORMAT, "'%.200s' is not a file name", kv->key));
        if (strcmp(name, "config.json") == 0) {
            *config = af_json_load(kv->str[0].at, kv->str[0].len, 0, NULL);
            if (!json_is_object(*config))
                AF_TRY(af_fail(err, AF_EFORMAT, "the GGUF file's config.json is not an object"));
            continue;
        }
        *template |= strcmp(name, "chat_template.jinja") == 0;
        *generation |= strcmp(name, "generation_config.json") == 0;
        AF_TRY(af_text_write(dir, name, kv->str[0].at, kv->str[0].len, err));
    }
    const af_gguf_str whole = af_gguf_string(g, AF_GGUF_TOKENIZER_KEY);
    *tokenizer |= whole.at != NULL;
    if (whole.at)
        AF_TRY(af_text_write(dir, "tokenizer.json", whole.at, whole.len, err));
done:
    return st;
}

/* Next to chat_template.jinja; without one, a list in tokenizer_config.json has it. */
static af_status write_tool_template(const af_gguf *g, const char *dir, af_error *err)
{
    static const char sub[] = "additional_chat_templates";
    const af_gguf_str text = af_gguf_string(g, "tokenizer.chat_template.tool_use");
    af_status st = AF_OK;
    char *path = af_path_join(dir, sub);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (text.at && af_file_in(dir, "chat_template.jinja")) {
        AF_TRY(af_dir_make(path, err));
        AF_TRY(af_text_write(path, "tool_use.jinja", text.at, text.len, err));
    }
done:
    free(path);
    return st;
}

af_status af_gguf_text(const af_gguf *g, const af_hf_config *c, const char *dir, json_t **config,
                       af_error *err)
{
    af_status st = AF_OK;
    bool tokenizer = false, template = false, generation = false;
    json_t *made = NULL, *ids = json_object();
    AF_TRY(write_carried(g, dir, &made, &tokenizer, &template, &generation, err));
    if (!tokenizer)
        AF_TRY(write_tokenizer(g, dir, err));
    const af_gguf_str chat = af_gguf_string(g, "tokenizer.chat_template");
    if (!template && !made && chat.at)
        AF_TRY(af_text_write(dir, "chat_template.jinja", chat.at, chat.len, err));
    AF_TRY(write_tool_template(g, dir, err));
    put_ids(ids, c);
    if (!generation && !made)
        AF_TRY(af_json_write(dir, "generation_config.json", ids, err));
    *config = made ? made : af_config_json(c);
    made = NULL;
    if (!*config)
        AF_TRY(af_fail_nomem(err, "config.json", 0));
done:
    json_decref(made);
    json_decref(ids);
    return st;
}
