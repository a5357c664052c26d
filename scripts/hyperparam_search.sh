#!/usr/bin/env bash
# The first RAGEN's search in four groups: each fixes what the groups before it found best. Every run is a run of scripts/train.sh. See --help.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)

usage() {
  cat <<'END'
usage: hyperparam_search.sh --env_name ENV --exp_base_name NAME --search_group 1|2|3|4 [options] [-- key=value ...]

  --search_group 1        train_batch_size 4, 8, 16 with n_rollout 4, 8, 16
  --search_group 2        actor_lr 5e-7, 1e-6, 5e-6, 1e-5
  --search_group 3        kl_coef 0.001, 0.005, 0.01, 0.04, 0.1, 0.5
  --search_group 4        max_turns 2, 5, 8 with temperature 0.1, 0.5, 1
  --micro_batch_size N    sequences per forward pass, at least n_gpus (2)
  --parallel              one run per GPU at a time
  --n_gpus N              GPUs 0 to N-1 (1)
  --model NAME            on the hub, or a directory (Qwen/Qwen2.5-3B-Instruct)
  --ppo_batch_size N      episodes per optimizer step (train_batch_size * n_rollout)
  --train_batch_size N --n_rollout N --actor_lr X --kl_coef X --max_turns N --temperature X
                          what an earlier group would have found; otherwise it is read from
                          log/searched_hyper_params/searched_params_group_N.json
  --dry_run               print the commands

Words after -- are Gyre's own and hold for every run, such as -- run.steps=20 model.device=cuda. The best run has the highest mean return of its
last validation; a run that fails or collapses is reported and never stops the rest. Started again, the search goes on with what is missing:
results lie in log/searched_hyper_params/NAME/, logs in log/terminal/.
END
}
fail() { echo "hyperparam_search.sh: $*" >&2; exit 2; }

env_name='' base='' group='' micro=2 parallel='' gpus=1 model=Qwen/Qwen2.5-3B-Instruct ppo='' dry='' ours=()
train_batch_size='' n_rollout='' actor_lr='' kl_coef='' max_turns='' temperature=''
while (( $# )); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --parallel) parallel=1; shift; continue ;;
    --dry_run | --dry-run) dry=1; shift; continue ;;
    --) shift; ours=("$@"); break ;;
    --*=*) option=${1%%=*} value=${1#*=} ;;
    --*)
      [[ $# -ge 2 ]] || { usage >&2; fail "unknown option, or no value: $1"; }
      option=$1 value=$2
      shift ;;
    *) usage >&2; fail "unexpected argument '$1' (Gyre's own words follow --)" ;;
  esac
  shift
  case $option in
    --env_name) env_name=$value ;;
    --exp_base_name) base=$value ;;
    --search_group) group=$value ;;
    --micro_batch_size) micro=$value ;;
    --n_gpus) gpus=$value ;;
    --model) model=$value ;;
    --ppo_batch_size) ppo=$value ;;
    --train_batch_size | --n_rollout | --actor_lr | --kl_coef | --max_turns | --temperature) printf -v "${option#--}" %s "$value" ;;
    *) usage >&2; fail "unknown option $option" ;;
  esac
done
[[ -n $env_name ]] || fail "--env_name is missing"
[[ $base =~ ^[A-Za-z0-9._-]+$ ]] || fail "--exp_base_name is '$base', expected a name for the runs"
[[ $group =~ ^[1-4]$ ]] || fail "--search_group is '$group', expected 1, 2, 3 or 4"
for n in "$micro" "$gpus" ${ppo:+"$ppo"} ${train_batch_size:+"$train_batch_size"} ${n_rollout:+"$n_rollout"} ${max_turns:+"$max_turns"}; do
  [[ $n =~ ^[1-9][0-9]*$ ]] || fail "'$n' is no integer of at least 1"
done
(( micro >= gpus )) || fail "--micro_batch_size $micro is smaller than --n_gpus $gpus"

# ---- what is known, what is searched ---------------------------------------------------------------------------
found=log/searched_hyper_params
known() { # known GROUP KEY DEFAULT: from the command line, from what group GROUP found, or (in a group that comes later) the default
  local value=${!2} file=$found/searched_params_group_$1.json
  if [[ -z $value ]] && (( $1 < group )); then
    if [[ -f $file ]]; then value=$(sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$file"); fi
    if [[ -z $value && -n $dry ]]; then value=$3; fi
    [[ -n $value ]] || fail "$2 is not known: give --$2, or search group $1 first (it leaves $file)"
  fi
  printf -v "$2" %s "${value:-$3}"
}
known 1 train_batch_size 8; known 1 n_rollout 16; known 2 actor_lr 1e-6; known 3 kl_coef 0.04; known 4 max_turns 5; known 4 temperature 1.0
case $group in
  1) first=train_batch_size firsts='4 8 16' second=n_rollout seconds='4 8 16' ;;
  2) first=actor_lr firsts='5e-7 1e-6 5e-6 1e-5' second='' seconds=- ;;
  3) first=kl_coef firsts='0.001 0.005 0.01 0.04 0.1 0.5' second='' seconds=- ;;
  4) first=max_turns firsts='2 5 8' second=temperature seconds='0.1 0.5 1' ;;
esac
if [[ $env_name == *bandit* && $first == max_turns ]]; then echo "note: $env_name ends after its pulls: more turns change nothing" >&2; fi

results=$found/$base
stamp=$(date +%Y%m%d_%H%M%S)
journal=log/terminal/hyperparam_search_${base}_$stamp.log
runs=()
for x in $firsts; do
  for y in $seconds; do
    printf -v "$first" %s "$x"
    name=${base}_g${group}_${first}_$x
    if [[ -n $second ]]; then printf -v "$second" %s "$y"; name+=_${second}_$y; fi
    runs+=("$name $train_batch_size $n_rollout $actor_lr $kl_coef $max_turns $temperature")
  done
done

# one NAME VALUES GPU: makes the run unless its result is there.
one() {
  local name=$1 gpu=$8 log=log/terminal/hyper_param_search_logs/$1.log code=0 words score
  words=("$env_name" model.base_model="$model" model.experiment_name="$name" training.micro_batch_size="$micro" training.train_batch_size="$2"
    training.n_rollout="$3" training.ppo_batch_size="${ppo:-$(($2 * $3))}" training.max_turns="$6" training.temperature="$7" training.train_data_num=500
    training.val_data_num=50 training.total_epochs=1 optimization.actor_lr="$4" optimization.kl_coef="$5" optimization.adv_estimator=grpo
    -- run.output="runs/$base" ${ours[@]+"${ours[@]}"})
  if [[ -n $dry ]]; then echo "CUDA_VISIBLE_DEVICES=$gpu bash $here/train.sh ${words[*]}"; return; fi
  if [[ -f $results/$name.json ]]; then echo "$name: done before"; return; fi
  mkdir -p "$results" "$(dirname "$log")"
  DEBUG_LOG=/dev/null CUDA_VISIBLE_DEVICES=$gpu bash "$here/train.sh" "${words[@]}" >"$log" 2>&1 || code=$?
  (( code != 130 && code != 143 )) || return "$code"
  score=$(grep -o '"val-env/charts/avg_episode_return":[^,}]*' "runs/$base/$name/metrics.jsonl" 2>/dev/null | tail -1 | cut -d: -f2 || true)
  case $code in
    0) status=finished ;;
    5) status=stopped_early ;;
    *) status=failed ;;
  esac
  if [[ $status == failed || -z $score ]]; then
    echo "$name: failed (exit code $code): $(tail -1 "$log") (all of it in $log)"
    return
  fi
  printf '{"name": "%s", "status": "%s", "score": %s, "train_batch_size": %s, "n_rollout": %s, "actor_lr": %s, "kl_coef": %s, "max_turns": %s, "temperature": %s}\n' \
    "$name" "$status" "$score" "$2" "$3" "$4" "$5" "$6" "$7" >"$results/$name.json.part"
  mv "$results/$name.json.part" "$results/$name.json"
  echo "$name: $status, score $score"
}

# slot GPU: every run that falls to one GPU, in turn.
slot() {
  local i
  for ((i = $1; i < ${#runs[@]}; i += slots)); do one ${runs[i]} "$1"; done
}

slots=1
if [[ -n $parallel ]]; then slots=$gpus; fi
search() {
  echo "=== group $group of $base: ${#runs[@]} runs on $env_name with $model, $slots at a time"
  local pids=() pid gpu bad=0
  for ((gpu = 0; gpu < slots; gpu++)); do
    slot "$gpu" &
    pids+=($!)
  done
  trap 'kill "${pids[@]}" 2>/dev/null || true' INT TERM
  for pid in "${pids[@]}"; do wait "$pid" || bad=$?; done
  (( bad == 0 )) || return "$bad"
  if [[ -n $dry ]]; then return; fi
  local all=() best
  for run in "${runs[@]}"; do
    if [[ -f $results/${run%% *}.json ]]; then all+=("$results/${run%% *}.json"); fi
  done
  (( ${#all[@]} > 0 )) || { echo "no run of group $group has a score"; return 1; }
  best=$(cat "${all[@]}" | awk -F'"score": ' '{split($2, s, ","); if (NR == 1 || s[1] + 0 > top) {top = s[1] + 0; line = $0}} END {print line}')
  printf '%s\n' "$best" >"$found/searched_params_group_$group.json"
  echo "=== best of ${#all[@]} of ${#runs[@]}: $best"
  (( ${#all[@]} == ${#runs[@]} )) || { echo "start the search again to repeat the $((${#runs[@]} - ${#all[@]})) that failed"; return 1; }
}
if [[ -n $dry ]]; then search; else mkdir -p log/terminal; search 2>&1 | tee -a "$journal"; fi
