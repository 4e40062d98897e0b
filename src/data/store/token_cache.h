/* token_cache.h - the folder of token stores that runs have left (and of values of references,
 * train/trainer/reference_cache.h), and its size.
 *
 * A store is text of the user's in another form: the folder and the stores are readable by their
 * owner only. AFINAR_TOKEN_CACHE_LIMIT ("500M", "20G"; without it AF_TOKEN_CACHE_LIMIT) bounds the
 * sum of their sizes: the ones that were not used for the longest time go first, never one that a
 * run has open. */
#ifndef AF_TOKEN_CACHE_H
#define AF_TOKEN_CACHE_H

#include "base/base.h"

#define AF_TOKEN_CACHE_LIMIT (UINT64_C(20) << 30)

/* Bytes of a size such as "1000", "64K", "500M", "20G" (powers of 1024); false when it is none. */
bool af_token_cache_size(const char *text, uint64_t *out);
/* The limit of this process. AF_EUSAGE for one that is no size. */
AF_CHECKED af_status af_token_cache_limit(uint64_t *out, af_error *err);
/* Removes stores from the folder of `store` until the rest fits the limit. */
AF_CHECKED af_status af_token_cache_trim(const char *store, uint64_t limit, af_error *err);
/* Marks a store as used now. */
void af_token_cache_touch(const char *path);
#endif
