/* grammar_walk.h - a small tokenizer, and random answers that take only what the masks allow. */
#ifndef AF_GRAMMAR_WALK_H
#define AF_GRAMMAR_WALK_H

#include "test.h"

#include "afinar/grammar.h"
#include "afinar/text.h"
#include "base/buf.h"
#include "format/text/json_text.h"
#include "format/tokenizer/tokenizer.h"

static const char *const walk_words[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "\"]",
    "[\"",
    "]}",
    "}}",
    "},",
    "],",
    "true",
    "false",
    "null",
    " {",
    " [",
    ": ",
    ", ",
    "ab",
    "abc",
    "name",
    "12",
    "20",
    "2024-",
    "00:",
    "T12",
    "\\n",
    "\\u00",
    "-1",
    "0.",
    "e+",
    " the",
    "the",
    "\xc3\xa9",
    "\xe2\x82",
    "\xf0\x9f\x98\x80",
    "\"a\"",
    "\"b\"",
    "10",
    "\n  ",
    "[1",
    "\"name\"",
    "\"value",
    ",\"a\":",
    ",\"b\":{\"",
    "\"a\":",
};

typedef struct walk_vocab {
    af_tokenizer *tokenizer;
    af_grammar_vocab *vocab;
    int32_t eos, special, size;
} walk_vocab;

/* Appends bytes as a JSON string of the byte-level alphabet. */
static void walk_token(af_buf *b, const char *bytes, size_t n)
{
    af_buf_char(b, '"');
    for (size_t i = 0; i < n; i++) {
        const uint32_t cp = af_byte_char((uint8_t)bytes[i]);
        if (cp == '"' || cp == '\\')
            af_buf_char(b, '\\');
        af_buf_utf8(b, cp);
    }
    af_buf_char(b, '"');
}

static void walk_open(walk_vocab *w)
{
    af_error err;
    af_buf b = {0};
    int32_t id = 0;
    af_buf_str(&b, "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < 256; i++, id++) {
        walk_token(&b, (char[]){(char)i}, 1);
        af_buf_printf(&b, ":%d,", id);
    }
    for (size_t i = 0; i < sizeof walk_words / sizeof *walk_words; i++, id++) {
        walk_token(&b, walk_words[i], strlen(walk_words[i]));
        af_buf_printf(&b, ":%d%s", id, i + 1 < sizeof walk_words / sizeof *walk_words ? "," : "");
    }
    w->eos = id;
    w->special = id + 1;
    w->size = id + 2;
    af_buf_printf(&b,
                  "},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                  "false,\"trim_offsets\":true,\"use_regex\":false},\"decoder\":{\"type\":"
                  "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"
                  "false},\"normalizer\":null,\"post_processor\":null,\"added_tokens\":["
                  "{\"id\":%d,\"content\":\"<eos>\",\"single_word\":false,\"lstrip\":false,"
                  "\"rstrip\":false,\"normalized\":false,\"special\":true},"
                  "{\"id\":%d,\"content\":\"[TOOL_CALLS]\",\"single_word\":false,\"lstrip\":false,"
                  "\"rstrip\":false,\"normalized\":false,\"special\":true}]}",
                  w->eos, w->special);
    CHECK_OK(af_tokenizer_from_json(&w->tokenizer, b.data, b.len, &err), err);
    af_buf_clear(&b);
    CHECK_OK(af_grammar_vocab_open(&w->vocab, w->tokenizer, &err), err);
    CHECK_OK(af_grammar_vocab_add_stop(w->vocab, w->eos, &err), err);
}

static void walk_close(walk_vocab *w)
{
    af_grammar_vocab_close(w->vocab);
    af_tokenizer_close(w->tokenizer);
}

static uint64_t walk_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

/* Prefers what closes strings and brackets, so that answers end. */
static bool walk_closes(const walk_vocab *w, int32_t id)
{
    uint64_t n = 0;
    const char *s = af_tokenizer_token(w->tokenizer, id, &n);
    return n == 1 && strchr("\"}],:", s[0]);
}

/* One random answer of at most `steps` tokens in *text; false when it did not end by then. */
static inline bool walk_answer(const walk_vocab *w, af_grammar *g, uint64_t *seed, int steps,
                               af_buf *text)
{
    af_error err;
    af_grammar_state *s = NULL;
    uint32_t mask[64];
    bool ended = false;
    text->len = 0;
    CHECK_OK(af_grammar_state_new(&s, g, &err), err);
    for (int i = 0; i < steps && !ended; i++) {
        int32_t open[2048], n = 0, first = -1;
        CHECK_OK(af_grammar_state_mask(s, mask, w->size, &err), err);
        const bool close = walk_next(seed) % 3 == 0 || i > steps / 2;
        for (int32_t id = 0; id < w->size; id++)
            if (mask[id / 32] >> (id % 32) & 1) {
                open[n++] = id;
                if (first < 0 && close && walk_closes(w, id))
                    first = id;
            }
        int32_t id = first >= 0 ? first : open[walk_next(seed) % (uint64_t)n];
        const bool may = mask[w->eos / 32] >> (w->eos % 32) & 1;
        assert_int_equal(may, af_grammar_state_can_end(s));
        if (may && (close || walk_next(seed) % 2))
            id = w->eos;
        CHECK_OK(af_grammar_state_accept(s, id, &err), err);
        af_buf piece = {0};
        ended = id == w->eos;
        if (!ended && id != w->special)
            CHECK_OK(af_tokenizer_token_bytes(w->tokenizer, id, &piece, &err), err);
        if (id == w->special)
            af_buf_str(&piece, "[TOOL_CALLS]");
        af_buf_add(text, piece.data, piece.len);
        af_buf_clear(&piece);
    }
    af_buf_add(text, "", 0);
    af_grammar_state_free(s);
    return ended;
}
/* The grammar of a JSON schema. */
static inline af_status walk_schema(af_grammar **g, const walk_vocab *w, const json_t *schema,
                                    af_error *err)
{
    char *text = af_json_dump(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(text);
    const af_status st =
        af_grammar_open(g, AF_GRAMMAR_JSON_SCHEMA, text, strlen(text), w->vocab, err);
    free(text);
    return st;
}
#endif
