/* hash.h - checksums: FNV-1a 64 for keys, SHA-256 for content, SHA-1 for the names git gives to
 * files, CRC-32C for event files. */
#ifndef AF_HASH_H
#define AF_HASH_H

#include "base/base.h"

#define AF_FNV_START UINT64_C(0xcbf29ce484222325)
/* Continues an FNV-1a hash; start with AF_FNV_START. */
uint64_t af_fnv1a(uint64_t h, const void *bytes, uint64_t n);

/* Takes whole blocks of 64 bytes into the state. */
typedef void af_sha256_compress(uint32_t state[8], const uint8_t *p, uint64_t blocks);
typedef struct af_sha256 {
    af_sha256_compress *compress;
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} af_sha256;
void af_sha256_init(af_sha256 *s);
void af_sha256_add(af_sha256 *s, const void *bytes, uint64_t n);
/* 64 lower-case hex digits and a NUL. */
void af_sha256_hex(af_sha256 *s, char hex[65]);

/* The SHA-256 of a file while it is written, computed by another thread. NULL when there is no
 * memory or no thread for it. fd: open for reading until af_digest_end. */
typedef struct af_digest af_digest;
af_digest *af_digest_begin(int fd);
/* The first `size` bytes of the file are there, and do not change any more. */
void af_digest_reach(af_digest *d, uint64_t size);
/* Waits for the digest, and frees d. False when the file cannot be read, when hex is NULL (the
 * digest is not wanted any more), or when d is. */
bool af_digest_end(af_digest *d, char hex[65]);

/* Only to compare with git's names of files: not a protection against forgery. */
typedef struct af_sha1 {
    uint32_t state[5];
    uint64_t bytes;
    uint8_t block[64];
} af_sha1;
void af_sha1_init(af_sha1 *s);
/* Begins the name that git gives to a file of `size` bytes; they follow. */
void af_sha1_init_blob(af_sha1 *s, uint64_t size);
void af_sha1_add(af_sha1 *s, const void *bytes, uint64_t n);
/* 40 lower-case hex digits and a NUL. */
void af_sha1_hex(af_sha1 *s, char hex[41]);

uint32_t af_crc32c(const void *bytes, uint64_t n);
#endif
