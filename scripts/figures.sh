#!/usr/bin/env bash
# Makes the figures and screenshots of README.md and docs/ anew, from runs that it makes where they are missing.
#
#   scripts/figures.sh demo          demo-training.png, demo-gradients.png: make demo (kernels: GYRE_ISA=avx2)
#   scripts/figures.sh quickstart    quickstart.png: the page that compares the two runs of docs/quickstart.md
#   scripts/figures.sh components    components-demo.png: configs/components_demo.toml (kernels: GYRE_ISA=avx2)
#   scripts/figures.sh ui            ui-runs.png, ui-episodes.png: pages of gyre ui about two short runs (five minutes)
#   scripts/figures.sh smollm2       smollm2-training.png: configs/sokoban_smollm2.toml (about 25 minutes)
#   scripts/figures.sh gateway       gateway-training.png: configs/gateway_calculator.toml (minutes)
#   scripts/figures.sh bfloat16      bfloat16-demo.png, bfloat16-smollm2.png: both studies of bfloat16 (half an hour)
#   scripts/figures.sh distillation  distillation.png: configs/studies/distillation.toml (kernels: GYRE_ISA=avx2; a quarter of an hour)
#   scripts/figures.sh distillation_smollm2  distillation-smollm2.png: configs/studies/distillation_smollm2.toml (an hour)
#   scripts/figures.sh lora          lora-smollm2.png: configs/studies/lora_smollm2.toml (half an hour)
set -euo pipefail
cd "$(dirname "$0")/.."
images=docs/images
gyre() { ./gyre "$@"; }
made() { [ -e "$1" ] || { shift; gyre "$@"; }; } # PATH COMMAND…: runs the command unless the path is there

# screenshot PAGE PNG WIDTH HEIGHT: the top of a page, by Chromium without network
screenshot() {
  local browser
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "figures: no Chromium here: install Debian's package chromium" >&2; exit 1; }
  "$browser" --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update \
    --user-data-dir="$(mktemp -d)" --hide-scrollbars --virtual-time-budget=8000 \
    --window-size="$3,$4" --screenshot="$2" "$1" 2>/dev/null
}

demo() {
  GYRE_ISA=avx2 gyre demo
  cp runs/demo/plots/training.png $images/demo-training.png
  cp runs/demo-analysis/signal.png $images/demo-gradients.png
}

quickstart() {
  made runs/demo-sft/best/actor demo
  python3 scripts/docs.py blocks docs/quickstart.md . # dance.py, dance.toml
  made runs/dance/metrics.jsonl train dance.toml
  sed -i 's|reward = float(success)|reward = hit / 6|' dance.py
  made runs/dance-partial/metrics.jsonl train dance.toml run.name=dance-partial
  gyre report runs/dance runs/dance-partial -o dance.html
  screenshot dance.html "$PWD/$images/quickstart.png" 1280 1150
  rm dance.html dance.py dance.toml
}

components() ( # in a shell of its own, with the kernels of the documented numbers
  export GYRE_ISA=avx2
  made models/components-demo model init models/components-demo --family qwen2 --std 0.12 --kv-heads 4 --vocab 259
  made runs/components-sft sft configs/components_demo.toml run.name=components-sft run.validate_every=0 \
    envs.0.options.careless=0.5
  made runs/components-demo train configs/components_demo.toml model.path=runs/components-sft/global_step_1/actor
  gyre components cosines runs/components-demo --figure $images/components-demo.png
)

ui() {
  local server name policy=models/demo-policy
  export GYRE_ISA=avx2
  made $policy/config.json model init $policy --family qwen2 --hidden 64 --layers 3 --heads 4 --kv-heads 4 \
    --intermediate 256 --std 0.12
  made runs/ui-sft/run.json sft configs/demo.toml run.name=ui-sft sft.episodes=1600 sft.validation_episodes=50 \
    run.validate_every=0
  for name in grpo gae; do
    made runs/ui-$name/run.json train configs/demo.toml run.name=ui-$name algorithm.advantage=$name run.steps=30 \
      model.path=runs/ui-sft/best/actor envs.0.groups=24 validation.envs.0.groups=64
  done
  ./gyre ui runs/ui-grpo runs/ui-gae --port 8095 & server=$!
  sleep 2
  screenshot 'http://127.0.0.1:8095/#run?run=runs/ui-grpo&run=runs/ui-gae' "$PWD/$images/ui-runs.png" 1200 640
  screenshot "http://127.0.0.1:8095/#episodes?shade=logprob&e=step:30:56:runs/ui-grpo&e=step:30:57:runs/ui-grpo" \
    "$PWD/$images/ui-episodes.png" 1200 760
  kill $server
}

smollm2() {
  bash scripts/get-smollm2.sh
  made runs/sokoban-smollm2-sft sft configs/sokoban_smollm2.toml run.name=sokoban-smollm2-sft run.validate_every=0
  made runs/sokoban-smollm2 train configs/sokoban_smollm2.toml model.path=runs/sokoban-smollm2-sft/best/actor
  gyre train runs/sokoban-smollm2 --resume run.steps=24 run.validate_every=8
  gyre plot runs/sokoban-smollm2
  cp runs/sokoban-smollm2/plots/training.png $images/smollm2-training.png
}

gateway() {
  bash scripts/get-smollm2.sh
  made runs/gateway-calculator train configs/gateway_calculator.toml
  gyre plot runs/gateway-calculator
  cp runs/gateway-calculator/plots/training.png $images/gateway-training.png
}

bfloat16() {
  made runs/demo-sft/best/actor demo
  gyre sweep configs/studies/bfloat16.toml model.path=runs/demo-sft/best/actor
  cp studies/bfloat16/figures/learning_curves.png $images/bfloat16-demo.png
  bash scripts/get-smollm2.sh
  made runs/arithmetic-sft sft configs/arithmetic_smollm2.toml run.name=arithmetic-sft run.validate_every=0 \
    envs.0.options.careless=0.5
  gyre sweep configs/studies/bfloat16_smollm2.toml model.path=runs/arithmetic-sft/best/actor
  cp studies/bfloat16-smollm2/figures/learning_curves.png $images/bfloat16-smollm2.png
}

distillation() (
  export GYRE_ISA=avx2
  made runs/demo/global_step_40/actor demo
  gyre sweep configs/studies/distillation.toml
  cp studies/distillation/figures/success_by_tokens.png $images/distillation.png
)

distillation_smollm2() {
  bash scripts/get-smollm2.sh
  made runs/sokoban-teacher/best/actor sft configs/sokoban_smollm2.toml run.name=sokoban-teacher model.dtype=bfloat16 \
    sft.episodes=2000 run.validate_every=0
  made models/sokoban-student/config.json model init models/sokoban-student --tokenizer models/smollm2-135m-instruct \
    --family qwen2 --hidden 64 --layers 3 --heads 4 --kv-heads 4 --intermediate 256 --std 0.12
  made runs/sokoban-student-sft/best/actor sft configs/sokoban_smollm2.toml run.name=sokoban-student-sft \
    model.path=models/sokoban-student sft.episodes=20000 sft.batch=8 sft.lr=2e-3 sft.mistakes=0.72
  gyre sweep configs/studies/distillation_smollm2.toml
  cp studies/distillation-smollm2/figures/success_by_tokens.png $images/distillation-smollm2.png
}

lora() {
  bash scripts/get-smollm2.sh
  made runs/sokoban-beginner/best/actor sft configs/sokoban_smollm2.toml run.name=sokoban-beginner model.dtype=bfloat16 \
    sft.episodes=800 sft.mistakes=0.5 run.validate_every=0
  gyre sweep configs/studies/lora_smollm2.toml
  cp studies/lora-smollm2/figures/learning_curves.png $images/lora-smollm2.png
}

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
[ $# -gt 0 ] || { usage; exit 2; }
for name in "$@"; do
  case $name in
    demo | quickstart | components | ui | smollm2 | gateway | bfloat16 | distillation | distillation_smollm2 | lora) $name ;;
    *) echo "figures: $name is none of those below" >&2; usage >&2; exit 2 ;;
  esac
done
