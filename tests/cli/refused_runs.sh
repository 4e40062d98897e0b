# Refused runs: sourced by tests, which have written $tmp/base.yaml. Counts cases and failed ones.
cases=0
failed=0
fail() {
    failed=$((failed + 1))
    echo "case $cases: $1"
    sed 's/^/    /' "$tmp/err"
}
words() { # WORDS: separated by '|', all must be in the message
    local IFS='|' word
    for word in $1; do
        grep -qF -- "$word" "$tmp/err" || fail "no '$word'"
    done
    [ -z "${AF_SHOW:-}" ] || cat "$tmp/err"
}
check() { # WORDS RUNFILE [key=value ...]: train refuses in one sentence and leaves nothing
    local want=$1 run=$2 rc
    shift 2
    cases=$((cases + 1))
    "$AFINAR" train "$run" "$@" > "$tmp/stdout" 2> "$tmp/err"
    rc=$?
    [ $rc = 1 ] || [ $rc = 2 ] || fail "exit $rc for: $want"
    [ "$(grep -cv '^warning: ' "$tmp/err")" = 1 ] || fail "not one line for: $want"
    [ -s "$tmp/stdout" ] && fail "something on stdout for: $want"
    [ -e "$tmp/out" ] && { fail "an output folder is left for: $want"; rm -rf "$tmp/out"; }
    words "$want"
}
