/* test_turn_rows.c - conversations with thoughts and tools in templates that render an answer
 * otherwise once other turns follow: rows, masks, ends of turns and warnings. Templates are small
 * ones with the shapes of published ones. Trained tokens stand in brackets, rows one per line. */
#include "turn_case.h"

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

/* As ms-swift's ignore_empty_think: the texts of its ignore_empty_think.json. */
static void test_empty_thoughts_without_loss(void **state)
{
    static const char plain[] =
        "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>a:{% endif %}",
                      marked[] =
                          "{% for m in messages %}<s>{{ m.role[0] }}:"
                          "{% if m.role == 'user' %}{{ m.content }}</s>{% else %}{% generation %}"
                          "{{ m.content }}</s>{% endgeneration %}{% endif %}{% endfor %}"
                          "{% if add_generation_prompt %}<s>a:{% endif %}";
    static const char *const cases[][2] = {
        {"<think>\\n\\n</think>\\n\\nA", "<think>\n\n</think>\n\n[A</s>]"},
        {"<think></think>A", "<think></think>[A</s>]"},
        {"</think>\\n A", "</think>\n [A</s>]"},
        {"</mm:think>A", "</mm:think>[A</s>]"},
        {"<|channel>thought\\n<channel|>\\nA", "<|channel>thought\n<channel|>[\nA</s>]"},
        {"<think>x</think>A", "[<think>x</think>A</s>]"},
        {"A<think></think>", "[A<think></think></s>]"},
        {" <think></think>A", "[ <think></think>A</s>]"},
        {"<think>", "[<think></s>]"},
        {"<think></think>", "<think></think>[</s>]"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char messages[300], want[300];
        snprintf(messages, sizeof messages,
                 USER("p") ", {\"role\": \"assistant\", \"content\": \"%s\"}", cases[i][0]);
        snprintf(want, sizeof want, "<s>u:p</s><s>a:%s\n", cases[i][1]);
        check(&c, plain, "mask_empty_thoughts: true", messages, want);
    }
    check(&c, plain, "", USER("p") "," BOT("<think></think>A"),
          "<s>u:p</s><s>a:[<think></think>A</s>]\n");
    check(&c, plain, "mask_empty_thoughts: true",
          USER("p") "," BOT("<think></think>A") "," USER("<think></think>q") "," BOT(
              "<think>\\n</think>B"),
          "<s>u:p</s><s>a:<think></think>[A</s>]<s>u:<think></think>q</s><s>a:<think>\n</think>[B</"
          "s>]\n");
    check(&c, marked, "mask_empty_thoughts: true", USER("p") "," BOT("<think></think>A"),
          "<s>u:p</s><s>a:<think></think>[A</s>]\n");
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

/* Turns of other roles: where their texts are, also if the turn before has the same. They end no
 * rows. */
static void test_turns_of_other_roles(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, closed, "roles_to_train: [user]",
          USER("p") "," THINKS("x", "so, q") "," USER("q") "," THINKS("y", "A"),
          "<s>u:[p</s>]<s>a:so, q</s><s>u:[q</s>]<s>a:{Ty}A</s>\n");
    check(&c, opened, "roles_to_train: [assistant, tool]",
          USER("p") "," CALLS("y") "," TOOL("r") "," USER("q") "," THINKS("x", "A"),
          "<s>u:p</s><s>a:{T[y}!1</s>]\n"
          "<s>u:p</s><s>a:!1</s><s>t:[r</s>]<s>u:q</s><s>a:{T[x}A</s>]\n");
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
    static const char inside[] =
        "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% if not ns.open %}<bot>{% endif %}{% for t in m.tool_calls or [] %}<call>"
        "{{ t.function.arguments.a }}<tool>{% endfor %}{{ m.content }}{% set ns.open = true %}"
        "{% elif m.role == 'tool' %}{{ m.content }};{% else %}{% if ns.open %}</s>{% endif %}<user>"
        "{{ m.content }}</s>{% set ns.open = false %}{% endif %}{% endfor %}{% if ns.open and not "
        "messages[-1].tool_calls %}</s>{% endif %}{% if add_generation_prompt and not ns.open %}"
        "<bot>{% endif %}";
    static const char after[] = /* the text of an answer comes after what its tools said */
        "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% if not ns.open %}<bot>{% endif %}{% set ns.open = true %}{% for t in m.tool_calls or "
        "[] %}<call>{{ t.function.arguments.a }}<tool>{% endfor %}{% if m.tool_calls and "
        "loop.nextitem %}{{ loop.nextitem.content }};{% endif %}{{ m.content }}"
        "{% elif m.role == 'user' %}{% if ns.open %}</s>{% endif %}<user>{{ m.content }}</s>{% set "
        "ns.open = false %}{% endif %}{% endfor %}"
        "{% if ns.open and messages[-1].content %}</s>{% endif %}"
        "{% if add_generation_prompt and not ns.open %}<bot>{% endif %}";
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, continues, "",
          USER("p") "," BOT("A") "," BOT("<B") "," BOT("C") "," USER("q") "," BOT("D") "," BOT("E"),
          "<user>p</s><bot>[A<BC</s>]<user>q</s><bot>[DE</s>]\n");
    warned(&c, NULL);
    /* nor does the turn end where a tool has answered: the prompt is closed, the answer is not */
    check(&c, inside, "", USER("p") "," CALLS("x") "," TOOL("42") "," BOT("B"),
          "<user>p</s><bot>[<call>1<tool>]42;[B</s>]\n");
    warned(&c, "message 2: the chat template leaves out its \"reasoning_content\"");
    check(&c, after, "",
          USER("p") "," SAYS("x") "," TOOL("42") "," SAYS("y") "," TOOL("7") "," BOT("B"),
          "<user>p</s><bot>[<call>1<tool>]42;x[<call>1<tool>]7;y[B</s>]\n");
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
#define OTHER   "{\"type\": \"document\", \"title\": \"x\"}"

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
    check(&c, parts, "", PARTS("user", "p", OTHER) "," BOT("A"), "<s>u:p!</s><s>a:[A</s>]\n");
    write_case(&c, texts, "", PARTS("user", "p", OTHER) "," BOT("A"));
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

/* Turns of tools before the last question, where the template shows earlier turns otherwise. */
static void test_trained_tools_before_the_last_question(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    write_model(&c);
    check(&c, closed, "roles_to_train: [tool]",
          USER("p") "," CALLS("x") "," TOOL("r") "," THINKS("y", "A") "," USER("q") "," CALLS(
              "z") "," TOOL("s") "," BOT("B"),
          "<s>u:p</s><s>a:!1</s><s>t:[r</s>]<s>a:A</s><s>u:q</s><s>a:{Tz}!1</s><s>t:[s</"
          "s>]<s>a:{T}B</s>\n");
    check(&c, closed, "roles_to_train: [tool]\ntrain_on_eos: none",
          USER("p") "," CALLS("x") "," TOOL("!1") "," BOT("!1") "," USER("q") "," BOT("B"),
          "<s>u:p</s><s>a:!1</s><s>t:[!1]</s><s>a:!1</s><s>u:q</s><s>a:{T}B</s>\n");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_opened_thought_needs_rows),
        cmocka_unit_test(test_empty_thoughts_without_loss),
        cmocka_unit_test(test_thoughts_that_later_turns_remove),
        cmocka_unit_test(test_an_end_that_a_variable_gives),
        cmocka_unit_test(test_marked_answers),
        cmocka_unit_test(test_turns_of_other_roles),
        cmocka_unit_test(test_answers_that_continue_a_turn),
        cmocka_unit_test(test_turns_that_are_left_out),
        cmocka_unit_test(test_keys_have_rows_of_their_own),
        cmocka_unit_test(test_a_template_that_drops_thoughts),
        cmocka_unit_test(test_the_next_turn_ends_an_answer),
        cmocka_unit_test(test_channels_and_calls),
        cmocka_unit_test(test_the_end_after_the_end),
        cmocka_unit_test(test_the_form_of_calls),
        cmocka_unit_test(test_contents_in_parts),
        cmocka_unit_test(test_trained_tools_before_the_last_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
