/* prompt.h - fixed prompts around the fields of a record, as the dataset types of Axolotl have
 * them. The chat template takes no part in them, but where `chat` says so. */
#ifndef AF_PROMPT_H
#define AF_PROMPT_H

#include "base/base.h"

/* Formats hold {system}, {instruction}, {input}, {output} or the name of another field in braces;
 * {{ and }} are braces. */
typedef enum af_prompt_answer {
    AF_ANSWER_TEXT,   /* the field is a text */
    AF_ANSWER_LISTED, /* {"text": ["answer", ...]} of SQuAD: the first one, without blanks around */
    AF_ANSWER_CHOSEN, /* a list, of which the field "label" ("2") chooses one */
} af_prompt_answer;

typedef struct af_prompt {
    const char *type;   /* as `type` names it */
    const char *system; /* before the turn of a record that has a system text; NULL = never */
    const char *turn, *turn_no_input; /* with and without {input} */
    const char *answer;               /* NULL = {output} */
    const char *instruction, *input, *output,
        *system_field;                /* what the fields are called; NULL = as usual */
    const char *system_text;          /* of a record without a system field; NULL = none */
    bool choices;                     /* {input} is a list, written as "- "quoted"" lines */
    bool whole;                       /* tokenised in one piece, not prompt and answer apart */
    bool chat;                        /* turns of user and assistant, for the chat template */
    bool either;                      /* the same where the model has a template, else texts */
    const char *asks;                 /* either: what the user says; NULL = as `turn` */
    const char *said, *said_no_input; /* formats of a turn of the system before them, or NULL */
    af_prompt_answer pick;
    bool maybe_output; /* a record without an answer is one with an empty answer */
} af_prompt;

/* The prompt of a `type` ("alpaca", "alpaca:chat", "context_qa.load_v2"), or NULL. */
const af_prompt *af_prompt_find(const char *type);
#endif
