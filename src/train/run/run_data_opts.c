/* run_data_opts.c - see run_data_opts.h. */
#include "train/run/run_data_opts.h"

af_data_opts af_run_data_opts(const af_run_config *run, const char *model)
{
    return (af_data_opts){
        .datasets = run->datasets,
        .run_path = run->path,
        .model = model,
        .chat_template = run->chat_template,
        .template_variables = run->chat_template_kwargs,
        .turn_template = run->turn_template,
        .default_system = run->default_system,
        .mask_history = run->mask_history,
        .mask_empty_thoughts = run->mask_empty_thoughts,
        .split_turns = run->split_turns,
        .no_thinking = !run->enable_thinking,
        .dataset_dir = run->dataset_dir,
        .eot_tokens = run->eot_tokens.item,
        .eot_count = run->eot_tokens.count,
        .min_sample_len = run->min_sample_len,
        .deduplicate = run->deduplicate,
        .train_on_inputs = run->train_on_inputs != AF_TRI_NO,
        .completion_apart = run->train_on_inputs == AF_TRI_AUTO,
        .roles = run->roles_to_train.item,
        .role_count = run->roles_to_train.count,
        .train_on_eos = run->train_on_eos,
        .pretraining = run->stage == AF_STAGE_PRETRAINING,
        .join_texts = run->stage == AF_STAGE_PRETRAINING && run->packing,
        .rl = af_run_rl(run),
        .labels = af_run_labels(run),
        .mix = run->mix,
        .mix_probs = run->interleave_probs.item,
        .mix_prob_count = run->interleave_probs.count,
        .excess = run->excess,
        .sequence_len = run->sequence_len,
        .keep_end = af_run_keeps_end(run),
        .max_prompt_len = run->max_prompt_len,
        .max_samples = run->max_samples,
        .seed = (uint64_t)run->seed,
    };
}
