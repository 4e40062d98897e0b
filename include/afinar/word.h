/* word.h - "did you mean": for names that a user has misspelt. */
#ifndef AFINAR_WORD_H
#define AFINAR_WORD_H

#ifdef __cplusplus
extern "C" {
#endif

/* The known word nearest to one that is not known, or NULL when none is near. `known` ends with
 * NULL; what is returned is one of its words. */
const char *af_word_nearest(const char *word, const char *const *known);

#ifdef __cplusplus
}
#endif
#endif
