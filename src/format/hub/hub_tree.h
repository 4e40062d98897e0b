/* hub_tree.h - the files of one commit of a repository: as the hub lists them, as huggingface_hub
 * keeps them in trees/COMMIT.json, and which of them are needed. */
#ifndef AF_HUB_TREE_H
#define AF_HUB_TREE_H

#include "format/hub/hub_name.h"

enum { AF_HUB_FILES_MAX = 1 << 20, AF_HUB_TREE_BYTES_MAX = 256 << 20 };

typedef struct af_hub_file {
    char *path;
    uint64_t size;
    char oid[41];    /* git's name of the file (of its pointer, when it is large) */
    char sha256[65]; /* of a large file; "" = a small one */
    char xet[65];    /* "" = none */
    bool needed;
} af_hub_file;

typedef struct af_hub_tree {
    af_hub_file *file; /* sorted by path after af_hub_tree_sort */
    int count, cap;
} af_hub_tree;

void af_hub_tree_clear(af_hub_tree *t);
/* Adds the rows of one page of a listing (a JSON array). Paths that leave the folder, sizes and
 * hashes that are none are AF_EFORMAT. `what` names the listing in messages. */
AF_CHECKED af_status af_hub_tree_add_page(af_hub_tree *t, const char *text, uint64_t n,
                                          const char *what, af_error *err);
/* Sorts by path; a path that is listed twice is AF_EFORMAT. */
AF_CHECKED af_status af_hub_tree_sort(af_hub_tree *t, const char *what, af_error *err);
/* The text of trees/COMMIT.json, byte for byte as huggingface_hub 2.x writes it; free(). */
AF_CHECKED af_status af_hub_tree_print(char **text, uint64_t *n, const af_hub_tree *t,
                                       af_error *err);
/* Reads such a text. */
AF_CHECKED af_status af_hub_tree_parse(af_hub_tree *t, const char *text, uint64_t n,
                                       const char *path, af_error *err);
/* The name of the file's blob: the sha256 of a large one, git's of a small one. */
const char *af_hub_file_etag(const af_hub_file *f);

typedef struct af_hub_choice {
    af_hub_kind kind;
    const char *const *include, *const *exclude; /* patterns; none: what a model or dataset needs */
    int includes, excludes;
    const char *gguf; /* the type of a GGUF file, in place of safetensors; NULL */
} af_hub_choice;

/* Marks the files that are needed. AF_EUSAGE when there is nothing to choose, when several GGUF
 * files are there and none was chosen, and for pickles. `repo` names the repository in messages. */
AF_CHECKED af_status af_hub_tree_choose(af_hub_tree *t, const af_hub_choice *c, const char *repo,
                                        af_error *err);
/* Whether every needed file is below `dir` with the size it has. *missing (may be NULL) is the
 * first that is not, borrowed from the tree. */
bool af_hub_tree_is_complete(const af_hub_tree *t, const char *dir, const char **missing);
#endif
