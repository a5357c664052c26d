#!/usr/bin/env python3
"""Makes orchestrate/loop/trainer/testdata/analysis: what PyTorch says about the gradients of hand-written episodes, the slow way.

    python scripts/fixtures_analysis.py orchestrate/loop/trainer/testdata

Needs torch, transformers and the checkpoints of scripts/fixtures_pytorch.py in TESTDATA/pytorch. In float64. The exact profile: one full
backward pass per component and group, every inner product between them. The paper profile, step by step as RAGEN 2 goes about it: for each bucket
and again for all of them, for each component, for each mini-batch: clear the gradients; for each rank and micro-batch a new forward pass,
the mean of the micro-batch, divided by the micro-batches of a full mini-batch, backward; average over ranks, take the norm.
"""
import itertools
import json
import math
import os
import random
import statistics
import sys

import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

testdata = sys.argv[1]
out = os.path.join(testdata, "analysis")
os.makedirs(out, exist_ok=True)
torch.set_num_threads(1)


def episodes(rng, sizes):
    rows = []
    for g, size in enumerate(sizes):
        for _ in range(size):
            ids, mask, rewards = [], [], []
            for _ in range(rng.choice([1, 2])):
                prompt, reply = rng.randrange(3, 7), rng.randrange(2, 7)
                ids += [rng.randrange(3, 61) for _ in range(prompt + reply)]
                mask += [0] * prompt + [1] * reply
                rewards.append([len(ids) - 1, round(rng.gauss(0, 0.2 + g) + 0.5, 3)])
            rows.append({"group": g, "ids": ids, "mask": mask, "rewards": rewards})
    return rows


def logprobs(model, ids, temperature):
    logits = model(torch.tensor([ids])).logits[0, :-1] / temperature
    lp = torch.log_softmax(logits, -1)
    zero = torch.zeros(1, dtype=lp.dtype)
    return torch.cat([zero, lp[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]]), torch.cat([zero, -(lp.exp() * lp).sum(-1)])


def mask_of(row):
    return torch.tensor(row["mask"], dtype=torch.float64)


def score(row):
    return sum(v for _, v in row["rewards"])


def spread(rows, g):
    return statistics.stdev(score(r) for r in rows if r["group"] == g)


def grpo(rows):
    for r in rows:
        group = [score(x) for x in rows if x["group"] == r["group"]]
        r["adv"] = mask_of(r) * (score(r) - statistics.mean(group)) / (statistics.stdev(group) + 1e-6)


def gae(rows, critic, lam):
    for r in rows:
        with torch.no_grad():
            v = torch.cat([torch.zeros(1, dtype=torch.float64), critic(torch.tensor([r["ids"]])).logits[0, :-1, 0]])
        last = max(t for t, m in enumerate(r["mask"]) if m)
        r["adv"], acc, after = torch.zeros(len(r["ids"]), dtype=torch.float64), 0.0, 0.0
        for t in reversed(range(len(r["ids"]))):
            if r["mask"][t]:
                acc = (score(r) if t == last else 0.0) + after - float(v[t]) + lam * acc
                after = float(v[t])
                r["adv"][t] = acc
    flat = torch.cat([r["adv"][mask_of(r).bool()] for r in rows])
    for r in rows:
        r["adv"] = mask_of(r) * (r["adv"] - flat.mean()) / torch.sqrt(flat.var() + 1e-8)


def aggregate(values, rows, mode):
    """The loss of these rows alone: their own normaliser."""
    sums = [(v * mask_of(r)).sum() for v, r in zip(values, rows)]
    if mode == "token-mean":
        return sum(sums) / sum(sum(r["mask"]) for r in rows)
    if mode == "seq-mean-token-mean":
        return sum(s / sum(r["mask"]) for s, r in zip(sums, rows)) / len(rows)
    raise ValueError(mode)


def terms(model, c, rows):
    """Per row: the token losses of each component, coefficients included."""
    out = {"task": [], "entropy": [], "kl": []}
    for r in rows:
        lp, h = logprobs(model, r["ids"], c["temperature"])
        ratio, adv = torch.exp(lp - r["old"]), r["adv"]
        loss = torch.maximum(-adv * ratio, -adv * ratio.clamp(0.8, 1.28))
        out["task"].append(torch.where(adv < 0, torch.minimum(-adv * 3.0, loss), loss))
        if c["entropy_coef"]:
            out["entropy"].append(-c["entropy_coef"] * h)
        if c["kl_coef"]:
            d = torch.clamp(r["ref"] - lp, -20, 20)
            out["kl"].append(c["kl_coef"] * torch.clamp(torch.exp(d) - d - 1, -10, 10))
    return {k: v for k, v in out.items() if v}


def gradient(model):
    return {n: (torch.zeros_like(p) if p.grad is None else p.grad.clone()) for n, p in model.named_parameters()}


def dot(a, b):
    return sum(float((a[n] * b[n]).sum()) for n in a)


def add(a, b):
    return {n: a[n] + b[n] for n in a}


def block(name):
    parts = name.removeprefix("model.").split(".")
    return "layers." + parts[1] if parts[0] == "layers" else parts[0]


def split(rows, n, profile):
    """Quantile buckets of groups, of equal sizes as far as can be; in the paper profile the last takes the remainder."""
    order = sorted({r["group"] for r in rows}, key=lambda g: (spread(rows, g), g))
    n = min(n, len(order))
    if profile == "exact":
        return [order[i * len(order) // n:(i + 1) * len(order) // n] for i in range(n)]
    size = len(order) // n
    return [order[i * size:(i + 1) * size if i < n - 1 else len(order)] for i in range(n)]


def exact(model, c, rows, buckets):
    """Weights of the whole batch: Σ over groups of the per-group loss is the batch's loss."""
    names = list(terms(model, c, rows[:1]))
    tokens, total = sum(sum(r["mask"]) for r in rows), len(rows)
    by_group = {}
    for g in sum(buckets, []):
        for name in names:
            mine = [r for r in rows if r["group"] == g]
            model.zero_grad()
            parts = [(v * mask_of(r)).sum() / (tokens if c["mode"] == "token-mean" else total * sum(r["mask"]))
                     for v, r in zip(terms(model, c, mine)[name], mine)]
            loss = sum(parts)
            loss.backward()
            by_group[g, name] = (gradient(model), loss.item())
    results, sums = {}, {}
    for label, groups in [(f"bucket_{i + 1}", b) for i, b in enumerate(buckets)] + [("all", sum(buckets, []))]:
        mine = [r for r in rows if r["group"] in groups]
        x = results[label] = {"sample_count": len(mine), "tokens": sum(sum(r["mask"]) for r in mine), "groups": groups,
                              "norms": {}, "losses": {}, "group_norms": {}, "signal_sq": {}, "noise_sq": {}, "cosines": {}, "blocks": {}}
        for name in names:
            gs = [by_group[g, name][0] for g in groups]
            whole = gs[0]
            for g in gs[1:]:
                whole = add(whole, g)
            sums[label, name] = whole
            x["norms"][name] = math.sqrt(dot(whole, whole))
            x["losses"]["policy" if name == "task" else name] = sum(by_group[g, name][1] for g in groups)
            x["group_norms"][name] = [math.sqrt(dot(g, g)) for g in gs]
            for n in whole:
                part = x["blocks"].setdefault(block(n), {})
                part[name] = part.get(name, 0.0) + float((whole[n] ** 2).sum())
            n = len(gs)
            if n > 1:  # over pairs of different groups, by the definition
                x["signal_sq"][name] = n * n * statistics.mean(dot(a, b) for a, b in itertools.permutations(gs, 2))
                mean = {k: v / n for k, v in whole.items()}
                x["noise_sq"][name] = n * sum(dot(d, d) for d in ({k: g[k] - mean[k] for k in g} for g in gs)) / (n - 1)
        x["losses"]["total"] = sum(x["losses"].values())
        for a, b in itertools.combinations(names, 2):
            x["cosines"][f"{a}_{b}"] = dot(sums[label, a], sums[label, b]) / x["norms"][a] / x["norms"][b]
    pairs = []
    for (i, a), (j, b) in itertools.combinations(enumerate(list(results)[:-1]), 2):
        for name in names:
            pairs.append([a, b, name, dot(sums[a, name], sums[b, name]) / results[a]["norms"][name] / results[b]["norms"][name]])
    return {"results": results, "pairs": pairs}


def paper(model, c, rows, buckets):
    names = list(terms(model, c, rows[:1]))
    ranks, mini, micro = c["ranks"], c["mini_batch"] // c["ranks"], c["micro_batch"]
    accumulation = mini // micro
    results = {}
    for label, groups in [("all", sum(buckets, []))] + [(f"bucket_{i + 1}", b) for i, b in enumerate(buckets)]:
        mine = [r for r in rows if r["group"] in groups]
        mine = mine[:len(mine) - len(mine) % ranks]
        if not mine:
            continue
        share = len(mine) // ranks
        norms, losses = {n: [] for n in names}, {}
        for begin in range(0, share, mini):
            for name in names:
                model.zero_grad()
                for rank in range(ranks):
                    own = mine[rank * share:(rank + 1) * share][begin:begin + mini]
                    for at in range(0, len(own), micro):
                        piece = own[at:at + micro]
                        values = {n: aggregate(v, piece, c["mode"]) for n, v in terms(model, c, piece).items()}
                        (values[name] / accumulation / ranks).backward()
                        for n, v in values.items():
                            losses.setdefault("policy" if n == "task" else n, []).append(v.item())
                        losses.setdefault("total", []).append(sum(v.item() for v in values.values()))
                g = gradient(model)
                norms[name].append(math.sqrt(dot(g, g)))
        results[label] = {"sample_count": len(mine), "tokens": sum(sum(r["mask"]) for r in mine),
                          "norms": {n: statistics.mean(v) for n, v in norms.items()},
                          "losses": {n: statistics.mean(v) for n, v in losses.items()}}
    return {"results": results, "pairs": []}


def load(kind, name):
    return kind.from_pretrained(os.path.join(testdata, "pytorch", name), dtype=torch.float64).eval()


model, reference, critic = load(AutoModelForCausalLM, "llama"), load(AutoModelForCausalLM, "reference"), load(AutoModelForTokenClassification, "critic")
rng = random.Random(11)
rows = episodes(rng, [4, 3, 4, 5, 4, 3, 4, 4])
rng.shuffle(rows)  # the order of rows is not that of groups
with torch.no_grad():
    other = [logprobs(reference, r["ids"], 0.8)[0] for r in rows]
    own = [logprobs(model, r["ids"], 0.8)[0] for r in rows]
mixed = [{**r, "logprobs": [round(float(0.7 * a + 0.3 * b), 6) if m else None for a, b, m in zip(x, y, r["mask"])]}
         for r, x, y in zip(rows, own, other)]
for name, list_ in (("episodes.jsonl", rows), ("episodes_old.jsonl", mixed)):
    with open(os.path.join(out, name), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in list_)

base = dict(temperature=0.8, entropy_coef=0.02, kl_coef=0.05, num_buckets=3, mode="token-mean", advantage="grpo", episodes="episodes.jsonl",
            profile="exact", mini_batch=8, micro_batch=2, ranks=1)
cases = {
    "exact_grpo": base,
    "exact_gae_old": {**base, "mode": "seq-mean-token-mean", "advantage": "gae", "episodes": "episodes_old.jsonl", "num_buckets": 6},
    "exact_task": {**base, "entropy_coef": 0.0, "kl_coef": 0.0},
    "paper_grpo": {**base, "profile": "paper"},
    "paper_ranks": {**base, "profile": "paper", "mode": "seq-mean-token-mean", "advantage": "gae", "ranks": 2, "num_buckets": 4,
                    "episodes": "episodes_old.jsonl"},
}
expected = {}
for name, c in cases.items():
    mine = [dict(r) for r in (mixed if "old" in c["episodes"] else rows)]
    with torch.no_grad():
        for r in mine:
            r["old"] = torch.tensor([x or 0.0 for x in r["logprobs"]], dtype=torch.float64) if "logprobs" in r else logprobs(model, r["ids"], c["temperature"])[0]
            r["ref"] = logprobs(reference, r["ids"], c["temperature"])[0]
    grpo(mine) if c["advantage"] == "grpo" else gae(mine, critic, 0.95)
    buckets = split(mine, c["num_buckets"], c["profile"])
    expected[name] = {"config": c, **(exact if c["profile"] == "exact" else paper)(model, c, mine, buckets)}
json.dump(expected, open(os.path.join(out, "expected.json"), "w"))
