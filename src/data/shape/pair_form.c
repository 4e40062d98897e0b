/* pair_form.c - see pair_form.h. */
#include "data/shape/pair_form.h"

static const af_pair_style chatml = {"<|im_start|>", "\n", "<|im_end|>\n", "<|im_end|>"};
static const af_pair_style llama3 = {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>",
                                     "<|eot_id|>"};

static const af_pair_form pairs[] = {
    {.type = "chatml.default", .kind = AF_FORM_ANY_FIELD, .style = &chatml},
    {.type = "chatml.argilla_chat", .kind = AF_FORM_TWO_TURNS, .style = &chatml},
    {.type = "chatml.icr", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "input"},
    {.type = "chatml.intel", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "question"},
    {.type = "chatml.prompt_pairs", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "prompt"},
    {.type = "chatml.ultra", .kind = AF_FORM_ANSWERS, .style = &chatml, .prompt = "prompt"},
    {.type = "llama3.default", .kind = AF_FORM_ANY_FIELD, .style = &llama3},
    {.type = "llama3.argilla_chat", .kind = AF_FORM_TWO_TURNS, .style = &llama3},
    {.type = "llama3.icr", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "input"},
    {.type = "llama3.intel", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "question"},
    {.type = "llama3.prompt_pairs", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "prompt"},
    {.type = "llama3.ultra", .kind = AF_FORM_ANSWERS, .style = &llama3, .prompt = "prompt"},
    {.type = "zephyr.nectar", .kind = AF_FORM_RANKS, .prompt = "prompt"},
    {.type = "passthrough.default", .kind = AF_FORM_AS_IS},
    {.type = "chat_template.default", .kind = AF_FORM_LAST},
    {.type = "chat_template.argilla_chat", .kind = AF_FORM_WHOLE},
    {.type = "bradley_terry.chat_template.default", .kind = AF_FORM_MESSAGES, .prompt = "input"},
    {.type = "bradley_terry.llama3.icr",
     .kind = AF_FORM_FIELD,
     .style = &llama3,
     .prompt = "input"},
    {0},
};

static const af_pair_form labelled[] = {
    {.type = "chatml.argilla", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "instruction"},
    {.type = "chatml.argilla_chat", .kind = AF_FORM_HISTORY, .style = &chatml},
    {.type = "chatml.intel", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "question"},
    {.type = "chatml.prompt_pairs", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "prompt"},
    {.type = "chatml.ultra", .kind = AF_FORM_FIELD, .style = &chatml, .prompt = "prompt"},
    {.type = "llama3.argilla", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "instruction"},
    {.type = "llama3.argilla_chat", .kind = AF_FORM_HISTORY, .style = &llama3},
    {.type = "llama3.intel", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "question"},
    {.type = "llama3.prompt_pairs", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "prompt"},
    {.type = "llama3.ultra", .kind = AF_FORM_FIELD, .style = &llama3, .prompt = "prompt"},
    {0},
};

static const af_pair_form odds_ratio[] = {
    {.type = "chat_template.argilla", .kind = AF_FORM_ORPO},
    {0},
};

static const af_pair_form *find(const af_pair_form *list, const char *type)
{
    const size_t n = strlen(type);
    const bool bare = !strchr(type, '.');
    for (; list->type; list++)
        if (strncmp(list->type, type, n) == 0 &&
            strcmp(list->type + n, bare ? ".default" : "") == 0)
            return list;
    return NULL;
}

const af_pair_form *af_pair_form_find(const char *type, af_rl rl)
{
    if (rl == AF_RL_NONE)
        return NULL;
    if (rl == AF_RL_KTO)
        return find(labelled, type);
    const af_pair_form *f = find(odds_ratio, type);
    return f && rl == AF_RL_ORPO ? f : find(pairs, type);
}

const char *af_rl_name(af_rl rl)
{
    static const char *const names[] = {"none",  "dpo", "ipo",    "kto",   "orpo",
                                        "simpo", "cpo", "reward", "labels"};
    return names[rl];
}
