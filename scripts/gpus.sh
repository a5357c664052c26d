# The GPUs of a command line; sourced, not run. Each GPU that is named is computed on by a rank of the run. The calling script defines fail.

# gpu_count prints how many GPUs nvidia-smi lists, 0 without it.
gpu_count() {
  if command -v nvidia-smi >/dev/null; then nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; else echo 0; fi
}

# first_gpus N prints N GPUs, as a list: the first that CUDA_VISIBLE_DEVICES names, without it 0,1,...
first_gpus() {
  local visible=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $(($1 - 1)))}
  local list=(${visible//,/ })
  (( ${#list[@]} >= $1 )) || fail "$1 GPUs are asked for, and CUDA_VISIBLE_DEVICES names $visible"
  cut -d, -f "1-$1" <<<"$visible"
}

# compute_on LIST OPTION: the words of gyre that compute on these GPUs, in the array placement; device is cuda or cpu, ranks their number. Where nvidia-smi
# lists no GPU the CPU computes, in one process. OPTION is what messages call the list.
compute_on() {
  local count gpu list
  count=$(gpu_count) device=cpu ranks=1 placement=(model.device=cpu)
  (( count > 0 )) || return 0
  list=(${1//,/ })
  for gpu in "${list[@]}"; do
    if [[ $gpu =~ ^[0-9]+$ ]] && (( gpu >= count )); then fail "$2 names GPU $gpu; nvidia-smi lists $count, numbered from 0"; fi
  done
  device=cuda ranks=${#list[@]} placement=(model.device=cuda)
  if (( ranks > 1 )); then placement+=(--ranks "$ranks"); fi
  export CUDA_VISIBLE_DEVICES=$1
}
