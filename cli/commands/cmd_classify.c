/* cmd_classify.c - `afinar classify MODEL`: the labels of texts. */
#include "commands/commands.h"
#include "commands/model_opts.h"

#include <jansson.h>

typedef struct classify_job {
    af_model *m;
    bool json;
    float *scores;
    double *share;
    int64_t labels, printed; /* of the model; texts so far */
} classify_job;

/* ---- results ---- */

static int64_t best_of(const classify_job *j)
{
    int64_t best = 0;
    for (int64_t i = 1; i < j->labels; i++)
        best = j->scores[i] > j->scores[best] ? i : best;
    return best;
}

static void put_label(const classify_job *j, int64_t i)
{
    const char *name = af_model_label(j->m, i);
    af_cli_json_text(stdout, name, strlen(name));
}

/* {"label": ..., "probabilities": {...}, "scores": [...]} */
static void print_json(const classify_job *j)
{
    const af_label_kind kind = af_model_label_kind(j->m);
    putchar('{');
    if (kind == AF_LABELS_ONE) {
        printf("\"label\": ");
        put_label(j, best_of(j));
        printf(", ");
    } else if (kind == AF_LABELS_SEVERAL) {
        bool any = false;
        printf("\"labels\": [");
        for (int64_t i = 0; i < j->labels; i++)
            if (j->share[i] > 0.5) {
                printf("%s", any ? ", " : "");
                put_label(j, i);
                any = true;
            }
        printf("], ");
    }
    printf("\"%s\": {", kind == AF_LABELS_NUMBERS ? "values" : "probabilities");
    for (int64_t i = 0; i < j->labels; i++) {
        printf("%s", i ? ", " : "");
        put_label(j, i);
        printf(": %.9g", j->share[i]);
    }
    printf("}, \"scores\": [");
    for (int64_t i = 0; i < j->labels; i++)
        printf("%s%.9g", i ? ", " : "", (double)j->scores[i]);
    printf("]}\n");
}

static void print_lines(const classify_job *j)
{
    const af_label_kind kind = af_model_label_kind(j->m);
    const int64_t best = best_of(j);
    for (int64_t i = 0; i < j->labels; i++) {
        const bool holds = kind == AF_LABELS_ONE ? i == best : j->share[i] > 0.5;
        if (kind == AF_LABELS_NUMBERS)
            printf("%-24s %.6f\n", af_model_label(j->m, i), j->share[i]);
        else
            printf("%-24s %.4f%s\n", af_model_label(j->m, i), j->share[i], holds ? "  <-" : "");
    }
}

static af_status classify_ids(classify_job *j, const af_encoding *e, af_error *err)
{
    const af_status st = af_model_classify(j->m, e->ids, e->count, j->scores, j->share, err);
    if (st == AF_OK && j->printed++ && !j->json)
        putchar('\n');
    if (st == AF_OK && j->json)
        print_json(j);
    else if (st == AF_OK)
        print_lines(j);
    return st;
}

static af_status classify(classify_job *j, const char *text, uint64_t len, af_error *err)
{
    const af_tokenizer *t;
    af_encoding e = {0};
    af_status st = af_model_tokenizer(j->m, &t, err);
    if (st == AF_OK)
        st = af_tokenizer_encode(t, &e, text, len, true, err);
    if (st == AF_OK)
        st = classify_ids(j, &e, err);
    af_encoding_clear(&e);
    return st;
}

/* A conversation, rendered whole as in training. */
static af_status classify_chat(classify_job *j, const json_t *row, af_error *err)
{
    af_encoding e = {0};
    char *text = af_cli_json_dump(row, "the messages cannot be written as JSON", err);
    af_status st = text ? af_cli_template_ids(j->m, text, &e, err) : err->code;
    if (st == AF_OK)
        st = classify_ids(j, &e, err);
    af_encoding_clear(&e);
    free(text);
    return st;
}

/* ---- texts ---- */

/* One {"text": ...} or {"messages": [...]} of a .jsonl file. */
static af_status classify_line(classify_job *j, const char *path, int number, const char *line,
                               size_t len, af_error *err)
{
    json_t *row = NULL;
    af_status st = af_json_tree(&row, line, len, 0, err);
    const json_t *text = json_object_get(row, "text");
    if (st == AF_ENOMEM)
        return st;
    if (json_is_string(text))
        st = classify(j, json_string_value(text), json_string_length(text), err);
    else if (json_is_array(json_object_get(row, "messages")))
        st = classify_chat(j, row, err);
    else
        st = af_fail(err, AF_EFORMAT, "expected \"text\" (a string) or \"messages\" (a list)");
    json_decref(row);
    return st == AF_OK ? st : af_fail_prefix(st, err, "%s:%d", path, number);
}

static af_status classify_rows(classify_job *j, const char *path, const char *text, size_t len,
                               af_error *err)
{
    af_status st = AF_OK;
    int number = 0;
    for (const char *at = text, *end = text + len; at < end && st == AF_OK;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop ? stop : end) - at);
        number++;
        if (strspn(at, " \t\r") < n) {
            st = classify_line(j, path, number, at, n, err);
        }
        at += n + 1;
    }
    return st;
}

static af_status classify_file(classify_job *j, const char *path, af_error *err)
{
    const size_t n = strlen(path);
    char *text = NULL;
    size_t len = 0;
    af_status st = af_cli_read_file(&text, &len, path, err);
    if (st == AF_OK && n > 6 && !strcmp(path + n - 6, ".jsonl")) {
        st = classify_rows(j, path, text, len, err);
    } else if (st == AF_OK) {
        len -= len && text[len - 1] == '\n'; /* the final newline is not part of the text */
        st = classify(j, text, len, err);
    }
    free(text);
    return st;
}

static af_status run(classify_job *j, const char *text, const char *file, af_error *err)
{
    j->labels = af_model_labels(j->m);
    if (!j->labels) /* says what is wrong */
        return af_model_classify(j->m, (const int32_t[]){0}, 0, NULL, NULL, err);
    j->scores = calloc((size_t)j->labels, sizeof *j->scores);
    j->share = calloc((size_t)j->labels, sizeof *j->share);
    if (!j->scores || !j->share)
        return af_fail(err, AF_ENOMEM, "out of memory for labels");
    return text ? classify(j, text, strlen(text), err) : classify_file(j, file, err);
}

int cmd_classify(int argc, char **argv)
{
    const char *text = NULL, *file = NULL, *arg[1];
    int count;
    af_common common = {0};
    af_model_flags flags = {0};
    classify_job j = {0};
    af_error err = {0};
    af_opt opts[16] = {
        {'p', "prompt", AF_OPT_STR, &text, "TEXT", "text to classify"},
        {'f', "file", AF_OPT_STR, &file, "FILE",
         "read the text from FILE, or lines of {\"text\": ...} or {\"messages\": [...]} from "
         "FILE.jsonl; - is stdin"},
        {0},
    };
    af_cli_model_rows(opts, &flags);
    const af_usage usage = {"classify",
                            "Prints the labels of texts and their probabilities, by a model that "
                            "was trained with\n'task_type: SEQ_CLS' or 'rl: reward'.",
                            "MODEL [--adapter DIR] -p TEXT | -f FILE",
                            opts,
                            1,
                            1,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (!text == !file)
        return af_cli_error(AF_EXIT_USAGE, "classify", "give one of -p TEXT and -f FILE");
    af_cli_log(&common);
    j.json = common.json;
    af_status st = af_cli_open_model(&j.m, arg[0], &flags, &common, &err);
    if (st == AF_OK)
        st = run(&j, text, file, &err);
    free(j.scores);
    free(j.share);
    af_model_close(j.m);
    fflush(stdout);
    return st == AF_OK ? AF_EXIT_OK : af_report("classify", &err);
}
