/* hub_push.h - the files of a push, and how large ones get to the hub. */
#ifndef AF_HUB_PUSH_H
#define AF_HUB_PUSH_H

#include "hub/hub_pull.h"

typedef struct af_push_file {
    char *name; /* in the repository */
    char *path; /* on this machine; NULL: `text` */
    char *text; /* a card that the folder lacks */
    uint64_t size;
    char sha256[65], oid[41]; /* of the content, and git's name of it */
    bool large;               /* goes to the large storage, not into the commit */
    bool known;               /* the branch has this content already */
} af_push_file;

typedef struct af_push {
    af_hub_client *client;
    const af_hub_repo *repo; /* revision = the branch */
    af_push_file *file;
    int count, cap;
    af_hub_meter *meter;
    uint64_t sent; /* bytes */
} af_push;

/* hub_folder.c: the files of a folder that are published, and a card when there is none. */
AF_CHECKED af_status af_push_list(af_push *p, const char *folder, af_error *err);
void af_push_clear(af_push *p);

/* Asks with a body; *answer (may be NULL) is the JSON of the answer: json_decref. With `status`
 * (may be NULL; the answer's) 409, "it exists", is not an error. */
struct json_t;
AF_CHECKED af_status af_push_ask(struct json_t **answer, const af_push *p, const char *url,
                                 const char *type, const char *body, uint64_t n, int *status,
                                 af_error *err);

/* hub_large.c: sends the large files that the hub does not have. */
AF_CHECKED af_status af_push_large(af_push *p, af_error *err);
#endif
