#!/usr/bin/env bash
# GRPO on MATH-500 as the rldynamic project launches it: its values stand in configs/math500_grpo.toml, and the settings of its command
# line (verl's names) are understood here.
#
#   bash scripts/run_grpo.sh                                                   the experiment as it is
#   bash scripts/run_grpo.sh data.train_batch_size=16 trainer.total_epochs=5   with other values
#   bash scripts/run_grpo.sh custom_reward_function.path=utils/rewards.py custom_reward_function.name=compute_score
#
# trainer.n_gpus_per_node GPUs compute, all that there are without it, a rank of the run on each.
# Further arguments go to `gyre train`: --dry-run, --resume, and key=value of its own configuration. GYRE names another binary, CONFIG
# another configuration.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
gyre=${GYRE:-$root/gyre}
config=${CONFIG:-$root/configs/math500_grpo.toml}

fail() { echo "run_grpo.sh: $*" >&2; exit 2; }
[[ -x $gyre ]] || gyre=$(command -v gyre) || fail "there is no gyre binary: run 'make build' first"

source "$root/scripts/gpus.sh"

batch=32 mini=32 n=8 prompt=512 reply=1024 micro=4 epochs='' rows=470 gpus=''
reward_path='' reward_name=''
arguments=()
put() { arguments+=("$1"); }

for word in "$@"; do
  key=${word%%=*} value=${word#*=}
  case $key in
    algorithm.adv_estimator) put "algorithm.advantage=$value" ;;
    data.train_files) put "envs.0.options.file=\"$value\"" ;;
    data.val_files) put "validation.envs.0.options.file=\"$value\"" ;;
    data.train_batch_size) batch=$value; put "envs.0.groups=$value" ;;
    data.max_prompt_length) prompt=$value; put "envs.0.options.max_prompt_length=$value" ;;
    data.max_response_length) reply=$value; put "rollout.max_tokens=$value" ;;
    actor_rollout_ref.model.path) put "model.path=$value"; put "envs.0.options.tokenizer=\"$value\"" ;;
    actor_rollout_ref.model.enable_gradient_checkpointing) put "actor.recompute_activations=${value,,}" ;;
    actor_rollout_ref.actor.optim.lr) put "actor.lr=$value" ;;
    actor_rollout_ref.actor.ppo_mini_batch_size) mini=$value ;;
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu) micro=$value ;;
    actor_rollout_ref.actor.use_kl_loss) [[ ${value,,} == true ]] || put "algorithm.kl_coef=0" ;;
    actor_rollout_ref.actor.kl_loss_coef) put "algorithm.kl_coef=$value" ;;
    actor_rollout_ref.actor.kl_loss_type) put "algorithm.kl_estimator=$value" ;;
    actor_rollout_ref.actor.entropy_coeff) put "algorithm.entropy_coef=$value" ;;
    actor_rollout_ref.rollout.n) n=$value; put "envs.0.group_size=$value" ;;
    actor_rollout_ref.rollout.temperature) put "rollout.temperature=$value" ;;
    actor_rollout_ref.rollout.name) ;; # Gyre has one engine
    actor_rollout_ref.rollout.tensor_model_parallel_size) put "engine.tensor_parallel=$value" ;; # one process samples alone
    trainer.n_gpus_per_node) gpus=$value ;;
    trainer.nnodes)
      [[ $value == 1 ]] || fail "$key is $value: start this on every node with torchrun or srun (docs/ranks.md)" ;;
    trainer.total_epochs) epochs=$value ;;
    trainer.save_freq) put "run.save_every=$value" ;;
    trainer.test_freq) put "run.validate_every=$value" ;;
    trainer.experiment_name) put "run.name=$value" ;;
    trainer.project_name) put "run.project=$value" ;;
    custom_reward_function.path) reward_path=$value ;;
    custom_reward_function.name) reward_name=$value ;;
    data.* | actor_rollout_ref.* | trainer.* | algorithm.adv_* | custom_reward_function.*)
      fail "$key is not understood; the settings of the document are, and key=value of gyre (docs/configuration.md)" ;;
    *) put "$word" ;;
  esac
done
for value in "$batch" "$mini" "$n" "$prompt" "$reply" "$micro" ${gpus:+"$gpus"}; do
  [[ $value =~ ^[1-9][0-9]*$ ]] || fail "'$value' is not a whole number of at least 1"
done

if (( mini > batch )); then
  echo "run_grpo.sh: note: ppo_mini_batch_size is $mini, but a batch has $batch problems: one update per batch" >&2
  mini=$batch
fi

# What follows from several of them: verl counts mini-batches in problems, epochs in batches.
arguments=("actor.mini_batch=$((mini * n))" "actor.micro_batch_tokens=$((micro * (prompt + reply)))" "rollout.max_length=$((prompt + reply))" "${arguments[@]}")
if [[ -n $epochs ]]; then
  [[ $epochs =~ ^[1-9][0-9]*$ ]] || fail "trainer.total_epochs is '$epochs', expected a whole number"
  (( batch <= rows )) || fail "data.train_batch_size is $batch, but there are $rows problems"
  put "run.steps=$((epochs * (rows / batch)))"
fi
if [[ -n $reward_path ]]; then # their own function, in place of correctness
  put "rewards.0.options={ component = \"command\", command = [\"python3\", \"$root/scripts/reward_command.py\", \"$reward_path\", \"${reward_name:-compute_score}\"] }"
elif [[ $reward_name == compute_score ]]; then
  put rewards.0.weight=0.34; put rewards.1.weight=0.33; put rewards.2.weight=0.33
elif [[ -n $reward_name && $reward_name != compute_correctness_score ]]; then
  fail "custom_reward_function.name is '$reward_name'; without a path it is compute_correctness_score or compute_score"
fi

# A rank on each GPU: on as many as are asked for, without a word on all, in one process where there is none.
count=$(gpu_count)
if (( count == 0 )) && [[ " $* " != *" model.device="* ]]; then echo "note: no GPU found: computing on the CPU" >&2; fi
if (( count > 0 )); then
  list=$(first_gpus "${gpus:-$count}")
  compute_on "$list" trainer.n_gpus_per_node
  arguments=("${placement[@]}" "${arguments[@]}")
fi
exec "$gyre" train "$config" "${arguments[@]}"
