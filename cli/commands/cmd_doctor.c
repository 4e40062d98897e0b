/* cmd_doctor.c - `afinar doctor [--json]`: what this machine supports. */
#include "commands/commands.h"

#include "afinar/bench.h"
#include "afinar/doctor.h"
#include "afinar/hub.h"

/* Text with quotes and backslashes escaped. */
static void print_string(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
    putchar('"');
}

static void print_json(const af_finding *f, int n, double f32, double bf16)
{
    printf("{");
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ", " : "");
        print_string(f[i].name);
        printf(": {\"found\": %s, \"text\": ", f[i].state == AF_FINDING_GOOD ? "true" : "false");
        print_string(f[i].text);
        printf("}");
    }
    printf(", \"gemm_f32_gflops\": %.1f, \"gemm_bf16_gflops\": %.1f}\n", f32, bf16);
}

static int add_hub(af_finding *found, int n)
{
    char version[200];
    af_hub_library(version, sizeof version);
    found[n].name = "libcurl";
    found[n].state = *version ? AF_FINDING_GOOD : AF_FINDING_ABSENT;
    snprintf(found[n].text, sizeof found[n].text, "%s",
             *version ? version
                      : "not found: nothing is downloaded from or uploaded to the hub (package "
                        "libcurl4 on Debian and Ubuntu)");
    return n + 1;
}

int cmd_doctor(int argc, char **argv)
{
    const char *arg[1];
    int count;
    af_common common = {0};
    const af_opt opts[] = {{0}};
    const af_usage usage = {
        "doctor", "Shows what this machine supports, what is missing, and its GEMM speed.",
        "",       opts,
        0,        0,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    af_finding found[AF_FINDINGS_MAX];
    const int n = add_hub(found, af_doctor(found));
    af_error err = {0};
    double f32 = 0, bf16 = 0;
    if (af_bench_gemm(common.device, (int)common.threads, &f32, &bf16, &err) != AF_OK)
        return af_report("doctor", &err);
    if (common.json) {
        print_json(found, n, f32, bf16);
        return AF_EXIT_OK;
    }
    for (int i = 0; i < n; i++)
        printf("%-17s %-3s %s\n", found[i].name, found[i].state == AF_FINDING_GOOD ? "yes" : "no",
               found[i].text);
    printf("%-17s     f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s (1024 x 1024 x 1024, device %s)\n",
           "GEMM", f32, bf16, common.device);
    return AF_EXIT_OK;
}
