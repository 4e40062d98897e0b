/* label_opts.h - the labels of a model that classifies, and what they are. */
#ifndef AF_LABEL_OPTS_H
#define AF_LABEL_OPTS_H

#include "base/base.h"

/* What the labels of texts are, as transformers has it. */
typedef enum af_problem {
    AF_PROBLEM_AUTO, /* by the number of labels: one is regression */
    AF_PROBLEM_SINGLE,
    AF_PROBLEM_MULTI,
    AF_PROBLEM_REGRESSION
} af_problem;

typedef struct af_label_opts {
    int64_t count; /* of labels */
    af_problem problem;
    const char *const *name; /* in their order; none = they are numbers */
    int names;
    double smoothing; /* of losses: share of a class that all classes have alike */
} af_label_opts;
#endif
