/* nonfinite.c - what to say when numbers stop being numbers: the step, the first bad tensor, the
 * records of the batch; and what to leave behind: the records' tokens in replay-STEP.json, and
 * replay-STEP.yaml, a run file that goes from the last checkpoint to the same end.
 *
 * The step is repeated with the state it found (an update with a bad norm changes nothing). Where
 * the loss itself is bad, the forward pass is walked node by node: on the CPU every output can be
 * looked at before its memory is used again. A GPU runs the pass as a whole: there weights are
 * looked at, and what is kept for the backward pass, and the message says so. */
#include "base/buf.h"
#include "base/file.h"
#include "graph/backend.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/run_keys.h"

#include <math.h>

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

enum { PIECE = 4096 };

/* Whether what is in use of a tensor is finite; other types than floats always are. */
static bool is_finite(const af_trainer *tr, const af_tensor *t)
{
    float part[PIECE];
    if (!af_dtype_is_float(t->dtype) || !t->data)
        return true;
    const int64_t n = t->ndim == 1 ? af_live(t) : af_live(t) * af_last(t);
    const uint8_t *p = t->data;
    void *copy = tr->device->ops->host ? NULL : malloc(AF_MAX(af_tensor_bytes(t), 1));
    if (!tr->device->ops->host) {
        if (!copy || af_tensor_read(tr->graph, t, copy, af_tensor_bytes(t), NULL) != AF_OK) {
            free(copy);
            return true; /* not known to be bad */
        }
        p = copy;
    }
    bool finite = true;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t now = AF_MIN(PIECE, n - at);
        af_convert(part, AF_DTYPE_F32, p + at * af_dtype_get(t->dtype)->bytes, t->dtype,
                   (uint64_t)now);
        finite &= all_finite(part, now);
    }
    free(copy);
    return finite;
}

/* The first named input of a node: the weight it works with. */
static const char *weight_of(const af_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->name[0] &&
            (n->in[i]->role == AF_ROLE_PARAM || n->in[i]->role == AF_ROLE_WEIGHT))
            return n->in[i]->name;
    return NULL;
}

/* Outputs are looked at that are in use beyond position `kept`. */
static bool describe(const af_trainer *t, const af_node *n, int kept, char *out, size_t size)
{
    const char *weight = weight_of(n), *more = kept < 0 ? "" : ", of those that are kept";
    for (int i = 0; i < n->n_in; i++)
        if ((n->in[i]->role == AF_ROLE_PARAM || n->in[i]->role == AF_ROLE_WEIGHT) &&
            n->in[i]->name[0] && !is_finite(t, n->in[i])) {
            snprintf(out, size, "%s", n->in[i]->name);
            return true;
        }
    for (int i = 0; i < n->n_out; i++) {
        const af_tensor *x = n->out[i], *root = x->base ? x->base : x;
        if (root->role != AF_ROLE_ACTIVATION || root->last <= kept || is_finite(t, x))
            continue;
        const char *op = af_ops[n->op]->name;
        if (weight)
            snprintf(out, size, "the output of %s (%s)%s", weight, op, more);
        else if (n->block >= 0)
            snprintf(out, size, "the output of %s in layer %d%s", op, n->block, more);
        else
            snprintf(out, size, "the output of %s%s", op, more);
        return true;
    }
    return false;
}

/* After a forward pass as a whole. */
static bool look_at_kept(af_trainer *t, char *out, size_t size)
{
    const af_graph *g = t->graph;
    int end = 0;
    while (end < g->n_nodes && g->nodes[end]->phase == AF_PHASE_FORWARD)
        end++;
    if (af_graph_run(t->graph, AF_RUN_FORWARD, NULL) != AF_OK)
        return false;
    for (int i = 0; i < end; i++)
        if (describe(t, g->nodes[i], end - 1, out, size))
            return true;
    return false;
}

/* The first bad tensor of the forward pass of the batch that is uploaded; false = none found. */
static bool walk_forward(af_trainer *t, char *out, size_t size)
{
    af_graph *g = t->graph;
    af_node **const nodes = g->nodes;
    const int n = g->n_nodes;
    bool found = false;
    if (!t->device->ops->host)
        return look_at_kept(t, out, size);
    const uint64_t clock = af_graph_clock(g); /* every node sees the dropout of the batch */
    g->n_nodes = 1;
    for (int i = 0; i < n && !found; i++) {
        g->nodes = nodes + i;
        af_graph_set_clock(g, clock);
        if (nodes[i]->phase == AF_PHASE_FORWARD && af_graph_run(g, AF_RUN_FORWARD, NULL) == AF_OK)
            found = describe(t, nodes[i], -1, out, size);
    }
    g->nodes = nodes;
    g->n_nodes = n;
    return found;
}

/* The largest magnitude of a gradient; NaN when one of its elements is none. */
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
static bool bad_gradient(af_trainer *t, char *out, size_t size, double *most, const char **whose,
                         af_error *err)
{
    *most = 0;
    *whose = "";
    for (int i = 0; i < t->graph->n_tensors; i++) {
        const af_tensor *p = t->graph->tensors[i];
        if (p->role != AF_ROLE_PARAM || !p->grad || p->base == NULL || !p->name[0])
            continue;
        float *v = af_calloc((uint64_t)af_count(p), sizeof *v);
        const bool read =
            v && af_tensor_read(t->graph, p->grad, v, af_tensor_bytes(p->grad), err) == AF_OK;
        const double m = read ? largest(v, af_count(p)) : 0;
        free(v);
        if (isnan(m)) {
            snprintf(out, size, "the gradient of %s", p->name);
            return true;
        }
        if (m > *most) {
            *most = m;
            *whose = p->name;
        }
    }
    return false;
}

typedef struct finding {
    char bad[256];
    af_buf text, json; /* "file:line" of the records, and their tokens */
} finding;

static void put_tokens(af_buf *b, const uint32_t *word, uint32_t n)
{
    af_buf_str(b, "\"input_ids\": [");
    for (uint32_t i = 0; i < n; i++)
        af_buf_printf(b, "%s%u", i ? "," : "", word[i] & ~AF_TOKEN_NO_LOSS);
    af_buf_str(b, "], \"labels\": [");
    for (uint32_t i = 0; i < n; i++)
        af_buf_printf(b, "%s%d", i ? "," : "", word[i] & AF_TOKEN_NO_LOSS ? -100 : (int)word[i]);
    af_buf_str(b, "]");
}

static void name_records(af_trainer *t, const af_batch *b, finding *f)
{
    enum { NAMED = 8 };
    for (int64_t i = 0; i < b->sequences; i++) {
        const af_token_index *e = &t->store.index[b->record[i]];
        const char *file = af_dataset_file(&t->store, (int)e->source);
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
        put_tokens(&f->json, af_token_words(&t->store, b->record[i]), e->count);
        af_buf_char(&f->json, '}');
    }
}

/* Repeats the micro-batches of the step until one shows what is bad. Where none does, the norm of
 * large gradients has overflowed: then it is the largest of them, and the records are those of the
 * whole step. */
static void repeat_step(af_trainer *t, const af_step_result *r, finding *f, af_error *err)
{
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    const uint64_t clock = af_graph_clock(t->graph) - (uint64_t)t->run->accumulation;
    double most = 0;
    const char *whose = "";
    const af_batch *b;
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        float loss = NAN;
        af_graph_set_clock(t->graph, clock + (uint64_t)k);
        if (af_stream_get(t->stream, t->progress.micro + k, &b, err) != AF_OK ||
            af_trainer_upload(t, b, scale, err) != AF_OK ||
            af_graph_run(t->graph, AF_RUN_GRAD, err) != AF_OK ||
            af_tensor_read(t->graph, t->loss, &loss, sizeof loss, err) != AF_OK)
            break;
        af_graph_set_clock(t->graph, clock + (uint64_t)k);
        if (!isfinite(loss) && !walk_forward(t, f->bad, sizeof f->bad))
            snprintf(f->bad, sizeof f->bad, "the loss");
        if (*f->bad || bad_gradient(t, f->bad, sizeof f->bad, &most, &whose, err)) {
            name_records(t, b, f);
            return;
        }
    }
    for (int64_t k = 0; k < t->run->accumulation; k++)
        if (af_stream_get(t->stream, t->progress.micro + k, &b, err) == AF_OK)
            name_records(t, b, f);
    if (*whose)
        snprintf(f->bad, sizeof f->bad, "the gradient of %s with elements up to %g", whose, most);
}

/* The run file of a run that comes to this step again. *checkpoint: where it starts, or NULL. */
static af_status write_replay_run(const af_trainer *t, const char *path, char **checkpoint,
                                  af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL, folder[4096];
    af_run_config again = *t->run;
    const af_run_config *r = t->run;
    AF_TRY(af_saver_wait(t->saver, err));
    AF_TRY(af_checkpoint_newest(t, r->output_dir, checkpoint, err));
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
    const af_status st = file.bad ? af_fail_nomem(err, path, file.len)
                                  : af_file_write(path, file.data, file.len, err);
    af_buf_clear(&file);
    return st;
}

af_status af_trainer_explain_nonfinite(af_trainer *t, const af_step_result *r, af_error *err)
{
    finding f = {0};
    char run[4096] = "", data[4096], *checkpoint = NULL;
    const int64_t step = t->progress.step + 1;
    repeat_step(t, r, &f, err);
    snprintf(run, sizeof run, "%s/replay-%" PRId64 ".yaml", t->run->output_dir, step);
    snprintf(data, sizeof data, "%s/replay-%" PRId64 ".json", t->run->output_dir, step);
    af_error why = {0};
    const bool left = write_replay_run(t, run, &checkpoint, &why) == AF_OK &&
                      write_replay_data(t, r, &f, data, &why) == AF_OK;
    af_fail(err, AF_EUSAGE,
            "step %" PRId64
            ": loss %g, gradient norm %g: the first bad tensor is %s, in a batch of %s; the last "
            "good checkpoint is %s; %s%s%s%s%s",
            step, r->loss, r->grad_norm, *f.bad ? f.bad : "not found again",
            f.text.data ? f.text.data : "?", checkpoint ? af_path_name(checkpoint) : "none yet",
            left ? "the batch is in " : why.msg, left ? data : "",
            left ? ", and 'afinar train " : "", left ? run : "", left ? "' comes here again" : "");
    af_buf_clear(&f.text);
    af_buf_clear(&f.json);
    free(checkpoint);
    return AF_EUSAGE;
}

af_status af_trainer_explain_eval(af_trainer *t, const af_batch *b, af_error *err)
{
    const af_token_store *store = t->eval_own_store ? &t->eval_store : &t->store;
    const af_token_index *e = &store->index[b->record[0]];
    char bad[256];
    if (!walk_forward(t, bad, sizeof bad))
        snprintf(bad, sizeof bad, "the loss");
    return af_fail(
        err, AF_EUSAGE,
        "step %" PRId64 ": the loss of an evaluation is not finite: the first bad tensor "
        "is %s, in %s:%" PRIu64 "; checkpoints are untouched",
        t->progress.step, bad, af_path_name(af_dataset_file(store, (int)e->source)), e->line);
}
