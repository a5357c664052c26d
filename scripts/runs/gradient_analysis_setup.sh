# What the two gradient-analysis scripts share; sourced, not run. The experiment: Sokoban, reward-variance filtering with top-p 0.9, gradients
# analysed on a separate batch. Folders are relative to the working directory.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/scripts/gpus.sh"
algo=PPO model='' preset='' gpus='' gpu_memory='' cpus=16 ppo_micro=4 logprob_micro=''
overrides=()

fail() { echo "$(basename "$0"): $*" >&2; exit 2; }

# positive OPTION VALUE
positive() { [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 is '$2', expected an integer of at least 1"; }

# shared OPTION VALUE: one of the options that both scripts have; false for any other.
shared() {
  case $1 in
    --algo) algo=$(tr a-z A-Z <<<"$2"); [[ $algo == PPO || $algo == GRPO ]] || fail "--algo is '$2', expected PPO or GRPO" ;;
    --model) model=${2%/} ;;
    --preset) preset=$2; [[ $2 == small ]] || fail "--preset is '$2', expected small" ;;
    --gpus) gpus=$2; [[ $2 =~ ^[0-9]+(,[0-9]+)*$ ]] || fail "--gpus is '$2', expected a list such as 0,1,2,3" ;;
    --gpu-memory-utilization) gpu_memory=$2; [[ $2 =~ ^(0?\.[0-9]+|1(\.0*)?)$ ]] || fail "$1 is '$2', expected a share such as 0.3" ;;
    --ray-num-cpus) cpus=$2; positive "$@" ;;
    --ppo-micro-batch-size-per-gpu) ppo_micro=$2; positive "$@" ;;
    --log-prob-micro-batch-size-per-gpu) logprob_micro=$2; positive "$@" ;;
    *) return 1 ;;
  esac
}

# parse ARGUMENTS: --option value and --option=value; key=value goes to gyre. The calling script defines usage, and own and flag for options
# of its own, with and without a value; both are false for options they do not know.
parse() {
  while (( $# )); do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --*=*) shared "${1%%=*}" "${1#*=}" || own "${1%%=*}" "${1#*=}" || { usage >&2; fail "unknown option ${1%%=*}"; } ;;
      --*)
        if ! flag "$1"; then
          [[ $# -ge 2 ]] || { usage >&2; fail "unknown option, or no value: $1"; }
          shared "$1" "$2" || own "$1" "$2" || { usage >&2; fail "unknown option $1"; }
          shift
        fi ;;
      [a-z]*=*) overrides+=("$1") ;;
      *) usage >&2; fail "unexpected argument '$1'" ;;
    esac
    shift
  done
}

find_gyre() {
  gyre=${GYRE:-$root/gyre}
  [[ -x $gyre ]] || gyre=$(command -v gyre) || fail "there is no gyre binary: run 'make build' first"
}

# detect_gpus fills gpus as RAGEN does (all that nvidia-smi lists, or eight), and what computes on them.
detect_gpus() {
  local count
  count=$(gpu_count)
  gpus=${gpus:-$(seq -s, 0 $(((count > 0 ? count : 8) - 1)))}
  compute_on "$gpus" --gpus
  if [[ $device == cpu ]]; then echo "note: no GPU found: computing on the CPU" >&2; fi
}

# device_memory prints the MiB of the device that computes.
device_memory() {
  if [[ $device == cuda ]]; then nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits -i "${gpus%%,*}"
  elif [[ -r /proc/meminfo ]]; then awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo
  else echo $(($(sysctl -n hw.memsize) / 1048576)); fi
}

# cache_memory prints the MiB of keys and values that a share of the device's memory leaves beside the sampler's weights, as vLLM counts it: on a GPU these
# are in bfloat16.
cache_memory() {
  local weights=0
  if [[ $device == cuda ]]; then
    weights=$(awk -F'[:,]' '{gsub(/[ "]/, "", $1); of[$1] = $2} END {
      h = of["hidden_size"]; heads = of["num_attention_heads"]
      if (heads > 0) print int(2 * (of["vocab_size"] * h + of["num_hidden_layers"] * h * (2 * h + 2 * h * of["num_key_value_heads"] / heads + 3 * of["intermediate_size"])) / 1048576)
      else print 0 }' "$model/config.json" 2>/dev/null || echo 0)
  fi
  awk -v share="$1" -v all="$(device_memory)" -v weights="$weights" 'BEGIN {left = int(share * all - weights); print (left > 1024 ? left : 1024)}'
}

# settle fixes the shapes, the model and its name, and the options of gyre that do not depend on the script.
settle() {
  train=8x16 analysis=128x16
  if [[ $preset == small ]]; then
    train=4x8 analysis=24x8
    overrides=(rollout.prompt=compact rollout.think=false rollout.max_tokens=16 rollout.max_length=400 actor.lr=1e-4 critic.lr=1e-3 actor.mini_batch=16
      validation.envs.0.groups=32 validation.envs.0.group_size=1 envs.0.tag=sokoban ${overrides[@]+"${overrides[@]}"})
    [[ -n $model ]] || small_policy
  fi
  model=${model:-models/Qwen2.5-3B}
  model_name=$(basename "$model")
  # A checkpoint of a run is named after the run: runs/NAME/global_step_N/actor.
  if [[ $model_name == actor ]]; then model_name=$(basename "$(dirname "$(dirname "$model")")"); fi
  [[ -f $model/config.json ]] || fail "$model is no Hugging Face directory (it has no config.json): fetch one with '$gyre model pull Qwen/Qwen2.5-3B models/Qwen2.5-3B', name one with --model, or take --preset small"
  local cores threads micro=$ppo_micro
  if [[ -n $logprob_micro ]] && (( logprob_micro < micro )); then micro=$logprob_micro; fi
  cores=$(nproc 2>/dev/null || sysctl -n hw.ncpu)
  threads=$(((cpus < cores ? cpus : cores) / ranks))
  threads=$((threads > 0 ? threads : 1))
  # Micro-batches are cut by tokens here: 1024 for an episode, as RAGEN's Sokoban episodes rarely have more.
  common=(model.path="$model" envs.0.groups="${train%x*}" envs.0.group_size="${train#*x}"
    analysis.groups="${analysis%x*}" analysis.group_size="${analysis#*x}" analysis.log_prefilter=true analysis.num_buckets=6 analysis.buckets=quantile
    filter.strategy=top_p filter.value=0.9 filter.prob_mode=linear filter.type=largest filter.metric=reward_variance filter.include_zero=false
    filter.loss_scaling=none algorithm.entropy_coef=0.001 algorithm.kl_estimator=k3 run.threads="$threads"
    actor.micro_batch_tokens=$((1024 * micro)) analysis.paper_micro_batch="$ppo_micro" "${placement[@]}")
  if [[ -n $gpu_memory ]]; then
    common+=(engine.kv_mib="$(cache_memory "$gpu_memory")")
  fi
  if [[ $algo == PPO ]]; then
    common+=(algorithm.advantage=gae actor.loss_aggregation=token-mean)
  else
    common+=(algorithm.advantage=grpo algorithm.norm_by_std=true actor.loss_aggregation=seq-mean-token-mean)
  fi
}

# small_policy makes (once) configs/demo_sokoban.toml's policy of a million parameters, warm-started on demonstrations: a random one earns no spread to filter by.
small_policy() {
  if ! ls -d runs/demo-sokoban-sft/global_step_*/actor >/dev/null 2>&1; then
    [[ -f models/demo-sokoban/config.json ]] || "$gyre" model init models/demo-sokoban >&2
    "$gyre" sft "$root/configs/demo_sokoban.toml" run.name=demo-sokoban-sft run.validate_every=0 >&2
  fi
  model=$(ls -d runs/demo-sokoban-sft/global_step_*/actor | head -1)
}

# logged FILE COMMAND: runs the command with everything it says also in the file; its exit code is the script's.
logged() {
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  {
    echo "=== $title: $(date '+%Y-%m-%d %H:%M:%S')"
    echo "task=sokoban algo=$algo filter=top_p:0.9 model=$model_name gpus=$gpus $heading"
    echo "train=$train analysis=$analysis project=$project"
    echo "ppo_micro=$ppo_micro log_prob_micro=${logprob_micro:-$ppo_micro} gpu_memory_utilization=${gpu_memory:-as needed} device=$device ranks=$ranks ray_num_cpus=$cpus"
    "$@"
  } 2>&1 | tee -a "$file"
}
