/* manifest.h - size and SHA-256 of every file of a folder, in manifest.json. */
#ifndef AF_MANIFEST_H
#define AF_MANIFEST_H

#include "base/base.h"

/* Lists every regular file of `dir` but the manifest itself, and writes dir/manifest.json. */
AF_CHECKED af_status af_manifest_write(const char *dir, af_error *err);
/* AF_OK when `dir` has a manifest, whatever it says. */
AF_CHECKED af_status af_manifest_check_there(const char *dir, af_error *err);
/* AF_OK when every file listed is there with its size and checksum. The message names the
 * difference.
 */
AF_CHECKED af_status af_manifest_check(const char *dir, af_error *err);
/* The names of the files listed (af_names_free), also of those that are not there. */
AF_CHECKED af_status af_manifest_names(const char *dir, char ***names, int *n, af_error *err);
#endif
