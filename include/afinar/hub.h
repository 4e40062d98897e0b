/* hub.h - models and datasets from the Hugging Face hub, and results back to it.
 *
 *     af_hub_pull(&folder, "org/name", &(af_pull_opts){0}, &err);
 *     af_hub_push(&address, "out", "me/my-adapter", &(af_push_opts){.private_repo = true}, &err);
 *
 * The address of the hub, the token and the cache come from the variables of huggingface_hub:
 * HF_ENDPOINT, HF_TOKEN (else the file HF_HOME/token), HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE. The
 * network is used through libcurl, which is loaded by these calls and by nothing else; where it is
 * not installed they return AF_EUNSUPPORTED. A token is never part of a message and is sent to the
 * hub alone. */
#ifndef AFINAR_HUB_H
#define AFINAR_HUB_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct af_hub_progress {
    const char *repo;
    uint64_t done, total;  /* bytes */
    int files_done, files; /* that are needed */
    double bytes_s;        /* of the last seconds; 0 = not known yet */
    bool upload;
    bool finished; /* the last call: nothing more comes */
} af_hub_progress;
/* Called several times per second. False ends the transfer with AF_ESTOPPED; what has arrived is
 * kept for the next one. */
typedef bool af_hub_hook(void *user, const af_hub_progress *p);

typedef struct af_hub_opts {
    bool offline;           /* use the cache alone */
    const char *token_file; /* in place of HF_TOKEN; NULL */
    af_hub_hook *progress;  /* may be NULL */
    void *user;
} af_hub_opts;

typedef struct af_pull_opts {
    af_hub_opts hub;
    bool dataset;         /* of the datasets, not of the models */
    const char *revision; /* over the one after '@'; NULL */
    /* Patterns of files ('*' matches '/' too). Without `include`: configs, tokenizer, and
     * safetensors or one GGUF file; pytorch_model.bin (adapter_model.bin) where there is neither.
     * Of safetensors and pytorch_model.bin the one file, else its shards, and no variant. */
    const char *const *include, *const *exclude;
    int includes, excludes;
    const char *gguf;   /* type of the GGUF file to take: "Q4_K_M" */
    const char *output; /* a folder for the files themselves; NULL = the cache */
} af_pull_opts;

/* Downloads what is needed of ORG/NAME[@REVISION] and is not there yet, and checks sizes and
 * hashes. A transfer that was killed continues where it was. On success *folder is the folder with
 * the files (free()). AF_EUSAGE for what does not exist or may not be read, AF_EIO for a network
 * that fails, AF_EFORMAT for a server that lies; the cache then has nothing of it. */
AF_API AF_CHECKED af_status af_hub_pull(char **folder, const char *repo, const af_pull_opts *o,
                                        af_error *err);

typedef struct af_push_opts {
    af_hub_opts hub;
    bool dataset;
    bool private_repo;    /* when it is created */
    const char *revision; /* branch, created when absent; NULL = main */
    const char *message;  /* of the commit; NULL = a usual one */
} af_push_opts;

/* Uploads the files of a folder in one commit; the repository is created when absent. Hidden
 * files, checkpoints and files that the hub already has are left out. On success *address is the
 * address of the commit (free()). */
AF_API AF_CHECKED af_status af_hub_push(char **address, const char *folder, const char *repo,
                                        const af_push_opts *o, af_error *err);

/* From now on, every call that takes a model or a dataset downloads an ORG/NAME that is neither a
 * path nor cached, with these options; NULL (the default): no call uses the network by itself. *o
 * and what it points to must stay. Not thread-safe: call it before other threads use the library.
 */
AF_API void af_hub_set(const af_hub_opts *o);

/* The version of libcurl and its TLS library into text; "" when it is not installed. */
AF_API void af_hub_library(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
