#!/usr/bin/env bash
# Runs two ranks of Gyre under a launcher of clusters, and says what it saw:
#
#   bash scripts/cluster/launchers.sh [torchrun] [mpirun] [srun]       (all of them when none is named)
#
# Each trains a policy of ten thousand parameters for two steps, once by itself and once as two ranks, and compares what was played and the losses.
# What a launcher needs is set up in a folder that goes again: for srun a controller, a node daemon and munge of their own on this machine, as this user.
# A launcher that is not installed is left out, with the line that installs it; --strict makes that an error. GYRE names the program (default: ./gyre).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
gyre=${GYRE:-$root/gyre}
strict=0
wanted=()
for word in "$@"; do
  if [[ $word == --strict ]]; then strict=1; else wanted+=("$word"); fi
done
(( ${#wanted[@]} )) || wanted=(torchrun mpirun srun)
[[ -x $gyre ]] || { echo "launchers: $gyre is not there: make build" >&2; exit 1; }

work=$(mktemp -d)
daemons=()
finish() {
  for pid in "${daemons[@]:-}"; do [[ -n $pid ]] && kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT
cd "$work"

"$gyre" model init policy --hidden 16 --layers 2 --heads 2 --kv-heads 1 --intermediate 32 --vocab 300 --seed 3 2>/dev/null
cat >tiny.toml <<'TOML'
[run]
steps = 2
validate_every = 0
validate_first = false
output = "runs"
threads = 1
[model]
path = "policy"
[[envs]]
tag = "bandit"
groups = 3
group_size = 4
max_turns = 1
[rollout]
prompt = "compact"
think = false
max_tokens = 8
max_length = 300
[actor]
lr = 1e-3
mini_batch = 6
[analysis]
enabled = false
TOML
"$gyre" train tiny.toml run.name=alone >alone.log 2>&1 || { cat alone.log; exit 1; }

# same NAME: the episodes of a run over ranks are those of one process, its losses and norms agree to 1e-4.
same() {
  cmp runs/alone/rollouts/step_1.jsonl "runs/$1/rollouts/step_1.jsonl"
  python3 - "$1" <<'PY'
import json, sys
def read(name): return [json.loads(line) for line in open(f"runs/{name}/metrics.jsonl")]
worst = 0
for a, b in zip(read("alone"), read(sys.argv[1]), strict=True):
    for key in ("actor/grad_norm", "critic/grad_norm", "critic/vf_loss", "actor/entropy"):
        worst = max(worst, abs(a[key] - b[key]) / max(abs(a[key]), 1e-6))
assert worst < 1e-4, worst
print(f"  two ranks agree with one process: largest relative difference of norms and losses {worst:.1e}")
PY
}

missing() { # LAUNCHER HOW
  echo "$1: not installed here ($2)"
  if (( strict )); then exit 1; fi
}

report() { # NAME LOG
  grep -m1 "^gyre: rank 0 of 2" "$2" | sed "s/^/$1: /" || { cat "$2"; echo "$1: rank 0 did not say which launcher it sees" >&2; exit 1; }
  same "$1"
}

under_torchrun() {
  local python=
  for candidate in "${PYTHON:-}" python3 /opt/torch/bin/python; do
    if [[ -n $candidate ]] && "$candidate" -c 'import torch.distributed.run' 2>/dev/null; then python=$candidate; break; fi
  done
  [[ -n $python ]] || { missing torchrun "pip install torch, or PYTHON=…"; return; }
  "$python" -m torch.distributed.run --no-python --standalone --nproc-per-node 2 "$gyre" train tiny.toml run.name=torchrun >torchrun.log 2>&1 || { cat torchrun.log; exit 1; }
  report torchrun torchrun.log
}

under_mpirun() {
  command -v mpirun >/dev/null || { missing mpirun "apt install openmpi-bin"; return; }
  local root_flag=()
  (( EUID )) || root_flag=(--allow-run-as-root)
  mpirun "${root_flag[@]}" --oversubscribe -np 2 "$gyre" train tiny.toml run.name=mpirun >mpirun.log 2>&1 || { cat mpirun.log; exit 1; }
  report mpirun mpirun.log
}

under_srun() {
  command -v srun >/dev/null && command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null ||
    { missing srun "apt install slurm-wlm munge"; return; }
  local host user
  host=$(hostname -s) user=$(id -un)
  mkdir -m 700 -p slurm/{spool,state,munge}
  dd if=/dev/urandom of=slurm/munge/key bs=1024 count=1 2>/dev/null
  chmod 400 slurm/munge/key
  munged --foreground --force --key-file="$work/slurm/munge/key" --socket="$work/slurm/munge/socket" --pid-file="$work/slurm/munge/pid" \
    --seed-file="$work/slurm/munge/seed" --log-file="$work/slurm/munge/log" >slurm/munge.out 2>&1 & daemons+=($!)
  local cores
  cores=$(nproc)
  cat >slurm/slurm.conf <<CONF
ClusterName=gyre
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$((20000 + $$ % 10000))
SlurmdPort=$((30001 + $$ % 10000))
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$work/slurm/munge/socket
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmdPidFile=$work/slurm/slurmd.pid
SlurmctldLogFile=$work/slurm/slurmctld.log
SlurmdLogFile=$work/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$work/slurm/slurm.conf
  for _ in $(seq 50); do [[ -S slurm/munge/socket ]] && break; sleep 0.1; done
  slurmctld -D >slurm/ctld.out 2>&1 & daemons+=($!)
  slurmd -D >slurm/d.out 2>&1 & daemons+=($!)
  for _ in $(seq 100); do sinfo -h -o %t 2>/dev/null | grep -q idle && break; sleep 0.3; done
  sinfo -h -o %t 2>/dev/null | grep -q idle || { tail -5 slurm/*.log slurm/*.out; echo "srun: the node did not come up" >&2; exit 1; }
  timeout 300 srun --overcommit --nodes 1 --ntasks 2 "$gyre" train tiny.toml run.name=srun >srun.log 2>&1 || { cat srun.log; exit 1; }
  report srun srun.log
}

for launcher in "${wanted[@]}"; do
  case $launcher in
    torchrun | mpirun | srun) "under_$launcher" ;;
    *) echo "launchers: $launcher is not one of torchrun, mpirun, srun" >&2; exit 2 ;;
  esac
done
