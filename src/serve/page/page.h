/* page.h - the files of the page, in the program. cmake/page.cmake makes the table from the files
 * of this folder.
 *
 * Whoever serves them adds AF_PAGE_POLICY and the two headers next to it. */
#ifndef AF_PAGE_H
#define AF_PAGE_H

#include "base/base.h"

typedef struct af_page_file {
    const char *path; /* of the request: "/", "/app.js" */
    const char *type; /* Content-Type */
    const unsigned char *data;
    uint64_t size;
} af_page_file;

extern const af_page_file af_page_files[];
extern const int af_page_file_count;

/* NULL when the page has no such file. */
const af_page_file *af_page_find(const char *path);

#define AF_PAGE_POLICY                                                                             \
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; "           \
    "frame-ancestors 'none'"
#define AF_PAGE_NO_FRAME "X-Frame-Options: DENY"
#endif
