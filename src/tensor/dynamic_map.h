/* dynamic_map.h - the 8-bit dynamic code books of bitsandbytes. */
#ifndef AF_DYNAMIC_MAP_H
#define AF_DYNAMIC_MAP_H

#include "base/base.h"

enum { AF_DYNAMIC_CODES = 256 };

/* Fills the code book, ascending, the same floats bitsandbytes has: signed for first moments and
 * nested scales, unsigned for second moments. */
void af_dynamic_map(float map[AF_DYNAMIC_CODES], bool with_sign);
/* The code whose value is nearest to x (the lower one on a tie). */
uint8_t af_dynamic_code(const float map[AF_DYNAMIC_CODES], float x);
#endif
