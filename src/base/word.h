/* word.h - how far two names are apart, for "did you mean"; how a name ends. */
#ifndef AF_WORD_H
#define AF_WORD_H

#include <stdbool.h>
#include <stddef.h>

/* The known name nearest to one that is not known, or NULL when none is near. `known` ends with
 * NULL. */
const char *af_word_nearest(const char *word, const char *const *known);

/* Edits (insert, delete, replace, swap neighbours) between two words; letters past the 60th of
 * either are not looked at. */
int af_word_distance(const char *a, const char *b);

/* Whether `word` is one of the words of `list`, which are separated by blanks. */
bool af_word_listed(const char *word, const char *list);

/* Whether a text ends in `tail`; it may be all of it. */
bool af_ends_with(const char *s, const char *tail);
/* The same of the first n letters of a text, capital or small. */
bool af_ends_with_any_case(const char *s, size_t n, const char *tail);

#endif
