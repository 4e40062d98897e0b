/* word.h - how far two names are apart, for "did you mean". */
#ifndef AF_WORD_H
#define AF_WORD_H

#include "afinar/word.h"

/* Edits (insert, delete, replace, swap neighbours) between two words; letters past the 60th of
 * either are not looked at. */
int af_word_distance(const char *a, const char *b);

#endif
