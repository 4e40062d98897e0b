/* test_long_rows.c - rows and masks of conversations with hundreds of messages. */
#include "turn_case.h"

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

/* Many loops of tool calls in a record: few renderings of the whole for each loop, not for each
 * call. Then the record would be refused as too long. */
static void test_many_loops(void **state)
{
    enum { LOOPS = 30, LENGTH = 40 };
    data_case c;
    af_buf b = {0};
    (void)state;
    case_open(&c);
    write_model(&c);
    write_case(&c, opened, "sequence_len: 65536", USER("p"));
    af_buf_str(&b, "{\"messages\": [");
    for (int i = 0; i < LOOPS; i++) {
        af_buf_str(&b, i ? "," USER("q") : USER("q"));
        for (int k = 0; k < LENGTH; k++)
            af_buf_str(&b, "," CALLS("y") "," TOOL("r"));
        af_buf_str(&b, "," THINKS("z", "B"));
    }
    af_buf_str(&b, "]}\n");
    case_write(&c, "d.jsonl", b.data, b.len);
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, LOOPS);
    assert_int_equal(c.report.supervised, LOOPS * (LENGTH * 5 + 4)); /* y}!1</s>, z}B</s> */
    af_buf_clear(&b);
    case_close(&c);
}

/* Command R7B: results have numbers, which windows do not have, and the generation prompt opens
 * what no answer has. All answers fit into one row. */
static void test_numbered_results(void **state)
{
    enum { LENGTH = 60 };
    static const char numbers[] =
        "{% set ns = namespace(n=0) %}{% for m in messages %}<s>{{ m.role[0] }}:"
        "{% if m.role == 'tool' %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endif %}{{ m.content }}"
        "{% for t in m.tool_calls %}!1{% endfor %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{T{% endif %}";
    data_case c;
    af_buf b = {0};
    (void)state;
    case_open(&c);
    write_model(&c);
    write_case(&c, numbers, "sequence_len: 8192", USER("p"));
    af_buf_str(&b, "{\"messages\": [" USER("q"));
    for (int k = 0; k < LENGTH; k++)
        af_buf_str(&b, k == LENGTH / 2 ? "," BOT("B") "," USER("q") : "," CALLS("") "," TOOL("r"));
    af_buf_str(&b, "," BOT("B") "]}\n");
    case_write(&c, "d.jsonl", b.data, b.len);
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, 1);
    assert_int_equal(c.report.supervised, (LENGTH - 1) * 3 + 4); /* !1</s>, B</s> */
    af_buf_clear(&b);
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

/* Rows of a template of LLaMA-Factory, which shares sequence_len among prompts and answers. */
static void test_turns_that_are_too_long(void **state)
{
    static const struct {
        af_excess excess;
        af_rl rl;
        int64_t length, records, truncated, lost, dropped;
    } cases[] = {
        {AF_EXCESS_TRUNCATE, AF_RL_NONE, 200, 2, 0, 0, 0},
        {AF_EXCESS_TRUNCATE, AF_RL_NONE, 70, 2, 1, 1, 0},
        {AF_EXCESS_DROP, AF_RL_NONE, 70, 1, 0, 0, 1},
        {AF_EXCESS_TRUNCATE, AF_RL_DPO, 70, 2, 1, 1, 0},
        {AF_EXCESS_DROP, AF_RL_DPO, 70, 1, 0, 0, 1},
        {AF_EXCESS_TRUNCATE, AF_RL_KTO, 70, 4, 1, 1, 0},
        {AF_EXCESS_DROP, AF_RL_KTO, 70, 3, 0, 0, 1},
    };
    static const char chats[] =
        "{\"messages\": [" USER("p") "," BOT("A") "]}\n{\"messages\": [" USER("p") "," BOT(
            "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25") "]}\n";
    static const char pairs[] =
        "{\"prompt\": [" USER("p") "], \"chosen\": [" BOT("A") "], \"rejected\": [" BOT(
            "B") "]}\n"
                 "{\"prompt\": [" USER("p") "], \"chosen\": [" BOT("A") "], \"rejected\": [" BOT(
                     "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25") "]}\n";
    char model[1024], yaml[1200];
    data_case c;
    (void)state;
    case_open(&c);
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    snprintf(yaml, sizeof yaml, "- path: %s", case_path(&c, "d.jsonl"));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const char *data = cases[i].rl == AF_RL_NONE ? chats : pairs;
        af_arena mem = {0};
        af_token_store s;
        af_data_counts n;
        af_error err = {0};
        case_write(&c, "d.jsonl", data, strlen(data));
        af_data_opts o = case_training(model, &mem, yaml, cases[i].length);
        o.turn_template = "chatml";
        o.excess = cases[i].excess;
        o.rl = cases[i].rl;
        CHECK_OK(af_dataset_open(&s, &n, &o, &err), err);
        CHECK_MSG(n.records == cases[i].records && n.truncated == cases[i].truncated &&
                      n.lost_eot == cases[i].lost && n.dropped == cases[i].dropped,
                  "case %zu: %" PRId64 " records, %" PRId64 " cut, %" PRId64 " without an end, "
                  "%" PRId64 " dropped",
                  i, n.records, n.truncated, n.lost_eot, n.dropped);
        af_token_store_close(&s);
        af_arena_clear(&mem);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_marked_answers),
        cmocka_unit_test(test_long_conversations),
        cmocka_unit_test(test_many_loops),
        cmocka_unit_test(test_numbered_results),
        cmocka_unit_test(test_parts_of_long_conversations),
        cmocka_unit_test(test_turns_that_are_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
