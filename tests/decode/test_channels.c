/* test_channels.c - answers that are messages with channels, whole and in pieces. */
#include "test.h"

#include "base/buf.h"
#include "decode/channels.h"

typedef struct heard {
    af_buf out;
    bool begun;
} heard;

static void on_text(void *user, af_channel_kind kind, const char *text, uint64_t n)
{
    heard *h = user;
    static const char *const kinds[] = {"?", "R:", "C:", "F:"};
    if (!h->begun)
        af_buf_str(&h->out, kinds[kind]);
    h->begun = true;
    af_buf_add(&h->out, text, n);
}

static void on_end(void *user, af_channel_kind kind, const char *to)
{
    heard *h = user;
    if (kind == AF_CHANNEL_CALL)
        af_buf_printf(&h->out, "@%s", to);
    af_buf_char(&h->out, '|');
    h->begun = false;
}

static const struct {
    const char *prompt, *answer, *want;
} cases[] = {
    {"<|start|>user<|message|>Hi<|end|><|start|>assistant",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello",
     "R:Hm.|C:Hello|"},
    {"<|start|>assistant",
     "<|channel|>analysis<|message|>a<b<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_x <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "R:a<b|F:{\"a\": 1}@get_x|"},
    {"<|start|>assistant", " to=functions.f<|channel|>commentary json<|message|>{}", "F:{}@f|"},
    {"<|start|>assistant",
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis "
     "to=python code<|message|>1<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>",
     "C:I look.|R:1|C:So.|"},
    {"<|start|>assistant<|channel|>final<|message|>", "{\"a\": \"<|x\"}", "C:{\"a\": \"<|x\"}|"},
    {"<|start|>assistant<|channel|>analysis<|message|>So", " far<|end|>", "R: far|"},
    {"<|start|>assistant", "Hello without a head", "C:Hello without a head|"},
    {"no messages at all", "to be<|end|> or not", "C:to be|C: or not|"},
    {"<|start|>assistant", "<|channel|>analysis<|message|>cut <|en", "R:cut <|en|"},
    {"<|start|>assistant", "<|channel|>ana", ""},
    {"<|start|>assistant", "", ""},
};

static void test_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        for (uint64_t size = 1; size < 100; size += size < 12 ? 1 : 80) {
            af_error err = {0};
            heard h = {0};
            af_channels *c = NULL;
            const af_channel_sink sink = {on_text, on_end, &h};
            const char *p = cases[i].prompt, *a = cases[i].answer;
            const char *last = af_channels_last(p, strlen(p));
            CHECK_OK(af_channels_new(&c, last, strlen(last), &sink, &err), err);
            for (uint64_t at = 0; at < strlen(a); at += size)
                CHECK_OK(af_channels_add(c, a + at, AF_MIN(size, strlen(a) - at), &err), err);
            CHECK_OK(af_channels_finish(c, &err), err);
            const char *got = h.out.data ? h.out.data : "";
            CHECK_MSG(strcmp(got, cases[i].want) == 0, "%s in pieces of %d: '%s'", a, (int)size,
                      got);
            af_buf_clear(&h.out);
            af_channels_free(c);
        }
}

static void test_marks(void **state)
{
    (void)state;
    assert_true(af_channels_mark("<|channel|>") && af_channels_mark("<|constrain|>"));
    assert_false(af_channels_mark("<|im_end|>") || af_channels_mark(NULL));
    assert_true(af_channels_used("'<|start|>' '<|channel|>' '<|message|>'"));
    assert_false(af_channels_used("<|im_start|>") || af_channels_used(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
