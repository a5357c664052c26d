#!/usr/bin/env python3
"""Writes problems of one of reasoning-gym's kinds as DIR/train.jsonl and DIR/test.jsonl; no problem is in both, and none twice.

    pip install reasoning-gym
    python scripts/get-reasoning-gym.py chain_sum data/chain_sum --train 2500 --test 1000 '{"min_terms": 3, "max_terms": 3}'
"""

import argparse
import json
import pathlib
import sys

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("kind", help="the library's name of the data set")
options.add_argument("dir", type=pathlib.Path)
options.add_argument("settings", nargs="?", default="{}", type=json.loads, help="JSON object of the data set's settings")
options.add_argument("--train", type=int, default=1000, help="problems for training")
options.add_argument("--test", type=int, default=200, help="problems held out")
options.add_argument("--seed", type=int, default=1)
given = options.parse_intermixed_args()

try:
    import reasoning_gym
except ModuleNotFoundError:
    sys.exit(f"get-reasoning-gym: {sys.executable} has no reasoning-gym: install it with `{sys.executable} -m pip install reasoning-gym`")


def different(count, seed, without):
    """So many different problems, none of which is among others."""
    problems = {}
    for row in reasoning_gym.create_dataset(given.kind, size=10 * count, seed=seed, **given.settings):
        if row["question"] not in without:
            problems.setdefault(row["question"], row)
        if len(problems) == count:
            return problems
    sys.exit(f"only {len(problems)} new problems among {10 * count}, expected {count}: ask for fewer, or widen the settings")


test = different(given.test, given.seed + 1, {})
train = different(given.train, given.seed, test)
given.dir.mkdir(parents=True, exist_ok=True)
for name, part in (("test", test), ("train", train)):
    with open(given.dir / f"{name}.jsonl", "w") as out:
        out.writelines(json.dumps(row) + "\n" for row in part.values())
print(f"{given.dir}: {given.train} problems for training, {given.test} held out")
