/* handshake.h - the bytes two processes exchange before they trust each other; no sockets here.
 *
 *   listener                       connector
 *   challenge (nonce)      ->
 *                          <-      hello (who, which channel, nonce, proof)
 *   answer (verdict, proof) ->
 *
 * A proof is HMAC-SHA-256 under the run token over both nonces and the fields: somebody without the
 * token can neither join a run nor pose as one, and what they send is never more than one hello of
 * fixed size. The token keeps runs apart; what follows is not encrypted. */
#ifndef AF_HANDSHAKE_H
#define AF_HANDSHAKE_H

#include "base/base.h"

enum {
    AF_WIRE_VERSION = 1,
    AF_NONCE_BYTES = 16,
    AF_PROOF_BYTES = 32,
    AF_VERSION_BYTES = 16,
    AF_CHALLENGE_BYTES = 8 + 4 + AF_NONCE_BYTES,
    AF_HELLO_BYTES = 8 + 4 * 5 + AF_VERSION_BYTES + AF_NONCE_BYTES + AF_PROOF_BYTES,
    AF_ANSWER_BYTES = 4 + AF_PROOF_BYTES,
    AF_FRAME_BYTES = 24,
    AF_RANK_ADDRESS_BYTES = 18,
    AF_NOTE_BYTES = 24,
    AF_NOTE_TEXT = 400,
};

typedef enum af_channel { AF_CHANNEL_DATA, AF_CHANNEL_WATCH, AF_CHANNELS } af_channel;

/* What the listener thinks of a hello. */
typedef enum af_verdict {
    AF_VERDICT_WELCOME,
    AF_VERDICT_STRANGER, /* not our protocol, or another token: never trusted, never fatal */
    AF_VERDICT_VERSION,  /* another version of the program */
    AF_VERDICT_SIZE,     /* another number of ranks */
    AF_VERDICT_RANK,     /* a rank that is out of range or here already */
} af_verdict;

typedef struct af_token {
    uint8_t key[AF_PROOF_BYTES];
} af_token;

typedef struct af_hello {
    uint32_t channel, rank, size, port; /* port: where this process listens itself; 0 = nowhere */
    char version[AF_VERSION_BYTES + 1];
    uint8_t nonce[AF_NONCE_BYTES];
} af_hello;

/* The address and port of a rank, IPv4 as mapped IPv6. */
typedef struct af_rank_address {
    uint8_t address[16];
    uint16_t port;
} af_rank_address;

/* The token of a text that all processes of a run share. */
void af_token_of(af_token *out, const char *secret);
/* Random bytes of the system. */
AF_CHECKED af_status af_random_bytes(void *out, uint64_t n, af_error *err);

void af_challenge_write(uint8_t out[AF_CHALLENGE_BYTES], const uint8_t nonce[AF_NONCE_BYTES]);
/* False when it is not a challenge of this version. */
bool af_challenge_read(uint8_t nonce[AF_NONCE_BYTES], const uint8_t in[AF_CHALLENGE_BYTES]);

void af_hello_write(uint8_t out[AF_HELLO_BYTES], const af_hello *h, const af_token *token,
                    const uint8_t challenge[AF_NONCE_BYTES]);
/* *out is filled only when the proof is right (any verdict but STRANGER). `size` is the number of
 * ranks the listener expects, `version` its own. */
af_verdict af_hello_read(af_hello *out, const uint8_t in[AF_HELLO_BYTES], const af_token *token,
                         const uint8_t challenge[AF_NONCE_BYTES], int size, const char *version);

void af_answer_write(uint8_t out[AF_ANSWER_BYTES], af_verdict v, const af_hello *h,
                     const af_token *token);
/* STRANGER also when the listener does not know the token. */
af_verdict af_answer_read(const uint8_t in[AF_ANSWER_BYTES], const af_hello *h,
                          const af_token *token);

/* In front of each message between two ranks. */
typedef struct af_frame {
    uint64_t number; /* of this message between the two, from 0 */
    uint64_t bytes;
} af_frame;
void af_frame_write(uint8_t out[AF_FRAME_BYTES], af_frame f);
bool af_frame_read(af_frame *out, const uint8_t in[AF_FRAME_BYTES]);

/* What the watches of two ranks tell each other; `bytes` of text follow. */
typedef enum af_note_kind {
    AF_NOTE_BEAT,   /* I live; entered, moved, inside */
    AF_NOTE_ECHO,   /* rank 0 has heard it */
    AF_NOTE_FAILED, /* this rank failed, and why: the sentence of all */
    AF_NOTE_GOODBYE,
    AF_NOTE_KINDS
} af_note_kind;
typedef struct af_note {
    af_note_kind kind;
    bool inside;      /* waiting in a collective */
    uint32_t bytes;   /* at most AF_NOTE_TEXT */
    uint64_t entered; /* collectives begun */
    uint64_t moved;   /* grows as long as bytes do */
} af_note;
void af_note_write(uint8_t out[AF_NOTE_BYTES], const af_note *n);
bool af_note_read(af_note *out, const uint8_t in[AF_NOTE_BYTES]);
/* A text of another process: ends, and holds nothing that a terminal obeys. */
void af_note_clean(char *text, uint64_t bytes);

void af_rank_address_write(uint8_t out[AF_RANK_ADDRESS_BYTES], const af_rank_address *p);
void af_rank_address_read(af_rank_address *out, const uint8_t in[AF_RANK_ADDRESS_BYTES]);
#endif
