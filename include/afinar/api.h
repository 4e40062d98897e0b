/* api.h - attributes of public functions. Every public header includes it.
 *
 * The library is compiled with hidden visibility; AF_API marks what libafinar.so exports. A test
 * compares the two. */
#ifndef AFINAR_API_H
#define AFINAR_API_H

#if defined(__GNUC__)
#define AF_API               __attribute__((visibility("default")))
#define AF_CHECKED           __attribute__((warn_unused_result))
#define AF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define AF_API
#define AF_CHECKED
#define AF_PRINTF(fmt, args)
#endif

#endif
