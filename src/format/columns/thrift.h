/* thrift.h - bounded reading of Thrift's compact protocol, as parquet files store their metadata.
 *
 * A structure is read field by field; what the caller does not take is passed over:
 *
 *     for (af_thrift_struct s = {0}; af_thrift_field(t, &s);)
 *         if (s.id == 3)
 *             rows = af_thrift_int(t, &s);
 *
 * Whatever does not fit in what is left, has another type than the caller expects, or is nested
 * deeper than AF_THRIFT_DEPTH_MAX latches `bad`: every read then gives 0 and every loop ends. A
 * list has at most as many elements as bytes are left, so all work is linear in the input. */
#ifndef AF_THRIFT_H
#define AF_THRIFT_H

#include "base/base.h"

enum { AF_THRIFT_DEPTH_MAX = 48 };

typedef struct af_thrift {
    const uint8_t *at, *end;
    bool bad;
} af_thrift;

/* All zero before the first field. */
typedef struct af_thrift_struct {
    int id;    /* of the field */
    int type;  /* of its value, as written */
    bool open; /* the value has not been read */
} af_thrift_struct;

typedef struct af_thrift_text {
    const char *at;
    uint64_t len;
} af_thrift_text;

/* The next field; false at the end of the structure. */
bool af_thrift_field(af_thrift *t, af_thrift_struct *s);
/* The value of the field, of the type that the name says. */
int64_t af_thrift_int(af_thrift *t, af_thrift_struct *s);
bool af_thrift_bool(af_thrift *t, af_thrift_struct *s);
af_thrift_text af_thrift_string(af_thrift *t, af_thrift_struct *s);
/* A structure: its own fields follow. */
bool af_thrift_enter(af_thrift *t, af_thrift_struct *s);
/* A list of structures: the number of elements, whose fields follow one after another. */
uint64_t af_thrift_structs(af_thrift *t, af_thrift_struct *s);
#endif
