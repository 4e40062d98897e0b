/* pair_batch.c - see pair_batch.h. */
#include "data/store/batch_stream.h"

/* A record as it is laid out: cut, and with the answer of its partner in KTO. */
typedef struct laid_pair {
    af_pair_row row;
    int64_t record, prompt, first, second; /* tokens */
    int64_t skip[2];                       /* keep_end: prompt tokens that each sequence lacks */
} laid_pair;

static int64_t record_of(const af_pair_source *s, int64_t i)
{
    return s->subset ? s->subset[i] : s->first + i;
}

/* Records were checked when the stream was opened. */
static laid_pair lay(const af_pair_source *s, int64_t i)
{
    laid_pair l = {.record = record_of(s, i)};
    (void)!af_pair_row_read(&l.row, s->store, l.record, NULL);
    if (s->layout.rl == AF_RL_KTO) {
        af_pair_row other = {0};
        if (!s->layout.no_second)
            (void)!af_pair_row_read(&other, s->store,
                                    record_of(s, af_kl_partner(i, s->count, s->layout.kl_batch)),
                                    NULL);
        l.row.second = other.first;
        l.row.second_len = other.first_len;
    }
    if (s->layout.keep_end && s->limit > 0) { /* the store has the last tokens of answers */
        l.prompt = l.row.prompt_len;
        l.first = l.row.first_len;
        l.second = l.row.second_len;
        l.skip[0] = AF_MAX(l.prompt + l.first - s->limit, INT64_C(0));
        l.skip[1] = AF_MAX(l.prompt + l.second - s->limit, INT64_C(0));
        return l;
    }
    l.prompt = s->limit > 0 ? AF_MIN(l.row.prompt_len, s->limit) : l.row.prompt_len;
    l.first = af_pair_cut(l.prompt, l.row.first_len, s->limit);
    l.second = af_pair_cut(l.prompt, l.row.second_len, s->limit);
    return l;
}

static bool has_second(const af_pair_source *s) { return !s->layout.no_second; }

/* Without a prompt there is nothing to share, and no last token to begin with. */
static bool shares(const af_pair_source *s, const laid_pair *l)
{
    return s->layout.shared && l->prompt > l->skip[0] && l->skip[0] == l->skip[1];
}

int64_t af_pair_batch_rows(const af_pair_source *s, int64_t i)
{
    const laid_pair l = lay(s, i);
    if (!has_second(s))
        return l.prompt + l.first;
    if (shares(s, &l))
        return l.prompt - l.skip[0] + l.first + 1 + l.second;
    return 2 * l.prompt - l.skip[0] - l.skip[1] + l.first + l.second;
}

static void put_row(af_batch *b, int32_t id, int64_t position)
{
    b->ids[b->rows] = id;
    b->positions[b->rows] = (int32_t)position;
    b->labels[b->rows] = -100;
    b->rows++;
}

/* Attention sees rows [from, to), too. */
static void spread(af_batch *b, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to && b->source; r++)
        b->source[b->attention_rows++] = (int32_t)r;
}

static void end_sequence(af_batch *b, int64_t record)
{
    b->record[b->sequences++] = record;
    b->bounds[b->sequences] = (int32_t)(b->source ? b->attention_rows : b->rows);
}

/* Tokens [from, prompt) of the prompt, then an answer; labels on the rows that predict it. */
static af_answer_rows put_answer(af_batch *b, const laid_pair *l, bool second, int64_t from)
{
    const int32_t *answer = second ? l->row.second : l->row.first;
    const int64_t tokens = second ? l->second : l->first, kept = l->prompt - l->skip[second];
    for (int64_t i = from; i < l->prompt; i++)
        put_row(b, l->row.prompt[i], i - l->skip[second]);
    const int64_t first = b->rows;
    for (int64_t i = 0; i < tokens; i++)
        put_row(b, answer[i], kept + i);
    const bool predicted = kept > 0; /* the first token, by the prompt's last */
    const af_answer_rows a = {.from = predicted ? first - 1 : first,
                              .terms = predicted ? tokens : AF_MAX(tokens - 1, INT64_C(0)),
                              .tokens = tokens,
                              .prompt = kept};
    for (int64_t i = 0; i < a.terms; i++)
        b->labels[a.from + i] = answer[i + !predicted];
    b->supervised += a.terms;
    return a;
}

static void label_prompt(af_batch *b, af_pair_rows *p, const laid_pair *l)
{
    p->prompt_terms = AF_MAX(l->prompt - 1, INT64_C(0));
    for (int64_t i = 0; i < p->prompt_terms; i++)
        b->labels[p->prompt_from + i] = l->row.prompt[i + 1];
    b->supervised += p->prompt_terms;
}

void af_pair_batch_add(const af_pair_source *s, af_batch *b, int64_t i)
{
    const laid_pair l = lay(s, i);
    af_pair_rows *p = &b->pair[b->pairs++];
    *p = (af_pair_rows){
        .record = l.record, .prompt_from = b->rows, .label = l.row.label, .margin = l.row.margin};
    p->first = put_answer(b, &l, false, l.skip[0]);
    if (s->layout.prompt_loss)
        label_prompt(b, p, &l);
    spread(b, p->prompt_from, b->rows);
    end_sequence(b, l.record);
    if (!has_second(s))
        return;
    const bool shared = shares(s, &l);
    const int64_t branch = b->rows;
    p->second = put_answer(b, &l, true, shared ? l.prompt - 1 : l.skip[1]);
    if (shared)
        spread(b, p->prompt_from, p->prompt_from + p->first.prompt - 1);
    spread(b, branch, b->rows);
    end_sequence(b, l.record);
}
