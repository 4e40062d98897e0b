/* hub_journal.c - spans of bytes and the journal of a download; see hub_journal.h. */
#include "hub/hub_journal.h"

#include "base/hash.h"

#include <stdio.h>

void af_byte_ranges_add(af_byte_ranges *s, uint64_t from, uint64_t to)
{
    int first = 0, last;
    if (from >= to)
        return;
    while (first < s->count && s->at[first].to < from)
        first++;
    for (last = first; last < s->count && s->at[last].from <= to; last++) {
        from = AF_MIN(from, s->at[last].from);
        to = AF_MAX(to, s->at[last].to);
    }
    const int joined = last - first;
    if (joined == 0 && s->count == AF_BYTE_RANGES_MAX)
        return;
    memmove(s->at + first + 1, s->at + last, (size_t)(s->count - last) * sizeof *s->at);
    s->at[first] = (af_byte_range){from, to};
    s->count += 1 - joined;
}

uint64_t af_byte_ranges_end(const af_byte_ranges *s, uint64_t at)
{
    for (int i = 0; i < s->count; i++)
        if (s->at[i].from <= at && at < s->at[i].to)
            return s->at[i].to;
    return at;
}

bool af_byte_ranges_gap(const af_byte_ranges *s, uint64_t from, uint64_t size, af_byte_range *out)
{
    for (int i = 0; i < s->count; i++) {
        if (s->at[i].to <= from)
            continue;
        if (s->at[i].from > from) {
            *out = (af_byte_range){from, AF_MIN(s->at[i].from, size)};
            return out->from < out->to;
        }
        from = s->at[i].to;
    }
    *out = (af_byte_range){from, size};
    return from < size;
}

uint64_t af_byte_ranges_total(const af_byte_ranges *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->count; i++)
        n += s->at[i].to - s->at[i].from;
    return n;
}

/* ---- the record ---- */

#define MARK "afinar-download 1 "

uint64_t af_journal_print(const af_journal *j, char text[AF_JOURNAL_SLOT])
{
    size_t n = (size_t)snprintf(text, AF_JOURNAL_SLOT, MARK "%" PRIu64 " %s %" PRIu64 " %d\n",
                                j->number, j->etag, j->size, j->done.count);
    for (int i = 0; i < j->done.count; i++)
        n += (size_t)snprintf(text + n, AF_JOURNAL_SLOT - n, "%" PRIu64 " %" PRIu64 "\n",
                              j->done.at[i].from, j->done.at[i].to);
    n += (size_t)snprintf(text + n, AF_JOURNAL_SLOT - n, "sum %08x\n", af_crc32c(text, n));
    assert(n < AF_JOURNAL_SLOT);
    return n;
}

typedef struct cursor {
    const char *at, *end;
    bool bad;
} cursor;

static uint64_t take_number(cursor *c, char after)
{
    uint64_t v = 0;
    const char *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!af_mul_ok(v, 10, &v) || !af_add_ok(v, (uint64_t)(*c->at - '0'), &v))
            c->bad = true;
    if (c->at == start || c->at == c->end || *c->at != after)
        c->bad = true;
    else
        c->at++;
    return v;
}

static void take_etag(cursor *c, char etag[65])
{
    size_t n = 0;
    while (c->at + n < c->end && n < 64 &&
           ((c->at[n] >= '0' && c->at[n] <= '9') || (c->at[n] >= 'a' && c->at[n] <= 'f')))
        n++;
    if (c->at + n >= c->end || c->at[n] != ' ' || n == 0) {
        c->bad = true;
        return;
    }
    memcpy(etag, c->at, n);
    etag[n] = '\0';
    c->at += n + 1;
}

static bool parse_slot(af_journal *out, const char *text, uint64_t n)
{
    cursor c = {text, text + n, false};
    af_journal j = {0};
    const size_t mark = sizeof MARK - 1;
    char want[16];
    if (n < mark || memcmp(text, MARK, mark) != 0)
        return false;
    c.at += mark;
    j.number = take_number(&c, ' ');
    take_etag(&c, j.etag);
    j.size = c.bad ? 0 : take_number(&c, ' ');
    const uint64_t count = c.bad ? 0 : take_number(&c, '\n');
    if (c.bad || count > AF_BYTE_RANGES_MAX)
        return false;
    for (uint64_t i = 0, last = 0; i < count && !c.bad; i++) {
        const uint64_t from = take_number(&c, ' '), to = c.bad ? 0 : take_number(&c, '\n');
        if (c.bad || from >= to || to > j.size || (i > 0 && from <= last))
            return false;
        j.done.at[j.done.count++] = (af_byte_range){from, to};
        last = to;
    }
    snprintf(want, sizeof want, "sum %08x\n", af_crc32c(text, (uint64_t)(c.at - text)));
    if (c.bad || (size_t)(c.end - c.at) < strlen(want) || memcmp(c.at, want, strlen(want)) != 0)
        return false;
    *out = j;
    return true;
}

bool af_journal_parse(af_journal *out, const char *text, uint64_t n)
{
    af_journal other;
    const bool first = parse_slot(out, text, AF_MIN(n, AF_JOURNAL_SLOT));
    const bool second =
        n > AF_JOURNAL_SLOT && parse_slot(&other, text + AF_JOURNAL_SLOT, n - AF_JOURNAL_SLOT);
    if (second && (!first || other.number > out->number))
        *out = other;
    return first || second;
}
