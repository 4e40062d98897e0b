/* arena.h - memory that is freed all at once.
 *
 * An arena hands out zeroed, 16-byte aligned pieces from growing chunks and frees them together.
 * Pieces never move. Not thread-safe. An arena that is all zero is empty and ready. */
#ifndef AF_ARENA_H
#define AF_ARENA_H

#include "base/base.h"

typedef struct af_arena {
    struct af_arena_chunk *top;
    uint64_t bytes; /* handed out so far */
    uint64_t limit; /* 0 = none; beyond it af_arena_take gives NULL */
} af_arena;

/* NULL when memory or the limit is used up. */
void *af_arena_take(af_arena *a, uint64_t bytes);
char *af_arena_strndup(af_arena *a, const char *s, uint64_t n);
char *af_arena_strdup(af_arena *a, const char *s);
AF_PRINTF(2, 3) char *af_arena_printf(af_arena *a, const char *fmt, ...);
/* Frees everything; the arena is empty and usable again. */
void af_arena_clear(af_arena *a);
#endif
