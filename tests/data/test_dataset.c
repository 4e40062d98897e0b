/* test_dataset.c - datasets of every shape against a reference pipeline (transformers' rendering,
 * the tokenizers package), every malformed variant, options of the mask, cutting, the cache. */
#define _GNU_SOURCE
#include "data_case.h"

#include <strings.h>

static char model[1024];

static int setup(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

static void test_every_shape_gives_the_reference_ids_and_labels(void **state)
{
    static const char *const names[] = {
        "alpaca.csv",
        "alpaca.jsonl",
        "alpaca_array.json",
        "dpo_implicit.jsonl",
        "dpo_messages.jsonl",
        "dpo_strings.jsonl",
        "input_output.jsonl",
        "kto.jsonl",
        "message_flags.jsonl",
        "messages.jsonl",
        "messages_tools.jsonl",
        "prompt_completion.jsonl",
        "prompt_completion_messages.jsonl",
        "sharegpt.jsonl",
        "text.jsonl",
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(names); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/data/files/%s", golden_dir(), names[i]);
        case_dataset(&c, model, path, "");
        CHECK_OK(case_preview(&c), c.err);
        snprintf(path, sizeof path, "%s/data/expected/%s.jsonl", golden_dir(), names[i]);
        json_t *want = case_lines(path);
        CHECK_MSG(json_equal(want, c.rows), "%s differs from the reference", names[i]);
        json_decref(want);
    }
    case_close(&c);
}

static bool line_mentions(const char *log, const char *where, const json_t *words)
{
    for (const char *at = log; *at;) {
        const size_t n = strcspn(at, "\n");
        char *line = strndup(at, n);
        bool good = strstr(line, where) != NULL;
        for (size_t i = 0; i < json_array_size(words); i++)
            good = good && strcasestr(line, json_string_value(json_array_get(words, i)));
        free(line);
        if (good)
            return true;
        at += n + (at[n] != 0);
    }
    return false;
}

/* The golden keeps bytes as code points U+0000 .. U+00FF. */
static void write_bytes(const data_case *c, const char *name, const json_t *text)
{
    af_buf b = {0};
    const char *s = json_string_value(text);
    af_buf_str(&b, "");
    for (size_t i = 0; i < json_string_length(text); i++) {
        const uint8_t lead = (uint8_t)s[i];
        af_buf_char(&b, (char)(lead < 0x80 ? lead : (lead & 3) << 6 | ((uint8_t)s[i + 1] & 0x3f)));
        i += lead >= 0x80;
    }
    case_write(c, name, b.data, b.len);
    af_buf_clear(&b);
}

/* The model's own template, but it mentions tools: no warning that it leaves them out. */
static const char knows_tools[] =
    "chat_template: \"{# tools tool_calls #}{% for m in messages %}{{ '<|im_start|>' + m['role'] + "
    "'\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}\"\n";

static void check_variant(data_case *c, const json_t *v)
{
    const char *file = json_string_value(json_object_get(v, "file"));
    const char *verdict = json_string_value(json_object_get(v, "verdict"));
    const json_t *line = json_object_get(v, "line"), *same = json_object_get(v, "same_as");
    char where[300], path[1024];
    write_bytes(c, file, json_object_get(v, "bytes"));
    case_dataset(c, model, case_path(c, file), knows_tools);
    const af_status st = case_check(c);
    if (st != AF_OK) {
        af_buf_str(&c->log, c->err.msg);
    }
    CHECK_MSG((st != AF_OK) == !strcmp(verdict, "error"), "%s: should %s, log:\n%s", file, verdict,
              c->log.data);
    snprintf(where, sizeof where, json_is_integer(line) ? "%s:%d:" : "%s: ", file,
             (int)json_integer_value(line));
    if (strcmp(verdict, "accept"))
        CHECK_MSG(line_mentions(c->log.data, where, json_object_get(v, "must_mention")),
                  "%s: the message should name %s and more, log:\n%s", file, where, c->log.data);
    else
        CHECK_MSG(c->log.len == 0, "%s: nothing to warn of, log:\n%s", file, c->log.data);
    if (strcmp(verdict, "error"))
        CHECK_MSG((c->report.warnings > 0) == !strcmp(verdict, "warn"), "%s: warnings count", file);
    if (!json_is_string(same))
        return;
    CHECK_OK(case_preview(c), c->err);
    snprintf(path, sizeof path, "%s/data/expected/%s.jsonl", golden_dir(), json_string_value(same));
    json_t *want = case_lines(path);
    assert_int_equal(json_array_size(want), json_array_size(c->rows));
    for (size_t i = 0; i < json_array_size(want); i++) {
        json_object_del(json_array_get(want, i), "line");
        json_object_del(json_array_get(c->rows, i), "line");
    }
    CHECK_MSG(json_equal(want, c->rows), "%s should read like %s", file, json_string_value(same));
    json_decref(want);
}

static void test_malformed_files_are_reported_with_line_and_reason(void **state)
{
    char path[1024];
    data_case c;
    (void)state;
    case_open(&c);
    snprintf(path, sizeof path, "%s/data/malformed.jsonl", golden_dir());
    json_t *list = case_lines(path);
    assert_int_equal(json_array_size(list), 223);
    for (size_t i = 0; i < json_array_size(list); i++)
        check_variant(&c, json_array_get(list, i));
    json_decref(list);
    case_close(&c);
}

/* The supervised text of the first record: tokens with loss, decoded. */
static void supervised_text(const data_case *c, char *out, size_t size)
{
    af_tokenizer *t;
    af_error err;
    int32_t ids[512];
    int64_t n = 0;
    char *text;
    const json_t *row = json_array_get(c->rows, 0), *labels = json_object_get(row, "labels");
    for (size_t i = 0; i < json_array_size(labels) && n < 512; i++) {
        const int32_t l = (int32_t)json_integer_value(json_array_get(labels, i));
        if (l != -100)
            ids[n++] = l;
    }
    CHECK_OK(af_tokenizer_open(&t, model, &err), err);
    CHECK_OK(af_tokenizer_decode(t, &text, NULL, ids, n, false, &err), err);
    snprintf(out, size, "%s", text);
    free(text);
    af_tokenizer_close(t);
}

static void test_options_move_the_mask(void **state)
{
    static const char record[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
        "\"content\": \"U1\"}, {\"role\": \"assistant\", \"content\": \"A1\"}, {\"role\": "
        "\"user\", \"content\": \"U2\"}, {\"role\": \"assistant\", \"content\": \"A2\"}]}\n";
#define END "<|im_end|>"
    static const struct {
        const char *keys, *want;
    } cases[] = {
        {"", "A1" END "A2" END},
        {"train_on_eos: last\n", "A1A2" END},
        {"train_on_eos: none\n", "A1A2"},
        {"train_on_eos: all\n", END END "A1" END END "A2" END},
        {"roles_to_train: [user]\n", "U1" END "U2" END},
        {"roles_to_train: [user, assistant]\n", "U1" END "A1" END "U2" END "A2" END},
        {"train_on_inputs: true\n",
         "<|im_start|>system\nS" END "\n<|im_start|>user\nU1" END "\n<|im_start|>assistant\nA1" END
         "\n<|im_start|>user\nU2" END "\n<|im_start|>assistant\nA2" END "\n"},
        {"chat_template: \"{% for m in messages %}{{ m.role }}|{% if m.role == 'assistant' %}"
         "{% generation %}{{ m.content }}!<|im_end|>{% endgeneration %}{% endif %}{% endfor %}\"\n",
         "A1!" END "A2!" END},
        /* no turn is rendered after one of its own role */
        {"roles_to_train: [user]\nchat_template: \"{% for m in messages %}{% if not loop.first and "
         "m.role == messages[loop.index0 - 1].role %}{{ raise_exception('twice') }}{% endif %}"
         "<|im_start|>{{ m.role }}\\n{{ m.content }}" END "{% endfor %}\"\n",
         "U1" END "U2" END},
    };
    data_case c;
    char got[2000];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_dataset(&c, model, case_path(&c, "d.jsonl"), cases[i].keys);
        CHECK_OK(case_preview(&c), c.err);
        supervised_text(&c, got, sizeof got);
        CHECK_MSG(!strcmp(got, cases[i].want), "%s gives '%s', not '%s'", cases[i].keys, got,
                  cases[i].want);
    }
    case_close(&c);
}

/* `auto` is TRL's rule: prompts carry loss, but not where the completion is apart. Keys that a
 * prompt of Axolotl has no use for are left, with a warning; a FastChat style names a template. */
static void test_rules_of_other_trainers(void **state)
{
    static const char talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, "
                               "{\"role\": \"assistant\", \"content\": \"A\"}]}\n",
                      pair[] = "{\"prompt\": \"P\", \"completion\": \"C\"}\n",
                      task[] = "{\"instruction\": \"I\", \"output\": \"O\"}\n";
    static const struct {
        const char *record, *run, *entry, *with, *without, *said;
    } cases[] = {
        {talk, "train_on_inputs: auto\n", "", "user\nU", NULL, NULL},
        {pair, "train_on_inputs: auto\n", "", "C", "P", NULL},
        {pair, "train_on_inputs: true\n", "", "PC", NULL, NULL},
        {pair, "train_on_inputs: auto\n", "    train_on_inputs: true\n", "PC", NULL, NULL},
        {task, "", "    type: alpaca\n    field_messages: x\n", "O", "I",
         "field_messages has no effect on the prompt 'alpaca'"},
        {talk, "", "    type: chat_template\n    conversation: llama3\n", "A<|eot_id|>", "U", NULL},
    };
    data_case c;
    char got[2000], text[2000];
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_write(&c, "d.jsonl", cases[i].record, strlen(cases[i].record));
        snprintf(text, sizeof text, "%sdatasets:\n  - path: %s\n%s", cases[i].run,
                 case_path(&c, "d.jsonl"), cases[i].entry);
        case_run(&c, model, text);
        CHECK_OK(case_preview(&c), c.err);
        supervised_text(&c, got, sizeof got);
        CHECK_MSG(strstr(got, cases[i].with), "%s%s gives '%s'", cases[i].run, cases[i].entry, got);
        CHECK_MSG(!cases[i].without || !strstr(got, cases[i].without), "%s%s gives '%s'",
                  cases[i].run, cases[i].entry, got);
        CHECK_MSG(!cases[i].said || strstr(c.log.data, cases[i].said), "said: %s", c.log.data);
    }
    case_close(&c);
}

/* The last turn is closed by another token, and the answer holds the usual one: the later of the
 * two in the span ends the turn. */
static void test_the_last_of_two_ends_of_turn_counts(void **state)
{
    static const char record[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\": "
        "\"assistant\", \"content\": \"A" END "B\"}]}\n";
    data_case c;
    char got[2000];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    case_dataset(
        &c, model, case_path(&c, "d.jsonl"),
        "chat_template: \"{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}"
        "{% if loop.last and m.role == 'assistant' %}<|endoftext|>{% else %}" END
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n"
        "{% endif %}\"\n");
    CHECK_OK(case_preview(&c), c.err);
    supervised_text(&c, got, sizeof got);
    assert_string_equal(got, "A" END "B<|endoftext|>");
    case_close(&c);
}

/* Only a whole end-of-turn token before the place where renderings differ ends a turn. */
static void test_part_of_an_end_of_turn_is_none(void **state)
{
    static const char record[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\": "
        "\"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"V\"}, "
        "{\"role\": \"assistant\", \"content\": \"B\"}]}\n";
    data_case c;
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    case_dataset(&c, model, case_path(&c, "d.jsonl"),
                 "chat_template: \"{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content "
                 "}}<|im_end|{{ '}' if m.role == 'assistant' and messages | length < 4 else '>' "
                 "}}{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}\"\n");
    assert_int_not_equal(case_preview(&c), AF_OK);
    CHECK_MSG(strstr(c.err.msg, "message 2: no end-of-turn token found") ||
                  (c.log.data && strstr(c.log.data, "message 2: no end-of-turn token found")),
              "%s | %s", c.err.msg, c.log.data ? c.log.data : "");
    case_close(&c);
}

/* A text that ends with eos already gets no second one. */
static void test_plain_records_end_with_one_eos(void **state)
{
    data_case c;
    af_tokenizer *t;
    af_error err;
    char record[300], want[100], got[2000];
    (void)state;
    CHECK_OK(af_tokenizer_open(&t, model, &err), err);
    snprintf(want, sizeof want, " A%s", af_tokenizer_eos_text(t));
    for (int has = 0; has < 2; has++) {
        case_open(&c);
        snprintf(record, sizeof record, "{\"prompt\": \"Q\", \"completion\": \" A%s\"}\n",
                 has ? af_tokenizer_eos_text(t) : "");
        case_write(&c, "d.jsonl", record, strlen(record));
        case_dataset(&c, model, case_path(&c, "d.jsonl"), "");
        CHECK_OK(case_preview(&c), c.err);
        supervised_text(&c, got, sizeof got);
        CHECK_MSG(!strcmp(got, want), "'%s', not '%s'", got, want);
        case_close(&c);
    }
    af_tokenizer_close(t);
}

static void test_fields_and_roles_can_be_named(void **state)
{
    static const char record[] =
        "{\"chat\": [{\"who\": \"client\", \"says\": \"U\"}, {\"who\": \"bot\", \"says\": "
        "\"A\"}]}\n";
    data_case c;
    char text[2048], got[200];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    snprintf(text, sizeof text,
             "datasets:\n  - path: %s\n    type: chat_template\n    field_messages: chat\n"
             "    message_property_mappings:\n      role: who\n      content: says\n"
             "    roles:\n      user: [client]\n      assistant: bot\n",
             case_path(&c, "d.jsonl"));
    case_run(&c, model, text);
    CHECK_OK(case_preview(&c), c.err);
    supervised_text(&c, got, sizeof got);
    assert_string_equal(got, "A<|im_end|>");
    case_close(&c);
}

static void test_turns_with_kto_tag(void **state)
{
    static const char record[] =
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"U\"}, {\"from\": \"gpt\", "
        "\"value\": \"A\"}, {\"from\": \"human\", \"value\": \"V\"}, {\"from\": \"gpt\", "
        "\"value\": \"B\"}], \"kto_tag\": false}\n";
    data_case c;
    char got[200];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    case_dataset(&c, model, case_path(&c, "d.jsonl"), "");
    CHECK_OK(case_preview(&c), c.err);
    supervised_text(&c, got, sizeof got);
    assert_string_equal(got, "B<|im_end|>");
    assert_true(json_is_false(json_object_get(json_array_get(c.rows, 0), "label")));
    case_close(&c);
}

/* Keys of other trainers that are empty or off ask for nothing. */
static void test_keys_of_an_entry_that_are_off(void **state)
{
    static const char record[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"A\"}]}\n";
    static const char *const off[] = {"shards:", "skip: 0", "split_thinking: false",
                                      "columns: [messages]", "format: custom"};
    static const char *const on[] = {"shards_idx: 1", "skip: 10", "logprobs_field: x", "format: x"};
    static const char form[] = "datasets:\n  - path: %s\n    %s\n";
    data_case c;
    char entry[1200];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    for (size_t i = 0; i < AF_LEN(off); i++) {
        snprintf(entry, sizeof entry, form, case_path(&c, "d.jsonl"), off[i]);
        case_run(&c, model, entry);
        CHECK_OK(case_preview(&c), c.err);
    }
    for (size_t i = 0; i < AF_LEN(on); i++) {
        snprintf(entry, sizeof entry, form, case_path(&c, "d.jsonl"), on[i]);
        case_run(&c, model, entry);
        CHECK_MSG(case_preview(&c) != AF_OK, "accepted: %s", on[i]);
    }
    case_close(&c);
}

static void test_wrong_entries_are_reported_with_the_line(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"datasets:\n  - path: x.jsonl\n    feild_messages: y\n", "run.yaml:4: unknown key"},
        {"datasets:\n  - path: x.jsonl\n    feild_messages: y\n", "did you mean 'field_messages'"},
        {"datasets:\n  - type: alpaca\n", "run.yaml:3: a dataset has no path"},
        {"datasets:\n  - path: x.jsonl\n    type: alpacca\n", "run.yaml:4: type 'alpacca'"},
        {"datasets:\n  - path: not-there.jsonl\n", "not-there.jsonl is not there"},
        {"datasets: []\n", "is empty"},
        {"datasets:\n  - path: x.jsonl\n    conversation: vicuna_v1.1\n",
         "run.yaml:4: 'conversation' with 'vicuna_v1.1' is not supported"},
        {"datasets:\n  - path: x.jsonl\n    train_on_eos: last\n    train_on_eot: all\n",
         "run.yaml:5: a train_on_eot other than train_on_eos is not supported"},
        {"datasets:\n  - path: x.jsonl\n    chat_template: llama3\n    chat_template_jinja: "
         "a.jinja\n",
         "run.yaml:5: chat_template_jinja of a dataset goes with 'chat_template: jinja', not with "
         "'llama3'"},
        {"datasets:\n  - path: x.jsonl\n    data_dir: y\n",
         "run.yaml:4: 'data_dir' of a dataset is not supported: name the folder in"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_run(&c, model, cases[i].text);
        assert_int_not_equal(case_preview(&c), AF_OK);
        CHECK_MSG(strstr(c.err.msg, cases[i].want), "'%s' should say '%s'", c.err.msg,
                  cases[i].want);
    }
    case_write(&c, "x.parquet", "PAR1", 4);
    case_dataset(&c, model, case_path(&c, "x.parquet"), "");
    assert_int_equal(case_preview(&c), AF_EFORMAT);
    assert_non_null(strstr(c.err.msg, "x.parquet: the parquet file is damaged: it is too short"));
    case_close(&c);
}

static void test_chat_records_become_the_golden_tokens(void **state)
{
    data_case c;
    af_arena mem = {0};
    af_token_store s, again;
    af_data_counts counts, cached;
    af_error err = {0};
    char yaml[1200], path[1024];
    (void)state;
    case_open(&c);
    snprintf(yaml, sizeof yaml, "- path: %s/models/data/train.jsonl", golden_dir());
    const af_data_opts o = case_training(model, &mem, yaml, 2048);
    CHECK_OK(af_dataset_open(&s, &counts, &o, &err), err);
    snprintf(path, sizeof path, "%s/models/data/train_tokens.jsonl", golden_dir());
    json_t *want = case_lines(path);
    assert_int_equal(s.records, json_array_size(want));
    for (int64_t r = 0; r < s.records; r++) {
        const json_t *row = json_array_get(want, (size_t)r);
        const json_t *ids = json_object_get(row, "input_ids"), *l = json_object_get(row, "labels");
        const uint32_t *w = af_token_words(&s, r);
        assert_int_equal(s.index[r].count, json_array_size(ids));
        assert_int_equal(s.index[r].line, r + 1);
        for (uint32_t i = 0; i < s.index[r].count; i++) {
            const bool loss = json_integer_value(json_array_get(l, i)) != -100;
            assert_int_equal(w[i] & ~AF_TOKEN_NO_LOSS, json_integer_value(json_array_get(ids, i)));
            assert_int_equal(!(w[i] & AF_TOKEN_NO_LOSS), loss);
        }
    }
    json_decref(want);
    assert_non_null(strstr(af_dataset_file(&s, 0), "train.jsonl"));
    assert_int_equal(counts.records, s.records);
    assert_int_equal(counts.tokens, s.tokens);
    assert_int_equal(counts.supervised, s.supervised);
    CHECK_OK(af_dataset_open(&again, &cached, &o, &err), err);
    assert_memory_equal(&counts, &cached, sizeof counts);
    assert_string_equal(af_dataset_file(&again, 0), af_dataset_file(&s, 0));
    af_token_store_close(&again);
    af_token_store_close(&s);
    af_arena_clear(&mem);
    case_close(&c);
}

/* The last tokens of the last record, whose end of turn is among them. */
static void check_ends(af_data_opts end)
{
    af_data_opts whole = end;
    af_token_store cut, all;
    af_data_counts n;
    af_error err;
    whole.sequence_len = 64;
    CHECK_OK(af_dataset_open(&all, &n, &whole, &err), err);
    end.keep_end = true;
    CHECK_OK(af_dataset_open(&cut, &n, &end, &err), err);
    assert_true(n.truncated == 1 && n.lost_eot == 0 && cut.longest == 20);
    const uint32_t *kept = af_token_words(&cut, 1), *end_of = af_token_words(&all, 1) + all.longest;
    assert_memory_equal(kept + 1, end_of - 19, 19 * sizeof *kept);
    assert_int_equal(kept[0], end_of[-20] | AF_TOKEN_NO_LOSS);
    af_token_store_close(&all);
    af_token_store_close(&cut);
}

static void test_what_is_cut_is_counted(void **state)
{
    static const struct {
        af_excess excess;
        int64_t length;
        int64_t records, truncated, lost, dropped, skipped;
    } cases[] = {
        {AF_EXCESS_TRUNCATE, 64, 2, 0, 0, 0, 0},
        {AF_EXCESS_TRUNCATE, 20, 2, 1, 1, 0, 0},
        {AF_EXCESS_DROP, 20, 1, 0, 0, 1, 0},
        {AF_EXCESS_TRUNCATE, 4, 0, 2, 2, 0, 2}, /* nothing with loss is left */
    };
    static const char data[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"1 2 3 4 5 6 7 8 9 10 11 12\"}]}\n";
    data_case c;
    char yaml[1200];
    af_error err = {0};
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", data, strlen(data));
    snprintf(yaml, sizeof yaml, "- path: %s", case_path(&c, "d.jsonl"));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_arena mem = {0};
        af_token_store s;
        af_data_counts n;
        af_data_opts o = case_training(model, &mem, yaml, cases[i].length);
        o.excess = cases[i].excess;
        CHECK_OK(af_dataset_open(&s, &n, &o, &err), err);
        assert_int_equal(n.records, cases[i].records);
        assert_int_equal(n.truncated, cases[i].truncated);
        assert_int_equal(n.lost_eot, cases[i].lost);
        assert_int_equal(n.dropped, cases[i].dropped);
        assert_int_equal(n.nothing_to_learn, cases[i].skipped);
        af_token_store_close(&s);
        af_arena_clear(&mem);
    }
    af_arena mem = {0};
    af_token_store s;
    af_data_counts n;
    af_data_opts o = case_training(model, &mem, yaml, 20);
    check_ends(o);
    o.excess = AF_EXCESS_ERROR;
    assert_int_equal(af_dataset_open(&s, &n, &o, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "d.jsonl:2: "));
    af_arena_clear(&mem);
    case_close(&c);
}

static void test_preference_data_needs_a_method(void **state)
{
    static const char *const names[] = {"dpo_strings.jsonl", "kto.jsonl"};
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(names); i++) {
        af_arena mem = {0};
        af_token_store s;
        af_data_counts n;
        af_error err = {0};
        char yaml[1200];
        snprintf(yaml, sizeof yaml, "- path: %s/data/files/%s", golden_dir(), names[i]);
        const af_data_opts o = case_training(model, &mem, yaml, 64);
        assert_int_equal(af_dataset_open(&s, &n, &o, &err), AF_EUSAGE);
        assert_non_null(strstr(err.msg, "choose a method with 'rl'"));
        af_arena_clear(&mem);
    }
    case_close(&c);
}

static void test_plain_text_is_cut_into_windows(void **state)
{
    data_case c;
    af_arena mem = {0};
    af_token_store s;
    af_data_counts n;
    af_error err = {0};
    af_buf b = {0};
    char yaml[1200];
    (void)state;
    case_open(&c);
    for (int i = 0; i < 1000; i++)
        af_buf_printf(&b, "line %d of a text\n", i);
    case_write(&c, "t.txt", b.data, b.len);
    snprintf(yaml, sizeof yaml, "- path: %s", case_path(&c, "t.txt"));
    const af_data_opts o = case_training(model, &mem, yaml, 128);
    CHECK_OK(af_dataset_open(&s, &n, &o, &err), err);
    assert_true(s.records > 50);
    for (int64_t r = 0; r + 1 < s.records; r++)
        assert_int_equal(s.index[r].count, 128);
    assert_int_equal(n.truncated, 0);
    assert_int_equal(af_token_words(&s, s.records - 1)[s.index[s.records - 1].count - 1], 511);
    af_token_store_close(&s);
    af_buf_clear(&b);
    af_arena_clear(&mem);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_shape_gives_the_reference_ids_and_labels),
        cmocka_unit_test(test_malformed_files_are_reported_with_line_and_reason),
        cmocka_unit_test(test_options_move_the_mask),
        cmocka_unit_test(test_rules_of_other_trainers),
        cmocka_unit_test(test_the_last_of_two_ends_of_turn_counts),
        cmocka_unit_test(test_part_of_an_end_of_turn_is_none),
        cmocka_unit_test(test_plain_records_end_with_one_eos),
        cmocka_unit_test(test_fields_and_roles_can_be_named),
        cmocka_unit_test(test_turns_with_kto_tag),
        cmocka_unit_test(test_keys_of_an_entry_that_are_off),
        cmocka_unit_test(test_wrong_entries_are_reported_with_the_line),
        cmocka_unit_test(test_chat_records_become_the_golden_tokens),
        cmocka_unit_test(test_what_is_cut_is_counted),
        cmocka_unit_test(test_preference_data_needs_a_method),
        cmocka_unit_test(test_plain_text_is_cut_into_windows),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
