/* hub_pull.h - the parts of a pull that tests and the push share. */
#ifndef AF_HUB_PULL_H
#define AF_HUB_PULL_H

#include "afinar/hub.h"
#include "format/hub/hub_tree.h"
#include "hub/hub_ask.h"

/* What the commands of the user see of a transfer. */
typedef struct af_hub_meter {
    const af_hub_opts *o;
    af_hub_progress p;
    double last, began;
    uint64_t first;
} af_hub_meter;
/* Tells the hook, at most every tenth of a second unless finished. */
AF_CHECKED af_status af_hub_meter_tell(af_hub_meter *m, double now, uint64_t done, bool finished,
                                       af_error *err);

/* "models" or "datasets", as in the addresses of the API. */
const char *af_hub_kind_name(af_hub_kind kind);
/* ENDPOINT/api/models/org/name/WHAT/REVISION and the query; free(), NULL when out of memory. */
char *af_hub_api_url(const af_hub_client *c, const af_hub_repo *r, const char *what,
                     const char *revision, const char *query);
/* The commit that the hub has for the revision. */
AF_CHECKED af_status af_hub_ask_commit(char commit[AF_HUB_COMMIT + 1], af_hub_client *c,
                                       const af_hub_repo *r, af_error *err);
/* All files of a commit. */
AF_CHECKED af_status af_hub_ask_tree(af_hub_tree *t, af_hub_client *c, const af_hub_repo *r,
                                     const char *commit, af_error *err);

/* Where the needed files of a commit go. */
typedef struct af_hub_store {
    af_hub_client *client;
    const af_hub_repo *repo;
    const char *commit;
    const char *cache;  /* the root of the cache, or NULL: */
    const char *output; /* a plain folder */
    char *dir;          /* CACHE/models--org--name */
} af_hub_store;
/* Fetches them. */
AF_CHECKED af_status af_hub_fetch_files(const af_hub_store *s, const af_hub_tree *t,
                                        af_hub_meter *m, af_error *err);
/* The whole pull with a client that is open already. */
AF_CHECKED af_status af_hub_pull_with(af_hub_client *c, char **folder, const af_hub_repo *r,
                                      const af_pull_opts *o, af_error *err);
#endif
