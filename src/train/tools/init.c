/* init.c - `afinar init`: a commented run file for a model and a dataset, both inspected.
 *
 * The values are a sound start; the comments give the reason of each. */
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "data/read/records.h"
#include "data/shape/shape.h"
#include "data/store/dataset_reader.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "model/arch/arch.h"
#include "train/run/run_config.h"

#include <jansson.h>

enum {
    LOOK_MAX = 50000,   /* records inspected: enough to know the lengths */
    LENGTH_MAX = 4096,  /* longer only when the user sets it */
    TEXT_LENGTH = 2048, /* windows of plain text */
    PACK_ROWS = 200,    /* full rows that make packing worth it */
};

typedef struct init_facts {
    /* model */
    const char *model, *dataset; /* from the caller */
    char *path;
    af_hf_config config;
    af_model_spec spec;
    bool has_spec;
    /* data */
    af_shape shape;
    int64_t records, tokens, longest;
    bool more;         /* there are more records */
    bool pairs;        /* prompts and completions without a template */
    af_question asked; /* fields of a record of no known shape */
    bool asks;
    af_rl rl;             /* pairs of answers, or answers with labels */
    bool labels;          /* texts with a label */
    const char *template; /* what turns records into text */
} init_facts;

static af_status note(void *user, const af_example *e, af_error *err)
{
    init_facts *l = user;
    (void)err;
    l->shape = e->shape;
    l->records++;
    for (int i = 0; i < e->rows; i++) {
        l->tokens += e->row[i].count;
        l->longest = AF_MAX(l->longest, e->row[i].count);
    }
    l->more = l->records == LOOK_MAX;
    return l->more ? AF_ESTOPPED : AF_OK;
}

/* A text as a YAML (and JSON) string. */
static void put_quoted(af_buf *b, const char *text)
{
    json_t *v = json_string(text);
    char *shown = v ? af_json_dump(v, JSON_ENCODE_ANY) : NULL;
    if (shown)
        af_buf_str(b, shown);
    else
        b->bad = true;
    free(shown);
    json_decref(v);
}

static af_status inspect_model(init_facts *l, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_model_resolve_whole(&l->path, l->model, err));
    AF_TRY(af_model_config(&l->config, l->path, err));
    AF_TRY(af_model_spec_init(&l->spec, &l->config, err));
    l->has_spec = true;
done:
    return st;
}

/* The dataset as an entry of a list: a path, or a map of fields, copied as it is. */
static void put_entry(af_buf *b, const init_facts *l, const char *indent)
{
    if (*l->dataset == '{') {
        af_buf_printf(b, "- %s\n", l->dataset);
        return;
    }
    af_buf_str(b, "- path: ");
    put_quoted(b, l->dataset);
    af_buf_char(b, '\n');
    if (!l->asks)
        return;
    char line[40];
    snprintf(line, sizeof line, "\n%s  ", indent);
    af_buf_str(b, line + 1);
    af_question_keys(b, &l->asked, line);
    af_buf_char(b, '\n');
}

/* Turns that end with a question, and two answers to it. */
static bool is_open_pair(const af_data_source *s, const json_t *record)
{
    const json_t *turns = json_object_get(record, s->field.messages);
    const json_t *last = json_array_get(turns, json_array_size(turns) - 1);
    const char *role = json_string_value(json_object_get(last, s->field.role));
    return role && strcmp(role, "assistant") != 0 && json_object_get(record, s->field.chosen) &&
           json_object_get(record, s->field.rejected);
}

/* What the first record shows: answers to choose from, labels, or, where it is of no known shape,
 * fields for a question and its answer. */
static void look_at_first(init_facts *l, const af_data_pipeline *k)
{
    af_data_source source = k->source[0];
    char **files = NULL;
    int n = 0, held_out;
    af_records_kind kind;
    af_records *r = NULL;
    af_record first = {0};
    const af_source_loc at = {.file = l->dataset};
    const bool read = af_data_source_files(&source, "init", &files, &n, &held_out, NULL) == AF_OK &&
                      n > 0 && af_records_kind_of(&kind, files[0], NULL, NULL) == AF_OK &&
                      kind != AF_RECORDS_TEXT &&
                      af_records_open(&r, files[0], kind, NULL) == AF_OK &&
                      af_records_next(r, &first, NULL) == AF_OK && first.json &&
                      af_record_open_fields(&source, first.json, NULL) == AF_OK;
    const bool known = read && af_shape_detect(&source, first.json, &at, NULL) == AF_OK;
    if (known && (source.shape == AF_SHAPE_PREFERENCE || is_open_pair(&source, first.json)))
        l->rl = AF_RL_DPO;
    if (known && source.shape == AF_SHAPE_KTO)
        l->rl = AF_RL_KTO;
    l->labels = known && source.shape == AF_SHAPE_TEXT && json_object_get(first.json, "label");
    l->asks = read && !known && *l->dataset != '{' && af_question_fields(first.json, &l->asked);
    json_decref(first.json);
    af_records_close(r);
    af_names_free(files, n);
}

/* What turns records into text, for the comment and the log. */
static const char *used_template(const init_facts *l, const af_data_pipeline *k)
{
    const bool turns = l->shape == AF_SHAPE_MESSAGES || l->shape == AF_SHAPE_SHAREGPT ||
                       l->shape == AF_SHAPE_ALPACA || l->shape == AF_SHAPE_PROMPT;
    if (l->rl)
        return l->rl == AF_RL_KTO ? "answers with a label, for preference training"
                                  : "pairs of answers, for preference training";
    if (k->source[0].prompt)
        return "rendered with the prompt that 'type' names";
    if (l->pairs)
        return k->renderer[0].chat
                   ? "prompt and completion are joined as they are, without the model's chat "
                     "template"
                   : "prompt and completion are joined as they are, without a template";
    if (turns && k->renderer[0].chat)
        return "rendered with the model's chat template";
    return l->shape == AF_SHAPE_ALPACA
               ? "the model has no chat template: rendered with the Alpaca prompt"
               : "taken as they are, without a template";
}

static af_status read_data(init_facts *l, af_data_pipeline *k, af_error *err)
{
    af_data_counts counts = {0};
    af_read_times times = {0};
    const af_status st = af_dataset_read(k, AF_READ_TRAIN, note, l, &counts, &times, err);
    l->pairs = counts.of_pairs > 0;
    l->template = st == AF_OK ? used_template(l, k) : NULL;
    if (st == AF_OK && l->records == 0)
        return af_fail(err, AF_EUSAGE, "'%s' has no record to learn from", l->dataset);
    return st;
}

/* Opens the dataset; a second time where that shows that its fields have other names, or that it is
 * of preferences. */
static af_status inspect_data(init_facts *l, af_error *err)
{
    af_status st = AF_OK;
    af_arena mem = {0};
    af_buf list = {0};
    af_yaml *datasets;
    af_data_pipeline pipeline = {0};
    put_entry(&list, l, "");
    if (list.bad)
        AF_TRY(af_fail(err, AF_EUSAGE, "the path of the dataset is not UTF-8"));
    AF_TRY(af_yaml_parse(&datasets, &mem, list.data, list.len, "command line", err));
    af_yaml_forget_lines(datasets);
    const af_data_opts o = {.datasets = datasets,
                            .run_path = "init",
                            .model = l->path,
                            .train_on_eos = AF_TRAIN_EOS_TURN,
                            .excess = AF_EXCESS_TRUNCATE,
                            .rl = l->rl,
                            .sequence_len = 1 << 24, /* records as long as they are */
                            .vocab = l->spec.vocab};
    AF_TRY(af_data_pipeline_open(&pipeline, &o, err));
    const bool again = l->asks || l->rl;
    if (!again)
        look_at_first(l, &pipeline);
    if (again || (!l->asks && !l->rl))
        st = read_data(l, &pipeline, err);
    else
        st = inspect_data(l, err);
done:
    af_data_pipeline_close(&pipeline);
    af_buf_clear(&list);
    af_arena_clear(&mem);
    return st;
}

static int64_t chosen_length(const init_facts *l)
{
    const int64_t known = l->spec.max_positions > 0 ? l->spec.max_positions : LENGTH_MAX;
    const int64_t most = AF_MAX(2, AF_MIN(LENGTH_MAX, AF_MIN(known, af_spec_longest(&l->spec))));
    if (l->shape == AF_SHAPE_TEXT)
        return AF_MIN(most, TEXT_LENGTH);
    return AF_MIN(most, AF_MAX(64, (l->longest + 63) / 64 * 64));
}

static void put_model(af_buf *b, const init_facts *l)
{
    const double millions = (double)l->spec.params / 1e6;
    const bool quantised = l->config.quant.method != AF_QUANT_NONE || l->config.from_gguf;
    af_buf_str(b, "# Written by `afinar init`. Start with: afinar train run.yaml\n"
                  "# All keys: afinar train --help. Memory and time: afinar plan run.yaml\n\n");
    af_buf_printf(b, "# %s, %.1f M parameters, %d layers, width %" PRId64 ", context %" PRId64 "\n",
                  l->spec.arch->model_type, millions, l->spec.layers, l->spec.width,
                  l->spec.max_positions);
    af_buf_str(b, "base_model: ");
    put_quoted(b, l->model);
    const bool small = millions < 3000 || quantised;
    af_buf_printf(
        b,
        "\n\n# lora: a small adapter next to the frozen model; qlora: the same on a 4-bit "
        "copy of it,\n# for less memory; without this key every weight is trained.%s\n"
        "adapter: %s\n",
        quantised ? " This base is quantised\n# already." : "", small ? "lora" : "qlora");
    af_buf_str(b, "lora_r: 16                # rank: more learns more and costs more\n"
                  "lora_alpha: 32            # strength; twice the rank is usual\n"
                  "lora_dropout: 0.0\n"
                  "lora_target_modules: all-linear\n\n");
}

static void put_data(af_buf *b, const init_facts *l)
{
    const int64_t length = chosen_length(l);
    const bool text = l->shape == AF_SHAPE_TEXT, map = *l->dataset == '{';
    const bool cut = text && !map && length < l->longest; /* `type: text` loses what is longer */
    if (l->rl)
        af_buf_printf(b, "rl: %-21s # %s\n\n", af_rl_name(l->rl),
                      l->rl == AF_RL_KTO ? "learns from answers with a label"
                                         : "or ipo, orpo, cpo, simpo; reward: a reward model");
    if (l->labels)
        af_buf_str(b, "# task_type: SEQ_CLS     # a classifier by the field 'label', in place of a "
                      "language model\n# class_names: [a, b]    # for labels that are names\n\n");
    af_buf_printf(b, "# %s%" PRId64 " records of type %s, %" PRId64 " tokens, ",
                  l->more ? "the first " : "", l->records, af_shape_name(l->shape), l->tokens);
    af_buf_printf(b, "the longest %" PRId64 ";\n# %s.\ndatasets:\n  ", l->longest, l->template);
    put_entry(b, l, "  ");
    /* `type: alpaca` is the Alpaca prompt; without it the chat template is used, if there is one */
    if (!map && !l->asks && l->shape != AF_SHAPE_ALPACA && !l->rl)
        af_buf_printf(b, "    type: %s\n", cut ? "completion" : af_shape_name(l->shape));
    if (l->records >= 100)
        af_buf_str(b, "val_set_size: 0.05        # held out, to measure the loss on unseen "
                      "records\nevals_per_epoch: 4\n");
    else
        af_buf_str(b, "# val_set_size: 0.1       # hold some records out (there are few)\n");
    af_buf_printf(b, "sequence_len: %-11" PRId64 "%s\n", length,
                  cut                   ? " # longer texts are cut into rows of this length"
                  : length < l->longest ? " # longer records are cut: see `afinar data check`"
                                        : " # every record fits");
    const bool pack = !text && !l->rl && l->tokens / length >= PACK_ROWS &&
                      l->longest < length * 2 && l->tokens / l->records < length / 2;
    af_buf_printf(b, "sample_packing: %-9s # several records per row: less padding\n\n",
                  pack ? "true" : "false");
}

static void put_loop(af_buf *b, const init_facts *l)
{
    const bool few = l->records < 64 && !l->more;
    af_buf_printf(b,
                  "micro_batch_size: 2       # rows per pass: as many as memory allows\n"
                  "gradient_accumulation_steps: %d\nnum_epochs: %d\n",
                  few ? 1 : 4, l->records < 5000 && !l->more ? 3 : 1);
    af_buf_str(
        b, l->rl ? "learning_rate: 5e-6       # of preferences; about 5e-7 when every weight is "
                   "trained\n"
                 : "learning_rate: 2e-4       # for adapters; about 1e-5 when every weight is "
                   "trained\n");
    af_buf_str(b, "lr_scheduler: cosine\nwarmup_ratio: 0.03\n"
                  "optimizer: adamw\nweight_decay: 0.0\nmax_grad_norm: 1.0\nseed: 42\n\n");
    af_buf_str(b, "output_dir: ./out\nlogging_steps: 1\n"
                  "saves_per_epoch: 1        # an interrupted run resumes from the last one:\n"
                  "save_total_limit: 3\n"
                  "# resume_from_checkpoint: auto\n\n"
                  "# Prompts answered before and after, shown in report.html:\n"
                  "# generate_samples: [\"Hello, who are you?\"]\n");
}

af_status af_train_init(const char *model, const char *dataset, char **text, af_error *err)
{
    AF_NEED(err, model, dataset, text);
    af_status st = AF_OK;
    init_facts l = {.model = model, .dataset = dataset};
    af_error unread;
    err = af_error_or(err, &unread);
    af_buf b = {0};
    af_run_config check = {0};
    AF_TRY(inspect_model(&l, err));
    AF_TRY(inspect_data(&l, err));
    af_log_write(AF_LOG_INFO, "%" PRId64 " records of type %s: %s", l.records,
                 af_shape_name(l.shape), l.template);
    put_model(&b, &l);
    put_data(&b, &l);
    put_loop(&b, &l);
    if (b.bad)
        AF_TRY(af_fail_nomem(err, "the run file", b.len));
    AF_TRY(af_run_config_parse(&check, b.data, b.len, "run.yaml", NULL, 0, err)); /* must parse */
    *text = af_buf_take(&b);
done:
    af_run_config_clear(&check);
    af_buf_clear(&b);
    if (l.has_spec)
        af_model_spec_clear(&l.spec);
    af_hf_config_clear(&l.config);
    free(l.path);
    return st;
}
