#!/usr/bin/env python3
"""Train short runs with planted faults, by which the detectors of `gyre why` are measured.

  planted.py OUT [--gyre ./gyre] [--faults judge,env] [--seeds 1,2]      runs OUT/runs/FAULT-SEED, a few seconds each
  planted.py OUT --measure [--faults …] [--seeds …]                      what `gyre why` says of them
  planted.py OUT --pack DIR [--faults …] [--seeds …]                     small histories of them, for tests

A policy of 0.9 million parameters has learnt single-digit sums from a teacher that drops the tens of every second one.
Its runs correct that, unless a fault is in their way. A run's configuration, data and judge hold the fault; nothing
that the detectors read names it.
"""
import argparse, glob, gzip, json, os, random, re, shutil, subprocess, sys

STEPS, GROUPS, SIZE = 24, 16, 8
# what a detector may call the fault, the best name first
CAUSES = {"healthy": [], "healthy-envs": [], "healthy-judge": [], "healthy-parts": [],
          "hack": ["reward hacking"], "judge": ["broken judge"],
          "env": ["broken environment"], "break": ["broken environment"], "duplicates": ["duplicated data"],
          "lr": ["learning rate too high"], "cut": ["truncated replies"], "golds": ["contradictory data"],
          "filter": ["dead filter"]}

CONFIG = """
[run]
name = "{name}"
output = "runs"
steps = {steps}
seed = {seed}
validate_every = 4
save_every = 4
[model]
path = "runs/base/best/actor"
dtype = "float32"
{envs}
{rewards}
[validation]
temperature = 1.0
[[validation.envs]]
tag = "Arithmetic"
groups = 128
group_size = 1
max_turns = 1
options = {{ suffix = "=" }}
[rollout]
prompt = "compact"
think = false
max_tokens = {max_tokens}
max_length = 64
[filter]
strategy = "none"
[algorithm]
advantage = "grpo"
[actor]
lr = {lr}
mini_batch = 64
[analysis]
enabled = false
[checkpoint]
keep = 9
[sft]
episodes = 6000
validation_episodes = 100
epochs = 1
batch = 16
lr = 2e-3
"""


def env(tag, groups, options):
    return f'[[envs]]\ntag = "{tag}"\ngroups = {groups}\ngroup_size = {SIZE}\nmax_turns = 1\noptions = {options}\n'


def rows(path, draw, wrong=lambda i: False, repeat=1, scale=1):
    """Writes sums; wrong says which rows have another answer."""
    with open(path, "w") as out:
        for i in range(STEPS * GROUPS // repeat):
            a, b = draw.randint(1, 9), draw.randint(1, 9)
            right = scale * (a + b)
            answer = draw.choice([n for n in range(2, 19) if n != right]) if wrong(i) else right
            for _ in range(repeat):
                out.write(json.dumps({"question": f"{a}+{b}=", "answer": str(answer)}) + "\n")


def configuration(fault, seed, place, weak):
    """The run's configuration, and those of what is resumed with other settings: [(overrides, until)]."""
    draw = random.Random(f"{fault} {seed}")
    data = os.path.join(place, f"{fault}-{seed}.jsonl")
    begins = draw.randint(8, 14)  # the first step with the fault, where it has one
    given = dict(name=f"{fault}-{seed}", steps=STEPS, seed=seed, max_tokens=6, lr=draw.choice([3e-4, 5e-4]), rewards="")
    ordered = f'{{ file = "{data}", shuffle = false }}'
    given["envs"] = env("Dataset", GROUPS, ordered)
    chance = draw.uniform(0.1, 0.15) if weak else draw.uniform(0.35, 0.5)
    often = 0.5 if weak else 1
    wrong = {"golds": lambda i: draw.random() < chance,
             "break": lambda i: i >= (begins - 1) * GROUPS and draw.random() < often, "env": lambda i: draw.random() < often}
    rows(data, draw, wrong.get(fault, lambda i: False), (2 if weak else 8) if fault == "duplicates" else 1)
    if fault in ("env", "healthy-envs"):
        given["envs"] = env("Arithmetic", 8, '{ suffix = "=" }') + env("Dataset", 8, ordered)
    rates = [3e-3, 4e-3] if weak else [1e-2, 2e-2]
    reward = '[[rewards]]\nname = "{}"\nweight = {}\noptions = {}\n'
    if fault in ("judge", "healthy-judge"):
        calls = (begins - 1) * GROUPS * SIZE if fault == "judge" else 10**9
        command = json.dumps(["python3", os.path.abspath(__file__), "judge", str(calls), str(seed),
                              "0.3" if weak else "1"])
        given["rewards"] = reward.format("correctness", 0, "{}") + reward.format(
            "judge", 1, f'{{ component = "command", command = {command} }}')
    if fault == "hack":
        given["rewards"] = reward.format("correctness", 1, '{ answer = "whole" }') + reward.format(
            "length", draw.choice([4, 5] if weak else [8, 12]), "{ target = 6 }")
    if fault == "healthy-parts":
        given["rewards"] = reward.format("correctness", 1, '{ answer = "whole" }') + reward.format(
            "length", 0.1, "{ target = 2 }")
    if fault == "cut":
        given["max_tokens"] = draw.choice([1, 2])  # a digit, or two and no end
    if fault == "lr" and seed % 2:
        given["lr"] = draw.choice(rates)
    parts = [([], STEPS)]
    if fault == "lr" and not seed % 2:
        at = 4 * draw.randint(2, 3)
        parts = [([], at), ([f"actor.lr={draw.choice(rates)}"], STEPS)]
    text = CONFIG.format(**given)
    if fault == "filter":  # nobody can answer, and groups without a difference are not kept
        rows(data, draw, scale=100)
        parts = [(["filter.strategy=top_p", "filter.value=0.9", "filter.include_zero=false"], STEPS)]
    return text, parts


def judge(until, seed, often):
    """A judge who is right until so many calls, and from then on draws lots for a share of them."""
    draw = random.Random(seed)
    for i, line in enumerate(sys.stdin):
        row = json.loads(line)
        right = row["solution_str"].strip() == str(row["ground_truth"]).strip()
        print(json.dumps({"score": float(draw.random() < 0.5 if i >= until and draw.random() < often else right)}), flush=True)


def train(args, fault, seed):
    name = f"{fault}-{seed}"
    if os.path.exists(f"{args.out}/runs/{name}/planted.done"):
        return
    shutil.rmtree(f"{args.out}/runs/{name}", ignore_errors=True)
    text, parts = configuration(fault, seed, args.out, args.weak)
    with open(f"{args.out}/{name}.toml", "w") as out:
        out.write(text)
    for i, (overrides, until) in enumerate(parts):
        command = [args.gyre, "train", f"{name}.toml", *overrides, f"--until={until}"] + ["--resume"] * (i > 0)
        done = subprocess.run(command, cwd=args.out, capture_output=True, text=True)
        if done.returncode not in (0, 5):
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    open(f"{args.out}/runs/{name}/planted.done", "w").close()


def base(args):
    if os.path.exists(f"{args.out}/runs/base/best"):
        return
    shutil.rmtree(f"{args.out}/runs/base", ignore_errors=True)
    text = CONFIG.format(name="base", steps=1, seed=1, max_tokens=6, lr=1e-3, rewards="",
                         envs=env("Arithmetic", GROUPS, '{ suffix = "=", careless = 0.5 }'))
    with open(f"{args.out}/base.toml", "w") as out:
        out.write(text)
    new = ["model", "init", "policy", "--family", "qwen2", "--std", "0.12", "--kv-heads", "4", "--vocab", "259", "--force"]
    for command in new, ["sft", "base.toml", "model.path=policy"]:
        subprocess.run([args.gyre, *command], cwd=args.out, check=True, capture_output=True)


def measure(args):
    first = third = faults = alarms = controls = 0
    for fault in args.faults:
        for seed in args.seeds:
            command = [args.gyre, "why", f"runs/{fault}-{seed}", "--json"]
            done = subprocess.run(command, cwd=args.out, capture_output=True, text=True, check=True)
            found = [(r["cause"], r["since"], round(r["confidence"], 2)) for r in json.loads(done.stdout)]
            names, wanted = [f[0] for f in found], CAUSES[fault]
            if not wanted:
                controls, alarms = controls + 1, alarms + bool(found)
                verdict = "FALSE ALARM" if found else "quiet"
            else:
                at = min((names.index(w) for w in wanted if w in names), default=99)
                faults, first, third = faults + 1, first + (at == 0), third + (at < 3)
                verdict = f"rank {at + 1}" if at < 99 else "MISSED"
            print(f"{fault}-{seed:<4} {verdict:12} {found[:4]}", flush=True)
    print(f"first {first} of {faults}, in the first three {third} of {faults}, false alarms {alarms} of {controls}")


def pack(args):
    """Keeps of runs what the detectors read: a run's folder as text, episodes without log-probs, in one gzip each."""
    os.makedirs(args.pack, exist_ok=True)
    for fault in args.faults:
        for seed in args.seeds:
            place, files = f"{args.out}/runs/{fault}-{seed}", {}
            names = ["config.toml", "metrics.jsonl"] + [f"rollouts/{n}" for n in os.listdir(place + "/rollouts")
                                                        if re.fullmatch(r"step_\d+\.jsonl", n)]
            for name in names:
                with open(f"{place}/{name}") as source:
                    text = source.read().replace(args.out, ".").replace(os.path.dirname(os.path.abspath(__file__)), "scripts")
                if name.startswith("rollouts/"):
                    kept = [json.loads(line) for line in text.splitlines()]
                    for e in kept:
                        for key in "logprobs", "versions", "turns", "stop", "gold":
                            e.pop(key, None)
                        for part in set(e.get("components", {})) - {"correctness", "judge", "length"}:
                            del e["components"][part]
                    text = "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in kept)
                if name == "metrics.jsonl":
                    kept = [json.loads(line) for line in text.splitlines()]
                    wanted = ("schema", "step", "actor/ppo_kl", "actor/pg_clipfrac", "rollout/empty_after",
                              "rollout/sampler_equals", "rollout/logprob_gap_max")
                    text = "".join(json.dumps({k: v for k, v in r.items() if k.startswith(wanted) and not
                                               isinstance(v, dict)}, separators=(",", ":")) + "\n" for r in kept)
                files[name] = text
            files["checkpoints"] = "\n".join(sorted(os.path.basename(p) for p in glob.glob(place + "/global_step_*")))
            files["causes"] = json.dumps(CAUSES[fault])
            with open(f"{args.pack}/{fault}-{seed}.json.gz", "wb") as out:
                with gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
                    packed.write(json.dumps(files, sort_keys=True).encode())


def main():
    if sys.argv[1:2] == ["judge"]:
        return judge(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--gyre", default="./gyre")
    p.add_argument("--faults", default=",".join(CAUSES))
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--weak", action="store_true", help="faults that are hard to see")
    p.add_argument("--measure", action="store_true")
    p.add_argument("--pack")
    args = p.parse_args()
    args.out, args.gyre = os.path.abspath(args.out), os.path.abspath(args.gyre)
    args.faults, args.seeds = args.faults.split(","), [int(s) for s in args.seeds.split(",")]
    if unknown := [f for f in args.faults if f not in CAUSES]:
        sys.exit(f"no faults {unknown}: expected of {', '.join(CAUSES)}")
    if args.measure or args.pack:
        return pack(args) if args.pack else measure(args)
    os.makedirs(args.out, exist_ok=True)
    base(args)
    for fault in args.faults:
        for seed in args.seeds:
            train(args, fault, seed)


if __name__ == "__main__":
    main()
