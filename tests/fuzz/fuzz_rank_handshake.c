/* Any bytes are what a stranger sends to a rank: nothing is accepted without the token, and every
 * message that is accepted keeps its limits. The first byte picks the message. */
#include "fuzz_file.h"

#include "dist/handshake.h"

/* The bytes of a fixed-size message: what is missing is zero. */
static void take(uint8_t *to, size_t n, const uint8_t *data, size_t size)
{
    memset(to, 0, n);
    memcpy(to, data, AF_MIN(n, size));
}

/* A hello of somebody with the token, damaged: only the undamaged one is welcome. */
static void damaged_hello(const uint8_t *data, size_t size, const af_token *token)
{
    const uint8_t nonce[AF_NONCE_BYTES] = {1, 2, 3};
    uint8_t good[AF_HELLO_BYTES], bad[AF_HELLO_BYTES];
    af_hello h = {.channel = AF_CHANNEL_WATCH, .rank = 1, .size = 2, .version = "0.1.0"}, out;
    af_hello_write(good, &h, token, nonce);
    if (af_hello_read(&out, good, token, nonce, 2, "0.1.0") != AF_VERDICT_WELCOME)
        abort();
    take(bad, sizeof bad, data, size);
    for (size_t i = 0; i < sizeof bad; i++)
        bad[i] ^= good[i];
    if (memcmp(bad, good, sizeof bad) != 0 &&
        af_hello_read(&out, bad, token, nonce, 2, "0.1.0") != AF_VERDICT_STRANGER)
        abort();
}

static void notes(const uint8_t *data, size_t size)
{
    af_note n;
    uint8_t head[AF_NOTE_BYTES];
    while (size >= sizeof head) {
        char text[AF_NOTE_TEXT + 1];
        take(head, sizeof head, data, size);
        if (!af_note_read(&n, head))
            return;
        if (n.bytes > AF_NOTE_TEXT || n.kind >= AF_NOTE_KINDS)
            abort();
        data += sizeof head;
        size -= sizeof head;
        if (size < n.bytes)
            return;
        memcpy(text, data, n.bytes);
        af_note_clean(text, n.bytes);
        if (strlen(text) != n.bytes || strpbrk(text, "\n\r\x1b\x7f"))
            abort();
        data += n.bytes;
        size -= n.bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_token token;
    af_hello h = {0};
    const uint8_t nonce[AF_NONCE_BYTES] = {9};
    uint8_t in[AF_HELLO_BYTES], got[AF_NONCE_BYTES];
    af_frame f;
    af_rank_address p;
    af_token_of(&token, "a secret");
    if (size == 0)
        return 0;
    const uint8_t kind = *data++ % 6;
    take(in, sizeof in, data, --size);
    if (kind == 0 && af_hello_read(&h, in, &token, nonce, 4, "0.1.0") != AF_VERDICT_STRANGER)
        abort();
    if (kind == 1)
        (void)af_challenge_read(got, in);
    if (kind == 2 && af_answer_read(in, &h, &token) != AF_VERDICT_STRANGER)
        abort();
    if (kind == 3 && af_frame_read(&f, in)) {
        uint8_t again[AF_FRAME_BYTES];
        af_frame_write(again, f);
        if (memcmp(again, in, sizeof again) != 0)
            abort();
        af_rank_address_read(&p, in);
    }
    if (kind == 4)
        notes(data, size);
    if (kind == 5)
        damaged_hello(data, size, &token);
    return 0;
}
