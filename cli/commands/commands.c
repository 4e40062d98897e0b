/* commands.c - the table of subcommands, in the order a new user needs them. */
#include "commands/commands.h"

const af_command af_commands[] = {
    {"train", "train a model from a run file", cmd_train},
    {"init", "write a run file for a model and a dataset", cmd_init},
    {"plan", "show what a run needs and what fits into memory", cmd_plan},
    {"eval", "compute loss, perplexity and accuracy on a dataset", cmd_eval},
    {"generate", "generate text from a prompt", cmd_generate},
    {"chat", "chat with a model in the terminal", cmd_chat},
    {"serve", "serve a model over HTTP with the endpoints of OpenAI", cmd_serve},
    {"classify", "label texts with a trained classifier or reward model", cmd_classify},
    {"logits", "compute the logits of token sequences", cmd_logits},
    {"data", "preview and check the datasets of a run", cmd_data},
    {"distill", "capture the distributions of a teacher for training", cmd_distill},
    {"tokenize", "convert text to token ids and back", cmd_tokenize},
    {"template", "render conversations with a chat template", cmd_template},
    {"export", "export to GGUF for llama.cpp and Ollama, or import from it", cmd_export},
    {"merge", "merge models, or merge adapters into their base model", cmd_merge},
    {"quantize", "quantize a model's weights", cmd_quantize},
    {"pull", "download a model or a dataset from the hub", cmd_pull},
    {"push", "upload an adapter or a model to the hub", cmd_push},
    {"inspect", "show the contents of a model, adapter or checkpoint", cmd_inspect},
    {"bench", "measure the speed of training steps", cmd_bench},
    {"doctor", "show what this machine supports and what is missing", cmd_doctor},
    {"version", "print the version", cmd_version},
    {0},
};
