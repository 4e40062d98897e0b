/* The folder of token stores: private, bounded, and a store in use stays. */
#define _GNU_SOURCE
#include "base/file.h"
#include "data/store/token_cache.h"
#include "data/store/token_store.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/afinar-tokens-XXXXXX";

static char *in_dir(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

/* A store of about 4 KB that was last used `age` seconds ago. */
static void make_store(const char *name, int age)
{
    static const int32_t ids[1000];
    af_error err = {0};
    af_token_writer *w;
    CHECK_OK(af_token_writer_open(&w, in_dir(name), &err), err);
    CHECK_OK(af_token_writer_add(w, ids, ids, 1000, 0, 1, &err), err);
    CHECK_OK(af_token_writer_commit(w, "{}", &err), err);
    struct timespec t[2];
    clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= age;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, in_dir(name), t, 0), 0);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1000", 1000},
                {"64K", 65536},
                {"500m", UINT64_C(524288000)},
                {"20G", UINT64_C(21474836480)},
                {"1T", UINT64_C(1099511627776)}};
    static const char *const bad[] = {"",
                                      "G",
                                      "-1",
                                      "1.5G",
                                      "20GB",
                                      "20 G",
                                      "20X",
                                      "1Gx",
                                      "99999999999999999999",
                                      "99999999999T"};
    uint64_t n;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_MSG(af_token_cache_size(good[i].text, &n) && n == good[i].bytes, "%s", good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(!af_token_cache_size(bad[i], &n), "'%s' is taken", bad[i]);
    af_error err = {0};
    setenv("AFINAR_TOKEN_CACHE_LIMIT", "much", 1);
    assert_int_equal(af_token_cache_limit(&n, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "'much', not a size"));
    setenv("AFINAR_TOKEN_CACHE_LIMIT", "3M", 1);
    CHECK_OK(af_token_cache_limit(&n, &err), err);
    assert_int_equal(n, 3 << 20);
    unsetenv("AFINAR_TOKEN_CACHE_LIMIT");
    CHECK_OK(af_token_cache_limit(&n, &err), err);
    assert_int_equal(n, AF_TOKEN_CACHE_LIMIT);
}

static void test_the_oldest_go_and_those_in_use_stay(void **state)
{
    (void)state;
    af_error err = {0};
    af_token_store used;
    make_store("a.tokens", 500);
    make_store("b.tokens", 400);
    make_store("c.tokens", 300);
    make_store("d.tokens", 200);
    CHECK_OK(af_file_write(in_dir("other.txt"), "mine", 4, &err), err);
    CHECK_OK(af_token_store_open(&used, in_dir("a.tokens"), &err), err);
    CHECK_OK(af_token_cache_trim(in_dir("d.tokens"), 1 << 20, &err), err); /* all fit */
    assert_true(af_file_exists(in_dir("b.tokens")));
    CHECK_OK(af_token_cache_trim(in_dir("d.tokens"), 13000, &err), err); /* three fit */
    assert_true(af_file_exists(in_dir("a.tokens")));
    assert_false(af_file_exists(in_dir("b.tokens")));
    assert_true(af_file_exists(in_dir("c.tokens")));
    af_token_cache_touch(in_dir("c.tokens"));
    CHECK_OK(af_token_cache_trim(in_dir("d.tokens"), 9000, &err), err);
    assert_true(af_file_exists(in_dir("c.tokens")));
    assert_false(af_file_exists(in_dir("d.tokens")));
    af_token_store_close(&used);
    CHECK_OK(af_token_cache_trim(in_dir("c.tokens"), 0, &err), err);
    assert_false(af_file_exists(in_dir("a.tokens")));
    assert_false(af_file_exists(in_dir("c.tokens")));
    assert_true(af_file_exists(in_dir("other.txt")));
}

static void test_only_the_owner_reads_it(void **state)
{
    (void)state;
    af_error err = {0};
    struct stat s;
    char *cache = NULL;
    umask(0);
    make_store("p.tokens", 0);
    assert_int_equal(stat(in_dir("p.tokens"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    setenv("XDG_CACHE_HOME", in_dir("cache"), 1);
    CHECK_OK(af_cache_dir(&cache, "tokens", &err), err);
    assert_int_equal(stat(cache, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    assert_int_equal(stat(in_dir("cache/afinar"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    free(cache);
    assert_int_equal(chmod(in_dir("cache/afinar/tokens"), 0755), 0); /* by an older version */
    CHECK_OK(af_cache_dir(&cache, "tokens", &err), err);
    assert_int_equal(stat(cache, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_the_oldest_go_and_those_in_use_stay),
        cmocka_unit_test(test_only_the_owner_reads_it),
    };
    if (!mkdtemp(dir))
        return 1;
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(dir, NULL);
    return rc;
}
