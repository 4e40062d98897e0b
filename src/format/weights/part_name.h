/* part_name.h - "DIR/NAME-00002-of-00003.EXT": one of the files of a model that was cut. */
#ifndef AF_PART_NAME_H
#define AF_PART_NAME_H

#include "base/base.h"

typedef struct af_part_name {
    size_t stem; /* bytes before "-00002-of-" */
    int no;      /* from 0, below count */
    int count;
} af_part_name;

/* `ext` is what the name must end in, with its dot. */
bool af_part_name_parse(af_part_name *out, const char *path, const char *ext);
/* Two files of one model. */
bool af_part_name_same(const char *a, const char *b, const char *ext);
/* The path of file p.no of the set of `path`. AF_EIO when it is not there. free(). */
AF_CHECKED af_status af_part_name_find(char **out, const char *path, af_part_name p,
                                       const char *ext, af_error *err);
#endif
