/* resident.h - memory of this process, in bytes, as the system counts it. */
#ifndef AF_RESIDENT_H
#define AF_RESIDENT_H

#include "base/base.h"

uint64_t af_resident_bytes(void);
uint64_t af_resident_own(void); /* without pages mapped from files */
uint64_t af_resident_peak(void);
/* Returns to the system what malloc kept, e.g. after quantising weights. */
void af_resident_trim(void);
#endif
