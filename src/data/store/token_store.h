/* token_store.h - tokenised records in one flat file, written once, mapped for ever after.
 *
 * A record is a run of 32-bit words: the token id, with the top bit set where the token carries no
 * loss. The file ends with an index (first word, length, source file, line of each record) and a
 * header with a sum over everything that is written last, so that a file cut short or changed is
 * never taken for a whole one. Reading needs no memory of its own. */
#ifndef AF_TOKEN_STORE_H
#define AF_TOKEN_STORE_H

#include "base/file.h"

#define AF_TOKEN_NO_LOSS 0x80000000u

typedef struct af_token_writer af_token_writer;
AF_CHECKED af_status af_token_writer_open(af_token_writer **out, const char *path, af_error *err);
/* One record: labels[i] is ids[i] or -100. `source` numbers the dataset file, `line` is where the
 * record begins. */
AF_CHECKED af_status af_token_writer_add(af_token_writer *w, const int32_t *ids,
                                         const int32_t *labels, int64_t n, int source, int64_t line,
                                         af_error *err);
/* The same for words of any meaning (pair_row.h), `supervised` of them trained. */
AF_CHECKED af_status af_token_writer_add_words(af_token_writer *w, const uint32_t *word, int64_t n,
                                               int64_t supervised, int source, int64_t line,
                                               af_error *err);
/* Whether words could not be written: a record may also fail before that. */
bool af_token_writer_failed(const af_token_writer *w);
/* The records of the file become these, by their numbers: some may come more than once, others not
 * at all. The tokens are stored once. */
AF_CHECKED af_status af_token_writer_order(af_token_writer *w, const int64_t *record, int64_t count,
                                           af_error *err);
/* Finishes and renames into place; closes w in every case. `note` (JSON text) is kept in the file.
 */
AF_CHECKED af_status af_token_writer_commit(af_token_writer *w, const char *note, af_error *err);
/* The same with a note of any bytes. */
AF_CHECKED af_status af_token_writer_commit_note(af_token_writer *w, const void *note,
                                                 uint64_t size, af_error *err);
void af_token_writer_abandon(af_token_writer *w);

typedef struct af_token_index {
    uint64_t at; /* first word */
    uint32_t count, source;
    uint64_t line;
} af_token_index;

typedef struct af_token_store {
    af_map map;
    int locked; /* a descriptor, plus 1, with a lock that keeps it in the cache; 0 = none */
    const uint32_t *words;
    const af_token_index *index;
    int64_t records;
    uint64_t tokens, supervised;
    uint32_t longest, shortest; /* 0 when there are none */
    uint64_t sum;               /* over all of the file */
    const char *note;
    uint64_t note_size;
} af_token_store;

AF_CHECKED af_status af_token_store_open(af_token_store *out, const char *path, af_error *err);
void af_token_store_close(af_token_store *s);
static inline const uint32_t *af_token_words(const af_token_store *s, int64_t record)
{
    return s->words + s->index[record].at;
}
#endif
