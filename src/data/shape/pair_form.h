/* pair_form.h - the forms that Axolotl's preference types give to a record: `type: chatml.intel`
 * and similar. A form says which fields a record has and what text is put around them. */
#ifndef AF_PAIR_FORM_H
#define AF_PAIR_FORM_H

#include "data/read/data_opts.h"

typedef enum af_pair_form_kind {
    AF_FORM_AS_IS,     /* passthrough: prompt, chosen, rejected as the record has them */
    AF_FORM_FIELD,     /* a system text, a prompt and answers, each a string */
    AF_FORM_ANY_FIELD, /* the same; the prompt is the first field there is of a list */
    AF_FORM_TWO_TURNS, /* chosen and rejected are a question and its answer */
    AF_FORM_ANSWERS,   /* a prompt, and chosen and rejected of two messages each */
    AF_FORM_HISTORY,   /* KTO: the completion is a whole conversation */
    AF_FORM_RANKS,     /* a list of answers with ranks */
    AF_FORM_LAST,      /* chat template: messages, and an answer on each side */
    AF_FORM_WHOLE,     /* chat template: a whole conversation on each side */
    AF_FORM_ORPO,      /* chat template: the same with a system text; the prompt is cut off */
    AF_FORM_MESSAGES,  /* chat template: a system text, a question and answers, each a string */
    AF_FORM_OWN,       /* formats of the user's own */
} af_pair_form_kind;

/* What is written around a turn: before and after the name of its role, and after its text. */
typedef struct af_pair_style {
    const char *begin, *middle, *end;
    const char *answer_end; /* after an answer */
} af_pair_style;

typedef struct af_pair_form {
    const char *type;
    af_pair_form_kind kind;
    const af_pair_style *style; /* NULL: none */
    const char *prompt;         /* the field of the prompt */
    /* AF_FORM_OWN: with {system}, {prompt}, {chosen}, {rejected}, {completion} */
    const char *prompt_format, *answer_format[2];
} af_pair_form;

/* As the run file writes the method. */
const char *af_rl_name(af_rl rl);
/* The form that `type` names for a method, or NULL. A name without a dot is that of its `default`.
 */
const af_pair_form *af_pair_form_find(const char *type, af_rl rl);
#endif
