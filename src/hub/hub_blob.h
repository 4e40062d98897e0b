/* hub_blob.h - one file on its way from the hub: ranges in parallel, hashed as they become whole,
 * kept across processes. Another state machine without threads, above hub_ask.h. */
#ifndef AF_HUB_BLOB_H
#define AF_HUB_BLOB_H

#include "base/hash.h"
#include "format/hub/hub_tree.h"
#include "hub/hub_ask.h"
#include "hub/hub_journal.h"

enum {
    AF_BLOB_PARTS = 4,          /* ranges at the same time */
    AF_BLOB_PART_MIN = 4 << 20, /* bytes of a range */
    AF_BLOB_PART_MAX = 64 << 20
};

typedef struct af_blob af_blob;
typedef struct af_blob_part {
    af_blob *blob;
    bool active;
    uint64_t at, end; /* bytes still to come: [at, end) */
    af_ask ask;
} af_blob_part;

typedef enum af_blob_state {
    AF_BLOB_LOCKED, /* another process downloads it */
    AF_BLOB_RUNNING,
    AF_BLOB_DONE,
} af_blob_state;

struct af_blob {
    const af_hub_file *file;
    const af_hub_repo *repo;
    af_hub_client *client;
    char *url;                        /* .../resolve/COMMIT/PATH */
    char *final, *part, *note, *lock; /* paths: the result, its bytes so far, journal, lock */
    int fd, note_fd, lock_fd;
    bool keep; /* what has the name of the result is the user's */
    af_blob_state state;
    af_journal journal;
    uint64_t hashed; /* bytes [0, hashed) are in the hash */
    af_sha256 sha256;
    af_sha1 sha1;
    char location[AF_HTTP_URL_MAX]; /* the signed address, once known; "" = ask the hub */
    af_blob_part *taker; /* the server sends whole files only: the part that takes it; or NULL */
    int takes;           /* the file was wrong so many times */
    af_blob_part parts[AF_BLOB_PARTS];
};

/* Paths and url become the blob's in every case. */
void af_blob_init(af_blob *b, const af_hub_file *f, const af_hub_repo *r, af_hub_client *c,
                  char *url, char *final, char *part, char *note, char *lock);
/* Takes the lock and what an earlier process left. b->state says what became of it: DONE when the
 * file is already there. Called again while it is LOCKED. */
AF_CHECKED af_status af_blob_begin(af_blob *b, af_error *err);
/* Moves it on; at most `slots` requests of it run at once. */
AF_CHECKED af_status af_blob_step(af_blob *b, int slots, af_error *err);
/* Requests that run. */
int af_blob_running(const af_blob *b);
/* Bytes that are there: those that have arrived, or all. */
uint64_t af_blob_bytes(const af_blob *b);
/* It has bytes to hash: the caller should not wait. */
bool af_blob_is_behind(const af_blob *b);
/* Ends its requests and closes its files; what has arrived stays for the next process. */
void af_blob_clear(af_blob *b);

/* The name git gives to the content of a file, or its sha256: compared with the file's. */
AF_CHECKED af_status af_blob_check(bool *same, const af_hub_file *f, const char *path,
                                   af_error *err);
#endif
