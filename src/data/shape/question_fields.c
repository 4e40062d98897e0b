/* question_fields.c - records of no known shape: question and answer under the names public
 * datasets give them, and what to write about a record's fields. */
#include "data/shape/shape.h"

#include "base/buf.h"

const char *af_record_keys(const json_t *record, char *buf, size_t size)
{
    size_t used = 0, n = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)record, key, value)
    {
        if (used < size && n++ < 12)
            used += (size_t)snprintf(buf + used, size - used, "%s%.40s", used ? ", " : "", key);
    }
    if (!used)
        buf[0] = 0;
    return buf;
}

static bool is_text(const json_t *record, const char *name)
{
    return json_is_string(json_object_get(record, name));
}

/* A field of the record that has turns, if a run file can name it as it is. */
static bool find_turns(const json_t *record, af_question *out)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)record, key, v)
    {
        const json_t *first = json_array_get(v, 0);
        const size_t n =
            strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        out->sharegpt = json_object_get(first, "from") && json_object_get(first, "value");
        if (key[n] || n >= sizeof out->turns ||
            !(out->sharegpt ||
              (json_object_get(first, "role") && json_object_get(first, "content"))))
            continue;
        memcpy(out->turns, key, n + 1);
        return true;
    }
    return false;
}

bool af_question_fields(const json_t *record, af_question *out)
{
    static const char *const questions[] = {"question", "query",       "prompt",      "instruction",
                                            "input",    "user",        "problem",     "Q",
                                            "Question", "Instruction", "INSTRUCTION", "inputs"};
    /* a worked solution before the number it ends with */
    static const char *const answers[] = {"response",  "output",   "completion",         "reply",
                                          "assistant", "solution", "generated_solution", "answer",
                                          "A",         "Answer",   "Response",           "RESPONSE",
                                          "targets"};
    for (size_t i = 0; i < AF_LEN(questions); i++)
        for (size_t k = 0; k < AF_LEN(answers); k++)
            if (is_text(record, questions[i]) && is_text(record, answers[k])) {
                *out = (af_question){.question = questions[i], .answer = answers[k]};
                out->input = is_text(record, "context") ? "context" : NULL;
                out->system = is_text(record, "system_prompt") ? "system_prompt" : NULL;
                return true;
            }
    *out = (af_question){0};
    return find_turns(record, out);
}

void af_question_keys(af_buf *b, const af_question *q, const char *between)
{
    if (*q->turns) {
        af_buf_printf(b, "type: %s%sfield_messages: %s", q->sharegpt ? "sharegpt" : "messages",
                      between, q->turns);
        return;
    }
    af_buf_printf(b, "field_instruction: %s%sfield_output: %s", q->question, between, q->answer);
    if (q->input)
        af_buf_printf(b, "%sfield_input: %s", between, q->input);
    if (q->system)
        af_buf_printf(b, "%sfield_system: %s", between, q->system);
}

static af_status advise_fields(const json_t *record, const af_question *q, const af_source_loc *p,
                               af_error *err)
{
    char keys[400];
    af_buf b = {0};
    af_source_loc at = *p;
    if (p->csv)
        at.line = 1; /* the header */
    af_question_keys(&b, q, ", ");
    const af_status st =
        b.bad ? af_fail_nomem(err, "a message", 0)
              : af_source_loc_fail(&at, err,
                                   "keys [%s] are not a known shape of a dataset; for %s write "
                                   "{path: ..., %s}",
                                   af_record_keys(record, keys, sizeof keys),
                                   *q->turns ? "conversations"
                                             : "questions and answers in the chat template",
                                   b.data);
    af_buf_clear(&b);
    return st;
}

af_status af_shape_unknown(const json_t *record, const af_question *q, const af_source_loc *p,
                           af_error *err)
{
    char keys[400];
    if (q)
        return advise_fields(record, q, p, err);
    return af_source_loc_fail(p, err,
                              "keys [%s] are not a known shape of a dataset (alpaca, sharegpt, "
                              "messages, prompt and completion, text, preference, kto, "
                              "input_output); name the fields (type, field_...)",
                              af_record_keys(record, keys, sizeof keys));
}
