/* status.h - how every call of the library reports failure.
 *
 * A function that can fail for a reason outside our code returns af_status and takes `af_error
 * *err` last (NULL is allowed). The message is one sentence for the user that names the thing and
 * the two values that disagree. Nothing in the library prints or exits. */
#ifndef AFINAR_STATUS_H
#define AFINAR_STATUS_H

#include "afinar/api.h"
#include "afinar/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_status {
    AF_OK = 0,
    AF_EUSAGE,       /* the caller or the config asks for something impossible */
    AF_ENOMEM,       /* host or device memory ran out                          */
    AF_EIO,          /* the system refused a read or a write                   */
    AF_EFORMAT,      /* a file is not what it claims to be                     */
    AF_EUNSUPPORTED, /* valid, but outside what this build can do              */
    AF_EDEVICE,      /* the device or its compiler failed                      */
    AF_ESTOPPED,     /* the user asked to stop                                 */
} af_status;

typedef struct af_error {
    af_status code;
    char subject[32]; /* what the error is about: a run-file key, an option, ...; "" = not stated */
    char msg[1024];
} af_error;

/* Creates every error: one breakpoint catches them all. Clears the subject. Returns `code`. `err`
 * may be NULL. */
AF_API AF_PRINTF(3, 4) af_status af_fail(af_error *err, af_status code, const char *fmt, ...);

/* The same with a subject, for callers that decide by what failed: messages are for people and may
 * change at any time. */
AF_API AF_PRINTF(4, 5) af_status
    af_fail_subject(af_error *err, af_status code, const char *subject, const char *fmt, ...);

/* Puts "prefix: " in front of the message of a failed call. Returns `st`, the status of that call.
 * `err` may be NULL. */
AF_API AF_PRINTF(3, 4) af_status af_fail_prefix(af_status st, af_error *err, const char *fmt, ...);

/* AF_ENOMEM when an allocation failed on this thread since the last error and no error has reported
 * it: a library below (JSON, for one) may go on without what it could not allocate. Called before a
 * result that is made with such a library is used; reports and clears the failure. */
AF_API af_status af_memory_check(af_error *err);

/* The name of a status, for logs: "AF_EFORMAT". Static storage. */
AF_API const char *af_status_name(af_status code);

#ifdef __cplusplus
}
#endif
#endif
