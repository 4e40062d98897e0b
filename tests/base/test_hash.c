/* Checksums by their published vectors. */
#include "base/hash.h"
#include "test.h"

static void sha(const char *text, uint64_t repeat, uint64_t piece, const char *want)
{
    af_sha256 s;
    char hex[65];
    const uint64_t n = strlen(text);
    af_sha256_init(&s);
    for (uint64_t r = 0; r < repeat; r++)
        for (uint64_t i = 0; i < n || (i == 0 && n == 0); i += piece) {
            af_sha256_add(&s, text + i, AF_MIN(piece, n - i));
            if (n == 0)
                break;
        }
    af_sha256_hex(&s, hex);
    assert_string_equal(hex, want);
}

static void test_sha256_vectors(void **state)
{
    (void)state;
    static const char long_text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    sha("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha("abc", 1, 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha(long_text, 1, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    sha(long_text, 1, 7, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    sha("aaaaaaaaaa", 100000, 10,
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_crc32c_vectors(void **state)
{
    (void)state;
    uint8_t bytes[32] = {0};
    assert_int_equal(af_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(af_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(af_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(af_crc32c(bytes, 32), 0x46dd794e);
}

static void test_fnv1a_vectors(void **state)
{
    (void)state;
    assert_true(af_fnv1a(AF_FNV_START, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(af_fnv1a(AF_FNV_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(af_fnv1a(AF_FNV_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(af_fnv1a(af_fnv1a(AF_FNV_START, "foo", 3), "bar", 3) ==
                UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_vectors),
        cmocka_unit_test(test_crc32c_vectors),
        cmocka_unit_test(test_fnv1a_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
