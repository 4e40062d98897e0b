/* constraint.c - see constraint.h. */
#include "commands/constraint.h"
#include "commands/model_opts.h"

void af_cli_constraint_rows(af_opt *table, af_cli_constraint *c)
{
    const af_opt rows[] = {
        {0, "json-schema", AF_OPT_STR, &c->schema, "SCHEMA",
         "JSON schema that answers must fit; {} = any JSON"},
        {0, "json-schema-file", AF_OPT_STR, &c->schema_file, "FILE", "file with such a schema"},
        {0, "grammar", AF_OPT_STR, &c->rules, "GBNF", "grammar that answers must fit"},
        {0, "grammar-file", AF_OPT_STR, &c->rules_file, "FILE", "file with such a grammar"},
        {0},
    };
    while (table->name)
        table++;
    memcpy(table, rows, sizeof rows);
}

int af_cli_constraint_count(const af_cli_constraint *c)
{
    return !!c->schema + !!c->schema_file + !!c->rules + !!c->rules_file;
}

static af_status compile(af_cli_constraint *c, af_error *err)
{
    const bool json = c->schema || c->schema_file;
    const char *path = json ? c->schema_file : c->rules_file, *text = json ? c->schema : c->rules;
    const af_tokenizer *tokenizer;
    char *file = NULL;
    size_t n = text ? strlen(text) : 0;
    af_status st = path ? af_cli_read_file(&file, &n, path, err) : AF_OK;
    if (st == AF_OK)
        st = af_model_tokenizer(c->m, &tokenizer, err);
    if (st == AF_OK)
        st = af_grammar_vocab_open(&c->vocab, tokenizer, err);
    if (st == AF_OK)
        st = af_grammar_open(&c->grammar, json ? AF_GRAMMAR_JSON_SCHEMA : AF_GRAMMAR_GBNF,
                             path ? file : text, n, c->vocab, err);
    if (st != AF_OK && path && file)
        st = af_fail_prefix(st, err, "%s", path);
    free(file);
    return st;
}

af_status af_cli_constraint_open(af_cli_constraint *c, af_model *m, int sequences, af_error *err)
{
    c->m = m;
    af_status st = compile(c, err);
    if (st != AF_OK)
        return st;
    c->state = calloc((size_t)sequences, sizeof *c->state);
    c->accepted = calloc((size_t)sequences, sizeof *c->accepted);
    if (!c->state || !c->accepted)
        return af_fail(err, AF_ENOMEM, "out of memory for %d prompts", sequences);
    for (; st == AF_OK && c->sequences < sequences; c->sequences++)
        st = af_grammar_state_new(&c->state[c->sequences], c->grammar, err);
    return st;
}

bool af_cli_constraint_mask(void *user, int sequence, const int32_t *made, int64_t n,
                            uint32_t *allowed)
{
    af_cli_constraint *c = user;
    int64_t *accepted = &c->accepted[sequence];
    for (; c->st == AF_OK && *accepted < n; ++*accepted)
        c->st = af_grammar_state_accept(c->state[sequence], made[*accepted], &c->err);
    if (c->st == AF_OK)
        c->st = af_grammar_state_mask(c->state[sequence], allowed, af_model_vocab(c->m), &c->err);
    return c->st == AF_OK;
}

void af_cli_constraint_close(af_cli_constraint *c)
{
    for (int i = 0; i < c->sequences; i++)
        af_grammar_state_free(c->state[i]);
    free(c->state);
    free(c->accepted);
    af_grammar_close(c->grammar);
    af_grammar_vocab_close(c->vocab);
}
