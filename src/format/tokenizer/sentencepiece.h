/* sentencepiece.h - tokenizer.model, the file of the SentencePiece library: a protobuf message
 * with the pieces of a vocabulary, how they are found in a text and how the text is prepared. */
#ifndef AF_SENTENCEPIECE_H
#define AF_SENTENCEPIECE_H

#include "base/file.h"
#include "format/tokenizer/tokenizer.h"

/* The numbers of the file, and of tokenizer.ggml.token_type. */
typedef enum af_spm_type {
    AF_SPM_NORMAL = 1,
    AF_SPM_UNKNOWN,
    AF_SPM_CONTROL, /* never found in a text */
    AF_SPM_USER,    /* found first, never joined with others */
    AF_SPM_UNUSED,  /* not found; of unigram models only */
    AF_SPM_BYTE,
} af_spm_type;

typedef struct af_spm_piece {
    const char *s; /* in the file: no NUL after it */
    uint32_t n;
    float score;
    af_spm_type type;
} af_spm_piece;

typedef struct af_spm {
    af_map map;
    af_spm_piece *piece;
    int32_t count;
    bool bpe; /* else unigram */
    bool byte_fallback;
    int32_t unk, bos, eos, pad;    /* -1 = none; unk is always there */
    bool add_dummy_prefix;         /* a blank in front of each text */
    bool remove_extra_whitespaces; /* at both ends, and of several in a row all but one */
    bool escape_whitespaces;       /* a blank is U+2581 */
    const uint8_t *charsmap;       /* precompiled; NULL = none */
    uint64_t charsmap_len;
} af_spm;

/* `data` is used as long as *out is. What is not valid, or not known, is an error. */
AF_CHECKED af_status af_spm_parse(af_spm *out, const uint8_t *data, uint64_t len, af_error *err);
/* Errors name the path. */
AF_CHECKED af_status af_spm_open(af_spm *out, const char *path, af_error *err);
void af_spm_clear(af_spm *m);

/* tokenizer_pieces.c: a tokenizer from the file, and from tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json of `folder`, which may be NULL. */
AF_CHECKED af_status af_tokenizer_from_pieces(af_tokenizer **out, const char *path,
                                              const char *folder, af_error *err);
#endif
