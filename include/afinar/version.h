/* version.h - the version of the headers (macros) and of the library that runs (af_version).
 *
 * The API and the ABI are unstable until 1.0: any 0.x release may change both, and the shared
 * library's SONAME carries MAJOR.MINOR. */
#ifndef AFINAR_VERSION_H
#define AFINAR_VERSION_H

#include "afinar/api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AF_VERSION_MAJOR 0
#define AF_VERSION_MINOR 1
#define AF_VERSION_PATCH 0

/* The version of the library, "MAJOR.MINOR.PATCH". Static storage; any thread. */
AF_API const char *af_version(void);

#ifdef __cplusplus
}
#endif
#endif
