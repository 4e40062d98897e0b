/* decoder.h - a decoder and its sequences, for the files of this folder.
 *
 * A request waits in a list until a slot and all pages it may ever need are free; it is then a
 * sequence. Its tokens are fed until the cache has all of them, and the logits of the last one give
 * the next. */
#ifndef AF_DECODER_H
#define AF_DECODER_H

#include "afinar/decode.h"
#include "decode/decode_graph.h"
#include "decode/decode_pages.h"
#include "model/model_state.h"
#include "model/sample.h"

#include <pthread.h>

enum { AF_PAGE_TOKENS = 128, AF_DECODE_PICKS = 64 };

typedef struct af_decode_seq {
    struct af_decode_seq *next; /* in the list of those that wait */
    uint64_t ticket;
    af_decode_request r; /* ids, bias: NULL here */
    af_logit_bias *bias;
    int32_t *ids; /* prompt, then what was made */
    int64_t count, prompt;
    int64_t cached; /* the first tokens, whose keys and values (or states) the slot has */
    int64_t prefix; /* of the prompt, found in pages when it began */
    int64_t most;   /* the largest number of tokens it may have */
    int64_t told;   /* prompt tokens whose log-probabilities the caller has */
    int64_t pages;  /* it has */
    int64_t kept;   /* of them: those that later prompts may take */
    bool cancelled;
} af_decode_seq;

/* An adapter that requests choose. */
typedef struct af_decode_adapter {
    char *name; /* NULL: this place is free */
    af_adapter *values;
    af_adapter_columns *columns; /* [modules of the spec], or NULL */
    bool borrowed;               /* the values are another's */
    uint64_t serial;             /* of pages that hold prompts with it */
} af_decode_adapter;

struct af_decoder {
    af_model *m;
    const af_tokenizer *tokenizer; /* NULL: only the config's end tokens are known */
    af_decode_sizes z;
    af_decode_graph graph;
    bool own_adapter; /* the model's adapter is number 1 here, not part of the base */
    bool *module;     /* by spec module: one of the adapters has it */
    af_decode_adapter *adapter;
    int adapters; /* places, some of them free */
    uint64_t adapter_serials;
    int64_t context, V;
    int slots;
    af_decode_seq **slot;          /* [slots], NULL = free */
    af_decode_seq *first, *at_end; /* those that wait */
    af_decode_feed *feed;          /* [z.seqs] of the next run */
    int32_t *table;                /* [z.seqs][z.table]: the pages of each sequence */
    af_decode_pages pages;
    bool shares; /* prompts that begin alike share pages */
    uint64_t tickets;
    af_decoder_counts counts;
    double prompt_s, token_s; /* spent in runs */
    /* scratch of one row of logits */
    float *logits;
    af_token_candidate *candidates;
    uint32_t *allowed;
    /* tickets cancelled since the last step */
    pthread_mutex_t lock;
    uint64_t *cancel;
    int64_t cancels, cancel_space;
};

/* decoder.c */
typedef struct af_decode_plan {
    int64_t context, rows, pages, page;
    int slots;
    bool embeds; /* af_decoder_embed may be called */
    bool own_adapter;
    bool shares;
    bool rounds; /* see af_decoder_opts.round_activations */
    bool draws;  /* the device chooses tokens (decode_graph.h): on a GPU */
} af_decode_plan;
AF_CHECKED af_status af_decode_open(af_decoder **out, af_model *m, const af_decode_plan *p,
                                    af_error *err);
/* The sizes of its graph, without adapters chosen per row. */
af_decode_sizes af_decode_sizes_of(const af_decode_plan *p);
af_engine_from af_decode_from(const af_decoder *d);
const af_model_spec *af_decode_spec(const af_model *m);

/* decode_token.c: whether the device can choose the next token of s, and by what. */
bool af_decode_draws(const af_decoder *d, const af_decode_seq *s, double want[AF_DRAW_WANTS]);
/* What it chose (choice and top of the row), or logits [V] of the last row of s -> its next token,
 * the hook included. *end: the sequence is finished. */
void af_decode_drawn(af_decoder *d, af_decode_seq *s, const double *choice, const double *top,
                     bool *end);
void af_decode_next(af_decoder *d, af_decode_seq *s, const float *logits, bool *end);
/* The log-probability of token `index`, given logits [V] of the row before it, where the request
 * wants it of its prompt. False cancels. */
bool af_decode_prompt(af_decoder *d, af_decode_seq *s, int64_t index, const float *logits);
/* The last call of a sequence that made no further token. */
void af_decode_finish(af_decode_seq *s, af_decode_end end);

/* decode_queue.c */
void af_decode_seq_free(af_decode_seq *s);
/* Ends what was cancelled; takes in what fits. */
void af_decode_take_cancelled(af_decoder *d);
void af_decode_admit(af_decoder *d);
/* Frees a slot and its pages. */
void af_decode_release(af_decoder *d, int slot);
/* Pages that the prompt has filled may be taken by others. */
void af_decode_keep(af_decoder *d, int slot);
AF_CHECKED af_status af_decode_check_ids(const af_decoder *d, const int32_t *ids, int64_t count,
                                         int adapter, af_error *err);

/* decode_adapters.c: the place of adapter id, -1 for the base, -2 when there is none. */
int af_decode_place(const af_decoder *d, int id);
/* Whether an adapter can be chosen per row; *why says what it has. */
bool af_decode_fits(const af_adapter *a, const char **why);
/* decode_columns.c: *out is NULL for an adapter that does nothing to columns. */
AF_CHECKED af_status af_adapter_columns_new(af_adapter_columns **out, const af_adapter *a,
                                            af_loader *base, af_error *err);
void af_adapter_columns_free(af_adapter_columns *c, int modules); /* NULL is allowed */
/* The model's own as number 1. */
AF_CHECKED af_status af_decode_add_own(af_decoder *d, af_error *err);
void af_decode_clear_adapters(af_decoder *d);
#endif
