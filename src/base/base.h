/* base.h - what every file of the library starts from: status, the few macros, checked arithmetic,
 * and the list of banned functions. */
#ifndef AF_BASE_H
#define AF_BASE_H

#include "afinar/status.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In a function with `af_status st` and a label `done`: on failure st is set and control goes
 * there. */
#define AF_TRY(call)                                                                               \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != AF_OK)                                                                           \
            goto done;                                                                             \
    } while (0)
#define AF_LEN(array)       (sizeof(array) / sizeof((array)[0]))
#define AF_MIN(a, b)        ((a) < (b) ? (a) : (b))
#define AF_MAX(a, b)        ((a) > (b) ? (a) : (b))
#define AF_ALIGN_UP(n, pow) (((n) + ((pow)-1)) & ~((pow)-1))

/* True and *out = a op b, or false when the result does not fit. */
static inline bool af_mul_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool af_add_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Host memory: zeroed, NULL when there is none (the caller reports AF_ENOMEM). A failure is also
 * noted for the thread, until an error reports it: an error that follows from it, whatever its
 * words, becomes AF_ENOMEM in af_fail. */
void *af_calloc(uint64_t count, uint64_t size);
void *af_realloc(void *p, uint64_t count, uint64_t size); /* old block stays valid on NULL */
char *af_strdup(const char *s);
char *af_strndup(const char *s, uint64_t n);
/* Notes a failure of an allocator that is not one of the above (a library's). */
void af_memory_note(void);
/* Is one noted and not reported yet? */
bool af_memory_failed(void);
/* The failure did no harm: what could not be allocated is not needed. */
void af_memory_forget(void);

/* Seconds of a clock that never goes back; only differences mean something. */
double af_seconds_now(void);

/* The one sentence for "out of memory": names what it was for and how much. */
af_status af_fail_nomem(af_error *err, const char *what, uint64_t bytes);
/* `err`, or `unread` (cleared) when the caller passed NULL: for public entries, so that the code
 * below may look at its error. */
static inline af_error *af_error_or(af_error *err, af_error *unread)
{
    if (!err)
        *unread = (af_error){0};
    return err ? err : unread;
}

/* At the top of a public function: each argument in the list must not be NULL (the rule of
 * afinar.h). "out || !count" allows it where there is nothing to read or write. */
#define AF_NEED(err, ...)                                                                          \
    do {                                                                                           \
        const bool needed_[] = {__VA_ARGS__};                                                      \
        const af_status need_ = af_need(needed_, AF_LEN(needed_), __func__, #__VA_ARGS__, err);    \
        if (need_ != AF_OK)                                                                        \
            return need_;                                                                          \
    } while (0)
/* AF_EUSAGE with the name of the first argument that is false, else AF_OK. */
af_status af_need(const bool *have, size_t count, const char *function, const char *names,
                  af_error *err);
/* The same for a list of strings in options: 0 to `most` of them, none of them NULL. */
af_status af_need_strings(const char *const *list, int count, int most, const char *name,
                          af_error *err);

/* Numbers as text, and letters whatever their case, as in the C locale: the program that uses the
 * library may have set one where 0.5 is "0,5" (German) or I is not the capital of i (Turkish). */
AF_PRINTF(3, 4) int af_snprintf(char *text, size_t size, const char *fmt, ...);
AF_PRINTF(3, 0) int af_vsnprintf(char *text, size_t size, const char *fmt, va_list ap);
double af_strtod(const char *text, char **end);
int af_strcasecmp(const char *a, const char *b);
int af_strncasecmp(const char *a, const char *b, size_t n);
char *af_strcasestr(const char *text, const char *part);

/* The headers that declare them come first: poison would stop those too. */
#if !defined(AF_ALLOW_BANNED)
#undef snprintf
#undef vsnprintf
#undef strtod
#undef strcasecmp
#undef strncasecmp
#undef strcasestr
#define snprintf    af_snprintf
#define vsnprintf   af_vsnprintf
#define strtod      af_strtod
#define strcasecmp  af_strcasecmp
#define strncasecmp af_strncasecmp
#define strcasestr  af_strcasestr
#undef alloca
#pragma GCC poison strcpy strcat strncpy sprintf vsprintf gets strtok atoi atof alloca
#endif
#endif
