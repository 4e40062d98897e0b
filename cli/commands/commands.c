/* commands.c - the table of subcommands, in the order a person meets them. */
#include "commands/commands.h"

const af_command af_commands[] = {
    {"train", "train a model from a run file", cmd_train},
    {"init", "write a run file for a model and a dataset", cmd_init},
    {"plan", "say what a run needs, and what fits", cmd_plan},
    {"eval", "loss, perplexity and accuracy over a dataset", cmd_eval},
    {"generate", "continue a prompt", cmd_generate},
    {"chat", "talk with a model", cmd_chat},
    {"logits", "logits of token rows", cmd_logits},
    {"data", "show and check the datasets of a run", cmd_data},
    {"tokenize", "text to token ids and back", cmd_tokenize},
    {"template", "render conversations with a chat template", cmd_template},
    {"export", "write GGUF for llama.cpp and Ollama, or read it back", cmd_export},
    {"merge", "merge models, or adapters into their base", cmd_merge},
    {"quantize", "write a model with fewer bits a weight", cmd_quantize},
    {"inspect", "what is in a model, adapter or checkpoint", cmd_inspect},
    {"bench", "time training steps of a known shape", cmd_bench},
    {"doctor", "what this machine offers, and what is missing", cmd_doctor},
    {0},
};
