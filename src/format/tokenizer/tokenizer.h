/* tokenizer.h - inside of the tokenizers: parts, vocabulary, and the work of one encode call.
 *
 * A text goes through: added tokens of the raw text, normalizers, added tokens of the normalised
 * text, pre-tokenizers, model, post-processors. Pieces are pushed depth first through these stages,
 * so that every stage needs one buffer only and the ids come out in order. */
#ifndef AF_TOKENIZER_H
#define AF_TOKENIZER_H

#include "afinar/text.h"
#include "base/arena.h"
#include "base/buf.h"
#include "format/text/jsonpull.h"
#include "format/text/unicode.h"
#include "format/tokenizer/token_bytes.h"

#include <pthread.h>

enum {
    AF_PARTS_MAX = 64, /* normalizers, pre-tokenizers, ... each, after flattening Sequences */
    AF_WORD_CACHE_SLOTS = 1 << 15,
    AF_WORD_MAX = 64,              /* bytes of a cached word */
    AF_TOKENIZER_GAP_MAX = 1 << 20 /* ids that no token has: a table by id takes memory for them */
};

typedef struct af_str {
    const char *s; /* NUL-terminated */
    uint32_t n;
} af_str;

typedef struct af_byte_span {
    uint32_t start, end;
} af_byte_span;

/* ---- vocabulary: string <-> id ---- */
typedef struct af_vocab {
    af_str *token; /* by id; s == NULL: no such id */
    int32_t count; /* highest id + 1 */
    int32_t cap;
    int32_t entries;  /* strings in the map */
    uint32_t longest; /* bytes of the longest string */
    struct af_vocab_slot {
        union {
            uint64_t head; /* a string of up to 8 bytes */
            const char *s; /* a longer one */
        } text;
        uint32_t tag; /* hash and length */
        int32_t id;   /* -1 = free */
    } * slot;
    uint32_t mask;
} af_vocab;

uint64_t af_bytes_hash(const char *s, uint64_t n);
/* The strings are kept in `arena`. A string seen before gets the new id. */
AF_CHECKED af_status af_vocab_add(af_vocab *v, af_arena *arena, const char *s, uint64_t n,
                                  int32_t id, af_error *err);
int32_t af_vocab_find(const af_vocab *v, const char *s, uint64_t n);
AF_CHECKED af_status af_vocab_reserve(af_vocab *v, uint64_t entries, af_error *err);
/* For a string that is added soon. */
void af_vocab_prefetch(const af_vocab *v, const char *s, uint64_t n);
typedef struct af_vocab_key {
    const char *s;
    uint32_t n;
    uint32_t tag; /* in use during the search */
    int32_t id;   /* the answer; -1 = none */
} af_vocab_key;
/* Many at once, each step of all of them before the next. The vocabulary has a table. */
void af_vocab_find_all(const af_vocab *v, af_vocab_key *const *key, int count);
void af_vocab_clear(af_vocab *v);

/* ---- a trie over bytes: longest match, and all prefixes ---- */
typedef struct af_trie {
    struct af_trie_node {
        uint32_t first; /* its children are first .. first + count - 1, sorted by label */
        uint16_t count;
        uint8_t label;
        int32_t value; /* -1 = no string ends here */
    } * node;          /* node[0] is the root */
    uint32_t count;
    uint32_t root[256]; /* child of the root, 0 = none */
} af_trie;

typedef struct af_trie_key {
    const char *s;
    uint32_t n;
    int32_t value;
} af_trie_key;

/* Sorts keys; of equal strings the one with the lowest value counts. Empty strings are left out. */
AF_CHECKED af_status af_trie_build(af_trie *t, af_trie_key *keys, uint32_t n, af_error *err);
/* The child of `node` by byte, 0 = none. */
uint32_t af_trie_step(const af_trie *t, uint32_t node, uint8_t byte);
/* Bytes of the longest string that the text begins with, and its value; 0 = none. */
uint32_t af_trie_longest(const af_trie *t, const char *s, uint32_t n, int32_t *value);
void af_trie_clear(af_trie *t);

/* ---- regexes ---- */
typedef struct af_regex af_regex;
typedef struct af_regex_work af_regex_work; /* match memory of one thread */

/* Compiles a pattern written for Oniguruma's Ruby syntax. */
AF_CHECKED af_status af_regex_new(af_regex **out, const char *pattern, uint64_t len, af_error *err);
void af_regex_free(af_regex *r);
/* The next match at or after `from`; *start = UINT32_MAX when there is none. */
AF_CHECKED af_status af_regex_next(const af_regex *r, af_regex_work **w, const char *text,
                                   uint32_t len, uint32_t from, uint32_t *start, uint32_t *end,
                                   af_error *err);
void af_regex_work_free(af_regex_work *w);

/* Well-known split patterns have a scanner of their own: the next piece of text, all of which is
 * covered by matches. Returns its length. NULL when the pattern is not known. */
typedef uint32_t af_scanner(const af_unicode *u, const char *text, uint32_t len, uint32_t from);
af_scanner *af_scanner_find(const char *pattern, uint64_t len);
extern const char af_gpt2_pattern[];

/* ---- parts ---- */
typedef enum af_norm_kind {
    AF_NORM_NFC,
    AF_NORM_NFD,
    AF_NORM_NFKC,
    AF_NORM_NFKD,
    AF_NORM_LOWERCASE,
    AF_NORM_STRIP,
    AF_NORM_STRIP_ACCENTS,
    AF_NORM_REPLACE,
    AF_NORM_PREPEND,
    AF_NORM_PRECOMPILED,
    AF_NORM_NMT,
    AF_NORM_BERT,
    AF_NORM_BYTE_LEVEL,
    AF_NORM_PIECES, /* all that SentencePiece does */
} af_norm_kind;

typedef enum af_prepend { AF_PREPEND_ALWAYS, AF_PREPEND_FIRST, AF_PREPEND_NEVER } af_prepend;

typedef struct af_norm {
    af_norm_kind kind;
    bool left, right;                  /* strip */
    bool clean, chinese, accents, low; /* bert */
    af_str pattern, content;           /* replace (pattern without regex), prepend */
    af_regex *regex;
    const uint32_t *units; /* precompiled, pieces: double array, then the replacement strings */
    uint32_t units_count;
    const char *strings;
    uint32_t strings_len;
    bool one_blank, mark_blanks; /* pieces: of several in a row, none at the ends; as U+2581 */
    af_prepend prefix;           /* pieces */
} af_norm;

typedef enum af_pre_kind {
    AF_PRE_BYTE_LEVEL,   /* the spelling of bytes only: prefix space and regex are stages before */
    AF_PRE_PREFIX_SPACE, /* a blank in front when there is none */
    AF_PRE_SPLIT,
    AF_PRE_METASPACE,
    AF_PRE_DIGITS,
    AF_PRE_PUNCTUATION,
    AF_PRE_WHITESPACE,
    AF_PRE_WHITESPACE_SPLIT,
    AF_PRE_BERT,
    AF_PRE_DELIMITER,
    AF_PRE_FIXED_LENGTH,
} af_pre_kind;

typedef enum af_behavior {
    AF_BEHAVIOR_REMOVED,
    AF_BEHAVIOR_ISOLATED,
    AF_BEHAVIOR_MERGED_PREVIOUS,
    AF_BEHAVIOR_MERGED_NEXT,
    AF_BEHAVIOR_CONTIGUOUS,
} af_behavior;

typedef struct af_pre {
    af_pre_kind kind;
    bool last; /* byte level, nothing after it: bytes go to the model as such */
    bool invert;
    af_behavior behavior;
    af_str pattern; /* split on a plain string */
    af_regex *regex;
    af_scanner *scanner;
    uint32_t replacement; /* metaspace, delimiter */
    char mark[4];
    uint32_t mark_len;
    af_prepend prepend;
    bool split;
    bool individual; /* digits */
    uint32_t length; /* fixed length */
} af_pre;

typedef enum af_post_kind { AF_POST_TEMPLATE, AF_POST_TRIM } af_post_kind;

typedef struct af_post {
    af_post_kind kind;
    bool prefix_space; /* trim */
    int32_t *ids;      /* template: AF_POST_TEXT stands for the text */
    int count;
} af_post;
enum { AF_POST_TEXT = -1 };

typedef enum af_dec_kind {
    AF_DEC_BYTE_LEVEL,
    AF_DEC_BYTE_FALLBACK,
    AF_DEC_FUSE,
    AF_DEC_STRIP,
    AF_DEC_REPLACE,
    AF_DEC_METASPACE,
    AF_DEC_WORDPIECE,
    AF_DEC_BPE,
    AF_DEC_CTC,
} af_dec_kind;

typedef struct af_dec {
    af_dec_kind kind;
    af_str pattern, content; /* replace; bpe suffix, wordpiece prefix, ctc pad in pattern */
    af_regex *regex;
    uint32_t mark; /* strip, metaspace */
    uint32_t start, stop;
    bool keep_first; /* metaspace: prepend scheme never */
    bool cleanup;
} af_dec;

typedef struct af_added {
    af_str content;
    af_str shown; /* what is searched for and what its id decodes to: content, normalised if so */
    bool skipped; /* when special tokens are left out: by `shown`, as the package does it */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} af_added;

/* Patterns of added tokens: values of the trie index `added`. */
typedef struct af_matcher {
    af_trie trie;
    bool first[256]; /* bytes that a pattern can begin with */
    int only;        /* the one first byte, or -1 */
    bool any;
} af_matcher;

/* ---- models ---- */
typedef enum af_model_kind {
    AF_MODEL_BPE,
    AF_MODEL_UNIGRAM,
    AF_MODEL_WORDPIECE,
    AF_MODEL_WORDLEVEL,
    AF_MODEL_SPM, /* scores as priorities, from GGUF and tokenizer.model */
} af_model_kind;

typedef struct af_merge_slot {
    uint64_t pair; /* left << 32 | right; UINT64_MAX = free */
    uint32_t rank;
    int32_t id;
} af_merge_slot;

typedef struct af_token_model {
    af_model_kind kind;
    af_merge_slot *merge;
    uint64_t merge_mask;
    const af_json_value *early_vocab, *early_merges; /* read by af_merges_read_early; or NULL */
    int32_t byte_id[256];     /* byte level: id of the byte's printable character, -1 = none */
    int32_t fallback_id[256]; /* id of <0xNN>, -1 = none */
    int32_t ascii_id[128];    /* id of a one-character token */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool cut_at_mark;      /* words can be cut before a U+2581 after anything but U+2581 ... */
    bool joined[256];      /* ... and these bytes, which some merge joins with it */
    bool byte_level;       /* the last pre-tokenizer passes on raw bytes */
    int32_t unk_id;        /* -1 = none */
    bool unk_missing;      /* an unk token is named but not in the vocabulary */
    af_str prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix; n == 0: none */
    double *score;         /* unigram, spm: by id; -INFINITY: never found in a text */
    double unk_score;
    bool single; /* unigram: sums of scores are rounded to float */
    af_trie trie;
    af_trie user;       /* tokens of tokenizer.model that are found first and never joined */
    uint32_t max_chars; /* wordpiece */
} af_token_model;

struct af_work;

struct af_tokenizer {
    af_arena arena; /* strings and parts */
    af_unicode *unicode;
    af_vocab vocab;       /* of the model alone */
    af_vocab added_vocab; /* strings of added tokens */
    af_token_model model;
    af_norm norm[AF_PARTS_MAX];
    af_pre pre[AF_PARTS_MAX];
    af_post post[AF_PARTS_MAX];
    af_dec dec[AF_PARTS_MAX];
    int norms, pres, posts, decs;
    bool has_decoder;
    af_added *added;
    int added_count;
    int32_t *added_at; /* id -> index in added, -1 = none; added_at_count long */
    int32_t added_at_count;
    af_matcher raw, normalized;
    int32_t bos, eos, pad, unk;
    af_str bos_text, eos_text, pad_text, unk_text;
    int32_t *stops;
    int stop_count;
    pthread_mutex_t lock; /* guards idle */
    struct af_work *idle; /* work memory waiting for the next call */
};

/* ---- the work of one call ---- */
typedef struct af_piece {
    const char *text;
    uint32_t len;
    uint32_t base;             /* align == NULL: text[i] is byte base + i of the original */
    uint32_t shift;            /* where the piece begins in the original */
    const af_byte_span *align; /* for each byte of text its place in the original */
} af_piece;

typedef struct af_stage { /* text made by a stage, valid until its next piece */
    char *text;
    af_byte_span *align;
    uint32_t len, cap;
    uint64_t max; /* bytes; 0 = no limit of its own */
} af_stage;

/* Bytes that a normalizer may make of each byte of a text: NFKC's worst character makes 11. */
enum { AF_NORMALIZER_GROWTH_MAX = 64 };

typedef struct af_segment {
    uint32_t start, end;
    bool match;
} af_segment;

typedef struct af_word_slot {
    uint64_t hash;
    uint32_t at;         /* in af_work.words: the text padded to 4 bytes, then ids, starts, ends */
    uint16_t len, count; /* len 0 = free */
} af_word_slot;

typedef struct af_symbol {
    int32_t id;
    uint32_t start, len; /* len 0: merged into another */
    int32_t prev, next;
} af_symbol;

typedef struct af_candidate {
    uint32_t rank, pos;
    int32_t id;
} af_candidate;

typedef struct af_best {
    double score;
    uint32_t from; /* UINT32_MAX = unreached */
    int32_t id;
} af_best;

typedef struct af_work {
    struct af_work *next;
    const af_tokenizer *t;
    af_encoding *out;
    const char *text; /* the original */
    uint32_t len;
    af_error *err;
    af_stage norm[2];
    af_stage pre[AF_PARTS_MAX];
    af_segment *segment;
    uint32_t segment_count, segment_cap;
    af_regex_work *regex;
    af_symbol *symbol;
    uint32_t symbol_count, symbol_cap;
    af_candidate *heap;
    uint32_t heap_count, heap_cap;
    af_best *best;
    uint32_t best_cap;
    af_buf word;  /* scratch */
    int32_t *cps; /* normaliser scratch */
    uint32_t cps_cap;
    af_word_slot *slot; /* AF_WORD_CACHE_SLOTS, made at the first use */
    int32_t *words;
    uint32_t words_count, words_cap, slots_used;
} af_work;

/* Grows *p to at least `want` elements of `size`; false when out of memory. */
bool af_grow(void *p, uint32_t *cap, uint64_t want, uint64_t size);

/* tokenizer_normalize.c */
AF_CHECKED af_status af_normalize(af_work *w, af_piece *p);
AF_CHECKED af_status af_stage_begin(af_stage *s, uint64_t want, af_error *err);
AF_CHECKED af_status af_stage_reserve(af_stage *s, uint64_t more, af_error *err);
void af_stage_add(af_stage *s, const char *bytes, uint32_t n, af_byte_span place);
/* The characters i..end of a piece, unchanged. */
AF_CHECKED af_status af_stage_copy(af_work *w, const af_piece *p, af_stage *to, uint32_t i,
                                   uint32_t end);
/* Bytes i .. j-1 of p in the original. */
af_byte_span af_piece_span(const af_piece *p, uint32_t i, uint32_t j);
af_piece af_piece_slice(const af_piece *p, uint32_t i, uint32_t j);
af_piece af_stage_piece(const af_stage *s, const af_piece *from);
/* tokenizer_unorm.c: Unicode normal forms */
AF_CHECKED af_status af_normal_form(af_work *w, af_piece *p, af_stage *to, af_norm_kind form);
/* tokenizer_precompiled.c */
AF_CHECKED af_status af_precompiled_parse(af_norm *n, af_arena *a, const char *base64, uint64_t len,
                                          af_error *err);
/* The bytes themselves, which are copied. */
AF_CHECKED af_status af_charsmap_set(af_norm *n, af_arena *a, const uint8_t *bytes, uint64_t size,
                                     af_error *err);
/* How many bytes of the text its longest rule takes, and what they become; 0 = none. */
uint32_t af_charsmap_longest(const af_norm *n, const char *s, uint32_t len, af_str *out);
AF_CHECKED af_status af_precompiled_run(af_work *w, const af_norm *n, af_piece *p, af_stage *to);
/* tokenizer_pieces_norm.c */
AF_CHECKED af_status af_pieces_normalize(af_work *w, const af_norm *n, af_piece *p, af_stage *to);
/* tokenizer_added.c */
AF_CHECKED af_status af_added_build(af_tokenizer *t, af_error *err);
AF_CHECKED af_status af_added_split(af_work *w, const af_matcher *m, const af_piece *p,
                                    af_status (*rest)(af_work *w, const af_piece *p));
AF_CHECKED af_status af_added_insert(af_tokenizer *t, af_added a, int64_t wanted_id, af_error *err);
/* Those of the files next to tokenizer.json, or to tokenizer.model (`pieces`), whose added tokens
 * are in the tokenizer already. `config` is tokenizer_config.json. */
AF_CHECKED af_status af_added_read_files(af_tokenizer *t, const af_json_value *config,
                                         const char *folder, bool pieces, af_error *err);
/* tokenizer_pretok.c */
AF_CHECKED af_status af_pre_run(af_work *w, int stage, const af_piece *p);
/* tokenizer_word.c: model dispatch and the cache of words */
AF_CHECKED af_status af_model_run(af_work *w, const af_piece *p);
AF_CHECKED af_status af_emit(af_work *w, const af_piece *p, int32_t id, uint32_t start,
                             uint32_t end);
/* The models fill w->symbol[0 .. symbol_count) with id, start, len in order. */
AF_CHECKED af_status af_bpe_word(af_work *w, const char *s, uint32_t n);
AF_CHECKED af_status af_unigram_word(af_work *w, const char *s, uint32_t n);
AF_CHECKED af_status af_wordpiece_word(af_work *w, const char *s, uint32_t n);
AF_CHECKED af_status af_spm_word(af_work *w, const char *s, uint32_t n);
AF_CHECKED af_status af_symbol_add(af_work *w, int32_t id, uint32_t start, uint32_t len);
void af_merges_prefetch(const af_token_model *m, int32_t a, int32_t b);
/* tokenizer_merges.c */
/* Notes which bytes the token joins with a U+2581 after them. */
void af_model_note_marks(af_token_model *m, const char *s, uint32_t n);
/* *used: bytes of the list, which may end before the text of v does. */
AF_CHECKED af_status af_merges_parse(af_tokenizer *t, const af_json_value *v, uint64_t *used,
                                     af_error *err);
/* A table for `count` merges, with those that are there. */
AF_CHECKED af_status af_merges_reserve(af_token_model *m, uint64_t count, af_error *err);
/* How many the table can take. */
uint64_t af_merges_most(const af_token_model *m);
void af_merges_put(af_token_model *m, int32_t a, int32_t b, uint32_t rank, int32_t id);
const af_merge_slot *af_merges_get(const af_token_model *m, int32_t a, int32_t b);
/* tokenizer_parts.c */
AF_CHECKED af_status af_parts_parse(af_tokenizer *t, const af_json_value *root, af_error *err);
/* The same from a text of ours. */
AF_CHECKED af_status af_parts_use(af_tokenizer *t, const char *json, af_error *err);
af_str af_str_of(const af_json_value *v);
/* tokenizer_model.c: for af_json_raw; reads the merges of a BPE model when all that they need is
 * known. What turns out different later makes af_model_parse read them again. */
uint64_t af_merges_read_early(void *tokenizer, const af_json_value *object,
                              const af_json_value *item);
/* The tables every model needs, once the vocabulary is there */
AF_CHECKED af_status af_model_parse(af_tokenizer *t, const af_json_value *v, af_error *err);
AF_CHECKED af_status af_model_finish(af_tokenizer *t, af_error *err);
AF_CHECKED af_status af_tokenizer_new(af_tokenizer **out, af_error *err);
bool af_token_skipped(const af_tokenizer *t, int32_t id); /* by skip_special */
/* A template that puts the first and the last token around a text. */
AF_CHECKED af_status af_tokenizer_surround(af_tokenizer *t, bool bos, bool eos, af_error *err);
/* Parses folder/name into *v when it is there. */
AF_CHECKED af_status af_tokenizer_config(af_tokenizer *t, af_json_value *v, const char *folder,
                                         const char *name, af_error *err);
/* Names and ends of generation from the config files. */
AF_CHECKED af_status af_tokenizer_read_configs(af_tokenizer *t, const char *folder, af_error *err);
/* A number of a file that can be an id; else -1. */
int32_t af_token_id_of(const af_json_value *v);
/* Flags and text of an added token; what it is when `special` is absent. */
af_added af_added_of(const af_json_value *v, bool special);
/* Adds an id that ends a generation, once. */
AF_CHECKED af_status af_tokenizer_add_stop(af_tokenizer *t, double id, af_error *err);
/* tokenizer_gguf.c */
AF_CHECKED af_status af_tokenizer_from_gguf(af_tokenizer **out, const char *path, af_error *err);

/* False when it is not base64. `out` has as many bytes as the text. */
bool af_base64_decode(uint8_t *out, uint64_t *n, const char *s, uint64_t len);
/* The 256 printable characters of byte-level vocabularies. */
uint32_t af_byte_char(uint8_t byte);
int af_char_byte(uint32_t cp); /* -1 = none of them */
#endif
