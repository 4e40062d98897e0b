/* template_parts.h - what a chat template puts around messages, found by rendering it with marks.
 */
#ifndef AF_TEMPLATE_PARTS_H
#define AF_TEMPLATE_PARTS_H

#include "base/base.h"

typedef struct af_template_parts {
    bool found;                           /* the model has a template that can be taken apart */
    bool has_system;                      /* the template shows a system message */
    char *before_system, *system_to_user; /* with a system message */
    char *before_user;                    /* without one */
    char *user_to_answer;                 /* end of the question, start of the answer */
    char *after_answer;
    int32_t end_id; /* the special token that ends a turn, -1 = none */
    char *end_text; /* its text, or NULL */
    bool end_stops; /* it is among the tokens that stop generation */
} af_template_parts;

/* `path` is a model folder or a .gguf file. A model without tokenizer or template gives found =
 * false. */
AF_CHECKED af_status af_template_parts_read(af_template_parts *out, const char *path,
                                            af_error *err);
void af_template_parts_clear(af_template_parts *t);
/* An Ollama Modelfile for a GGUF file. *text is malloc'ed. */
AF_CHECKED af_status af_modelfile_text(char **text, const char *gguf_name,
                                       const af_template_parts *t, const char *adapter_name,
                                       af_error *err);
#endif
