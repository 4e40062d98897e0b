/* renderer.h - from a conversation to token ids with labels: rendering, loss mask, tokenising.
 *
 * The loss mask of a conversation is found by differential rendering, so that it is right for any
 * template: what an assistant must produce begins where the rendering of the turns before it, with
 * the generation prompt, ends, and extends through its end-of-turn token. Templates with
 * {% generation %} blocks mark it themselves. An answer whose prompt is not in the whole (because
 * thoughts are left out once other turns follow) is trained in a row that ends with it. A rule that
 * does not fit a template is refused with the message's number, never guessed. */
#ifndef AF_RENDERER_H
#define AF_RENDERER_H

#include "afinar/chat.h"
#include "afinar/text.h"
#include "data/shape/shape.h"
#include "format/chat/turn_template.h"

enum { AF_EOT_MAX = 8 };

/* A message that deserves a warning. */
typedef struct af_answer_note {
    size_t message;    /* its number; 0: there is none */
    const char *field; /* of it, or NULL */
    bool lost;         /* a row that ends with it would show it */
} af_answer_note;

typedef struct af_row {
    char *text;
    uint64_t len;
    int32_t *ids, *labels; /* labels[i] is ids[i] or -100 */
    int64_t count, room;
    af_answer_note missing; /* the text does not have this field of a trained answer */
    af_answer_note departs; /* the answer does not begin as the generation prompt ends */
    af_answer_note unshown; /* a message, not an answer, that the template leaves out */
    int64_t beyond;         /* rows of later answers that sequence_len leaves nothing of */
    bool cut, lost_end;     /* by a turn template, to sequence_len; an answer's end, too */
    struct af_row *next;    /* own: the next row of the record */
} af_row;
void af_row_clear(af_row *r);

typedef struct af_renderer_times {
    double render, encode; /* seconds */
} af_renderer_times;

typedef struct af_renderer {
    const af_tokenizer *tokenizer; /* NULL: only token ids can be taken */
    af_template *chat;             /* NULL: no template; `why` has the reason */
    af_error why;
    bool want_text;                /* rows of token ids get their text, too */
    const af_turn_template *turns; /* not NULL: conversations are rendered by it, not by `chat` */
    const char *turns_name, *turns_system; /* for messages; over its default system text, or NULL */
    int64_t cutoff;                        /* of its rows; 0 = none */
    json_t *variables;              /* of every conversation; its own come first. NULL = none */
    bool mask_history, no_thinking; /* only the last answer is trained; thoughts left out */
    bool mask_empty_thoughts;       /* one at the beginning of an answer is not trained */
    bool split_turns; /* rows for answers that the whole conversation does not show whole */
    unsigned form;    /* of af_message_form */
    char *eot[AF_EOT_MAX];
    int eots;
    /* the mark of the next turn, where that is what ends an answer, or one that calls a tool; of
     * eot[], or NULL */
    const char *answer_end, *call_end;
    af_encoding encoding; /* scratch */
    af_renderer_times times;
    uint64_t steps; /* of all renderings */
} af_renderer;

/* `model`: resolved folder or file. `chat_template`: NULL, a .jinja file, a name that the model or
 * the table of named_template.h has, or the template itself. A missing template is an error only
 * once it is needed. */
AF_CHECKED af_status af_renderer_init(af_renderer *s, const af_tokenizer *tokenizer,
                                      const char *model, const char *chat_template, af_error *err);
/* The same with the turn template that `o` names. */
AF_CHECKED af_status af_renderer_init_turns(af_renderer *s, const af_tokenizer *tokenizer,
                                            const af_data_opts *o, af_error *err);
/* A turn template as Jinja with the special tokens of a tokenizer (malloc'ed), NULL when memory is
 * short. */
char *af_renderer_turns_jinja(const af_turn_template *t, const af_tokenizer *tokenizer,
                              const char *system);
/* chat_template_kwargs of a run file: variables of the template; NULL = none. Before other texts
 * that end a turn are added. */
AF_CHECKED af_status af_renderer_set_variables(af_renderer *s, const af_yaml *map, af_error *err);
/* Those of the run and of the conversation, a new reference; NULL when there are none. */
json_t *af_renderer_variables(const af_renderer *s, const af_conversation *t);
void af_renderer_clear(af_renderer *s);
/* `chat_template` asks for the model's own one. */
bool af_renderer_own_template(const char *chat_template);
/* The template that a chat_template value names. *bare: it came without the model's special tokens.
 */
AF_CHECKED af_status af_renderer_template(af_template **out, bool *bare, const char *model,
                                          const char *chat_template, af_error *err);

/* Messages of *err have no file and line. A conversation with answers that the template does not
 * show as they would be generated, because other turns follow, is several rows, if `split`. */
AF_CHECKED af_status af_renderer_row(af_renderer *s, af_row *out, const af_conversation *t,
                                     const af_data_source *source, bool split, af_error *err);
/* The first n messages with the generation prompt. */
AF_CHECKED af_status af_renderer_prompt(af_renderer *s, char **text, uint64_t *len,
                                        const af_conversation *t, size_t n, af_error *err);
/* All messages, without the generation prompt. */
AF_CHECKED af_status af_renderer_whole(af_renderer *s, char **text, uint64_t *len,
                                       const af_conversation *t, af_error *err);
/* Appends a block of plain text to a row: special tokens with the first block, eos with the last.
 */
AF_CHECKED af_status af_renderer_append_text(af_renderer *s, af_row *row, const char *text,
                                             uint64_t len, bool first, bool last,
                                             const af_data_source *source, af_error *err);
bool af_renderer_is_eot(const af_renderer *s, int32_t id);

/* For those who build rows: an encoding in s->encoding; tokens after those of a row. */
AF_CHECKED af_status af_renderer_encode(af_renderer *s, const char *text, uint64_t len,
                                        bool special, af_error *err);
AF_CHECKED af_status af_row_append(af_row *r, const af_encoding *e, bool loss, af_error *err);
AF_CHECKED af_status af_row_add(af_row *r, int32_t id, bool loss, af_error *err);
/* What a text ends with, or NULL. LLaMA-Factory has it from the template, whose stop word may
 * replace eos; with that of Llama 3 a text does not end as a turn does. */
const char *af_renderer_text_end(const af_renderer *s);
/* Labels the tokens that hold a byte of the span; returns the first of them, for the next span. */
int64_t af_row_label(af_row *r, const af_encoding *e, int64_t from, af_span s, bool loss);
AF_CHECKED af_status af_renderer_need_template(const af_renderer *s, af_error *err);
/* conversation_rows.c: a conversation in the chat template. */
AF_CHECKED af_status af_chat_row(af_renderer *s, af_row *out, const af_conversation *t,
                                 const af_data_source *source, bool split, af_error *err);

/* ids_row.c */
AF_CHECKED af_status af_ids_row(af_renderer *s, af_row *out, const af_conversation *t,
                                af_error *err);
/* pair_notes.c: `missing` and `unshown` of a rendered row, the first by its number in the answer,
 * which begins with message `from`. */
AF_CHECKED af_status af_pair_notes(af_renderer *s, af_row *row, const af_conversation *t,
                                   size_t from, af_error *err);
/* turn_row.c */
AF_CHECKED af_status af_turn_row(af_renderer *s, af_row *out, const af_conversation *t,
                                 const af_data_source *source, af_error *err);
/* A preference record in a turn template: rows of all turns but the last and the answer, cut as
 * LLaMA-Factory cuts pairs, and the tokens before each answer. No tokens: the record is skipped. */
AF_CHECKED af_status af_turn_pair(af_renderer *s, af_row row[2], int64_t prompt[2],
                                  const af_item *item, af_error *err);

/* mask.c: the byte spans of a rendered conversation that carry loss. */
typedef struct af_loss_spans {
    char *text; /* the rendering */
    uint64_t len;
    af_span *span; /* sorted by message */
    int count;
    bool inside;    /* false: loss outside the spans (train_on_inputs) */
    bool *left;     /* [messages] the trained messages that need a row which ends with them */
    size_t left_to; /* messages up to the last of those; 0: there is none */
    af_answer_note missing, departs;
    size_t unshown; /* number of a message that the text does not have; 0: none */
    uint64_t cut;   /* bytes of the text that sequence_len may keep something of; 0: not known */
    char *other;    /* while they are found: the text to find them in instead, or NULL */
    uint64_t other_len;
} af_loss_spans;
/* What of a conversation is a row. */
typedef struct af_mask_part {
    size_t messages;  /* the first ones */
    const bool *only; /* [messages] those to train, or NULL: all that should be */
} af_mask_part;
/* Renderings of the first messages of a record, which several of its rows need. */
typedef struct af_kept_text {
    char *text; /* own */
    uint64_t len;
} af_kept_text;
typedef struct af_prefix_cache {
    af_kept_text *item; /* [count] own */
    size_t count;
    uint64_t bytes; /* of all texts */
    uint64_t began; /* steps of the renderer before the record */
} af_prefix_cache;
AF_CHECKED af_status af_prefix_cache_init(af_prefix_cache *c, const af_renderer *s, size_t messages,
                                          af_error *err);
void af_prefix_cache_clear(af_prefix_cache *c);
AF_CHECKED af_status af_mask_spans(af_renderer *s, af_loss_spans *out, const af_conversation *t,
                                   const af_mask_part *part, af_prefix_cache *cache,
                                   const af_data_source *source, af_error *err);
void af_loss_spans_clear(af_loss_spans *s);
/* Sets `cut`, to the text's length where all of it is kept. */
AF_CHECKED af_status af_loss_spans_cut(af_renderer *s, af_loss_spans *o, af_error *err);
/* eot.c: which tokens end a turn, found by rendering a probe. */
AF_CHECKED af_status af_renderer_find_eot(af_renderer *s, af_error *err);
/* One more text that ends a turn, blanks around it left out. */
AF_CHECKED af_status af_renderer_add_eot(af_renderer *s, const char *text, uint64_t n,
                                         af_error *err);
/* Renders the first n messages, and a turn of a tool or the user after them when `tail`. */
AF_CHECKED af_status af_renderer_render(af_renderer *s, char **text, uint64_t *len,
                                        const af_conversation *t, size_t n, bool prompt, bool tail,
                                        af_spans *generation, af_error *err);
#endif
