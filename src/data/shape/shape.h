/* shape.h - from a record of any known shape to what is to be tokenised.
 *
 * An item has one conversation (most shapes) or two (preference: chosen, rejected). Its content is
 * messages for the chat template, a prompt with its completion, segments, or token ids. */
#ifndef AF_SHAPE_H
#define AF_SHAPE_H

#include "data/read/record_warnings.h"
#include "data/shape/data_source.h"

#include <jansson.h>

typedef enum af_conversation_kind {
    AF_CONVERSATION_CHAT,
    AF_CONVERSATION_PLAIN,
    AF_CONVERSATION_PROMPT, /* prompt and answer as the source's af_prompt writes them */
    AF_CONVERSATION_SEGMENTS,
    AF_CONVERSATION_TOKENS,
} af_conversation_kind;

typedef struct af_conversation {
    af_conversation_kind kind;
    json_t *messages;                  /* chat: own; as the template sees them. prompt: the same in
                                          turns, for models with a template, or NULL */
    bool *train;                       /* chat: own; [messages] false = no loss whatever the role */
    json_t *tools;                     /* chat: own, or NULL */
    json_t *variables;                 /* chat: own, or NULL: further ones of the template */
    const json_t *prompt, *completion; /* plain: strings of the record; prompt NULL = none */
    char *prompt_text, *answer_text;   /* prompt: own */
    uint64_t prompt_len, answer_len;
    const json_t *segments;     /* of the record */
    const json_t *ids, *labels; /* of the record */
    const json_t *mask[3]; /* of the record, where it has no labels: lists of 0 and 1, or NULL */
    const json_t *seen;    /* of the record: 0 = padding, which is left out; or NULL */
} af_conversation;

typedef struct af_item {
    af_conversation conversation[2];
    int conversations;         /* 0: the record is skipped, with a warning */
    bool has_label, label;     /* kto */
    const json_t *prompt_text; /* preference: a string of the record, or */
    json_t *prompt;            /* own: messages */
    /* pairs of `rl` (pair_item.h): */
    size_t prompt_messages; /* of both chats */
    bool equal;             /* the answers are the same */
    float margin;
    float *target; /* own: of a text, its class, or a value for each label */
    int targets;
} af_item;

#define AF_ROLE_CALL "tool_call" /* ms-swift: a turn whose content is a call, or a list of them */
#define AF_KTO_TAG   "kto_tag"   /* LLaMA-Factory: a conversation with a label for its last turn */
/* ms-swift: another last answer to a conversation, as a text or in a whole conversation. */
#define AF_REJECTED_TEXT  "rejected_response"
#define AF_REJECTED_TURNS "rejected_messages"
/* Masks of token ids without labels: 1 = with loss. */
#define AF_ANSWER_MASK     "assistant_masks"
#define AF_COMPLETION_MASK "completion_mask"
#define AF_LOSS_MASK       "loss_mask"
/* Padding, and where packed rows begin anew. */
#define AF_ATTENTION_MASK "attention_mask"
#define AF_POSITION_IDS   "position_ids"
#define AF_SEQ_LENGTHS    "seq_lengths"
/* TRL's field for further variables of the chat template. */
#define AF_TEMPLATE_VARIABLES "chat_template_kwargs"
#define AF_ENABLE_THINKING    "enable_thinking"

/* The shape of a first record by its fields. */
AF_CHECKED af_status af_shape_detect(af_data_source *s, const json_t *record,
                                     const af_source_loc *p, af_error *err);
/* The fields of a question and its answer in a record of no known shape, by their names, or the one
 * that has turns. */
typedef struct af_question {
    const char *question, *answer;
    const char *input, *system; /* or NULL */
    char turns[64];             /* "" = there are none */
    bool sharegpt;
} af_question;
bool af_question_fields(const json_t *record, af_question *out);
/* The keys of a dataset that name them, `between` two of them. */
void af_question_keys(af_buf *b, const af_question *q, const char *between);
/* The error about a record of no known shape, with what to write for it. `q`: its fields, or NULL.
 */
AF_CHECKED af_status af_shape_unknown(const json_t *record, const af_question *q,
                                      const af_source_loc *p, af_error *err);
/* "a, b, c": the keys of a record, a few of them. */
const char *af_record_keys(const json_t *record, char *buf, size_t size);
/* Checks a record against the source's shape and converts it. Clear *out with af_item_clear. */
AF_CHECKED af_status af_shape_item(af_item *out, const af_data_source *s, const json_t *record,
                                   const af_source_loc *p, af_error *err);
void af_item_clear(af_item *i);
/* Puts a message of the system in front of the conversations that have none. */
AF_CHECKED af_status af_item_put_system(af_item *out, const char *text, af_error *err);

/* A field that must be there, and the error about one of another type. */
AF_CHECKED af_status af_field_need(const json_t **out, const af_data_source *s,
                                   const json_t *record, const char *field, const af_source_loc *p,
                                   af_error *err);
AF_CHECKED af_status af_field_wrong_type(const char *field, const json_t *v, const char *want,
                                         const af_source_loc *p, af_error *err);
/* A field that must be a string; one that may be missing, null or empty (then *out is NULL). */
AF_CHECKED af_status af_field_string(const json_t **out, const af_data_source *s,
                                     const json_t *record, const char *field,
                                     const af_source_loc *p, af_error *err);
AF_CHECKED af_status af_field_maybe_string(const json_t **out, const json_t *record,
                                           const char *field, const af_source_loc *p,
                                           af_error *err);

/* shape_plain.c: records without turns. */
AF_CHECKED af_status af_segments_item(af_item *out, const af_data_source *s, const json_t *record,
                                      const af_source_loc *p, af_error *err);
AF_CHECKED af_status af_plain_text_item(af_item *out, const af_data_source *s, const json_t *record,
                                        const af_source_loc *p, af_error *err);
AF_CHECKED af_status af_tokens_item(af_item *out, const af_data_source *s, const json_t *record,
                                    const af_source_loc *p, af_error *err);
/* shape_prompt.c: a record in the prompt of its source. */
AF_CHECKED af_status af_prompt_item(af_item *out, const af_data_source *s, const json_t *record,
                                    const af_source_loc *p, af_error *err);

/* self_cognition.c: a copy of the record with the names of the model and its author (json_decref).
 */
AF_CHECKED af_status af_self_cognition_fill(json_t **out, const af_data_source *s,
                                            const json_t *record, const af_source_loc *p,
                                            af_error *err);

/* refused_fields.c: refuses a record whose fields change what it means and are not trained on, and
 * a message with images or sound in a field or a part of its content. */
AF_CHECKED af_status af_record_refuse(const af_data_source *s, const json_t *record,
                                      const af_source_loc *p, af_error *err);
AF_CHECKED af_status af_message_refuse_media(const af_data_source *s, const json_t *m,
                                             const json_t *content, size_t number,
                                             const af_source_loc *p, af_error *err);
/* Whether such a field may have this name; `ignore_fields`: whether it names a field, and the
 * removal of those from a record or message. */
bool af_field_refusable(const af_data_source *s, const char *name);
bool af_field_ignored(const af_data_source *s, const char *name);
void af_fields_drop_ignored(const af_data_source *s, json_t *object);

/* json_fields.c: brings what a record has as JSON text, or inside a field, to where shapes look. */
AF_CHECKED af_status af_record_open_fields(const af_data_source *s, json_t *record, af_error *err);
/* public_records.c: fields of public datasets as messages or as a pair; false: memory is short. */
bool af_record_open_public(const af_data_source *s, json_t *record);
/* vendor_records.c: messages of other APIs. The same. */
bool af_record_open_vendor(const af_data_source *s, json_t *record);
/* line_calls.c: "functions" and "function_calls" of messages. The same. */
bool af_record_open_line_calls(const af_data_source *s, json_t *record);
/* glaive_chat.c: "system" and "chat". The same. */
bool af_record_open_glaive(const af_data_source *s, json_t *record);
extern const char *const af_public_columns[]; /* that messages are made of; the last is NULL */
#define AF_COGNITION_TAG "tag"                /* "zh": a record of self-cognition in Chinese */
#define AF_FUNCTIONS     "functions"          /* what OpenAI's first API calls "tools" */
/* Its "function_call" of a message, the n-th of a record, as "tool_calls". */
AF_CHECKED af_status af_message_open_call(json_t *m, size_t number, af_error *err);
/* A list or object in a text, as JSON or as Python prints it: a new reference, NULL when it is
 * neither. */
json_t *af_json_or_python(const json_t *v);
/* The same of a list. */
json_t *af_json_text_list(const json_t *v);

/* A list of turns is sharegpt's when its first turn has from and value. */
bool af_turns_sharegpt(const af_data_source *s, const json_t *turns);
/* The prompt of a pair: a field of that name, the turns before the answers, or a question. */
const json_t *af_pair_prompt(const af_data_source *s, const json_t *record, bool texts);
/* System text, history and question of an instruction as messages. */
AF_CHECKED af_status af_alpaca_question(af_conversation *t, const af_data_source *s,
                                        const json_t *record, const af_source_loc *p,
                                        af_error *err);

/* template_fields.c: what a record has for the chat template besides messages: tools, further
 * variables. */
AF_CHECKED af_status af_template_fields_take(af_conversation *t, const af_data_source *s,
                                             const json_t *record, const af_source_loc *p,
                                             af_error *err);

/* shape_chat.c */
/* Takes a list of turns into *out (appended to what is there), checked and cleaned. `field` names
 * the list in messages. */
AF_CHECKED af_status af_turns_take(af_conversation *out, const af_data_source *s,
                                   const json_t *turns, const char *field, bool sharegpt,
                                   const af_source_loc *p, af_error *err);
AF_CHECKED af_status af_turn_add(af_conversation *t, const char *role, const json_t *content,
                                 bool train, af_error *err);
bool af_role_trained(const af_data_source *s, const char *role);
const char *af_type_words(const json_t *v); /* "a list", "a number", ... */
void af_conversation_clear(af_conversation *t);
/* Can a record's field of this name matter to records of the source's shape? The source, as
 * af_columns_want hands it over. */
bool af_shape_reads(const void *source, const char *name);
/* Refuses a record that lost a number in a field that matters (`lost` of af_record). */
AF_CHECKED af_status af_shape_lost(const af_data_source *s, const char *names, uint64_t len,
                                   const af_source_loc *p, af_error *err);
#endif
