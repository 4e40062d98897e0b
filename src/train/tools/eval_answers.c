/* eval_answers.c - answers that a model generates to the prompts of a dataset, compared with the
 * answers that the records have.
 *
 * The last run of tokens that training would learn is the expected answer, and everything before it
 * the prompt: what is measured is what was trained, whatever the shape of the dataset. */
#include "train/tools/eval_data.h"

typedef struct answers_job {
    af_model *m;
    const af_tokenizer *tokenizer;
    const af_answers_opts *o;
    const af_token_store *store;
    int32_t *ids;           /* of all prompts and expected answers */
    const int32_t **prompt; /* [count] */
    int64_t *prompt_len, *expected_len, *record;
    int count;
    af_generated *made;
} answers_job;

/* [*first, *end): the last tokens in a row that count. */
static void last_answer(const uint32_t *w, int64_t n, int64_t *first, int64_t *end)
{
    *end = n;
    while (*end > 0 && w[*end - 1] & AF_TOKEN_NO_LOSS)
        --*end;
    *first = *end;
    while (*first > 0 && !(w[*first - 1] & AF_TOKEN_NO_LOSS))
        --*first;
}

/* The prompts and expected answers of all records that have both. */
static af_status take_records(answers_job *j, af_error *err)
{
    const af_token_store *s = j->store;
    const uint64_t n = (uint64_t)AF_MAX(s->records, INT64_C(1));
    int32_t *at = j->ids = af_calloc(s->tokens + 1, sizeof *j->ids);
    j->prompt = af_calloc(n, sizeof *j->prompt);
    j->prompt_len = af_calloc(n * 3, sizeof *j->prompt_len);
    j->made = af_calloc(n, sizeof *j->made);
    if (!j->ids || !j->prompt || !j->prompt_len || !j->made || n > INT32_MAX)
        return af_fail_nomem(err, "the records", n * sizeof *j->made);
    j->expected_len = j->prompt_len + n;
    j->record = j->expected_len + n;
    for (int64_t i = 0; i < s->records; i++) {
        const uint32_t *w = af_token_words(s, i);
        int64_t first, end;
        last_answer(w, s->index[i].count, &first, &end);
        if (first == 0 || first == end)
            continue;
        for (int64_t t = 0; t < end; t++)
            at[t] = (int32_t)(w[t] & ~AF_TOKEN_NO_LOSS);
        j->prompt[j->count] = at;
        j->prompt_len[j->count] = first;
        j->expected_len[j->count] = end - first;
        j->record[j->count++] = i;
        at += end;
    }
    return AF_OK;
}

/* Without the white space at its ends. */
static const char *trimmed(const char *s, uint64_t *n)
{
    static const char spaces[] = " \t\r\n";
    while (*n && strchr(spaces, s[*n - 1]))
        --*n;
    while (*n && strchr(spaces, *s)) {
        s++;
        --*n;
    }
    return s;
}

static bool same_text(const char *a, uint64_t a_len, const char *b, uint64_t b_len)
{
    a = trimmed(a, &a_len);
    b = trimmed(b, &b_len);
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static af_status compare(const answers_job *j, int i, af_answers_result *out, af_error *err)
{
    const af_generated *g = &j->made[i];
    af_answered a = {
        .record = j->record[i], .answer = g->text, .answer_len = g->text_len, .stop = g->stop};
    char *expected = NULL, *prompt = NULL;
    af_status st = AF_OK;
    AF_TRY(af_tokenizer_decode(j->tokenizer, &expected, &a.expected_len,
                               j->prompt[i] + j->prompt_len[i], j->expected_len[i], true, err));
    a.match = same_text(g->text, g->text_len, expected, a.expected_len);
    out->answers++;
    out->tokens += g->count;
    out->exact_match += a.match;
    if (j->o->answered) {
        AF_TRY(af_tokenizer_decode(j->tokenizer, &prompt, &a.prompt_len, j->prompt[i],
                                   j->prompt_len[i], false, err));
        a.expected = expected;
        a.prompt = prompt;
        j->o->answered(j->o->user, &a);
    }
done:
    free(expected);
    free(prompt);
    return st;
}

static af_status answer_all(answers_job *j, af_answers_result *out, af_error *err)
{
    const af_generate_opts g = {.prompt = j->prompt,
                                .prompt_len = j->prompt_len,
                                .sequences = j->count,
                                .max_new = j->o->max_new,
                                .skip_special = true};
    af_status st = af_model_generate(j->m, &g, j->made, err);
    for (int i = 0; st == AF_OK && i < j->count; i++)
        st = compare(j, i, out, err);
    return st;
}

af_status af_model_eval_answers(af_model *m, const char *path, const af_answers_opts *o,
                                af_answers_result *out, af_error *err)
{
    AF_NEED(err, m, path, o, out);
    af_status st = AF_OK;
    af_arena mem = {0};
    af_token_store store = {0};
    af_data_counts counts = {0};
    af_answers_result r = {0};
    af_error unread;
    err = af_error_or(err, &unread);
    answers_job j = {.m = m, .o = o, .store = &store};
    if (o->max_new < 1)
        return af_fail(err, AF_EUSAGE, "answers of %" PRId64 " tokens are not possible",
                       o->max_new);
    AF_TRY(af_model_tokenizer(m, &j.tokenizer, err));
    AF_TRY(af_eval_data_open(&store, &counts, m, path, &o->data, false, AF_EXCESS_DROP, &mem, err));
    AF_TRY(take_records(&j, err));
    if (j.count == 0 && counts.dropped)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "of the records of '%s', %" PRId64 " are longer than %" PRId64
                       " tokens (sequence_len), and no other has a prompt and an answer to it",
                       path, counts.dropped, o->data.sequence_len ? o->data.sequence_len : 2048));
    if (j.count == 0)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "none of the %" PRId64 " records of '%s' has a prompt and an answer to it",
                       counts.records, path));
    AF_TRY(answer_all(&j, &r, err));
    r.exact_match /= (double)j.count;
    r.left_out = store.records - j.count + counts.dropped;
    *out = r;
done:
    for (int i = 0; i < j.count; i++)
        af_generated_clear(&j.made[i]);
    free(j.ids);
    free(j.prompt);
    free(j.prompt_len);
    free(j.made);
    af_token_store_close(&store);
    af_arena_clear(&mem);
    return st;
}
