"""Writes tests/backend/op_errors.h from docs/measurements/cuda-ops-h200.txt.

  python3 tools/judge/op_errors.py

The largest measured error of each case by type, over all its variants (own GEMM, cuDNN, ...)."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
worst = {}
for line in (ROOT / "docs/measurements/cuda-ops-h200.txt").read_text().splitlines():
    if line.startswith("#") or not line.strip():
        continue
    row = worst.setdefault(line.split()[0], {"f32": 0.0, "bf16": 0.0, "f16": 0.0})
    for kind, error in re.findall(r"\b(f32|bf16|f16) ([0-9.e+-]+)/", line):
        row[kind] = max(row[kind], float(error))
body = "".join('    {"%s", %.2e, %.2e, %.2e},\n' % (n, r["f32"], r["bf16"], r["f16"]) for n, r in sorted(worst.items()))
(ROOT / "tests/backend/op_errors.h").write_text(
    """/* op_errors.h - what the comparisons of ops with the CPU allow: ten times the error measured on an
 * H200, by case and type. The table is made by tools/judge/op_errors.py from
 * docs/measurements/cuda-ops-h200.txt; a case that is not in it yet has the wide limit. */
#ifndef AF_OP_ERRORS_H
#define AF_OP_ERRORS_H

#include "backend/case_list.h"

typedef struct op_error {
    const char *name;
    double f32, bf16, f16; /* relative L2 */
} op_error;

static const op_error op_errors[] = {
"""
    + body
    + """};

static double wide_limit(const test_case *c, af_dtype t)
{
    const double coarse = c->bf16 != 0 ? c->bf16 : 5e-3;
    return t != AF_DTYPE_F32 ? coarse : coarse >= 2e-2 ? 1e-3 : 2e-5;
}

/* Where the measured error is near 0: another GPU may round a few elements the other way. */
static double least_limit(af_dtype t)
{
    return t == AF_DTYPE_F32 ? 3e-7 : t == AF_DTYPE_BF16 ? 4e-4 : 5e-5;
}

static double measured_error(const op_error *e, af_dtype t)
{
    return t == AF_DTYPE_F32 ? e->f32 : t == AF_DTYPE_BF16 ? e->bf16 : e->f16;
}

static double op_limit(const test_case *c, af_dtype t)
{
    const double wide = wide_limit(c, t);
    for (size_t i = 0; i < AF_LEN(op_errors); i++)
        if (strcmp(op_errors[i].name, c->name) == 0)
            return fmin(wide, fmax(10 * measured_error(&op_errors[i], t), least_limit(t)));
    return wide;
}

/* Rows that name no case, or whose limit is not at least twice the error it was made from. */
static int wrong_op_errors(void)
{
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F16};
    int wrong = 0;
    for (size_t i = 0; i < AF_LEN(op_errors); i++) {
        const test_case *c = NULL;
        for (size_t k = 0; k < AF_LEN(cases); k++)
            if (strcmp(cases[k].name, op_errors[i].name) == 0)
                c = &cases[k];
        for (size_t k = 0; k < AF_LEN(types); k++)
            wrong += !c || op_limit(c, types[k]) < 1.8 * measured_error(&op_errors[i], types[k]);
    }
    return wrong;
}
#endif
"""
)
