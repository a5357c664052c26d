#!/usr/bin/env bash
# The first RAGEN's search in four groups: each is a stage of the study configs/studies/hyperparam_search.toml, run by gyre sweep, and starts from what
# the groups before it found best. See --help.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)

usage() {
  cat <<'END'
usage: hyperparam_search.sh --env_name ENV --exp_base_name NAME --search_group 1|2|3|4 [options] [-- key=value ...]

  --search_group 1        train_batch_size 4, 8, 16 with n_rollout 4, 8, 16
  --search_group 2        actor_lr 5e-7, 1e-6, 5e-6, 1e-5
  --search_group 3        kl_coef 0.001, 0.005, 0.01, 0.04, 0.1, 0.5
  --search_group 4        max_turns 2, 5, 8 with temperature 0.1, 0.5, 1
  --micro_batch_size N    sequences per forward pass, at least n_gpus (2)
  --parallel              one run per GPU at a time; without it a run has all of them, a rank on each
  --n_gpus N              GPUs 0 to N-1 (1)
  --model NAME            on the hub, or a directory (Qwen/Qwen2.5-3B-Instruct)
  --ppo_batch_size N      episodes per optimizer step (train_batch_size * n_rollout)
  --train_batch_size N --n_rollout N --actor_lr X --kl_coef X --max_turns N --temperature X
                          what an earlier group would have found; otherwise it is read from
                          log/searched_hyper_params/searched_params_group_N.json
  --seeds N               runs per setting (1)
  --dry_run               list the runs

Words after -- are Gyre's own and hold for every run, such as -- run.steps=20 model.device=cuda. The best run has the highest mean return of its
last validation; one that collapses comes after all that did not, and one that fails is reported and never stops the rest. Started again, the search
goes on with what is missing. Runs, summary and figures lie in studies/NAME, logs in log/terminal/.
END
}
fail() { echo "hyperparam_search.sh: $*" >&2; exit 2; }
source "$root/scripts/gpus.sh"

env_name='' base='' group='' micro=2 parallel='' gpus=1 model=Qwen/Qwen2.5-3B-Instruct ppo='' seeds=1 dry='' ours=()
train_batch_size='' n_rollout='' actor_lr='' kl_coef='' max_turns='' temperature=''
while (( $# )); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --parallel) parallel=1; shift; continue ;;
    --dry_run | --dry-run) dry=--dry-run; shift; continue ;;
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
    --seeds) seeds=$value ;;
    --train_batch_size | --n_rollout | --actor_lr | --kl_coef | --max_turns | --temperature) printf -v "${option#--}" %s "$value" ;;
    *) usage >&2; fail "unknown option $option" ;;
  esac
done
[[ -n $env_name ]] || fail "--env_name is missing"
[[ $base =~ ^[A-Za-z0-9._-]+$ ]] || fail "--exp_base_name is '$base', expected a name for the runs"
[[ $group =~ ^[1-4]$ ]] || fail "--search_group is '$group', expected 1, 2, 3 or 4"
for n in "$micro" "$gpus" "$seeds" ${ppo:+"$ppo"} ${train_batch_size:+"$train_batch_size"} ${n_rollout:+"$n_rollout"} ${max_turns:+"$max_turns"}; do
  [[ $n =~ ^[1-9][0-9]*$ ]] || fail "'$n' is no integer of at least 1"
done
(( micro >= gpus )) || fail "--micro_batch_size $micro is smaller than --n_gpus $gpus"
gyre=${GYRE:-$root/gyre}
[[ -x $gyre ]] || gyre=$(command -v gyre) || fail "there is no gyre binary: run 'make build' first"

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
if [[ $env_name == *bandit* && $group == 4 ]]; then echo "note: $env_name ends after its pulls: more turns change nothing" >&2; fi

# The experiment with what is known; the stage of the study changes the rest.
config=log/configs/${base}_search_group_$group.toml
mkdir -p log/configs log/terminal "$found"
"$gyre" config translate --train-sh "$env_name" model.base_model="$model" model.experiment_name="$base" training.micro_batch_size="$micro" \
  training.train_batch_size="$train_batch_size" training.n_rollout="$n_rollout" training.ppo_batch_size="${ppo:-$((train_batch_size * n_rollout))}" \
  training.max_turns="$max_turns" training.temperature="$temperature" training.train_data_num=500 training.val_data_num=50 training.total_epochs=1 \
  optimization.actor_lr="$actor_lr" optimization.kl_coef="$kl_coef" optimization.adv_estimator=grpo -o "$config"
words=(model.path="$(sed -n 's/^path = "\([^"]*\)".*/\1/p' "$config" | head -1)")
if [[ -n $ppo ]]; then words+=(actor.mini_batch="$ppo"); fi

devices=() slots=1 count=$(gpu_count)
if [[ -n $parallel ]]; then slots=$gpus; fi
if (( count > 0 )); then
  (( gpus <= count )) || fail "--n_gpus is $gpus; nvidia-smi lists $count"
  devices=(--gpus "$(seq -s, 0 $((gpus - 1)))" --gpus-per-run $((gpus / slots)))
elif [[ " ${ours[*]-} " != *" model.device="* ]]; then
  echo "note: no GPU found: computing on the CPU" >&2
fi

# remember: what the stage found best, with what was known, for the groups after it.
remember() {
  local best key value line
  best=$(grep "\"stage\":$group," "studies/$base/best.json" 2>/dev/null) || { echo "no run of group $group has a score"; return 1; }
  for key in train_batch_size n_rollout actor_lr kl_coef max_turns temperature; do
    value=$(sed -n "s/.*\"$key\":\"\([^\"]*\)\".*/\1/p" <<<"$best")
    if [[ -n $value ]]; then printf -v "$key" %s "$value"; fi
  done
  line=$(printf '{"score": %s, "train_batch_size": %s, "n_rollout": %s, "actor_lr": %s, "kl_coef": %s, "max_turns": %s, "temperature": %s}' \
    "$(sed -n 's/.*"score":\([^,]*\),.*/\1/p' <<<"$best")" "$train_batch_size" "$n_rollout" "$actor_lr" "$kl_coef" "$max_turns" "$temperature")
  printf '%s\n' "$line" >"$found/searched_params_group_$group.json"
  echo "=== best of group $group: $line"
}

search() {
  local status=0
  echo "=== group $group of $base on $env_name with $model, $slots at a time"
  "$gyre" sweep "$root/configs/studies/hyperparam_search.toml" --base "$config" --name "$base" --stage "$group" \
    --start algorithm.kl_coef="$kl_coef" --start rollout.temperature="$temperature" --seeds "$seeds" --slots "$slots" \
    ${devices[@]+"${devices[@]}"} --logs "log/terminal/hyper_param_search_logs/exp_${base}_{condition}.log" $dry "${words[@]}" ${ours[@]+"${ours[@]}"} || status=$?
  if [[ -n $dry ]] || (( status == 2 || status == 130 || status == 143 )); then return $status; fi
  if (( status != 0 )); then echo "start the search again to repeat what failed"; fi
  remember || return
  return $status
}
if [[ -n $dry ]]; then search; else search 2>&1 | tee -a "log/terminal/hyperparam_search_${base}_$(date +%Y%m%d_%H%M%S).log"; fi
