# What the three intervention sweeps share; sourced, not run. Each is a study (configs/studies) run by `gyre sweep`; this file reads the options,
# chooses devices, and names places. Folders are relative to the working directory.

source "$(dirname "${BASH_SOURCE[0]}")/gradient_analysis_setup.sh"
steps=400 per_run=1 save_freq=-1 seeds=1 values='' include_zero=True dry=''

sweep_usage() {
  cat <<END
usage: $(basename "$0") [options] [key=value ...]

  --steps N                   training steps, at most (400)
$1
  --gpus LIST                 such as 0,1,2,3 (those that nvidia-smi lists); without any, the CPU
  --gpus-per-exp N            devices of each run, a rank on each (1)
  --ray-num-cpus N            threads, shared by the runs that go on at a time, at most one per core (16)
  --gpu-memory-utilization X  share of the device's memory that sampling may take (0.5; on the CPU what the batch needs)
  --save-freq N               steps between checkpoints; -1 saves none (-1)
  --model DIR                 Hugging Face directory to train (models/Qwen2.5-3B)
  --preset small              for two cores: a policy of a million parameters, made if it is not there, and small batches
  --seeds N                   runs per value; from 2 on differences have intervals (1)
  --dry-run                   list the runs

Further key=value words override configs/sokoban_sweep.toml. Started again, a sweep goes on with what is missing.
END
}

# shared replaces that of the gradient-analysis scripts: a sweep has other options.
shared() {
  case $1 in
    --steps) steps=$2; positive "$@" ;;
    --gpus) gpus=$2; [[ $2 =~ ^[0-9]+(,[0-9]+)*$ ]] || fail "--gpus is '$2', expected a list such as 0,1,2,3" ;;
    --gpus-per-exp) per_run=$2; positive "$@" ;;
    --ray-num-cpus) cpus=$2; positive "$@" ;;
    --gpu-memory-utilization) gpu_memory=$2; [[ $2 =~ ^(0?\.[0-9]+|1(\.0*)?)$ ]] || fail "$1 is '$2', expected a share such as 0.5" ;;
    --save-freq) save_freq=$2; [[ $2 == -1 ]] || positive "$@" ;;
    --model) model=${2%/} ;;
    --preset) preset=$2; [[ $2 == small ]] || fail "--preset is '$2', expected small" ;;
    --seeds) seeds=$2; positive "$@" ;;
    *) return 1 ;;
  esac
}
flag() { [[ $1 == --dry-run ]] && dry=--dry-run; }

# truth VALUE: true or false, as Python's tools spell them.
truth() {
  case $(tr A-Z a-z <<<"$1") in
    true | 1 | yes | y) echo true ;;
    false | 0 | no | n) echo false ;;
    *) return 1 ;;
  esac
}

# prepare fills model, model_name, slots, threads, devices (options of gyre sweep) and common (its overrides).
prepare() {
  local cores count gpu list device=cpu
  slots=1 devices=() common=()
  find_gyre
  if [[ $preset == small && -z $model ]]; then small_policy; fi
  model=${model:-models/Qwen2.5-3B}
  model_name=$(basename "$model")
  if [[ $model_name == actor ]]; then model_name=$(basename "$(dirname "$(dirname "$model")")"); fi
  [[ -n $dry || -f $model/config.json ]] || fail "$model is no Hugging Face directory (it has no config.json): fetch one with '$gyre model pull Qwen/Qwen2.5-3B models/Qwen2.5-3B', name one with --model, or take --preset small"
  count=$(gpu_count)
  if [[ -z $gpus ]] && (( count > 0 )); then gpus=$(seq -s, 0 $((count - 1))); fi
  list=(${gpus//,/ })
  (( ${#list[@]} % per_run == 0 )) || fail "--gpus-per-exp is $per_run, which does not divide the ${#list[@]} devices of --gpus"
  cores=$(nproc 2>/dev/null || sysctl -n hw.ncpu)
  threads=$((cpus < cores ? cpus : cores))
  if (( count == 0 )); then
    echo "note: no GPU found: computing on the CPU, one run at a time" >&2
  else
    for gpu in "${list[@]}"; do (( gpu < count )) || fail "--gpus names GPU $gpu; nvidia-smi lists $count, numbered from 0"; done
    slots=$((${#list[@]} / per_run)) device=cuda
    devices=(--gpus "$gpus" --gpus-per-run "$per_run")
    gpu_memory=${gpu_memory:-0.5}
  fi
  if [[ -n $gpu_memory ]]; then
    common+=(engine.kv_mib="$(cache_memory "$gpu_memory")")
  fi
  if [[ $preset == small ]]; then
    common+=(rollout.prompt=compact rollout.think=false rollout.max_tokens=16 rollout.max_length=400 actor.lr=1e-4 critic.lr=1e-3 actor.mini_batch=16 critic.mini_batch=16
      envs.0.tag=sokoban envs.0.groups=4 envs.0.group_size=8 validation.envs.0.tag=sokoban validation.envs.0.groups=32)
  fi
  threads=$((threads / slots > 0 ? threads / slots : 1))
}

# run_sweep STUDY EXPERIMENT TITLE FILTER_TAG OVERRIDES ...: STUDY is the file in configs/studies and the start of folders, EXPERIMENT that of the runs'
# names, FILTER_TAG a folder below or nothing.
run_sweep() {
  local study=$1 experiment=$2 title=$3 tag=$4
  shift 4
  prepare
  local name=${study}_$model_name labels='' lines='' value
  for value in ${values//,/ }; do
    labels+=,$(label "$value")
    lines+=,\"$(line "$value")\"
  done
  local run="{condition}/sokoban_${experiment}_${tag:+${tag}_}{condition}-$model_name"
  "$gyre" sweep "$root/configs/studies/$study.toml" --name "$name${tag:+_$tag}" --values "$values" --labels "${labels#,}" --seeds "$seeds" \
    --logs "logs/$name/${tag:+$tag/}$run.log" --summary "logs/$name.log" --slots "$slots" --threads "$threads" ${devices[@]+"${devices[@]}"} $dry \
    study.runs="model_saving/$name/${tag:+$tag/}$run" study.title="$title" axes.0.lines="[${lines#,}]" \
    study.header="[\"project=ragen_release_$study | model=$model_name | values=$values | steps=$steps | gpus_per_exp=$per_run\", \"slots=$slots | gpu_memory_utilization=${gpu_memory:-as needed} | ray_num_cpus=$cpus | save_freq=$save_freq\"]" \
    model.path="$model" run.project="ragen_release_$study" run.steps="$steps" run.save_every="$save_freq" ${common[@]+"${common[@]}"} "$@" ${overrides[@]+"${overrides[@]}"}
}

# sweep_coefficient NAME TITLE WORDS ...: the command line of a sweep of a coefficient of the loss; the study is NAME_sweep, the option --NAME-values.
sweep_coefficient() {
  coefficient=$1
  local title=$2 tag=filter_zero
  shift 2
  values=0,0.001,0.003,0.01,0.03,0.1
  usage() {
    sweep_usage "$(printf '  --%-25s values (%s)' "$coefficient-values LIST" "$values")
  --rollout_filter_include_zero BOOL
                              keep groups without reward variance (True)"
  }
  own() {
    case $1 in
      "--$coefficient-values") values=$2 ;;
      --rollout_filter_include_zero) include_zero=$(truth "$2") || fail "$1 is '$2', expected True or False" ;;
      *) return 1 ;;
    esac
  }
  parse "$@"
  include_zero=$(truth "$include_zero")
  if [[ $include_zero == true ]]; then tag=nofilter; fi
  line() { echo "$coefficient=$1 | filter=$tag | include_zero=$([[ $include_zero == true ]] && echo True || echo False)"; }
  run_sweep "${coefficient}_sweep" "${coefficient}_sweep" "$title" "$tag" filter.include_zero="$include_zero"
}

# label VALUE: how folders name a value: in lower case, without dots.
label() { tr A-Z a-z <<<"$1" | tr -d .; }
