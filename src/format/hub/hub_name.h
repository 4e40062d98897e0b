/* hub_name.h - names of repositories on the Hugging Face hub, and where they are in the local cache
 * (huggingface_hub's layout: docs/guide/hub.md).
 *
 * Nothing here uses the network. A program that wants names to be downloaded sets a hook
 * (afinar/hub.h does); without one a repository that is not cached is an error. */
#ifndef AF_HUB_NAME_H
#define AF_HUB_NAME_H

#include "base/base.h"

typedef enum af_hub_kind { AF_HUB_MODEL, AF_HUB_DATASET } af_hub_kind;

enum { AF_HUB_NAME_MAX = 200, AF_HUB_REV_MAX = 255, AF_HUB_COMMIT = 40 };

/* The subject of the error when no file of a repository matches the patterns. */
#define AF_HUB_NO_MATCH "no match"

/* "org/name" (or "name"), and a branch, a tag or a commit. */
typedef struct af_hub_repo {
    af_hub_kind kind;
    char name[AF_HUB_NAME_MAX];
    char revision[AF_HUB_REV_MAX];
} af_hub_repo;

/* Reads "org/name[@revision]"; `revision` (may be NULL) wins over the one of the name; "main" when
 * there is none. AF_EUSAGE when it is not such a name. */
AF_CHECKED af_status af_hub_repo_parse(af_hub_repo *out, af_hub_kind kind, const char *text,
                                       const char *revision, af_error *err);
/* Whether `text` is "org/name" or "org/name@revision". A path may look the same: what exists on
 * this machine comes first. */
bool af_hub_is_name(const char *text);
/* Whether it is a whole commit: 40 hex digits. */
bool af_hub_is_commit(const char *revision);

/* CACHE/models--org--name; free(), NULL when out of memory. */
char *af_hub_repo_dir(const char *cache, const af_hub_repo *r);
/* The commit that the cache in `dir` (af_hub_repo_dir) has for the revision, "" for none. A broken
 * ref is AF_EFORMAT. */
AF_CHECKED af_status af_hub_ref_read(char commit[AF_HUB_COMMIT + 1], const char *dir,
                                     const char *revision, af_error *err);
/* The text of a ref as it is in the file; false when it does not name a commit. */
bool af_hub_ref_parse(char commit[AF_HUB_COMMIT + 1], const char *text, uint64_t n);

/* Downloads what is needed of a repository and returns its snapshot folder (free()). include:
 * patterns of files, none = what a model or dataset needs. */
typedef af_status af_hub_fetch(void *user, char **dir, const af_hub_repo *r,
                               const char *const *include, int n, af_error *err);
/* From now on, in the whole process, what is not cached is fetched by `hook`; NULL = nothing is. */
void af_hub_fetch_set(af_hub_fetch *hook, void *user);

/* The snapshot folder of a repository: cached with all that is needed, or fetched by the hook. A
 * cached one that lacks files is returned as it is when there is no hook. *dir: free(). */
AF_CHECKED af_status af_hub_snapshot(char **dir, af_hub_kind kind, const char *name,
                                     const char *revision, const char *const *include, int n,
                                     af_error *err);
#endif
