/* arena_owner.h - a heap object that owns an arena, for results handed to callers: the arena lies
 * in front of the object, so that a public struct need not name it. */
#ifndef AF_ARENA_OWNER_H
#define AF_ARENA_OWNER_H

#include "base/arena.h"

typedef struct af_arena_header {
    _Alignas(16) af_arena arena;
} af_arena_header;

/* `size` zeroed bytes with an empty arena; NULL when out of memory. */
static inline void *af_arena_owner_new(uint64_t size)
{
    af_arena_header *h = af_calloc(1, sizeof *h + size);
    return h ? h + 1 : NULL;
}
/* What the object points to is taken from here. */
static inline af_arena *af_arena_of(void *owner) { return &((af_arena_header *)owner - 1)->arena; }
/* Frees the object and everything in its arena. NULL is allowed. */
static inline void af_arena_owner_free(void *owner)
{
    if (!owner)
        return;
    af_arena_clear(af_arena_of(owner));
    free((af_arena_header *)owner - 1);
}
#endif
