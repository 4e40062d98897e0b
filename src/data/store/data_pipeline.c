/* data_pipeline.c - what the datasets of a run are read with: sources, tokenizer, renderers. */
#include "base/file.h"
#include "base/log.h"
#include "data/store/dataset_reader.h"
#include "data/store/interleave.h"
#include "data/store/record_pick.h"

/* Files of a folder that are not read are named by their number, once. */
static void warn_of_held_out_files(const af_data_source *s, const char *run_path)
{
    char **files = NULL;
    int n = 0, held_out = 0;
    if (af_data_source_files(s, run_path, &files, &n, &held_out, NULL) == AF_OK && held_out)
        af_log_write(AF_LOG_WARN,
                     "%s: %d of %d files belong to splits other than train and are skipped; "
                     "set 'split' to choose one",
                     s->path, held_out, n + held_out);
    af_names_free(files, n);
}

/* Those that the template has; of the others a warning is given once. */
static af_status add_eot_tokens(af_renderer *r, const af_data_opts *o, bool first, af_error *err)
{
    const char *source = r->chat ? af_template_source(r->chat, NULL) : NULL;
    af_status st = AF_OK;
    for (int i = 0; i < o->eot_count && source && st == AF_OK; i++) {
        const char *eos = af_tokenizer_eos_text(r->tokenizer);
        const bool there =
            strstr(source, o->eot_tokens[i]) || (eos && strcmp(eos, o->eot_tokens[i]) == 0);
        if (there)
            st = af_renderer_add_eot(r, o->eot_tokens[i], strlen(o->eot_tokens[i]), err);
        else if (first)
            af_log_write(AF_LOG_WARN, "eot_tokens: the chat template has no %s", o->eot_tokens[i]);
    }
    return st;
}

static bool has_template(const char *model)
{
    af_template *t = NULL;
    const bool there = af_template_open(&t, model, NULL) == AF_OK;
    af_template_close(t);
    return there;
}

af_status af_data_pipeline_open(af_data_pipeline *k, const af_data_opts *o, af_error *err)
{
    af_status st = AF_OK;
    *k = (af_data_pipeline){.o = o};
    AF_TRY(af_data_sources_read(&k->source, &k->sources, o, &k->mem, err));
    AF_TRY(af_record_pick_fractions(k->source, k->sources, o->run_path, err));
    for (int i = 0; i < k->sources; i++)
        k->datasets += !k->source[i].continued;
    AF_TRY(af_interleave_probs(&k->mix_probs, o, k->datasets, &k->mem, err));
    k->renderer = af_arena_take(&k->mem, (uint64_t)k->sources * sizeof *k->renderer);
    if (!k->renderer) {
        st = af_fail_nomem(err, "datasets", 0);
        goto done;
    }
    /* token ids need no tokenizer: a missing one is reported when it is needed */
    if (af_tokenizer_open(&k->tokenizer, o->model, &k->why) != AF_OK)
        k->tokenizer = NULL;
    for (int i = 0; i < k->sources; i++) {
        const char *requested = k->source[i].chat_template;
        af_data_opts turns = *o;
        if (k->source[i].listed && !o->turn_template && !o->chat_template &&
            !has_template(o->model))
            turns.turn_template = "empty"; /* as LLaMA-Factory does */
        if (turns.turn_template && !requested)
            AF_TRY(af_renderer_init_turns(&k->renderer[i], k->tokenizer, &turns, err));
        else
            AF_TRY(af_renderer_init(&k->renderer[i], k->tokenizer, o->model,
                                    requested ? requested : o->chat_template, err));
        k->source[i].line_calls =
            k->renderer[i].chat && af_template_mentions(k->renderer[i].chat, "function_calls");
        k->renderer[i].mask_history = o->mask_history;
        k->renderer[i].mask_empty_thoughts = o->mask_empty_thoughts;
        k->renderer[i].split_turns = o->split_turns;
        AF_TRY(af_renderer_set_variables(&k->renderer[i], o->template_variables, err));
        AF_TRY(add_eot_tokens(&k->renderer[i], o, i == 0, err));
        warn_of_held_out_files(&k->source[i], o->run_path);
    }
done:
    if (st != AF_OK)
        af_data_pipeline_close(k);
    return st;
}

void af_data_pipeline_close(af_data_pipeline *k)
{
    for (int i = 0; k->renderer && i < k->sources; i++)
        af_renderer_clear(&k->renderer[i]);
    af_tokenizer_close(k->tokenizer);
    af_arena_clear(&k->mem);
    *k = (af_data_pipeline){0};
}
