/* jinja_casing.h - one-to-many case mappings; tables end with cp 0. */
#ifndef AF_JINJA_CASING_H
#define AF_JINJA_CASING_H

#include <stdint.h>

typedef struct af_casing {
    uint32_t cp;
    uint32_t to[3]; /* zero-terminated when shorter */
} af_casing;

extern const af_casing af_casing_upper[], af_casing_title[];
#endif
