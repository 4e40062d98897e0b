/* finetune.c - LoRA fine-tuning of a model folder on a dataset, without a run file.
 *
 * usage: example_finetune MODEL DATASET OUTPUT_DIR [key=value ...]
 *
 * DATASET is any file that `afinar train` reads (.jsonl, .json, .csv, .txt, ...); the further
 * arguments are keys of a run file (docs/keys.md), such as num_epochs=3 or learning_rate=1e-4. */
#include <afinar/afinar.h>

#include <stdio.h>
#include <string.h>

static void print_log(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* Sets "key=value" from the command line. */
static af_status set_argument(af_run *run, char *argument, af_error *err)
{
    char *value = strchr(argument, '=');
    if (!value)
        return af_fail(err, AF_EUSAGE, "expected key=value, got '%s'", argument);
    *value = '\0';
    return af_run_set(run, argument, value + 1, err);
}

static af_status finetune(af_run *run, char **argv, int argc, af_error *err)
{
    char dataset[4096];
    snprintf(dataset, sizeof dataset, "[{path: \"%s\"}]", argv[2]);
    const char *const keys[][2] = {{"base_model", argv[1]}, {"datasets", dataset},
                                   {"output_dir", argv[3]}, {"adapter", "lora"},
                                   {"lora_r", "16"},        {"learning_rate", "2e-4"},
                                   {"num_epochs", "1"}};
    af_status st = AF_OK;
    for (size_t i = 0; st == AF_OK && i < sizeof keys / sizeof keys[0]; i++)
        st = af_run_set(run, keys[i][0], keys[i][1], err);
    for (int i = 4; st == AF_OK && i < argc; i++)
        st = set_argument(run, argv[i], err);

    const af_train_hooks hooks = {.log = print_log};
    if (st == AF_OK) /* reads model and data, plans the memory */
        st = af_run_open(run, &hooks, err);
    af_run_step_result r = {0};
    while (st == AF_OK && !r.finished) {
        st = af_run_step(run, &r, err);
        if (st == AF_OK)
            printf("step %lld/%lld loss %.4f lr %.2e\n", (long long)r.step, (long long)r.steps,
                   r.loss, r.learning_rate);
    }
    return st == AF_OK ? af_run_save(run, NULL, err) : st; /* NULL: to output_dir */
}

int main(int argc, char **argv)
{
    af_run *run = NULL;
    af_error err = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: %s MODEL DATASET OUTPUT_DIR [key=value ...]\n", argv[0]);
        return 2;
    }
    af_status st = af_run_new(&run, &err);
    if (st == AF_OK)
        st = finetune(run, argv, argc, &err);
    af_run_close(run);
    if (st != AF_OK)
        fprintf(stderr, "finetune: %s\n", err.msg);
    return st == AF_OK ? 0 : 1;
}
