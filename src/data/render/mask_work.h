/* mask_work.h - the state of finding the loss mask of one row, for the files that share it: mask.c,
 * mask_start.c, mask_prefix.c (renderings of prefixes) and shown_text.c (what a rendering shows of
 * a message).
 */
#ifndef AF_MASK_WORK_H
#define AF_MASK_WORK_H

#include "data/render/renderer.h"

/* A place before an assistant's turn that the whole text and the renderings of windows have. */
typedef struct af_mask_anchor {
    size_t head; /* messages [0, head) and [from, ...) are rendered; head 0: all are */
    size_t from;
    uint64_t full, window; /* bytes up to the anchor in the whole text and in a window's */
    char *before;          /* [window] own: those of the window's */
    unsigned departs;      /* bits of af_prefix_kind: such texts of windows depart from the whole
                              as those of whole prefixes do; prompts if they end with this tail */
    uint64_t tail;         /* hash of what a prompt has after its departure */
    bool useless;          /* the template's windows do not agree with the whole */
} af_mask_anchor;
void af_mask_anchor_clear(af_mask_anchor *a);
/* Windows are not used any more. */
void af_mask_anchor_drop(af_mask_anchor *a);

typedef struct af_mask_work {
    af_renderer *s;
    const af_conversation *t;
    const af_data_source *source;
    af_loss_spans *out;
    af_mask_anchor *anchor;
    af_prefix_cache *cache; /* of the record */
    size_t messages;        /* of the row: the first ones of the conversation */
    const bool *only;       /* [messages] the messages to train, or NULL: all that should be */
    size_t last;            /* the last trained message of the conversation */
    const af_span *mark;    /* [messages] the blocks of answers, or NULL: the template marks none */
    af_error *err;
} af_mask_work;

static inline const json_t *af_mask_message(const af_mask_work *w, size_t i)
{
    return json_array_get(w->t->messages, i);
}

static inline const char *af_mask_role(const af_mask_work *w, size_t i)
{
    return json_string_value(json_object_get(af_mask_message(w, i), "role"));
}

/* mask_prefix.c */
/* Before a rendering for message n: an error when those of the record took too many steps. */
AF_CHECKED af_status af_mask_renders(const af_mask_work *w, size_t n);
typedef enum af_prefix_kind {
    AF_PREFIX_PROMPT, /* with the generation prompt */
    AF_PREFIX_TURNS,
    AF_PREFIX_NEXT, /* and a turn after them */
    AF_PREFIX_KINDS,
} af_prefix_kind;

/* The rendering of the first n messages (*text is malloc'ed). */
AF_CHECKED af_status af_prefix_whole(const af_mask_work *w, size_t n, af_prefix_kind kind,
                                     char **text, uint64_t *len);
/* The same, or that of a window of them. */
typedef struct af_prefix_text {
    char *text; /* own */
    uint64_t len;
    uint64_t here, there; /* the bytes before `here` are those before `there` in the whole */
} af_prefix_text;
AF_CHECKED af_status af_prefix_render(const af_mask_work *w, size_t n, af_prefix_kind kind,
                                      af_prefix_text *out);
void af_prefix_text_clear(af_prefix_text *p);
/* What the whole text has of the rendering of a prefix, as places in the whole. */
typedef struct af_prefix {
    uint64_t at;  /* up to here they agree */
    uint64_t end; /* where the prefix would end */
    uint64_t eot; /* the end of its last end-of-turn token after `from`; 0: it has none */
} af_prefix;
AF_CHECKED af_status af_prefix_compare(const af_mask_work *w, size_t n, af_prefix_kind kind,
                                       uint64_t from, af_prefix *out);
uint64_t af_common_prefix(const char *a, uint64_t n, const char *b, uint64_t m);
/* The last occurrence of `what` in [from, to) of text; UINT64_MAX when there is none. */
uint64_t af_find_last(const char *text, uint64_t from, uint64_t to, const char *what, uint64_t n);
/* The end-of-turn token that ends last in [from, to): its first byte and the one after it. */
bool af_find_eot(const af_renderer *s, const char *text, uint64_t from, uint64_t to, af_span *out);

/* mask_start.c */
typedef struct af_turn_span {
    uint64_t same;       /* bytes of the row that the prompt has, too */
    uint64_t start, end; /* with the end-of-turn token */
    uint64_t eot;        /* where that begins; == end when there is none */
    bool fits;           /* false: the turn needs a row of its own */
    bool lost;           /* a row of its own would show more of it */
    bool departs;        /* the answer does not begin as the generation prompt ends */
} af_turn_span;
/* Sets start, or UINT64_MAX: the row does not have the generation prompt before the answer.
 * *exact: the prompt of message i is a prefix of the whole, or an answer that this one continues.
 */
AF_CHECKED af_status af_turn_start(const af_mask_work *w, size_t i, af_turn_span *out, bool *exact);

/* Where the row shows the content c (n bytes) of message i, a turn that is not an answer, and where
 * its end-of-turn token ends: around the place where the row differs with another content. *out
 * stays as it is where there is none. */
AF_CHECKED af_status af_content_place(const af_mask_work *w, size_t i, const char *c, uint64_t n,
                                      af_span *out);

/* Where the whole would differ if message i had another answer: what the template writes before
 * it (a system text of its own, the header) is not the answer. */
AF_CHECKED af_status af_other_answer(const af_mask_work *w, size_t i, uint64_t *at);

/* shown_text.c */
/* The row with another message in place of message i, which it takes. */
AF_CHECKED af_status af_other_message(const af_mask_work *w, size_t i, json_t *message, char **text,
                                      uint64_t *len);
/* The number, from 1, of the first message that is not an answer and whose content, whatever it is,
 * the row does not show; 0: there is none. */
AF_CHECKED af_status af_message_unshown(const af_mask_work *w, size_t *out);
/* The first n messages. Where the template drops the beginning of the last one, an answer, and the
 * generation prompt has it, the answer is as it stands in the record. */
AF_CHECKED af_status af_answer_render(const af_mask_work *w, size_t n, char **text, uint64_t *len,
                                      af_spans *generation);
/* The name of a text of the message that [text, text + len) does not show; NULL: it shows all. */
const char *af_answer_missing(const json_t *message, const char *text, uint64_t len);
/* Whether two texts are the same without their blanks. */
bool af_same_words(const char *a, uint64_t n, const char *b, uint64_t m);
/* Whether the rendering that ends with message i shows more of it than the whole does in `shown`.
 */
AF_CHECKED af_status af_answer_lost(const af_mask_work *w, size_t i, af_span shown, bool *lost);
#endif
