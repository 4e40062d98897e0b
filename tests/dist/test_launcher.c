/* Which rank of how many: the variables of every launcher, and values that cannot be right. */
#include "test.h"

#include "dist/launcher.h"

typedef struct variable {
    const char *name, *value;
} variable;

enum { VARIABLES = 8 };
static const variable *set;

static const char *from_set(const char *name)
{
    for (int i = 0; i < VARIABLES && set[i].name; i++)
        if (strcmp(set[i].name, name) == 0)
            return set[i].value;
    return NULL;
}

static void test_launchers(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        variable v[VARIABLES];
        af_launcher_kind kind;
        int rank, size, local;
        bool mpi;
    } cases[] = {
        {"nothing set", {{NULL, NULL}}, AF_LAUNCHER_NONE, 0, 1, 0, false},
        {"torchrun",
         {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}},
         AF_LAUNCHER_TORCH,
         5,
         8,
         1,
         false},
        {"one of one", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, AF_LAUNCHER_TORCH, 0, 1, 0, false},
        {"one of one meets nobody",
         {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "none"}},
         AF_LAUNCHER_TORCH,
         0,
         1,
         0,
         false},
        {"Open MPI",
         {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"SLURM_PROCID", "0"},
          {"SLURM_NTASKS", "1"},
          {"SLURM_STEP_ID", "0"}},
         AF_LAUNCHER_OMPI,
         3,
         4,
         1,
         true},
        {"torchrun's variables come first",
         {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"RANK", "1"},
          {"WORLD_SIZE", "2"}},
         AF_LAUNCHER_TORCH,
         1,
         2,
         1,
         false},
        {"MPICH",
         {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}},
         AF_LAUNCHER_PMI,
         1,
         2,
         1,
         true},
        {"a step of Slurm",
         {{"SLURM_PROCID", "2"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_STEP_ID", "7"}},
         AF_LAUNCHER_SLURM,
         2,
         4,
         0,
         false},
        {"a step of Slurm for MPI",
         {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "7"}, {"PMIX_RANK", "2"}},
         AF_LAUNCHER_SLURM,
         2,
         4,
         2,
         true},
        {"a batch script is not a step",
         {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
         AF_LAUNCHER_NONE,
         0,
         1,
         0,
         false},
        {"a batch script's step has a name",
         {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "batch"}},
         AF_LAUNCHER_NONE,
         0,
         1,
         0,
         false},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_launcher l;
        af_error err = {0};
        set = cases[i].v;
        CHECK_MSG(af_launcher_find_in(&l, from_set, &err) == AF_OK, "%s: %s", cases[i].why,
                  err.msg);
        CHECK_MSG(l.kind == cases[i].kind && l.rank == cases[i].rank && l.size == cases[i].size &&
                      l.local_rank == cases[i].local && l.mpi == cases[i].mpi,
                  "%s: kind %d, rank %d of %d, local %d, mpi %d", cases[i].why, (int)l.kind, l.rank,
                  l.size, l.local_rank, l.mpi);
    }
}

/* torchrun's own store is at MASTER_PORT, unless it says that rank 0 is to have it. */
static void test_port_next_to_torchrun(void **state)
{
    (void)state;
    static const struct {
        const char *port, *agent;
        int found;
    } cases[] = {{"29500", NULL, 29500},
                 {"29500", "False", 29500},
                 {"29500", "True", 29501},
                 {"65535", "True", 65534}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const variable v[VARIABLES] = {{"RANK", "0"},
                                       {"WORLD_SIZE", "2"},
                                       {"MASTER_PORT", cases[i].port},
                                       {"TORCHELASTIC_USE_AGENT_STORE", cases[i].agent}};
        af_launcher l;
        af_error err = {0};
        set = v;
        CHECK_OK(af_launcher_find_in(&l, from_set, &err), err);
        assert_int_equal(l.port, cases[i].found);
    }
}

static void test_values_that_cannot_be_right(void **state)
{
    (void)state;
    static const struct {
        variable v[VARIABLES];
        const char *message;
    } cases[] = {
        {{{"RANK", "1"}}, "RANK is set, WORLD_SIZE is not"},
        {{{"WORLD_SIZE", "4"}}, "WORLD_SIZE is '4', RANK is not set"},
        {{{"RANK", ""}, {"WORLD_SIZE", "4"}}, "WORLD_SIZE is '4', RANK is not set"},
        {{{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK is 'x'; expected a number from 0 to 1"},
        {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is '2'; expected a number from 0 to 1"},
        {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is '-1'"},
        {{{"RANK", "1 "}, {"WORLD_SIZE", "2"}}, "RANK is '1 '"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0'; expected a number from 1"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}}, "WORLD_SIZE is '9999"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}, "LOCAL_RANK is '2'"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}}, "MASTER_PORT is '0'"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "65536"}}, "MASTER_PORT is '65536'"},
        {{{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_SIZE is not"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_launcher l;
        af_error err = {0};
        set = cases[i].v;
        CHECK_MSG(af_launcher_find_in(&l, from_set, &err) == AF_EUSAGE, "case %zu", i);
        CHECK_MSG(strstr(err.msg, cases[i].message), "'%s', not '%s'", err.msg, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_port_next_to_torchrun),
        cmocka_unit_test(test_values_that_cannot_be_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
