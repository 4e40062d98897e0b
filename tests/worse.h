/* worse.h - the largest difference of a comparison. */
#ifndef AF_WORSE_H
#define AF_WORSE_H

/* The larger of two. Other than with fmax, a NaN stays: no limit holds for it. */
static inline double worse(double so_far, double now)
{
    return so_far != so_far || now <= so_far ? so_far : now;
}
#endif
