#!/usr/bin/env bash
# The first RAGEN's `bash train.sh ENV key=value …`: maps the words to a configuration, prints it, and trains (or, with rl_or_sft=sft, makes
# demonstrations, fits them, and validates the best epoch). Folders are relative to the working directory. See --help.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)

usage() {
  cat <<'END'
usage: train.sh ENV [key=value ...] [-- key=value ...]

  ENV        two_armed_bandit, sokoban, frozenlake or bandit
  key=value  the first RAGEN's keys: model.*, training.*, optimization.*, rl_or_sft, sft.*, system.*, trainer.* (gyre config translate --keys)

system.n_gpus (1) GPUs compute, a rank of the run on each: system.cuda_visible_devices names them. Where nvidia-smi lists none the CPU does.

Words after -- are Gyre's own and override the configuration, such as -- run.steps=2 model.device=cuda. The configuration is kept as
log/configs/NAME.toml, what the run says also in debug.log. Started again, an interrupted run continues.
END
}
case ${1:-} in
  '') usage >&2; exit 2 ;;
  -h | --help) usage; exit 0 ;;
esac

theirs=() ours=()
while (( $# )); do
  if [[ $1 == -- ]]; then shift; ours=("$@"); break; fi
  theirs+=("$1")
  shift
done
gyre=${GYRE:-$root/gyre}
[[ -x $gyre ]] || gyre=$(command -v gyre) || { echo "train.sh: there is no gyre binary: run 'make build' first" >&2; exit 2; }

translation=$(mktemp)
trap 'rm -f "$translation"' EXIT
"$gyre" config translate --train-sh "${theirs[0]}" ${theirs[@]+"${theirs[@]:1}"} -o "$translation"
field() { sed -n "/^\[run\]/,/^\[/s/^$1 = \"\([^\"]*\)\".*/\1/p" "$translation"; }
name=$(field name)
# Two of the base experiments have one name and different models: a run keeps its model, so the second has its model's name added.
folder=$(field output)
folder=${folder:-runs}/$name
model() { sed -n '/^\[model\]/,/^\[/s/^path = "\([^"]*\)".*/\1/p' "$1"; }
if [[ -f $folder/config.toml && $(model "$folder/config.toml") != "$(model "$translation")" ]]; then
  name=$name-$(basename "$(model "$translation")")
  folder=$(dirname "$folder")/$name
  echo "note: there is a run of another model with this name; this one is $folder" >&2
  ours=(run.name="$name" ${ours[@]+"${ours[@]}"})
fi
config=log/configs/$name.toml
mkdir -p log/configs
mv "$translation" "$config"
chmod 644 "$config"

fail() { echo "train.sh: $*" >&2; exit 2; }
source "$root/scripts/gpus.sh"
verb=train gpus=1 visible=''
for word in "${theirs[@]}"; do
  case $word in
    rl_or_sft=sft) verb=sft ;;
    system.n_gpus=*) gpus=${word#*=} ;;
    system.cuda_visible_devices=*) visible=$(tr -d "'\"" <<<"${word#*=}") ;;
  esac
done
if [[ $visible == [0-9]* ]]; then export CUDA_VISIBLE_DEVICES=$visible; fi
[[ $gpus =~ ^[1-9][0-9]*$ ]] || fail "system.n_gpus is '$gpus', expected an integer of at least 1"
list=$(first_gpus "$gpus")
compute_on "$list" system.n_gpus
if [[ $device == cpu && " ${ours[*]-} " != *" model.device="* ]]; then echo "note: no GPU found: computing on the CPU" >&2; fi
{
  echo "=== $config: what the words become"
  cat "$config"
  echo "==="
  "$gyre" "$verb" "$config" ${placement[@]+"${placement[@]}"} ${ours[@]+"${ours[@]}"} --resume
  # Where the first RAGEN leaves the model to go on with; not where words after -- have put the run elsewhere.
  if [[ $verb == sft && -d $folder/best/actor ]]; then ln -sfn best/actor "$folder/merged_model"; fi
} 2>&1 | tee "${DEBUG_LOG:-debug.log}"
