/* checkpoint.c - saving in the background, and loading.
 *
 * State in host memory is written by the thread without a copy: only an update changes it, and
 * the next update waits until it has been read (af_saver_wait_read). A GPU's is copied first. */
#include "train/checkpoint/checkpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/temps.h"
#include "dist/shards.h"
#include "format/weights/safetensors.h"
#include "graph/graph_access.h"
#include "model/arch/arch_disk.h"
#include "model/kept_tensors.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_files.h"
#include "train/checkpoint/run_folder.h"
#include "train/checkpoint/side_files.h"
#include "train/run/adapter_start.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

/* A tensor on the host: a copy, or the graph's own memory. */
typedef struct tensor_copy {
    char name[160];
    af_dtype dtype;
    int64_t dim[4];
    int ndim;
    void *data;
    uint64_t bytes;
    bool borrowed; /* data is the graph's, or inside that of the previous one */
} tensor_copy;

typedef struct tensor_copies {
    tensor_copy *item;
    int count, cap;
} tensor_copies;

struct af_saver {
    pthread_t thread;
    bool busy;
    pthread_mutex_t lock;
    pthread_cond_t read; /* `reading` became false */
    bool reading;        /* the graph's memory */
    bool failed;         /* the last write: `err` says why */
    af_error err;
    /* the snapshot */
    tensor_copies weights, state;
    const af_adapter *adapter;
    const af_model_reader *base;                /* of a whole model */
    const char *model, *chat_template, *labels; /* borrowed */
    char *progress, *trainer_state, *run_text;
    char *dir, *output, *keep; /* keep: the best checkpoint's folder, never removed */
    int64_t limit;
};

static void clear_copies(tensor_copies *c)
{
    for (int i = 0; i < c->count; i++)
        if (!c->item[i].borrowed)
            free(c->item[i].data);
    free(c->item);
    *c = (tensor_copies){0};
}

static af_status reserve(tensor_copies *c, int more, af_error *err)
{
    if (c->count + more <= c->cap)
        return AF_OK;
    const int cap = AF_MAX(c->cap * 2, c->count + more + 32);
    tensor_copy *p = af_realloc(c->item, (uint64_t)cap, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "a checkpoint", (uint64_t)cap * sizeof *p);
    c->item = p;
    c->cap = cap;
    return AF_OK;
}

/* A tensor that is split over ranks: rank 0 gets all of it, in `whole`; the others send. */
static af_status collect_pieces(const af_step_graph *g, const af_tensor *x, uint8_t *whole,
                                af_error *err)
{
    const int64_t *cut = af_tensor_cuts(x);
    uint8_t *mine = af_tensor_piece_view(x), *copy = NULL;
    uint64_t from, to;
    af_status st = AF_OK;
    af_tensor_piece(x, &from, &to);
    if (!mine && to > from) {
        mine = copy = malloc(to - from);
        if (!mine)
            return af_fail_nomem(err, "a checkpoint", to - from);
        AF_TRY(af_tensor_read_piece(g->graph, x, mine, err));
    }
    for (int r = 0; r < g->model->ranks; r++)
        AF_TRY(af_send_to_first(g->model->comm, r, mine, whole ? whole + cut[r] : NULL,
                                (uint64_t)(cut[r + 1] - cut[r]), err));
done:
    free(copy);
    return st;
}

static af_status add_copy(tensor_copies *c, const af_step_graph *g, const af_tensor *x,
                          const char *name, af_error *err)
{
    const af_status st = reserve(c, 1, err);
    if (st != AF_OK)
        return st;
    tensor_copy *e = &c->item[c->count];
    *e = (tensor_copy){.dtype = af_tensor_dtype(x),
                       .ndim = af_tensor_ndim(x),
                       .bytes = af_tensor_bytes(x),
                       .data = af_tensor_host_view(x)};
    snprintf(e->name, sizeof e->name, "%s", name);
    memcpy(e->dim, af_tensor_dims(x), (size_t)e->ndim * sizeof *e->dim);
    if (e->data) {
        e->borrowed = true;
        c->count++;
        return AF_OK;
    }
    e->data = malloc(AF_MAX(e->bytes, 1));
    if (!e->data)
        return af_fail_nomem(err, "a checkpoint", e->bytes);
    c->count++;
    return af_tensor_cuts(x) ? collect_pieces(g, x, e->data, err)
                             : af_tensor_read(g->graph, x, e->data, e->bytes, err);
}

/* A state that is split over ranks: rank 0 gets all of it, in `whole` when that is there. */
static af_status collect_state(const af_step_graph *g, const af_state_part *p, uint8_t *whole,
                               af_error *err)
{
    af_comm *comm = g->model->comm;
    const uint64_t size = (uint64_t)af_dtype_get(p->dtype)->bytes;
    const uint64_t bytes = p->t ? af_tensor_bytes(p->t) : 0;
    uint8_t *mine = p->t ? af_tensor_host_view(p->t) : NULL, *copy = NULL;
    af_status st = AF_OK;
    if (bytes && !mine) {
        mine = copy = malloc(bytes);
        if (!mine)
            return af_fail_nomem(err, "a checkpoint", bytes);
        AF_TRY(af_tensor_read(g->graph, p->t, mine, bytes, err));
    }
    for (int r = 0; r < af_comm_size(comm); r++) {
        int64_t from, count;
        af_graph_state_piece(g->graph, p, r, &from, &count);
        uint8_t *to = whole ? whole + (uint64_t)from * size : NULL;
        AF_TRY(af_send_to_first(comm, r, mine, to, (uint64_t)count * size, err));
    }
done:
    free(copy);
    return st;
}

/* On rank 0 into `c`; the others send. */
static af_status copy_split_state(tensor_copies *c, const af_step_graph *g, af_error *err)
{
    af_status st = AF_OK;
    const bool first = af_comm_rank(g->model->comm) == 0;
    for (const af_state_part *p = af_graph_states(g->graph); p && st == AF_OK; p = p->next) {
        uint8_t *whole = NULL;
        if (first) {
            AF_TRY(reserve(c, 1, err));
            tensor_copy *e = &c->item[c->count];
            *e = (tensor_copy){.dtype = p->dtype, .ndim = 1, .dim = {p->full}};
            e->bytes = (uint64_t)p->full * (uint64_t)af_dtype_get(p->dtype)->bytes;
            snprintf(e->name, sizeof e->name, "%d.%s", c->count, p->name);
            e->data = whole = malloc(AF_MAX(e->bytes, 1));
            if (!whole)
                return af_fail_nomem(err, "a checkpoint", e->bytes);
            c->count++;
        }
        st = collect_state(g, p, whole, err);
    }
done:
    return st;
}

af_status af_trained_send(const af_step_graph *g, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < g->model->spec->tensors && !g->model->adapter && st == AF_OK; i++)
        if (af_tensor_cuts(g->leaves.tensor[i]))
            st = collect_pieces(g, g->leaves.tensor[i], NULL, err);
    return st;
}

af_status af_checkpoint_send(const af_step_graph *g, af_error *err)
{
    const af_status st = af_trained_send(g, err);
    return st == AF_OK && af_checkpoint_is_split(g) ? copy_split_state(NULL, g, err) : st;
}

/* Optimizer moments and every other state, in the order they were recorded. */
static af_status copy_whole_state(tensor_copies *c, const af_step_graph *g, af_error *err)
{
    for (af_tensor *x = NULL; (x = af_graph_next(g->graph, AF_ROLE_STATE, x));) {
        char name[160];
        if (!af_tensor_is_stored(x))
            continue;
        snprintf(name, sizeof name, "%d.%s", c->count, af_tensor_name(x));
        const af_status st = add_copy(c, g, x, name, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* Values in the host's memory that do not change while they are written. */
static af_status borrow(tensor_copies *c, const char *name, const float *values, int64_t n,
                        af_error *err)
{
    tensor_copy e = {.dtype = AF_DTYPE_F32, .dim = {n}, .ndim = 1, .borrowed = true};
    e.data = (void *)values;
    e.bytes = (uint64_t)n * sizeof *values;
    snprintf(e.name, sizeof e.name, "%s", name);
    const af_status st = values ? reserve(c, 1, err) : AF_OK;
    if (st == AF_OK && values)
        c->item[c->count++] = e;
    return st;
}

static af_status copy_state(tensor_copies *c, const af_step_graph *g, af_error *err)
{
    const af_tensor *all = af_graph_flat_params(g->graph);
    af_status st =
        af_checkpoint_is_split(g) ? copy_split_state(c, g, err) : copy_whole_state(c, g, err);
    if (st == AF_OK)
        st = borrow(c, AF_CHECKPOINT_TAKEN, af_graph_taken(g->graph), af_tensor_count(all), err);
    return st == AF_OK ? borrow(c, AF_CHECKPOINT_REFERENCE, g->reference, g->reference_count, err)
                       : st;
}

/* Experts are one tensor here and one matrix each in folders: splits the last copy. What is one
 * there, too, may have other dimensions. */
static af_status split_last(tensor_copies *c, const af_model_spec *s, int tensor, af_error *err)
{
    const int n = af_disk_count(s, tensor);
    if (n == 1 && !af_disk_is_turned(s, tensor) && !af_disk_is_apart(s, tensor) &&
        !af_disk_has_axes(s, tensor) && !s->tensor[tensor].scalar)
        return AF_OK;
    const af_status st = reserve(c, n - 1, err);
    if (st != AF_OK)
        return st;
    tensor_copy whole = c->item[--c->count];
    if (af_disk_is_turned(s, tensor)) { /* another order of values there */
        void *data = af_disk_turned(s, tensor, whole.data, whole.dtype);
        if (!whole.borrowed)
            free(whole.data);
        if (!data)
            return af_fail_nomem(err, "a checkpoint", whole.bytes);
        whole.data = data;
        whole.borrowed = false;
    }
    for (int p = 0; p < n; p++) {
        tensor_copy *e = &c->item[c->count++];
        int64_t from;
        *e = (tensor_copy){.dtype = whole.dtype, .borrowed = whole.borrowed || p > 0};
        af_disk_piece(s, tensor, p, e->name, sizeof e->name, e->dim, &e->ndim, &from);
        const uint64_t size = (uint64_t)af_dtype_get(whole.dtype)->bytes;
        e->bytes = n == 1 ? whole.bytes : (uint64_t)(e->dim[0] * e->dim[1] * e->dim[2]) * size;
        e->data = (uint8_t *)whole.data + (uint64_t)from * size;
    }
    return AF_OK;
}

/* The whole model: trained tensors in f32, frozen ones as they are. */
static af_status copy_weights(tensor_copies *c, const af_step_graph *g, af_error *err)
{
    const af_model_spec *spec = g->model->spec;
    for (int i = 0; i < spec->tensors; i++) {
        char name[160];
        int64_t dim[AF_DISK_DIMS], from;
        int ndim;
        af_disk_piece(spec, i, 0, name, sizeof name, dim, &ndim, &from);
        af_status st = add_copy(c, g, g->leaves.tensor[i], name, err);
        if (st == AF_OK)
            st = split_last(c, spec, i, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* base: the tensors are those of this model, under its names, and what it has beside them. */
static af_status write_copies(const tensor_copies *c, const af_model_reader *base, const char *dir,
                              const char *file, af_error *err)
{
    char name[256];
    af_status st = AF_OK;
    af_safetensors_writer *w = NULL;
    char *path = af_path_join(dir, file);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_safetensors_writer_new(&w, path, 0, err));
    AF_TRY(af_safetensors_writer_meta(w, "format", "pt", err));
    for (int i = 0; i < c->count; i++) {
        const tensor_copy *e = &c->item[i];
        if (base)
            af_model_reader_disk_name(base, e->name, name, sizeof name);
        AF_TRY(af_safetensors_writer_add(w, base ? name : e->name, e->dtype, e->dim, e->ndim, err));
    }
    if (base)
        AF_TRY(af_kept_tensors_add(base, w, err));
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int i = 0; i < c->count; i++)
        AF_TRY(af_safetensors_writer_data(w, c->item[i].data, c->item[i].bytes, err));
    if (base)
        AF_TRY(af_kept_tensors_write(base, w, err));
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    if (w)
        af_safetensors_writer_abandon(w);
    free(path);
    return st;
}

/* Keeps the newest `limit` of the run. Checkpoints above the one just written were skipped or left
 * when the run resumed: they do not count. */
static af_status remove_old(const af_saver *s, af_error *err)
{
    char **names = NULL;
    int n = 0;
    if (s->limit <= 0)
        return AF_OK;
    af_status st = af_checkpoint_list(&names, &n, s->output, true, err);
    int keep = (int)AF_MIN(s->limit, INT32_MAX), best = -1, own = 0;
    while (own < n && af_checkpoint_step(names[own]) > af_checkpoint_step(af_path_name(s->dir)))
        own++;
    for (int i = own; i < n && s->keep; i++)
        best = strcmp(names[i], af_path_name(s->keep)) == 0 ? i : best;
    if (best - own >= keep && keep > 1) /* the best one counts, but never replaces the newest */
        keep--;
    for (int i = own + keep; i < n && st == AF_OK; i++) {
        char *path = i == best ? NULL : af_path_join(s->output, names[i]);
        if (path)
            st = af_checkpoint_remove(path, err);
        else if (i != best)
            st = af_fail_nomem(err, "a path", strlen(s->output));
        free(path);
    }
    af_names_free(names, n);
    return st;
}

static void end_reading(af_saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->reading = false;
    pthread_cond_broadcast(&s->read);
    pthread_mutex_unlock(&s->lock);
}

void af_saver_wait_read(af_saver *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->reading)
        pthread_cond_wait(&s->read, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* The adapter's files, by a thread of their own while the states are written. */
typedef struct adapter_part {
    pthread_t thread;
    bool runs;
    const af_adapter *adapter;
    const char *dir;
    af_status st;
    af_error err;
} adapter_part;

static void *adapter_main(void *arg)
{
    adapter_part *p = arg;
    p->st = af_start_write(p->adapter, p->dir, &p->err);
    return NULL;
}

static af_status write_values(af_saver *s, const char *tmp, af_error *err)
{
    af_status st = AF_OK;
    adapter_part part = {.adapter = s->adapter, .dir = tmp};
    part.runs = s->adapter && pthread_create(&part.thread, NULL, adapter_main, &part) == 0;
    if (s->adapter && !part.runs)
        AF_TRY(af_start_write(s->adapter, tmp, err));
    if (!s->adapter)
        AF_TRY(write_copies(&s->weights, s->base, tmp, "model.safetensors", err));
    st = write_copies(&s->state, NULL, tmp, "optimizer.safetensors", err);
    if (part.runs)
        pthread_join(part.thread, NULL);
    if (st == AF_OK && part.st != AF_OK)
        st = af_fail(err, part.st, "%s", part.err.msg);
done:
    return st;
}

static af_status write_all(af_saver *s, const char *tmp, af_error *err)
{
    af_status st = AF_OK;
    af_error no_tokenizer; /* reported at the end of the run */
    af_unsynced_dir *unsynced = NULL;
    AF_TRY(af_checkpoint_drop(tmp, s->dir, err));
    AF_TRY(af_dir_make(tmp, err));
    unsynced = af_unsynced_begin(tmp, AF_UNSYNCED_FILES);
    AF_TRY(write_values(s, tmp, err));
    end_reading(s);
    af_log_time("checkpoint: weights and states");
    /* a folder that opens as a model does, or as an adapter */
    AF_TRY(af_side_files_put(s->model, s->chat_template, s->labels, tmp, !s->adapter, &no_tokenizer,
                             err));
    AF_TRY(af_run_folder_write(tmp, "progress.json", s->progress, err));
    AF_TRY(af_run_folder_write(tmp, "trainer_state.json", s->trainer_state, err));
    AF_TRY(af_run_folder_write(tmp, "run.yaml", s->run_text, err));
    AF_TRY(af_manifest_write(tmp, err));
    af_log_time("checkpoint: texts and digests");
    st = af_unsynced_end(unsynced, false, err);
    unsynced = NULL;
    af_log_time("checkpoint: on the disk");
    if (st == AF_OK)
        st = af_checkpoint_replace(tmp, s->dir, err);
    if (st == AF_OK)
        st = remove_old(s, err);
done:
    (void)!af_unsynced_end(unsynced, true, NULL);
    return st;
}

static void *saver_main(void *arg)
{
    af_saver *s = arg;
    char tmp[4096];
    snprintf(tmp, sizeof tmp, "%s.tmp", s->dir);
    af_log_time(NULL);
    if (write_all(s, tmp, &s->err) != AF_OK) {
        af_error ignored;
        pthread_mutex_lock(&s->lock);
        s->failed = true;
        pthread_mutex_unlock(&s->lock);
        end_reading(s);
        (void)!af_checkpoint_drop(tmp, s->dir, &ignored); /* it may be the old one by now */
    }
    return NULL;
}

bool af_saver_failed(af_saver *s)
{
    if (!s || !s->busy)
        return false;
    pthread_mutex_lock(&s->lock);
    const bool failed = s->failed;
    pthread_mutex_unlock(&s->lock);
    return failed;
}

af_status af_saver_new(af_saver **out, af_error *err)
{
    af_saver *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the checkpoint writer", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->read, NULL);
    *out = s;
    return AF_OK;
}

static void clear_snapshot(af_saver *s)
{
    clear_copies(&s->weights);
    clear_copies(&s->state);
    free(s->progress);
    free(s->trainer_state);
    free(s->run_text);
    free(s->dir);
    free(s->output);
    free(s->keep);
    s->progress = s->trainer_state = s->run_text = s->dir = s->output = s->keep = NULL;
}

af_status af_saver_wait(af_saver *s, af_error *err)
{
    if (!s || !s->busy)
        return AF_OK;
    pthread_join(s->thread, NULL);
    s->busy = false;
    clear_snapshot(s);
    return s->failed ? af_fail(err, s->err.code, "the checkpoint was not written: %s", s->err.msg)
                     : AF_OK;
}

static af_status snapshot(af_saver *s, const af_checkpoint_source *from, af_error *err)
{
    af_status st = AF_OK;
    char name[64];
    const af_step_graph *g = from->step;
    const af_run_progress *p = from->progress;
    const af_run_config *run = g->run;
    snprintf(name, sizeof name, "checkpoint-%" PRId64, p->step);
    if (g->model->adapter) {
        AF_TRY(af_adapter_download(g->model->adapter, &g->leaves, err));
        s->adapter = g->model->adapter;
    } else {
        AF_TRY(copy_weights(&s->weights, g, err));
        s->base = g->model->loader->reader;
    }
    AF_TRY(copy_state(&s->state, g, err));
    AF_TRY(af_run_progress_text(p, af_graph_clock(g->graph), &s->progress, err));
    AF_TRY(af_run_config_text(run, &s->run_text, err));
    s->limit = run->save_total_limit;
    s->model = g->model->texts;
    s->labels = g->model->labels;
    s->chat_template = from->chat_template;
    s->trainer_state = af_strdup(from->trainer_state);
    s->output = af_strdup(run->output_dir);
    s->dir = af_path_join(run->output_dir, name);
    if (run->load_best && p->best_step > 0) {
        snprintf(name, sizeof name, "checkpoint-%" PRId64, p->best_step);
        s->keep = af_path_join(run->output_dir, name);
    }
    if (!s->output || !s->dir || !s->trainer_state)
        st = af_fail_nomem(err, "a path", strlen(name));
done:
    return st;
}

af_status af_saver_save(af_saver *s, const af_checkpoint_source *from, af_error *err)
{
    af_status st = af_saver_wait(s, err);
    if (st != AF_OK)
        return st;
    st = snapshot(s, from, err);
    af_log_time("checkpoint: copy of a device's memory");
    s->reading = st == AF_OK;
    s->failed = false;
    if (st == AF_OK && pthread_create(&s->thread, NULL, saver_main, s) != 0)
        st = af_fail(err, AF_EIO,
                     "cannot start a thread to write the checkpoint: not enough memory, or too "
                     "many threads");
    s->busy = st == AF_OK;
    if (st != AF_OK) {
        s->reading = false;
        clear_snapshot(s);
    }
    return st;
}

void af_saver_free(af_saver *s)
{
    af_error ignored;
    if (!s)
        return;
    (void)!af_saver_wait(s, &ignored);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->read);
    free(s);
}

af_status af_checkpoint_copy_model(const char *checkpoint, const char *dir, af_error *err)
{
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "model.safetensors"};
    af_status st = AF_OK;
    bool any = false;
    for (size_t i = 0; i < AF_LEN(files) && st == AF_OK; i++) {
        char *path = af_path_join(checkpoint, files[i]);
        if (!path)
            return af_fail_nomem(err, "a path", strlen(checkpoint));
        any |= i > 0 && af_file_exists(path);
        free(path);
        st = af_file_copy_into(checkpoint, dir, files[i], err);
    }
    return st != AF_OK || any ? st : af_fail(err, AF_EIO, "'%s' has no weights", checkpoint);
}

static af_status write_trained(const af_step_graph *step, const char *dir, af_error *err)
{
    af_adapter *a = step->model->adapter;
    if (a) {
        const af_status st = af_adapter_download(a, &step->leaves, err);
        return st == AF_OK ? af_start_write(a, dir, err) : st;
    }
    tensor_copies c = {0};
    af_status st = copy_weights(&c, step, err);
    if (st == AF_OK)
        st = write_copies(&c, step->model->loader->reader, dir, "model.safetensors", err);
    clear_copies(&c);
    return st;
}

af_status af_trained_write(const af_step_graph *step, const char *dir, af_error *err)
{
    if (!step->graph || af_graph_taken(step->graph))
        return write_trained(step, dir, err);
    af_status st = af_graph_average(step->graph, true, err);
    if (st == AF_OK)
        st = write_trained(step, dir, err);
    const af_status back = af_graph_average(step->graph, false, st == AF_OK ? err : NULL);
    return st == AF_OK ? back : st;
}
