/* arena.c - chunks in a list, the newest on top. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define AF_ARENA_ALIGN 16u
#define AF_ARENA_CHUNK (64u * 1024u)

struct af_arena_chunk {
    _Alignas(AF_ARENA_ALIGN) struct af_arena_chunk *below; /* so that what follows is aligned too */
    uint64_t used, size;
};

void *af_arena_take(af_arena *a, uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * AF_ARENA_CHUNK)
        return NULL;
    bytes = AF_ALIGN_UP(AF_MAX(bytes, 1), (uint64_t)AF_ARENA_ALIGN);
    if (a->limit && a->bytes + bytes > a->limit)
        return NULL;
    struct af_arena_chunk *c = a->top;
    if (!c || c->size - c->used < bytes) {
        /* chunks double up to 4 MiB so that large arenas need few of them */
        const uint64_t want = c ? AF_MIN(c->size * 2, (uint64_t)4 << 20) : AF_ARENA_CHUNK;
        const uint64_t size = AF_MAX(want, bytes);
        c = af_calloc(1, sizeof *c + size);
        if (!c)
            return NULL;
        *c = (struct af_arena_chunk){.below = a->top, .used = 0, .size = size};
        a->top = c;
    }
    void *p = (char *)(c + 1) + c->used;
    c->used += bytes;
    a->bytes += bytes;
    return p;
}

char *af_arena_strndup(af_arena *a, const char *s, uint64_t n)
{
    char *p = af_arena_take(a, n + 1);
    if (p && n)
        memcpy(p, s, n);
    return p;
}

char *af_arena_strdup(af_arena *a, const char *s) { return af_arena_strndup(a, s, strlen(s)); }

char *af_arena_printf(af_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        af_memory_note();
    char *p = n < 0 ? NULL : af_arena_take(a, (uint64_t)n + 1);
    if (p) {
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}

void af_arena_clear(af_arena *a)
{
    while (a->top) {
        struct af_arena_chunk *below = a->top->below;
        free(a->top);
        a->top = below;
    }
    a->bytes = 0;
}
