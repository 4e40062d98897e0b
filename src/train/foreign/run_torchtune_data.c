/* run_torchtune_data.c - datasets and tokenizers of torchtune's run files.
 *
 * Its tokenizers write the turns of a conversation themselves. Those of newer models do it with
 * marks, as a built-in chat template does; those of Llama 2, Mistral and Gemma join the contents,
 * unless a prompt_template gives them texts around. */
#include "base/buf.h"
#include "train/foreign/run_torchtune.h"
#include "train/run/run_config.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

typedef enum tune_records { ALPACA, INSTRUCT, CHAT, TEXT, PAIR, QUESTION_PAIR } tune_records;

typedef struct tune_dataset {
    const char *component;
    tune_records records;
    const char *source;   /* NULL: the file names it */
    const char *field[3]; /* what column_map or another argument names, and its usual name */
    const char *column[3];
    const char *folder; /* inside the source, or NULL */
    const char *known;  /* arguments of its own, with blanks around */
} tune_dataset;

#define TURNS " column_map train_on_input new_system_prompt packed max_seq_len "
#define QA    .field = {"input", "output"}
#define TEXTS .field = {"column"}, .known = " column add_eos packed split_across_pack max_seq_len "
static const tune_dataset datasets[] = {
    {"alpaca_dataset",
     ALPACA,
     "tatsu-lab/alpaca",
     {"instruction", "input", "output"},
     {"instruction", "input", "output"},
     NULL,
     TURNS},
    {"alpaca_cleaned_dataset",
     ALPACA,
     "yahma/alpaca-cleaned",
     {"instruction", "input", "output"},
     {"instruction", "input", "output"},
     NULL,
     TURNS},
    {"instruct_dataset", INSTRUCT, NULL, QA, .column = {"input", "output"}, .known = TURNS},
    {"grammar_dataset", INSTRUCT, "liweili/c4_200m", QA, .column = {"input", "output"},
     .known = TURNS},
    {"samsum_dataset", INSTRUCT, "Samsung/samsum", QA, .column = {"dialogue", "summary"},
     .known = TURNS},
    {"chat_dataset",
     CHAT,
     NULL,
     {"conversation_column"},
     {"conversations"},
     NULL,
     TURNS "conversation_column conversation_style "},
    {"slimorca_dataset",
     CHAT,
     "Open-Orca/SlimOrca-Dedup",
     {"conversations"},
     {"conversations"},
     NULL,
     TURNS},
    {"text_completion_dataset", TEXT, NULL, TEXTS, .column = {"text"}},
    {"wikitext_dataset", TEXT, "EleutherAI/wikitext_document_level", TEXTS, .column = {"page"},
     .folder = "wikitext-103-v1"},
    {"cnn_dailymail_articles_dataset", TEXT, "ccdv/cnn_dailymail", TEXTS, .column = {"article"},
     .folder = "3.0.0"},
    {"preference_dataset", PAIR, NULL, {"chosen", "rejected"}, {"chosen", "rejected"}, NULL, TURNS},
    {"hh_rlhf_helpful_dataset",
     PAIR,
     "RLHFlow/HH-RLHF-Helpful-standard",
     {"chosen", "rejected"},
     {"chosen", "rejected"},
     NULL,
     TURNS},
    {"stack_exchange_paired_dataset",
     QUESTION_PAIR,
     "lvwerra/stack-exchange-paired",
     {"prompt", "chosen", "rejected"},
     {"question", "response_j", "response_k"},
     "data/rl",
     TURNS},
};

static const tune_dataset *find_dataset(const af_yaml *n)
{
    for (size_t i = 0; i < AF_LEN(datasets); i++)
        if (is(datasets[i].component, af_torchtune_component(n)))
            return &datasets[i];
    return NULL;
}

/* ---- tokenizers ---- */

static const struct {
    const char *component, *template; /* "" = that of the model */
} tokenizers[] = {{"llama3_tokenizer", "llama3"},   {"qwen2_tokenizer", "chatml"},
                  {"qwen2_5_tokenizer", "chatml"},  {"phi3_mini_tokenizer", "phi_3"},
                  {"phi4_tokenizer", "phi_4"},      {"qwen3_tokenizer", ""},
                  {"HuggingFaceModelTokenizer", ""}};

/* The template whose turns are those of the tokenizer; NULL: it joins texts. */
static const char *template_of(const af_yaml *root)
{
    for (size_t i = 0; i < AF_LEN(tokenizers); i++)
        if (is(tokenizers[i].component, af_torchtune_component(af_yaml_get(root, "tokenizer"))))
            return tokenizers[i].template;
    return NULL;
}

/* Texts before and after what the user says. */
typedef struct tune_tags {
    const char *before, *after;
    const char *turns; /* a turn template with them, of conversations, or NULL */
} tune_tags;

static bool one_tag(const af_yaml *list, int i, const char **out)
{
    const bool is_text =
        list->kind == AF_YAML_LIST && list->count == 2 && list->item[i]->kind == AF_YAML_SCALAR;
    *out = is_text ? list->item[i]->text : "";
    return is_text;
}

static af_status read_tags(tune_tags *out, const af_translation *t)
{
    static const struct {
        const char *name;
        tune_tags tags;
    } known[] = {
        {"SummarizeTemplate", {"Summarize this dialogue:\n", "\n---\nSummary:\n", NULL}},
        {"GrammarErrorCorrectionTemplate",
         {"Correct this to standard English: ", "\n---\nCorrected: ", NULL}},
        {"QuestionAnswerTemplate", {"Question: ", "\n\nAnswer: ", NULL}},
        {"Llama2ChatTemplate", {"[INST] ", " [/INST] ", "llama2"}},
        {"MistralChatTemplate", {"[INST] ", " [/INST] ", "mistral"}},
    };
    const af_yaml *n = af_nested_given(af_yaml_get(t->root, "tokenizer"), "prompt_template");
    *out = (tune_tags){"", "", NULL};
    if (!n)
        return AF_OK;
    for (size_t i = 0; n->kind == AF_YAML_SCALAR && i < AF_LEN(known); i++)
        if (is(known[i].name, af_torchtune_component(n))) {
            *out = known[i].tags;
            return AF_OK;
        }
    const af_yaml *user = n->kind == AF_YAML_MAP ? af_nested_given(n, "user") : NULL;
    if (user && n->count == 1 && one_tag(user, 0, &out->before) && one_tag(user, 1, &out->after))
        return AF_OK;
    return af_fail(t->err, AF_EUNSUPPORTED,
                   "%s:%d: prompt_template is not supported, but for 'user: [BEFORE, AFTER]' and "
                   "torchtune's own (SummarizeTemplate, Llama2ChatTemplate, ...); see "
                   "'chat_template'",
                   t->name, n->line);
}

static bool has_turns(const af_yaml *data)
{
    const int count = data->kind == AF_YAML_LIST ? data->count : 1;
    for (int i = 0; i < count; i++) {
        const tune_dataset *d = find_dataset(data->kind == AF_YAML_LIST ? data->item[i] : data);
        if (d && d->records != TEXT && d->records != QUESTION_PAIR)
            return true;
    }
    return false;
}

af_status af_torchtune_put_tokenizer(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *length = af_nested_given(n, "max_seq_len");
    const char *template = template_of(t->root);
    tune_tags tags;
    af_status st = AF_OK;
    AF_TRY(af_nested_check(
        t, "tokenizer", n,
        " _component_ path vocab_path merges_path merges_file special_tokens_path max_seq_len "
        "prompt_template tokenizer_json_path tokenizer_config_json_path "
        "generation_config_path truncation_type "));
    AF_TRY(read_tags(&tags, t));
    if (length)
        AF_TRY(af_translate_put(t, "sequence_len", length->line, length));
    if (template && (*tags.before || *tags.after))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: a prompt_template inside the turns of %s is not supported: write "
                       "its texts into the records",
                       t->name, line, af_torchtune_component(n));
    if (template && *template && has_turns(af_yaml_get(t->root, "dataset")))
        AF_TRY(af_nested_put(t, "chat_template", line, template));
done:
    return st;
}

/* ---- entries ---- */

/* Where the records are, as load_dataset takes it. */
static af_status set_source(const af_translation *t, af_yaml *e, const af_yaml *n,
                            const tune_dataset *d)
{
    static const char *const formats[] = {"json", "csv", "text", "parquet", "arrow"};
    const af_yaml *source = af_nested_given(n, "source"), *files = af_nested_given(n, "data_files"),
                  *split = af_nested_given(n, "split"), *folder = NULL;
    const char *path = d->source;
    af_status st = AF_OK;
    for (int i = 0; i < 3 && !folder; i++)
        folder = af_nested_given(n, ((const char *const[]){"name", "subset", "data_dir"})[i]);
    if (source)
        AF_TRY(af_nested_text(&path, t, source));
    if (!path)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: %s has no 'source'", t->name, n->line,
                       d->component);
    for (size_t i = 0; i < AF_LEN(formats); i++)
        if (is(path, formats[i])) {
            AF_TRY(af_nested_set_text(t, e, "ds_type", path));
            path = NULL;
            break;
        }
    if (!path && !files)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: 'source: %s' needs 'data_files'", t->name,
                       n->line, source->text);
    if (path)
        AF_TRY(af_nested_set_text(t, e, "path", path));
    if (files)
        AF_TRY(af_nested_set(t, e, "data_files", files));
    if (split)
        AF_TRY(af_nested_set(t, e, "split", split));
    if (folder || (d->folder && !source))
        AF_TRY(folder ? af_nested_set(t, e, "name", folder)
                      : af_nested_set_text(t, e, "name", d->folder));
done:
    return st;
}

/* What the i-th field of the records is called. */
static const char *column(const af_yaml *n, const tune_dataset *d, int i)
{
    const af_yaml *map = af_nested_given(n, "column_map");
    const af_yaml *v = map && map->kind == AF_YAML_MAP ? af_nested_given(map, d->field[i]) : NULL;
    v = v ? v : af_nested_given(n, d->field[i]);
    return v && v->kind == AF_YAML_SCALAR ? v->text : d->column[i];
}

/* A text of a format: braces are doubled. */
static void add_format(af_buf *b, const char *text)
{
    for (; *text; text++) {
        af_buf_char(b, *text);
        if (*text == '{' || *text == '}')
            af_buf_char(b, *text);
    }
}

/* A question and its answer without marks: the texts of the prompt_template around the question. */
static af_status set_joined(const af_translation *t, af_yaml *e, const af_yaml *n,
                            const tune_dataset *d)
{
    af_yaml *type = af_nested_map(t, e->line);
    tune_tags tags;
    af_buf b = {0};
    af_status st = type ? AF_OK : af_fail_nomem(t->err, "type", sizeof *type);
    AF_TRY(st);
    AF_TRY(read_tags(&tags, t));
    if (!*tags.before && !*tags.after) {
        AF_TRY(af_nested_set_text(t, e, "type", "prompt_completion"));
        AF_TRY(af_nested_set_text(t, e, "field_prompt", column(n, d, 0)));
        AF_TRY(af_nested_set_text(t, e, "field_completion", column(n, d, 1)));
        goto done;
    }
    add_format(&b, tags.before);
    af_buf_str(&b, "{instruction}");
    add_format(&b, tags.after);
    if (b.bad)
        st = af_fail_nomem(t->err, "a format", b.len);
    AF_TRY(st);
    AF_TRY(af_nested_set_text(t, type, "field_instruction", column(n, d, 0)));
    AF_TRY(af_nested_set_text(t, type, "field_output", column(n, d, 1)));
    AF_TRY(af_nested_set_text(t, type, "format", b.data));
    AF_TRY(af_nested_set_text(t, type, "no_input_format", b.data));
    AF_TRY(af_nested_set(t, e, "type", type));
done:
    af_buf_clear(&b);
    return st;
}

/* A question with two answers, all of them texts. */
static af_status set_question_pair(const af_translation *t, af_yaml *e, const af_yaml *n,
                                   const tune_dataset *d)
{
    static const char *const keys[] = {"field_prompt", "field_chosen", "field_rejected"};
    static const struct {
        const char *template, *prompt, *chosen, *rejected;
    } forms[] = {
        {"llama3",
         "<|start_header_id|>user<|end_header_id|>\n\n{prompt}<|eot_id|><|start_header_id|>"
         "assistant<|end_header_id|>\n\n",
         "{chosen}<|eot_id|>", "{rejected}<|eot_id|>"},
        {"chatml", "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n",
         "{chosen}<|im_end|>", "{rejected}<|im_end|>"},
        {NULL, "{prompt}", "{chosen}", "{rejected}"},
    };
    const char *template = template_of(t->root);
    af_yaml *type = af_nested_map(t, e->line);
    af_status st = type ? AF_OK : af_fail_nomem(t->err, "type", sizeof *type);
    size_t k = 0;
    AF_TRY(st);
    while (k < AF_LEN(forms) &&
           (!template != !forms[k].template || (template && !is(template, forms[k].template))))
        k++;
    if (k == AF_LEN(forms))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: %s with this tokenizer is not supported: give 'chosen' and "
                       "'rejected' as lists of messages (preference_dataset)",
                       t->name, n->line, d->component);
    for (int i = 0; i < 3; i++)
        AF_TRY(af_nested_set_text(t, type, keys[i], column(n, d, i)));
    AF_TRY(af_nested_set_text(t, type, "prompt_format", forms[k].prompt));
    AF_TRY(af_nested_set_text(t, type, "chosen_format", forms[k].chosen));
    AF_TRY(af_nested_set_text(t, type, "rejected_format", forms[k].rejected));
    AF_TRY(af_nested_set(t, e, "type", type));
done:
    return st;
}

static af_status set_fields(const af_translation *t, af_yaml *e, const af_yaml *n,
                            const tune_dataset *d)
{
    static const char *const alpaca[] = {"field_instruction", "field_input", "field_output"};
    const bool turns = template_of(t->root) != NULL;
    const af_yaml *style = af_nested_given(n, "conversation_style");
    af_status st = AF_OK;
    switch (d->records) {
    case ALPACA:
        AF_TRY(af_nested_set_text(t, e, "type", turns ? "alpaca:chat_template" : "alpaca:text"));
        for (int i = 0; i < 3; i++)
            AF_TRY(af_nested_set_text(t, e, alpaca[i], column(n, d, i)));
        break;
    case INSTRUCT:
        if (!turns)
            return set_joined(t, e, n, d);
        AF_TRY(af_nested_set_text(t, e, "field_instruction", column(n, d, 0)));
        AF_TRY(af_nested_set_text(t, e, "field_input", ""));
        AF_TRY(af_nested_set_text(t, e, "field_output", column(n, d, 1)));
        break;
    case CHAT:
        AF_TRY(af_nested_set_text(
            t, e, "type", style && af_translate_says(style, "openai") ? "messages" : "sharegpt"));
        AF_TRY(af_nested_set_text(t, e, "field_messages", column(n, d, 0)));
        break;
    case TEXT:
        AF_TRY(af_nested_set_text(t, e, "type", "text"));
        AF_TRY(af_nested_set_text(t, e, "field_text", column(n, d, 0)));
        break;
    case PAIR:
        AF_TRY(af_nested_set_text(t, e, "type", "preference"));
        AF_TRY(af_nested_set_text(t, e, "field_chosen", column(n, d, 0)));
        AF_TRY(af_nested_set_text(t, e, "field_rejected", column(n, d, 1)));
        break;
    case QUESTION_PAIR:
        return set_question_pair(t, e, n, d);
    }
done:
    return st;
}

static af_status check_arguments(const af_translation *t, const af_yaml *n, const tune_dataset *d)
{
    char known[400];
    const af_yaml *style = af_nested_given(n, "conversation_style"),
                  *eos = af_nested_given(n, "add_eos");
    snprintf(known, sizeof known,
             " _component_ source data_files data_dir name subset split revision "
             "trust_remote_code%s",
             d->known);
    if (style && !af_translate_says(style, "openai") && !af_translate_says(style, "sharegpt"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: conversation_style must be sharegpt or openai", t->name,
                       style->line);
    if (eos && af_translate_says(eos, "false"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: 'add_eos: false' is not supported: texts end with eos", t->name,
                       eos->line);
    return af_nested_check(t, "a dataset", n, known);
}

/* Conversations of a tokenizer that joins texts: their turns are those of a template here. */
static af_status put_turns(af_translation *t, const af_yaml *n)
{
    tune_tags tags;
    af_status st = read_tags(&tags, t);
    if (st != AF_OK || template_of(t->root))
        return st;
    if (tags.turns)
        return af_nested_put(t, "template", n->line, tags.turns);
    return af_run_instead_add(t->run, af_torchtune_component(n), n->line,
                              "the model's chat template writes the turns, which torchtune's "
                              "tokenizer joins without marks",
                              0, t->err);
}

static af_status make_entry(af_translation *t, af_yaml **out, const af_yaml *n, int line)
{
    const tune_dataset *d = n->kind == AF_YAML_MAP ? find_dataset(n) : NULL;
    const af_yaml *inputs = af_nested_given(n, "train_on_input"),
                  *system = af_nested_given(n, "new_system_prompt"),
                  *packed = af_nested_given(n, "packed");
    af_yaml *e = *out = af_nested_map(t, line);
    af_status st = e ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *e);
    AF_TRY(st);
    if (!d)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: dataset '%.80s' of torchtune is not supported: instruct_dataset, "
                       "chat_dataset, preference_dataset, text_completion_dataset, alpaca_dataset "
                       "and others of its library are",
                       t->name, n->line, af_torchtune_component(n));
    AF_TRY(check_arguments(t, n, d));
    AF_TRY(set_source(t, e, n, d));
    AF_TRY(set_fields(t, e, n, d));
    if (d->records != TEXT && d->records != PAIR && d->records != QUESTION_PAIR)
        AF_TRY(af_nested_set_text(
            t, e, "train_on_inputs",
            (inputs ? af_translate_says(inputs, "true") : d->records == ALPACA) ? "true"
                                                                                : "false"));
    if (system) {
        AF_TRY(af_translate_put(t, "default_system", system->line, system));
        if (d->records == CHAT || d->records == PAIR)
            AF_TRY(af_nested_set_text(t, e, "drop_system_message", "true"));
    }
    if (d->records == CHAT || d->records == PAIR)
        AF_TRY(put_turns(t, n));
    if (packed && af_translate_says(packed, "true")) {
        AF_TRY(af_nested_put(t, "sample_packing", packed->line, "true"));
        AF_TRY(af_nested_put(t, "sample_packing_sequentially", packed->line, "true"));
    }
done:
    return st;
}

/* Before version 0.3 it was the dataset that had the limit of tokens. */
static af_status put_length(af_translation *t, const af_yaml *n)
{
    const af_yaml *length = n->kind == AF_YAML_MAP ? af_nested_given(n, "max_seq_len") : NULL;
    return length && !af_nested_given(af_yaml_get(t->root, "tokenizer"), "max_seq_len")
               ? af_translate_put(t, "sequence_len", length->line, length)
               : AF_OK;
}

af_status af_torchtune_put_data(af_translation *t, const af_yaml *n, int line)
{
    const bool many = n->kind == AF_YAML_LIST, test = n == af_yaml_get(t->root, "dataset_val");
    const int count = many ? n->count : 1;
    af_yaml *list = af_arena_take(t->mem, sizeof *list);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    af_status st = list && item ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *list);
    for (int i = 0; i < count && st == AF_OK; i++)
        st = make_entry(t, &item[i], many ? n->item[i] : n, line);
    if (st == AF_OK && !test && count)
        st = put_length(t, many ? n->item[0] : n);
    if (st != AF_OK)
        return st;
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = count, .item = item};
    return af_translate_put(t, test ? "test_datasets" : "datasets", line, list);
}
