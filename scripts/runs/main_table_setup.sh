# What RAGEN's main tables share; sourced, not run. A table is a study (configs/studies) that `gyre sweep` runs once per task, so that conditions are
# compared within their task, on the same seeds.

source "$(dirname "${BASH_SOURCE[0]}")/sweep_setup.sh"
tasks='' filters=filter,nofilter seeds=3

table_usage() {
  cat <<END
usage: $(basename "$0") [options] [key=value ...]

$1
  --tasks LIST                of sokoban, frozenlake, countdown, metamathqa, webshop (the first four; with --preset small the first two). webshop is
                              RAGEN's own environment and needs its package; metamathqa: gyre data prepare metamathqa
  --filters LIST              filter, nofilter or all (filter,nofilter)
  --steps N                   training steps, at most (400)
  --seeds N                   runs per condition, the same seeds in each; 1 as RAGEN, without intervals (3)
  --gpus LIST, --gpus-per-exp N
                              devices, and those of each run, a rank on each; without a GPU the CPU
  --gpu-memory-utilization X  share of the device's memory that weights, keys and values of sampling may take (0.3). It bounds nothing else: the trainer
                              shares the process, and gyre sweep --dry-run says what it needs
  --ray-num-cpus N            threads, shared by the runs that go on at a time: there is no Ray (16)
  --cooldown S                ignored: a run begins when the one before it has ended, and its process has given its memory back
  --save-freq N               steps between checkpoints; -1 saves none (-1)
  --preset small              for two cores: a policy of a million parameters, made if it is not there, and small batches
  --dry-run                   list the runs

Each task's results are in studies/NAME: success with intervals, and paired differences from the first condition. Started again, a table goes on.
END
}

# table_option OPTION VALUE: one that all tables have beside those of sweeps.
table_option() {
  case $1 in
    --tasks) tasks=$2 ;;
    --filters) filters=$2; [[ $2 == all ]] && filters=filter,nofilter; listed --filters "$filters" filter nofilter ;;
    --cooldown) [[ $2 =~ ^[0-9]+$ ]] || fail "--cooldown is '$2', expected seconds"; echo "note: --cooldown $2 has no effect: a process that has ended holds no memory" >&2 ;;
    *) return 1 ;;
  esac
}

# listed OPTION LIST NAMES ...: all of a comma list are among the names.
listed() {
  local option=$1 list=$2 one
  shift 2
  for one in ${list//,/ }; do
    [[ " $* " == *" $one "* ]] || fail "$option names '$one', expected some of: $*"
  done
}

# quoted LIST: a comma list as an array of TOML.
quoted() { sed 's/[^,]*/"&"/g; s/.*/[&]/' <<<"$1"; }

# task_words TASK: overrides that play it. The small policy reads plain boards.
task_words() {
  local tag more=() side
  case $1 in
    sokoban) tag=CoordSokoban; [[ $preset == small ]] && tag=sokoban ;;
    frozenlake) tag=CoordFrozenLake more=(envs.0.options.success_rate=1); [[ $preset == small ]] && tag=FrozenLake ;;
    countdown) tag=Countdown more=(envs.0.max_turns=1 envs.0.max_actions_per_turn=1) ;;
    metamathqa) tag=MetamathQA more=(envs.0.options.problems=data/metamathqa/train.jsonl) ;;
    webshop) tag=Remote more=("envs.0.options.command=[\"python3\", \"$root/scripts/remote_env.py\", \"--ragen\", \"WebShop\", \"--stdio\"]") ;;
  esac
  words=(envs.0.tag=$tag validation.envs.0.tag=$tag ${more[@]+"${more[@]}"})
}

# run_table STUDY NAME WORDS ...: the study for each task; NAME begins the names of folders, WORDS change the study. A task that fails stops no other.
run_table() {
  local study=$1 table=$2 task name status=0 trained=()
  shift 2
  [[ -n $tasks ]] || { tasks=sokoban,frozenlake; [[ $preset == small ]] || tasks+=,countdown,metamathqa; }
  listed --tasks "$tasks" sokoban frozenlake countdown metamathqa webshop
  gpu_memory=${gpu_memory:-$( (( $(gpu_count) > 0 )) && echo 0.3 || true)}
  prepare
  if [[ -z ${varied:-} ]]; then trained=(model.path="$model"); fi
  for task in ${tasks//,/ }; do
    task_words "$task"
    name=${table}_$task${trained:+_$model_name}
    "$gyre" sweep "$root/configs/studies/$study.toml" --name "$name" --seeds "$seeds" --slots "$slots" --threads "$threads" ${devices[@]+"${devices[@]}"} $dry \
      --logs "logs/$name/{condition}-seed{seed}.log" --summary "logs/$name.log" study.runs="model_saving/$name/{condition}/seed_{seed}" \
      study.title="$table: $task" axes.1.values="$(quoted "$filters")" run.project="ragen_$study" "$@" run.steps="$steps" run.save_every="$save_freq" \
      ${trained[@]+"${trained[@]}"} ${common[@]+"${common[@]}"} ${words[@]+"${words[@]}"} ${overrides[@]+"${overrides[@]}"} || status=$?
  done
  return $status
}

# models_table NAME MODELS ARGUMENTS: a command line over models, which are directories, names in models/, ORG/NAME as gyre model pull leaves them, or
# sizes of Qwen2.5.
models_table() {
  local table=$1 names='' all=$2 one dir dirs='' labels='' varied=1
  shift 2
  usage() { table_usage "  --models LIST               sizes of Qwen2.5, directories, names in models/, or ORG/NAME ($all)"; }
  own() {
    case $1 in
      --models) names=$2 ;;
      --algos) listed --algos "$2" PPO ;; # the only one of these tables
      *) table_option "$@" ;;
    esac
  }
  parse "$@"
  if [[ $preset == small && -z $names ]]; then find_gyre; small_policy; names=$model; fi
  names=${names:-$all}
  for one in ${names//,/ }; do
    dir=$one
    if [[ $one =~ ^[0-9.]+B$ ]]; then dir=models/Qwen2.5-$one; elif [[ ! -d $one ]]; then dir=models/$(basename "$one"); fi
    [[ -n $dry || -f $dir/config.json ]] || fail "$dir is no Hugging Face directory (it has no config.json): fetch it with '${gyre:-gyre} model pull ORG/NAME $dir', name others with --models, or take --preset small"
    dirs+=,$dir labels+=,${one//\//__}
    model=$dir # the last, which is the largest by default, bounds the memory of sampling
  done
  run_table main_table_diff_model "$table" axes.0.values="$(quoted "${dirs#,}")" axes.0.labels="$(quoted "${labels#,}")" run.project="ragen_main_table_${table%_PPO}"
}
