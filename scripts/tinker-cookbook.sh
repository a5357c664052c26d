#!/usr/bin/env bash
# Runs recipes of Tinker's cookbook, unmodified, against `gyre serve` with SmolLM2 on this machine.
#
#   scripts/tinker-cookbook.sh [RECIPE …]      default: sl_loop rl_loop rl_basic rl_numerics_check
#
# Makes all that is needed in build/tinker: a virtual environment with `tinker` and `tinker-cookbook` from Python's registry (whose torch for Linux
# x86-64 is the CUDA build: 3 GB to download), small data sets as local files under the names that the recipes load, and the model under a name
# that the cookbook knows a renderer for with the tokens of ChatML. Settings are the smallest: minutes on two cores. Logs lie in build/tinker/runs.
#
# Other recipes load data sets or judges from a hub (preference, distillation, code_rl, search_tool, verifiers_rl, …): where one is reached, run
# them with TINKER_BASE_URL and TINKER_API_KEY set. rl_loop's default loss, stable_reinforce, is not published: importance_sampling takes its place.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
-*) sed -n '2,12s/^# \{0,1\}//p' scripts/tinker-cookbook.sh; [ "$1" = --help ] || [ "$1" = -h ]; exit ;;
esac
[ $# -gt 0 ] || set -- sl_loop rl_loop rl_basic rl_numerics_check
gyre=$(realpath "${GYRE:-./gyre}")
home=${TINKER_HOME:-build/tinker}
name=Qwen/Qwen3-4B-Instruct-2507
mkdir -p "$home"
home=$(realpath "$home")

if [ ! -x "$home/venv/bin/python" ]; then
  python3 -m venv "$home/venv"
  "$home/venv/bin/pip" install -q tinker==0.38.0 torch 'transformers>=4.57.6,<5' datasets chz cloudpickle aiohttp blobfile pyrage termcolor \
    tiktoken tqdm pillow tml-renderers sympy pylatexenc math-verify
  # by itself: it wants a newer tml-renderers than Python 3.11 gets, for models of images and sound
  "$home/venv/bin/pip" install -q --no-deps tinker-cookbook==0.6.1
fi
if [ ! -e "$home/$name/config.json" ]; then
  GYRE=$gyre bash scripts/get-smollm2.sh "${SMOLLM2:-models/smollm2-135m-instruct}"
  mkdir -p "$home/$(dirname $name)"
  ln -sfn "$(realpath "${SMOLLM2:-models/smollm2-135m-instruct}")" "$home/$name"
fi
cd "$home"
venv/bin/python - <<'PYTHON'
# Data sets of a few rows, in the form of those that the recipes load.
import json, os, random

def write(folder, config, splits):
    os.makedirs(folder, exist_ok=True)
    files = "".join(f"  - split: {split}\n    path: {split}.jsonl\n" for split in splits)
    with open(f"{folder}/README.md", "w") as f:
        f.write(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n")
    for split, rows in splits.items():
        with open(f"{folder}/{split}.jsonl", "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)

rng = random.Random(0)
def sum_of(a):  # which a small model often guesses, so that rewards differ within a group
    return {"question": f"What is {a} + {3 - a}?", "answer": f"{a} + {3 - a} is 3.\n#### 3"}
write("openai/gsm8k", "main", {"train": list(map(sum_of, range(4))), "test": list(map(sum_of, range(4)))})
chat = lambda q, a: {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
rows = [chat(r["question"], r["answer"]) for r in map(sum_of, range(16))]
write("HuggingFaceH4/no_robots", "default", {"train": rows, "test": rows[:4]})
words = "after the storm many people came before noon and during the day they could see that most of it was over until then while".split()
write("Salesforce/wikitext", "wikitext-103-raw-v1", {"train": [{"text": " ".join(rng.choices(words, k=40)) + " ."} for _ in range(4000)]})
PYTHON

"$gyre" serve "$name" --port 0 --state "$home/state" > server.url 2> server.log &
server=$!
trap 'kill $server; wait $server || true' EXIT
for _ in $(seq 600); do
  [ -s server.url ] && break
  kill -0 $server || { tail -5 server.log; exit 1; }
  sleep 0.5
done
export TINKER_BASE_URL TINKER_API_KEY=tml-local HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
TINKER_BASE_URL=$(head -1 server.url)

for recipe; do
  log=$home/runs/$recipe
  rm -rf "$log"
  module=$recipe
  common="model_name=$name log_path=$log max_steps=2 lora_rank=8 save_every=0"
  case $recipe in
  sl_loop) settings="batch_size=4 max_length=512 learning_rate=5e-4" ;;
  rl_loop) settings="batch_size=2 group_size=8 max_tokens=48 loss_fn=importance_sampling" ;;
  rl_basic) # groups of its own data set; a whole one has to be given to change their number
    settings="max_tokens=48 dataset_builder=tinker_cookbook.recipes.math_rl.math_env:Gsm8kDatasetBuilder"
    settings="$settings dataset_builder.batch_size=4 dataset_builder.group_size=8 dataset_builder.renderer_name=qwen3_instruct"
    settings="$settings dataset_builder.model_name_for_tokenizer=$name"
    ;;
  rl_numerics_check)
    module=rl_numerics_check.train
    settings="group_size=4 groups_per_batch=2 max_tokens=48 max_trajectory_tokens=2048"
    settings="$settings task.num_pages_min=2 task.num_pages_max=3 task.page_chars=300" ;;
  *) settings= ;;
  esac
  echo "== $recipe"
  # shellcheck disable=SC2086
  venv/bin/python -m tinker_cookbook.recipes.$module $common $settings > "$recipe.log" 2>&1 || { tail -25 "$recipe.log"; exit 1; }
  grep -ho '"\(optim/kl_sample_train_v[12]\|optim/entropy\|train_mean_nll\|reward/total\|env/all/reward/total\)": [-0-9.e]*' "$log/metrics.jsonl"
done
