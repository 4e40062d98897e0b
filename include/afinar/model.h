/* model.h - a language model from disk: tokens in, text and numbers out.
 *
 *     af_model *m;
 *     af_model_open(&m, "Qwen/Qwen2.5-0.5B", &(af_model_opts){.device = "auto"}, &err);
 *     af_model_generate(m, &(af_generate_opts){...}, &err);
 *
 * A model holds its weights (mapped, on the CPU), its tokenizer and its chat template. One thread
 * at a time. Training is train.h. */
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

typedef struct af_model af_model;

enum { AF_MODEL_ADAPTERS_MAX = 16 };

typedef struct af_model_opts {
    const char *device; /* "auto" when NULL */
    int threads;        /* 0 = all cores */
    bool bf16;          /* compute in bf16; default: f32 on the CPU, bf16 on a GPU */
    bool f32;           /* compute in f32 everywhere */
    bool load_in_4bit;  /* quantise the layers' linears to nf4 while loading */
    bool quant_scratch; /* keep 4-bit weights in 4 bits (less memory, the same numbers) */
    bool few_tokens; /* most runs bring few tokens: on a GPU 4-bit weights stay in 4 bits, which is
                        where such products read them fastest */
    const char *adapter[AF_MODEL_ADAPTERS_MAX]; /* PEFT folders */
    double adapter_weight[AF_MODEL_ADAPTERS_MAX];
    int adapters;
} af_model_opts;

/* Opens a folder, a .gguf file or an org/name of the local cache. On success *out is the caller's,
 * to be closed with af_model_close. */
AF_CHECKED af_status af_model_open(af_model **out, const char *model, const af_model_opts *o,
                                   af_error *err);
void af_model_close(af_model *m); /* NULL is allowed */

/* The tokenizer and the chat template, opened at first use. Borrowed until af_model_close. */
AF_CHECKED af_status af_model_tokenizer(af_model *m, const af_tokenizer **out, af_error *err);
AF_CHECKED af_status af_model_template(af_model *m, const af_template **out, af_error *err);

const char *af_model_arch(const af_model *m); /* "llama" */
int64_t af_model_vocab(const af_model *m);
int64_t af_model_params(const af_model *m); /* numbers in the model */
const char *af_model_device_text(const af_model *m);

/* ---- logits and losses ---- */

/* Logits of every position: ids [n] of one sequence -> out [n][V]. */
AF_CHECKED af_status af_model_logits_of(af_model *m, const int32_t *ids, int64_t n, float *out,
                                        af_error *err);
/* Reads `input_ids` [B][T] (and `attention_mask`) from a safetensors file, writes `logits` F32
 * [B][T][V]; rows of masked positions are zeros. */
AF_CHECKED af_status af_model_logits_file(af_model *m, const char *in, const char *out,
                                          af_error *err);

typedef struct af_eval_result {
    double loss;     /* mean over the tokens that count */
    double accuracy; /* share of them that were the arg max */
    int64_t tokens;  /* that count */
    int64_t rows;    /* sequences */
} af_eval_result;

/* One sequence: labels unshifted, -100 = does not count; the first label never counts. */
typedef struct af_token_row {
    const int32_t *ids, *labels;
    int64_t count;
} af_token_row;
/* Adds sequences to a running result (all zero at first: the fields are sums until
 * af_eval_finish). */
typedef struct af_eval af_eval;
AF_CHECKED af_status af_eval_new(af_eval **out, af_model *m, int64_t rows, af_error *err);
AF_CHECKED af_status af_eval_add(af_eval *e, af_token_row row, af_error *err);
/* Runs what is left and gives the means. */
AF_CHECKED af_status af_eval_finish(af_eval *e, af_eval_result *out, af_error *err);
void af_eval_free(af_eval *e); /* NULL is allowed */
/* Over a plain text, cut into windows of `seq` tokens. */
AF_CHECKED af_status af_model_eval_text(af_model *m, const char *path, int64_t seq,
                                        af_eval_result *out, af_error *err);

typedef struct af_eval_data_opts {
    const char *type;          /* the dataset's shape; NULL = detected */
    const char *chat_template; /* NULL = the model's */
    bool train_on_inputs;      /* prompts count too */
    int64_t sequence_len;      /* longer records are cut */
} af_eval_data_opts;
/* Over a dataset of any shape that training reads. */
AF_CHECKED af_status af_model_eval_dataset(af_model *m, const char *path,
                                           const af_eval_data_opts *o, af_eval_result *out,
                                           af_error *err);
/* The dataset is there and its keys are known: what can be said of it before any work. */
AF_CHECKED af_status af_eval_data_find(const char *path, const af_eval_data_opts *o, af_error *err);

/* ---- generation ---- */

typedef enum af_stop {
    AF_STOP_LENGTH, /* max_new tokens were made */
    AF_STOP_EOS,    /* a stop token: the last of the ids, not part of the text */
    AF_STOP_STRING, /* a stop string; the text ends before it */
    AF_STOP_USER,   /* the callback said so */
} af_stop;
const char *af_stop_name(af_stop s); /* "length", "eos", "stop", "user" */

typedef struct af_sample_opts {
    double temperature;    /* 0 = greedy */
    double top_p;          /* 0 or 1 = off */
    double min_p;          /* 0 = off */
    int64_t top_k;         /* 0 = off */
    double repeat_penalty; /* 0 or 1 = off */
    uint64_t seed;
} af_sample_opts;

/* What the model's generation_config.json suggests (greedy when it has none). */
AF_CHECKED af_status af_model_sampling(af_model *m, af_sample_opts *out, af_error *err);

enum { AF_STOPS_MAX = 64 };

/* New text of one sequence: complete characters only. id is the token that completed it. False
 * stops this sequence. */
typedef bool af_text_hook(void *user, int sequence, int32_t id, const char *text, uint64_t len);

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
    bool once;         /* the caches need not serve another call: no room for longer prompts */
    af_text_hook *hook;
    void *user;
} af_generate_opts;

typedef struct af_generated {
    int32_t *ids; /* new tokens, the stop token included */
    int64_t count;
    char *text; /* NULL when the model has no tokenizer */
    uint64_t text_len;
    af_stop stop;
} af_generated;

/* out[sequences]; clear each with af_generated_clear. Caches grow as needed and are kept between
 * calls; a prompt that begins with what the last call ended with (a conversation) reuses them. */
AF_CHECKED af_status af_model_generate(af_model *m, const af_generate_opts *o, af_generated *out,
                                       af_error *err);
void af_generated_clear(af_generated *r);

/* Seconds spent in the last af_model_generate, and the tokens of each part. */
typedef struct af_generate_times {
    double prompt_s, token_s;
    int64_t prompt_tokens, new_tokens;
} af_generate_times;
af_generate_times af_model_times(const af_model *m);

#ifdef __cplusplus
}
#endif
#endif
