/* sha256.h - what the two versions of SHA-256 share. */
#ifndef AF_SHA256_H
#define AF_SHA256_H

#include "base/hash.h"

extern const uint32_t af_sha256_key[64];
/* The version in the processor's own instructions, or NULL. */
af_sha256_compress *af_sha256_fast(void);
#endif
