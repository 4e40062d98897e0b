/* test_turn_rows.c - conversations with thoughts and tools in templates that render an answer
 * otherwise once other turns follow: rows, masks, ends of turns and warnings. Templates are small
 * ones with the shapes of published ones. Trained tokens stand in brackets, rows one per line. */
#include "data_case.h"

static const char *const marks[] = {NULL, "<s>", "</s>", "<call>", "<user>", "<tool>", "<bot>"};

/* Every character is a token, and so are the marks. */
static void write_model(const data_case *c)
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

static void add_row(af_buf *b, const json_t *row)
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

static void write_case(const data_case *c, const char *jinja, const char *keys,
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
static void check(data_case *c, const char *jinja, const char *keys, const char *messages,
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

static void warned(const data_case *c, const char *what)
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

static void test_an_opened_thought_needs_rows(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, opened, "", USER("p") "," BOT("A") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:{T[}A</s>]\n<s>u:p</s><s>a:A</s><s>u:q</s><s>a:{T[}B</s>]\n");
    warned(&c, NULL);
    check(&c, opened, "", USER("p") "," THINKS("x", "A") "," USER("q") "," THINKS("y", "B"),
          "<s>u:p</s><s>a:{T[x}A</s>]\n<s>u:p</s><s>a:A</s><s>u:q</s><s>a:{T[y}B</s>]\n");
    check(&c, opened, "", USER("p") "," THINKS("x", "A") "," USER("q"),
          "<s>u:p</s><s>a:{T[x}A</s>]\n");
    check(&c, opened, "mask_history: true",
          USER("p") "," THINKS("x", "A") "," USER("q") "," THINKS("y", "B"),
          "<s>u:p</s><s>a:A</s><s>u:q</s><s>a:{T[y}B</s>]\n");
    /* turns after one question share a row */
    check(&c, opened, "",
          USER("p") "," CALLS("x") "," TOOL("r") "," THINKS("y", "A") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:{T[x}!1</s>]<s>t:r</s><s>a:{T[y}A</s>]\n"
          "<s>u:p</s><s>a:!1</s><s>t:r</s><s>a:A</s><s>u:q</s><s>a:{T[}B</s>]\n");
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, 2);
    assert_int_equal(c.report.split_rows, 1);
    case_close(&c);
}

static void test_thoughts_that_later_turns_remove(void **state)
{
    static const char *const two =
        USER("p") "," THINKS("x", "A") "," USER("q") "," THINKS("y", "B");
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, closed, "", two, "<s>u:p</s><s>a:[A</s>]<s>u:q</s><s>a:[{Ty}B</s>]\n");
    warned(&c, "message 2: the chat template leaves out its \"reasoning_content\" because other "
               "turns follow");
    check(&c, closed, "split_turns: true", two,
          "<s>u:p</s><s>a:[{Tx}A</s>]\n<s>u:p</s><s>a:A</s><s>u:q</s><s>a:[{Ty}B</s>]\n");
    warned(&c, NULL);
    /* nothing of these is left out */
    check(&c, closed, "split_turns: true", USER("p") "," BOT("A") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:[A</s>]<s>u:q</s><s>a:[{T}B</s>]\n");
    /* an answer that the whole conversation shows is not trained again in the row before it */
    check(&c, closed, "split_turns: true",
          USER("p") "," BOT("A") "," USER("q") "," THINKS("x", "B") "," USER("r") "," BOT("C"),
          "<s>u:p</s><s>a:A</s><s>u:q</s><s>a:[{Tx}B</s>]\n"
          "<s>u:p</s><s>a:[A</s>]<s>u:q</s><s>a:B</s><s>u:r</s><s>a:[{T}C</s>]\n");
    /* the prompt of message 4 has the thought of message 2 */
    check(&c, closed, "",
          USER("p") "," CALLS("x") "," TOOL("r") "," THINKS("y", "A") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:[{Tx}!1</s>]<s>t:r</s><s>a:[{Ty}A</s>]\n"
          "<s>u:p</s><s>a:!1</s><s>t:r</s><s>a:A</s><s>u:q</s><s>a:[{T}B</s>]\n");
    check(&c,
          "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}</s>{% endfor %}"
          "{% if add_generation_prompt %}<s>a:{% endif %}",
          "", two, "<s>u:p</s><s>a:[A</s>]<s>u:q</s><s>a:[B</s>]\n");
    warned(&c, "leaves out its \"reasoning_content\": it is not trained");
    case_close(&c);
}

/* What ends a turn is found with the variables of the run. */
static void test_an_end_that_a_variable_gives(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c,
          "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}{{ end }}{% endfor %}"
          "{% if add_generation_prompt %}<s>a:{% endif %}",
          "chat_template_kwargs: {end: <call>}", USER("p") "," BOT("A"),
          "<s>u:p<call><s>a:[A<call>]\n");
    case_close(&c);
}

/* Blocks that mark answers. */
static void test_marked_answers(void **state)
{
    static const char marked[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}"
        "{% if loop.last %}{T{{ m.reasoning_content }}}{% endif %}{{ m.content }}</s>"
        "{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
    static const char *const two =
        USER("p") "," THINKS("x", "A") "," USER("q") "," THINKS("y", "B");
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, marked, "", two, "<s>u:p</s><s>a:[A</s>]<s>u:q</s><s>a:[{Ty}B</s>]\n");
    warned(&c, "because other turns follow");
    check(&c, marked, "split_turns: true", two,
          "<s>u:p</s><s>a:[{Tx}A</s>]\n<s>u:p</s><s>a:A</s><s>u:q</s><s>a:[{Ty}B</s>]\n");
    case_close(&c);
}

/* A row per answer, in time that does not grow with the cube of their number: then the record would
 * be refused as too long. */
static void test_many_marked_answers(void **state)
{
    enum { ANSWERS = 300 };
    static const char marked[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}"
        "{% if loop.last %}{T{{ m.reasoning_content }}}{% endif %}{{ m.content }}</s>"
        "{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
    data_case c;
    af_buf b = {0};
    (void)state;
    case_open(&c);
    write_model(&c);
    write_case(&c, marked, "split_turns: true\nsequence_len: 8192", USER("p"));
    for (int i = 0; i < ANSWERS; i++)
        af_buf_str(&b, i ? "," USER("p") "," THINKS("x", "A")
                         : "{\"messages\": [" USER("p") "," THINKS("x", "A"));
    af_buf_str(&b, "]}\n");
    case_write(&c, "d.jsonl", b.data, b.len);
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, ANSWERS);
    assert_int_equal(c.report.supervised, ANSWERS * 6); /* {Tx}A</s> */
    af_buf_clear(&b);
    case_close(&c);
}

/* A record of n questions; every third answer calls a tool first. */
static void write_long(const data_case *c, int n)
{
    af_buf b = {0};
    af_buf_str(&b, "{\"messages\": [");
    for (int i = 0; i < n; i++)
        af_buf_str(&b, i % 3 ? USER("p") "," THINKS("x", "A") ","
                             : USER("q") "," CALLS("y") "," TOOL("r") "," THINKS("z", "B") ",");
    b.data[b.len - 1] = ']';
    af_buf_str(&b, "}\n");
    case_write(c, "d.jsonl", b.data, b.len);
    af_buf_clear(&b);
}

/* The rows of such a record, one per question. `numbered`: answers have numbers. */
static void add_long(af_buf *b, int n, bool numbered)
{
    for (int row = 0; row < n; row++) {
        int at = 0;
        for (int i = 0; i <= row; i++) {
            char number[2][16] = {"", ""};
            for (int k = 0; k < (i % 3 ? 1 : 2) && numbered; k++)
                snprintf(number[k], sizeof number[k], "%d", ++at);
            if (i % 3)
                af_buf_printf(b,
                              i < row ? "<s>u:p</s><s>%sa:A</s>" : "<s>u:p</s><s>%sa:{T[x}A</s>]",
                              number[0]);
            else
                af_buf_printf(b,
                              i < row ? "<s>u:q</s><s>%sa:!1</s><s>t:r</s><s>%sa:B</s>"
                                      : "<s>u:q</s><s>%sa:{T[y}!1</s>]<s>t:r</s><s>%sa:{T[z}B</s>]",
                              number[0], number[1]);
        }
        af_buf_char(b, '\n');
    }
}

/* In a long conversation answers are found with windows of its messages: the rows are the same, and
 * so they are if a template tells a window from the whole. */
static void test_long_conversations(void **state)
{
    enum { SHORT = 70, LONG = 3000 };
    static const char numbered[] =
        "{% set ns = namespace(q=-1, n=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.q = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<s>"
        "{% if m.role == 'assistant' %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endif %}"
        "{{ m.role[0] }}:{% if m.role == 'assistant' and loop.index0 > ns.q %}"
        "{T{{ m.reasoning_content }}}{% endif %}{{ m.content or '' }}{% for t in m.tool_calls %}"
        "!{{ t.function.arguments.a }}{% endfor %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>{{ ns.n + 1 }}a:{T{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    for (int i = 0; i < 2; i++) {
        af_buf want = {0}, got = {0};
        write_case(&c, i ? numbered : opened, "", USER("p"));
        write_long(&c, SHORT);
        CHECK_OK(case_preview(&c), c.err);
        assert_int_equal(json_array_size(c.rows), SHORT);
        for (size_t k = 0; k < json_array_size(c.rows); k++)
            add_row(&got, json_array_get(c.rows, k));
        add_long(&want, SHORT, i);
        af_buf_str(&got, "");
        assert_string_equal(got.data, want.data);
        af_buf_clear(&want);
        af_buf_clear(&got);
    }
    /* rows that begin after sequence_len tokens are counted, not made */
    write_case(&c, opened, "sequence_len: 1000", USER("p"));
    write_long(&c, LONG);
    CHECK_OK(case_check(&c), c.err);
    const int64_t kept = c.report.records;
    assert_int_equal(c.report.split_rows, kept - 1);
    assert_int_equal(c.report.nothing_to_learn, LONG - kept);
    assert_int_equal(kept, 73);
    assert_int_equal(c.report.tokens, 37564);
    write_case(&c, opened, "sequence_len: 1000\nexcess_length_strategy: drop", USER("p"));
    write_long(&c, LONG);
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records + c.report.dropped, LONG);
    assert_in_range(c.report.records, kept - 1, kept);
    case_close(&c);
}

/* Gemma 4: an answer after an answer continues its turn. */
static void test_answers_that_continue_a_turn(void **state)
{
    static const char continues[] =
        "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% if not ns.open %}<bot>{% endif %}{{ m.content }}{% set ns.open = true %}"
        "{% elif m.role == 'user' %}{% if ns.open %}</s>{% endif %}<user>{{ m.content }}</s>"
        "{% set ns.open = false %}{% endif %}{% endfor %}{% if ns.open %}</s>{% endif %}"
        "{% if add_generation_prompt %}<bot>{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, continues, "",
          USER("p") "," BOT("A") "," BOT("<B") "," BOT("C") "," USER("q") "," BOT("D") "," BOT("E"),
          "<user>p</s><bot>[A<BC</s>]<user>q</s><bot>[DE</s>]\n");
    warned(&c, NULL);
    /* but not over what a tool said */
    write_case(&c, continues, "", USER("p") "," BOT("A") "," TOOL("42") "," BOT("B"));
    case_refused(&c, case_preview(&c),
                 "message 4: the chat template leaves out the message before it (role \"tool\")");
    case_close(&c);
}

/* Turns that are not answers and not in the text. */
static void test_turns_that_are_left_out(void **state)
{
    static const char some[] =
        "{% for m in messages %}{% if m.role in ('user', 'assistant') %}<s>{{ m.role[0] }}:"
        "{{ m.content | upper }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{% endif %}";
    static const char system[] = "{\"role\": \"system\", \"content\": \"S\"}";
    char messages[300];
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    snprintf(messages, sizeof messages, "%s,%s,%s", system, USER("p"), BOT("A"));
    check(&c, some, "", messages, "<s>u:P</s><s>a:[A</s>]\n");
    warned(&c, "message 1: the chat template leaves it out (role \"system\"");
    check(&c, some, "", USER("p") "," BOT("A"), "<s>u:P</s><s>a:[A</s>]\n"); /* shown, changed */
    warned(&c, NULL);
    case_close(&c);
}

/* A record of so many questions and answers, which have this member, then `more`. */
static void write_answers(const data_case *c, int answers, const char *member, const char *more)
{
    af_buf b = {0};
    af_buf_str(&b, "{\"messages\": [");
    for (int i = 0; i < answers; i++)
        af_buf_printf(&b, "%s" USER("p") ",{\"role\": \"assistant\", \"content\": \"A\"%s}",
                      i ? "," : "", member);
    af_buf_printf(&b, "%s]}\n", more);
    case_write(c, "d.jsonl", b.data, b.len);
    af_buf_clear(&b);
}

#define OFF "{\"role\": \"assistant\", \"content\": \"A\", \"weight\": 0}"

/* Prefixes of a long conversation are rendered in parts: with the same masks. */
static void test_parts_of_long_conversations(void **state)
{
    enum { ANSWERS = 200 };
    /* no turn of the user may be the last one, but before an answer */
    static const char strict[] =
        "{% if messages[-1].role == 'user' and not add_generation_prompt %}"
        "{{ raise_exception('no answer') }}{% endif %}{% for m in messages %}<s>{{ m.role[0] }}:"
        "{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>a:{% endif %}";
    data_case c;
    af_buf row = {0};
    (void)state;
    case_open(&c);
    write_model(&c);
    write_case(&c, strict, "sequence_len: 8192", USER("p"));
    write_answers(&c, ANSWERS, "", "");
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, 1);
    assert_int_equal(c.report.supervised, ANSWERS * 2); /* A</s> */
    /* what follows a call is a tool's turn in the parts, too: the thought before it stays */
    write_case(&c, closed, "sequence_len: 8192", USER("p"));
    write_answers(&c, ANSWERS, ", \"weight\": 0",
                  "," USER("q") "," CALLS("x") "," TOOL("r") "," OFF "," USER("q") "," OFF);
    CHECK_OK(case_preview(&c), c.err);
    assert_int_equal(json_array_size(c.rows), 1);
    add_row(&row, json_array_get(c.rows, 0));
    assert_string_equal(strstr(row.data, "<s>u:q"), "<s>u:q</s><s>a:[{Tx}!1</s>]\n");
    af_buf_clear(&row);
    case_close(&c);
}

/* DeepSeek R1: thoughts are dropped from all answers, the generation prompt opens one. */
static void test_a_template_that_drops_thoughts(void **state)
{
    static const char drops[] =
        "{% for m in messages %}<{{ 'user' if m.role == 'user' else 'bot' }}>"
        "{{ m.content.split('/T')[-1] }}{% if m.role != 'user' %}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<bot>T{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, drops, "", USER("p") "," BOT("Tx/TA") "," USER("q") "," BOT("Ty/TB"),
          "<user>p<bot>T[x/TA</s>]\n<user>p<bot>A</s><user>q<bot>T[y/TB</s>]\n");
    warned(&c, NULL);
    check(&c, drops, "", USER("p") "," BOT("zTx/TA"), "<user>p<bot>[A</s>]\n");
    warned(&c, "leaves out some of its \"content\": it is not trained");
    check(&c, drops, "", USER("p") "," BOT("A") "," USER("q") "," BOT("B"),
          "<user>p<bot>[A</s>]<user>q<bot>[B</s>]\n");
    warned(&c, "message 2 does not begin as the generation prompt of the chat template ends");
    case_close(&c);
}

/* GLM: nothing closes an answer but the mark of the next turn. */
static void test_the_next_turn_ends_an_answer(void **state)
{
    static const char open[] =
        "{% for m in messages %}<{{ {'user': 'user', 'tool': 'tool'}.get(m.role, 'bot') }}>"
        "{{ m.content }}{% for t in m.tool_calls %}<call>{{ t.function.arguments.a }}<call>"
        "{% endfor %}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, open, "", USER("p") "," BOT("A") "," USER("q") "," BOT("B"),
          "<user>p<bot>[A<user>]q<bot>[B<user>]\n");
    check(&c, open, "", USER("p") "," CALLS("") "," TOOL("r") "," BOT("A"),
          "<user>p<bot>[<call>1<call><tool>]r<bot>[A<user>]\n");
    check(&c, open, "", USER("p") "," CALLS(""), "<user>p<bot>[<call>1<call><tool>]\n");
    check(&c, open, "train_on_eos: none", USER("p") "," BOT("A"), "<user>p<bot>[A]\n");
    case_close(&c);
}

/* gpt-oss: a call has an end of its own, after the end of the thought, and the thought goes once
 * the answer is there, though its prompt has it. */
static void test_channels_and_calls(void **state)
{
    static const char channels[] =
        "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content and "
        "(loop.last or messages[-1].role != 'assistant') %}<bot>T{{ m.reasoning_content }}</s>"
        "{% endif %}<bot>{% for t in m.tool_calls %}F{{ t.function.arguments.a }}<call>"
        "{% else %}{{ m.content }}</s>{% endfor %}"
        "{% else %}<user>{{ m.content }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<bot>{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, channels, "", USER("p") "," CALLS("x"), "<user>p</s><bot>[Tx</s><bot>F1<call>]\n");
    check(&c, channels, "", USER("p") "," CALLS("x") "," TOOL("r") "," THINKS("y", "A"),
          "<user>p</s><bot>[Tx</s><bot>F1<call>]<user>r</s><bot>[Ty</s><bot>A</s>]\n");
    warned(&c, NULL);
    case_close(&c);
}

/* Cohere: the response has an end, and the turn another. */
static void test_the_end_after_the_end(void **state)
{
    static const char both[] = "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}"
                               "{% if m.role == 'assistant' %}<bot>{% endif %}</s>{% endfor %}"
                               "{% if add_generation_prompt %}<s>a:{% endif %}";
    /* Hermes: a last tool turn has no newline */
    static const char newline[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}"
        "{% for t in m.tool_calls %}!{% endfor %}"
        "{% if m.role == 'tool' and not loop.last %}{{ '\\n' }}{% endif %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, both, "", USER("p") "," BOT("A") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:[A<bot></s>]<s>u:q</s><s>a:[B<bot></s>]\n");
    check(&c, newline, "", USER("p") "," CALLS("") "," TOOL("r") "," BOT("A"),
          "<s>u:p</s><s>a:[!</s>]<s>t:r\n</s><s>a:[A</s>]\n");
    /* the end of a text is not that of an answer */
    check(&c,
          "{% if messages|length > 2 %}{{ raise_exception('one question') }}{% endif %}"
          "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}<bot>{% endfor %}"
          "{{ '<s>a:' if add_generation_prompt else '</s>' }}",
          "", USER("p") "," BOT("A"), "<s>u:p<bot><s>a:[A<bot>]</s>\n");
    case_close(&c);
}

/* DeepSeek: a message that calls has no content, and its arguments are text. */
static void test_the_form_of_calls(void **state)
{
    static const char strict[] =
        "{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else m.role }}>"
        "{% if m.content is none %}{{ '<call>' + m.tool_calls[0].function.arguments }}"
        "{% else %}{{ m.content }}{% endif %}{% if m.role == 'assistant' %}</s>{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, strict, "", USER("p") "," CALLS("") "," TOOL("r") "," BOT("A"),
          "<user>p<bot>[<call>{\"a\": 1}</s>]<tool>r<bot>[A</s>]\n");
    case_close(&c);
}

#define PARTS(role, a, b)                                                                          \
    "{\"role\": \"" role "\", \"content\": [{\"type\": \"text\", \"text\": \"" a "\"}, " b "]}"
#define PART(t) "{\"type\": \"text\", \"text\": \"" t "\"}"
#define IMAGE   "{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}"

/* Contents in parts, as OpenAI has them, in templates for texts, for parts and for both. */
static void test_contents_in_parts(void **state)
{
    static const char texts[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content | trim }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{% endif %}";
    static const char parts[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{% for p in m.content %}{% if p.type == "
        "'text' %}{{ p.text }}{% else %}!{% endif %}{% endfor %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{% endif %}";
    static const char both[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endif %}</s>"
        "{% endfor %}{% if add_generation_prompt %}<s>a:{% endif %}";
    static const char *const talk = PARTS("user", "p", PART("q")) "," PARTS(
        "assistant", "A", PART(" B")) "," USER("r") "," BOT("C");
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, texts, "", talk, "<s>u:p\nq</s><s>a:[A\n B</s>]<s>u:r</s><s>a:[C</s>]\n");
    check(&c, parts, "", talk, "<s>u:pq</s><s>a:[A B</s>]<s>u:r</s><s>a:[C</s>]\n");
    check(&c, both, "", talk, "<s>u:pq</s><s>a:[AB</s>]<s>u:r</s><s>a:[C</s>]\n");
    check(&c, parts, "", PARTS("user", "p", IMAGE) "," BOT("A"), "<s>u:p!</s><s>a:[A</s>]\n");
    write_case(&c, texts, "", PARTS("user", "p", IMAGE) "," BOT("A"));
    case_refused(&c, case_preview(&c), "a part of message 1 is not text");
    case_close(&c);
}

/* Rows that were kept with other keys are not taken. */
static void test_keys_have_rows_of_their_own(void **state)
{
    static const struct {
        const char *variables;
        bool split, last;
        uint64_t tokens, supervised;
    } cases[] = {{NULL, false, false, 24, 8},
                 {"{v: xx}", false, false, 26, 8},
                 {"{v: xxx}", false, false, 27, 8},
                 {NULL, true, false, 38, 12},
                 {NULL, false, true, 24, 6}};
    char jinja[2000], model[600], yaml[600];
    data_case c;
    af_arena mem = {0};
    (void)state;
    case_open(&c);
    write_model(&c);
    snprintf(jinja, sizeof jinja, "{{ v }}%s", closed);
    write_case(&c, jinja, "", USER("p") "," THINKS("x", "A") "," USER("q") "," THINKS("y", "B"));
    snprintf(model, sizeof model, "%s/model", c.dir);
    snprintf(yaml, sizeof yaml, "- path: %s/d.jsonl", c.dir);
    for (size_t i = 0; i < 2 * AF_LEN(cases); i++) { /* made, then from the cache */
        const size_t k = i % AF_LEN(cases);
        af_data_opts o = case_training(model, &mem, yaml, 512);
        af_yaml *map = NULL;
        af_token_store s;
        af_data_counts n;
        const char *text = cases[k].variables;
        if (text)
            CHECK_OK(af_yaml_parse(&map, &mem, text, strlen(text), "run.yaml", &c.err), c.err);
        o.chat_template = jinja;
        o.template_variables = map;
        o.split_turns = cases[k].split;
        o.mask_history = cases[k].last;
        CHECK_OK(af_dataset_open(&s, &n, &o, &c.err), c.err);
        CHECK_MSG(s.tokens == cases[k].tokens && s.supervised == cases[k].supervised,
                  "case %zu: %d tokens, %d with loss", k, (int)s.tokens, (int)s.supervised);
        af_token_store_close(&s);
    }
    af_arena_clear(&mem);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_opened_thought_needs_rows),
        cmocka_unit_test(test_thoughts_that_later_turns_remove),
        cmocka_unit_test(test_an_end_that_a_variable_gives),
        cmocka_unit_test(test_marked_answers),
        cmocka_unit_test(test_many_marked_answers),
        cmocka_unit_test(test_long_conversations),
        cmocka_unit_test(test_answers_that_continue_a_turn),
        cmocka_unit_test(test_turns_that_are_left_out),
        cmocka_unit_test(test_parts_of_long_conversations),
        cmocka_unit_test(test_keys_have_rows_of_their_own),
        cmocka_unit_test(test_a_template_that_drops_thoughts),
        cmocka_unit_test(test_the_next_turn_ends_an_answer),
        cmocka_unit_test(test_channels_and_calls),
        cmocka_unit_test(test_the_end_after_the_end),
        cmocka_unit_test(test_the_form_of_calls),
        cmocka_unit_test(test_contents_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
