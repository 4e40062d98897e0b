/* setting_warnings.c - see setting_warnings.h. */
#include "train/step/setting_warnings.h"
#include "afinar/chat.h"
#include "base/log.h"
#include "train/run/freeze.h"

static int64_t default_length(void)
{
    af_run_config fresh = {0};
    const bool made = af_run_config_init(&fresh, "defaults", NULL) == AF_OK;
    const int64_t length = made ? fresh.sequence_len : 0;
    af_run_config_clear(&fresh);
    return length;
}

/* The default is not a choice, also where the effective run file of another run repeats it. */
static void warn_length(const af_run_model *m)
{
    const af_run_config *r = m->run;
    const int64_t context = af_spec_context(m->spec);
    char at[300];
    if (context > 0 && r->sequence_len > context && r->sequence_len != default_length() &&
        r->sequence_len < AF_SEQUENCE_UNLIMITED)
        af_log_write(AF_LOG_WARN,
                     "%s: sequence_len %" PRId64 " is beyond the model's context of %" PRId64
                     " tokens: it has not learned the positions after that",
                     af_run_key_loc(r, "sequence_len", at, sizeof at), r->sequence_len, context);
}

/* The usual rates of Adam and its relatives; a factor of ten more or less is still no mistake.
 * Other optimizers have other scales: sgd and muon much larger ones. */
static bool usual_rates(const af_run_config *r, double *low, double *high)
{
    const bool full = af_method_trains_base(r);
    *low = full ? 1e-6 : 1e-5;
    *high = full ? 1e-4 : 1e-3;
    switch (r->optimizer) {
    case AF_OPTIMIZER_ADAM:
    case AF_OPTIMIZER_ADAMW:
    case AF_OPTIMIZER_ADAMW_8BIT:
    case AF_OPTIMIZER_ADAMW_TORCH_8BIT:
    case AF_OPTIMIZER_ADAMW_4BIT:
    case AF_OPTIMIZER_ADEMAMIX:
    case AF_OPTIMIZER_ADEMAMIX_8BIT:
    case AF_OPTIMIZER_ADAM_MINI:
    case AF_OPTIMIZER_NADAM:
    case AF_OPTIMIZER_RADAM:
    case AF_OPTIMIZER_ADOPT:
    case AF_OPTIMIZER_STABLE_ADAMW:
    case AF_OPTIMIZER_FREE_ADAMW:
    case AF_OPTIMIZER_FREE_RADAM:
        return true;
    default:
        return false;
    }
}

static void warn_rate(const af_run_model *m)
{
    const af_run_config *r = m->run;
    double low, high;
    char at[300];
    if (!usual_rates(r, &low, &high) ||
        (r->learning_rate <= high * 10 && r->learning_rate >= low / 10))
        return;
    af_log_write(AF_LOG_WARN, "%s: learning_rate %g is far %s the usual %g to %g of %s",
                 af_run_key_loc(r, "learning_rate", at, sizeof at), r->learning_rate,
                 r->learning_rate > high ? "above" : "below", low, high,
                 r->method == AF_METHOD_FULL     ? "full fine-tuning"
                 : r->method == AF_METHOD_FREEZE ? "trained layers"
                                                 : "adapters");
}

/* A rate for embeddings of an adapter that has none. */
static void warn_embedding_rate(const af_run_model *m)
{
    const af_adapter *a = m->adapter;
    const char *key = m->run->embedding_lr > 0         ? "embedding_lr"
                      : m->run->embedding_lr_scale > 0 ? "embedding_lr_scale"
                                                       : NULL;
    char at[300];
    if (!key || !a || m->spec->labels || a->config.save_count ||
        a->module[m->spec->embed_module].rank || a->module[m->spec->head_module].rank)
        return;
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (a->tokens[k].count)
            return;
    af_log_write(AF_LOG_WARN,
                 "%s: %s has no effect: the adapter trains no embedding, no head and no "
                 "lora_modules_to_save",
                 af_run_key_loc(m->run, key, at, sizeof at), key);
}

void af_warn_settings(const af_run_model *m)
{
    warn_length(m);
    warn_rate(m);
    warn_embedding_rate(m);
}

static void warn_cut(const af_run_config *run, const af_data_counts *c)
{
    const int64_t read = c->records + c->nothing_to_learn + c->dropped;
    char at[300];
    af_run_key_loc(run, "sequence_len", at, sizeof at);
    if (c->truncated * 2 > read)
        af_log_write(AF_LOG_WARN,
                     "%s: %" PRId64 " of %" PRId64 " records are cut at sequence_len %" PRId64
                     ", and %" PRId64 " of them lose their end-of-turn token: raise sequence_len, "
                     "or set excess_length_strategy: drop",
                     at, c->truncated, read, run->sequence_len, c->lost_eot);
    if (c->dropped * 2 > read)
        af_log_write(AF_LOG_WARN,
                     "%s: %" PRId64 " of %" PRId64 " records are longer than sequence_len %" PRId64
                     " and dropped",
                     at, c->dropped, read, run->sequence_len);
}

void af_warn_data(const af_run_config *run, const char *model, const af_data_counts *c)
{
    af_template *own = NULL;
    warn_cut(run, c);
    if (c->of_pairs == 0 || af_template_open(&own, model, NULL) != AF_OK)
        return;
    af_log_write(AF_LOG_WARN,
                 "%" PRId64 " records are prompts and completions joined as they are, but this "
                 "model has a chat template: name the fields field_instruction and field_output "
                 "to use it (see 'afinar data preview')",
                 c->of_pairs);
    af_template_close(own);
}
