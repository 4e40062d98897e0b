/* question_fields.c - question and answer under the names public datasets give them. */
#include "data/shape/shape.h"

bool af_question_fields(const json_t *record, const char **question, const char **answer)
{
    static const char *const questions[] = {"question", "query",   "prompt", "instruction", "input",
                                            "user",     "problem", "Q",      "Question"};
    static const char *const answers[] = {"answer",    "response", "output", "completion", "reply",
                                          "assistant", "solution", "A",      "Answer"};
    for (size_t i = 0; i < AF_LEN(questions); i++)
        for (size_t k = 0; k < AF_LEN(answers); k++)
            if (json_is_string(json_object_get(record, questions[i])) &&
                json_is_string(json_object_get(record, answers[k]))) {
                *question = questions[i];
                *answer = answers[k];
                return true;
            }
    return false;
}
