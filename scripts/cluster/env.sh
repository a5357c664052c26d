# Folders and the container of a cluster; sourced by the scripts beside it. BASE is the folder that survives jobs.
#
#   BASE                models, caches, runs and logs (default: $HOME/gyre)
#   SIF                 the image (default: $BASE/gyre.sif; `apptainer build $SIF scripts/cluster/gyre.def` makes it)
#   PROJECT             the folder to work in (default: $BASE); one outside of BASE is bound too
#   HF_HOME, TRANSFORMERS_CACHE, TORCH_HOME, PIP_CACHE_DIR
#                       caches (default: hf_cache, hf_cache/torch and pip_cache in BASE)
#   VERL_SRC            a checkout of verl, bound and importable there, for reward functions that need it
#   APPTAINER           the program (default: apptainer, or singularity where only that is there)

BASE=${BASE:-$HOME/gyre}
SIF=${SIF:-$BASE/gyre.sif}
APPTAINER=${APPTAINER:-$(command -v apptainer || command -v singularity || true)}

# prepare makes the folders and says what is missing.
prepare() {
  mkdir -p "$BASE"/{hf_cache/torch,pip_cache,models,data,runs,logs}
  if [[ -z $APPTAINER ]]; then
    echo "cluster: apptainer is not installed here (module load apptainer?)" >&2
    return 1
  fi
  if [[ ! -f $SIF ]]; then
    echo "cluster: there is no image $SIF: build it with 'apptainer build $SIF scripts/cluster/gyre.def', or set SIF" >&2
    return 1
  fi
}

# within PATH: what a folder is called in the container, where BASE is /mnt/user; one outside of BASE keeps its name.
within() { if [[ $1 == "$BASE" || $1 == "$BASE"/* ]]; then echo "/mnt/user${1#"$BASE"}"; else echo "$1"; fi; }

# inside COMMAND...: runs a command in the container, in PROJECT, with caches that survive and nothing else of the outside. `run=exec inside … &`
# leaves no shell between the job and the container that would take a signal for itself.
inside() {
  local gpu=(--nv) bind=(--bind "$BASE":/mnt/user) verl=() folder name
  [[ -e /dev/nvidiactl ]] || gpu=()
  local cache=${HF_HOME:-$BASE/hf_cache}
  local -A places=([HF_HOME]=$cache [TRANSFORMERS_CACHE]=${TRANSFORMERS_CACHE:-$cache} [XDG_CACHE_HOME]=$cache [TORCH_HOME]=${TORCH_HOME:-$cache/torch}
    [PIP_CACHE_DIR]=${PIP_CACHE_DIR:-$BASE/pip_cache} [PROJECT]=${PROJECT:-$BASE})
  if [[ -n ${VERL_SRC:-} ]]; then places[VERL_SRC]=$VERL_SRC; verl=(--env PYTHONPATH="$(within "$VERL_SRC")"); fi
  local env=()
  for name in HF_HOME TRANSFORMERS_CACHE XDG_CACHE_HOME TORCH_HOME PIP_CACHE_DIR PROJECT VERL_SRC; do
    folder=${places[$name]:-}
    [[ -n $folder ]] || continue
    env+=(--env "$name=$(within "$folder")")
    if [[ $(within "$folder") == "$folder" && " ${bind[*]} " != *" $folder:$folder "* ]]; then bind+=(--bind "$folder:$folder"); fi
  done
  ${run:-} "$APPTAINER" exec --cleanenv "${gpu[@]}" "${bind[@]}" "${env[@]}" "${verl[@]}" \
    --env HF_TOKEN="${HF_TOKEN:-}" \
    --env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" \
    --pwd "$(within "${PROJECT:-$BASE}")" \
    "$SIF" "$@"
}

# check says whether libtorch sees the GPU inside the container.
check() {
  inside bash -c '
    gyre doctor || exit 1
    python - <<PY
import torch
assert torch.cuda.is_available(), "libtorch sees no GPU: was the container started with --nv, on a node with one?"
print("GPU:", torch.cuda.get_device_name(0), "torch", torch.__version__)
PY'
}
