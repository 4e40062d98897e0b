/* model_card.h - README.md of an output folder: YAML front matter as PEFT, transformers and
 * mergekit write it, and a text for people. The same inputs give the same bytes: no times, no
 * machine. */
#ifndef AF_MODEL_CARD_H
#define AF_MODEL_CARD_H

#include "base/buf.h"
#include "base/publish.h"

#define AF_CARD_NAME "README.md"

enum { AF_CARD_LIST = 64 };

typedef struct af_card {
    const char *title;              /* of the page: the folder's name */
    const char *library;            /* "peft", "transformers", "mlx" */
    const char *relation;           /* how it came from its base: "adapter", "merge", ... or NULL */
    const char *base[AF_CARD_LIST]; /* as the user named them */
    const char *base_path[AF_CARD_LIST]; /* where they lie, for their licence; NULL = unknown */
    int bases;
    const char *tags[4];                /* up to a NULL */
    const char *datasets[AF_CARD_LIST]; /* files */
    int dataset_count;
    const char *body; /* Markdown after the title */
} af_card;

/* Writes dir/README.md; dir is a temporary folder, or one whose README.md is ours. The config in it
 * decides how it is loaded. */
AF_CHECKED af_status af_card_write(const char *dir, const af_card *c, af_error *err);
/* Writes the card of an output; the title is its name. Clears `body`. */
AF_CHECKED af_status af_card_put(const af_output *f, af_card *c, af_buf *body, af_error *err);
/* A path or name between backticks. */
void af_card_code(af_buf *b, const char *text);
/* A fenced block that contains `text` whatever is in it. */
void af_card_fence(af_buf *b, const char *language, const char *text, uint64_t n);
#endif
