/* tokenizer_precompiled.c - the character map that SentencePiece compiles into its models.
 *
 * Base64 of: u32 size, a double-array trie of that many bytes, then NUL-terminated replacements.
 * A grapheme shorter than 6 bytes is looked up whole, otherwise its characters one by one; in both
 * cases the shortest prefix that the trie knows decides and the whole is replaced. That is how the
 * `tokenizers` package does it. */
#include "format/tokenizer/tokenizer.h"

#include <utf8proc.h>

enum { GRAPHEME_MAX = 6 };

static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool af_base64_decode(uint8_t *out, uint64_t *n, const char *s, uint64_t len)
{
    uint32_t bits = 0;
    int have = 0;
    *n = 0;
    while (len > 0 && s[len - 1] == '=')
        len--;
    for (uint64_t i = 0; i < len; i++) {
        const int d = digit64(s[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[(*n)++] = (uint8_t)(bits >> have);
        }
    }
    return true;
}

/* `bytes` is in the arena: 16-byte aligned. */
static af_status set_map(af_norm *n, const uint8_t *bytes, uint64_t size, af_error *err)
{
    uint32_t trie = 0;
    if (size >= 4)
        memcpy(&trie, bytes, 4);
    if (size < 4 || trie > size - 4 || trie % 4 || trie == 0)
        return af_fail(err, AF_EFORMAT,
                       "precompiled_charsmap has a trie of %" PRIu32 " bytes in %" PRIu64, trie,
                       size);
    n->units = (const uint32_t *)(const void *)(bytes + 4);
    n->units_count = trie / 4;
    n->strings = (const char *)bytes + 4 + trie;
    n->strings_len = (uint32_t)(size - 4 - trie);
    if (af_utf8_valid(n->strings, n->strings_len) != n->strings_len)
        return af_fail(err, AF_EFORMAT, "precompiled_charsmap has replacements that are not UTF-8");
    return AF_OK;
}

af_status af_charsmap_set(af_norm *n, af_arena *a, const uint8_t *bytes, uint64_t size,
                          af_error *err)
{
    uint8_t *copy = af_arena_take(a, size + 1);
    if (!copy)
        return af_fail_nomem(err, "the precompiled character map", size);
    memcpy(copy, bytes, size);
    return set_map(n, copy, size, err);
}

af_status af_precompiled_parse(af_norm *n, af_arena *a, const char *base64, uint64_t len,
                               af_error *err)
{
    uint64_t size;
    uint8_t *bytes = af_arena_take(a, len + 8);
    if (!bytes)
        return af_fail_nomem(err, "the precompiled character map", len);
    if (!af_base64_decode(bytes, &size, base64, len))
        return af_fail(err, AF_EFORMAT, "precompiled_charsmap is not base64");
    return set_map(n, bytes, size, err);
}

static uint32_t unit_offset(uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); }

/* A replacement of the map; false when the place is not one. */
static bool replacement(const af_norm *n, uint32_t value, af_str *out)
{
    if (value > n->strings_len)
        return false;
    const char *from = n->strings + value;
    if (value < n->strings_len && af_utf8_is_tail(*from))
        return false;
    const char *end = memchr(from, 0, n->strings_len - value);
    *out = (af_str){from, (uint32_t)((end ? end : n->strings + n->strings_len) - from)};
    return true;
}

/* Bytes of the shortest or longest known prefix, and its replacement; 0 when there is none. The
 * longest one ends where a character does: the text after it has to be valid UTF-8. */
static uint32_t lookup(const af_norm *n, const char *s, uint32_t len, bool longest, af_str *out)
{
    uint32_t at = unit_offset(n->units[0]), found = 0;
    for (uint32_t i = 0; i < len && s[i]; i++) {
        at ^= (uint8_t)s[i];
        if (at >= n->units_count)
            break;
        const uint32_t u = n->units[at];
        if ((u & (UINT32_C(1) << 31 | 0xff)) != (uint8_t)s[i])
            break;
        at ^= unit_offset(u);
        if ((u >> 8 & 1) == 0 || (longest && i + 1 < len && af_utf8_is_tail(s[i + 1])))
            continue;
        if (at >= n->units_count || !replacement(n, n->units[at] & UINT32_C(0x7fffffff), out))
            break;
        found = i + 1;
        if (!longest)
            break;
    }
    return found;
}

uint32_t af_charsmap_longest(const af_norm *n, const char *s, uint32_t len, af_str *out)
{
    return lookup(n, s, len, true, out);
}

static af_status put(af_work *w, af_stage *to, af_str s, af_byte_span place)
{
    const af_status st = af_stage_reserve(to, s.n, w->err);
    if (st == AF_OK)
        af_stage_add(to, s.s, s.n, place);
    return st;
}

static uint32_t grapheme_end(const af_piece *p, uint32_t i)
{
    uint32_t cp, next;
    utf8proc_int32_t state = 0;
    uint32_t end = i + af_utf8_get(p->text + i, &cp);
    while (end < p->len) {
        const uint32_t n = af_utf8_get(p->text + end, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
            break;
        cp = next;
        end += n;
    }
    return end;
}

af_status af_precompiled_run(af_work *w, const af_norm *n, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    bool changed = false;
    af_str found;
    AF_TRY(af_stage_begin(to, p->len, w->err));
    for (uint32_t i = 0, end; i < p->len; i = end) {
        end = grapheme_end(p, i);
        if (end - i < GRAPHEME_MAX && lookup(n, p->text + i, end - i, false, &found)) {
            AF_TRY(put(w, to, found, af_piece_span(p, i, end)));
            changed = true;
            continue;
        }
        for (uint32_t k = i, len; k < end; k += len) {
            len = af_utf8_len(p->text[k]);
            const bool hit = lookup(n, p->text + k, len, false, &found);
            if (!hit)
                found = (af_str){p->text + k, len};
            changed |= hit;
            AF_TRY(put(w, to, found, af_piece_span(p, k, k + len)));
        }
    }
    if (changed)
        *p = af_stage_piece(to, p);
done:
    return st;
}
