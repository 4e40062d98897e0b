/* run_automodel_data.c - datasets of NeMo AutoModel's run files. Rows of the data that it knows are
 * those of af_prompt's "automodel:..." types. */
#include "base/file.h"
#include "base/word.h"
#include "train/foreign/run_automodel.h"
#include "train/run/run_config.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

typedef enum nemo_records { SQUAD, HELLASWAG, COLUMNS, CHAT, CALLS, LABELS } nemo_records;

typedef struct nemo_dataset {
    const char *target;
    nemo_records records;
    const char *source, *usual; /* the argument that says where it is, and what without it */
    const char *known;          /* arguments of its own, with blanks around */
} nemo_dataset;

#define LENGTH                                                                                     \
    " split seq_length padding truncation limit_dataset_samples tokenizer start_of_turn_token "
#define LABELLED " split num_samples_limit trust_remote_code max_length tokenizer "
static const nemo_dataset datasets[] = {
    {"make_squad_dataset", SQUAD, "dataset_name", "rajpurkar/squad",
     LENGTH "dataset_name chat_template fp8 "},
    {"SquadConfig", SQUAD, "dataset_name", "rajpurkar/squad",
     LENGTH "dataset_name chat_template fp8 "},
    {"HellaSwag", HELLASWAG, "path_or_dataset", NULL,
     " path_or_dataset split num_samples_limit pad_to_max_length tokenizer "},
    {"HellaSwagConfig", HELLASWAG, "path_or_dataset", NULL,
     " path_or_dataset split num_samples_limit pad_to_max_length tokenizer "},
    {"ColumnMappedTextInstructionDataset", COLUMNS, "path_or_dataset_id", NULL,
     LENGTH "path_or_dataset_id column_mapping name answer_only_loss_mask use_hf_chat_template "},
    {"ColumnMappedTextInstructionIterableDataset", COLUMNS, "path_or_dataset_id", NULL,
     LENGTH "path_or_dataset_id column_mapping name answer_only_loss_mask use_hf_chat_template "
            "repeat_on_exhaustion "},
    {"ChatDataset", CHAT, "path_or_dataset_id", NULL,
     LENGTH "path_or_dataset_id name chat_template shuffle_seed mask_history "
            "mask_reasoning_content mask_generation_prompt unshifted skip_invalid_samples "},
    {"make_xlam_dataset", CALLS, "dataset_name", "Salesforce/xlam-function-calling-60k",
     LENGTH "dataset_name chat_template fp8 "},
    {"make_agent_chat_dataset", CALLS, "dataset_name", NULL,
     LENGTH "dataset_name chat_template name shuffle_seed truncate_history fp8 "
            "drop_history_reasoning_content mask_reasoning_content mask_generation_prompt "},
    /* of older versions; records are {"text", "label"} */
    {"IMDB", LABELS, NULL, "stanfordnlp/imdb", LABELLED},
    {"YelpReviewFull", LABELS, NULL, "Yelp/yelp_review_full", LABELLED},
};

static bool on(const af_yaml *map, const char *key)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && af_translate_says(n, "true");
}

/* Its truncation is a word of transformers' tokenizers, or a flag. */
static bool cuts(const af_yaml *n)
{
    const af_yaml *how = af_nested_given(n, "truncation");
    return how && !af_translate_says(how, "false") && !af_translate_says(how, "do_not_truncate");
}

/* A file of this machine has no splits there. */
static bool is_local(const char *path)
{
    static const char *const ends[] = {".json", ".jsonl", ".ndjson", ".parquet"};
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (af_ends_with(path, ends[i]))
            return true;
    return af_file_exists(path);
}

static af_status find(const af_translation *t, const nemo_dataset **out, const af_yaml *n, int line)
{
    const char *name = af_automodel_target(n);
    const bool labels = af_automodel_classifies(t->root);
    for (size_t i = 0; i < AF_LEN(datasets); i++)
        if (is(datasets[i].target, name) && (datasets[i].records == LABELS) == labels) {
            *out = &datasets[i];
            return AF_OK;
        }
    if (labels)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: dataset '%.80s' of NeMo AutoModel is not supported for "
                       "classification: IMDB and YelpReviewFull are; else give 'datasets' with "
                       "records of a text and a label in its place",
                       t->name, n->kind == AF_YAML_MAP ? n->line : line, name);
    return af_fail(t->err, AF_EUNSUPPORTED,
                   "%s:%d: dataset '%.80s' of NeMo AutoModel is not supported: ChatDataset, "
                   "ColumnMappedTextInstructionDataset, make_squad_dataset, HellaSwag, "
                   "make_xlam_dataset and make_agent_chat_dataset are; else give 'datasets'",
                   t->name, n->kind == AF_YAML_MAP ? n->line : line, name);
}

/* ---- entries ---- */

/* A list is of files. */
static af_status set_source(const af_translation *t, af_yaml *e, const af_yaml *n,
                            const nemo_dataset *d)
{
    const af_yaml *source = d->source ? af_nested_given(n, d->source) : NULL,
                  *split = af_nested_given(n, "split"), *name = af_nested_given(n, "name"),
                  *count = af_nested_given(n, d->records == HELLASWAG || d->records == LABELS
                                                  ? "num_samples_limit"
                                                  : "limit_dataset_samples");
    const char *path = d->usual;
    af_status st = AF_OK;
    if (!source && !path)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: %s has no '%s'", t->name, n->line, d->target,
                       d->source);
    if (source && source->kind == AF_YAML_LIST) {
        AF_TRY(af_nested_set_text(t, e, "ds_type", "json"));
        AF_TRY(af_nested_set(t, e, "data_files", source));
        goto count;
    }
    if (source)
        AF_TRY(af_nested_text(&path, t, source));
    if (is(path, "squad")) /* its name before datasets had owners */
        path = "rajpurkar/squad";
    AF_TRY(af_nested_set_text(t, e, "path", path));
    if (split && !is_local(path))
        AF_TRY(af_nested_set(t, e, "split", split));
    if (name)
        AF_TRY(af_nested_set(t, e, "name", name));
count:
    if (count)
        AF_TRY(af_nested_set(t, e, "max_samples", count));
done:
    return st;
}

static const char *column(const af_yaml *map, const char *role)
{
    const af_yaml *n = af_nested_given(map, role);
    return n && n->kind == AF_YAML_SCALAR ? n->text : NULL;
}

/* Two or three columns, one of which may be called context or question where there is one. */
static af_status set_columns(const af_translation *t, af_yaml *e, const af_yaml *n)
{
    const af_yaml *map = af_nested_given(n, "column_mapping"),
                  *mask = af_nested_given(n, "answer_only_loss_mask");
    const char *context = column(map, "context"), *question = column(map, "question");
    const char *answer = column(map, "answer");
    const bool chat = on(n, "use_hf_chat_template");
    af_status st = AF_OK;
    if (!map || map->kind != AF_YAML_MAP || !answer || !(context || question))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: column_mapping needs 'answer' with 'question', 'context' or both",
                       t->name, map ? map->line : n->line);
    AF_TRY(af_nested_check(t, "column_mapping", map, " context question answer "));
    if (chat && !question)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: use_hf_chat_template without a 'question' is not supported: name "
                       "the column of 'context' so",
                       t->name, map->line);
    AF_TRY(af_nested_set_text(t, e, "type", chat ? "automodel:columns_chat" : "automodel:columns"));
    AF_TRY(af_nested_set_text(t, e, "field_instruction", question ? question : context));
    AF_TRY(af_nested_set_text(t, e, "field_input", question && context ? context : ""));
    AF_TRY(af_nested_set_text(t, e, "field_output", answer));
    if (mask && af_translate_says(mask, "false"))
        AF_TRY(af_nested_set_text(t, e, "train_on_inputs", "true"));
done:
    return st;
}

/* A template in Jinja, or its file. */
static af_status set_template(const af_translation *t, af_yaml *e, const af_yaml *n)
{
    const af_yaml *text = af_nested_given(n, "chat_template");
    if (!text || af_translate_says(text, "none"))
        return AF_OK;
    const af_status st = af_nested_set_text(t, e, "chat_template", "jinja");
    return st == AF_OK ? af_nested_set(t, e, "chat_template_jinja", text) : st;
}

static af_status refuse_flags(const af_translation *t, const af_yaml *n)
{
    static const char *const flags[] = {"mask_reasoning_content",         "unshifted",
                                        "skip_invalid_samples",           "truncate_history",
                                        "drop_history_reasoning_content", "repeat_on_exhaustion"};
    for (size_t i = 0; i < AF_LEN(flags); i++)
        if (on(n, flags[i]))
            return af_fail(t->err, AF_EUNSUPPORTED, "%s:%d: '%s' of a dataset is not supported",
                           t->name, af_nested_given(n, flags[i])->line, flags[i]);
    return AF_OK;
}

static af_status make_entry(af_translation *t, af_yaml **out, const af_yaml *n, int line)
{
    const nemo_dataset *d = NULL;
    af_yaml *e = *out = af_nested_map(t, line);
    const af_yaml *seed = n->kind == AF_YAML_MAP ? af_nested_given(n, "shuffle_seed") : NULL;
    char known[400];
    af_status st = e ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *e);
    AF_TRY(st);
    AF_TRY(find(t, &d, n, line));
    snprintf(known, sizeof known, " _target_%s", d->known);
    AF_TRY(af_nested_check(t, d->target, n, known));
    AF_TRY(refuse_flags(t, n));
    AF_TRY(set_source(t, e, n, d));
    if (d->records == SQUAD || d->records == HELLASWAG)
        AF_TRY(af_nested_set_text(t, e, "type",
                                  d->records == SQUAD ? "automodel:squad" : "automodel:hellaswag"));
    if (d->records == COLUMNS)
        AF_TRY(set_columns(t, e, n));
    else if (d->records != LABELS)
        AF_TRY(set_template(t, e, n));
    if (seed)
        AF_TRY(af_run_instead_add(t->run, "shuffle_seed", seed->line,
                                  "a part of a split has its records in their order", 0, t->err));
done:
    return st;
}

static af_status put_list(af_translation *t, const char *key, af_yaml **item, int count, int line)
{
    af_yaml *list = af_arena_take(t->mem, sizeof *list);
    if (!list)
        return af_fail_nomem(t->err, key, sizeof *list);
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = count, .item = item};
    return af_translate_put(t, key, line, list);
}

/* Texts: SQuAD of models without a template, HellaSwag, columns. */
static bool is_text(nemo_records records, const af_yaml *n)
{
    return records == HELLASWAG || records == SQUAD ||
           (records == COLUMNS && !on(n, "use_hf_chat_template"));
}

/* Another tokenizer than the model's, by its name. */
static af_status put_tokenizer(af_translation *t, const af_yaml *n)
{
    const af_yaml *of, *side,
        *model = af_nested_given(af_yaml_get(t->root, "model"), "pretrained_model_name_or_path");
    if (!n || n->kind != AF_YAML_MAP)
        return AF_OK;
    of = af_nested_given(n, "pretrained_model_name_or_path");
    side = af_nested_given(n, "truncation_side");
    if (side && !af_translate_says(side, "right"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: truncation_side is not supported: see 'truncation_mode'", t->name,
                       side->line);
    const af_status st = af_nested_check(
        t, "tokenizer", n,
        " _target_ pretrained_model_name_or_path truncation_side padding_side trust_remote_code "
        "use_fast tokenizer_backend add_bos_token add_eos_token torch_dtype cache_dir ");
    if (st != AF_OK || !of || of->kind != AF_YAML_SCALAR || strchr(of->text, '$') ||
        (model && af_translate_says(model, of->text)))
        return st;
    return af_translate_put(t, "tokenizer_config", of->line, of);
}

af_status af_automodel_put_data(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *tokenizer = af_nested_given(n, "tokenizer");
    const nemo_dataset *d = NULL;
    af_yaml **item = af_arena_take(t->mem, sizeof *item);
    af_status st = item ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *item);
    AF_TRY(st);
    AF_TRY(make_entry(t, item, n, line));
    AF_TRY(put_list(t, "datasets", item, 1, line));
    AF_TRY(find(t, &d, n, line));
    if (is_text(d->records, n) &&
        !(tokenizer && tokenizer->kind == AF_YAML_MAP && on(tokenizer, "add_eos_token")))
        AF_TRY(af_run_instead_add(t->run, "add_eos_token", line,
                                  "answers without a chat template end with eos, which newer "
                                  "versions of NeMo AutoModel leave out",
                                  0, t->err));
    if (on(n, "mask_history"))
        AF_TRY(af_nested_put(t, "mask_history", line, "true"));
    AF_TRY(put_tokenizer(t, tokenizer));
done:
    return st;
}

af_status af_automodel_put_tests(af_translation *t)
{
    static const char prefix[] = "validation_dataset";
    af_yaml **item = af_arena_take(t->mem, (uint64_t)t->root->count * sizeof *item);
    af_status st = item ? AF_OK : af_fail_nomem(t->err, prefix, sizeof *item);
    int count = 0, line = 0;
    for (int i = 0; i < t->root->count && st == AF_OK; i++) {
        const af_yaml *n = t->root->item[i];
        if (strncmp(t->root->key[i], prefix, strlen(prefix)) != 0 || af_yaml_is_null(n))
            continue;
        line = line ? line : t->root->key_line[i];
        st = make_entry(t, &item[count++], n, t->root->key_line[i]);
    }
    return st == AF_OK && count ? put_list(t, "test_datasets", item, count, line) : st;
}

/* ---- length ---- */

af_status af_automodel_put_length(af_translation *t, const af_yaml *packed, int line)
{
    const bool labels = af_automodel_classifies(t->root);
    const af_yaml *data = af_yaml_get(t->root, "dataset"),
                  *length = data && data->kind == AF_YAML_MAP ? af_nested_given(data, "seq_length")
                                                              : NULL,
                  *size = af_nested_given(packed, "packed_sequence_size"), *drop, *neat;
    bool cut = length && cuts(data);
    int64_t most = 0, row = 0;
    af_status st = AF_OK;
    if (labels && data && data->kind == AF_YAML_MAP) { /* texts are cut at max_length */
        const af_yaml *of = af_nested_given(data, "max_length");
        if (!of && af_yaml_get(data, "max_length"))
            return af_fail(t->err, AF_EUSAGE,
                           "%s:%d: give max_length a number: that of the tokenizer is not taken",
                           t->name, data->line);
        return of ? af_translate_put(t, "sequence_len", of->line, of)
                  : af_nested_put(t, "sequence_len", line, "256");
    }
    if (packed)
        AF_TRY(af_nested_check(t, "packed_sequence", packed,
                               " packed_sequence_size packing_strategy drop_long_samples "
                               "attn_implementation split_across_pack pad_to_multiple_of "));
    if (!af_automodel_positive(size))
        return cut ? af_translate_put(t, "sequence_len", length->line, length) : AF_OK;
    AF_TRY(af_nested_put(t, "sample_packing", line, "true"));
    AF_TRY(af_translate_put(t, "sequence_len", size->line, size));
    if (on(packed, "split_across_pack"))
        AF_TRY(af_run_instead_add(t->run, "split_across_pack", line,
                                  "records are packed whole, as in newer versions of NeMo "
                                  "AutoModel",
                                  0, t->err));
    if (cut && af_yaml_i64(length, &most) && af_yaml_i64(size, &row) && most != row)
        AF_TRY(af_run_instead_add(t->run, "seq_length", length->line,
                                  "records have at most 'packed_sequence_size' tokens", 0, t->err));
    cut = cut && most <= row; /* else they are too long for a row all the same */
    drop = af_nested_given(packed, "drop_long_samples");
    neat = af_nested_given(packed, "packing_strategy");
    if (!cut)
        AF_TRY(af_nested_put(t, "excess_length_strategy", line,
                             neat && af_translate_says(neat, "neat") && drop &&
                                     af_translate_says(drop, "false")
                                 ? "error"
                                 : "drop"));
done:
    return st;
}
