/* adapter_start.h - first values of an adapter that depend on the base: PiSSA, OLoRA, LoftQ; and
 * the orthogonal start. */
#ifndef AF_ADAPTER_START_H
#define AF_ADAPTER_START_H

#include "model/adapter.h"
#include "model/loader.h"

typedef enum af_start_kind {
    AF_START_PLAIN, /* true, gaussian, xavier: adapter_fill.c */
    AF_START_PISSA,
    AF_START_OLORA,
    AF_START_LOFTQ,
    AF_START_ORTHOGONAL,
} af_start_kind;

/* False for an unknown name. *steps: the power steps of pissa_niter_N, else 0. */
bool af_start_find(const char *name, af_start_kind *kind, int *steps);
/* Every name, for messages. */
const char *af_start_names(void);

/* Gives the adapter its first values and, where the base is to be reduced by them, keeps them
 * (a0, b0) and tells the loader. The adapter must outlive the loader's use. `bits` is what the run
 * quantises the base to. */
AF_CHECKED af_status af_start_fill(af_adapter *a, af_loader *base, int bits, uint64_t seed,
                                   int threads, af_error *err);
/* Without values, for a plan. */
AF_CHECKED af_status af_start_outline(af_adapter *a, af_loader *base, int bits, af_error *err);

/* What is saved: an adapter for the base as it is, A over A0 and B next to -B0, of twice the rank,
 * as PEFT converts them. *out is NULL where the base was not reduced: then `a` itself is. */
AF_CHECKED af_status af_start_convert(af_adapter **out, const af_adapter *a, af_error *err);
/* The reverse: the trained half of a converted adapter, for the run that `a` belongs to. */
void af_start_restore(af_adapter *a, const af_adapter *converted);
/* af_adapter_write of what is saved. */
AF_CHECKED af_status af_start_write(const af_adapter *a, const char *dir, af_error *err);
#endif
