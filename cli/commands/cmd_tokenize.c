/* cmd_tokenize.c - `afinar tokenize MODEL`: JSON lines from text to ids; --decode: to text. */
#define _GNU_SOURCE
#include "commands/commands.h"

#include "afinar/text.h"

#include <jansson.h>
#include <sys/stat.h>

typedef struct tokenize_job {
    af_tokenizer *tokenizer;
    af_encoding encoding;
    bool decode;
} tokenize_job;

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

static af_status flag(json_t *row, const char *key, bool absent, bool *out, af_error *err)
{
    json_t *v = json_object_get(row, key);
    *out = v ? json_is_true(v) : absent;
    if (v && !json_is_boolean(v))
        return af_fail(err, AF_EUSAGE, "\"%s\" must be true or false", key);
    return AF_OK;
}

static af_status encode(tokenize_job *j, json_t *row, af_error *err)
{
    bool special;
    json_t *text = json_object_get(row, "text");
    af_status st = flag(row, "add_special_tokens", true, &special, err);
    if (st != AF_OK)
        return st;
    if (!json_is_string(text))
        return af_fail(err, AF_EUSAGE, "\"text\" is missing or not a string");
    st = af_tokenizer_encode(j->tokenizer, &j->encoding, json_string_value(text),
                             json_string_length(text), special, err);
    if (st != AF_OK)
        return st;
    fputs("{\"ids\": [", stdout);
    for (int64_t i = 0; i < j->encoding.count; i++)
        printf(i ? ", %d" : "%d", (int)j->encoding.ids[i]);
    puts("]}");
    return AF_OK;
}

static af_status read_ids(json_t *list, int32_t **ids, size_t *n, af_error *err)
{
    if (!json_is_array(list))
        return af_fail(err, AF_EUSAGE, "\"ids\" is missing or not a list");
    *n = json_array_size(list);
    *ids = calloc(*n + 1, sizeof **ids);
    if (!*ids)
        return af_fail(err, AF_ENOMEM, "out of memory for %zu ids", *n);
    for (size_t i = 0; i < *n; i++) {
        json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return af_fail(err, AF_EUSAGE, "item %zu of \"ids\" is not a token id", i);
        (*ids)[i] = (int32_t)json_integer_value(v);
    }
    return AF_OK;
}

static af_status decode(tokenize_job *j, json_t *row, af_error *err)
{
    int32_t *ids = NULL;
    char *text = NULL, *line = NULL;
    uint64_t len;
    size_t n = 0;
    bool skip;
    json_t *out = NULL;
    af_status st = flag(row, "skip_special_tokens", false, &skip, err);
    if (st == AF_OK)
        st = read_ids(json_object_get(row, "ids"), &ids, &n, err);
    if (st == AF_OK)
        st = af_tokenizer_decode(j->tokenizer, &text, &len, ids, (int64_t)n, skip, err);
    if (st == AF_OK) {
        out = json_pack("{s:o}", "text", json_stringn(text, (size_t)len));
        line = af_cli_json_dump(out, "the text of these ids cannot be written as JSON", err);
        if (line)
            puts(line);
        else
            st = err->code;
    }
    json_decref(out);
    free(line);
    free(text);
    free(ids);
    return st;
}

static af_status one_line(tokenize_job *j, const char *text, size_t n, af_error *err)
{
    json_t *row = NULL;
    af_status st = af_json_tree(&row, text, n, JSON_ALLOW_NUL, err);
    if (st != AF_OK)
        return st;
    if (!json_is_object(row))
        st = af_fail(err, AF_EUSAGE, "not a JSON object");
    else
        st = j->decode ? decode(j, row, err) : encode(j, row, err);
    json_decref(row);
    return st;
}

static af_status all_lines(tokenize_job *j, af_error *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct stat info;
    af_status st = AF_OK;
    const bool file = fstat(fileno(stdin), &info) == 0 && S_ISREG(info.st_mode);
    for (long number = 1; st == AF_OK && (n = getline(&line, &cap, stdin)) >= 0; number++) {
        const size_t len = (size_t)n - (n > 0 && line[n - 1] == '\n');
        if (blank(line, len))
            continue;
        st = one_line(j, line, len, err);
        if (st != AF_OK)
            af_fail_prefix(st, err, "line %ld", number);
        else if (!file) /* an interactive caller waits for the result */
            fflush(stdout);
    }
    if (st == AF_OK)
        st = af_cli_stdin_end(err);
    free(line);
    return st;
}

int cmd_tokenize(int argc, char **argv)
{
    tokenize_job j = {0};
    af_common common = {0};
    af_error err = {0};
    const char *arg[1];
    int count;
    const af_opt opts[] = {
        {0, "decode", AF_OPT_FLAG, &j.decode, NULL,
         "decode: read {\"ids\", \"skip_special_tokens\"}, write {\"text\"}"},
        {0},
    };
    const af_usage usage = {"tokenize",
                            "Converts text to token ids. Reads JSON lines {\"text\", "
                            "\"add_special_tokens\"} from stdin and writes\n{\"ids\"} for each.",
                            "MODEL",
                            opts,
                            1,
                            1,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    af_status st = af_tokenizer_open(&j.tokenizer, arg[0], &err);
    if (st == AF_OK)
        st = all_lines(&j, &err);
    af_encoding_clear(&j.encoding);
    af_tokenizer_close(j.tokenizer);
    return st == AF_OK ? AF_EXIT_OK : af_report("tokenize", &err);
}
