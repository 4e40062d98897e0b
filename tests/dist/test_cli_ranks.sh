#!/usr/bin/env bash
# Ranks over TCP give the bytes of one process: adapter or model, checkpoints, metrics rows without times and memory. A small part of
# the cases; AF_RANKS=all (make test-ranks) runs every method x stage x number of ranks. Then: runs that must fail, and with what.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" MASTER_ADDR=127.0.0.1
end() { # no rank outlives a failed test: whoever reads its output would wait for it
    local f
    for f in "$tmp"/pid.*; do [ ! -e "$f" ] || kill -9 "$(cat "$f")" || :; done
    rm -rf "$tmp"
}
trap end EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
learning_rate: 1e-3
micro_batch_size: 1
max_steps: 3
save_steps: 2
val_set_size: 5
eval_steps: 2
device: ${AF_DEVICE:-cpu}
threads: 1
ddp_timeout: 300
YAML
port() { # nobody listens there
    MASTER_PORT=$((20000 + RANDOM % 6000)) # below those of clients (32768), not those of test_cli_ranks_kill
    while (exec 3<> "/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
    export MASTER_PORT
}
# ranks N ARGS: all processes; what rank r prints is in $tmp/said.r, its status in $tmp/status.r
ranks() {
    local n=$1 r; shift
    port
    for ((r = 0; r < n; r++)); do
        ( set +e; RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r "$AFINAR" train "$tmp/run.yaml" ${quiet--q} "$@" > "$tmp/said.$r" 2>&1 &
          echo $! > "$tmp/pid.$r"; wait $!; echo $? > "$tmp/status.$r"; rm -f "$tmp/pid.$r" ) &
    done
    wait
}
good() {
    local r
    for ((r = 0; r < $1; r++)); do
        [ "$(cat "$tmp/status.$r")" = 0 ] || { echo "$2: rank $r ends with $(cat "$tmp/status.$r"): $(cat "$tmp/said.$r")"; exit 1; }
        [ "$r" = 0 ] || [ ! -s "$tmp/said.$r" ] || { echo "$2: rank $r speaks: $(cat "$tmp/said.$r")"; exit 1; }
    done
}
rows() { sed -E 's/, "(tok_s|step_ms|memory_bytes|eval_runtime|eval_samples_per_second|eval_steps_per_second)": [-+0-9.e]+//g; s/, "rank_memory_bytes": \[[^]]*\]//' "$1/metrics.jsonl"; }
state() { grep -v '"\(seconds\|last_seconds\|metrics_bytes\)"' "$1/progress.json"; }
same() { # WHOLE OTHER NAME
    local f
    cmp <(rows "$1") <(rows "$2") || { echo "$3: other rows"; diff <(rows "$1") <(rows "$2"); exit 1; }
    for f in adapter_model.safetensors model.safetensors checkpoint-2/adapter_model.safetensors checkpoint-2/model.safetensors checkpoint-2/optimizer.safetensors; do
        [ ! -e "$1/$f" ] || cmp "$1/$f" "$2/$f" || { echo "$3: other bytes in $f"; exit 1; }
    done
    cmp <(state "$1/checkpoint-2") <(state "$2/checkpoint-2") || { echo "$3: other progress"; exit 1; }
}
# compare NAME TOTAL "N..." "STAGE..." KEYS: one process with accumulation TOTAL, and N ranks with TOTAL / N
compare() {
    local name=$1 total=$2 sizes=$3 stages=$4 n s; shift 4
    "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$name" gradient_accumulation_steps="$total" "$@"
    for n in $sizes; do
        for s in $stages; do
            ranks "$n" output_dir="$tmp/$name-$n-$s" gradient_accumulation_steps=$((total / n)) zero_stage="$s" "$@"
            good "$n" "$name, $n ranks, zero_stage $s"
            same "$tmp/$name" "$tmp/$name-$n-$s" "$name, $n ranks, zero_stage $s"
            grep -q '"rank_memory_bytes": \[[0-9]' "$tmp/$name-$n-$s/metrics.jsonl" || { echo "$name: no rank_memory_bytes"; exit 1; }
        done
    done
}
# sent N STAGE METHOD: what plan says a rank sends in a step is what the run's counter says, within 3 %
sent() {
    local n=$1 s=$2 plan real
    plan=$("$AFINAR" plan "$tmp/run.yaml" adapter="$3" gradient_accumulation_steps=2 --ranks "$n" --json | sed -E "s/.*\"zero_stage\":$s,([^}]*)\"sent_bytes\":([0-9]+).*/\2/")
    quiet= ranks "$n" output_dir="$tmp/sent-$n-$s-$3" adapter="$3" gradient_accumulation_steps=2 zero_stage="$s"
    good "$n" "sent, $n ranks"
    real=$(sed -nE 's/.*sent .* MB per step \(([0-9]+) bytes\).*/\1/p' "$tmp/said.0")
    [ "$plan" -gt 0 ] && [ $((100 * (real > plan ? real - plan : plan - real))) -le $((3 * plan)) ] || {
        echo "$3, $n ranks, zero_stage $s: plan says $plan bytes a step, the run sent '$real'"; exit 1; }
}
# memory N METHOD STAGES: every rank of a run holds what plan says, within 3 % and the 6 MB that plan adds for pages touched later
memory() {
    local n=$1 m=$2 s real plan keys
    [ -e "$tmp/wide" ] || python3 "$AF_GOLDEN/../dist/wide_model.py" "$AF_GOLDEN/../../examples/demo/base" "$tmp/wide" 512 8
    keys=(base_model="$tmp/wide" adapter="$m" pad_to_sequence_len=true sequence_len=256 max_steps=1 datasets="[{path: $AF_GOLDEN/../../examples/demo/train.jsonl}]")
    "$AFINAR" plan "$tmp/run.yaml" "${keys[@]}" --ranks "$n" --json > "$tmp/plan.json"
    for s in $3; do
        plan=$(sed -E "s/.*\"zero_stage\":$s,([^}]*)\"resident_bytes\":([0-9]+).*/\2/" "$tmp/plan.json")
        ranks "$n" output_dir="$tmp/memory-$n-$s-$m" "${keys[@]}" gradient_accumulation_steps=1 zero_stage="$s"
        good "$n" "memory, $n ranks"
        real=$(sed -nE 's/.*rank_memory_bytes": \[([^]]*)\].*/\1/p' "$tmp/memory-$n-$s-$m/metrics.jsonl" | head -n 1 | tr -d , | tr ' ' '\n' | sort -n | tail -n 1)
        [ $((100 * (real > plan ? real - plan : plan - real - 6291456))) -le $((3 * plan)) ] || {
            echo "$m, $n ranks, zero_stage $s: plan says $plan bytes, the largest rank has '$real'"; exit 1; }
    done
}
LORA="lora_r=4 lora_dropout=0.1"
STAGES=${AF_STAGES:-0}
SPLIT=${STAGES#0 }
if [ "${AF_RANKS:-}" = all ]; then
    for packing in false true; do
        for total in 4 12; do
            compare "lora-$packing-$total" "$total" "2 4" "$STAGES" adapter=lora $LORA packing=$packing
            compare "full-$packing-$total" "$total" "2 4" "$STAGES" adapter=full packing=$packing
        done
    done
    for m in full lora qlora; do
        compare "any-$m" 6 "3 6" "$STAGES" adapter=$m gradient_accumulation_order=any_ranks
    done
    for o in adamw_8bit adamw_4bit adafactor muon apollo galore adam_mini nadam stable_adamw lion lion_8bit sgd; do
        compare "full-$o" 4 "2 4" "$STAGES" adapter=full optimizer=$o
    done
    compare full-schedule_free 4 "2 4" 0 adapter=full optimizer=schedule_free_adamw
    for m in full lora qlora; do
        for n in 2 4; do
            for s in $STAGES; do sent $n $s $m; done
            memory $n $m "$STAGES"
        done
    done
    compare dora 4 "2 4" "$STAGES" adapter=dora $LORA
    compare qlora 4 "2 4" "$STAGES" adapter=qlora $LORA
    pairs="datasets=[{path: $AF_GOLDEN/preference/data/preferences.jsonl}]"
    for rl in dpo ipo kto orpo simpo cpo reward; do
        compare "rl-$rl" 4 "2 4" "$SPLIT" adapter=lora $LORA rl=$rl micro_batch_size=2 "$pairs"
    done
    for i in 1 2 3 4 5 6; do
        printf '{"text": "a b c %d", "label": 0}\n{"text": "d e %d f g", "label": 1}\n' $i $i
    done > "$tmp/labels.jsonl"
    compare labels 4 "2 4" "$SPLIT" adapter=lora $LORA task_type=SEQ_CLS num_labels=2 "datasets=[{path: $tmp/labels.jsonl}]"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf '{"input_ids": [%d,7,9,11,%d,3,8], "labels": [%d,7,9,11,%d,3,8]}\n' $((i + 9)) $((30 - i)) $((i + 9)) $((30 - i))
    done > "$tmp/ids.jsonl"
    for m in full qlora; do
        compare "moe-$m" 4 "2 4" "$SPLIT" adapter=$m base_model="$AF_GOLDEN/models/qwen3_moe" "datasets=[{path: $tmp/ids.jsonl}]" val_set_size=3
    done
    compare gguf 4 "2 4" "$SPLIT" adapter=lora $LORA base_model="$AF_GOLDEN/models/gguf/qwen3moe.gguf" "datasets=[{path: $tmp/ids.jsonl}]" val_set_size=3
    compare frozen 4 "2 4" "$SPLIT" adapter=full "unfrozen_parameters=[model.layers.1.*]"
    compare distill 4 "2 4" "$SPLIT" adapter=lora $LORA teacher_model="$AF_GOLDEN/models/qwen2" kd_ce_alpha=0.5
    echo "all cases are the same"
    exit 0
fi
# one of two ranks: rank 0 says whom it waits for after 10 s, looked at below
port
RANK=0 WORLD_SIZE=2 "$AFINAR" train "$tmp/run.yaml" adapter=full output_dir="$tmp/waits" ddp_timeout=11 > "$tmp/waits.txt" 2>&1 &
echo $! > "$tmp/pid.waits"
disown
RANK=1 WORLD_SIZE=2 MASTER_ADDR=nobody.invalid "$AFINAR" train "$tmp/run.yaml" -q adapter=full output_dir="$tmp/waits" ddp_timeout=1 2> "$tmp/err" && exit 1
grep -q "rank 0 did not come in time (at nobody.invalid:$MASTER_PORT: [A-Z]" "$tmp/err" || { echo "no rank 0: $(cat "$tmp/err")"; exit 1; }
compare lora 4 "4" "0" adapter=lora $LORA packing=true
compare full 4 "2" "1 2 3" adapter=full
compare qlora 4 "4" "3" adapter=qlora $LORA
compare any 6 "3" "0" adapter=full gradient_accumulation_order=any_ranks
compare any_2 6 "2" "1" adapter=full gradient_accumulation_order=any_ranks
cmp "$tmp/any/model.safetensors" "$tmp/any_2/model.safetensors"
# warnings of the run file and of the data come from rank 0 alone, with and without a cache
for cache in "$tmp/cache" /dev/null/none; do
    XDG_CACHE_HOME=$cache ranks 2 adapter=lora lora_r=4 learning_rate=0.5 sequence_len=64 output_dir="$tmp/warned${cache##*/}"
    good 2 "warnings"
    grep -q '^warning: .*learning_rate 0.5 is far above' "$tmp/said.0" && grep -q '^warning: .*carries loss\|^warning: the datasets had' "$tmp/said.0" ||
        { echo "warnings of rank 0: $(cat "$tmp/said.0")"; exit 1; }
done

sent 2 3 full

# a checkpoint of 2 ranks that split state and weights, continued by one process and by 4 ranks
cp -r "$tmp/full-2-3" "$tmp/again"
rm -rf "$tmp/again/checkpoint-3" "$tmp/again/finished.json"
"$AFINAR" train "$tmp/run.yaml" -q adapter=full gradient_accumulation_steps=4 output_dir="$tmp/one" resume_from_checkpoint="$tmp/again/checkpoint-2"
cmp "$tmp/full/model.safetensors" "$tmp/one/model.safetensors" || { echo "resumed by one process: other bytes"; exit 1; }
ranks 4 adapter=full gradient_accumulation_steps=1 zero_stage=3 output_dir="$tmp/four" resume_from_checkpoint="$tmp/again/checkpoint-2"
good 4 "resumed by 4 ranks"
cmp "$tmp/full/model.safetensors" "$tmp/four/model.safetensors" || { echo "resumed by 4 ranks: other bytes"; exit 1; }
"$AFINAR" train "$tmp/run.yaml" adapter=full gradient_accumulation_steps=2 output_dir="$tmp/two" resume_from_checkpoint="$tmp/again/checkpoint-2" > "$tmp/two.txt" 2>&1
grep -q "gradient_accumulation_steps x ranks is 2 now; the checkpoint was made with 4" "$tmp/two.txt" || { echo "no warning of another product"; cat "$tmp/two.txt"; exit 1; }

# a checkpoint that is requested over HTTP while ranks have parts of weights and state: the bytes of one process after as many steps
post() { # PORT PATH: the answer
    exec 3<> "/dev/tcp/127.0.0.1/$1"
    printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$2" >&3
    timeout 60 cat <&3
    exec 3>&-
}
port; http=$MASTER_PORT
( ranks 2 --serve "$http" adapter=full gradient_accumulation_steps=1 zero_stage=3 output_dir="$tmp/asked" max_steps=100000 save_steps=0 \
    eval_steps=0 lr_scheduler=constant ) &
for ((i = 0; i < 3000; i++)); do # longer than a busy machine takes
    [ "$(wc -l 2> /dev/null < "$tmp/asked/metrics.jsonl" || echo 0)" -lt 2 ] || break
    sleep 0.1
done
post "$http" /v1/run/checkpoint > "$tmp/answer"
grep -q "^HTTP/1.1 200" "$tmp/answer" || { echo "no checkpoint: $(cat "$tmp/answer" "$tmp/said.0")"; exit 1; }
at=$(ls "$tmp/asked" | sed -n 's/^checkpoint-//p')
post "$http" /v1/run/stop > "$tmp/answer"
wait
"$AFINAR" train "$tmp/run.yaml" -q adapter=full gradient_accumulation_steps=2 output_dir="$tmp/unasked" max_steps="$at" save_steps=0 eval_steps=0 lr_scheduler=constant
for f in model.safetensors optimizer.safetensors; do
    cmp "$tmp/asked/checkpoint-$at/$f" "$tmp/unasked/checkpoint-$at/$f" || { echo "a checkpoint that was requested: other bytes in $f"; exit 1; }
done

# ranks that disagree, and what is refused
bad() { # STATUS TEXT: every rank ends so and says so
    local r
    for ((r = 0; r < n; r++)); do
        grep -q -- "$2" "$tmp/said.$r" || { echo "rank $r says: $(cat "$tmp/said.$r"), not: $2"; exit 1; }
        [ "$(cat "$tmp/status.$r")" = "$1" ] || { echo "rank $r ends with $(cat "$tmp/status.$r"), not $1: $2"; exit 1; }
    done
}
differ() { # KEY=A KEY=B
    port
    for r in 0 1; do
        ( set +e; RANK=$r WORLD_SIZE=2 "$AFINAR" train "$tmp/run.yaml" -q adapter=full output_dir="$tmp/bad" "${@:r+1:1}" > "$tmp/said.$r" 2>&1; echo $? > "$tmp/status.$r" ) &
    done
    wait
}
n=2
differ seed=1 seed=2
bad 2 "seed.*rank"
head -6 "$AF_GOLDEN/models/data/train_tokens.jsonl" > "$tmp/less.jsonl"
cp "$AF_GOLDEN/models/data/train_tokens.jsonl" "$tmp/more.jsonl"
mkdir "$tmp/a" "$tmp/b"
cp "$tmp/less.jsonl" "$tmp/a/d.jsonl"; cp "$tmp/more.jsonl" "$tmp/b/d.jsonl"
apart() { # KEYS: each rank in a folder of its own, as on machines that share none
    port
    for r in 0 1; do
        ( set +e; [ $r = 0 ] && cd "$tmp/a" || cd "$tmp/b"; RANK=$r WORLD_SIZE=2 "$AFINAR" train "$tmp/run.yaml" -q "$@" > "$tmp/said.$r" 2>&1; echo $? > "$tmp/status.$r" ) &
    done
    wait
}
apart adapter=full output_dir="$tmp/bad" datasets='[{path: d.jsonl}]'
bad 2 "datasets.*rank"
# one value of a weight, of an adapter to start from, of a checkpoint
other() { printf '\1' | dd of="$tmp/b/$1" bs=1 seek=$(($(stat -c %s "$tmp/b/$1") - 500)) conv=notrunc status=none; }
for d in a b; do cp -r "$AF_GOLDEN/models/qwen2" "$tmp/$d/model"; cp -r "$tmp/lora" "$tmp/$d/lora"; done
apart adapter=lora lora_model_dir=lora base_model=model output_dir="$tmp/same"
good 2 "copies of a model and an adapter"
other model/model.safetensors
apart adapter=full base_model=model output_dir="$tmp/bad"
bad 2 "the content of base_model differs between rank 0 and rank 1"
apart adapter=full teacher_model=model output_dir="$tmp/bad"
bad 2 "the content of teacher_model differs between rank 0 and rank 1"
other lora/adapter_model.safetensors
apart adapter=lora lora_model_dir=lora output_dir="$tmp/bad"
bad 2 "the content of lora_model_dir differs between rank 0 and rank 1"
(cd "$tmp/a" && "$AFINAR" train "$tmp/run.yaml" -q adapter=full max_steps=2 output_dir=out)
(cd "$tmp/b" && "$AFINAR" train "$tmp/run.yaml" -q adapter=full max_steps=2 output_dir=out learning_rate=2e-3)
apart adapter=full output_dir=out resume_from_checkpoint=auto
bad 2 "the checkpoint to resume from differs between rank 0 and rank 1"
# a file that one of them cannot read: the others have not been used wrongly
port
for r in 0 1; do
    ( set +e; [ $r = 0 ] && run=absent || run=run; RANK=$r WORLD_SIZE=2 "$AFINAR" train "$tmp/$run.yaml" -q adapter=full output_dir="$tmp/bad" > "$tmp/said.$r" 2>&1; echo $? > "$tmp/status.$r" ) &
done
wait
bad 1 "cannot open .*absent.yaml"
n=3
ranks 3 adapter=full output_dir="$tmp/bad"
bad 2 "3 ranks: use a power of two, or gradient_accumulation_order: any_ranks"
ranks 3 adapter=full output_dir="$tmp/bad" gradient_accumulation_order=any_ranks gradient_accumulation_steps=3
bad 2 "gradient_accumulation_steps is 3; it must be a power of two"
n=2
ranks 2 adapter=full zero_stage=1 deepspeed='{zero_optimization: {stage: 2}}' output_dir="$tmp/bad"
bad 2 "deepspeed asks for stage 2 of ZeRO, and zero_stage for stage 1"
ranks 2 adapter=full deepspeed='{zero_optimization: {stage: 1, offload_optimizer: {device: cpu}}}' output_dir="$tmp/bad"
bad 2 "offload_optimizer is not supported"
ranks 2 adapter=full fsdp='full_shard auto_wrap' generate_samples='[a]' output_dir="$tmp/bad"
bad 2 "generate_samples needs whole weights, which no rank has with zero_stage 3"
[ ! -e "$tmp/bad" ] || { echo "a run that did not start left files"; exit 1; }
# a stop while the other rank has not come: it ends at once, whoever waits
for r in 0 1; do
    port
    RANK=$r WORLD_SIZE=2 "$AFINAR" train "$tmp/run.yaml" adapter=full output_dir="$tmp/bad" > "$tmp/said" 2>&1 &
    pid=$!
    sleep 1
    kill -TERM $pid
    for i in $(seq 100); do kill -0 $pid 2> /dev/null || break; sleep 0.1; done
    kill -0 $pid 2> /dev/null && { echo "rank $r does not end while it waits"; kill -9 $pid; exit 1; }
    status=0
    wait $pid || status=$?
    [ $status = 143 ] || { echo "rank $r: exit $status: $(cat "$tmp/said")"; exit 1; }
    [ ! -e "$tmp/bad" ] || { echo "a run that did not start left files"; exit 1; }
done
# torchrun listens on MASTER_PORT itself
port
READY=$tmp/ready python3 -c 'import os, socket, time; s = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))); open(os.environ["READY"], "w"); time.sleep(60)' &
agent=$!
until [ -e "$tmp/ready" ]; do sleep 0.05; done
for r in 0 1; do
    ( set +e; TORCHELASTIC_USE_AGENT_STORE=True RANK=$r WORLD_SIZE=2 "$AFINAR" train "$tmp/run.yaml" -q adapter=full output_dir="$tmp/torchrun" > "$tmp/said.$r" 2>&1; echo $? > "$tmp/status.$r" ) &
    ranks_of_torchrun="${ranks_of_torchrun-} $!"
done
wait $ranks_of_torchrun
kill $agent
[ "$(cat "$tmp/status.0" "$tmp/status.1")" = "0
0" ] || { echo "next to torchrun: $(cat "$tmp/said.0" "$tmp/said.1")"; exit 1; }
# one process does not mind
"$AFINAR" train "$tmp/run.yaml" -q adapter=full deepspeed=absent.json fsdp='full_shard' output_dir="$tmp/alone"
while kill -0 "$(cat "$tmp/pid.waits")" 2> /dev/null; do sleep 0.1; done
rm "$tmp/pid.waits"
grep -q "^waiting on port [0-9]* for 1 of 2 ranks, at most 11 seconds (ddp_timeout): rank 1 has not come yet$" "$tmp/waits.txt" &&
    grep -q "rank 1 did not come in time (1 of 2 ranks are missing)" "$tmp/waits.txt" || { echo "a rank that waits: $(cat "$tmp/waits.txt")"; exit 1; }
