# Folders and the container of a cluster; sourced by the scripts beside it. BASE is the folder that survives jobs.
#
#   BASE         models, caches, runs and logs (default: $HOME/gyre)
#   SIF          the image (default: $BASE/gyre.sif; `apptainer build $SIF scripts/cluster/gyre.def` makes it)
#   APPTAINER    the program (default: apptainer, or singularity where only that is there)

BASE=${BASE:-$HOME/gyre}
SIF=${SIF:-$BASE/gyre.sif}
APPTAINER=${APPTAINER:-$(command -v apptainer || command -v singularity || true)}

# prepare makes the folders and says what is missing.
prepare() {
  mkdir -p "$BASE"/{cache/hf,cache/torch,cache/pip,models,data,runs,logs}
  if [[ -z $APPTAINER ]]; then
    echo "cluster: apptainer is not installed here (module load apptainer?)" >&2
    return 1
  fi
  if [[ ! -f $SIF ]]; then
    echo "cluster: there is no image $SIF: build it with 'apptainer build $SIF scripts/cluster/gyre.def', or set SIF" >&2
    return 1
  fi
}

# inside COMMAND...: runs a command in the container, in $BASE, with caches that survive and nothing else of the outside. `run=exec inside … &`
# leaves no shell between the job and the container that would take a signal for itself.
inside() {
  local gpu=(--nv)
  [[ -e /dev/nvidiactl ]] || gpu=()
  ${run:-} "$APPTAINER" exec --cleanenv "${gpu[@]}" \
    --bind "$BASE":/mnt/user \
    --env HF_HOME=/mnt/user/cache/hf \
    --env XDG_CACHE_HOME=/mnt/user/cache \
    --env TORCH_HOME=/mnt/user/cache/torch \
    --env PIP_CACHE_DIR=/mnt/user/cache/pip \
    --env HF_TOKEN="${HF_TOKEN:-}" \
    --env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" \
    --pwd /mnt/user \
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
