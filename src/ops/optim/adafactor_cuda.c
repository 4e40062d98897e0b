/* adafactor_cuda.c - launcher of ADAFACTOR (adafactor_cpu.c): moments of rows and columns, the sum
 * of squares of the update, the update. */
#include "ops/common/cuda_ops.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

/* Threads of a block; blocks whose sums are added up; ranges of rows and the rows of one. */
enum { THREADS = 256, PARTS = 1024, ROW_PARTS = 64, ROWS = 64 };

typedef struct adafactor_launch {
    af_optim_inputs in;
    int64_t batches, rows, cols, parts; /* rows: of a matrix; parts: ranges of them */
    bool vector;
    float *part, *by_row, *by_col, *sums; /* in the workspace; sums: [parts][batches][cols] */
} adafactor_launch;

static adafactor_launch open(const af_node *n, void *work)
{
    const af_tensor *w = af_optim_in(n).params;
    adafactor_launch f = {
        .in = af_optim_in(n), .batches = 1, .rows = 1, .cols = af_last(w), .vector = w->ndim < 2};
    if (!f.vector) {
        f.rows = w->dim[w->ndim - 2];
        f.batches = f.rows ? af_rows(w) / f.rows : 1;
    }
    f.parts = AF_MAX(AF_MIN(f.rows / ROWS, (int64_t)ROW_PARTS), INT64_C(1));
    if (work) {
        f.part = work;
        f.by_row = f.part + PARTS;
        f.by_col = f.by_row + AF_ALIGN_UP(f.batches * f.rows, INT64_C(4));
        f.sums = f.by_col + AF_ALIGN_UP(f.batches * f.cols, INT64_C(4));
    }
    return f;
}

static uint64_t adafactor_work(const af_cuda *cu, const af_node *n)
{
    const adafactor_launch f = open(n, NULL);
    (void)cu;
    if (f.vector)
        return PARTS * sizeof(float);
    return (uint64_t)(PARTS + AF_ALIGN_UP(f.batches * f.rows, INT64_C(4)) +
                      AF_ALIGN_UP(f.batches * f.cols, INT64_C(4)) + f.parts * f.batches * f.cols) *
           sizeof(float);
}

/* Values of one access. */
static int64_t width(const adafactor_launch *f)
{
    const bool whole = f->cols % 4 == 0 && (uintptr_t)f->in.params->data % 16 == 0 &&
                       (uintptr_t)f->in.grads->data % 16 == 0 &&
                       (uintptr_t)f->in.state[0]->data % 16 == 0;
    return whole ? 4 : 1;
}

static af_launch *launch(af_cuda *cu, af_node *n, const adafactor_launch *f, const char *name,
                         int64_t x, int64_t y, int64_t z)
{
    af_kernel *k =
        af_cuda_kernel(cu, "adafactor.cu", name, af_cuda_text(cu, "AF_VEC=%d", (int)width(f)));
    return af_cuda_launch(cu, n, k, x, y, z, THREADS, 0);
}

/* Rows of matrices, or a vector. */
static void launch_rows(af_cuda *cu, af_node *n, const adafactor_launch *f)
{
    af_launch *l =
        f->vector ? launch(cu, n, f, "adafactor_squares", (f->cols + THREADS - 1) / THREADS, 1, 1)
                  : launch(cu, n, f, "adafactor_rows", f->batches * f->rows, 1, 1);
    af_arg_ptr(l, f->in.state[0]->data);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.hyper->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, f->cols);
    af_arg_f32(l, n->attr.optim.beta2);
    af_arg_f32(l, n->attr.optim.eps);
}

static void launch_columns(af_cuda *cu, af_node *n, const adafactor_launch *f)
{
    const int64_t each = 32 * width(f), count = f->batches * f->cols;
    af_launch *l =
        launch(cu, n, f, "adafactor_cols", (f->cols + each - 1) / each, f->parts, f->batches);
    af_arg_ptr(l, f->sums);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, f->rows);
    af_arg_i64(l, f->cols);
    af_arg_i64(l, (f->rows + f->parts - 1) / f->parts);
    af_arg_f32(l, n->attr.optim.eps);
    l = launch(cu, n, f, "adafactor_join", (count + THREADS - 1) / THREADS, 1, 1);
    af_arg_ptr(l, f->in.state[1]->data);
    af_arg_ptr(l, f->by_col);
    af_arg_ptr(l, f->sums);
    af_arg_i32(l, f->parts);
    af_arg_ptr(l, f->in.hyper->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, count);
    af_arg_i64(l, f->rows);
    af_arg_f32(l, n->attr.optim.beta2);
    l = launch(cu, n, f, "adafactor_by_row", f->batches, 1, 1);
    af_arg_ptr(l, f->by_row);
    af_arg_ptr(l, f->in.state[0]->data);
    af_arg_i64(l, f->rows);
}

static void launch_step(af_cuda *cu, af_node *n, const adafactor_launch *f, bool apply)
{
    const int64_t rows = f->batches * f->rows, grid = AF_MIN(rows, (int64_t)PARTS);
    af_launch *l = launch(cu, n, f, apply ? "adafactor_apply" : "adafactor_parts", grid, 1, 1);
    af_arg_ptr(l, apply ? f->in.params->data : (void *)f->part);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.state[0]->data);
    af_arg_ptr(l, f->by_row);
    af_arg_ptr(l, f->by_col);
    if (apply) {
        af_arg_ptr(l, f->part);
        af_arg_i32(l, grid);
        af_arg_ptr(l, f->in.hyper->data);
    }
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, rows);
    af_arg_i64(l, f->rows);
    af_arg_i64(l, f->cols);
    if (apply) {
        af_arg_f32(l, n->attr.optim.weight_decay);
        af_arg_f32(l, n->attr.optim.lr_factor);
        af_arg_f32(l, AF_ADAFACTOR_THRESHOLD);
    }
    af_arg_i32(l, f->vector);
}

static af_status adafactor_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const adafactor_launch f = open(n, cu->work);
    const af_tensor *w = f.in.params;
    if (w->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, w, err);
    if (af_count(w) == 0)
        return AF_OK;
    launch_rows(cu, n, &f);
    if (!f.vector)
        launch_columns(cu, n, &f);
    launch_step(cu, n, &f, false);
    launch_step(cu, n, &f, true);
    return AF_OK;
}

const af_cuda_op af_cuda_adafactor = {adafactor_prepare, adafactor_work, false};
