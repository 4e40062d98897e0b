/* arch_place.h - where a text model lies inside a multimodal one, in folders and in memory. */
#ifndef AF_ARCH_PLACE_H
#define AF_ARCH_PLACE_H

#include "model/arch/arch.h"

/* What names outside the head begin with: "model.", "transformer.". */
const char *af_arch_stem(const af_arch *a);

/* Where a text model lies inside a multimodal one: what its names begin with, whether `stem` of
 * af_arch_stem follows, and what the head's name begins with. */
typedef struct af_arch_place {
    const char *before;
    bool stem;
    const char *head;
} af_arch_place;

/* Place i of those that folders may have, in the order they are tried; NULL after the last. */
const af_arch_place *af_arch_place_at(int i);
const af_arch_place *af_arch_place_in(const char *whole); /* in memory, by the whole's model_type */
#endif
