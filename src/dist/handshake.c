/* handshake.c - fixed sizes, little-endian, every field checked. */
#define _GNU_SOURCE /* getrandom */
#include "dist/handshake.h"
#include "base/hash.h"
#include "base/reader.h"

#include <errno.h>
#include <sys/random.h>

static const char magic[8] = {'A', 'F', 'R', 'A', 'N', 'K', 'S', '\n'};
static const uint32_t frame_magic = 0x4d465241; /* "ARFM" */

static uint8_t *put(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *to++ = (uint8_t)(v >> (8 * i));
    return to;
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static void digest(uint8_t out[AF_PROOF_BYTES], af_sha256 *s)
{
    char hex[65];
    af_sha256_hex(s, hex);
    for (int i = 0; i < AF_PROOF_BYTES; i++) {
        unsigned v = 0;
        for (int k = 0; k < 2; k++) {
            const char c = hex[2 * i + k];
            v = v * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
        }
        out[i] = (uint8_t)v;
    }
}

/* HMAC-SHA-256 (RFC 2104) of `n` bytes after `label`, which keeps the two directions apart. */
static void prove(uint8_t out[AF_PROOF_BYTES], const af_token *token, const char *label,
                  const uint8_t *bytes, size_t n)
{
    uint8_t pad[64], inner[AF_PROOF_BYTES];
    af_sha256 s;
    for (int outer = 0; outer < 2; outer++) {
        memset(pad, outer ? 0x5c : 0x36, sizeof pad);
        for (int i = 0; i < AF_PROOF_BYTES; i++)
            pad[i] ^= token->key[i];
        af_sha256_init(&s);
        af_sha256_add(&s, pad, sizeof pad);
        if (outer) {
            af_sha256_add(&s, inner, sizeof inner);
        } else {
            af_sha256_add(&s, label, strlen(label));
            af_sha256_add(&s, bytes, n);
        }
        digest(outer ? out : inner, &s);
    }
}

/* Takes the same time wherever they differ. */
static bool same_proof(const uint8_t *a, const uint8_t *b)
{
    unsigned d = 0;
    for (int i = 0; i < AF_PROOF_BYTES; i++)
        d |= (unsigned)(a[i] ^ b[i]);
    return d == 0;
}

void af_token_of(af_token *out, const char *secret)
{
    af_sha256 s;
    af_sha256_init(&s);
    af_sha256_add(&s, secret, strlen(secret));
    digest(out->key, &s);
}

af_status af_random_bytes(void *out, uint64_t n, af_error *err)
{
    uint8_t *to = out;
    while (n > 0) {
        const ssize_t k = getrandom(to, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return af_fail(err, AF_EIO, "the system gives no random bytes: %s", strerror(errno));
        to += k;
        n -= (uint64_t)k;
    }
    return AF_OK;
}

void af_challenge_write(uint8_t out[AF_CHALLENGE_BYTES], const uint8_t nonce[AF_NONCE_BYTES])
{
    uint8_t *p = put_bytes(out, magic, sizeof magic);
    p = put(p, AF_WIRE_VERSION, 4);
    put_bytes(p, nonce, AF_NONCE_BYTES);
}

bool af_challenge_read(uint8_t nonce[AF_NONCE_BYTES], const uint8_t in[AF_CHALLENGE_BYTES])
{
    af_reader r = {in, in + AF_CHALLENGE_BYTES, false};
    const uint8_t *m = af_read_bytes(&r, sizeof magic);
    if (memcmp(m, magic, sizeof magic) != 0 || af_read_u32(&r) != AF_WIRE_VERSION)
        return false;
    memcpy(nonce, af_read_bytes(&r, AF_NONCE_BYTES), AF_NONCE_BYTES);
    return true;
}

/* What a hello proves: all its bytes before the proof, and the listener's nonce. */
static void hello_proof(uint8_t out[AF_PROOF_BYTES], const uint8_t hello[AF_HELLO_BYTES],
                        const af_token *token, const uint8_t challenge[AF_NONCE_BYTES])
{
    uint8_t all[AF_HELLO_BYTES - AF_PROOF_BYTES + AF_NONCE_BYTES];
    put_bytes(put_bytes(all, hello, AF_HELLO_BYTES - AF_PROOF_BYTES), challenge, AF_NONCE_BYTES);
    prove(out, token, "hello", all, sizeof all);
}

void af_hello_write(uint8_t out[AF_HELLO_BYTES], const af_hello *h, const af_token *token,
                    const uint8_t challenge[AF_NONCE_BYTES])
{
    char version[AF_VERSION_BYTES] = {0};
    memcpy(version, h->version, strnlen(h->version, AF_VERSION_BYTES));
    uint8_t *p = put_bytes(out, magic, sizeof magic);
    p = put(p, AF_WIRE_VERSION, 4);
    p = put(p, h->channel, 4);
    p = put(p, h->rank, 4);
    p = put(p, h->size, 4);
    p = put(p, h->port, 4);
    p = put_bytes(p, version, AF_VERSION_BYTES);
    p = put_bytes(p, h->nonce, AF_NONCE_BYTES);
    hello_proof(p, out, token, challenge);
}

af_verdict af_hello_read(af_hello *out, const uint8_t in[AF_HELLO_BYTES], const af_token *token,
                         const uint8_t challenge[AF_NONCE_BYTES], int size, const char *version)
{
    af_hello h = {0};
    uint8_t proof[AF_PROOF_BYTES];
    af_reader r = {in, in + AF_HELLO_BYTES, false};
    const uint8_t *m = af_read_bytes(&r, sizeof magic);
    const uint32_t wire = af_read_u32(&r);
    h.channel = af_read_u32(&r);
    h.rank = af_read_u32(&r);
    h.size = af_read_u32(&r);
    h.port = af_read_u32(&r);
    memcpy(h.version, af_read_bytes(&r, AF_VERSION_BYTES), AF_VERSION_BYTES);
    memcpy(h.nonce, af_read_bytes(&r, AF_NONCE_BYTES), AF_NONCE_BYTES);
    hello_proof(proof, in, token, challenge);
    if (memcmp(m, magic, sizeof magic) != 0 || wire != AF_WIRE_VERSION ||
        !same_proof(proof, af_read_bytes(&r, AF_PROOF_BYTES)) || h.channel >= AF_CHANNELS ||
        h.port > UINT16_MAX)
        return AF_VERDICT_STRANGER;
    *out = h;
    if (strncmp(h.version, version, AF_VERSION_BYTES) != 0)
        return AF_VERDICT_VERSION;
    if (h.size != (uint32_t)size)
        return AF_VERDICT_SIZE;
    return h.rank < h.size ? AF_VERDICT_WELCOME : AF_VERDICT_RANK;
}

static void answer_proof(uint8_t out[AF_PROOF_BYTES], uint32_t verdict, const af_hello *h,
                         const af_token *token)
{
    uint8_t all[4 + 4 + 4 + AF_NONCE_BYTES];
    uint8_t *p = put(all, verdict, 4);
    p = put(p, h->channel, 4);
    p = put(p, h->rank, 4);
    put_bytes(p, h->nonce, AF_NONCE_BYTES);
    prove(out, token, "answer", all, sizeof all);
}

void af_answer_write(uint8_t out[AF_ANSWER_BYTES], af_verdict v, const af_hello *h,
                     const af_token *token)
{
    uint8_t *p = put(out, (uint32_t)v, 4);
    if (v == AF_VERDICT_STRANGER)
        memset(p, 0, AF_PROOF_BYTES);
    else
        answer_proof(p, (uint32_t)v, h, token);
}

af_verdict af_answer_read(const uint8_t in[AF_ANSWER_BYTES], const af_hello *h,
                          const af_token *token)
{
    uint8_t proof[AF_PROOF_BYTES];
    af_reader r = {in, in + AF_ANSWER_BYTES, false};
    const uint32_t v = af_read_u32(&r);
    answer_proof(proof, v, h, token);
    if (v > AF_VERDICT_RANK || !same_proof(proof, af_read_bytes(&r, AF_PROOF_BYTES)))
        return AF_VERDICT_STRANGER;
    return (af_verdict)v;
}

void af_frame_write(uint8_t out[AF_FRAME_BYTES], af_frame f)
{
    uint8_t *p = put(out, frame_magic, 4);
    p = put(p, 0, 4);
    p = put(p, f.number, 8);
    put(p, f.bytes, 8);
}

bool af_frame_read(af_frame *out, const uint8_t in[AF_FRAME_BYTES])
{
    af_reader r = {in, in + AF_FRAME_BYTES, false};
    if (af_read_u32(&r) != frame_magic || af_read_u32(&r) != 0)
        return false;
    out->number = af_read_u64(&r);
    out->bytes = af_read_u64(&r);
    return true;
}

void af_note_write(uint8_t out[AF_NOTE_BYTES], const af_note *n)
{
    uint8_t *p = put(out, (uint64_t)n->kind, 1);
    p = put(p, n->inside, 1);
    p = put(p, 0, 2);
    p = put(p, n->bytes, 4);
    p = put(p, n->entered, 8);
    put(p, n->moved, 8);
}

bool af_note_read(af_note *out, const uint8_t in[AF_NOTE_BYTES])
{
    af_reader r = {in, in + AF_NOTE_BYTES, false};
    const uint8_t kind = af_read_u8(&r), inside = af_read_u8(&r);
    const uint16_t zero = af_read_u16(&r);
    const uint32_t bytes = af_read_u32(&r);
    if (kind >= AF_NOTE_KINDS || inside > 1 || zero != 0 || bytes > AF_NOTE_TEXT ||
        (bytes > 0 && kind != AF_NOTE_FAILED))
        return false;
    *out = (af_note){.kind = (af_note_kind)kind, .inside = inside, .bytes = bytes};
    out->entered = af_read_u64(&r);
    out->moved = af_read_u64(&r);
    return true;
}

void af_note_clean(char *text, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == 127)
            text[i] = '?';
    }
    text[bytes] = '\0';
}

void af_rank_address_write(uint8_t out[AF_RANK_ADDRESS_BYTES], const af_rank_address *p)
{
    put(put_bytes(out, p->address, sizeof p->address), p->port, 2);
}

void af_rank_address_read(af_rank_address *out, const uint8_t in[AF_RANK_ADDRESS_BYTES])
{
    af_reader r = {in, in + AF_RANK_ADDRESS_BYTES, false};
    memcpy(out->address, af_read_bytes(&r, 16), 16);
    out->port = af_read_u16(&r);
}
