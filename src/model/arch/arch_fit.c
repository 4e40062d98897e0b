/* arch_fit.c - unknown model types: accepted as llama only when no key says otherwise. */
#include "model/arch/arch_fit.h"

#include "base/log.h"
#include "format/config/hf_config_check.h"

#include <jansson.h>

/* Keys that llama's computation uses, or that change no number. */
static const char *const known[] = {
    "_attn_implementation",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_bias",
    "attention_dropout",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "id2label",
    "initializer_range",
    "intermediate_size",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "max_position_embeddings",
    "min_length",
    "mlp_bias",
    "model_type",
    "no_repeat_ngram_size",
    "num_attention_heads",
    "num_beam_groups",
    "num_beams",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "quantization",
    "quantization_config",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "vocab_size",
};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < AF_LEN(known); i++)
        if (strcmp(known[i], key) == 0)
            return true;
    return false;
}

/* null, false, 0 and empty say "as usual". */
static bool says_nothing(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

af_status af_arch_fits_llama(const af_hf_config *c, af_error *err)
{
    const char *key;
    char names[AF_FAMILY_NAMES];
    json_t *v;
    json_object_foreach(af_config_own(c->raw), key, v)
    {
        if (!is_known(key) && !says_nothing(v))
            return af_fail(err, AF_EUNSUPPORTED,
                           "model_type '%.64s' is not known, and key '%.64s' is not one of "
                           "llama's%s",
                           c->model_type, key, af_family_names(c->model_type, false, names));
    }
    if (!json_object_get(af_config_own(c->raw), "rms_norm_eps"))
        return af_fail(
            err, AF_EUNSUPPORTED,
            "model_type '%.64s' is not known, and key 'rms_norm_eps', which llama needs, "
            "is absent%s",
            c->model_type, af_family_names(c->model_type, false, names));
    af_log_write(AF_LOG_WARN,
                 "model_type '%.64s' is not known; its keys fit llama, so that row is used",
                 c->model_type);
    return AF_OK;
}
