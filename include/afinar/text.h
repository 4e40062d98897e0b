/* text.h - tokenizers: text to token ids and back, exactly as the `tokenizers` package does it.
 *
 * A tokenizer is read from tokenizer.json, from tokenizer.model (SentencePiece; ids as that library
 * gives them) or from the metadata of a GGUF file. An unknown component is an error that names it,
 * never a guess. Once opened it is constant: every function that takes a `const af_tokenizer *` may
 * be called from several threads at once. Truncation and padding are left to the caller. Chat
 * templates: chat.h. */
#ifndef AFINAR_TEXT_H
#define AFINAR_TEXT_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open tokenizer. */
typedef struct af_tokenizer af_tokenizer;

enum {
    AF_TOKENIZER_TEXT_MAX = 1 << 30, /* bytes in one text to encode */
    AF_TOKENIZER_ID_MAX = 1 << 26,   /* ids are 0 .. this - 1 */
};

/* Opens a folder with tokenizer.json, else tokenizer.model (and tokenizer_config.json, which names
 * bos, eos, pad and unk), one of these files, or a .gguf file. On success *out belongs to the
 * caller; close it with af_tokenizer_close. AF_EIO, AF_EFORMAT, AF_EUNSUPPORTED for an unknown
 * component. */
AF_API AF_CHECKED af_status af_tokenizer_open(af_tokenizer **out, const char *path, af_error *err);

/* The same from the bytes of a tokenizer.json, without a config: bos, eos, pad and unk are -1. */
AF_API AF_CHECKED af_status af_tokenizer_from_json(af_tokenizer **out, const char *json,
                                                   uint64_t len, af_error *err);

/* NULL is allowed. */
AF_API void af_tokenizer_close(af_tokenizer *t);

/* The result of encoding. All zero is empty. start[i], end[i] are byte offsets of token i in the
 * text as it was given (before normalisation); tokens put in by the post-processor have 0, 0. */
typedef struct af_encoding {
    int32_t *ids;
    uint32_t *start, *end;
    int64_t count, cap;
} af_encoding;

/* Encodes `len` bytes of UTF-8 (NUL is a character like others; bytes that are not UTF-8 are an
 * error that names their offset). Replaces what *out held and reuses its buffers. */
AF_API AF_CHECKED af_status af_tokenizer_encode(const af_tokenizer *t, af_encoding *out,
                                                const char *text, uint64_t len,
                                                bool add_special_tokens, af_error *err);
/* Frees the buffers and empties *e. */
AF_API void af_encoding_clear(af_encoding *e);

/* Ids to text, malloc'ed and NUL-terminated, *len bytes (len may be NULL). Ids outside the
 * vocabulary are skipped; skip_special leaves out special added tokens. free() the text. */
AF_API AF_CHECKED af_status af_tokenizer_decode(const af_tokenizer *t, char **text, uint64_t *len,
                                                const int32_t *ids, int64_t n, bool skip_special,
                                                af_error *err);

/* Decodes token by token: returns complete characters only; incomplete ones are held until later
 * tokens complete them. The fields are private. */
typedef struct af_decode_stream {
    const af_tokenizer *tokenizer;
    bool skip_special;
    int32_t *ids; /* the window that is decoded again */
    int64_t count, cap;
    int64_t prefix_ids; /* how many of them are already returned */
    char *prefix;       /* their text */
    uint64_t prefix_len;
    char *text; /* of the last af_decode_stream_next */
} af_decode_stream;

/* Starts a stream; t must outlive it. Clear it with af_decode_stream_clear. */
AF_API void af_decode_stream_init(af_decode_stream *s, const af_tokenizer *t, bool skip_special);
/* The text that `id` completes, *len bytes, "" while incomplete. Borrowed from the stream until the
 * next call. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_decode_stream_next(af_decode_stream *s, int32_t id,
                                                  const char **text, uint64_t *len, af_error *err);
/* Frees the buffers and empties the stream. */
AF_API void af_decode_stream_clear(af_decode_stream *s);

/* The id of a token string, added tokens included; -1 when absent. */
AF_API int32_t af_tokenizer_id(const af_tokenizer *t, const char *token, uint64_t len);
/* The raw vocabulary string of an id (byte-level tokens in their printable alphabet; an added
 * token with `normalized` in its normalised form), NUL-terminated; NULL when absent. Borrowed from
 * the tokenizer. len may be NULL. */
AF_API const char *af_tokenizer_token(const af_tokenizer *t, int32_t id, uint64_t *len);
/* Highest id + 1, added tokens included. */
AF_API int32_t af_tokenizer_vocab_size(const af_tokenizer *t);
/* True for an added token that is marked special. */
AF_API bool af_tokenizer_is_special(const af_tokenizer *t, int32_t id);
/* True for an added token, special or not. */
AF_API bool af_tokenizer_is_added(const af_tokenizer *t, int32_t id);

/* Ids and strings from tokenizer_config.json or the GGUF metadata; -1 and NULL when there are none.
 * The strings are borrowed from the tokenizer. */
AF_API int32_t af_tokenizer_bos(const af_tokenizer *t);
AF_API int32_t af_tokenizer_eos(const af_tokenizer *t);
AF_API int32_t af_tokenizer_pad(const af_tokenizer *t);
AF_API int32_t af_tokenizer_unk(const af_tokenizer *t);
AF_API const char *af_tokenizer_bos_text(const af_tokenizer *t);
AF_API const char *af_tokenizer_eos_text(const af_tokenizer *t);
AF_API const char *af_tokenizer_pad_text(const af_tokenizer *t);
AF_API const char *af_tokenizer_unk_text(const af_tokenizer *t);

/* Ids that end generation: eos, plus every eos_token_id of generation_config.json or config.json
 * (GGUF: eos, eot, eom). Borrowed; *count (may be NULL) may be 0. */
AF_API const int32_t *af_tokenizer_stops(const af_tokenizer *t, int *count);

/* JSON text as a tree of jansson, for programs that use it: json_loadb (its flags) made safe
 * against failed allocations, where it loses bytes or aborts. *out: json_decref. AF_EFORMAT with
 * jansson's words, AF_ENOMEM. */
struct json_t;
AF_API AF_CHECKED af_status af_json_tree(struct json_t **out, const char *text, uint64_t n,
                                         uint64_t flags, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
