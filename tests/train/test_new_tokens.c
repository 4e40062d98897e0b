/* test_new_tokens.c - tokens that a run file adds: 20 steps against transformers + PEFT with
 * resize_token_embeddings, heads of their own and tied ones (tests/golden/tokens, made by
 * tools/judge/make_tokens.py). */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"
#include "train/weight_files.h"

#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/tokenizer/token_edit.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static void write_run(const json_t *c, const char *path)
{
    af_buf b = {0};
    af_error err = {0};
    const char *key;
    json_t *keys = json_object_get(c, "keys"), *v;
    const char *family = json_string_value(json_object_get(c, "family"));
    af_buf_printf(&b, "base_model: %s/tokens/%s\noutput_dir: %s/out\noverwrite_output_dir: true\n",
                  golden_dir(), family, dir);
    af_buf_printf(&b, "datasets: [{path: %s/tokens/records.jsonl, type: tokens}]\nshuffle: false\n",
                  golden_dir());
    af_buf_printf(&b, "device: %s\nbf16: false\n", test_device());
    af_buf_str(&b, "micro_batch_size: 2\ngradient_accumulation_steps: 2\nmax_steps: 20\n"
                   "learning_rate: 0.005\nweight_decay: 0.1\nweight_decay_on: all\n"
                   "max_grad_norm: 0.5\nlr_scheduler: cosine\nwarmup_steps: 2\nadam_beta2: 0.95\n"
                   "sequence_len: 128\nlogging_steps: 1\nthreads: 2\n");
    json_object_foreach(keys, key, v)
    {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        af_buf_printf(&b, "%s: %s\n", key, text);
        free(text);
    }
    if (strcmp(json_string_value(json_object_get(keys, "adapter")), "full") != 0)
        af_buf_str(&b, "lora_r: 4\nlora_alpha: 8\nlora_target_modules: [q_proj, v_proj]\n");
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Five times what was measured over seven kernel tables: losses 3.2e-6, norms 1.1e-4 of their size
 * (single steps of llama-rows and llama-saved; the order of sums moves them from 1e-5 to that). */
static void compare(const char *name, const json_t *row, const json_t *want)
{
    const double step = number(row, "step"), size = fmax(1, number(want, "grad_norm"));
    CHECK_MSG(fabs(number(row, "loss") - number(want, "loss")) <= 1.5e-5,
              "%s step %g: loss %.9g, %.9g", name, step, number(row, "loss"), number(want, "loss"));
    CHECK_MSG(fabs(number(row, "grad_norm") - number(want, "grad_norm")) <= 5e-4 * size,
              "%s step %g: norm %.9g, %.9g", name, step, number(row, "grad_norm"),
              number(want, "grad_norm"));
}

static void check_case(const char *name)
{
    char path[512], run[128], *text;
    uint64_t size;
    af_error err = {0};
    af_train_result result;
    size_t i = 0;
    snprintf(path, sizeof path, "%s/tokens/%s.json", golden_dir(), name);
    json_t *c = json_load_file(path, 0, NULL);
    CHECK_MSG(c, "%s", path);
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    write_run(c, run);
    CHECK_OK(af_train(run, NULL, 0, NULL, &result, &err), err);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    const json_t *steps = json_object_get(c, "steps");
    for (char *line = text, *end; *line; line = end + 1, i++) {
        end = strchr(line, '\n');
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        compare(name, row, json_array_get(steps, i));
        json_decref(row);
    }
    assert_int_equal(i, json_array_size(steps));
    free(text);
    json_decref(c);
}

static void test_runs_follow_transformers_and_peft(void **state)
{
    (void)state;
    static const char *const cases[] = {"llama-rows", "llama-saved", "llama-full", "llama-listed",
                                        "qwen2-rows", "qwen2-saved", "qwen2-full"};
    for (size_t i = 0; i < AF_LEN(cases); i++)
        check_case(cases[i]);
}

/* The embedding of a tied model has rows of new tokens, its head an adapter: both are trained. */
static void test_a_tied_head_with_an_adapter(void **state)
{
    (void)state;
    char run[128], path[512];
    af_error err = {0};
    af_train_result result;
    af_safetensors *f = NULL;
    json_t *c = json_pack("{s:s, s:{s:s, s:[s,s,s]}}", "family", "qwen2", "keys", "adapter", "lora",
                          "tokens", "<a>", "<b>", "<c>");
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    write_run(c, run);
    json_decref(c);
    const char *const keys[] = {"lora_target_modules=[q_proj, lm_head]",
                                "trainable_token_indices=[7, 258, 259, 260]", "max_steps=3"};
    CHECK_OK(af_train(run, keys, 3, NULL, &result, &err), err);
    snprintf(path, sizeof path, "%s/out/adapter_model.safetensors", dir);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    const af_stored *b = af_safetensors_find(f, "base_model.model.lm_head.lora_B.weight");
    assert_non_null(b);
    double size = 0;
    for (int64_t i = 0; i < b->dim[0] * b->dim[1]; i++)
        size += fabs((double)((const float *)b->data)[i]);
    CHECK_MSG(size > 1, "the adapter of the head is not trained: %g", size);
    af_safetensors_close(f);
}

/* A run that goes on from an adapter with a trained embedding writes the tensors that this has. */
static void test_a_trained_embedding_goes_on(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "qwen2"};
    for (size_t i = 0; i < AF_LEN(families); i++) {
        static const char record[] = "{\"input_ids\": [5, 6, 7, 8, 9, 10]}\n";
        char run[128], data[320], first[128], from[160], on[128], a[256], b[256];
        af_error err = {0};
        af_train_result result;
        json_t *c = json_pack("{s:s, s:{s:s, s:[s]}}", "family", families[i], "keys", "adapter",
                              "lora", "lora_modules_to_save", "embed_tokens");
        snprintf(run, sizeof run, "%s/run.yaml", dir);
        write_run(c, run);
        json_decref(c);
        snprintf(a, sizeof a, "%s/records.jsonl", dir);
        CHECK_OK(af_file_write(a, record, strlen(record), &err), err);
        snprintf(data, sizeof data, "datasets=[{path: %s, type: tokens}]", a);
        snprintf(first, sizeof first, "output_dir=%s/first-%s", dir, families[i]);
        snprintf(from, sizeof from, "lora_model_dir=%s/first-%s", dir, families[i]);
        snprintf(on, sizeof on, "output_dir=%s/on-%s", dir, families[i]);
        const char *const begin[] = {data, first, "max_steps=2"}, *const more[] = {
                                                                      data, from, on, "max_steps=1",
                                                                      "learning_rate=1e-30"};
        CHECK_OK(af_train(run, begin, 3, NULL, &result, &err), err);
        CHECK_OK(af_train(run, more, 5, NULL, &result, &err), err);
        snprintf(a, sizeof a, "%s/first-%s/adapter_model.safetensors", dir, families[i]);
        snprintf(b, sizeof b, "%s/on-%s/adapter_model.safetensors", dir, families[i]);
        same_weights(a, b);
    }
}

/* ---- tokenizer files ---- */

static void put(const char *name, const char *text)
{
    char path[512];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/texts/%s", dir, name);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
}

static json_t *get(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/texts/%s", dir, name);
    json_t *o = json_load_file(path, JSON_DECODE_INT_AS_REAL, NULL);
    CHECK_MSG(o, "%s is not JSON", name);
    return o;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Every file of a folder as older versions of transformers leave it. */
static void make_folder(char *to, size_t size)
{
    char from[512];
    af_error err = {0};
    snprintf(from, sizeof from, "%s/tokens/llama", golden_dir());
    snprintf(to, size, "%s/texts", dir);
    CHECK_OK(af_dir_make(to, &err), err);
    CHECK_OK(af_file_copy_into(from, to, "tokenizer.json", &err), err);
    put("tokenizer_config.json",
        "{\"model_max_length\": 1000000000000000019884624838656, \"added_tokens_decoder\": "
        "{\"257\":"
        " {\"content\": \"</s>\", \"special\": true}}, \"eos_token\": {\"content\": \"</s>\"}}");
    put("special_tokens_map.json", "{}");
    put("added_tokens.json", "{\"</s>\": 257}");
    put("generation_config.json", "{\"eos_token_id\": [257, 256]}");
    put("config.json", "{\"eos_token_id\": 257, \"text_config\": {\"vocab_size\": 258}}");
}

static void test_every_tokenizer_file_is_changed(void **state)
{
    (void)state;
    char folder[256];
    af_error err = {0};
    af_arena arena = {0};
    af_token_edits e;
    const af_token_edit edit[] = {{.name = "eos_token", .text = "<end>", .special = true},
                                  {.text = "plain \"word\""},
                                  {.text = "</s>", .special = true, .listed = true}};
    make_folder(folder, sizeof folder);
    CHECK_OK(af_token_edits_plan(&e, &arena, folder, edit, 3, &err), err);
    assert_true(e.changed && e.added == 2 && e.size == 260 && e.ids[0] == 258 && e.ids[1] == 259);
    CHECK_OK(af_token_edits_write(folder, edit, 3, 288, &err), err);
    json_t *o = get("tokenizer_config.json");
    assert_string_equal(text_of(o, "eos_token"), "<end>");
    assert_true(number(o, "model_max_length") == 1e30);
    const json_t *entry = json_object_get(json_object_get(o, "added_tokens_decoder"), "259");
    assert_string_equal(text_of(entry, "content"), "plain \"word\"");
    assert_true(json_is_false(json_object_get(entry, "special")));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(o, "additional_special_tokens"), 0)),
        "</s>");
    json_decref(o);
    o = get("special_tokens_map.json");
    assert_string_equal(text_of(o, "eos_token"), "<end>");
    json_decref(o);
    o = get("added_tokens.json");
    assert_true(number(o, "<end>") == 258 && number(o, "</s>") == 257);
    json_decref(o);
    o = get("generation_config.json");
    const json_t *ends = json_object_get(o, "eos_token_id");
    assert_true(json_array_size(ends) == 3 && json_number_value(json_array_get(ends, 0)) == 258);
    json_decref(o);
    o = get("config.json");
    assert_true(number(o, "eos_token_id") == 258);
    assert_true(number(json_object_get(o, "text_config"), "vocab_size") == 288);
    json_decref(o);
    CHECK_OK(af_token_edits_plan(&e, &arena, folder, edit, 3, &err), err);
    assert_true(!e.changed && e.added == 0); /* now they are there */
    af_arena_clear(&arena);
}

/* One outside of the vocabulary, and one that is in it. */
static void test_a_token_gets_another_text(void **state)
{
    (void)state;
    char folder[256];
    af_error err = {0};
    snprintf(folder, sizeof folder, "%s/texts", dir); /* of the test before */
    CHECK_OK(af_token_rename(folder, 259, "\"new\"", &err), err);
    CHECK_OK(af_token_rename(folder, 259, "\"new\"", &err), err);
    json_t *o = get("tokenizer_config.json");
    const json_t *entry = json_object_get(json_object_get(o, "added_tokens_decoder"), "259");
    assert_string_equal(text_of(entry, "content"), "\"new\"");
    json_decref(o);
    o = get("added_tokens.json");
    assert_true(number(o, "\"new\"") == 259 && !json_object_get(o, "plain \"word\""));
    json_decref(o);
    CHECK_OK(af_token_rename(folder, 257, "</end>", &err), err); /* one that files name */
    o = get("tokenizer_config.json");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(o, "additional_special_tokens"), 0)),
        "</end>");
    json_decref(o);
    CHECK_OK(af_token_rename(folder, 258, "<stop>", &err), err);
    o = get("tokenizer_config.json");
    assert_string_equal(text_of(o, "eos_token"), "<stop>");
    json_decref(o);
    o = get("special_tokens_map.json");
    assert_string_equal(text_of(o, "eos_token"), "<stop>");
    json_decref(o);
    CHECK_OK(af_token_rename(folder, 258, "<end>", &err), err);
    assert_int_equal(af_token_rename(folder, 5, "<x>", &err), AF_EUSAGE);
    assert_string_equal(err.msg, "token 5 is not one of the added tokens of the tokenizer");
    assert_int_equal(af_token_rename(folder, 259, "<end>", &err), AF_EUSAGE);
    assert_string_equal(err.msg, "the tokenizer has '<end>' already: it is 258");
    put("tokenizer.json",
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<u \\\"1\\\">\", \"special\": true}], "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<u \\\"1\\\">\" : 1, \"b\": 2}, "
        "\"merges\": []}}");
    put("tokenizer_config.json", "{}");
    CHECK_OK(af_token_rename(folder, 1, "<new>", &err), err);
    o = get("tokenizer.json");
    const json_t *vocab = json_object_get(json_object_get(o, "model"), "vocab");
    assert_true(json_object_size(vocab) == 3 && number(vocab, "<new>") == 1);
    json_decref(o);
}

/* Names may be objects, and lists of them. Texts of vocabularies that are lists stay as they are,
 * so that the old text would still be that token. */
static void test_a_token_that_cannot_get_another_text(void **state)
{
    (void)state;
    char folder[256];
    af_error err = {0};
    snprintf(folder, sizeof folder, "%s/texts", dir); /* of the tests before */
    put("tokenizer.json",
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<u>\", \"special\": true}], \"model\": "
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []}}");
    put("tokenizer_config.json", "{\"unk_token\": {\"content\": \"<u>\"}, \"pad_token\": \"<p>\", "
                                 "\"extra_special_tokens\": [\"<p>\", {\"content\": \"<u>\"}]}");
    put("special_tokens_map.json", "{\"unk_token\": \"<u>\"}");
    put("added_tokens.json", "{\"<u>\": 3}");
    CHECK_OK(af_token_rename(folder, 3, "<v>", &err), err);
    json_t *o = get("tokenizer_config.json");
    assert_string_equal(text_of(json_object_get(o, "unk_token"), "content"), "<v>");
    const json_t *more = json_object_get(o, "extra_special_tokens");
    assert_string_equal(json_string_value(json_array_get(more, 0)), "<p>");
    assert_string_equal(text_of(json_array_get(more, 1), "content"), "<v>");
    assert_string_equal(text_of(o, "pad_token"), "<p>");
    json_decref(o);
    put("tokenizer.json",
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<v>\", \"special\": true}], \"model\": "
        "{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0.0], [\"<v>\", -1.0], "
        "[\"a\", -2.0]]}}");
    assert_int_equal(af_token_rename(folder, 1, "<w>", &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "is not a map of tokens"), "says '%s'", err.msg);
}

/* The loss of a run of two steps with rate 0, whose weights are those it began with. */
static double loss_of(const char *base, const char *keys, const char *out)
{
    char run[128], path[160], text[1200], *rows;
    uint64_t size;
    af_error err = {0};
    af_train_result result;
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/%s\ndatasets: [{path: %s/tokens/records.jsonl, type: "
             "tokens}]\nadapter: full\nlearning_rate: 0\nmax_steps: 2\nbf16: false\nthreads: 2\n"
             "sequence_len: 600\n%s",
             base, dir, out, golden_dir(), keys);
    CHECK_OK(af_file_write(run, text, strlen(text), &err), err);
    CHECK_OK(af_train(run, NULL, 0, NULL, &result, &err), err);
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, out);
    CHECK_OK(af_file_read(&rows, &size, path, 1 << 24, &err), err);
    json_t *row = json_loadb(rows, strcspn(rows, "\n"), 0, NULL);
    const double loss = number(row, "loss");
    json_decref(row);
    free(rows);
    return loss;
}

/* What is trained with other positions has them in its config, and opens with them. */
static void test_rope_scaling_is_part_of_the_result(void **state)
{
    (void)state;
    char base[512], out[128], path[160];
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(out, sizeof out, "%s/yarn", dir);
    const double yarn = loss_of(base, "rope_scaling: yarn\n", "yarn");
    snprintf(path, sizeof path, "%s/config.json", out);
    json_t *c = json_load_file(path, 0, NULL), *rope = json_object_get(c, "rope_parameters");
    assert_int_equal(json_integer_value(json_object_get(c, "max_position_embeddings")), 768);
    assert_string_equal(json_string_value(json_object_get(rope, "rope_type")), "yarn");
    assert_true(number(rope, "factor") == 3 && number(rope, "rope_theta") == 1e6);
    assert_true(number(rope, "original_max_position_embeddings") == 256);
    json_decref(c);
    assert_true(loss_of(out, "", "again") == yarn);
    assert_true(loss_of(base,
                        "overrides_of_model_config: {rope_scaling: {type: yarn, factor: 3, "
                        "original_max_position_embeddings: 256}}\n",
                        "map") == yarn);
    assert_true(loss_of(base, "", "plain") != yarn);
}

/* A run of two steps on a text with new tokens. */
static void train_texts(const char *keys, const char *out)
{
    char run[128], text[1500];
    af_error err = {0};
    af_train_result result;
    static const char records[] = "{\"text\": \"an <aa> is not a <bb><stop>\"}\n";
    snprintf(run, sizeof run, "%s/texts.jsonl", dir);
    CHECK_OK(af_file_write(run, records, strlen(records), &err), err);
    snprintf(text, sizeof text,
             "base_model: %s/tokens/llama\noutput_dir: %s/%s\ndatasets: [{path: %s, type: text}]\n"
             "max_steps: 2\nbf16: false\nthreads: 2\nsequence_len: 64\nmicro_batch_size: 1\n%s",
             golden_dir(), dir, out, run, keys);
    snprintf(run, sizeof run, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(run, text, strlen(text), &err), err);
    CHECK_OK(af_train(run, NULL, 0, NULL, &result, &err), err);
}

/* The tokenizer that a run left, given to another one, gives the same run. */
static void test_the_tokenizer_of_another_model(void **state)
{
    (void)state;
    char keys[300];
    uint64_t size;
    static const char edits[] = "tokens: [<aa>, <bb>]\nspecial_tokens: {eos_token: <stop>}\n";
    snprintf(keys, sizeof keys, "adapter: lora\n%s", edits);
    train_texts(keys, "edited");
    train_texts(edits, "edited-full");
    snprintf(keys, sizeof keys, "adapter: lora\ntokenizer_config: %s/edited\n", dir);
    train_texts(keys, "other");
    snprintf(keys, sizeof keys, "tokenizer_name_or_path: %s/edited\n", dir);
    train_texts(keys, "other-full");
    snprintf(keys, sizeof keys,
             "adapter: lora\ntokenizer_config: %s/edited\nadded_tokens_overrides: {260: <cc>}\n",
             dir);
    train_texts(keys, "renamed");
    char *adapter = read_output("renamed", "adapter_config.json", &size);
    json_t *c = json_loadb(adapter, size, 0, NULL);
    const json_t *rows =
        json_object_get(json_object_get(c, "trainable_token_indices"), "embed_tokens");
    assert_true(json_array_size(rows) == 3 && json_number_value(json_array_get(rows, 0)) == 258);
    json_decref(c);
    free(adapter);
    adapter = read_output("renamed", "tokenizer.json", &size);
    assert_true(strstr(adapter, "<cc>") && !strstr(adapter, "<bb>"));
    free(adapter);
    assert_true(same_output("edited", "other", "adapter_model.safetensors"));
    assert_true(same_output("edited", "other", "adapter_config.json"));
    assert_true(same_output("edited", "other", "tokenizer.json"));
    assert_true(same_output("edited-full", "other-full", "model.safetensors"));
    char *config = read_output("other-full", "config.json", &size);
    c = json_loadb(config, size, 0, NULL);
    assert_true(number(c, "eos_token_id") == 258 && number(c, "vocab_size") == 261);
    json_decref(c);
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_transformers_and_peft),
        cmocka_unit_test(test_a_tied_head_with_an_adapter),
        cmocka_unit_test(test_a_trained_embedding_goes_on),
        cmocka_unit_test(test_every_tokenizer_file_is_changed),
        cmocka_unit_test(test_a_token_gets_another_text),
        cmocka_unit_test(test_a_token_that_cannot_get_another_text),
        cmocka_unit_test(test_the_tokenizer_of_another_model),
        cmocka_unit_test(test_rope_scaling_is_part_of_the_result),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
