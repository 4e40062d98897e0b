/* nonfinite.c - explains a step whose loss or gradient is not finite: the step, the first tensor
 * that is not, the records of the batch. Writes their tokens to replay-STEP.json, and
 * replay-STEP.yaml, a run file that comes from the last checkpoint to the same step.
 *
 * The step is repeated from the same state (an update with a bad norm changes nothing). Where the
 * loss itself is bad, the forward pass runs node by node: on the CPU every output can be examined
 * before its memory is reused. A GPU runs the pass as a whole: only weights and what is kept for
 * the backward pass are examined there, and the message says so. */
#include "base/buf.h"
#include "base/file.h"
#include "graph/graph_access.h"
#include "tensor/dtype.h"
#include "train/checkpoint/run_files.h"
#include "train/run/run_keys.h"
#include "train/trainer/trainer.h"

#include <math.h>

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

enum { PIECE = 4096 };

/* Whether the live rows of a tensor are finite; types other than floats always are. */
static bool is_finite(const af_step_graph *s, const af_tensor *t)
{
    float part[PIECE];
    const af_dtype type = af_tensor_dtype(t);
    const uint8_t *p = af_tensor_host_view(t);
    void *copy = NULL;
    if (!af_dtype_is_float(type) || (!p && af_run_model_on_cpu(s->model)))
        return true; /* or without memory */
    if (!p) {
        copy = malloc(AF_MAX(af_tensor_bytes(t), 1));
        if (!copy || af_tensor_read(s->graph, t, copy, af_tensor_bytes(t), NULL) != AF_OK) {
            free(copy);
            return true; /* not known to be bad */
        }
        p = copy;
    }
    bool finite = true;
    const int64_t n = af_tensor_live_count(t);
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t now = AF_MIN(PIECE, n - at);
        af_convert(part, AF_DTYPE_F32, p + at * af_dtype_get(type)->bytes, type, (uint64_t)now);
        finite &= all_finite(part, now);
    }
    free(copy);
    return finite;
}

/* The search for the first tensor that is not finite. */
typedef struct nonfinite_search {
    const af_step_graph *step;
    char *out; /* its description */
    size_t size;
} nonfinite_search;

static bool is_named_weight(const af_tensor *t)
{
    const af_role role = af_tensor_role(t);
    return (role == AF_ROLE_PARAM || role == AF_ROLE_WEIGHT) && af_tensor_name(t)[0];
}

static bool examine(void *user, const af_ran_node *n)
{
    const nonfinite_search *f = user;
    const char *weight = NULL; /* the first named one: what the node works with */
    const char *more = n->whole_pass ? " (of those kept for the backward pass)" : "";
    for (int i = 0; i < n->n_in; i++) {
        if (!is_named_weight(n->in[i]))
            continue;
        weight = weight ? weight : af_tensor_name(n->in[i]);
        if (!is_finite(f->step, n->in[i])) {
            snprintf(f->out, f->size, "%s", af_tensor_name(n->in[i]));
            return true;
        }
    }
    for (int i = 0; i < n->n_out; i++) {
        if (is_finite(f->step, n->out[i]))
            continue;
        if (weight)
            snprintf(f->out, f->size, "the output of %s (%s)%s", weight, n->op, more);
        else if (n->block >= 0)
            snprintf(f->out, f->size, "the output of %s in layer %d%s", n->op, n->block, more);
        else
            snprintf(f->out, f->size, "the output of %s%s", n->op, more);
        return true;
    }
    return false;
}

/* The first tensor that is not finite in the forward pass of the uploaded batch; false = none. */
static bool find_forward(af_step_graph *s, char *out, size_t size)
{
    nonfinite_search f = {s, out, size};
    bool found = false;
    return af_graph_run_until(s->graph, examine, &f, &found, NULL) == AF_OK && found;
}

/* The largest magnitude of a gradient; NaN when an element is not finite. */
static double largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        most = fmax(most, fabs((double)x[i]));
    }
    return most;
}

/* The first parameter whose gradient is not finite, after a repeated gradient run. *most: the
 * largest magnitude of those that are, and whose it is. */
static bool bad_gradient(af_step_graph *s, char *out, size_t size, double *most, const char **whose,
                         af_error *err)
{
    *most = 0;
    *whose = "";
    for (af_tensor *p = NULL; (p = af_graph_next(s->graph, AF_ROLE_PARAM, p));) {
        const af_tensor *grad = af_tensor_gradient(p);
        if (!grad || !af_tensor_name(p)[0] || af_tensor_role(grad) != AF_ROLE_GRADIENT)
            continue; /* split ones are seen on their way */
        const int64_t n = af_tensor_count(p);
        float *v = af_calloc((uint64_t)n, sizeof *v);
        const bool read =
            v && af_tensor_read(s->graph, grad, v, af_tensor_bytes(grad), err) == AF_OK;
        const double m = read ? largest(v, n) : 0;
        free(v);
        if (isnan(m)) {
            snprintf(out, size, "the gradient of %s", af_tensor_name(p));
            return true;
        }
        if (m > *most) {
            *most = m;
            *whose = af_tensor_name(p);
        }
    }
    return false;
}

typedef struct finding {
    char bad[256];
    af_buf text, json; /* "file:line" of the records, and their tokens */
} finding;

static void put_tokens(af_buf *b, const uint32_t *token, uint32_t n)
{
    af_buf_str(b, "\"input_ids\": [");
    for (uint32_t i = 0; i < n; i++)
        af_buf_printf(b, "%s%u", i ? "," : "", token[i] & ~AF_TOKEN_NO_LOSS);
    af_buf_str(b, "], \"labels\": [");
    for (uint32_t i = 0; i < n; i++)
        af_buf_printf(b, "%s%d", i ? "," : "", token[i] & AF_TOKEN_NO_LOSS ? -100 : (int)token[i]);
    af_buf_str(b, "]");
}

static void name_records(const af_run_data *d, const af_batch *b, finding *f)
{
    enum { NAMED = 8 };
    for (int64_t i = 0; i < b->sequences; i++) {
        const af_token_index *e = &d->store.index[b->record[i]];
        const char *file = af_dataset_file(&d->store, (int)e->source);
        if (i < NAMED)
            af_buf_printf(&f->text, "%s%s:%" PRIu64, f->text.len ? ", " : "", af_path_name(file),
                          e->line);
        else if (i == NAMED)
            af_buf_printf(&f->text, " and %" PRId64 " more", b->sequences - i);
        af_buf_printf(&f->json,
                      "%s{\"record\": %" PRId64 ", \"file\": ", f->json.len ? ",\n  " : "",
                      b->record[i]);
        af_put_quoted(&f->json, file);
        af_buf_printf(&f->json, ", \"line\": %" PRIu64 ", \"tokens\": %u, ", e->line, e->count);
        put_tokens(&f->json, af_token_words(&d->store, b->record[i]), e->count);
        af_buf_char(&f->json, '}');
    }
}

/* Repeats the micro-batches of the step until one shows what is not finite. Where none does, the
 * norm of large gradients has overflowed: then it is the largest gradient, and the records are
 * those of the whole step. */
static void repeat_step(af_trainer *t, const af_step_result *r, finding *f, af_error *err)
{
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    const uint64_t clock = af_graph_clock(t->step.graph) - (uint64_t)t->progress.micro_per_step;
    double most = 0;
    const char *whose = "";
    const af_batch *b;
    t->step.seeks = true;
    for (int64_t k = 0; k < t->progress.micro_per_step; k++) {
        float loss = NAN;
        af_graph_set_clock(t->step.graph, clock + (uint64_t)k);
        if (af_stream_get(t->data.stream, t->progress.micro + k, &b, err) != AF_OK ||
            af_step_graph_upload(&t->step, b, scale, err) != AF_OK ||
            af_graph_run(t->step.graph, AF_RUN_GRAD, err) != AF_OK ||
            af_tensor_read(t->step.graph, t->step.loss, &loss, sizeof loss, err) != AF_OK)
            break;
        af_graph_set_clock(t->step.graph, clock + (uint64_t)k);
        if (!isfinite(loss) && !find_forward(&t->step, f->bad, sizeof f->bad))
            snprintf(f->bad, sizeof f->bad, "the loss");
        if (!*f->bad && t->step.sums_bad)
            snprintf(f->bad, sizeof f->bad, "a gradient");
        if (*f->bad || bad_gradient(&t->step, f->bad, sizeof f->bad, &most, &whose, err)) {
            name_records(&t->data, b, f);
            return;
        }
    }
    for (int64_t k = 0; k < t->progress.micro_per_step; k++)
        if (af_stream_get(t->data.stream, t->progress.micro + k, &b, err) == AF_OK)
            name_records(&t->data, b, f);
    if (*whose)
        snprintf(f->bad, sizeof f->bad, "the gradient of %s with elements up to %g", whose, most);
}

static af_status claim(const af_trainer *t, const char *path, af_error *err)
{
    const char *name = af_path_name(path);
    return af_run_files_claim(t->run->output_dir, &name, 1, err);
}

/* The run file of a run that repeats this step. *checkpoint: where it starts, or NULL. */
static af_status write_replay_run(const af_trainer *t, const char *path, char **checkpoint,
                                  af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL, folder[4096];
    af_run_config again = *t->run;
    const af_run_config *r = t->run;
    AF_TRY(af_saver_wait(t->output.saver, err));
    AF_TRY(af_checkpoint_newest(r->output_dir, t->hooks, checkpoint, err));
    snprintf(folder, sizeof folder, "%s/replay-%" PRId64, r->output_dir, t->progress.step + 1);
    again.output_dir = folder;
    again.auto_resume = false;
    if (*checkpoint || (r->resume && strcmp(r->resume, "auto") == 0))
        again.resume = *checkpoint;
    again.overwrite_output_dir = true;
    again.key_line[af_key_find("overwrite_output_dir") - af_keys] = AF_KEY_LINE_OVERRIDE;
    again.key_line[af_key_find("resume_from_checkpoint") - af_keys] =
        again.resume ? AF_KEY_LINE_OVERRIDE : AF_KEY_LINE_UNSET;
    again.key_line[af_key_find("auto_resume_from_checkpoints") - af_keys] = AF_KEY_LINE_UNSET;
    if (!*checkpoint && again.resume)
        *checkpoint = af_strdup(again.resume);
    AF_TRY(af_run_config_text(&again, &text, err));
    AF_TRY(claim(t, path, err));
    st = af_file_write(path, text, strlen(text), err);
done:
    free(text);
    return st;
}

static af_status write_replay_data(const af_trainer *t, const af_step_result *r, const finding *f,
                                   const char *path, af_error *err)
{
    af_buf file = {0};
    af_buf_printf(&file,
                  "{\"step\": %" PRId64 ", \"micro_batch\": %" PRId64 ", \"seed\": %" PRId64
                  ", \"loss\": \"%g\", \"grad_norm\": \"%g\", \"first_bad\": ",
                  t->progress.step + 1, t->progress.micro, t->run->seed, r->loss, r->grad_norm);
    af_put_quoted(&file, f->bad);
    af_buf_printf(&file, ", \"records\": [\n  %s]}\n", f->json.data ? f->json.data : "");
    af_status st = file.bad ? af_fail_nomem(err, path, file.len) : claim(t, path, err);
    if (st == AF_OK)
        st = af_file_write(path, file.data, file.len, err);
    af_buf_clear(&file);
    return st;
}

af_status af_trainer_explain_nonfinite(af_trainer *t, const af_step_result *r, af_error *err)
{
    finding f = {0};
    char run[4096] = "", data[4096], *checkpoint = NULL;
    const int64_t step = t->progress.step + 1;
    const bool all = t->model.gpus || t->model.zero_stage >= AF_SHARD_GRADIENTS;
    if (af_trainer_writes(t) || all) /* nodes of the backward pass exchange */
        repeat_step(t, r, &f, err);
    if (!af_trainer_writes(t)) { /* rank 0 tells why */
        af_buf_clear(&f.text);
        af_buf_clear(&f.json);
        return af_comm_barrier(t->comm, err);
    }
    snprintf(run, sizeof run, "%s/replay-%" PRId64 ".yaml", t->run->output_dir, step);
    snprintf(data, sizeof data, "%s/replay-%" PRId64 ".json", t->run->output_dir, step);
    af_error why = {0};
    const bool left = write_replay_run(t, run, &checkpoint, &why) == AF_OK &&
                      write_replay_data(t, r, &f, data, &why) == AF_OK;
    af_fail(err, AF_EUSAGE,
            "step %" PRId64
            ": loss %g, gradient norm %g: the first tensor that is not finite is %s, in a batch of "
            "%s; the last good checkpoint is %s; %s%s%s%s%s",
            step, r->loss, r->grad_norm, *f.bad ? f.bad : "not found again",
            f.text.data ? f.text.data : "?", checkpoint ? af_path_name(checkpoint) : "none yet",
            left ? "the batch is in " : why.msg, left ? data : "",
            left ? ", and 'afinar train " : "", left ? run : "", left ? "' repeats this step" : "");
    af_buf_clear(&f.text);
    af_buf_clear(&f.json);
    free(checkpoint);
    return AF_EUSAGE;
}

af_status af_trainer_explain_eval(af_trainer *t, const af_batch *b, af_error *err)
{
    const af_token_store *store = af_run_data_eval_store(&t->data);
    const af_token_index *e = &store->index[b->record[0]];
    char bad[256];
    if (af_run_model_splits_weights(&t->model) || !find_forward(&t->step, bad, sizeof bad))
        snprintf(bad, sizeof bad, "the loss"); /* no pass without the other ranks */
    return af_fail(
        err, AF_EUSAGE,
        "step %" PRId64 ": the loss of an evaluation is not finite: the first tensor that is "
        "not finite is %s, in %s:%" PRIu64 "; checkpoints are untouched",
        t->progress.step, bad, af_path_name(af_dataset_file(store, (int)e->source)), e->line);
}
