/* word.c - the optimal string alignment distance, three rows at a time; endings. */
#include "base/word.h"

#include "base/base.h"

#include <strings.h>

enum { WORD_MAX = 60 };

int af_word_distance(const char *a, const char *b)
{
    int row[3][WORD_MAX + 1] = {{0}};
    const int n = (int)AF_MIN(strlen(a), (size_t)WORD_MAX);
    const int m = (int)AF_MIN(strlen(b), (size_t)WORD_MAX);
    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            const int change = up[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = AF_MIN(change, AF_MIN(up[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = AF_MIN(now[j], up2[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

/* One begins with the other: an abbreviation, or a longer form. */
static bool begins(const char *a, const char *b)
{
    enum { LETTERS = 3 };
    const size_t n = AF_MIN(strlen(a), strlen(b));
    return n >= LETTERS && strncmp(a, b, n) == 0;
}

const char *af_word_nearest(const char *word, const char *const *known)
{
    const char *best = NULL;
    const int most = 1 + (int)strlen(word) / 3;
    for (int least = most + 1; *known; known++) {
        int d = af_word_distance(word, *known);
        if (begins(word, *known))
            d = AF_MIN(d, most);
        if (d < least) {
            least = d;
            best = *known;
        }
    }
    return best;
}

bool af_word_listed(const char *word, const char *list)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        if (len == n && strncmp(at, word, n) == 0)
            return true;
        at += len;
    }
    return false;
}

bool af_ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

bool af_ends_with_any_case(const char *s, size_t n, const char *tail)
{
    const size_t t = strlen(tail);
    return n >= t && strncasecmp(s + n - t, tail, t) == 0;
}
