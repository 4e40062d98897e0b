#!/usr/bin/env bash
# Wrong data and contradictory keys of preference training, labels and rewards: each is one sentence that names the
# problem, with file and line where there is one, and leaves no output folder. Then the gate of `data check`.
set -uo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/base.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/preference/data/preferences.jsonl}]
output_dir: $tmp/out
adapter: lora
max_steps: 1
micro_batch_size: 2
device: cpu
YAML
. "$(dirname "$0")/refused_runs.sh"
key() { check "$1" "$tmp/base.yaml" "${@:2}"; }
data() { # WORDS RL RECORDS key=value ...: the same with these records
    local want=$1 rl=$2
    printf '%s\n' "$3" > "$tmp/data.jsonl"
    shift 3
    key "$want" "rl=$rl" "datasets=[{path: $tmp/data.jsonl}]" "$@"
}
label() { # WORDS RECORDS key=value ...: texts with labels
    local want=$1
    printf '%s\n' "$2" > "$tmp/data.jsonl"
    shift 2
    key "$want" task_type=SEQ_CLS "datasets=[{path: $tmp/data.jsonl}]" "$@"
}
gate() { # WORDS RL RECORDS key=value ...: data check refuses
    local want=$1 rl=$2 rc
    printf '%s\n' "$3" > "$tmp/data.jsonl"
    shift 3
    cases=$((cases + 1))
    "$AFINAR" data check "$tmp/base.yaml" "rl=$rl" "datasets=[{path: $tmp/data.jsonl}]" "$@" > "$tmp/stdout" 2> "$tmp/err"
    rc=$?
    [ $rc = 1 ] || fail "exit $rc for: $want"
    words "$want"
}
pair='{"prompt": "Why? ", "chosen": "Because.", "rejected": "No."}'
turn='[{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]'

# keys
key "preferences.jsonl: records of shape preference|choose a method with 'rl'"
key "rl_beta is 0" rl=dpo rl_beta=0
key "micro_batch_size is 1|KTO" rl=kto micro_batch_size=1
key "exo_pair needs dpo_label_smoothing" rl=dpo dpo_loss_type=exo_pair
key "robust needs it below 0.5" rl=dpo dpo_loss_type=robust dpo_label_smoothing=0.5
key "is not a loss of 'rl: dpo'" rl=dpo dpo_loss_type=sigmiod
key "dpo_loss_weights has 1 numbers for 2 losses" rl=dpo 'dpo_loss_type=[sigmoid, sft]' 'dpo_loss_weights=[1]'
key "contradict each other" rl=orpo orpo_alpha=0.2 rl_beta=0.3
key "dpo_use_weighting|sft" rl=dpo dpo_use_weighting=true 'dpo_loss_type=[sigmoid, sft]'
key "train_on_inputs has no effect" rl=dpo train_on_inputs=true
key "task_type SEQ_CLS|only 'rl: reward'" rl=dpo task_type=SEQ_CLS
key "class_names has 2 names, and num_labels is 3" task_type=SEQ_CLS num_labels=3 'class_names=[a, b]'
key "class_names has 'a' twice" task_type=SEQ_CLS 'class_names=[a, a]'
key "single_label_classification needs two labels" task_type=SEQ_CLS num_labels=1 problem_type=single_label_classification
key "generate_samples needs a model of tokens" task_type=SEQ_CLS num_labels=2 'generate_samples=[a]'
# records
data "data.jsonl:1: record 1 has no field \"rejected\"" dpo '{"prompt": "a", "chosen": "b"}'
data "data.jsonl:2: record 2 has no field \"chosen\"" dpo "$pair"$'\n''{"prompt": "a", "rejected": "b"}'
data "\"rejected\" should be a string (as the other answer is), got a list" dpo '{"prompt": "a", "chosen": "b", "rejected": []}'
data "\"chosen\" should be a string or a list of messages, got a number" dpo '{"prompt": "a", "chosen": 1, "rejected": "b"}'
data "no common prompt in \"chosen\" and \"rejected\"" dpo \
    "{\"chosen\": $turn, \"rejected\": [{\"role\": \"user\", \"content\": \"How?\"}, {\"role\": \"assistant\", \"content\": \"So.\"}]}"
data "no list of messages before it" dpo '{"chosen": {"role": "assistant", "content": "b"}, "rejected": {"role": "assistant", "content": "c"}}'
data "field \"rejected\" is empty" dpo '{"chosen": "b", "rejected": ""}'
data "\"prompt\" should be a string (as the answers are), got a number" dpo '{"prompt": 5, "chosen": "a", "rejected": "b"}'
data "records of shape text, but 'rl: dpo' wants chosen and rejected" dpo '{"text": "a"}'
data "records of shape kto, but 'rl: dpo' wants chosen and rejected" dpo '{"prompt": "a", "completion": "b", "label": true}'
data "has no field \"label\"" kto '{"prompt": "a", "completion": "b", "label": true}'$'\n''{"prompt": "a", "completion": "b"}'
data "field \"label\" should be true or false, got a number" kto '{"prompt": "a", "completion": "b", "label": 2}'
data "field \"chosen\" should be a list of messages, and its first item is a string" dpo '{"prompt": "a", "chosen": ["b", "c"], "rejected": ["d"]}'
data "field \"margin\" is 1e+39" reward '{"prompt": "a", "chosen": "b", "rejected": "c", "margin": 1e39}'
data "field \"completion\" should be a string (as the prompt is), got a list" kto "{\"prompt\": \"a\", \"completion\": $turn, \"label\": true}"
data "field \"margin\" should be a number, got a string" reward '{"chosen": "a", "rejected": "b", "margin": "c"}'
data "unknown key 'prompt_fromat' of a type for 'rl: dpo'" dpo "$pair" "datasets=[{path: $tmp/data.jsonl, type: {prompt_fromat: x}}]"
data "has '{promt}', which is not one of its fields" dpo "$pair" "datasets=[{path: $tmp/data.jsonl, type: {prompt_format: 'Q {promt}'}}]"
data "field \"chosen\" has 1 messages, 2 are wanted" dpo '{"prompt": "a", "chosen": [{"role": "user", "content": "b"}], "rejected": []}' \
    "datasets=[{path: $tmp/data.jsonl, type: chatml.ultra}]"
data "two or more answers" dpo '{"prompt": "a", "answers": [{"answer": "b", "rank": 1}]}' "datasets=[{path: $tmp/data.jsonl, type: zephyr.nectar}]"
# labels
label "\"label\" is 3, but the model has labels 0 to 1" '{"text": "a", "label": 3}' num_labels=2
label "\"label\" is \"bad\", which is not one of 'class_names'" '{"text": "a", "label": "bad"}' 'class_names=[good, poor]'
label "list the names in 'class_names'" '{"text": "a", "label": "bad"}' num_labels=2
label "has no field \"label\"" '{"text": "a"}' num_labels=2
label "\"label\" has 2 values, but the model has 3 labels" '{"text": "a", "label": [1, 2]}' num_labels=3 problem_type=regression
label "field \"label\" should be a number, got an object" '{"text": "a", "label": {}}' num_labels=1
# the gate
# where ORPO's prompt may end
ends() { echo '{"prompt": [{"role": "user", "content": "Why?"}, {"role": "'"$1"'", "content": "5"}], "chosen": [{"role": "assistant", "content": "So."}], "rejected": [{"role": "assistant", "content": "No."}]}'; }
gate 'data.jsonl:1|ends with a message of role "system", not user, tool or assistant' orpo "$(ends system)"
for role in tool assistant; do
    ends $role > "$tmp/data.jsonl"
    "$AFINAR" data check "$tmp/base.yaml" rl=orpo "datasets=[{path: $tmp/data.jsonl}]" > "$tmp/stdout" 2> "$tmp/err" || fail "a prompt that ends with $role: $(cat "$tmp/err")"
done

gate "data.jsonl:2: \"chosen\" and \"rejected\" are equal" dpo "$pair"$'\n''{"prompt": "a", "chosen": "b", "rejected": "b"}'
gate "data.jsonl:1: an answer is cut away|sequence_len is 4" dpo '{"prompt": "a long prompt that fills the row", "chosen": "b", "rejected": "c"}' sequence_len=4
gate "data.jsonl:1: an answer is cut away" orpo '{"prompt": "a long prompt that fills the row", "chosen": "b", "rejected": "c"}' sequence_len=4
gate "data.jsonl:1: the prompt is not how both rows begin" dpo \
    '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}' \
    "chat_template='{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant> {% endif %}'"
gate "data.jsonl:1: record 1 has no field \"label\"" kto '{"prompt": "a", "completion": "b"}' "datasets=[{path: $tmp/data.jsonl, type: kto}]"
# what a model that classifies cannot become
printf '%s\n' '{"text": "a", "label": 0}' '{"text": "b", "label": 1}' > "$tmp/data.jsonl"
"$AFINAR" train "$tmp/base.yaml" task_type=SEQ_CLS "datasets=[{path: $tmp/data.jsonl}]" "output_dir=$tmp/head" -q > "$tmp/stdout" 2> "$tmp/err" || fail "a head is not trained"
refused() { # WORDS ARGUMENTS
    local want=$1 rc
    shift
    cases=$((cases + 1))
    "$AFINAR" "$@" -q > "$tmp/stdout" 2> "$tmp/err"
    rc=$?
    [ $rc = 1 ] || fail "exit $rc for: $want"
    words "$want"
}
model=$AF_GOLDEN/models/qwen2
refused "gives scores of 2 labels, not tokens: 'afinar classify'" generate "$model" --adapter "$tmp/head" -p a
refused "classifies (2 labels)|merge it alone into a folder" merge "$model" --adapter "$tmp/head=0.5" -o "$tmp/merged"
refused "classifies (2 labels)" export "$model" --adapter "$tmp/head" -o "$tmp/x.gguf"
refused "is a language model without labels" classify "$model" -p a
echo '{"prompt": "a"}' > "$tmp/rows.jsonl"
refused "rows.jsonl:1: expected \"text\" (a string) or \"messages\" (a list)" classify "$model" --adapter "$tmp/head" -f "$tmp/rows.jsonl"
# over a language model the head becomes part of the merged model, and conversations are classified as rendered
cases=$((cases + 1))
"$AFINAR" merge "$model" --adapter "$tmp/head" -o "$tmp/merged" -q 2> "$tmp/err" || fail "a head is not merged"
printf '%s\n' '{"text": "<|im_start|>user\na<|im_end|>\n"}' '{"messages": [{"role": "user", "content": "a"}]}' > "$tmp/rows.jsonl"
for from in "$model --adapter $tmp/head" "$tmp/merged"; do
    # shellcheck disable=SC2086
    "$AFINAR" classify $from -f "$tmp/rows.jsonl" --json -q > "$tmp/stdout" 2> "$tmp/err" || fail "messages are not classified"
    [ "$(sort -u "$tmp/stdout" | wc -l)" = 1 ] || fail "a conversation is not classified as its text"
done
# good data passes the gate, and is shown side by side
printf '%s\n' "$pair" > "$tmp/data.jsonl"
cases=$((cases + 1))
"$AFINAR" data check "$tmp/base.yaml" rl=dpo "datasets=[{path: $tmp/data.jsonl}]" > "$tmp/stdout" 2> "$tmp/err" || fail "good data is refused"
"$AFINAR" data preview "$tmp/base.yaml" rl=dpo "datasets=[{path: $tmp/data.jsonl}]" > "$tmp/shown" 2> "$tmp/err" || fail "no preview"
grep -q '^chosen .*│ rejected$' "$tmp/shown" && grep -q '^ *Because.*│ *No\.' "$tmp/shown" || fail "not side by side"
# what is read as it is meant, and what is not read is said
reads() { # SHOWN WARNING RL RECORDS
    cases=$((cases + 1))
    printf '%s\n' "$4" > "$tmp/data.jsonl"
    "$AFINAR" data preview "$tmp/base.yaml" "rl=$3" "datasets=[{path: $tmp/data.jsonl}]" > "$tmp/shown" 2> "$tmp/err" || fail "not read: $4"
    grep -qF -- "$1" "$tmp/shown" || fail "no '$1' in: $(cat "$tmp/shown")"
    words "$2"
}
reads "label true" "" kto '{"prompt": "a", "completion": "b", "label": 1}'
reads "label false" "" kto '{"prompt": "a", "completion": "b", "label": "False"}'
reads "<|im_start|>user" "" dpo '{"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}'
reads "rejected" "\"system\" is not part of the prompt" dpo '{"system": "s", "question": "q", "chosen": "b", "rejected": "c"}'
reads "rejected" "an answer is empty" dpo '{"prompt": "a", "chosen": "", "rejected": "c"}'
# ChatML writes a newline after the end of a turn: no turn lacks its end, and a record that is cut loses it once
cases=$((cases + 1))
"$AFINAR" data check "$tmp/base.yaml" rl=dpo > "$tmp/stdout" 2> "$tmp/err" || fail "good pairs are refused"
grep -qE '^missing end-of-turn +0$' "$tmp/stdout" || fail "ends of turns are missing: $(cat "$tmp/stdout")"
"$AFINAR" data check "$tmp/base.yaml" rl=dpo sequence_len=60 > "$tmp/stdout" 2> "$tmp/err"
words "7 of 12 records are cut at sequence_len 60; 6 of them lose their end-of-turn token"
# the cache of tokens has the labels of a record as numbers: other names, another store
printf '%s\n' '{"text": "a", "label": "good"}' '{"text": "b", "label": "poor"}' '{"text": "c", "label": "good"}' > "$tmp/data.jsonl"
labels() { # NAME key=value ...
    local name=$1
    shift
    cases=$((cases + 1))
    "$AFINAR" train "$tmp/base.yaml" task_type=SEQ_CLS "datasets=[{path: $tmp/data.jsonl}]" "output_dir=$tmp/$name" -q "$@" > "$tmp/stdout" 2> "$tmp/err" || fail "$name is not trained"
}
labels good-poor 'class_names=[good, poor]'
labels poor-good 'class_names=[poor, good]'
rm -rf "$XDG_CACHE_HOME"
labels fresh 'class_names=[poor, good]'
cmp -s "$tmp/poor-good/adapter_model.safetensors" "$tmp/fresh/adapter_model.safetensors" || fail "labels of other names come from the cache"
# names and kind of labels that the keys do not give are those of what a run begins with
printf '%s\n' '{"text": "a", "label": ["x", "z"]}' '{"text": "b", "label": []}' > "$tmp/data.jsonl"
labels several 'class_names=[x, y, z]' problem_type=multi_label_classification
labels continued "lora_model_dir=$tmp/several"
labels whole adapter=full 'class_names=[x, y, z]' problem_type=multi_label_classification
labels again "base_model=$tmp/whole"
labels again-whole adapter=full "base_model=$tmp/whole"
for made in continued/adapter_config again/adapter_config again-whole/config; do
    grep -qF '"problem_type": "multi_label_classification"' "$tmp/$made.json" && grep -qF '"2": "z"' "$tmp/$made.json" || fail "no labels in $made.json"
done
cases=$((cases + 1))
"$AFINAR" data check "$tmp/base.yaml" task_type=SEQ_CLS adapter=full "base_model=$tmp/whole" "datasets=[{path: $tmp/data.jsonl}]" > "$tmp/stdout" 2> "$tmp/err" || fail "data check has other labels than the base"
echo "$cases cases, $failed failed"
[ $failed = 0 ] && [ $cases -ge 25 ]
