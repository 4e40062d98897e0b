/* Files: atomic writes that leave the old file alone when the disk is full, folders, paths. */
#define _GNU_SOURCE
#include "afinar/output.h"
#include "base/cache_file.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/temps.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/afinar-file-XXXXXX";

static char *in_dir(const char *name)
{
    static _Thread_local char path[4][512]; /* threads of a test ask at the same time */
    static _Thread_local int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static void check_content(const char *path, const char *want)
{
    char *text = NULL;
    uint64_t n = 0;
    af_error err = {0};
    CHECK_OK(af_file_read(&text, &n, path, 1 << 20, &err), err);
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
    free(text);
}

static int count_files(void)
{
    char **names;
    int n;
    af_error err = {0};
    CHECK_OK(af_dir_list(&names, &n, dir, &err), err);
    af_names_free(names, n);
    return n;
}

static void test_write_is_seen_only_after_commit(void **state)
{
    (void)state;
    af_error err = {0};
    af_out *o;
    CHECK_OK(af_file_write(in_dir("a"), "old", 3, &err), err);
    CHECK_OK(af_out_open(&o, in_dir("a"), &err), err);
    CHECK_OK(af_out_write(o, "0123456789", 10, &err), err);
    CHECK_OK(af_out_patch(o, 2, "xy", 2, &err), err);
    CHECK_OK(af_out_write(o, "end", 3, &err), err);
    assert_int_equal(af_out_tell(o), 13);
    check_content(in_dir("a"), "old");
    CHECK_OK(af_out_commit(o, &err), err);
    check_content(in_dir("a"), "01xy456789end");
    CHECK_OK(af_out_open(&o, in_dir("a"), &err), err);
    CHECK_OK(af_out_write(o, "gone", 4, &err), err);
    af_out_abandon(o);
    af_out_abandon(NULL);
    check_content(in_dir("a"), "01xy456789end");
    assert_int_equal(count_files(), 1);
    CHECK_OK(af_path_remove(in_dir("a"), &err), err);
}

static void test_reserved_space_is_filled_in_any_order(void **state)
{
    (void)state;
    af_error err = {0};
    af_out *o;
    CHECK_OK(af_out_open(&o, in_dir("r"), &err), err);
    CHECK_OK(af_out_write(o, "h", 1, &err), err);
    CHECK_OK(af_out_reserve(o, 4, &err), err);
    CHECK_OK(af_out_write(o, "t", 1, &err), err);
    CHECK_OK(af_out_patch(o, 3, "cd", 2, &err), err);
    CHECK_OK(af_out_patch(o, 1, "ab", 2, &err), err);
    CHECK_OK(af_out_commit(o, &err), err);
    check_content(in_dir("r"), "habcdt");
    CHECK_OK(af_path_remove(in_dir("r"), &err), err);
}

/* A run that was killed while it wrote `path`; its process number. */
static long killed_run(const char *path)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        af_out *o;
        if (af_out_open(&o, path, NULL) == AF_OK && af_out_write(o, "half", 4, NULL) == AF_OK)
            raise(SIGKILL);
        _exit(1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    return (long)child;
}

static void test_leftovers_of_killed_runs_are_removed(void **state)
{
    (void)state;
    af_error err = {0};
    af_out *o, *other;
    char name[64];
    const long dead = killed_run(in_dir("k"));
    assert_int_equal(count_files(), 1);
    /* similar names: another file, no number, a running owner, old content without new */
    static const char *const alike[] = {".kk.%ld.0.tmp", ".k.%ldx.0.tmp", ".k.%ld.0.tmp.more",
                                        ".k.%ld.tmp", ".k.%ld.1.old"};
    for (size_t i = 0; i < AF_LEN(alike); i++) {
        snprintf(name, sizeof name, alike[i], dead);
        CHECK_OK(af_file_write(in_dir(name), "x", 1, &err), err);
    }
    snprintf(name, sizeof name, ".k.%ld.77.tmp", (long)getppid());
    CHECK_OK(af_file_write(in_dir(name), "x", 1, &err), err);
    snprintf(name, sizeof name, ".k.%ld.5.tmp", dead);
    CHECK_OK(af_dir_make(in_dir(name), &err), err);
    CHECK_OK(af_out_open(&o, in_dir("k"), &err), err);
    assert_int_equal(count_files(), 1 + (int)AF_LEN(alike) + 1);
    CHECK_OK(af_out_open(&other, in_dir("k"), &err), err); /* two writers at once do not collide */
    CHECK_OK(af_out_write(o, "new", 3, &err), err);
    CHECK_OK(af_out_commit(o, &err), err);
    af_out_abandon(other);
    check_content(in_dir("k"), "new");
    assert_int_equal(count_files(), 1 + (int)AF_LEN(alike) + 1);
    CHECK_OK(af_file_write(in_dir("k"), "newer", 5, &err), err); /* now the old content goes */
    assert_int_equal(count_files(), 1 + (int)AF_LEN(alike));
    for (size_t i = 0; i < AF_LEN(alike); i++) {
        snprintf(name, sizeof name, alike[i], dead);
        CHECK_OK(af_path_remove(in_dir(name), &err), err);
    }
    snprintf(name, sizeof name, ".k.%ld.77.tmp", (long)getppid());
    CHECK_OK(af_path_remove(in_dir(name), &err), err);
    CHECK_OK(af_path_remove(in_dir("k"), &err), err);
}

/* A process that ends in the middle: what it was writing is removed, what was there stays, and its
 * other threads create nothing more. */
static void *write_on(void *unused)
{
    (void)unused;
    for (int i = 0;; i++) {
        char name[64];
        snprintf(name, sizeof name, "half/%d", i);
        if (af_dir_make(in_dir("half"), NULL) != AF_OK ||
            af_file_write(in_dir(name), "x", 1, NULL) != AF_OK)
            _exit(2);
    }
    return NULL;
}

static void abort_while_writing(void)
{
    pthread_t thread;
    af_out *o;
    if (af_out_open(&o, in_dir("s"), NULL) != AF_OK || af_out_write(o, "half", 4, NULL) != AF_OK ||
        !af_temp_add(in_dir("half")) || pthread_create(&thread, NULL, write_on, NULL) != 0)
        _exit(3);
    while (!af_file_exists(in_dir("half/3")))
        usleep(1000);
    const bool any = af_output_abort();
    usleep(20000); /* the thread would go on now */
    _exit(any && !af_dir_exists(in_dir("half")) ? 0 : 1);
}

static void test_half_written_files_are_removed(void **state)
{
    (void)state;
    af_error err = {0};
    char stranger[64];
    int how;
    snprintf(stranger, sizeof stranger, ".s.%ld.3.tmp", (long)getppid());
    CHECK_OK(af_file_write(in_dir(stranger), "x", 1, &err), err);
    CHECK_OK(af_file_write(in_dir("s"), "before", 6, &err), err);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        abort_while_writing();
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    check_content(in_dir("s"), "before");
    assert_int_equal(count_files(), 2);
    CHECK_OK(af_path_remove(in_dir("s"), &err), err);
    CHECK_OK(af_path_remove(in_dir(stranger), &err), err);
}

/* Of links, too: the link goes, not what it leads to. */
static void test_leftover_links_are_removed(void **state)
{
    (void)state;
    af_error err = {0};
    char name[64];
    const long dead = killed_run(in_dir("gone"));
    CHECK_OK(af_file_write(in_dir("gone"), "", 0, &err), err);
    CHECK_OK(af_path_remove(in_dir("gone"), &err), err);
    CHECK_OK(af_dir_make(in_dir("target"), &err), err);
    CHECK_OK(af_file_write(in_dir("target/kept"), "x", 1, &err), err);
    const long pid[] = {dead, dead, (long)getppid()};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, ".link.%ld.%d.tmp", pid[i], i);
        assert_int_equal(symlink(i ? "target" : "nowhere", in_dir(name)), 0);
    }
    CHECK_OK(af_link_make("target/kept", in_dir("link"), &err), err);
    check_content(in_dir("link"), "x");
    assert_int_equal(count_files(), 3); /* the folder, the link, the one of a running process */
    CHECK_OK(af_path_remove(in_dir("link"), &err), err);
    CHECK_OK(af_path_remove(in_dir(name), &err), err);
    CHECK_OK(af_path_remove(in_dir("target"), &err), err);
}

/* A process we cannot see may hold the file: its lock shows that. */
static void test_a_locked_file_is_not_a_leftover(void **state)
{
    (void)state;
    af_error err = {0};
    char name[64], keep[4096];
    const long dead = killed_run(in_dir("l"));
    snprintf(name, sizeof name, ".l.%ld.9.tmp", dead);
    snprintf(keep, sizeof keep, "%s", in_dir(name));
    CHECK_OK(af_file_write(keep, "x", 1, &err), err);
    const int fd = open(keep, O_RDONLY);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    CHECK_OK(af_file_write(in_dir("l"), "a", 1, &err), err);
    assert_true(af_file_exists(keep));
    close(fd);
    CHECK_OK(af_file_write(in_dir("l"), "b", 1, &err), err);
    assert_false(af_file_exists(keep));
    assert_int_equal(count_files(), 1);
    CHECK_OK(af_path_remove(in_dir("l"), &err), err);
}

/* The kernel refuses bytes past the limit, as a full disk does. */
static void test_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    af_error err = {0};
    struct rlimit old, tiny;
    af_out *o;
    char *big = calloc(1, 1 << 20);
    assert_non_null(big);
    CHECK_OK(af_file_write(in_dir("kept"), "old", 3, &err), err);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tiny = (struct rlimit){100000, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    const af_status whole = af_file_write(in_dir("kept"), big, 1 << 20, &err);
    af_status st = af_out_open(&o, in_dir("kept"), &err);
    for (int i = 0; i < 1000 && st == AF_OK; i++)
        st = af_out_write(o, big, 1000, &err);
    if (st == AF_OK)
        st = af_out_commit(o, &err);
    else
        af_out_abandon(o);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(whole, AF_EIO);
    assert_int_equal(st, AF_EIO);
    assert_non_null(strstr(err.msg, "kept"));
    check_content(in_dir("kept"), "old");
    assert_int_equal(count_files(), 1); /* no temporary file is left */
    CHECK_OK(af_path_remove(in_dir("kept"), &err), err);
    free(big);
}

static void test_errors_name_the_path(void **state)
{
    (void)state;
    af_error err = {0};
    af_map m;
    af_out *o;
    char *text;
    uint64_t n;
    assert_int_equal(af_map_open(&m, in_dir("none"), &err), AF_EIO);
    assert_non_null(strstr(err.msg, "none"));
    assert_int_equal(af_map_open(&m, dir, &err), AF_EIO);
    assert_int_equal(af_out_open(&o, in_dir("no/such/folder"), &err), AF_EIO);
    CHECK_OK(af_file_write(in_dir("big"), "0123456789", 10, &err), err);
    assert_int_equal(af_file_read(&text, &n, in_dir("big"), 9, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "10 bytes"));
    CHECK_OK(af_file_read(&text, &n, in_dir("big"), 10, &err), err); /* just as many as allowed */
    assert_string_equal(text, "0123456789");
    free(text);
    CHECK_OK(af_path_remove(in_dir("big"), &err), err);
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
    CHECK_OK(af_file_write(in_dir("lfs"), lfs, sizeof lfs - 1, &err), err);
    assert_int_equal(af_map_open(&m, in_dir("lfs"), &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "lfs' is a Git LFS pointer"));
    char longer[1024] = ""; /* longer than any pointer: a text about them */
    memcpy(longer, lfs, sizeof lfs - 1);
    CHECK_OK(af_file_write(in_dir("lfs"), longer, sizeof longer, &err), err);
    CHECK_OK(af_map_open(&m, in_dir("lfs"), &err), err);
    af_map_close(&m);
    CHECK_OK(af_path_remove(in_dir("lfs"), &err), err);
}

static void test_empty_files_can_be_mapped(void **state)
{
    (void)state;
    af_error err = {0};
    af_map m;
    CHECK_OK(af_file_write(in_dir("empty"), "", 0, &err), err);
    CHECK_OK(af_map_open(&m, in_dir("empty"), &err), err);
    assert_non_null(m.data);
    assert_int_equal(m.size, 0);
    af_map_forget(&m, 0, 0);
    af_map_close(&m);
    CHECK_OK(af_path_remove(in_dir("empty"), &err), err);
}

static void test_forgotten_pages_come_back_from_the_file(void **state)
{
    enum { SIZE = 100000 };
    (void)state;
    af_error err = {0};
    af_map m = {0};
    if (af_map_temp(&m, SIZE, &err) != AF_OK) {
        print_message("skipped: %s\n", err.msg);
        skip_because("no unnamed temporary files here");
    }
    assert_int_equal(m.size, SIZE);
    uint8_t *p = (uint8_t *)m.data; /* this one may be written */
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal(p[i], 0);
        p[i] = (uint8_t)(i * 7);
    }
    af_map_forget_at(p + 5000, SIZE - 10000);
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(p[i], (uint8_t)(i * 7));
    af_map_close(&m);
    setenv("TMPDIR", in_dir("absent"), 1);
    assert_int_equal(af_map_temp(&m, SIZE, &err), AF_EIO);
    assert_non_null(strstr(err.msg, "absent"));
    unsetenv("TMPDIR");
    assert_int_equal(count_files(), 0);
}

static void test_folders(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(in_dir("x/y/z"), &err), err);
    CHECK_OK(af_dir_make(in_dir("x/y/z"), &err), err);
    CHECK_OK(af_file_write(in_dir("x/y/f"), "1", 1, &err), err);
    CHECK_OK(af_file_append(in_dir("x/y/f"), "2", 1, true, &err), err);
    check_content(in_dir("x/y/f"), "12");
    CHECK_OK(af_dir_make(in_dir("new"), &err), err);
    CHECK_OK(af_file_write(in_dir("new/g"), "3", 1, &err), err);
    CHECK_OK(af_dir_swap(in_dir("new"), in_dir("x"), &err), err); /* x was not empty */
    assert_true(af_file_exists(in_dir("x/g")));
    assert_true(af_dir_exists(in_dir("new/y")));
    CHECK_OK(af_path_remove(in_dir("new"), &err), err);
    CHECK_OK(af_dir_swap(in_dir("x"), in_dir("z"), &err), err);
    CHECK_OK(af_dir_swap(in_dir("z"), in_dir("x"), &err), err);
    assert_true(af_file_exists(in_dir("x/g")));
    CHECK_OK(af_file_copy(in_dir("x/g"), in_dir("copy"), &err), err);
    check_content(in_dir("copy"), "3");
    enum { LONG = (2 << 20) + 5 }; /* two pieces and a rest */
    char *many = malloc(LONG + 1), *again = NULL;
    uint64_t size = 0;
    for (int i = 0; i < LONG; i++)
        many[i] = (char)(i >> 20 ^ i * 31 ^ 'a');
    CHECK_OK(af_file_write(in_dir("many"), many, LONG, &err), err);
    CHECK_OK(af_file_copy(in_dir("many"), in_dir("many2"), &err), err);
    CHECK_OK(af_file_read(&again, &size, in_dir("many2"), LONG, &err), err);
    assert_int_equal(size, LONG);
    assert_memory_equal(again, many, LONG);
    free(again);
    free(many);
    CHECK_OK(af_path_remove(in_dir("many"), &err), err);
    CHECK_OK(af_path_remove(in_dir("many2"), &err), err);
    CHECK_OK(af_dir_make(in_dir("other"), &err), err);
    CHECK_OK(af_file_copy_into(in_dir("x"), in_dir("other"), "g", &err), err);
    check_content(in_dir("other/g"), "3");
    CHECK_OK(af_file_copy_into(in_dir("x"), in_dir("other"), "absent", &err), err);
    assert_false(af_file_exists(in_dir("other/absent")));
    CHECK_OK(af_path_remove(in_dir("other"), &err), err);
    /* removing never follows links */
    assert_int_equal(symlink(in_dir("copy"), in_dir("x/link")), 0);
    CHECK_OK(af_path_remove(in_dir("x"), &err), err);
    assert_true(af_file_exists(in_dir("copy")));
    CHECK_OK(af_path_remove(in_dir("copy"), &err), err);
    CHECK_OK(af_path_remove(in_dir("copy"), &err), err); /* nothing there is fine */
    assert_int_equal(count_files(), 0);
}

/* A run may be killed at any moment: its only checkpoint must exist at each of them. */
static void test_a_replaced_folder_is_always_there(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(in_dir("there/full"), &err), err);
    CHECK_OK(af_dir_make(in_dir("next/full"), &err), err);
    if (renameat2(AT_FDCWD, in_dir("next"), AT_FDCWD, in_dir("there"), RENAME_EXCHANGE) != 0)
        skip_because("the file system cannot exchange names");
    const pid_t watcher = fork();
    if (watcher == 0)
        for (;;)
            if (access(in_dir("there"), F_OK) != 0)
                _exit(access(in_dir("end"), F_OK) == 0 ? 0 : 1);
    for (int i = 0; i < 300; i++) {
        CHECK_OK(af_dir_make(in_dir("next/full"), &err), err);
        CHECK_OK(af_dir_swap(in_dir("next"), in_dir("there"), &err), err);
    }
    CHECK_OK(af_path_remove(in_dir("next"), &err), err);
    int status = 0;
    CHECK_OK(af_dir_make(in_dir("end"), &err), err);
    CHECK_OK(af_path_remove(in_dir("there"), &err), err);
    assert_int_equal(waitpid(watcher, &status, 0), watcher);
    assert_int_equal(status, 0);
    CHECK_OK(af_path_remove(in_dir("end"), &err), err);
    assert_int_equal(count_files(), 0);
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool inner;
    } cases[] = {
        {"a", true},     {"a/b", true},     {"a..b/..c/d..", true}, {"...", true},
        {"", false},     {"/a", false},     {"..", false},          {"../a", false},
        {"a/..", false}, {"a/../b", false}, {"a//../b", false},     {"./a", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(af_path_is_inner(cases[i].path) == cases[i].inner, "'%s'", cases[i].path);
    assert_string_equal(af_path_name("/a/b"), "b");
    assert_string_equal(af_path_name("b"), "b");
    char *j = af_path_join("a/", "b");
    assert_string_equal(j, "a/b");
    free(j);
}

/* That the syncs happen, and when, is seen by the sweep of file calls (tests/faults). */
static void test_syncs_wait_until_the_end(void **state)
{
    (void)state;
    af_error err = {0};
    char sub[600], file[700];
    snprintf(sub, sizeof sub, "%s/unseen.tmp", dir);
    snprintf(file, sizeof file, "%s/a", sub);
    CHECK_OK(af_dir_make(sub, &err), err);
    assert_int_equal(af_unsynced_in(sub), AF_UNSYNCED_NOTHING);
    af_unsynced_dir *d = af_unsynced_begin(sub, AF_UNSYNCED_FILES);
    assert_int_equal(af_unsynced_in(sub), AF_UNSYNCED_FILES);
    assert_int_equal(af_unsynced_in(dir), AF_UNSYNCED_NOTHING);
    CHECK_OK(af_file_write(file, "text", 4, &err), err);
    assert_int_equal(af_file_size(file), 4);
    CHECK_OK(af_unsynced_end(d, false, &err), err);
    assert_int_equal(af_unsynced_in(sub), AF_UNSYNCED_NOTHING);
    d = af_unsynced_begin(sub, AF_UNSYNCED_FILES); /* what cannot be synced is an error */
    CHECK_OK(af_path_remove(sub, &err), err);
    assert_int_equal(af_unsynced_end(d, false, &err), AF_EIO);
    assert_non_null(strstr(err.msg, "unseen.tmp"));
    d = af_unsynced_begin(sub, AF_UNSYNCED_NAMES); /* unless nobody needs it */
    CHECK_OK(af_unsynced_end(d, true, &err), err);
    CHECK_OK(af_unsynced_end(NULL, false, &err), err);
}

enum { LONG_FILE = (3 << 20) + 77 };

static uint8_t *long_text(void)
{
    uint8_t *text = malloc(LONG_FILE);
    for (uint32_t i = 0; i < LONG_FILE; i++)
        text[i] = (uint8_t)(i * 2654435761u >> 24);
    return text;
}

static void digest_of(const char *path, char hex[65])
{
    af_map m;
    af_sha256 s;
    af_error err = {0};
    CHECK_OK(af_map_open(&m, path, &err), err);
    af_sha256_init(&s);
    af_sha256_add(&s, m.data, m.size);
    af_sha256_hex(&s, hex);
    af_map_close(&m);
}

/* Writes n bytes in pieces of many lengths, with a change afterwards where `patch` says so. */
static void write_pieces(const char *path, const uint8_t *text, uint64_t n, bool patch)
{
    af_out *o;
    af_error err = {0};
    CHECK_OK(af_out_open(&o, path, &err), err);
    for (uint64_t at = 0, k = 1; at < n; k = k * 7 % 200003) {
        const uint64_t part = AF_MIN(k, n - at);
        CHECK_OK(af_out_write(o, text + at, part, &err), err);
        at += part;
    }
    if (patch)
        CHECK_OK(af_out_patch(o, 5, "changed", 7, &err), err);
    CHECK_OK(af_out_commit(o, &err), err);
}

static void test_digests_of_files_while_they_are_written(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 100, 1 << 19, 1 << 20, LONG_FILE};
    af_error err = {0};
    af_out *o;
    char sub[600], file[700], other[700], hex[65], want[65];
    uint8_t *text = long_text();
    snprintf(sub, sizeof sub, "%s/hashed", dir);
    snprintf(file, sizeof file, "%s/a", sub);
    snprintf(other, sizeof other, "%s/b", sub);
    CHECK_OK(af_dir_make(sub, &err), err);
    write_pieces(file, text, LONG_FILE, false);
    assert_false(af_unsynced_digest(sub, "a", hex)); /* nobody asked */
    af_unsynced_dir *d = af_unsynced_begin(sub, AF_UNSYNCED_FILES);
    for (size_t i = 0; i < AF_LEN(sizes); i++) {
        write_pieces(file, text, sizes[i], false);
        assert_int_equal(af_unsynced_digest(sub, "a", hex), sizes[i] >= 1 << 19);
        digest_of(file, want);
        if (sizes[i] >= 1 << 19)
            assert_string_equal(hex, want);
    }
    CHECK_OK(af_file_copy(file, other, &err), err);
    assert_true(af_unsynced_digest(sub, "b", hex));
    assert_string_equal(hex, want);
    digest_of(other, hex);
    assert_string_equal(hex, want);
    write_pieces(other, text, LONG_FILE, true); /* what it had is not right any more */
    assert_false(af_unsynced_digest(sub, "b", hex));
    write_pieces(file, text, 100, false);
    assert_false(af_unsynced_digest(sub, "a", hex));
    CHECK_OK(af_out_open(&o, file, &err), err);
    CHECK_OK(af_out_write(o, text, LONG_FILE, &err), err);
    af_out_abandon(o);
    assert_int_equal(af_file_size(file), 100);
    CHECK_OK(af_unsynced_end(d, false, &err), err);
    assert_false(af_unsynced_digest(sub, "a", hex));
    free(text);
    CHECK_OK(af_path_remove(sub, &err), err);
}

/* What became shorter, or cannot be read, has no digest. */
static void test_a_file_that_cannot_be_read_has_no_digest(void **state)
{
    (void)state;
    char hex[65];
    const int fd = open(in_dir("short"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text", 4), 4);
    af_digest *d = af_digest_begin(fd);
    assert_non_null(d);
    af_digest_reach(d, 5);
    assert_false(af_digest_end(d, hex));
    assert_false(af_digest_end(NULL, hex));
    close(fd);
    unlink(in_dir("short"));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return af_path_remove(dir, NULL) == AF_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_is_seen_only_after_commit),
        cmocka_unit_test(test_reserved_space_is_filled_in_any_order),
        cmocka_unit_test(test_leftovers_of_killed_runs_are_removed),
        cmocka_unit_test(test_half_written_files_are_removed),
        cmocka_unit_test(test_leftover_links_are_removed),
        cmocka_unit_test(test_a_locked_file_is_not_a_leftover),
        cmocka_unit_test(test_full_disk_leaves_the_old_file),
        cmocka_unit_test(test_errors_name_the_path),
        cmocka_unit_test(test_empty_files_can_be_mapped),
        cmocka_unit_test(test_forgotten_pages_come_back_from_the_file),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_a_replaced_folder_is_always_there),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_syncs_wait_until_the_end),
        cmocka_unit_test(test_digests_of_files_while_they_are_written),
        cmocka_unit_test(test_a_file_that_cannot_be_read_has_no_digest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
