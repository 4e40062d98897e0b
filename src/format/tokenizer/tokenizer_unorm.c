/* tokenizer_unorm.c - NFC, NFD, NFKC, NFKD by utf8proc, with alignment.
 *
 * The text is cut before every character that can neither combine with what stands before it nor
 * begin with such a one; each part is normalised on its own, so that offsets stay close. Characters
 * that the `tokenizers` package does not know yet are left alone: its tables are older. */
#include "format/tokenizer/tokenizer.h"

#include <utf8proc.h>

static bool is_inert(uint32_t cp)
{
    return cp >= 0x700 && af_set_has(af_set_inert, af_set_inert_count, cp);
}

static bool joins_left(const af_unicode *u, uint32_t cp)
{
    if (cp < 0x300)
        return false;
    const af_gc g = af_unicode_gc(u, cp);
    if (g >= AF_GC_MN && g <= AF_GC_ME)
        return true;
    return (cp >= 0x1100 && cp <= 0x11ff) || (cp >= 0x3130 && cp <= 0x318f) ||
           (cp >= 0xd7b0 && cp <= 0xd7ff) || (cp >= 0xff9e && cp <= 0xffdf);
}

/* A character alone that the form does not touch. */
static bool is_stable(uint32_t cp, bool decompose)
{
    if (cp < 0xa0)
        return true;
    if (cp >= 0xac00 && cp <= 0xd7a3)
        return !decompose;
    return utf8proc_get_property((utf8proc_int32_t)cp)->decomp_seqindex == UINT16_MAX;
}

/* The end of the part that begins at i; *plain when it is one stable character. */
static uint32_t part_end(const af_work *w, const af_piece *p, uint32_t i, bool decompose,
                         bool *plain)
{
    uint32_t cp, next;
    uint32_t end = i + af_utf8_get(p->text + i, &cp);
    if (is_inert(cp)) {
        *plain = true;
        return end;
    }
    *plain = is_stable(cp, decompose);
    while (end < p->len) {
        const uint32_t n = af_utf8_get(p->text + end, &next);
        if (!joins_left(w->t->unicode, next) || is_inert(next))
            break;
        *plain = false;
        end += n;
    }
    return end;
}

static af_status part(af_work *w, const af_piece *p, af_stage *to, uint32_t i, uint32_t end,
                      utf8proc_option_t options)
{
    af_status st = AF_OK;
    const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)p->text + i;
    utf8proc_ssize_t n = utf8proc_decompose(s, end - i, w->cps, w->cps_cap, options);
    if (n > (utf8proc_ssize_t)w->cps_cap) {
        if (!af_grow(&w->cps, &w->cps_cap, (uint64_t)n + 1, sizeof *w->cps))
            return af_fail_nomem(w->err, "a normalised text", (uint64_t)n * 4);
        n = utf8proc_decompose(s, end - i, w->cps, w->cps_cap, options);
    }
    if (n >= 0)
        n = utf8proc_normalize_utf32(w->cps, n, options);
    if (n < 0)
        return af_fail(w->err, AF_EFORMAT, "cannot normalise the text: %s", utf8proc_errmsg(n));
    AF_TRY(af_stage_reserve(to, 4 * (uint64_t)n, w->err));
    for (utf8proc_ssize_t k = 0; k < n; k++) {
        char utf8[4];
        af_stage_add(to, utf8, af_utf8_put(utf8, (uint32_t)w->cps[k]), af_piece_span(p, i, end));
    }
done:
    return st;
}

af_status af_normal_form(af_work *w, af_piece *p, af_stage *to, af_norm_kind form)
{
    af_status st = AF_OK;
    const bool decompose = form == AF_NORM_NFD || form == AF_NORM_NFKD;
    utf8proc_option_t options = UTF8PROC_STABLE;
    options |= decompose ? UTF8PROC_DECOMPOSE : UTF8PROC_COMPOSE;
    if (form == AF_NORM_NFKC || form == AF_NORM_NFKD)
        options |= UTF8PROC_COMPAT;
    bool begun = false;
    uint32_t done_to = 0; /* what precedes it is in `to`, once begun */
    for (uint32_t i = 0, end; i < p->len; i = end) {
        bool plain;
        if ((uint8_t)p->text[i] < 0x80 && (i + 1 >= p->len || (uint8_t)p->text[i + 1] < 0x80)) {
            end = i + 1;
            continue;
        }
        end = part_end(w, p, i, decompose, &plain);
        if (plain)
            continue;
        if (!begun)
            AF_TRY(af_stage_begin(to, (uint64_t)p->len + p->len / 4, w->err));
        begun = true;
        AF_TRY(af_stage_copy(w, p, to, done_to, i));
        const uint32_t before = to->len;
        AF_TRY(part(w, p, to, i, end, options));
        if (to->len - before == end - i && memcmp(to->text + before, p->text + i, end - i) == 0) {
            to->len = before; /* already in the form: keep the finer alignment */
            AF_TRY(af_stage_copy(w, p, to, i, end));
        }
        done_to = end;
    }
    if (!begun)
        return AF_OK;
    AF_TRY(af_stage_copy(w, p, to, done_to, p->len));
    if (to->len != p->len || memcmp(to->text, p->text, p->len) != 0)
        *p = af_stage_piece(to, p);
done:
    return st;
}
