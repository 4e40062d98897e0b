/* gemm.h - GEMMs: cuBLASLt with a fixed algorithm per shape, own kernels where it is missing or
 * refuses.
 *
 * A plan is made while a node is prepared; the algorithm is chosen afterwards, when every plan of
 * the graph is known (af_cuda_gemm_tune): from the choices stored on disk for this GPU and library,
 * else by timing the library's candidates, once. Only reductions with a fixed order are allowed,
 * the workspace has one size and one stream uses it: the same shape gives the same bits. */
#ifndef AF_GEMM_H
#define AF_GEMM_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/driver.h"

typedef struct af_cuda_gemm_choice {
    char *key; /* shape, types, strides */
    af_lt_algo algo;
} af_cuda_gemm_choice;

typedef struct af_cuda_gemm_plan af_cuda_gemm_plan;
struct af_cuda_gemm_plan {
    af_cuda_gemm m;
    bool tf32;
    void *desc, *la, *lb, *lc, *ladd;
    const af_cuda_gemm_choice *choice; /* NULL until tuned */
    af_lt_algo algo;
    af_launch *own;  /* the fallback, when set */
    af_launch *join; /* after it, where its inner dimension is split */
    af_cuda_gemm_plan *next;
};

struct af_lt {
    af_lt_api api;
    void *handle;
    size_t version;
    char *path; /* file of stored choices, or NULL */
    af_cuda_gemm_choice **choice;
    int n, cap, stored;         /* the first `stored` ones are in the file */
    bool unreadable;            /* the file is there: it is replaced */
    af_cuda_gemm_plan *untuned; /* plans of the graph being prepared */
};

/* cuBLASLt and its workspace. *out stays NULL, without an error, when the library is not there. */
AF_CHECKED af_status af_lt_new(af_lt **out, af_cuda *cu, af_error *err);
void af_lt_free(af_lt *lt);

static inline const af_mat *af_cuda_gemm_addend(const af_cuda_gemm *m)
{
    return m->add.data ? &m->add : &m->c;
}

/* Chooses the algorithm of every new plan. Times candidates on the plans' own memory, which it
 * fills with noise: `*dirtied` is set when it did. */
AF_CHECKED af_status af_cuda_gemm_tune(af_cuda *cu, bool *dirtied, af_error *err);
AF_CHECKED af_status af_cuda_gemm_issue(af_cuda *cu, const af_cuda_gemm_plan *p, af_error *err);
void af_cuda_gemm_release(af_cuda *cu, af_cuda_gemm_plan *p);

/* The own kernels. */
AF_CHECKED af_status af_cuda_gemm_own(af_cuda *cu, af_cuda_gemm_plan *p, af_error *err);
/* The shape and the alignment of the operands. Row strides are left out: the same GEMM must take
 * the same algorithm wherever a plan puts its operands, because another algorithm is other bits.
 * They are part of it (`exact`) only where an algorithm refuses one of them. */
enum { AF_GEMM_KEY = 192 };
void af_cuda_gemm_key(const af_cuda_gemm_plan *p, bool exact, char key[AF_GEMM_KEY]);
/* Stored choices: read when the library is opened, written when new ones were made. */
void af_cuda_gemm_choices_read(af_lt *lt, const af_cuda *cu);
void af_cuda_gemm_choices_write(af_lt *lt);
const af_cuda_gemm_choice *af_cuda_gemm_choice_find(const af_lt *lt, const char *key);
const af_cuda_gemm_choice *af_cuda_gemm_choice_add(af_lt *lt, const char *key,
                                                   const af_lt_algo *algo);

/* Zeros run faster than data: what is timed gets small random values first. `k` is the kernel
 * fill_noise of gemm.cu, or NULL: nothing is done. */
void af_cuda_fill_noise(af_cuda *cu, const af_kernel *k, const af_mat *x, int batch,
                        int64_t stride);

/* Whether GEMMs need a workspace: the library's, and sums of parts of own kernels where the model
 * chooses tiles. */
bool af_cuda_gemm_works(const af_cuda *cu);

enum { AF_LT_WORKSPACE = 32 << 20 }; /* what NVIDIA advises for its largest GPUs */
#endif
