/* fuzz_run_file.c - any bytes as a run file, of any trainer; lines after a NUL byte are key=value
 * arguments. What is accepted can be written, and what was written is accepted again. */
#include "fuzz_file.h"
#include "train/run/run_config.h"

enum { ARGS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = af_strndup((const char *)data, size), *args[ARGS], *again = NULL, *save = NULL;
    af_run_config r = {0}, twice = {0};
    af_error err = {0};
    int n = 0;
    if (!text)
        return 0;
    const size_t yaml = strnlen(text, size);
    for (char *a = yaml < size ? strtok_r(text + yaml + 1, "\n", &save) : NULL; a && n < ARGS;
         a = strtok_r(NULL, "\n", &save))
        args[n++] = a;
    if (af_run_config_parse(&r, text, yaml, "fuzz", (const char *const *)args, n, &err) == AF_OK &&
        af_run_config_text(&r, &again, &err) == AF_OK &&
        af_run_config_parse(&twice, again, strlen(again), "again", NULL, 0, &err) != AF_OK) {
        fprintf(stderr, "%s\n%s", err.msg, again);
        abort();
    }
    free(again);
    free(text);
    af_run_config_clear(&r);
    af_run_config_clear(&twice);
    return 0;
}
