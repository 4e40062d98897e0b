/* question_fields.c - question and answer under the names public datasets give them. */
#include "data/shape/shape.h"

static bool is_text(const json_t *record, const char *name)
{
    return json_is_string(json_object_get(record, name));
}

bool af_question_fields(const json_t *record, af_question *out)
{
    static const char *const questions[] = {"question", "query",   "prompt", "instruction", "input",
                                            "user",     "problem", "Q",      "Question"};
    static const char *const answers[] = {"answer",    "response", "output", "completion", "reply",
                                          "assistant", "solution", "A",      "Answer"};
    for (size_t i = 0; i < AF_LEN(questions); i++)
        for (size_t k = 0; k < AF_LEN(answers); k++)
            if (is_text(record, questions[i]) && is_text(record, answers[k])) {
                *out = (af_question){.question = questions[i], .answer = answers[k]};
                out->input = is_text(record, "context") ? "context" : NULL;
                out->system = is_text(record, "system_prompt") ? "system_prompt" : NULL;
                return true;
            }
    return false;
}

void af_question_keys(af_buf *b, const af_question *q, const char *between)
{
    af_buf_printf(b, "field_instruction: %s%sfield_output: %s", q->question, between, q->answer);
    if (q->input)
        af_buf_printf(b, "%sfield_input: %s", between, q->input);
    if (q->system)
        af_buf_printf(b, "%sfield_system: %s", between, q->system);
}
