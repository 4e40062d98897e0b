/* vocab.h - the tokens of a vocabulary as a trie over their bytes, in preorder: a walk goes forward
 * through one array and jumps over the subtree of a byte that does not fit. */
#ifndef AF_GRAMMAR_VOCAB_H
#define AF_GRAMMAR_VOCAB_H

#include "afinar/grammar.h"
#include "base/base.h"

enum { AF_VOCAB_TOKEN_MAX = 1024 }; /* bytes; longer tokens are never allowed */

typedef struct af_vocab_node {
    uint32_t skip; /* the first node after this one's subtree */
    int32_t id;    /* the token that ends here, -1 = none */
    uint16_t depth;
    uint8_t byte;
} af_vocab_node;

struct af_grammar_vocab {
    int32_t ids;
    char *bytes;   /* of all tokens; a special token begins with AF_RTN_SPECIAL */
    uint64_t *at;  /* bytes at[id] .. at[id + 1] */
    int32_t *same; /* the next id with the same bytes, -1 = none */
    af_vocab_node *node;
    uint32_t nodes;
    uint32_t longest; /* bytes of a token */
    int32_t *stop;
    int stops;
};

bool af_vocab_is_stop(const af_grammar_vocab *v, int32_t id);
#endif
