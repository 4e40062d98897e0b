/* test_hub_parts.c - the pure parts of the hub client: git's hash, spans, journal, heads of
 * answers, addresses, names, lists of files and the choice among them. */
#include "base/hash.h"
#include "format/hub/hub_tree.h"
#include "hub/http.h"
#include "hub/hub_journal.h"
#include "test.h"

static void test_sha1_of_git(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {{"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
                 {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "84983e441c3bd26ebaae4aa1f95129e5e54670f1"}};
    char hex[41];
    af_sha1 s;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_sha1_init(&s);
        for (const char *p = cases[i].text; *p; p++) /* byte by byte */
            af_sha1_add(&s, p, 1);
        af_sha1_hex(&s, hex);
        assert_string_equal(hex, cases[i].hex);
    }
    af_sha1_init(&s);
    char block[1000];
    memset(block, 'a', sizeof block);
    for (int i = 0; i < 1000; i++)
        af_sha1_add(&s, block, sizeof block);
    af_sha1_hex(&s, hex);
    assert_string_equal(hex, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

static void test_spans_are_a_set(void **state)
{
    (void)state;
    enum { N = 200 };
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        bool has[N] = {0};
        af_byte_ranges s = {0};
        for (int k = 0; k < 30; k++) {
            seed = seed * 1664525 + 1013904223;
            const uint64_t from = (seed >> 8) % N, to = AF_MIN(from + (seed >> 20) % 12, N);
            af_byte_ranges_add(&s, from, to);
            for (uint64_t i = from; i < to; i++)
                has[i] = true;
        }
        uint64_t total = 0, gap = 0;
        for (int i = 0; i < N; i++)
            total += has[i];
        assert_int_equal(af_byte_ranges_total(&s), total);
        for (int i = 0; i + 1 < s.count; i++)
            assert_true(s.at[i].to < s.at[i + 1].from);
        af_byte_range g;
        uint64_t missing = 0;
        for (uint64_t at = 0; af_byte_ranges_gap(&s, at, N, &g); at = g.to) {
            for (gap = g.from; gap < g.to; gap++)
                assert_false(has[gap]);
            missing += g.to - g.from;
        }
        assert_int_equal(missing + total, N);
        uint64_t end = 0;
        while (end < N && has[end])
            end++;
        assert_int_equal(af_byte_ranges_end(&s, 0), end);
    }
}

static void test_spans_that_do_not_fit_are_forgotten(void **state)
{
    (void)state;
    af_byte_ranges s = {0};
    for (uint64_t i = 0; i < 100; i++)
        af_byte_ranges_add(&s, 10 * i, 10 * i + 5);
    assert_int_equal(s.count, AF_BYTE_RANGES_MAX);
    af_byte_ranges_add(&s, 0, 475); /* joins them all */
    assert_int_equal(s.count, 1);
    assert_int_equal(s.at[0].to, 475);
}

static void test_journal_survives_a_torn_record(void **state)
{
    (void)state;
    char text[2 * AF_JOURNAL_SLOT] = "";
    af_journal j = {.number = 8, .etag = "0123456789abcdef0123456789abcdef01234567", .size = 1000};
    af_journal got;
    af_byte_ranges_add(&j.done, 0, 100);
    af_byte_ranges_add(&j.done, 500, 600);
    af_journal_print(&j, text); /* 8: slot 0 */
    j.number = 9;
    af_byte_ranges_add(&j.done, 100, 200);
    const uint64_t n = af_journal_print(&j, text + AF_JOURNAL_SLOT);
    assert_true(af_journal_parse(&got, text, AF_JOURNAL_SLOT + n));
    assert_int_equal(got.number, 9);
    assert_int_equal(af_byte_ranges_total(&got.done), 300);
    for (uint64_t cut = 0; cut < n; cut++) { /* the newest is torn: the one before it counts */
        assert_true(af_journal_parse(&got, text, AF_JOURNAL_SLOT + cut));
        assert_int_equal(got.number, 8);
    }
    for (uint64_t at = 0; at < n; at++) { /* so does one with a wrong byte */
        text[AF_JOURNAL_SLOT + at] ^= 1;
        assert_true(af_journal_parse(&got, text, AF_JOURNAL_SLOT + n));
        assert_int_equal(got.number, 8);
        text[AF_JOURNAL_SLOT + at] ^= 1;
    }
    assert_false(af_journal_parse(&got, text, 20));
    j.done.at[0].to = 2000; /* beyond the file */
    assert_false(af_journal_parse(&got, text, af_journal_print(&j, text)));
}

static void add_lines(af_http_head *h, const char *text)
{
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, "\n");
        assert_true(af_http_head_add(h, p, n + (p[n] != '\0')));
        p += n + (p[n] != '\0');
    }
}

static void test_head_of_an_answer(void **state)
{
    (void)state;
    af_http_head h;
    af_http_head_init(&h);
    add_lines(&h, "HTTP/1.1 100 Continue\r\nETag: \"old\"\r\n"
                  "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 10-19/100\r\n"
                  "X-LINKED-ETAG: W/\"abc\"\r\nX-Linked-Size:  17 \r\nContent-Length: 10\r\n"
                  "Link: <http://h/a?b,c>; rel=\"first\", <http://h/n>; rel=\"next\"\r\n"
                  "Location: /there\r\nRetry-After: 12\r\nX-Error-Code: GatedRepo\r\n");
    assert_int_equal(h.status, 206);
    assert_string_equal(h.etag, "");
    assert_string_equal(h.linked_etag, "abc");
    assert_int_equal(h.linked_size, 17);
    assert_int_equal(h.content_length, 10);
    assert_true(h.has_range && h.range_from == 10 && h.range_to == 19 && h.range_total == 100);
    assert_string_equal(h.next, "http://h/n");
    assert_string_equal(h.location, "/there");
    assert_string_equal(h.error_code, "GatedRepo");
    assert_true(af_http_retry_after(&h, 0) == 12);
    add_lines(&h, "Retry-After: Thu, 01 Jan 1970 00:01:40 GMT\n");
    assert_true(af_http_retry_after(&h, 90) == 10);
    add_lines(&h, "Retry-After: soon\nContent-Length: 99999999999999999999\n"
                  "Content-Range: bytes 20-10/5\n");
    assert_true(af_http_retry_after(&h, 90) == -1);
    assert_int_equal(h.content_length, 10);
    bool good = true;
    for (int i = 0; i < AF_HTTP_HEAD_LINES && good; i++)
        good = af_http_head_add(&h, "X: y\r\n", 6);
    assert_true(!good && h.bad);
}

/* What the Hugging Face hub says with 429, in place of Retry-After or next to it. */
static void test_rate_limits(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *lines;
        double wait;
    } cases[] = {{429, "RateLimit: \"api\";r=0;t=55\nRateLimit-Policy: \"api\";q=500;w=300\n", 56},
                 {429, "ratelimit: \"resolvers\" ; r=0 ; t=300\nRetry-After: 7\n", 301},
                 {429, "RateLimit: \"api\";r=3;t=55\nRetry-After: 7\n", 7},
                 {429, "RateLimit: \"api\";r=3;t=55\n", -1},
                 {429, "RateLimit: \"api\";t=55\n", -1},
                 {429, "RateLimit: \"api\";r=0\n", -1},
                 {429, "RateLimit: \"api\";r=0;t=-5\n", -1},
                 {429, "RateLimit: r=0;t=\n", -1},
                 {503, "RateLimit: \"api\";r=0;t=55\n", -1}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_http_head h;
        char text[300];
        af_http_head_init(&h);
        snprintf(text, sizeof text, "HTTP/1.1 %d x\n%s", cases[i].status, cases[i].lines);
        add_lines(&h, text);
        const double wait = af_http_retry_after(&h, 0);
        CHECK_MSG(wait == cases[i].wait, "case %zu: %g, not %g", i, wait, cases[i].wait);
    }
}

static void test_addresses(void **state)
{
    (void)state;
    char out[AF_HTTP_URL_MAX], origin[300];
    static const struct {
        const char *base, *location, *want;
    } cases[] = {{"https://h/a/b?c", "/x?y", "https://h/x?y"},
                 {"https://h:1/a", "//o/x#frag", "https://o/x"},
                 {"http://h/a", "https://o/x", "https://o/x"},
                 {"http://h/a", "relative", NULL},
                 {"http://h/a", "file:///etc/passwd", NULL},
                 {"http://h/a", "http://user:pw@o/x", NULL},
                 {"http://h/a", "http://o/a b", NULL},
                 {"http://h/a", "http://", NULL},
                 {"http://h/a", "", NULL}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const bool good = af_url_join(out, cases[i].base, cases[i].location);
        CHECK_MSG(good == (cases[i].want != NULL), "%s", cases[i].location);
        if (good)
            assert_string_equal(out, cases[i].want);
    }
    assert_true(af_url_origin(origin, "HTTPS://Hub.Co/x"));
    assert_string_equal(origin, "https://hub.co:443");
    assert_true(af_url_origin(origin, "http://[::1]/x"));
    assert_string_equal(origin, "http://[::1]:80");
    af_buf b = {0};
    af_url_quote(&b, "a b/\xc3\xbc#", true);
    assert_string_equal(b.data, "a%20b/%C3%BC%23");
    af_buf_clear(&b);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"org/name", "org/name@main", "o.r-g/n_1@refs/pr/1"};
    static const char *const bad[] = {"name",       "a/b/c",    "./a",     "../a/b", "/a/b",
                                      "a/b@",       "a/b@../x", "a/.b",    "a b/c",  "a/b@x y",
                                      "a/b@x//../", "~/x",      "a/b@-\n", "a/b@x/", "",
                                      "a/b-",       "a/-b",     "a./b",    "a/b.@x", "a--b/c"};
    for (size_t i = 0; i < AF_LEN(good); i++)
        CHECK_MSG(af_hub_is_name(good[i]), "%s", good[i]);
    for (size_t i = 0; i < AF_LEN(bad); i++)
        CHECK_MSG(!af_hub_is_name(bad[i]), "%s", bad[i]);
    af_hub_repo r;
    af_error err = {0};
    CHECK_OK(af_hub_repo_parse(&r, AF_HUB_DATASET, "a/b@x", "y", &err), err);
    assert_string_equal(r.revision, "y");
    char *dir = af_hub_repo_dir("/c", &r);
    assert_string_equal(dir, "/c/datasets--a--b");
    free(dir);
}

#define OID    "\"oid\": \"0123456789012345678901234567890123456789\""
#define SHA256 "0123456789012345678901234567890123456789012345678901234567890123"

static void test_hostile_lists(void **state)
{
    (void)state;
    static const struct {
        const char *why, *row;
    } cases[] = {
        {"leaves the folder", "{\"path\": \"../x\", \"size\": 1, " OID "}"},
        {"absolute", "{\"path\": \"/x\", \"size\": 1, " OID "}"},
        {"empty part", "{\"path\": \"a//x\", \"size\": 1, " OID "}"},
        {"dot", "{\"path\": \"a/./x\", \"size\": 1, " OID "}"},
        {"slash at the end", "{\"path\": \"a/\", \"size\": 1, " OID "}"},
        {"control character", "{\"path\": \"a\\nb\", \"size\": 1, " OID "}"},
        {"no path", "{\"size\": 1, " OID "}"},
        {"no size", "{\"path\": \"x\", " OID "}"},
        {"negative size", "{\"path\": \"x\", \"size\": -1, " OID "}"},
        {"no hash", "{\"path\": \"x\", \"size\": 1}"},
        {"a hash that is a path", "{\"path\": \"x\", \"size\": 1, \"oid\": \"../../x\"}"},
        {"two sizes", "{\"path\": \"x\", \"size\": 1, " OID ", \"lfs\": {\"oid\": \"" SHA256
                      "\", \"size\": 2}}"},
        {"bad sha256", "{\"path\": \"x\", \"size\": 1, " OID ", \"lfs\": {\"oid\": \"zz\"}}"},
        {"not an object", "7"},
    };
    char text[1000];
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hub_tree t = {0};
        af_error err = {0};
        const int n = snprintf(text, sizeof text, "[%s]", cases[i].row);
        CHECK_MSG(af_hub_tree_add_page(&t, text, (uint64_t)n, "list", &err) == AF_EFORMAT, "%s",
                  cases[i].why);
        af_hub_tree_clear(&t);
    }
    af_hub_tree t = {0};
    af_error err = {0};
    const int n = snprintf(text, sizeof text,
                           "[{\"path\": \"x\", \"size\": 1, " OID "},"
                           "{\"path\": \"x\", \"size\": 1, " OID "}]");
    CHECK_OK(af_hub_tree_add_page(&t, text, (uint64_t)n, "list", &err), err);
    assert_int_equal(af_hub_tree_sort(&t, "list", &err), AF_EFORMAT);
    af_hub_tree_clear(&t);
}

static void test_list_round_trip(void **state)
{
    (void)state;
    static const char page[] =
        "[{\"type\": \"directory\", \"path\": \"d\"},"
        "{\"type\": \"file\", \"path\": \"d/\\u00fc\\ud83d\\ude00\\\"\", \"size\": 3, " OID "},"
        "{\"type\": \"file\", \"path\": \"a\", \"size\": 5, " OID ", \"lfs\": {\"oid\": \"" SHA256
        "\", \"size\": 5}, \"xetHash\": \"" SHA256 "\"}]";
    af_error err = {0};
    af_hub_tree t = {0}, again = {0};
    char *text = NULL, *second = NULL;
    uint64_t n = 0, m = 0;
    CHECK_OK(af_hub_tree_add_page(&t, page, sizeof page - 1, "list", &err), err);
    CHECK_OK(af_hub_tree_sort(&t, "list", &err), err);
    assert_int_equal(t.count, 2);
    CHECK_OK(af_hub_tree_print(&text, &n, &t, &err), err);
    assert_non_null(strstr(text, "  \"d/\\u00fc\\ud83d\\ude00\\\"\": {\n   \"size\": 3,"));
    assert_non_null(strstr(text, "\"lfs_size\": 5,\n   \"xet_hash\": \"" SHA256 "\"\n  },"));
    CHECK_OK(af_hub_tree_parse(&again, text, n, "trees", &err), err);
    CHECK_OK(af_hub_tree_print(&second, &m, &again, &err), err);
    assert_string_equal(text, second);
    free(text);
    free(second);
    af_hub_tree_clear(&t);
    af_hub_tree_clear(&again);
}

/* Weights are fetched once. */
static void test_files_of_a_model(void **state)
{
    (void)state;
    static const struct {
        const char *files, *needed; /* "" = refused */
    } cases[] = {
        {"config.json model.safetensors pytorch_model.bin", "config.json model.safetensors"},
        {"model.fp16.safetensors model.safetensors", "model.safetensors"},
        {"model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors",
         "model.safetensors"},
        {"model-00001-of-000002.safetensors model.fp16-00001-of-00001.safetensors",
         "model-00001-of-000002.safetensors"},
        {"model.safetensors-00001-of-00001.safetensors model.safetensors.index.json",
         "model.safetensors-00001-of-00001.safetensors model.safetensors.index.json"},
        {"consolidated.safetensors model-00001-of-00001.safetensors",
         "model-00001-of-00001.safetensors"},
        {"adapter_model.safetensors", "adapter_model.safetensors"},
        {"a.json pytorch_model-00001-of-00001.bin pytorch_model.bin pytorch_model.fp16.bin",
         "a.json pytorch_model.bin"},
        {"pytorch_model-00001-of-00001.bin pytorch_model_fp32.bin training_args.bin",
         "pytorch_model-00001-of-00001.bin"},
        {"model.fp16.safetensors pytorch_model.bin", "pytorch_model.bin"},
        {"adapter_model.bin", "adapter_model.bin"},
        {"1_Pooling/config.json 2_Dense/model.safetensors model.safetensors modules.json",
         "1_Pooling/config.json model.safetensors modules.json"},
        {"config.json pytorch_model.fp16.bin", ""},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hub_tree t = {0};
        af_error err = {0};
        char files[256], page[2000] = "[", needed[256] = "", *rest = files;
        snprintf(files, sizeof files, "%s", cases[i].files);
        for (const char *f; (f = strtok_r(rest, " ", &rest));)
            snprintf(page + strlen(page), sizeof page - strlen(page),
                     "%s{\"path\": \"%s\", \"size\": 1, " OID "}", page[1] ? "," : "", f);
        snprintf(page + strlen(page), sizeof page - strlen(page), "]");
        CHECK_OK(af_hub_tree_add_page(&t, page, strlen(page), "list", &err), err);
        CHECK_OK(af_hub_tree_sort(&t, "list", &err), err);
        const af_hub_choice c = {.kind = AF_HUB_MODEL};
        const af_status st = af_hub_tree_choose(&t, &c, "org/name", &err);
        for (int k = 0; k < t.count && st == AF_OK; k++)
            if (t.file[k].needed)
                snprintf(needed + strlen(needed), sizeof needed - strlen(needed), "%s%s",
                         *needed ? " " : "", t.file[k].path);
        CHECK_MSG(strcmp(needed, cases[i].needed) == 0, "%s: '%s'", cases[i].files, needed);
        af_hub_tree_clear(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_limits),
        cmocka_unit_test(test_sha1_of_git),
        cmocka_unit_test(test_spans_are_a_set),
        cmocka_unit_test(test_spans_that_do_not_fit_are_forgotten),
        cmocka_unit_test(test_journal_survives_a_torn_record),
        cmocka_unit_test(test_head_of_an_answer),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hostile_lists),
        cmocka_unit_test(test_list_round_trip),
        cmocka_unit_test(test_files_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
