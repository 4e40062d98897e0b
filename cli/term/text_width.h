/* text_width.h - how wide a UTF-8 text is on the screen. */
#ifndef AF_TEXT_WIDTH_H
#define AF_TEXT_WIDTH_H

#include <stddef.h>

/* The character at s, of n bytes, and its own length. */
unsigned af_text_char(const char *s, size_t n, size_t *len);
/* Columns of the screen: two for the wide scripts and pictures, none for marks on a letter. */
int af_text_width(const char *s, size_t n);
#endif
