/* turn_case.h - conversations in small templates with the shapes of published ones, and their rows
 * as text: trained tokens stand in brackets, rows one per line. */
#ifndef AF_TURN_CASE_H
#define AF_TURN_CASE_H

#include "data_case.h"

static const char *const marks[] = {NULL, "<s>", "</s>", "<call>", "<user>", "<tool>", "<bot>"};

/* Every character is a token, and so are the marks. */
static inline void write_model(const data_case *c)
{
    af_error err;
    af_buf b = {0};
    static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    af_buf_str(&b, "{\"added_tokens\": [");
    for (size_t i = 1; i < AF_LEN(marks); i++)
        af_buf_printf(&b, "%s{\"id\": %zu, \"content\": \"%s\", \"special\": true}",
                      i > 1 ? ", " : "", i, marks[i]);
    af_buf_str(&b, "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"\\n\": 10");
    for (char ch = ' '; ch < 127; ch++)
        af_buf_printf(&b, ", \"%s%c\": %d", ch == '"' || ch == '\\' ? "\\" : "", ch, ch);
    af_buf_str(&b, "}}}");
    CHECK_OK(af_dir_make(case_path(c, "model"), &err), err);
    case_write(c, "model/tokenizer.json", b.data, b.len);
    case_write(c, "model/tokenizer_config.json", config, strlen(config));
    af_buf_clear(&b);
}

static inline void add_row(af_buf *b, const json_t *row)
{
    const json_t *ids = json_object_get(row, "ids"), *labels = json_object_get(row, "labels");
    bool inside = false;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));
        const bool loss = json_integer_value(json_array_get(labels, i)) != -100;
        if (loss != inside)
            af_buf_char(b, loss ? '[' : ']');
        inside = loss;
        if (id < (json_int_t)AF_LEN(marks))
            af_buf_str(b, marks[id]);
        else
            af_buf_char(b, (char)id);
    }
    af_buf_str(b, inside ? "]\n" : "\n");
}

static inline void write_case(const data_case *c, const char *jinja, const char *keys,
                              const char *messages)
{
    char more[2000], record[2000], model[600];
    snprintf(record, sizeof record, "{\"messages\": [%s]}\n", messages);
    case_write(c, "t.jinja", jinja, strlen(jinja));
    case_write(c, "d.jsonl", record, strlen(record));
    snprintf(more, sizeof more, "chat_template: %s/t.jinja\n%s\ndatasets: [{path: %s/d.jsonl}]\n",
             c->dir, keys, c->dir);
    snprintf(model, sizeof model, "%s/model", c->dir);
    case_run(c, model, more);
}

/* What the preview gives for a record, the keys and the template. */
static inline void check(data_case *c, const char *jinja, const char *keys, const char *messages,
                         const char *want)
{
    af_buf b = {0};
    write_case(c, jinja, keys, messages);
    CHECK_OK(case_preview(c), c->err);
    af_buf_str(&b, "");
    for (size_t i = 0; i < json_array_size(c->rows); i++)
        add_row(&b, json_array_get(c->rows, i));
    assert_string_equal(b.data, want);
    af_buf_clear(&b);
}

static inline void warned(const data_case *c, const char *what)
{
    if (what ? !strstr(c->log.data, what) : c->log.len > 0)
        fail_msg("warnings: '%s', not '%s'", c->log.data, what ? what : "");
}

#define USER(q) "{\"role\": \"user\", \"content\": \"" q "\"}"
#define BOT(a)  "{\"role\": \"assistant\", \"content\": \"" a "\"}"
#define THINKS(t, a)                                                                               \
    "{\"role\": \"assistant\", \"reasoning_content\": \"" t "\", \"content\": \"" a "\"}"
#define CALLS(t)                                                                                   \
    "{\"role\": \"assistant\", \"reasoning_content\": \"" t "\", \"content\": null, "              \
    "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "    \
    "\"{\\\"a\\\": 1}\"}}]}"
#define SAYS(t)                                                                                    \
    "{\"role\": \"assistant\", \"content\": \"" t "\", \"tool_calls\": [{\"type\": \"function\", " \
    "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}"
#define TOOL(r) "{\"role\": \"tool\", \"content\": \"" r "\"}"

/* Thoughts after the last question alone, as Qwen3 shows them. */
#define LAST_QUESTION                                                                              \
    "{% set ns = namespace(q=-1) %}{% for m in messages %}{% if m.role == 'user' %}"               \
    "{% set ns.q = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<s>{{ m.role[0] "   \
    "}}:"                                                                                          \
    "{% if m.role == 'assistant' and loop.index0 > ns.q %}{T{{ m.reasoning_content }}}{% endif %}" \
    "{{ m.content }}{% for t in m.tool_calls %}!{{ t.function.arguments.a }}{% endfor %}</s>"      \
    "{% endfor %}{% if add_generation_prompt %}<s>a:"
static const char closed[] = LAST_QUESTION "{% endif %}";
static const char opened[] = LAST_QUESTION "{T{% endif %}"; /* Qwen3.5 */
#endif
