#!/usr/bin/env bash
# Messages that name what to do: warnings about doubtful settings, unknown names with the known ones, names of the hub, a cache
# that cannot be written, init's template, eval of a run file, repeated errors of records.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
die() { echo "$1"; exit 1; }
has() { # FILE WORDS ...: each is in the file
    local file=$1 word
    shift
    for word in "$@"; do grep -qF -- "$word" "$file" || die "$(basename "$file") has no '$word': $(head -c 3000 "$file")"; done
}
lacks() { ! grep -qF -- "$2" "$1" || die "$(basename "$1") has '$2': $(cat "$1")"; }
fails() { # ARGS: exit 1, stderr in err
    local rc=0
    "$AFINAR" "$@" > stdout 2> err || rc=$?
    [ $rc = 1 ] || die "exit $rc: $*: $(cat err)"
}
cd "$tmp"
model=$AF_GOLDEN/models/qwen2
cat > run.yaml <<YAML
base_model: $model
datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
adapter: lora
learning_rate: 2e-4
max_steps: 1
output_dir: out
device: cpu
threads: 1
YAML
i=0
train() { i=$((i + 1)); "$AFINAR" train run.yaml -q output_dir="out$i" "$@" 2> err || die "$*: $(cat err)"; }

# --- doubtful settings: one line each, with -q too; plan says the same of those that need no data
train
[ ! -s err ] || die "a plain run warns: $(cat err)"
context=$(sed -n 's/.*"max_position_embeddings": \([0-9]*\).*/\1/p' "$model/config.json")
train sequence_len=200000
has err "warning: command line: sequence_len 200000 is beyond the model's context of $context tokens"
"$AFINAR" plan run.yaml sequence_len=$((context * 2)) > stdout 2> err
has err "warning: command line: sequence_len $((context * 2)) is beyond the model's context of $context"
train learning_rate=10
has err "warning: command line: learning_rate 10 is far above the usual 1e-05 to 0.001 of adapters"
train learning_rate=1e-9
has err "warning: command line: learning_rate 1e-09 is far below the usual"
train learning_rate=0.005 # ten times the usual is no mistake
[ ! -s err ] || die "$(cat err)"
sed '/^adapter/d' run.yaml > full.yaml
"$AFINAR" train full.yaml -q output_dir=full learning_rate=0.005 2> err
has err "learning_rate 0.005 is far above the usual 1e-06 to 0.0001 of full fine-tuning"
"$AFINAR" train full.yaml -q output_dir=sgd learning_rate=0.5 optimizer=sgd 2> err
[ ! -s err ] || die "sgd has other rates: $(cat err)"
train embedding_lr_scale=0.1
has err "warning: command line: embedding_lr_scale has no effect: the adapter trains no embedding, no head and no lora_modules_to_save"
"$AFINAR" plan run.yaml embedding_lr=1e-5 > stdout 2> err
has err "warning: command line: embedding_lr has no effect"
for keys in 'lora_modules_to_save=["embed_tokens"]' 'trainable_token_indices=[5]' 'lora_target_modules=["q_proj","embed_tokens"]'; do
    train embedding_lr=1e-5 "$keys"
    [ ! -s err ] || die "$keys: $(cat err)"
done
# trained rows of an embedding have that rate, too: next to nothing here
loss_of() { # KEYS: the third step's
    rm -rf rates
    "$AFINAR" train run.yaml -q output_dir=rates shuffle=false max_steps=3 learning_rate=1e-2 max_grad_norm=0 "$@" 2> err
    sed -n '/"step": 3,/s/.*"loss": \([0-9.]\{8\}\).*/\1/p' rates/metrics.jsonl
}
[ "$(loss_of 'trainable_token_indices=[511]' embedding_lr=1e-12)" = "$(loss_of)" ] || die "the rate of trained rows: $(cat rates/metrics.jsonl)"
[ "$(loss_of 'trainable_token_indices=[511]')" != "$(loss_of)" ] || die "nothing was tested"
# a rate of 0 has no factor for the rate of embeddings
loss_of 'lora_target_modules=["q_proj","embed_tokens"]' loraplus_lr_ratio=4 learning_rate=0 > loss
[ -s loss ] || die "LoRA+ and a rate of 0: $(cat err)"
sed 's/^adapter/batch_size: 12\nmicro_batch_size: 5\nadapter/' run.yaml > rows.yaml
"$AFINAR" train rows.yaml -q output_dir=rows 2> err
has err "warning: rows.yaml:3: batch_size 12 is not a multiple of micro_batch_size 5: a step has 10 rows"
train sequence_len=40
has err "of 64 records are cut at sequence_len 40" "lose their end-of-turn token: raise sequence_len, or set excess_length_strategy: drop"
"$AFINAR" data check run.yaml sequence_len=40 > stdout 2> err
has err "of 64 records are cut at sequence_len 40"
printf '{"question": "2+2?", "answer": "4"}\n{"question": "3+3?", "answer": "6"}\n' > qa.jsonl
train "datasets=[{path: qa.jsonl, field_prompt: question, field_completion: answer}]"
has err "warning: 2 records are prompts and completions joined as they are, but this model has a chat template: name the fields field_instruction and field_output"
train "datasets=[{path: qa.jsonl, field_instruction: question, field_output: answer}]"
lacks err "joined as they are"
sed 's/question/prompt/; s/answer/completion/' qa.jsonl > pc.jsonl # the same advice holds for these names
train "datasets=[{path: pc.jsonl, field_instruction: prompt, field_output: completion}]"
lacks err "joined as they are"

# --- init: question and answer, and which template is used
"$AFINAR" init "$model" qa.jsonl -o qa.yaml 2> err
has err "2 records of type alpaca: rendered with the model's chat template"
has qa.yaml "# rendered with the model's chat template." "field_instruction: question" "field_output: answer"
lacks qa.yaml "type:"
"$AFINAR" data preview qa.yaml -n 1 > stdout 2> err
has stdout "<|im_start|>user" "2+2?"
"$AFINAR" init "$model" "{path: qa.jsonl, field_prompt: question, field_completion: answer}" > pairs.yaml 2> err
has pairs.yaml "joined as they are, without the model's chat template"
printf '{"instruction": "2+2?", "output": "4"}\n' > alpaca.jsonl
"$AFINAR" init "$model" alpaca.jsonl > alpaca.yaml 2> err # `type: alpaca` would be the Alpaca prompt
lacks alpaca.yaml "type:"
has alpaca.yaml "rendered with the model's chat template"
printf '{"left": "2+2?", "right": "4"}\n' > odd.jsonl
fails init "$model" odd.jsonl
has err "keys [left, right] are not a known shape"
fails train run.yaml output_dir=none "datasets=[{path: qa.jsonl}]"
has err "keys [question, answer] are not a known shape" "{path: ..., field_instruction: question, field_output: answer}"
# nothing of a record is lost by taking the advice
printf '{"system_prompt": "S", "question": "Q", "response": "R"}\n' > orca.jsonl
"$AFINAR" data check run.yaml "datasets=[{path: orca.jsonl}]" > stdout 2> err && die "no shape"
has err "{path: ..., field_instruction: question, field_output: response, field_system: system_prompt}"
printf '{"instruction": "Q", "context": "C", "response": "R", "category": "qa"}\n' > dolly.jsonl
"$AFINAR" data check run.yaml "datasets=[{path: dolly.jsonl}]" > stdout 2> err && die "no shape"
has err "{path: ..., field_instruction: instruction, field_output: response, field_input: context}"
for name in orca dolly; do
    "$AFINAR" init "$model" $name.jsonl -o $name.yaml 2> err
    "$AFINAR" data check $name.yaml > stdout 2> err || die "init wrote $(cat $name.yaml)"
done
has orca.yaml "field_system: system_prompt"
has dolly.yaml "field_input: context"

# --- unknown architectures and modules: what is known, and the nearest
mkdir rwkv qwenn
cp "$model"/tokenizer* rwkv
printf '{"model_type": "rwkv", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512}' > rwkv/config.json
fails plan run.yaml base_model=rwkv
has err "model_type 'rwkv' is not known" "; supported: llama, mistral, qwen2, qwen3, phi3, smollm3, olmo2, granite"
has err ", gemma2," ", gemma3_text," ", qwen3_moe," ", mixtral,"
grep -qE ", and [0-9]+ more$" err || die "the list of model types has no end: $(tail -c 80 err)"
sed 's/"model_type": "qwen2"/"model_type": "qwen2x", "odd_key": 3/' "$model/config.json" > qwenn/config.json
fails plan run.yaml base_model=qwenn
has err "model_type 'qwen2x' is not known" "did you mean 'qwen2'? Supported: llama"
sed 's/^adapter: lora/adapter: lora\nlora_target_modules: [q_porj]/' run.yaml > typo.yaml
for command in plan train; do
    fails $command typo.yaml
    has err "typo.yaml:4: lora_target_modules: target module 'q_porj' matches nothing in this qwen2 model; did you mean 'q_proj'?" \
        "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
done

# --- names of the hub, and parquet
fails train run.yaml base_model=Qwen/Qwen2.5-0.5B
has err "command line: no model 'Qwen/Qwen2.5-0.5B'" "download it first: afinar pull Qwen/Qwen2.5-0.5B"
fails train run.yaml "datasets=[{path: tatsu-lab/alpaca}]"
has err "no dataset 'tatsu-lab/alpaca'" "download it first: afinar pull tatsu-lab/alpaca --dataset"
fails train run.yaml "datasets=[{path: data/none.jsonl}]"
has err "dataset data/none.jsonl is not there"
lacks err "hub"

# --- a cache that cannot be written does not stop a run: one line says so, and the bytes are the same
printf x > file
cat > two.yaml <<YAML
$(cat run.yaml)
test_datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
YAML
TMPDIR=$tmp XDG_CACHE_HOME="$tmp/file" "$AFINAR" train two.yaml -q output_dir=uncached 2> err
[ "$(wc -l < err)" = 1 ] || die "not one line: $(cat err)"
has err "warning: no cache is used, the data is tokenised in every run: cannot make folder '$tmp/file"
"$AFINAR" train two.yaml -q output_dir=cached 2> err
cmp uncached/adapter_model.safetensors cached/adapter_model.safetensors || die "without a cache: other bytes"
[ -z "$(ls -d afinar-tokens.* 2> /dev/null)" ] || die "temporary tokens are left: $(ls)"
env -u HOME -u XDG_CACHE_HOME "$AFINAR" train run.yaml -q output_dir=homeless 2> err
has err "no cache is used" "neither XDG_CACHE_HOME nor HOME is set"

# --- eval of a run file: the run's model, adapter and evaluation data
sed 's/^max_steps: 1/max_steps: 4\nval_set_size: 8/' run.yaml > evaluated.yaml
fails eval evaluated.yaml output_dir=absent
has err "'absent' has neither a result nor a checkpoint of this run: train it first (afinar train evaluated.yaml)"
fails eval run.yaml
has err "run.yaml: no evaluation data: set val_set_size or test_datasets"
for keys in "" "adapter=qlora" "adapter=freeze" "adapter=full reinit_weights=true" "peft_init_lora_weights=pissa lora_r=4" \
    'lora_rank_pattern={"q_proj":2}' 'lora_alpha_pattern={"q_proj":3}' "adapter=full learning_rate=1e-5"; do
    rm -rf out
    "$AFINAR" train evaluated.yaml -q $keys 2> err || die "$(cat err)"
    "$AFINAR" eval evaluated.yaml --json -q $keys > out.json 2> err || die "eval $keys: $(cat err)"
    want=$(tail -1 out/metrics.jsonl | sed 's/.*"eval_loss": \([0-9.e-]*\),.*/\1/')
    got=$(sed 's/.*"loss": \([0-9.e-]*\),.*/\1/' out.json)
    awk "BEGIN { exit !($want - $got < 1e-6 && $got - $want < 1e-6 && $got > 1) }" || die "$keys: eval says $got, the run $want"
    has out.json '"rows": 8'
done
rm out/model.safetensors # a run that is not finished: its newest checkpoint
"$AFINAR" eval evaluated.yaml adapter=full learning_rate=1e-5 > out.txt 2> err
has err "the run is not finished: evaluating out/checkpoint-4"
rc=0; "$AFINAR" eval evaluated.yaml --data x > out.txt 2> err || rc=$?
[ $rc = 2 ] || die "eval RUN --data: exit $rc"
has err "a run file names model, adapter and data itself"

# --- what train refuses once it has read model and data, plan and data check refuse, too
for command in plan "data check" train; do
    fails $command evaluated.yaml output_dir=few load_best_model_at_end=true metric_for_best_model=f1
    has err "command line: metric_for_best_model is 'f1', but evaluations of this run have loss, accuracy, mean_token_accuracy"
done
head -2 "$AF_GOLDEN/models/data/train.jsonl" > few.jsonl
for command in "data check" train; do
    fails $command evaluated.yaml "datasets=[{path: few.jsonl}]" output_dir=few
    has err "evaluated.yaml:" "val_set_size holds out 8 of 2 records: none are left"
done

# --- data check: equal errors once, with their number; every record is read
for k in $(seq 70); do printf '{"instruction": 3, "output": "x%s"}\n' "$k"; done > wrong.jsonl
printf '{"instruction": "a", "output": "b"}\n{"nothing": 1}\n' >> wrong.jsonl
fails data check run.yaml "datasets=[{path: wrong.jsonl}]"
[ "$(grep -c '^error: ' err)" = 3 ] || die "errors: $(cat err)"
has err "error: wrong.jsonl:1: " "error: 69 more records like wrong.jsonl:1" "error: wrong.jsonl:72: " "71 records of the datasets cannot be used"

# --- memory: the estimate before the first step, and that of plan, are not below what was measured, nor far above. Of what is
# mapped, the kernel counts fewer pages as resident when the file is not cached yet, or the machine is short of memory.
if ! grep -qa __asan_init "$AFINAR"; then
    demo=$AF_SOURCE/examples/demo
    "$AFINAR" export "$model" -o small.gguf --type q8_0 --no-verify -q > /dev/null
    memory() { # BASE KEYS ...
        rm -rf measured
        "$AFINAR" train run.yaml output_dir=measured "base_model=$1" "datasets=[{path: $demo/train.jsonl}]" max_steps=2 sequence_len=64 \
            pad_to_sequence_len=true val_set_size=8 "${@:2}" 2> err || die "$(cat err)"
        "$AFINAR" plan run.yaml output_dir=measured "base_model=$1" "datasets=[{path: $demo/train.jsonl}]" max_steps=2 sequence_len=64 \
            pad_to_sequence_len=true val_set_size=8 "${@:2}" --json > plan.json 2> /dev/null
        local peak expected planned
        peak=$(sed -n 's/^memory: \([0-9.]*\) MiB peak.*/\1/p' err)
        expected=$(sed -n 's/.*peak resident, \([0-9.]*\) expected.*/\1/p' err)
        planned=$(sed 's/.*"resident_bytes":\([0-9]*\).*/\1/' plan.json)
        awk "BEGIN { exit !($peak <= $expected && $peak * 1048576 <= $planned && $peak > $expected * 0.6) }" \
            || die "$*: $peak MiB measured, $expected expected, $planned bytes planned"
    }
    memory "$demo/base"
    memory "$demo/base" adapter=full learning_rate=1e-5
    memory "$demo/base" adapter=qlora
    memory "$demo/base" bf16=true gradient_accumulation_steps=2
    memory "$demo/base" adapter=full learning_rate=1e-5 optimizer=adamw_8bit save_steps=1
    memory "$demo/base" lora_modules_to_save=[embed_tokens]
    memory small.gguf
    memory "$model" micro_batch_size=4
fi
