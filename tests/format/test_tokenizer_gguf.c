/* test_tokenizer_gguf.c - the small tokenizers written as GGUF metadata give the same ids as their
 * tokenizer.json; names and kinds we do not know are refused by name. */
#include "test.h"

#include "format/tokenizer/tokenizer.h"
#include "format/weights/gguf.h"

#include <jansson.h>
#include <unistd.h>

static const char *const texts[] = {
    "",
    "the small engine reads numbers",
    " It's 12345 o'clock; WE'LL read: reading, reader!\n\n\tdef f(x):\n    return x ",
    "\xe5\xb0\x8f\xe5\xbc\x95\xe6\x93\x8e \xf0\x9f\x8e\x89 caf\xc3\xa9",
    "walking<s>walked",
};

typedef struct source {
    json_t *json;
    af_tokenizer *t;
} source;

static void open_source(source *s, const char *name)
{
    char path[4096];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/tokenizer/%s.json", golden_dir(), name);
    s->json = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(s->json);
    CHECK_OK(af_tokenizer_open(&s->t, path, &err), err);
}

static void put_tokens(af_gguf_writer *w, const source *s)
{
    af_error err = {0};
    const int32_t n = af_tokenizer_vocab_size(s->t);
    af_gguf_str *tokens = calloc((size_t)n, sizeof *tokens);
    int32_t *types = calloc((size_t)n, sizeof *types);
    for (int32_t i = 0; i < n; i++) {
        tokens[i].at = af_tokenizer_token(s->t, i, &tokens[i].len);
        types[i] = !af_tokenizer_is_added(s->t, i) ? 1 : af_tokenizer_is_special(s->t, i) ? 3 : 4;
    }
    CHECK_OK(af_gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, (uint64_t)n, &err), err);
    CHECK_OK(
        af_gguf_put_array(w, "tokenizer.ggml.token_type", AF_GGUF_I32, types, (uint64_t)n, &err),
        err);
    free(tokens);
    free(types);
}

/* Merges as strings, or as scores: the earlier a token is made, the higher. */
static void put_merges(af_gguf_writer *w, const source *s, bool scores)
{
    af_error err = {0};
    json_t *list = json_object_get(json_object_get(s->json, "model"), "merges");
    const size_t n = json_array_size(list), size = (size_t)af_tokenizer_vocab_size(s->t);
    af_gguf_str *merges = calloc(n, sizeof *merges);
    char(*text)[128] = calloc(n, sizeof *text);
    float *score = calloc(size, sizeof *score);
    for (size_t i = 0; i < size; i++)
        score[i] = -1e6f;
    for (size_t i = n; i-- > 0;) {
        json_t *pair = json_array_get(list, i);
        const char *a = json_string_value(json_array_get(pair, 0)),
                   *b = json_string_value(json_array_get(pair, 1));
        const int len = snprintf(text[i], sizeof *text, "%s%s", a, b);
        score[af_tokenizer_id(s->t, text[i], (uint64_t)len)] = -(float)i;
        merges[i] =
            (af_gguf_str){text[i], (uint64_t)snprintf(text[i], sizeof *text, "%s %s", a, b)};
    }
    if (scores)
        CHECK_OK(af_gguf_put_array(w, "tokenizer.ggml.scores", AF_GGUF_F32, score, size, &err),
                 err);
    else
        CHECK_OK(af_gguf_put_strs(w, "tokenizer.ggml.merges", merges, n, &err), err);
    free(merges);
    free(text);
    free(score);
}

static af_gguf_writer *begin_arch(const char *path, const char *arch, const char *model,
                                  const char *pre)
{
    af_gguf_writer *w = NULL;
    af_error err = {0};
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    CHECK_OK(af_gguf_put_str(w, "general.architecture", arch, strlen(arch), &err), err);
    CHECK_OK(af_gguf_put_str(w, "tokenizer.ggml.model", model, strlen(model), &err), err);
    if (pre)
        CHECK_OK(af_gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre), &err), err);
    return w;
}

static af_gguf_writer *begin(const char *path, const char *model, const char *pre)
{
    return begin_arch(path, "llama", model, pre);
}

static void finish(af_gguf_writer *w)
{
    af_error err = {0};
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
}

static void same_ids(const af_tokenizer *a, const af_tokenizer *b)
{
    af_encoding x = {0}, y = {0};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(texts); i++) {
        char *back, *want;
        CHECK_OK(af_tokenizer_encode(a, &x, texts[i], strlen(texts[i]), false, &err), err);
        CHECK_OK(af_tokenizer_encode(b, &y, texts[i], strlen(texts[i]), false, &err), err);
        CHECK_MSG(x.count == y.count && (!x.count || !memcmp(x.ids, y.ids, (size_t)x.count * 4)),
                  "other ids for \"%s\"", texts[i]);
        CHECK_OK(af_tokenizer_decode(b, &back, NULL, y.ids, y.count, false, &err), err);
        CHECK_OK(af_tokenizer_decode(a, &want, NULL, x.ids, x.count, false, &err), err);
        assert_string_equal(back, want);
        free(back);
        free(want);
    }
    af_encoding_clear(&x);
    af_encoding_clear(&y);
}

static void scratch_path(char *path, size_t size)
{
    const char *dir = getenv("TMPDIR");
    snprintf(path, size, "%s/af_tokenizer_%ld.gguf", dir ? dir : "/tmp", (long)getpid());
}

static void test_byte_level_metadata_gives_the_same_ids(void **state)
{
    (void)state;
    char path[4096];
    source s;
    af_tokenizer *t = NULL;
    af_error err = {0};
    af_encoding e = {0};
    int count;
    scratch_path(path, sizeof path);
    open_source(&s, "bytes");
    af_gguf_writer *w = begin(path, "gpt2", "llama-bpe");
    put_tokens(w, &s);
    put_merges(w, &s, false);
    const int32_t bos = af_tokenizer_id(s.t, "<s>", 3), eos = af_tokenizer_id(s.t, "</s>", 4);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)bos, &err), err);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)eos, &err), err);
    finish(w);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    same_ids(s.t, t);
    assert_int_equal(af_tokenizer_bos(t), bos);
    assert_string_equal(af_tokenizer_eos_text(t), "</s>");
    assert_int_equal(af_tokenizer_stops(t, &count)[0], eos);
    CHECK_OK(af_tokenizer_encode(t, &e, "", 0, true, &err), err);
    assert_true(e.count == 1 && e.ids[0] == bos); /* llama-bpe adds bos by default */
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

static void test_scores_give_the_same_ids_as_merges(void **state)
{
    (void)state;
    char path[4096];
    source s;
    af_tokenizer *t = NULL;
    af_error err = {0};
    scratch_path(path, sizeof path);
    open_source(&s, "marks");
    af_gguf_writer *w = begin(path, "llama", NULL);
    put_tokens(w, &s);
    put_merges(w, &s, true);
    finish(w);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    same_ids(s.t, t);
    af_tokenizer_close(t);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

/* Special tokens of Phi-3 take the white space after them, as in its tokenizer.json; <s> does not.
 */
static void test_marks_of_phi3(void **state)
{
    static const char *const arches[] = {"llama", "phi3"};
    static const char end[] = "</s> \n a", begin_text[] = "<s> \n a";
    char path[4096];
    source s;
    af_error err = {0};
    af_encoding e = {0}, plain = {0};
    int64_t count[2][2];
    (void)state;
    scratch_path(path, sizeof path);
    open_source(&s, "marks");
    for (int i = 0; i < 2; i++) {
        af_tokenizer *t = NULL;
        af_gguf_writer *w = begin_arch(path, arches[i], "llama", NULL);
        put_tokens(w, &s);
        put_merges(w, &s, true);
        finish(w);
        CHECK_OK(af_tokenizer_open(&t, path, &err), err);
        CHECK_OK(af_tokenizer_encode(t, &e, end, strlen(end), false, &err), err);
        CHECK_OK(af_tokenizer_encode(t, &plain, begin_text, strlen(begin_text), false, &err), err);
        count[i][0] = e.count;
        count[i][1] = plain.count;
        af_tokenizer_close(t);
    }
    CHECK_OK(af_tokenizer_encode(s.t, &e, end, strlen(end), false, &err), err);
    assert_int_equal(count[1][0], e.count); /* there, it strips */
    assert_true(count[0][0] > count[1][0]);
    assert_int_equal(count[0][1], count[1][1]);
    af_encoding_clear(&e);
    af_encoding_clear(&plain);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

/* A blank goes with the word after it, punctuation stays apart: " (" is never one piece. */
static void test_bloom_splits_at_punctuation(void **state)
{
    (void)state;
    char path[4096];
    source s;
    af_tokenizer *t = NULL;
    af_error err = {0};
    af_encoding whole = {0}, part = {0};
    static const char *const parts[] = {"one", " ", "(", "two", ".", " three"};
    int n = 0;
    scratch_path(path, sizeof path);
    open_source(&s, "bytes");
    af_gguf_writer *w = begin(path, "gpt2", "bloom");
    put_tokens(w, &s);
    put_merges(w, &s, false);
    finish(w);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    CHECK_OK(af_tokenizer_encode(t, &whole, "one (two. three", 15, false, &err), err);
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        CHECK_OK(af_tokenizer_encode(t, &part, parts[i], strlen(parts[i]), false, &err), err);
        for (int k = 0; k < (int)part.count; k++)
            assert_int_equal(part.ids[k], whole.ids[n++]);
        af_encoding_clear(&part);
    }
    assert_int_equal(n, whole.count);
    af_encoding_clear(&whole);
    af_tokenizer_close(t);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

static void put_list(af_gguf_writer *w, const char *key, const json_t *list)
{
    const size_t n = json_array_size(list);
    af_gguf_str *s = calloc(n, sizeof *s);
    af_error err = {0};
    for (size_t i = 0; i < n; i++)
        s[i] = (af_gguf_str){json_string_value(json_array_get(list, i)),
                             json_string_length(json_array_get(list, i))};
    CHECK_OK(af_gguf_put_strs(w, key, s, n, &err), err);
    free(s);
}

/* A byte-level tokenizer with the golden's merges; its first two tokens are special. */
static af_tokenizer *open_named(const json_t *golden, const char *pre)
{
    char path[4096];
    af_tokenizer *t = NULL;
    af_error err = {0};
    json_t *tokens = json_object_get(golden, "tokens");
    const size_t n = json_array_size(tokens);
    int32_t *types = calloc(n, sizeof *types);
    for (size_t i = 0; i < n; i++)
        types[i] = i < 2 ? 3 : 1;
    scratch_path(path, sizeof path);
    af_gguf_writer *w = begin(path, "gpt2", pre);
    put_list(w, "tokenizer.ggml.tokens", tokens);
    put_list(w, "tokenizer.ggml.merges", json_object_get(golden, "merges"));
    CHECK_OK(af_gguf_put_array(w, "tokenizer.ggml.token_type", AF_GGUF_I32, types, n, &err), err);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 0, &err), err);
    finish(w);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    unlink(path);
    free(types);
    return t;
}

static json_t *open_splits(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer/gguf_splits.json", golden_dir());
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    return golden;
}

/* tools/golden/make_gguf_splits.py */
static void test_splits_of_llama_cpp(void **state)
{
    json_t *golden = open_splits(), *split, *name, *want;
    const json_t *said = json_object_get(golden, "texts");
    size_t s, n, i;
    int names = 0;
    (void)state;
    json_array_foreach(json_object_get(golden, "splits"), s, split)
    {
        json_array_foreach(json_object_get(split, "names"), n, name)
        {
            af_tokenizer *t = open_named(golden, json_string_value(name));
            json_array_foreach(json_object_get(split, "ids"), i, want)
            {
                af_error err = {0};
                af_encoding e = {0};
                const json_t *text = json_array_get(said, i);
                CHECK_OK(af_tokenizer_encode(t, &e, json_string_value(text),
                                             json_string_length(text), false, &err),
                         err);
                bool same = (size_t)e.count == json_array_size(want);
                for (size_t k = 0; same && k < json_array_size(want); k++)
                    same = e.ids[k] == json_integer_value(json_array_get(want, k));
                CHECK_MSG(same, "%s: other ids for text %d", json_string_value(name), (int)i);
                af_encoding_clear(&e);
            }
            af_tokenizer_close(t);
            names++;
        }
    }
    assert_true(names > 60);
    json_decref(golden);
}

/* Files name one end token; llama.cpp knows the others by their texts. */
static void test_end_tokens_that_no_key_names(void **state)
{
    static const struct {
        const char *first, *second;
        int stops;
    } cases[] = {{"<|endoftext|>", "<|im_end|>", 2},
                 {"<|endoftext|>", "<|im_start|>", 1},
                 {"</s>", "<end_of_turn>", 2},
                 {"<|endoftext|>", "<|end|>", 2},
                 {"<|return|>", "<|end|>", 1}}; /* gpt-oss: it ends a message */
    json_t *golden = open_splits(), *tokens = json_object_get(golden, "tokens");
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        int count = 0;
        json_array_set_new(tokens, 0, json_string(cases[i].first));
        json_array_set_new(tokens, 1, json_string(cases[i].second));
        af_tokenizer *t = open_named(golden, "gpt-2");
        const int32_t *stops = af_tokenizer_stops(t, &count);
        CHECK_MSG(count == cases[i].stops && stops[0] == 0, "%s, %s: %d stops", cases[i].first,
                  cases[i].second, count);
        af_tokenizer_close(t);
    }
    json_decref(golden);
}

/* Gemma 4: pieces of SentencePiece with merges, and no blank in front of a text. */
static void test_raw_merges_give_the_same_ids(void **state)
{
    char path[4096];
    source s;
    af_tokenizer *t = NULL;
    af_error err = {0};
    af_encoding x = {0}, y = {0};
    (void)state;
    scratch_path(path, sizeof path);
    open_source(&s, "marks");
    af_gguf_writer *w = begin(path, "gemma4", NULL);
    put_tokens(w, &s);
    put_merges(w, &s, false);
    const int32_t bos = af_tokenizer_id(s.t, "<s>", 3);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)bos, &err), err);
    CHECK_OK(af_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false, &err), err);
    finish(w);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    for (size_t i = 1; i < 4; i++) { /* without added tokens */
        char blank[256], *back;
        snprintf(blank, sizeof blank, " %s", texts[i]);
        CHECK_OK(af_tokenizer_encode(s.t, &x, texts[i], strlen(texts[i]), false, &err), err);
        CHECK_OK(af_tokenizer_encode(t, &y, blank, strlen(blank), true, &err), err);
        CHECK_MSG(y.count == x.count + 1 && y.ids[0] == bos && /* llama.cpp overrides the key */
                      !memcmp(x.ids, y.ids + 1, (size_t)x.count * 4),
                  "other ids for \"%s\"", blank);
        CHECK_OK(af_tokenizer_decode(t, &back, NULL, y.ids + 1, y.count - 1, false, &err), err);
        assert_string_equal(back, blank);
        free(back);
    }
    af_encoding_clear(&x);
    af_encoding_clear(&y);
    af_tokenizer_close(t);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

static void test_unknown_names_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *model, *pre, *says;
    } cases[] = {
        {"gpt2", "sindarin", "sindarin"},
        {"gpt2", NULL, "tokenizer.ggml.pre"},
        {"rwkv", NULL, "rwkv"},
        {"llama", NULL, "scores"},
    };
    char path[4096];
    source s;
    scratch_path(path, sizeof path);
    open_source(&s, "bytes");
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_tokenizer *t = NULL;
        af_error err = {0};
        af_gguf_writer *w = begin(path, cases[i].model, cases[i].pre);
        put_tokens(w, &s);
        finish(w);
        assert_int_not_equal(af_tokenizer_open(&t, path, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].says), "\"%s\" does not name %s", err.msg,
                  cases[i].says);
    }
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

/* Files that are older than tokenizer.ggml.pre: qwen2 splits as its models do. */
static void test_files_without_a_name(void **state)
{
    (void)state;
    char path[4096];
    source s;
    scratch_path(path, sizeof path);
    open_source(&s, "bytes");
    af_tokenizer *t[2];
    for (int i = 0; i < 2; i++) {
        af_error err = {0};
        af_gguf_writer *w = begin_arch(path, "qwen2", "gpt2", i ? "qwen2" : NULL);
        put_tokens(w, &s);
        put_merges(w, &s, false);
        finish(w);
        CHECK_OK(af_tokenizer_open(&t[i], path, &err), err);
    }
    same_ids(t[0], t[1]);
    af_tokenizer_close(t[0]);
    af_tokenizer_close(t[1]);
    af_tokenizer_close(s.t);
    json_decref(s.json);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level_metadata_gives_the_same_ids),
        cmocka_unit_test(test_scores_give_the_same_ids_as_merges),
        cmocka_unit_test(test_marks_of_phi3),
        cmocka_unit_test(test_bloom_splits_at_punctuation),
        cmocka_unit_test(test_splits_of_llama_cpp),
        cmocka_unit_test(test_end_tokens_that_no_key_names),
        cmocka_unit_test(test_raw_merges_give_the_same_ids),
        cmocka_unit_test(test_unknown_names_are_refused_by_name),
        cmocka_unit_test(test_files_without_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
