/* run_output.c - see run_output.h. */
#include "train/trainer/run_output.h"
#include "base/cache_file.h"
#include "base/file.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/run_files.h"

#include <math.h>
#include <unistd.h>

af_status af_run_output_open(af_run_output *o, const af_run_config *run,
                             const af_train_hooks *hooks, char **checkpoint, bool *own,
                             af_error *err)
{
    af_status st = AF_OK;
    *o = (af_run_output){.dir = run->output_dir};
    AF_TRY(af_saver_new(&o->saver, err));
    AF_TRY(af_run_lock_take(&o->lock, o->dir, err));
    st = af_run_folder_choose(run, hooks, checkpoint, own, err);
done:
    return st;
}

af_status af_run_output_create(af_run_output *o, const af_run_config *run,
                               af_run_progress *progress, double flops, const af_train_hooks *hooks,
                               const char *checkpoint, bool own, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    bool listed = false;
    const bool absent = !af_dir_exists(o->dir), resumes = checkpoint && own;
    AF_TRY(af_dir_make(o->dir, err));
    AF_TRY(af_run_lock_take(&o->lock, o->dir, err)); /* another run may have made it meanwhile */
    o->created = absent;
    if (resumes && !af_run_files_any(o->dir))
        AF_TRY(af_run_files_adopt(o->dir, err));
    AF_TRY(af_run_files_check_names(o->dir, resumes ? progress->step : 0, progress->steps, err));
    AF_TRY(af_run_folder_clear(o->dir, resumes, own, err));
    if (resumes)
        AF_TRY(af_run_folder_rename_later(run, progress->step, hooks, err));
    AF_TRY(af_run_files_claim_start(o->dir, err));
    AF_TRY(af_metrics_open(&o->metrics, run, progress, flops, checkpoint, hooks, err));
    AF_TRY(af_run_files_add(o->dir, af_path_name(o->metrics.events_path), err));
    listed = true;
    AF_TRY(af_run_config_text(run, &text, err));
    AF_TRY(af_run_folder_write(o->dir, "run.yaml", text, err));
    st = af_run_files_seal(o->dir, false, err);
done:
    if (st != AF_OK && !listed && o->metrics.events_path)
        (void)!af_path_remove(o->metrics.events_path, NULL); /* or it would look like the user's */
    free(text);
    return st;
}

/* Checkpoints that the run still writes, with the one at its end. Better evaluations may add some.
 */
static int64_t saves_left(const af_run_config *run, const af_run_progress *p)
{
    const int64_t every = af_run_progress_every(p, run->save_steps);
    const double items = (double)(p->micro_per_step * p->items_per_micro);
    const double epochs = (double)(p->steps - p->step) * items / (double)p->items_per_epoch;
    const int64_t last = run->save_strategy == AF_WHEN_NO ? 0 : 1;
    if (run->saves_per_epoch > 0) /* but for the one that the end is */
        return (int64_t)ceil(epochs * (double)run->saves_per_epoch) - 1 + last;
    return every > 0 ? (p->steps - 1) / every - p->step / every + last : last;
}

af_status af_run_output_check_room(const af_run_output *o, const af_step_graph *g, bool best,
                                   af_error *err)
{
    const bool none = g->run->save_strategy == AF_WHEN_NO;
    const uint64_t checkpoints = (none ? 0 : 1) + (best ? 1 : 0);
    static const char *const what[] = {"the result", "a checkpoint with the result",
                                       "two checkpoints with the result"};
    return af_disk_check(o->dir, what[checkpoints],
                         checkpoints * af_checkpoint_bytes(g) + af_trained_bytes(g), err);
}

void af_run_output_warn_room(const af_run_output *o, const af_step_graph *g,
                             const af_run_progress *p, const af_train_hooks *hooks)
{
    char **names = NULL, what[100];
    int there = 0;
    af_error why;
    const int64_t limit = g->run->save_total_limit;
    int64_t more = saves_left(g->run, p);
    if (limit > 0 && af_checkpoint_list(&names, &there, o->dir, true, &why) == AF_OK)
        more = AF_MIN(more, AF_MAX(limit - there, 0) + 1); /* one goes when the next is complete */
    af_names_free(names, there);
    snprintf(what, sizeof what, "the result with %" PRId64 " checkpoints at a time", more);
    const uint64_t bytes = (uint64_t)more * af_checkpoint_bytes(g) + af_trained_bytes(g);
    if (more > 1 && af_disk_check(o->dir, what, bytes, &why) != AF_OK)
        af_run_warn(hooks, "%s: the run ends with an error when it is full%s", why.msg,
                    limit ? "" : " (save_total_limit: N keeps the newest)");
}

void af_run_output_discard(af_run_output *o)
{
    if (o->created && af_dir_exists(o->dir) && af_run_files_remove(o->dir, false, NULL) == AF_OK)
        (void)!rmdir(o->dir); /* when nothing else is in it */
}

void af_run_output_close(af_run_output *o)
{
    af_saver_free(o->saver);
    af_metrics_close(&o->metrics);
    af_run_lock_release(&o->lock);
    *o = (af_run_output){0};
}
