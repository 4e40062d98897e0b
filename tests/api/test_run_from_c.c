/* test_run_from_c.c - a run from C with public headers alone: LoRA on the tiny model gives the
 * files of `afinar train` with the same keys, byte for byte; evaluation, checkpoints and wrong use.
 */
#include "afinar/afinar.h"
#include "test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/afinar-run-XXXXXX";

static void path_of(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", folder, name);
}

/* The keys of both runs; output_dir differs. */
static const char *const keys[][2] = {{"adapter", "lora"},
                                      {"lora_r", "4"},
                                      {"lora_dropout", "0.1"},
                                      {"learning_rate", "1e-3"},
                                      {"sequence_len", "128"},
                                      {"micro_batch_size", "2"},
                                      {"gradient_accumulation_steps", "2"},
                                      {"max_steps", "4"},
                                      {"val_set_size", "8"},
                                      {"eval_steps", "2"},
                                      {"save_steps", "2"},
                                      {"seed", "7"},
                                      {"device", "cpu"},
                                      {"threads", "2"}};
enum { KEYS = sizeof keys / sizeof keys[0] };

static void input_keys(char model[4096], char data[4200])
{
    snprintf(model, 4096, "%s/models/qwen2", golden_dir());
    snprintf(data, 4200, "[{path: %s/models/data/train.jsonl, type: chat_template}]", golden_dir());
}

static af_run *new_run(const char *out)
{
    char model[4096], data[4200], dir[4096];
    af_run *run = NULL;
    af_error err = {0};
    input_keys(model, data);
    path_of(dir, sizeof dir, out);
    CHECK_OK(af_run_new(&run, &err), err);
    CHECK_OK(af_run_set(run, "base_model", model, &err), err);
    CHECK_OK(af_run_set(run, "datasets", data, &err), err);
    CHECK_OK(af_run_set(run, "output_dir", dir, &err), err);
    for (int i = 0; i < KEYS; i++)
        CHECK_OK(af_run_set(run, keys[i][0], keys[i][1], &err), err);
    return run;
}

/* The same run from a file. */
static void train_from_file(const char *out)
{
    char model[4096], data[4200], file[4096], dir[4096];
    af_error err = {0};
    af_train_result result;
    input_keys(model, data);
    path_of(file, sizeof file, "run.yaml");
    path_of(dir, sizeof dir, out);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "base_model: %s\ndatasets: %s\noutput_dir: %s\n", model, data, dir);
    for (int i = 0; i < KEYS; i++)
        fprintf(f, "%s: %s\n", keys[i][0], keys[i][1]);
    fclose(f);
    CHECK_OK(af_train(file, NULL, 0, NULL, &result, &err), err);
    assert_int_equal(result.steps, 4);
}

static size_t read_all(const char *dir, const char *name, char *out, size_t size)
{
    char path[4096], sub[512];
    snprintf(sub, sizeof sub, "%s/%s", dir, name);
    path_of(path, sizeof path, sub);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f != NULL, "%s is missing", path);
    const size_t n = fread(out, 1, size, f);
    assert_true(n < size);
    fclose(f);
    return n;
}

/* Fields of metrics.jsonl that are measured, not computed. */
static void blank_times(char *text)
{
    static const char *const names[] = {"\"tok_s\": ",
                                        "\"step_ms\": ",
                                        "\"memory_bytes\": ",
                                        "\"eval_runtime\": ",
                                        "\"eval_samples_per_second\": ",
                                        "\"eval_steps_per_second\": "};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (char *at = text; (at = strstr(at, names[i]));)
            for (at += strlen(names[i]); *at && *at != ',' && *at != '}'; at++)
                *at = ' ';
}

/* Drops blanks, so that times of different widths compare equal. */
static void squeeze(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = '\0';
}

static void same_file(const char *name, bool metrics)
{
    static char a[1 << 22], b[1 << 22];
    size_t n = read_all("object", name, a, sizeof a - 1),
           m = read_all("file", name, b, sizeof b - 1);
    a[n] = b[m] = '\0';
    if (metrics) {
        blank_times(a);
        blank_times(b);
        squeeze(a);
        squeeze(b);
        n = strlen(a);
        m = strlen(b);
    }
    CHECK_MSG(n == m && memcmp(a, b, n) == 0, "%s differs", name);
}

static void test_a_run_object_trains_like_a_run_file(void **state)
{
    (void)state;
    af_error err = {0};
    af_run_step_result r = {0};
    int steps = 0, evaluations = 0;
    af_run *run = new_run("object");
    CHECK_OK(af_run_open(run, NULL, &err), err);
    for (; !r.finished && steps < 100; steps++) {
        CHECK_OK(af_run_step(run, &r, &err), err);
        assert_int_equal(r.step, steps + 1);
        assert_int_equal(r.steps, 4);
        assert_true(isfinite(r.loss) && isfinite(r.grad_norm));
        evaluations += isfinite(r.eval_loss);
    }
    assert_int_equal(steps, 4);
    assert_int_equal(evaluations, 2);
    double loss = NAN, accuracy = NAN;
    CHECK_OK(af_run_evaluate(run, &loss, &accuracy, &err), err);
    assert_true(loss == r.eval_loss); /* nothing was trained in between */
    assert_true(accuracy >= 0 && accuracy <= 1);
    CHECK_OK(af_run_checkpoint(run, &err), err);
    CHECK_OK(af_run_save(run, NULL, &err), err);
    af_run_close(run);

    train_from_file("file");
    same_file("metrics.jsonl", true);
    same_file("adapter_model.safetensors", false);
    same_file("checkpoint-2/adapter_model.safetensors", false);
    same_file("checkpoint-4/adapter_model.safetensors", false);
}

static void test_a_run_can_be_left_and_resumed(void **state)
{
    (void)state;
    static char a[1 << 22], b[1 << 22];
    char dir[4096];
    af_error err = {0};
    af_run_step_result r = {0};
    af_run *run = new_run("resumed");
    CHECK_OK(af_run_open(run, NULL, &err), err);
    CHECK_OK(af_run_step(run, &r, &err), err);
    CHECK_OK(af_run_checkpoint(run, &err), err);
    af_run_close(run);

    run = new_run("resumed");
    CHECK_OK(af_run_set(run, "resume_from_checkpoint", "auto", &err), err);
    CHECK_OK(af_run_open(run, NULL, &err), err);
    for (r = (af_run_step_result){0}; !r.finished;)
        CHECK_OK(af_run_step(run, &r, &err), err);
    assert_int_equal(r.step, 4);
    path_of(dir, sizeof dir, "elsewhere");
    CHECK_OK(af_run_save(run, dir, &err), err);
    af_run_close(run);
    const size_t n = read_all("elsewhere", "adapter_model.safetensors", a, sizeof a);
    const size_t m = read_all("object", "adapter_model.safetensors", b, sizeof b);
    CHECK_MSG(n == m && memcmp(a, b, n) == 0, "the resumed run has another adapter");
}

static bool stop_now(void *user)
{
    ++*(int *)user;
    return true;
}

static void test_wrong_use_is_an_error(void **state)
{
    (void)state;
    af_error err = {0};
    af_run_step_result r;
    af_run *run = NULL;
    CHECK_OK(af_run_new(&run, &err), err);
    assert_int_equal(af_run_set(run, "lora_rnak", "8", &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "lora_r")); /* did you mean */
    assert_int_equal(af_run_set(run, "lora_r", "many", &err), AF_EUSAGE);
    assert_int_equal(af_run_step(run, &r, &err), AF_EUSAGE); /* not open */
    assert_int_equal(af_run_evaluate(run, NULL, NULL, &err), AF_EUSAGE);
    assert_int_equal(af_run_save(run, NULL, &err), AF_EUSAGE);
    assert_int_equal(af_run_checkpoint(run, &err), AF_EUSAGE);
    assert_int_not_equal(af_run_open(run, NULL, &err), AF_OK); /* no base_model */
    af_run_close(run);
    af_run_close(NULL);

    int asked = 0;
    char file[4096], dir[4096];
    af_train_result result;
    path_of(file, sizeof file, "run.yaml"); /* af_train asks the same hook */
    path_of(dir, sizeof dir, "stopped");
    char out[4200];
    snprintf(out, sizeof out, "output_dir=%s", dir);
    const char *const overrides[] = {out};
    const af_train_hooks hooks = {.user = &asked, .stop = stop_now};
    assert_int_equal(af_train(file, overrides, 1, &hooks, &result, &err), AF_ESTOPPED);
    assert_true(asked > 0 && result.stopped);
}

/* Before the first step something is put where the first checkpoint goes; after that step somebody
 * asks for the weights, and so hears that it was not written. */
static void take_weights(void *user, const af_train_moment *m)
{
    char dir[4096], file[4200];
    af_error err = {0};
    int *asked = user;
    path_of(dir, sizeof dir, "unwritten/checkpoint-2");
    snprintf(file, sizeof file, "%s/run.yaml", dir);
    if (m->step == 0) {
        assert_int_equal(mkdir(dir, 0777), 0);
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fclose(f);
    }
    path_of(dir, sizeof dir, "weights");
    if (m->step == 2 && ++*asked) {
        assert_int_equal(mkdir(dir, 0777), 0);
        assert_int_not_equal(m->write(m->run, dir, &err), AF_OK);
        assert_non_null(strstr(err.msg, "was not written"));
    }
}

static void test_a_checkpoint_that_fails_ends_the_run(void **state)
{
    (void)state;
    af_error err = {0};
    int asked = 0;
    char file[4096], dir[4096], out[4200];
    af_train_result result;
    path_of(file, sizeof file, "run.yaml");
    path_of(dir, sizeof dir, "unwritten");
    snprintf(out, sizeof out, "output_dir=%s", dir);
    const af_train_hooks hooks = {.user = &asked, .between = take_weights};
    const af_status st = af_train(file, (const char *const[]){out}, 1, &hooks, &result, &err);
    assert_int_equal(asked, 1);
    assert_int_not_equal(st, AF_OK);
    assert_non_null(strstr(err.msg, "was not written"));
}

static af_status refuse_start(void *user, const af_train_start *s, af_error *err)
{
    ++*(int *)user;
    return af_fail(err, AF_EUNSUPPORTED, "not after step %d", (int)s->step);
}

static void count_moment(void *user, const af_train_moment *m)
{
    af_error err = {0};
    assert_int_equal(m->step, (*(int *)user)++); /* before the first step and after each */
    if (m->step == 1)
        CHECK_OK(m->checkpoint(m->run, &err), err);
}

static void test_hooks_of_a_run_object(void **state)
{
    (void)state;
    af_error err = {0};
    int starts = 0, moments = 0;
    char path[4096];
    af_run_step_result r = {0};
    const af_train_hooks no = {.user = &starts, .start = refuse_start},
                         all = {.user = &moments, .between = count_moment};
    af_run *run = new_run("refused");
    assert_int_equal(af_run_open(run, &no, &err), AF_EUNSUPPORTED);
    assert_string_equal(err.msg, "not after step 0");
    assert_int_equal(starts, 1);
    af_run_close(run);
    run = new_run("moments");
    CHECK_OK(af_run_open(run, &all, &err), err);
    while (!r.finished)
        CHECK_OK(af_run_step(run, &r, &err), err);
    CHECK_OK(af_run_step(run, &r, &err), err); /* nothing is left to do */
    assert_int_equal(moments, (int)r.steps + 1);
    path_of(path, sizeof path, "moments/checkpoint-1");
    assert_int_equal(access(path, F_OK), 0);
    af_run_close(run);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_object_trains_like_a_run_file),
        cmocka_unit_test(test_a_run_can_be_left_and_resumed),
        cmocka_unit_test(test_wrong_use_is_an_error),
        cmocka_unit_test(test_a_checkpoint_that_fails_ends_the_run),
        cmocka_unit_test(test_hooks_of_a_run_object),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
