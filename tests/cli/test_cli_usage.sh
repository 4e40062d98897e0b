#!/usr/bin/env bash
# What every command has in common: help, version, where output goes, and run files from a pipe.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
die() { echo "$1"; exit 1; }
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
max_steps: 1
device: cpu
YAML

# the value of an option is the word after it; taken from elsewhere, the words would not end
rc=0; timeout 60 "$AFINAR" generate --threads 2x 2> "$tmp/err" || rc=$?
[ $rc = 2 ] && grep -q "got '2x'" "$tmp/err" || die "--threads 2x: exit $rc, $(cat "$tmp/err")"

"$AFINAR" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' > "$tmp/commands"
[ "$(wc -l < "$tmp/commands")" -ge 16 ] || die "the help lists too few commands"
while read -r command; do
    "$AFINAR" "$command" --help > "$tmp/help" 2> "$tmp/err" < /dev/null || die "$command --help fails"
    [ -s "$tmp/err" ] && die "$command --help prints on stderr"
    grep -q "^usage: afinar $command" "$tmp/help" || die "$command --help has no usage"
    cmp -s "$tmp/help" <("$AFINAR" help "$command") || die "help $command is not $command --help"
    [ "$("$AFINAR" "$command" --version < /dev/null)" = "$("$AFINAR" --version)" ] || die "$command has no --version"
    "$AFINAR" "$command" --nonsense > "$tmp/out" 2> "$tmp/err" < /dev/null && die "$command accepts --nonsense"
    [ -s "$tmp/out" ] && die "$command --nonsense prints on stdout"
    grep -q "unknown option '--nonsense'" "$tmp/err" || die "$command does not name --nonsense"
    # under --json an error is one JSON object on stdout, wherever --json stands
    rc=0; "$AFINAR" "$command" --nonsense --json > "$tmp/out" 2> "$tmp/err" < /dev/null || rc=$?
    [ $rc = 2 ] && [ "$(wc -l < "$tmp/out")" = 1 ] || die "$command --nonsense --json: $rc, $(cat "$tmp/out")"
    grep -q "^{\"error\": \"unknown option '--nonsense'.*\"}\$" "$tmp/out" || die "$command --json: $(cat "$tmp/out")"
done < "$tmp/commands"
cmp -s <("$AFINAR" help help) <("$AFINAR" --help) || die "help help is not the help"
rc=0; "$AFINAR" help trian 2> "$tmp/err" || rc=$?
[ $rc = 2 ] && grep -q "did you mean 'train'" "$tmp/err" || die "help of no command: $rc"

# a number with something after it is not a number, in options of every kind
for words in "--threads 2x" "--threads 1.5" "--threads" "-n 3k" "-n ''"; do
    rc=0; "$AFINAR" generate "$AF_GOLDEN/models/qwen2_tiny" --prompt-ids 1 $words > /dev/null 2> "$tmp/err" || rc=$?
    [ $rc = 2 ] && grep -q -- "${words%% *}" "$tmp/err" || die "$words: exit $rc, $(cat "$tmp/err")"
done
for words in "--temperature 0.5x" "--top-p .9."; do
    rc=0; "$AFINAR" generate "$AF_GOLDEN/models/qwen2_tiny" --prompt-ids 1 $words > /dev/null 2> "$tmp/err" || rc=$?
    [ $rc = 2 ] && grep -q -- "${words%% *}" "$tmp/err" || die "$words: exit $rc, $(cat "$tmp/err")"
done

# a run file from a pipe, for every command that reads one
"$AFINAR" train - -q output_dir="$tmp/piped" < <(cat "$tmp/run.yaml")
"$AFINAR" train <(cat "$tmp/run.yaml") -q output_dir="$tmp/other"
cmp "$tmp/piped/model.safetensors" "$tmp/other/model.safetensors"
"$AFINAR" plan - < "$tmp/run.yaml" > /dev/null 2>&1
"$AFINAR" data check - < "$tmp/run.yaml" > /dev/null 2>&1
echo 'zzz: 1' | "$AFINAR" train - 2> "$tmp/err" && die "a wrong run file passes"
grep -q "^afinar train: stdin:1: unknown key 'zzz'" "$tmp/err" || die "a wrong line of stdin is not named"
"$AFINAR" train - < /dev/null 2> "$tmp/err" && die "an empty run file passes"
grep -q "stdin: base_model is missing" "$tmp/err" || die "nothing on stdin: $(cat "$tmp/err")"

# a run that failed has no results, only its error; so have the other commands
rc=0; "$AFINAR" train "$tmp/run.yaml" --json zzz=1 > "$tmp/out" 2> "$tmp/err" || rc=$?
[ $rc = 1 ] || die "an unknown key: exit $rc"
[ "$(cat "$tmp/out")" = "{\"error\": \"command line: unknown key 'zzz' (afinar train --help lists them)\"}" ] || die "$(cat "$tmp/out")"
[ "$(cat "$tmp/err")" = "afinar train: command line: unknown key 'zzz' (afinar train --help lists them)" ] || die "$(cat "$tmp/err")"
for words in "plan $tmp/none" "inspect $tmp/none" "eval $tmp/none --data $tmp/none" "generate $tmp/none -p x" "export $tmp/none -o $tmp/x.gguf" \
    "quantize $tmp/none --type nf4 -o $tmp/x" "merge $tmp/none -o $tmp/x" "logits $tmp/none --ids $tmp/none -o $tmp/x" "tokenize $tmp/none" \
    "template $tmp/none" "data check $tmp/none" "data preview $tmp/none" "bench $tmp/none" "chat $tmp/none"; do
    rc=0; "$AFINAR" $words --json > "$tmp/out" 2> "$tmp/err" < /dev/null || rc=$?
    [ $rc != 0 ] && [ "$(wc -l < "$tmp/out")" = 1 ] || die "$words --json: exit $rc, $(cat "$tmp/out")"
    grep -q "^{\"error\": \".*\"}\$" "$tmp/out" || die "$words --json: $(cat "$tmp/out")"
    [ "afinar ${words%% *}: $(sed 's/^{"error": "\(.*\)"}$/\1/' "$tmp/out")" = "$(tail -1 "$tmp/err")" ] || die "$words: stderr says: $(cat "$tmp/err")"
done
rc=0; "$AFINAR" trian --json > "$tmp/out" 2> /dev/null || rc=$?
[ $rc = 2 ] && grep -q "^{\"error\": \"unknown command 'trian'; did you mean 'train'?" "$tmp/out" || die "no command: $(cat "$tmp/out")"
rc=0; "$AFINAR" plan $'a"\\\xff\n' --json > "$tmp/out" 2> /dev/null || rc=$? # a path that is not UTF-8
LC_ALL=C grep -qF $'a\\"\\\\\xEF\xBF\xBD\\n' "$tmp/out" || die "bytes of a path: $(cat "$tmp/out")"
rc=0; "$AFINAR" data check "$tmp/run.yaml" --json "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, type: alpaca}]" > "$tmp/out" 2> "$tmp/err" || rc=$?
[ $rc = 1 ] && [ "$(wc -l < "$tmp/out")" = 1 ] && grep -q '^{"records": .*"error": ".*"}$' "$tmp/out" || die "data check --json: $(cat "$tmp/out")"

[ "$("$AFINAR" version)" = "$("$AFINAR" --version)" ] || die "version is not --version"
[ "$("$AFINAR" version --json)" = "{\"version\": \"$("$AFINAR" version | sed 's/afinar //')\"}" ] || die "version --json"
"$AFINAR" train "$tmp/run.yaml" -q --json output_dir="$tmp/json" > "$tmp/out"
grep -q '^{"steps": 1, .*}$' "$tmp/out" || die "no JSON object: $(cat "$tmp/out")"

# --device auto is a value, too: it overrides the run file
sed -i 's/device: cpu/device: cuda:77/' "$tmp/run.yaml"
"$AFINAR" plan "$tmp/run.yaml" --device auto > /dev/null 2>&1 || die "--device auto has no effect"

# messages name what is wrong
"$AFINAR" init "$AF_GOLDEN/models/qwen2" "$AF_GOLDEN/models/data/train.jsonl" -o "$tmp/none/run.yaml" 2> "$tmp/err" && die "no folder"
grep -q "none/run.yaml': No such file or directory" "$tmp/err" || die "init: $(cat "$tmp/err")"

# a device that does not exist is an error also for commands that would not compute on it
for words in "quantize --type nf4" "quantize --type q8_0 --eval $AF_GOLDEN/models/data/train.jsonl" merge export; do
    set -- $words
    "$AFINAR" "$@" "$AF_GOLDEN/models/qwen2" --adapter "$AF_GOLDEN/runs/qwen2/lora/initial_adapter" -o "$tmp/$1.gguf" --device cuda:77 \
        > /dev/null 2> "$tmp/err" && die "$1 accepts a device that does not exist"
    [ ! -e "$tmp/$1.gguf" ] || die "$1 wrote something"
    grep -q "cuda" "$tmp/err" || die "$1: $(cat "$tmp/err")"
done

# doctor and the commands that resolve org/name use the same folder, which the first download makes
env -u HF_HOME XDG_CACHE_HOME="$tmp/xdg" "$AFINAR" doctor --threads 1 > "$tmp/out"
grep -q "model cache  *no  $tmp/xdg/huggingface/hub: not there yet: the first download makes it" "$tmp/out" || die "$(grep cache "$tmp/out")"
mkdir -p "$tmp/xdg/huggingface/hub"
env -u HF_HOME XDG_CACHE_HOME="$tmp/xdg" "$AFINAR" doctor --threads 1 > "$tmp/out"
grep -q "model cache  *yes $tmp/xdg/huggingface/hub" "$tmp/out" || die "doctor looks elsewhere: $(cat "$tmp/out")"
env -u HF_HOME XDG_CACHE_HOME="$tmp/xdg" "$AFINAR" inspect org/absent 2> "$tmp/err" && die "org/absent is there"
grep -q "the cache '$tmp/xdg/huggingface/hub'" "$tmp/err" || die "inspect looks elsewhere"
