/* doctor.h - what this machine supports, and what is missing. */
#ifndef AFINAR_DOCTOR_H
#define AFINAR_DOCTOR_H

#include "afinar/status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_finding_state {
    AF_FINDING_GOOD,
    AF_FINDING_ABSENT, /* optional; the text says what it would provide */
} af_finding_state;

typedef struct af_finding {
    const char *name; /* "processor", "GPU driver", ... */
    af_finding_state state;
    char text[512];
} af_finding;

enum { AF_FINDINGS_MAX = 24 };

/* Examines processor, memory, NVIDIA libraries and cache folders, and creates the cache folder if
 * it is missing. Returns the number of findings written to `out`. */
AF_API int af_doctor(af_finding out[AF_FINDINGS_MAX]);

#ifdef __cplusplus
}
#endif
#endif
