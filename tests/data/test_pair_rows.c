/* test_pair_rows.c - token rows of preference records, exactly those of TRL 1.16: 16 records in 47
 * formats of TRL, Axolotl and LLaMA-Factory, whole, with a small sequence_len and with a limit of
 * the prompt. */
#define _GNU_SOURCE
#include "data_case.h"

#include "data/store/dataset_reader.h"

/* The rows of a format as they were emitted: [{record, prompt, first, second, label}]. */
typedef struct row_case {
    data_case c;
    json_t *rows;
    const json_t *format;
    const char *name;
    const char *model;  /* NULL = qwen2 */
    int64_t max_prompt; /* max_prompt_length */
    bool drop, end;     /* excess_length_strategy, truncation_mode keep_end */
} row_case;

static json_t *ids_of(const int32_t *ids, int64_t n)
{
    json_t *out = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(out, json_integer(ids[i]));
    return out;
}

static af_status take(void *user, const af_example *e, af_error *err)
{
    (void)err;
    const af_pair_row *p = e->pair;
    assert_non_null(p);
    json_array_append_new(
        user, json_pack("{s:I,s:o,s:o,s:o,s:b}", "record", (json_int_t)(e->record - 1), "prompt",
                        ids_of(p->prompt, p->prompt_len), "first", ids_of(p->first, p->first_len),
                        "second", ids_of(p->second, p->second_len), "label", p->label));
    return AF_OK;
}

static af_rl method_of(const char *trainer)
{
    static const struct {
        const char *name;
        af_rl rl;
    } list[] = {
        {"dpo", AF_RL_DPO}, {"kto", AF_RL_KTO}, {"orpo", AF_RL_ORPO}, {"reward", AF_RL_REWARD}};
    for (size_t i = 0; i < AF_LEN(list); i++)
        if (strcmp(list[i].name, trainer) == 0)
            return list[i].rl;
    fail_msg("no method for %s", trainer);
    return AF_RL_NONE;
}

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* Writes the records, and an entry of `datasets` (or a dataset_info.json) for them. */
static void write_files(row_case *t)
{
    af_buf b = {0};
    const json_t *records = json_object_get(t->format, "records");
    for (size_t i = 0; i < json_array_size(records); i++) {
        char *line = json_dumps(json_array_get(records, i), 0);
        af_buf_printf(&b, "%s\n", line);
        free(line);
    }
    case_write(&t->c, "data.jsonl", b.data, b.len);
    af_buf_clear(&b);
    json_t *info = json_object_get(t->format, "dataset_info"), *entry;
    if (info) {
        entry = json_pack("{s:o}", "own", json_deep_copy(info));
        json_object_set_new(json_object_get(entry, "own"), "file_name", json_string("data.jsonl"));
    } else {
        entry = json_object();
        json_object_update(entry, json_object_get(t->format, "axolotl_config"));
        json_object_set_new(entry, "path", json_string(case_path(&t->c, "data.jsonl")));
        if (!json_object_get(entry, "type") && text_at(t->format, "axolotl_type"))
            json_object_set_new(entry, "type", json_string(text_at(t->format, "axolotl_type")));
    }
    char *text = json_dumps(entry, 0);
    case_write(&t->c, info ? "dataset_info.json" : "entry.json", text, strlen(text));
    free(text);
    json_decref(entry);
}

static void read_rows(row_case *t, int64_t limit, const char *turns)
{
    const bool info = json_object_get(t->format, "dataset_info") != NULL;
    char model[600], *text = NULL;
    uint64_t size = 0;
    af_arena mem = {0};
    af_yaml *list = NULL;
    af_error err = {0};
    af_data_pipeline k = {0};
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    if (t->model)
        snprintf(model, sizeof model, "%s", t->model);
    if (info)
        text = strdup("[own]");
    else
        CHECK_OK(af_file_read(&text, &size, case_path(&t->c, "entry.json"), 1 << 20, &err), err);
    CHECK_OK(af_yaml_parse(&list, &mem, text, strlen(text), "run.yaml", &err), err);
    const af_data_opts o = {.datasets = list,
                            .dataset_dir = info ? t->c.dir : NULL,
                            .run_path = "run.yaml",
                            .model = model,
                            .turn_template = turns,
                            .excess = t->drop ? AF_EXCESS_DROP : AF_EXCESS_TRUNCATE,
                            .keep_end = t->end,
                            .rl = method_of(text_at(t->format, "trainer")),
                            .sequence_len = limit,
                            .max_prompt_len = t->max_prompt};
    json_decref(t->rows);
    t->rows = json_array();
    case_listen(&t->c);
    CHECK_OK(af_data_pipeline_open(&k, &o, &err), err);
    CHECK_OK(af_dataset_read(&k, AF_READ_TRAIN, take, t->rows, NULL, NULL, &err), err);
    af_data_pipeline_close(&k);
    af_arena_clear(&mem);
    free(text);
}

static json_t *joined(const json_t *row, const char *side)
{
    json_t *out = json_copy(json_object_get(row, "prompt"));
    json_array_extend(out, json_object_get(row, side));
    return out;
}

static void same(const row_case *t, size_t i, const char *what, json_t *own, json_t *want)
{
    if (json_equal(own, want))
        return;
    char *a = json_dumps(own, JSON_ENCODE_ANY), *b = json_dumps(want, JSON_ENCODE_ANY);
    fail_msg("%s, row %zu, %s:\n  %s\ninstead of\n  %s", t->name, i, what, a, b);
}

static void same_whole(const row_case *t, size_t i, const char *what, const char *side,
                       const json_t *row, json_t *want)
{
    json_t *own = joined(row, side);
    same(t, i, what, own, want);
    json_decref(own);
}

static void compare_row(const row_case *t, size_t i, const json_t *own, const json_t *want)
{
    const af_rl rl = method_of(text_at(t->format, "trainer"));
    same(t, i, "record", json_object_get(own, "record"), json_object_get(want, "record"));
    if (rl == AF_RL_ORPO) {
        json_t *n = json_integer((json_int_t)json_array_size(json_object_get(own, "prompt")));
        same(t, i, "prompt_tokens", n, json_object_get(want, "prompt_tokens"));
        json_decref(n);
    } else if (rl != AF_RL_REWARD) {
        same(t, i, "prompt_ids", json_object_get(own, "prompt"),
             json_object_get(want, "prompt_ids"));
    }
    if (rl == AF_RL_ORPO || rl == AF_RL_REWARD) {
        same_whole(t, i, "chosen_ids", "first", own, json_object_get(want, "chosen_ids"));
        same_whole(t, i, "rejected_ids", "second", own, json_object_get(want, "rejected_ids"));
        return;
    }
    const bool kto = rl == AF_RL_KTO;
    same(t, i, "answer", json_object_get(own, "first"),
         json_object_get(want, kto ? "completion_ids" : "chosen_ids"));
    if (!kto)
        same(t, i, "rejected_ids", json_object_get(own, "second"),
             json_object_get(want, "rejected_ids"));
    else
        same(t, i, "label", json_object_get(own, "label"), json_object_get(want, "label"));
}

/* The answer that a KTO row's KL term is made of. */
static json_t *kl_answer(const row_case *t, size_t i)
{
    const int64_t n = (int64_t)json_array_size(t->rows);
    const int64_t batch = json_integer_value(json_object_get(t->format, "kto_batch"));
    return json_object_get(json_array_get(t->rows, (size_t)af_kl_partner((int64_t)i, n, batch)),
                           "first");
}

static void compare_whole(row_case *t)
{
    const json_t *want = json_object_get(t->format, "rows");
    read_rows(t, 0, NULL);
    assert_int_equal(json_array_size(t->rows), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *w = json_array_get(want, i);
        compare_row(t, i, json_array_get(t->rows, i), w);
        if (json_object_get(w, "KL_completion_ids"))
            same(t, i, "KL_completion_ids", kl_answer(t, i),
                 json_object_get(w, "KL_completion_ids"));
    }
}

static int64_t size_of(const json_t *row, const char *part)
{
    return (int64_t)json_array_size(json_object_get(row, part));
}

/* Lengths after a cut of prompt + answer at the limit. */
static void compare_cut(const row_case *t, size_t i, const json_t *own, const json_t *want,
                        int64_t limit)
{
    static const char *const names[][2] = {
        {"chosen", "first"}, {"rejected", "second"}, {"completion", "first"}};
    for (size_t k = 0; k < AF_LEN(names); k++) {
        const json_t *n = json_object_get(want, names[k][0]);
        const int64_t prompt = size_of(own, "prompt");
        const int64_t left = prompt + af_pair_cut(prompt, size_of(own, names[k][1]), limit);
        if (n && json_integer_value(n) != left)
            fail_msg("%s, row %zu, %s: %" PRId64 " tokens", t->name, i, names[k][0], left);
    }
    const json_t *kl = json_object_get(want, "KL_completion_ids");
    if (!kl)
        return;
    json_t *most = json_array(); /* of which sequence_len tokens are kept */
    for (size_t k = 0; k < json_array_size(kl) && (int64_t)k < limit; k++)
        json_array_append(most, json_array_get(kl, k));
    same(t, i, "short KL_completion_ids", kl_answer(t, i), most);
    json_decref(most);
}

static void compare_short(row_case *t)
{
    const json_t *want = json_object_get(t->format, "rows");
    const int64_t limit = json_integer_value(json_object_get(t->format, "max_length_short"));
    const bool orpo = method_of(text_at(t->format, "trainer")) == AF_RL_ORPO;
    size_t kept = 0;
    read_rows(t, limit, NULL);
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *w = json_array_get(want, i), *left = json_object_get(w, "short");
        /* TRL keeps rows of ORPO whose answers are cut away; nothing can be learnt from them */
        const bool empty = orpo && json_integer_value(json_object_get(w, "prompt_tokens")) >= limit;
        if (json_is_null(left) || empty)
            continue;
        const json_t *own = json_array_get(t->rows, kept);
        same(t, i, "record", json_object_get(own, "record"), json_object_get(w, "record"));
        compare_cut(t, kept++, own, left, limit);
    }
    assert_int_equal(json_array_size(t->rows), kept);
}

/* LLaMA-Factory's own rows, with its `template: chatml`. */
static void compare_turns(row_case *t, const char *rows, int64_t limit)
{
    const json_t *want = json_object_get(t->format, rows);
    const bool kto = method_of(text_at(t->format, "trainer")) == AF_RL_KTO;
    size_t kept = 0;
    if (!want)
        return;
    read_rows(t, limit, "chatml");
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *w = json_array_get(want, i);
        const char *const side[2] = {kto ? "" : "chosen_", "rejected_"};
        char key[64];
        snprintf(key, sizeof key, "%sprompt_tokens", side[0]);
        const json_int_t prompt = json_integer_value(json_object_get(w, key));
        if (limit && prompt >= limit)
            continue;
        const json_t *own = json_array_get(t->rows, kept++);
        same(t, i, "record", json_object_get(own, "record"), json_object_get(w, "record"));
        assert_int_equal(size_of(own, "prompt"), prompt);
        for (int k = 0; k < (kto ? 1 : 2); k++) {
            snprintf(key, sizeof key, "%sinput_ids", side[k]);
            same_whole(t, i, key, k ? "second" : "first", own, json_object_get(w, key));
        }
        if (kto)
            same(t, i, "kto_tag", json_object_get(own, "label"), json_object_get(w, "kto_tag"));
    }
    assert_int_equal(json_array_size(t->rows), kept);
}

static void test_formats(void **state)
{
    (void)state;
    row_case t = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/preference/rows.jsonl.gz", golden_dir());
    json_t *formats = case_lines(path);
    assert_int_equal(json_array_size(formats), 47);
    case_open(&t.c);
    for (size_t i = 0; i < json_array_size(formats); i++) {
        t.format = json_array_get(formats, i);
        t.name = text_at(t.format, "format");
        write_files(&t);
        compare_whole(&t);
        compare_short(&t);
        compare_turns(&t, "llamafactory_rows", 0);
        compare_turns(&t, "llamafactory_rows_cutoff",
                      json_integer_value(json_object_get(t.format, "max_length_short")));
    }
    json_decref(t.rows);
    json_decref(formats);
    case_close(&t.c);
}

/* --- max_prompt_length ----------------------------------------------------------------------- */

/* ids[from:to] in a new list. */
static json_t *slice(const json_t *ids, int64_t from, int64_t to)
{
    json_t *out = json_array();
    for (int64_t i = AF_MAX(from, 0); i < to && i < (int64_t)json_array_size(ids); i++)
        json_array_append(out, json_array_get(ids, (size_t)i));
    return out;
}

/* What TRL 0.12 to 0.24 leave of a prompt; `bos`: the token that KTO puts before it again. */
static json_t *short_prompt(const row_case *t, const json_t *row, int64_t limit, int64_t bos)
{
    const af_rl rl = method_of(text_at(t->format, "trainer"));
    const json_t *prompt = json_object_get(row, "prompt");
    const int64_t n = (int64_t)json_array_size(prompt);
    const int64_t answer = AF_MAX(size_of(row, "first"), size_of(row, "second"));
    const bool cut = t->max_prompt && (rl == AF_RL_DPO || (limit && n + answer > limit));
    const bool began = n && json_integer_value(json_array_get(prompt, 0)) == bos;
    json_t *out = slice(prompt, cut ? n - t->max_prompt : 0, n);
    if (rl == AF_RL_KTO && began && json_integer_value(json_array_get(out, 0)) != bos)
        json_array_insert_new(out, 0, json_integer(bos));
    return out;
}

/* Rows with limits against slices of whole rows; how many prompts became shorter. */
static int compare_limit(row_case *t, json_t *whole, int64_t limit, int64_t bos)
{
    size_t kept = 0;
    int shorter = 0;
    read_rows(t, limit, NULL);
    for (size_t i = 0; i < json_array_size(whole); i++) {
        const json_t *w = json_array_get(whole, i), *own = json_array_get(t->rows, kept);
        json_t *prompt = short_prompt(t, w, limit, bos);
        const bool drop = limit && (int64_t)json_array_size(prompt) >= limit;
        static const char *const side[2] = {"first", "second"};
        for (int k = 0; k < 2 && !drop; k++) {
            json_t *answer = slice(json_object_get(w, side[k]), 0, limit ? limit : INT64_MAX);
            same(t, i, side[k], json_object_get(own, side[k]), answer);
            json_decref(answer);
        }
        if (!drop)
            same(t, i, "short prompt", json_object_get(own, "prompt"), prompt);
        shorter += !drop && (int64_t)json_array_size(prompt) < size_of(w, "prompt");
        kept += !drop;
        json_decref(prompt);
    }
    assert_int_equal(json_array_size(t->rows), kept);
    return shorter;
}

/* A format with limits below, at and above the length of its first prompt. */
static void compare_limits(row_case *t, int64_t bos, int shorter[2])
{
    t->max_prompt = 0;
    read_rows(t, 0, NULL);
    json_t *whole = t->rows, *first = json_array_get(whole, 0);
    t->rows = NULL;
    const int64_t n = size_of(first, "prompt");
    const int64_t rows = n + AF_MAX(size_of(first, "first"), size_of(first, "second"));
    const int64_t keep[] = {1, n - 2, n - 1, n, n + 1}, limits[] = {0, rows - 1, rows};
    for (size_t i = 0; i < AF_LEN(keep) * AF_LEN(limits); i++) {
        const int64_t limit = limits[i % AF_LEN(limits)];
        t->max_prompt = keep[i / AF_LEN(limits)];
        if (t->max_prompt > 0 && test_takes(i + i / AF_LEN(limits)))
            shorter[limit > 0] += compare_limit(t, whole, limit, bos);
    }
    json_decref(whole);
}

/* A model whose conversations begin with its bos token. */
static void bos_model(row_case *t, char *dir, size_t size)
{
    char from[600], *text = NULL;
    uint64_t len = 0;
    af_error err = {0};
    snprintf(from, sizeof from, "%s/models/qwen2/tokenizer_config.json", golden_dir());
    CHECK_OK(af_file_read(&text, &len, from, 1 << 20, &err), err);
    json_t *config = json_loads(text, 0, NULL);
    free(text);
    json_object_set_new(config, "bos_token", json_string("<|im_start|>"));
    text = json_dumps(config, 0);
    case_write(&t->c, "tokenizer_config.json", text, strlen(text));
    free(text);
    json_decref(config);
    snprintf(from, sizeof from, "%s/models/qwen2/tokenizer.json", golden_dir());
    CHECK_OK(af_file_copy(from, case_path(&t->c, "tokenizer.json"), &err), err);
    snprintf(from, sizeof from, "%s/models/qwen2/chat_template.jinja", golden_dir());
    CHECK_OK(af_file_copy(from, case_path(&t->c, "chat_template.jinja"), &err), err);
    snprintf(dir, size, "%s", t->c.dir);
    t->model = dir;
}

static void test_prompt_limit(void **state)
{
    (void)state;
    enum { IM_START = 510 };
    static const char *const names[] = {"dpo", "orpo", "kto", "reward"};
    int shorter[2][AF_LEN(names)][2] = {0}; /* without and with bos; by sequence_len */
    row_case t = {0};
    char path[600], dir[300];
    snprintf(path, sizeof path, "%s/preference/rows.jsonl.gz", golden_dir());
    json_t *formats = case_lines(path);
    case_open(&t.c);
    for (int bos = 0; bos < 2; bos++) {
        if (bos)
            bos_model(&t, dir, sizeof dir);
        for (size_t i = 0; i < json_array_size(formats); i++) {
            size_t k = 0;
            t.format = json_array_get(formats, i);
            t.name = text_at(t.format, "format");
            while (strcmp(names[k], text_at(t.format, "trainer")) != 0)
                k++;
            write_files(&t);
            if (k < 3)
                compare_limits(&t, bos ? IM_START : -1, shorter[bos][k]);
        }
    }
    for (int bos = 0; bos < 2; bos++)
        for (int k = 0; k < 3; k++) {
            assert_int_equal(shorter[bos][k][0] > 0, k == 0); /* without sequence_len: DPO alone */
            assert_true(shorter[bos][k][1] > 0);
        }
    json_decref(t.rows);
    json_decref(formats);
    case_close(&t.c);
}

/* --- what else may happen to long rows ------------------------------------------------------- */

/* All stay, with the last tokens of their answers; or those alone that fit. */
static void test_long_rows(void **state)
{
    (void)state;
    enum { LIMIT = 12 };
    int shorter = 0, dropped = 0;
    row_case t = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/preference/rows.jsonl.gz", golden_dir());
    json_t *formats = case_lines(path);
    case_open(&t.c);
    t.format = json_array_get(formats, 0);
    t.name = text_at(t.format, "format");
    assert_string_equal(text_at(t.format, "trainer"), "dpo");
    write_files(&t);
    read_rows(&t, 0, NULL);
    json_t *whole = t.rows, *ends;
    t.rows = NULL;
    t.end = true;
    read_rows(&t, LIMIT, NULL);
    ends = t.rows;
    t.rows = NULL;
    t.end = false;
    t.drop = true;
    read_rows(&t, LIMIT * 4, NULL);
    assert_int_equal(json_array_size(ends), json_array_size(whole));
    for (size_t i = 0, kept = 0; i < json_array_size(whole); i++) {
        const json_t *w = json_array_get(whole, i), *own = json_array_get(ends, i);
        const int64_t first = size_of(w, "first"), second = size_of(w, "second");
        json_t *answer = slice(json_object_get(w, "first"), first - LIMIT, first);
        json_t *other = slice(json_object_get(w, "second"), second - LIMIT, second);
        same(&t, i, "end of the first", json_object_get(own, "first"), answer);
        same(&t, i, "end of the second", json_object_get(own, "second"), other);
        same(&t, i, "prompt", json_object_get(own, "prompt"), json_object_get(w, "prompt"));
        shorter += first > LIMIT;
        json_decref(answer);
        json_decref(other);
        if (size_of(w, "prompt") + AF_MAX(first, second) <= LIMIT * 4)
            same(&t, i, "what fits", json_array_get(t.rows, kept++), json_array_get(whole, i));
        else
            dropped++;
    }
    assert_int_equal(json_array_size(t.rows) + (size_t)dropped, json_array_size(whole));
    assert_true(shorter > 0 && dropped > 0 && json_array_size(t.rows) > 0);
    json_decref(whole);
    json_decref(ends);
    json_decref(t.rows);
    json_decref(formats);
    case_close(&t.c);
}

/* Columns of tables without lists have messages as JSON text; what has no roles is text. */
static void test_messages_as_text(void **state)
{
#define TURN(role, text) "{\"\"role\"\": \"\"" role "\"\", \"\"content\"\": \"\"" text "\"\"}"
#define ASKED            "\"[" TURN("user", "Q") "]\","
    static const struct {
        const char *rl, *csv;
        bool chat;
    } cases[] = {
        {"rl: dpo\n",
         "prompt,chosen,rejected\n" ASKED
         "\"[" TURN("assistant", "A") "]\",\"[" TURN("assistant", "B") "]\"\n",
         true},
        {"rl: dpo\n",
         "chosen,rejected\n\"[" TURN("user", "Q") "," TURN("assistant", "A") "]\",\"[" TURN(
             "user", "Q") "," TURN("assistant", "B") "]\"\n",
         true},
        {"rl: kto\n", "prompt,completion,label\n" ASKED "\"[" TURN("assistant", "A") "]\",True\n",
         true},
        {"", "prompt,completion\n" ASKED "\"[" TURN("assistant", "A") "]\"\n", true},
        {"rl: dpo\n", "prompt,chosen,rejected\nQ,\"[{\"\"name\"\": \"\"f\"\"}]\",[1]\n", false},
    };
#undef TURN
#undef ASKED
    char model[1024], more[1400];
    data_case c;
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_write(&c, "d.csv", cases[i].csv, strlen(cases[i].csv));
        snprintf(more, sizeof more, "%sdatasets: [{path: %s/d.csv}]\n", cases[i].rl, c.dir);
        case_run(&c, model, more);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *row = json_array_get(c.rows, 0), *good = json_object_get(row, "chosen");
        const char *text = text_at(good ? good : row, "text"),
                   *want = "user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>";
        CHECK_MSG((strstr(text, want) != NULL) == cases[i].chat, "case %zu: %s", i, text);
    }
    case_close(&c);
}

/* What the chat template leaves out is said, as of conversations without `rl`. */
static void test_what_the_template_leaves_out(void **state)
{
#define ASKED(role)                                                                                \
    "{\"prompt\": [{\"role\": \"" role                                                             \
    "\", \"content\": \"Only in rhyme\"}, {\"role\": \"user\", \"content\": \"Q\"}], "
#define ANSWER(more) "[{\"role\": \"assistant\", \"content\": \"A\"" more "}]"
    static const struct {
        const char *rl, *record, *says;
    } cases[] = {
        {"dpo", ASKED("system") "\"chosen\": " ANSWER("") ", \"rejected\": " ANSWER("") "}", NULL},
        {"dpo", ASKED("developer") "\"chosen\": " ANSWER("") ", \"rejected\": " ANSWER("") "}",
         "message 1: the chat template leaves it out (role \"developer\""},
        {"orpo", ASKED("developer") "\"chosen\": " ANSWER("") ", \"rejected\": " ANSWER("") "}",
         "message 1: the chat template leaves it out (role \"developer\""},
        {"dpo",
         ASKED("system") "\"chosen\": " ANSWER("") ", \"rejected\": " ANSWER(
             ", \"reasoning_content\": \"Hm\"") "}",
         "message 1: the chat template leaves out its \"reasoning_content\""},
        {"kto",
         ASKED("system") "\"completion\": " ANSWER(
             ", \"reasoning_content\": \"Hm\"") ", \"label\": true}",
         "message 1: the chat template leaves out its \"reasoning_content\""},
    };
#undef ASKED
#undef ANSWER
    char model[1024], more[1800];
    data_case c;
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_write(&c, "d.jsonl", cases[i].record, strlen(cases[i].record));
        snprintf(
            more, sizeof more,
            "rl: %s\nchat_template: \"{%% for m in messages if m.role != 'developer' "
            "%%}<|im_start|>"
            "{{ m.role }}:{{ m.content }}<|im_end|>{%% endfor %%}{%% if add_generation_prompt %%}"
            "<|im_start|>assistant:{%% endif %%}\"\ndatasets: [{path: %s/d.jsonl}]\n",
            cases[i].rl, c.dir);
        case_run(&c, model, more);
        CHECK_OK(case_preview(&c), c.err);
        const char *said = strstr(c.log.data, "the chat template leaves");
        CHECK_MSG(cases[i].says ? strstr(c.log.data, cases[i].says) != NULL : !said, "case %zu: %s",
                  i, c.log.data);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats), cmocka_unit_test(test_prompt_limit),
        cmocka_unit_test(test_long_rows), cmocka_unit_test(test_messages_as_text),
        cmocka_unit_test(test_what_the_template_leaves_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
