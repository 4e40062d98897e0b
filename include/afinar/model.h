/* model.h - a language model from disk: tokens in, text and numbers out.
 *
 *     af_model *m;
 *     af_model_open(&m, "Qwen/Qwen2.5-0.5B", &(af_model_opts){.device = "auto"}, &err);
 *     af_model_generate(m, &(af_generate_opts){...}, &err);
 *
 * A model holds its weights (mapped from the file on the CPU), its tokenizer and its chat template.
 * It is used by one thread at a time. Training is in train.h. */
#ifndef AFINAR_MODEL_H
#define AFINAR_MODEL_H

#include "afinar/chat.h"
#include "afinar/device.h"
#include "afinar/status.h"
#include "afinar/text.h"
#include "afinar/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open model. */
typedef struct af_model af_model;

enum { AF_MODEL_ADAPTERS_MAX = 16 };

/* The type of activations. AUTO: f32 on the CPU, bf16 on a GPU. */
typedef enum af_compute { AF_COMPUTE_AUTO, AF_COMPUTE_F32, AF_COMPUTE_BF16 } af_compute;

typedef struct af_model_opts {
    const char *device; /* "auto" when NULL */
    int threads;        /* 0 = all cores */
    af_compute compute;
    bool load_in_4bit;  /* quantize the linear layers to nf4 while loading */
    bool quant_scratch; /* keep 4-bit weights in 4 bits (less memory, same results) */
    bool few_tokens;    /* most runs have few tokens: keeps 4-bit weights in 4 bits on a GPU, where
                           small GEMMs read them fastest */
    bool headless;      /* a folder without a head (a model for embeddings) is not an error */
    /* folders of PEFT or mlx-lm, or GGUF files of llama.cpp; and the factor of each: 1 = the
     * adapter as it is, 0 = without effect */
    const char *adapter[AF_MODEL_ADAPTERS_MAX];
    double adapter_weight[AF_MODEL_ADAPTERS_MAX];
    int adapters;
} af_model_opts;

/* Opens a folder, a .gguf file or an org/name[@revision] in the local Hugging Face cache (or, after
 * af_hub_set, of the hub); adapters likewise. o may be NULL. On
 * success *out belongs to the caller; close it with af_model_close. AF_EIO, AF_EFORMAT,
 * AF_EUNSUPPORTED for an unknown architecture, AF_ENOMEM, AF_EDEVICE. */
AF_API AF_CHECKED af_status af_model_open(af_model **out, const char *model, const af_model_opts *o,
                                          af_error *err);
/* NULL is allowed. */
AF_API void af_model_close(af_model *m);

/* The tokenizer and the chat template, opened at first use. Borrowed until af_model_close. AF_EIO,
 * AF_EFORMAT when the model has none or it is invalid. */
AF_API AF_CHECKED af_status af_model_tokenizer(af_model *m, const af_tokenizer **out,
                                               af_error *err);
AF_API AF_CHECKED af_status af_model_template(af_model *m, const af_template **out, af_error *err);

/* The architecture ("llama"), the size of the vocabulary, the number of parameters, and the device
 * (af_device_text). Strings are borrowed until af_model_close. */
AF_API const char *af_model_arch(const af_model *m);
AF_API int64_t af_model_vocab(const af_model *m);
AF_API int64_t af_model_params(const af_model *m);
AF_API const char *af_model_device_text(const af_model *m);

/* False for a model that was opened without a head: its logits and answers mean nothing, its hidden
 * states (af_decoder_embed) do. */
AF_API bool af_model_has_head(const af_model *m);

/* ---- logits and losses ---- */

/* Logits of every position of one sequence: ids [n] -> out [n][V], V = af_model_vocab. AF_EUSAGE
 * for an id outside the vocabulary, or a negative n. */
AF_API AF_CHECKED af_status af_model_logits_of(af_model *m, const int32_t *ids, int64_t n,
                                               float *out, af_error *err);
/* Reads `input_ids` [B][T] (and `attention_mask`) from a safetensors file, writes `logits` F32
 * [B][T][V]; rows of masked positions are zeros. An existing file is refused, or with `force`
 * replaced when afinar wrote it (afinar/output.h). AF_EUSAGE, AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_model_logits_file(af_model *m, const char *in, const char *out,
                                                 bool force, af_error *err);

typedef struct af_eval_result {
    double loss;     /* mean over the tokens that count */
    double accuracy; /* share of them that were the arg max */
    int64_t tokens;  /* that count */
    int64_t rows;    /* sequences */
    /* of preferences: records, and by how much chosen answers are above rejected ones; accuracy is
     * the share of pairs in the right order (NaN where there are none) */
    int64_t pairs;
    double margin;
    /* of labels: texts; accuracy and mean F1 of classes, or the mean squared error of numbers (NaN
     * for the others) */
    int64_t texts;
    double f1, mse;
} af_eval_result;

/* One sequence: ids and labels [count], labels unshifted, -100 = ignored; the first label is always
 * ignored. */
typedef struct af_token_row {
    const int32_t *ids, *labels;
    int64_t count;
} af_token_row;
/* A running evaluation. */
typedef struct af_eval af_eval;
/* Starts an evaluation with batches of up to `rows` tokens. m must outlive it. On success *out
 * belongs to the caller; free it with af_eval_free. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_eval_new(af_eval **out, af_model *m, int64_t rows, af_error *err);
/* Adds one sequence; its memory is not used after the call. AF_EUSAGE for ids out of range. */
AF_API AF_CHECKED af_status af_eval_add(af_eval *e, af_token_row row, af_error *err);
/* Runs the pending sequences and returns the means. */
AF_API AF_CHECKED af_status af_eval_finish(af_eval *e, af_eval_result *out, af_error *err);
/* NULL is allowed. */
AF_API void af_eval_free(af_eval *e);
/* Evaluates a plain text file, cut into windows of `seq` tokens. AF_EIO. */
AF_API AF_CHECKED af_status af_model_eval_text(af_model *m, const char *path, int64_t seq,
                                               af_eval_result *out, af_error *err);

typedef struct af_eval_data_opts {
    const char *type;          /* type of the dataset; NULL = detected */
    const char *chat_template; /* NULL = the model's */
    bool train_on_inputs;      /* count prompts too */
    int64_t sequence_len;      /* truncate longer records; 0 = 2048 */
} af_eval_data_opts;
/* Evaluates a dataset of any type that training reads; path may also be a {path: FILE, ...} entry
 * of a run file. o may be NULL. AF_EIO, AF_EFORMAT, AF_EUSAGE. */
AF_API AF_CHECKED af_status af_model_eval_dataset(af_model *m, const char *path,
                                                  const af_eval_data_opts *o, af_eval_result *out,
                                                  af_error *err);
/* Checks that such a dataset exists and that its keys are known, without reading its records. For
 * programs that evaluate after a long computation. o may be NULL. */
AF_API AF_CHECKED af_status af_eval_data_check(const char *path, const af_eval_data_opts *o,
                                               af_error *err);

/* ---- labels ---- */

/* What the labels of a model that classifies are: one of them holds, several may, or each is a
 * number. */
typedef enum af_label_kind { AF_LABELS_ONE, AF_LABELS_SEVERAL, AF_LABELS_NUMBERS } af_label_kind;
/* The number of labels, 0 for a language model; the name of label i ("LABEL_0" when the model has
 * none), borrowed until af_model_close. */
AF_API int64_t af_model_labels(const af_model *m);
AF_API const char *af_model_label(const af_model *m, int64_t i);
AF_API af_label_kind af_model_label_kind(const af_model *m);
/* The labels of one text: ids [n] -> scores and probabilities [labels], either may be NULL. Of
 * numbers the probabilities are the scores. AF_EUSAGE for a language model. */
AF_API AF_CHECKED af_status af_model_classify(af_model *m, const int32_t *ids, int64_t n,
                                              float *scores, double *probabilities, af_error *err);

typedef struct af_label_eval {
    double loss;
    double accuracy, f1; /* share of texts with all labels right; mean F1 of the labels */
    double mse;          /* of numbers, instead of these */
    int64_t texts;
    double *label_f1; /* [labels], or NULL; free() it */
} af_label_eval;
/* Evaluates a dataset of {text, label}, as af_model_eval_dataset; o may be NULL. */
AF_API AF_CHECKED af_status af_model_eval_labels(af_model *m, const char *path,
                                                 const af_eval_data_opts *o, af_label_eval *out,
                                                 af_error *err);

/* ---- generation ---- */

typedef enum af_stop {
    AF_STOP_LENGTH, /* max_new tokens were generated */
    AF_STOP_EOS,    /* a stop token: the last of the ids, not part of the text */
    AF_STOP_STRING, /* a stop string; the text ends before it */
    AF_STOP_USER,   /* the hook returned false */
} af_stop;
/* "length", "eos", "stop" or "user". Static storage. */
AF_API const char *af_stop_name(af_stop s);

typedef struct af_sample_opts {
    double temperature;    /* 0 = greedy */
    double top_p;          /* 0 or 1 = off */
    double min_p;          /* 0 = off */
    int64_t top_k;         /* 0 = off */
    double repeat_penalty; /* 0 or 1 = off */
    /* Subtracted from the logit of each new token so far: per occurrence, and once. 0 = off. */
    double frequency_penalty, presence_penalty;
    uint64_t seed;
    int64_t repeat_last_n; /* so many tokens back count for the penalties; 0 = all */
} af_sample_opts;

/* The sampling options of the model's generation_config.json; greedy when it has none. */
AF_API AF_CHECKED af_status af_model_sampling(af_model *m, af_sample_opts *out, af_error *err);

enum { AF_STOPS_MAX = 64 };

/* Gets new text of one sequence, complete characters only; id is the token that completed it. False
 * stops this sequence. */
typedef bool af_text_hook(void *user, int sequence, int32_t id, const char *text, uint64_t len);
/* Clears the bits of tokens that may not follow the n that a sequence has made: bit id % 32 of
 * allowed[id / 32] (af_grammar_state_mask makes such a mask). False ends the call with an error. */
typedef bool af_mask_hook(void *user, int sequence, const int32_t *made, int64_t n,
                          uint32_t *allowed);

typedef struct af_generate_opts {
    const int32_t *const *prompt; /* ids of each sequence, at least one token */
    const int64_t *prompt_len;
    int sequences;
    int64_t max_new;
    af_sample_opts sample;
    const char *stop[AF_STOPS_MAX]; /* strings */
    int stops;
    bool ignore_eos;
    bool skip_special; /* special tokens are left out of the text */
    bool ids_only;     /* no tokenizer, no text */
    bool once;         /* the caches are not reused: allocate no space for longer prompts */
    af_text_hook *hook;
    void *user;
    af_mask_hook *mask; /* NULL: all tokens are allowed */
    void *mask_user;
} af_generate_opts;

typedef struct af_generated {
    int32_t *ids; /* new tokens, the stop token included */
    int64_t count;
    char *text; /* NULL with ids_only */
    uint64_t text_len;
    af_stop stop;
} af_generated;

/* Generates text for all sequences: out [sequences], each to be cleared with af_generated_clear.
 * Caches grow as needed and are kept; a prompt that extends the last result (a conversation) reuses
 * them. AF_EUSAGE, AF_ENOMEM, AF_EDEVICE. */
AF_API AF_CHECKED af_status af_model_generate(af_model *m, const af_generate_opts *o,
                                              af_generated *out, af_error *err);
/* Frees the ids and the text, and empties *r. */
AF_API void af_generated_clear(af_generated *r);

/* Seconds spent in the last af_model_generate, and the tokens of each part. */
typedef struct af_generate_times {
    double prompt_s, token_s;
    int64_t prompt_tokens, new_tokens;
} af_generate_times;
/* The times of the last af_model_generate; zeros before it. */
AF_API af_generate_times af_model_times(const af_model *m);

/* ---- answers to the prompts of a dataset ---- */

/* One answer next to the expected one; valid during the call. */
typedef struct af_answered {
    int64_t record; /* of the dataset, from 0 */
    const char *prompt, *expected, *answer;
    uint64_t prompt_len, expected_len, answer_len;
    bool match; /* equal, white space at both ends aside */
    af_stop stop;
} af_answered;

typedef struct af_answers_opts {
    af_eval_data_opts data; /* records longer than its sequence_len are left out */
    int64_t max_new;        /* tokens of an answer */
    /* Gets every answer, in the order of the records; NULL = nobody. */
    void (*answered)(void *user, const af_answered *a);
    void *user;
} af_answers_opts;

typedef struct af_answers_result {
    double exact_match; /* share of the answers that match */
    int64_t answers;
    int64_t left_out; /* records that are too long, or have no prompt or no answer to it */
    int64_t tokens;   /* made */
} af_answers_result;
/* Generates an answer (greedily, many at a time) to each record of a dataset that training reads:
 * its last answer, given everything before it as training has it, and compares the texts. AF_EUSAGE
 * when no record can be answered, and as af_model_eval_dataset. */
AF_API AF_CHECKED af_status af_model_eval_answers(af_model *m, const char *path,
                                                  const af_answers_opts *o, af_answers_result *out,
                                                  af_error *err);

#ifdef __cplusplus
}
#endif
#endif
