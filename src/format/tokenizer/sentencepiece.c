/* sentencepiece.c - see sentencepiece.h; ModelProto of sentencepiece_model.proto.
 *
 * A message is a list of fields: a key (number << 3 | wire type), then a varint, 4 or 8 bytes, or a
 * length and so many bytes. Fields that are not needed are stepped over. */
#include "format/tokenizer/sentencepiece.h"

#include "base/reader.h"

#include <math.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_BYTES = 35, TRAINER_BOS = 41 };
enum { NORMALIZER_MAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_EXTRA = 4, NORMALIZER_ESCAPE = 5 };
enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2 };
enum { PIECE_BYTES_MIN = 5 }; /* key, length, key, length, one character */

typedef struct field {
    uint64_t number;
    int wire;
    uint64_t value; /* varint, or the 4 or 8 bytes */
    af_reader inside;
} field;

static uint64_t read_varint(af_reader *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t b = af_read_u8(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (shift == 63 && b > 1) /* more than 64 bits */
            r->bad = true;
        if (b < 0x80)
            return v;
    }
    return 0;
}

/* False at the end of the message, and when it is bad. */
static bool next_field(af_reader *r, field *f)
{
    if (af_read_left(r) == 0)
        return false;
    const uint64_t key = read_varint(r);
    *f = (field){.number = key >> 3, .wire = (int)(key & 7)};
    if (f->wire == WIRE_VARINT) {
        f->value = read_varint(r);
    } else if (f->wire == WIRE_64 || f->wire == WIRE_32) {
        f->value = af_read_uint(r, f->wire == WIRE_64 ? 8 : 4);
    } else if (f->wire == WIRE_BYTES) {
        const uint64_t n = read_varint(r);
        const uint8_t *at = af_read_bytes(r, n);
        if (at)
            f->inside = (af_reader){at, at + n, false};
    } else {
        r->bad = true;
    }
    r->bad |= f->number == 0;
    return !r->bad;
}

/* A known field whose wire type is another one. */
static void expect(af_reader *r, const field *f, int wire) { r->bad |= f->wire != wire; }

static af_status read_piece(af_spm_piece *p, af_reader r, int32_t i, af_error *err)
{
    field f;
    uint64_t type = AF_SPM_NORMAL;
    *p = (af_spm_piece){.type = AF_SPM_NORMAL};
    while (next_field(&r, &f)) {
        if (f.number == PIECE_TEXT) {
            expect(&r, &f, WIRE_BYTES);
            p->s = (const char *)f.inside.at;
            p->n = (uint32_t)AF_MIN(af_read_left(&f.inside), UINT32_MAX);
        } else if (f.number == PIECE_SCORE) {
            const uint32_t bits = (uint32_t)f.value;
            expect(&r, &f, WIRE_32);
            memcpy(&p->score, &bits, sizeof bits);
        } else if (f.number == PIECE_TYPE) {
            expect(&r, &f, WIRE_VARINT);
            type = f.value;
        }
    }
    if (r.bad)
        return af_fail(err, AF_EFORMAT, "piece %" PRId32 " is not a valid message", i);
    if (p->n == 0 || af_utf8_valid(p->s, p->n) != p->n)
        return af_fail(err, AF_EFORMAT, "piece %" PRId32 " is %s", i, p->n ? "not UTF-8" : "empty");
    if (type < AF_SPM_NORMAL || type > AF_SPM_BYTE)
        return af_fail(err, AF_EFORMAT, "piece %" PRId32 " has the unknown type %" PRIu64, i, type);
    if (!isfinite(p->score))
        return af_fail(err, AF_EFORMAT, "piece %" PRId32 " has the score %g", i, (double)p->score);
    p->type = (af_spm_type)type;
    return AF_OK;
}

static af_status read_trainer(af_spm *m, af_reader r, uint64_t *type, bool *suffix, af_error *err)
{
    int32_t *const ids[] = {&m->bos, &m->eos, &m->pad}; /* the numbers that follow TRAINER_BOS */
    field f;
    while (next_field(&r, &f)) {
        const uint64_t id = f.number - TRAINER_BOS;
        const bool known = f.number == TRAINER_TYPE || f.number == TRAINER_SUFFIX ||
                           f.number == TRAINER_BYTES || id < AF_LEN(ids);
        if (known)
            expect(&r, &f, WIRE_VARINT);
        if (f.number == TRAINER_TYPE)
            *type = f.value;
        else if (f.number == TRAINER_SUFFIX)
            *suffix = f.value != 0;
        else if (f.number == TRAINER_BYTES)
            m->byte_fallback = f.value != 0;
        else if (known)
            *ids[id] = f.value < AF_TOKENIZER_ID_MAX ? (int32_t)f.value : -1;
    }
    return r.bad ? af_fail(err, AF_EFORMAT, "trainer_spec is not a valid message") : AF_OK;
}

static af_status read_normalizer(af_spm *m, af_reader r, af_error *err)
{
    bool *const flags[] = {&m->add_dummy_prefix, &m->remove_extra_whitespaces,
                           &m->escape_whitespaces}; /* from NORMALIZER_PREFIX on */
    field f;
    while (next_field(&r, &f)) {
        if (f.number == NORMALIZER_MAP) {
            expect(&r, &f, WIRE_BYTES);
            m->charsmap_len = af_read_left(&f.inside);
            m->charsmap = m->charsmap_len ? f.inside.at : NULL;
        } else if (f.number >= NORMALIZER_PREFIX && f.number <= NORMALIZER_ESCAPE) {
            expect(&r, &f, WIRE_VARINT);
            *flags[f.number - NORMALIZER_PREFIX] = f.value != 0;
        }
    }
    return r.bad ? af_fail(err, AF_EFORMAT, "normalizer_spec is not a valid message") : AF_OK;
}

/* How many pieces there are; -1 when the bytes are no list of fields. */
static int64_t count_pieces(af_reader r)
{
    field f;
    int64_t n = 0;
    while (next_field(&r, &f)) {
        const bool message = f.number >= MODEL_PIECES && f.number <= MODEL_NORMALIZER;
        if (message)
            expect(&r, &f, WIRE_BYTES);
        n += f.number == MODEL_PIECES;
    }
    return r.bad ? -1 : n;
}

static af_status check_model(const af_spm *m, uint64_t type, bool suffix, af_error *err)
{
    if (type != TYPE_BPE && type != TYPE_UNIGRAM)
        return af_fail(err, AF_EUNSUPPORTED,
                       "model_type %" PRIu64 " is not known; unigram (1) and bpe (2) are", type);
    if (suffix)
        return af_fail(err, AF_EUNSUPPORTED, "treat_whitespace_as_suffix is not supported");
    if (m->unk < 0)
        return af_fail(err, AF_EFORMAT, "no piece has the type unknown");
    for (int32_t i = 0; type == TYPE_BPE && i < m->count; i++)
        if (m->piece[i].type == AF_SPM_UNUSED) /* the library cuts what it joined to such a piece */
            return af_fail(err, AF_EUNSUPPORTED,
                           "piece %" PRId32 " is unused, which is not supported in a BPE model", i);
    return AF_OK;
}

static af_status read_pieces(af_spm *m, af_reader r, af_error *err)
{
    field f;
    int bytes = 0;
    int32_t i = 0;
    while (next_field(&r, &f)) {
        if (f.number != MODEL_PIECES)
            continue;
        const af_status st = read_piece(&m->piece[i], f.inside, i, err);
        if (st != AF_OK)
            return st;
        if (m->piece[i].type == AF_SPM_UNKNOWN && m->unk >= 0)
            return af_fail(err, AF_EFORMAT, "pieces %" PRId32 " and %" PRId32 " are both unknown",
                           m->unk, i);
        if (m->piece[i].type == AF_SPM_UNKNOWN)
            m->unk = i;
        bytes += m->piece[i++].type == AF_SPM_BYTE;
    }
    if (bytes != (m->byte_fallback ? 256 : 0))
        return af_fail(err, AF_EFORMAT, "%d byte pieces where byte_fallback is %s", bytes,
                       m->byte_fallback ? "true" : "false");
    return AF_OK;
}

/* An id of trainer_spec, when it is that of a control piece. */
static int32_t control_id(const af_spm *m, int32_t id)
{
    return id >= 0 && id < m->count && m->piece[id].type == AF_SPM_CONTROL ? id : -1;
}

af_status af_spm_parse(af_spm *out, const uint8_t *data, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    const af_reader all = {data, data + len, false};
    af_reader r = all;
    uint64_t type = TYPE_UNIGRAM;
    bool suffix = false;
    field f;
    af_spm m = {.unk = -1, .bos = 1, .eos = 2, .pad = -1};
    m.add_dummy_prefix = m.remove_extra_whitespaces = m.escape_whitespaces = true;
    const int64_t n = count_pieces(all);
    if (n <= 0)
        return af_fail(err, AF_EFORMAT, "not a SentencePiece model%s",
                       n < 0 ? "" : ": it has no pieces");
    if (n >= AF_TOKENIZER_ID_MAX || (uint64_t)n > len / PIECE_BYTES_MIN)
        return af_fail(err, AF_EFORMAT, "%" PRId64 " pieces in %" PRIu64 " bytes", n, len);
    m.count = (int32_t)n;
    m.piece = af_calloc((uint64_t)n, sizeof *m.piece);
    if (!m.piece)
        return af_fail_nomem(err, "the pieces", (uint64_t)n * sizeof *m.piece);
    while (next_field(&r, &f)) {
        if (f.number == MODEL_TRAINER)
            AF_TRY(read_trainer(&m, f.inside, &type, &suffix, err));
        else if (f.number == MODEL_NORMALIZER)
            AF_TRY(read_normalizer(&m, f.inside, err));
    }
    AF_TRY(read_pieces(&m, all, err));
    AF_TRY(check_model(&m, type, suffix, err));
    m.bpe = type == TYPE_BPE;
    m.bos = control_id(&m, m.bos);
    m.eos = control_id(&m, m.eos);
    m.pad = control_id(&m, m.pad);
    *out = m;
    m = (af_spm){0};
done:
    af_spm_clear(&m);
    return st;
}

af_status af_spm_open(af_spm *out, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_map map = {0};
    AF_TRY(af_map_open(&map, path, err));
    st = af_spm_parse(out, map.data, map.size, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", path);
        goto done;
    }
    out->map = map;
    map = (af_map){0};
done:
    af_map_close(&map);
    return st;
}

void af_spm_clear(af_spm *m)
{
    free(m->piece);
    af_map_close(&m->map);
    *m = (af_spm){0};
}
