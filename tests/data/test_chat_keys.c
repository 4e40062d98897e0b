/* test_chat_keys.c - keys of other trainers about templates, thoughts, ends of turns and pairs. */
#include "data_case.h"

static char model[1024];

#define TURN(q, a) "<|im_start|>user\n" q "<|im_end|>\n<|im_start|>assistant\n" a "<|im_end|>\n"

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

static void put_file(const data_case *c, const char *name, const char *text)
{
    case_write(c, name, text, strlen(text));
}

static const char *bare_model(const data_case *c)
{
    static char dir[600];
    char from[1100], *text;
    uint64_t size;
    af_error err;
    snprintf(dir, sizeof dir, "%s/bare", c->dir);
    CHECK_OK(af_dir_make(dir, &err), err);
    snprintf(from, sizeof from, "%s/tokenizer.json", model);
    CHECK_OK(af_file_read(&text, &size, from, 64 << 20, &err), err);
    case_write(c, "bare/tokenizer.json", text, size);
    free(text);
    put_file(c, "bare/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    return dir;
}

/* The texts of the preview, joined by "|". */
static const char *texts(const data_case *c)
{
    static char out[4000];
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < json_array_size(c->rows) && used < sizeof out; i++)
        used += (size_t)snprintf(
            out + used, sizeof out - used, "%s%s", i ? "|" : "",
            json_string_value(json_object_get(json_array_get(c->rows, i), "text")));
    return out;
}

static int trained(const data_case *c)
{
    const json_t *labels = json_object_get(json_array_get(c->rows, 0), "labels");
    int n = 0;
    for (size_t i = 0; i < json_array_size(labels); i++)
        n += json_integer_value(json_array_get(labels, i)) != -100;
    return n;
}

static void preview(data_case *c, const char *base, const char *keys, const char *entry)
{
    char more[3000];
    snprintf(more, sizeof more, "%s\ndatasets: [{path: %s/d.jsonl%s}]\n", keys, c->dir, entry);
    case_run(c, base, more);
    CHECK_OK(case_preview(c), c->err);
}

#define THINKS                                                                                     \
    "chat_template: \"{% for m in messages %}[{{ m.role }}:{% if m.why %}<{{ m.why }}>{% endif "   \
    "%}{{ m.content }}]{% endfor %}\"\ntrain_on_eos: none"

static void test_thoughts_have_names(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\", \"idea\": \"T\"}]}\n");
    preview(&c, model, THINKS, ", field_thinking: idea, template_thinking_key: why");
    assert_string_equal(texts(&c), "[user:Q][assistant:<T>A]");
    preview(&c, model, THINKS, ", field_thinking: idea"); /* the template calls it otherwise */
    assert_string_equal(texts(&c), "[user:Q][assistant:A]");
    case_close(&c);
}

/* A system text where a conversation has none of its own; its tokens carry no loss. */
static void test_a_system_text_for_all(void **state)
{
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\"}]}\n{\"messages\": [{\"role\": \"system\", \"content\": \"own\"}, "
        "{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"A\"}]}\n";
    data_case c;
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl", rows);
    preview(&c, model, THINKS, "");
    const int before = trained(&c);
    preview(&c, model, THINKS "\ndefault_system: Be brief.", "");
    assert_string_equal(texts(&c), "[system:Be brief.][user:Q][assistant:A]|"
                                   "[system:own][user:Q][assistant:A]");
    assert_int_equal(trained(&c), before);
    put_file(&c, "d.jsonl",
             "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"chosen\": [{\"role\": "
             "\"assistant\", \"content\": \"A\"}], \"rejected\": [{\"role\": \"assistant\", "
             "\"content\": \"B\"}]}\n");
    preview(&c, model, THINKS "\ndefault_system: Be brief.\nrl: dpo", "");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(c.rows, 0), "prompt_text")),
        "[system:Be brief.][user:Q]");
    case_close(&c);
}

/* As Axolotl splits them. */
static void test_thoughts_in_contents(void **state)
{
    static const struct {
        const char *content, *want;
    } cases[] = {
        {"<think>\\n T \\n</think>\\n\\nA \\n", "<T>A \n"},
        {"<reasoning>T</reasoning>A", "<T>A"},
        {"<|begin_of_thought|> T <|end_of_thought|> <|begin_of_solution|> A <|end_of_solution|> x",
         "<T>A"},
        {"x <think>T</think>A", "<T>A"}, /* what comes before is left out */
        {"</think>A<think>", "A<think>"},
        {"<think>T", "<think>T"},
        {"A", "A"},
    };
    data_case c;
    char text[1000];
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(text, sizeof text,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"<think>q</think>\"}, "
                 "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n",
                 cases[i].content);
        put_file(&c, "d.jsonl", text);
        preview(&c, model, THINKS, ", split_thinking: true, template_thinking_key: why");
        snprintf(text, sizeof text, "[user:<think>q</think>][assistant:%s]", cases[i].want);
        assert_string_equal(texts(&c), text);
    }
    case_close(&c);
}

#define CALLS                                                                                      \
    "chat_template: \"{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ "    \
    "m.role }}:{% if 'tool_calls' in m %}{{ m.tool_calls | tojson }}{% endif %}{{ m.content "      \
    "}}]{% "                                                                                       \
    "endfor %}\"\ntrain_on_eos: none"

/* A table has every field in every row, as null where a record had none; JSON says what it means.
 */
static void test_null_fields(void **state)
{
    char file[700];
    data_case c;
    (void)state;
    case_open(&c);
    snprintf(file, sizeof file, "%s/columns/calls.zstd.parquet", golden_dir());
    case_dataset(&c, model, file, CALLS "\n");
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(
        texts(&c),
        "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
        "{\"type\": "
        "\"object\", \"properties\": {\"city\": {\"type\": "
        "\"string\"}}}}}][user:Q][assistant:[{\"type\""
        ": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": {\"city\": "
        "\"Paris\"}}}]"
        "][tool:R][assistant:A]|[{\"type\": \"function\", \"function\": {\"name\": \"add\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"number\"}, "
        "\"b\": "
        "{\"type\": \"number\", \"description\": \"the "
        "second\"}}}}}][user:Q][assistant:[{\"type\": "
        "\"function\", \"function\": {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": "
        "2}}}]][tool:R]"
        "[assistant:A]");
    put_file(
        &c, "d.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\", \"tool_calls\": null}, {\"role\":"
        " \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", "
        "\"arguments\": {\"x\": null}}}]}]}\n");
    preview(&c, model, CALLS, "");
    assert_string_equal(texts(&c), "[user:Q][assistant:[{\"function\": {\"name\": \"f\", "
                                   "\"arguments\": {\"x\": null}}}]]");
    case_close(&c);
}

/* Columns of the type JSON (Json of Hugging Face's datasets) hold texts; a null in them is meant.
 */
static void test_values_of_json_columns(void **state)
{
    static const char *const files[] = {"json.zstd.parquet", "json.stream.arrow"};
    char file[700];
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(files); i++) {
        snprintf(file, sizeof file, "%s/columns/%s", golden_dir(), files[i]);
        case_dataset(&c, model, file, CALLS "\n");
        CHECK_OK(case_preview(&c), c.err);
        assert_string_equal(
            texts(&c),
            "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
            "{\"city\": "
            "{\"type\": \"string\"}}}}][user:Q][assistant:[{\"type\": \"function\", \"function\": "
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}}]]|[{\"type\": "
            "\"function\", "
            "\"function\": {\"name\": \"add\", \"parameters\": {\"a\": {\"type\": \"number\", "
            "\"default\""
            ": null}}}}][user:Q][assistant:[{\"type\": \"function\", \"function\": {\"name\": "
            "\"add\", "
            "\"arguments\": {\"a\": 1, \"b\": null}}}]]");
    }
    case_close(&c);
}

#define MODES                                                                                      \
    "chat_template: \"{{ '/think' if enable_thinking else '/no_think' }} {{ custom_instructions "  \
    "}}{% for m in messages %}[{{ m.content }}]{% endfor %}\"\ntrain_on_eos: none"

static void test_variables_of_a_record_reach_the_template(void **state)
{
    char file[700];
    data_case c;
    (void)state;
    case_open(&c);
    snprintf(file, sizeof file, "%s/columns/calls.zstd.parquet", golden_dir());
    case_dataset(&c, model, file, MODES "\n");
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(texts(&c), "/think [Q][][R][A]|/no_think be brief[Q][][R][A]");
    put_file(
        &c, "d.jsonl",
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"completion\": [{\"role\": "
        "\"assistant\", \"content\": \"A\"}], \"chat_template_kwargs\": {\"enable_thinking\": true,"
        " \"custom_instructions\": \"go\"}}\n");
    preview(&c, model, MODES, "");
    assert_string_equal(texts(&c), "/think go[Q][A]");
    put_file(
        &c, "d.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\"}], \"chat_template_kwargs\": {\"add_generation_prompt\": true}}\n");
    case_refused(&c, case_preview(&c), "\"add_generation_prompt\" cannot be set");
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}], \"chat_template_kwargs\": \"x\"}\n");
    case_refused(&c, case_preview(&c), "\"chat_template_kwargs\" should be an object");
    case_close(&c);
}

/* SlimOrca has a weight in every message. */
/* A dataset has its template as text, or as a file. */
static void test_jinja_of_a_dataset(void **state)
{
    static const char *const forms[] = {
        ", chat_template: jinja, chat_template_jinja: \"{% for m in messages %}({{ m.content }}){% "
        "endfor %}\"",
        ", chat_template_jinja: %s/t.jinja, chat_template: jinja",
        ", chat_template_jinja: %s/t.jinja"};
    data_case c;
    char entry[900];
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
             "\"assistant\", \"content\": \"A\"}]}\n");
    put_file(&c, "t.jinja", "{% for m in messages %}({{ m.content }}){% endfor %}");
    for (size_t i = 0; i < AF_LEN(forms); i++) {
        const char *file = strstr(forms[i], "%s");
        snprintf(entry, sizeof entry, "%.*s%s%s", (int)(file ? file - forms[i] : 0), forms[i],
                 file ? c.dir : "", file ? file + 2 : forms[i]);
        preview(&c, model, "chat_template: chatml\ntrain_on_eos: none", entry);
        assert_string_equal(texts(&c), "(Q)(A)");
    }
    case_close(&c);
}

/* Variables of the run reach the template; those of a record come first. */
static void test_variables_of_the_run(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(
        &c, "d.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
        "\"assistant\", \"content\": \"A\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
        "\"assistant\", \"content\": \"A\"}], \"chat_template_kwargs\": {\"effort\": \"low\"}}\n");
    preview(
        &c, model,
        "chat_template: \"{{ effort }} {{ thinks is true }} {{ n + 1 }}{% for m in messages %}[{{ "
        "m.content }}]{% endfor %}\"\ntrain_on_eos: none\n"
        "chat_template_kwargs: {effort: xhigh, thinks: true, n: 2}",
        "");
    assert_string_equal(texts(&c), "xhigh True 3[Q][A]|low True 3[Q][A]");
    /* the prompt of a pair that continues an answer */
    put_file(&c, "d.jsonl",
             "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"B\"}], "
             "\"rejected\": [{\"role\": \"assistant\", \"content\": \"C\"}]}\n");
    preview(&c, model,
            "rl: orpo\nchat_template: \"{{ effort }}{% for m in messages %}[{{ m.content }}]"
            "{% endfor %}\"\nchat_template_kwargs: {effort: high}",
            "");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(c.rows, 0), "prompt_text")), "high[Q][A");
    case_close(&c);
}

static void test_a_weight_of_zero_on_a_question(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(
        &c, "d.jsonl",
        "{\"conversations\": [{\"from\": \"system\", \"value\": \"S\", \"weight\": null}, "
        "{\"from\": \"human\", \"value\": \"Q\", \"weight\": 0.0}, {\"from\": \"gpt\", \"value\": "
        "\"A\", \"weight\": 1.0}]}\n");
    preview(&c, model, "", "");
    assert_string_equal(texts(&c), "<|im_start|>system\nS<|im_end|>\n" TURN("Q", "A"));
    assert_int_equal(trained(&c), 2);
    put_file(
        &c, "d.jsonl",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\", \"weight\": 1}, {\"from\": "
        "\"gpt\", \"value\": \"A\"}]}\n");
    case_refused(&c, case_preview(&c), "message 1: \"weight\": 1 is only allowed on assistant");
    case_close(&c);
}

static void test_names_of_two_roles(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"conversations\": [{\"from\": \"Q\", \"value\": \"q\"}, {\"from\": "
             "\"A\", \"value\": \"a\"}]}\n");
    preview(&c, model, "", ", field_human: Q, field_model: A, strict: false");
    assert_string_equal(texts(&c), TURN("q", "a"));
    case_close(&c);
}

#define OWN_SYSTEM                                                                                 \
    "chat_template: \"{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe "           \
    "good.<|im_end|>\\n' }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + "        \
    "'\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "          \
    "'<|im_start|>assistant\\n' }}{% endif %}\""

/* What the template writes before a first answer is not learned. */
static void test_an_answer_may_come_first(void **state)
{
    static const char *const answers[] = {"A", "$", "%"};
    char line[300];
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(answers); i++) {
        snprintf(line, sizeof line,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"%s\"}, {\"role\": "
                 "\"user\", \"content\": \"Q\"}]}\n",
                 answers[i]);
        put_file(&c, "d.jsonl", line);
        preview(&c, model, OWN_SYSTEM, "");
        assert_non_null(strstr(texts(&c), "system\nBe good.<|im_end|>\n<|im_start|>assistant\n"));
        assert_int_equal(trained(&c), 2); /* and its end */
    }
    case_close(&c);
}

static void test_ends_of_turns(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}, {\"role\": \"user\", \"content\": \"R\"}, {\"role\": "
             "\"assistant\", \"content\": \"B\"}]}\n");
    static const struct {
        const char *keys;
        int more; /* trained tokens than with train_on_eot: none */
    } cases[] = {
        {"train_on_eot: none", 0}, {"train_on_eot: last", 1}, {"train_on_eot: turn", 2},
        {"train_on_eot: all", 4},  {"train_on_eos: last", 1},
    };
    int none = 0;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        preview(&c, model, cases[i].keys, "");
        none = i ? none : trained(&c);
        assert_int_equal(trained(&c) - none, cases[i].more);
    }
    preview(&c, model, "train_on_eos: all", ", train_on_eot: last"); /* of the dataset */
    assert_int_equal(trained(&c) - none, 1);
    /* an end that does not follow the answer is found by its name */
    static const char sign[] =
        "chat_template: \"{% for m in messages %}{{ m.role }} {{ m.content }}{% if m.role == "
        "'assistant' %}!<|im_start|>{% endif %}{% endfor %}\"";
    char keys[900];
    snprintf(keys, sizeof keys, "%s\ndatasets: [{path: %s/d.jsonl}]\n", sign, c.dir);
    case_run(&c, model, keys);
    assert_int_not_equal(case_preview(&c), AF_OK);
    assert_non_null(strstr(c.err.msg, "message 2: no end-of-turn token found after it"));
    snprintf(keys, sizeof keys, "%s\ntrain_on_eot: none\neot_tokens: ['<|im_start|>']", sign);
    preview(&c, model, keys, "");
    none = trained(&c);
    snprintf(keys, sizeof keys, "%s\neot_tokens: ['<|im_start|>']", sign);
    preview(&c, model, keys, "");
    assert_int_equal(trained(&c) - none, 2);
    case_close(&c);
}

/* The answers before the last one are context, with any template. */
static void test_mask_history(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}, {\"role\": \"user\", \"content\": \"R\"}, {\"role\": "
             "\"assistant\", \"content\": \"B\"}]}\n");
    preview(&c, model, "chat_template: chatml", "");
    const int all = trained(&c);
    preview(&c, model, "chat_template: chatml\nmask_history: true", "");
    assert_int_equal(2 * trained(&c), all);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}, {\"role\": \"user\", \"content\": \"R\"}]}\n");
    preview(&c, model, "chat_template: chatml\nmask_history: true", "");
    assert_int_equal(2 * trained(&c), all); /* the last answer, also before a question */
    case_close(&c);
}

static void test_templates_by_other_names(void **state)
{
    data_case c;
    char keys[900];
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}]}\n");
    preview(&c, bare_model(&c), "chat_template: tokenizer_default_fallback_alpaca", "");
    assert_string_equal(texts(&c), "### Instruction:\nQ\n\n### Response:\nA<|endoftext|>");
    preview(&c, model, "chat_template: tokenizer_default_fallback_alpaca", "");
    assert_string_equal(texts(&c), TURN("Q", "A")); /* the model's own */
    preview(&c, model,
            "chat_template: jinja\nchat_template_jinja: \"{% for m in messages %}{{ m.content "
            "}};{% endfor %}\"\ntrain_on_eos: none",
            "");
    assert_string_equal(texts(&c), "Q;A;");
    put_file(&c, "t.jinja", "{% for m in messages %}{{ m.content }}/{% endfor %}");
    snprintf(keys, sizeof keys,
             "chat_template: jinja\nchat_template_jinja: %s/t.jinja\ntrain_on_eos: none", c.dir);
    preview(&c, model, keys, "");
    assert_string_equal(texts(&c), "Q/A/");
    case_run(&c, model, "chat_template: jinja\ndatasets: [{path: d.jsonl}]\n");
    assert_int_not_equal(case_preview(&c), AF_OK);
    assert_non_null(strstr(c.err.msg, "'chat_template: jinja' needs 'chat_template_jinja'"));
    case_close(&c);
}

static void hear_all(void *user, af_log_level level, const char *line)
{
    (void)level;
    af_buf_str(user, line);
    af_buf_char(user, '\n');
}

static void test_a_model_without_template_gets_the_alpaca_prompt(void **state)
{
    static const char says[] = "the model has no chat template: the Alpaca prompt is used";
    data_case c;
    char more[900];
    (void)state;
    case_open(&c);
    put_file(&c, "d.jsonl", "{\"instruction\": \"I\", \"output\": \"O\"}\n");
    const char *bases[] = {bare_model(&c), model};
    for (int i = 0; i < 2; i++) {
        c.log.len = 0;
        af_buf_str(&c.log, "");
        json_decref(c.rows);
        c.rows = json_array();
        snprintf(more, sizeof more, "datasets: [{path: %s/d.jsonl}]\n", c.dir);
        case_run(&c, bases[i], more);
        af_log_set(hear_all, &c.log);
        CHECK_OK(af_data_preview(case_path(&c, "run.yaml"), NULL, 0, 0, case_row, c.rows, &c.err),
                 c.err);
        assert_int_equal(strstr(c.log.data, says) != NULL, i == 0);
        assert_int_equal(strstr(texts(&c), "### Instruction:\nI") != NULL, i == 0);
    }
    case_close(&c);
}

static void test_pairs_of_axolotl(void **state)
{
    static const struct {
        const char *entry, *record;
    } cases[] = {
        {"type: chatml.intel", "{\"system\": \"S\", \"question\": \"Q\", \"chosen\": \"yes\", "
                               "\"rejected\": \"no\"}"},
        {"type: chatml.prompt_pairs",
         "{\"prompt\": \"Q\", \"chosen\": \"yes\", \"rejected\": \"no\"}"},
        {"type: llama3.icr", "{\"input\": \"Q\", \"chosen\": \"yes\", \"rejected\": \"no\"}"},
        {"type: llama3.ultra",
         "{\"prompt\": \"Q\", \"chosen\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
         "\"assistant\", \"content\": \"yes\"}], \"rejected\": [{\"role\": \"user\", \"content\": "
         "\"Q\"}, {\"role\": \"assistant\", \"content\": \"no\"}]}"},
        {"field_prompt: q, field_chosen: good, field_rejected: bad",
         "{\"q\": \"Q\", \"good\": \"yes\", \"bad\": \"no\"}"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[900];
        put_file(&c, "d.jsonl", cases[i].record);
        snprintf(more, sizeof more, "output_dir: out\ndatasets: [{path: %s/d.jsonl, %s}]\n", c.dir,
                 cases[i].entry);
        case_run(&c, model, more);
        const af_status st = case_check(&c);
        if (st != AF_OK || c.report.errors || c.report.records != 1)
            fail_msg("%s: %s %s", cases[i].entry, c.err.msg, c.log.data);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *row = json_array_get(c.rows, 0);
        const char *good =
                       json_string_value(json_object_get(json_object_get(row, "chosen"), "text")),
                   *bad =
                       json_string_value(json_object_get(json_object_get(row, "rejected"), "text"));
        assert_true(good && strstr(good, "Q") && strstr(good, "yes") && !strstr(good, "no"));
        assert_true(bad && strstr(bad, "Q") && strstr(bad, "no") && !strstr(bad, "yes"));
    }
    case_close(&c);
}

/* ms-swift: another last answer next to a conversation, or a label for its last one. */
static void test_pairs_of_ms_swift(void **state)
{
#define ASKED "\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
#define GOOD  "{\"role\": \"assistant\", \"content\": \"yes\"}]"
    static const char *const rows[] = {
        "{" ASKED GOOD ", \"rejected_response\": \"no\"}\n",
        "{" ASKED GOOD ", \"rejected_messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
        "{\"role\": \"assistant\", \"content\": \"no\"}]}\n",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", "
        "\"value\": \"yes\"}], \"rejected_response\": \"no\"}\n",
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(rows); i++) {
        put_file(&c, "d.jsonl", rows[i]);
        preview(&c, model, THINKS "\nrl: dpo", "");
        const json_t *row = json_array_get(c.rows, 0);
        assert_string_equal(json_string_value(json_object_get(row, "prompt_text")), "[user:Q]");
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(row, "chosen"), "text")),
            "[user:Q][assistant:yes]");
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(row, "rejected"), "text")),
            "[user:Q][assistant:no]");
    }
    put_file(&c, "d.jsonl", "{" ASKED GOOD ", \"label\": false}\n");
    preview(&c, model, THINKS "\nrl: kto", "");
    assert_string_equal(texts(&c), "[user:Q][assistant:yes]");
    assert_true(json_is_false(json_object_get(json_array_get(c.rows, 0), "label")));
    put_file(&c, "d.jsonl", "{" ASKED GOOD ", \"label\": true}\n");
    preview(&c, model, THINKS, ""); /* without `rl` it is a conversation */
    assert_string_equal(texts(&c), "[user:Q][assistant:yes]");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts_have_names),
        cmocka_unit_test(test_a_system_text_for_all),
        cmocka_unit_test(test_thoughts_in_contents),
        cmocka_unit_test(test_null_fields),
        cmocka_unit_test(test_values_of_json_columns),
        cmocka_unit_test(test_variables_of_a_record_reach_the_template),
        cmocka_unit_test(test_jinja_of_a_dataset),
        cmocka_unit_test(test_variables_of_the_run),
        cmocka_unit_test(test_names_of_two_roles),
        cmocka_unit_test(test_a_weight_of_zero_on_a_question),
        cmocka_unit_test(test_an_answer_may_come_first),
        cmocka_unit_test(test_ends_of_turns),
        cmocka_unit_test(test_mask_history),
        cmocka_unit_test(test_templates_by_other_names),
        cmocka_unit_test(test_a_model_without_template_gets_the_alpaca_prompt),
        cmocka_unit_test(test_pairs_of_axolotl),
        cmocka_unit_test(test_pairs_of_ms_swift),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
