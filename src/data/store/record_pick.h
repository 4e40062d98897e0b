/* record_pick.h - which records of a dataset are taken: a slice of its split, the first of them, or
 * some by chance. */
#ifndef AF_RECORD_PICK_H
#define AF_RECORD_PICK_H

#include "data/shape/data_source.h"

typedef struct af_record_pick {
    int64_t from, to; /* of all records of the dataset, in file order */
    int64_t take;     /* so many of them by chance; -1 = all */
    int64_t first;    /* from here on in their random order */
    uint64_t seed;
} af_record_pick;

/* Reads the files once to count their records where a share asks for it. */
AF_CHECKED af_status af_record_pick_open(af_record_pick *out, const af_data_source *s,
                                         const char *run_path, char *const *files, int count,
                                         af_error *err);
/* Datasets with a `fraction` of the mixture, as TRL has it: how many of their first records that is
 * (max_samples), where the mixture is as large as they allow. Counts their records. */
AF_CHECKED af_status af_record_pick_fractions(af_data_source *s, int count, const char *run_path,
                                              af_error *err);
/* How often record i is taken. */
int64_t af_record_pick_times(const af_record_pick *p, int64_t i);
#endif
