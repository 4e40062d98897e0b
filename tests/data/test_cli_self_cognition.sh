#!/usr/bin/env bash
# ms-swift's records about the model itself, as its SelfCognitionPreprocessor fills them.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
die() { echo "$1"; exit 1; }
cat > "$tmp/self_cognition.jsonl" <<'JSON'
{"query": "你是谁？", "response": "我是{{NAME}}，由{{AUTHOR}}开发。", "tag": "zh"}
{"query": "Are you {{NAME}}?", "response": "{{NAME}} by {{AUTHOR}}, {{NAME}}", "tag": "en"}
JSON
# preview TYPE NAME AUTHOR -> the dialogues as text
preview() {
    printf 'base_model: %s\nadapter: lora\ndatasets:\n  - {path: %s, type: %s, model_name: %s, model_author: %s}\n' \
        "$AF_GOLDEN/models/qwen2" "$tmp/self_cognition.jsonl" "$1" "$2" "$3" > "$tmp/run.yaml"
    "$AFINAR" data preview "$tmp/run.yaml" -n 2 2> "$tmp/err" | sed 's/⟦//g; s/⟧//g' | tr -d '\n'
}
has() { # TYPE NAME AUTHOR TEXT ...
    local text what
    text=$(preview "$1" "$2" "$3") || die "$1: $(cat "$tmp/err")"
    for what in "${@:4}"; do
        [[ $text == *"$what"* ]] || die "$1: no '$what' in $text"
    done
}
has self_cognition '[小黄, Xiao Huang]' '[魔搭, ModelScope]' 'user↵你是谁？<|im_end|>↵<|im_start|>assistant↵我是小黄，由魔搭开发。<|im_end|>' \
    'user↵Are you Xiao Huang?<|im_end|>↵<|im_start|>assistant↵Xiao Huang by ModelScope, Xiao Huang<|im_end|>'
has self_cognition A '[B]' '我是A，由B开发。' 'A by B, A<|im_end|>'
has self_cognition:empty_think A B 'assistant↵<think>↵↵</think>↵↵A by B' '你是谁？<|im_end|>'
has self_cognition:qwen3 A B 'assistant↵<think>↵↵</think>↵↵A by B' '你是谁？ /no_think<|im_end|>'

fails() { # TYPE NAME AUTHOR MESSAGE
    ! preview "$1" "$2" "$3" > "$tmp/out" || die "accepted: $1 $2 $3"
    grep -q "$4" "$tmp/err" || die "$(cat "$tmp/err")"
}
fails self_cognition A '' "self_cognition.jsonl:1: the record has {{AUTHOR}}, but 'model_author' is not set"
fails self_cognition '[A, B, C]' B "run.yaml:4: model_name of a dataset must be a name, or a list of two"
fails self_cognition:other A B "type 'self_cognition:other' is not supported"
fails alpaca A B "run.yaml:4: model_name of a dataset has no effect without 'type: self_cognition'"
# other names are other tokens: the cache knows
printf 'base_model: %s\nadapter: lora\nmax_steps: 1\ndevice: cpu\nlogging_steps: 1\n' "$AF_GOLDEN/models/qwen2" > "$tmp/run.yaml"
for name in A BB; do
    "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$name" \
        "datasets=[{path: $tmp/self_cognition.jsonl, type: self_cognition, model_name: $name, model_author: C}]" micro_batch_size=2
done
! diff <(grep -o '"tokens": [0-9]*' "$tmp/A/metrics.jsonl") <(grep -o '"tokens": [0-9]*' "$tmp/BB/metrics.jsonl") > "$tmp/out" ||
    die "the names of another run were used"
