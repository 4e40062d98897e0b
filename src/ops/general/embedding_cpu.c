/* embedding_cpu.c - the twins of embedding.c. */
#include "backend/cpu/cpu.h"

typedef struct embedding_job {
    const af_node *n;
    double *row;   /* [threads][D] */
    int32_t *head; /* [V]: first row with this id, -1 = none */
    int32_t *next; /* [N]: next row with the same id, rising */
} embedding_job;

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const embedding_job *j = arg;
    const af_tensor *table = j->n->in[1];
    const int32_t *ids = j->n->in[0]->data;
    const int64_t D = table->dim[1];
    double *row = j->row + share * D;
    for (int64_t r = from; r < to; r++) {
        assert(ids[r] >= 0 && ids[r] < table->dim[0]);
        af_ld_row(table, ids[r] * D, D, row);
        af_st_row(j->n->out[0], r * D, D, row);
    }
}

static void embedding_run(const af_node *n, af_cpu *cpu)
{
    embedding_job j = {.n = n, .row = cpu->work};
    af_pool_run(cpu->pool, af_live(n->in[0]), forward_rows, &j);
}

static uint64_t embedding_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)n->in[1]->dim[1] * sizeof(double);
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const embedding_job *j = arg;
    af_tensor *d = j->n->out[0];
    const af_tensor *dy = j->n->in[1];
    const int64_t D = d->dim[1];
    double *row = j->row + share * D;
    for (int64_t v = from; v < to; v++) {
        if (j->head[v] < 0 && j->n->accumulate)
            continue;
        memset(row, 0, (size_t)D * sizeof *row);
        for (int32_t r = j->head[v]; r >= 0; r = j->next[r])
            for (int64_t k = 0; k < D; k++)
                row[k] += af_ld(dy, r * D + k);
        for (int64_t k = 0; k < D; k++)
            af_put(j->n, d, v * D + k, row[k]);
    }
}

static void embedding_bwd_run(const af_node *n, af_cpu *cpu)
{
    const int64_t V = n->out[0]->dim[0], D = n->out[0]->dim[1], N = af_live(n->in[0]);
    const int32_t *ids = n->in[0]->data;
    const int64_t frozen = n->attr.embedding.frozen - 1;
    embedding_job j = {.n = n, .row = cpu->work};
    j.head = (void *)(j.row + cpu->threads * D);
    j.next = j.head + V;
    memset(j.head, 0xff, (size_t)V * sizeof *j.head);
    for (int64_t r = N - 1; r >= 0; r--) {
        assert(ids[r] >= 0 && ids[r] < V);
        if (ids[r] == frozen)
            continue;
        j.next[r] = j.head[ids[r]];
        j.head[ids[r]] = (int32_t)r;
    }
    af_pool_run(cpu->pool, V, backward_rows, &j);
}

static uint64_t embedding_bwd_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)n->out[0]->dim[1] * sizeof(double) +
           (uint64_t)(n->out[0]->dim[0] + n->in[0]->dim[0]) * sizeof(int32_t);
}

const af_cpu_op af_cpu_embedding = {embedding_run, embedding_work};
const af_cpu_op af_cpu_embedding_bwd = {embedding_bwd_run, embedding_bwd_work};
