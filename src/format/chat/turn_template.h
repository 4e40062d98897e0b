/* turn_template.h - chat templates as pieces of text, one per turn, as LLaMA-Factory's `template`
 * names them. Each piece is tokenised by itself, so that a prompt has the same tokens whatever
 * answer follows it. */
#ifndef AF_TURN_TEMPLATE_H
#define AF_TURN_TEMPLATE_H

#include "base/base.h"

/* Marks in a piece: special tokens, the place of the text, and a border between two strings that
 * are tokenised apart. */
enum { AF_TURNS_BOS = 1, AF_TURNS_EOS = 2, AF_TURNS_TEXT = 3, AF_TURNS_APART = 4 };

enum {
    AF_TURNS_FOLDS = 1,     /* the system text stands at the beginning of the first user's */
    AF_TURNS_THINKS = 2,    /* an answer without a thought gets an empty one */
    AF_TURNS_CLOSES = 4,    /* which is the closing word alone */
    AF_TURNS_ENDS = 8,      /* eos only after the last answer */
    AF_TURNS_STOPS = 16,    /* eos is the stop word */
    AF_TURNS_REPLACES = 32, /* it is written with the results even if the model has one */
};

typedef struct af_turn_template {
    const char *names; /* separated by blanks */
    const char *prefix, *system, *user, *answer;
    const char *tool; /* a tool's result; NULL = as the user */
    const char *default_system, *stop;
    const char *think[2]; /* around a thought; NULL = <think> and </think> on lines of their own */
    unsigned flags;
} af_turn_template;

/* NULL when there is none of that name. */
const af_turn_template *af_turn_template_find(const char *name);
/* Before (0) and after (1) a thought. */
const char *af_turn_template_think(const af_turn_template *t, int end);
/* The same as a Jinja template (malloc'ed): for programs that ask the trained model. `bos` and
 * `eos` are the texts of those tokens, `system` the text of a conversation without one (NULL = the
 * template's own). NULL when memory is short. */
char *af_turn_template_jinja(const af_turn_template *t, const char *bos, const char *eos,
                             const char *system);
#endif
