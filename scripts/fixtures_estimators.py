#!/usr/bin/env python3
"""Makes orchestrate/study/laboratory/testdata/games.jsonl: random games with the mean and the second moment of each estimator's gradient.

    python scripts/fixtures_estimators.py orchestrate/study/laboratory/testdata [GAMES]

Needs numpy. In float64, from the published formulas, by listing all batches; it shares nothing with the Go code. An episode here is a list of
turns, a turn a list of decisions (observation, action, reward, value, energy). Of a gradient its product with cos(1), cos(2), … is kept.
"""
import itertools
import json
import math
import pathlib
import sys

import numpy as np

EPS = 1e-6


def softmax(logits):
    return [np.exp(np.array(row) - max(row)) / np.exp(np.array(row) - max(row)).sum() for row in logits]


def random_game(rng):
    states = int(rng.integers(1, 5))
    observations = int(rng.integers(1, states + 1))
    actions = [int(rng.choice([2, 2, 3])) for _ in range(observations)]
    game = {"name": "random", "about": "", "horizon": int(rng.integers(1, 4)), "states": [],
            "logits": [[round(float(v), 2) for v in rng.normal(0, 0.7, n)] for n in actions]}
    for s in range(states):
        seen = s if s < observations else int(rng.integers(observations))
        game["states"].append({"observation": seen, "actions": [outcomes(rng, states) for _ in range(actions[seen])]})
    starts = min(states, int(rng.choice([1, 1, 2])))
    game["start"] = [1 / starts if s < starts else 0 for s in range(states)]
    return game


def outcomes(rng, states):
    n = int(rng.choice([1, 1, 2]))
    chances = [1.0] if n == 1 else [0.25, 0.75]
    return [{"p": p, "reward": round(float(rng.choice([0, 0, 1, rng.normal()])), 1),
             "next": int(rng.integers(-1, states)), "turn": bool(rng.integers(2))} for p in chances]


def trajectories(game):
    """(start, decisions, chance of the outcomes, turns as index lists); a decision is (state, action, reward)."""
    found = []

    def go(state, decisions, turns, chance):
        for action, options in enumerate(game["states"][state]["actions"]):
            for o in options:
                over = o["next"] < 0 or len(decisions) + 1 == game["horizon"]
                more = turns[:-1] + [turns[-1] + [len(decisions)]]
                if not over and o["turn"]:
                    more = more + [[]]
                taken = decisions + [(state, action, o["reward"])]
                if over:
                    found.append((taken[0][0], taken, chance * o["p"], more))
                else:
                    go(o["next"], taken, more, chance * o["p"])

    for s, p in enumerate(game["start"]):
        if p > 0:
            go(s, [], [[]], 1.0)
    return found


class World:
    """A game with the policies that draw and learn."""

    def __init__(self, game, setup):
        self.game, self.setup = game, setup
        self.offsets = np.cumsum([0] + [len(row) for row in game["logits"]])
        self.paths = trajectories(game)
        self.now = softmax(game["logits"])
        self.truth = self.gradient(game["logits"])
        theta = np.concatenate([np.array(row, float) for row in game["logits"]])
        for _ in range(setup["age"]):
            g = self.gradient(self.rows(theta))
            theta = theta - 0.3 * g / math.sqrt(max(g @ g, 1e-30))
        self.old = softmax(self.rows(theta))
        self.chances = [self.chance(p, self.old) for p in self.paths]
        self.critic = {}

    def rows(self, theta):
        return [theta[a:b] for a, b in zip(self.offsets, self.offsets[1:])]

    def seen(self, state):
        return self.game["states"][state]["observation"]

    def chance(self, path, policy):
        return path[2] * math.prod(policy[self.seen(s)][a] for s, a, _ in path[1])

    def score(self, policy, state, action):
        v, o = np.zeros(self.offsets[-1]), self.seen(state)
        v[self.offsets[o]:self.offsets[o + 1]] = -policy[o]
        v[self.offsets[o] + action] += 1
        return v

    def gradient(self, logits):
        policy, total = softmax(logits), 0
        for path in self.paths:
            weight = self.game["start"][path[0]] * self.chance(path, policy) * sum(r for _, _, r in path[1])
            total = total + weight * sum(self.score(policy, s, a) for s, a, _ in path[1])
        return total

    def value(self, state, done):
        if self.setup["blind"] or done == self.game["horizon"]:
            return 0.0
        if (state, done) not in self.critic:
            worth = 0.0
            for action, options in enumerate(self.game["states"][state]["actions"]):
                for o in options:
                    after = self.value(o["next"], done + 1) if o["next"] >= 0 else 0.0
                    worth += self.old[self.seen(state)][action] * o["p"] * (o["reward"] + self.setup["discount"] * after)
            self.critic[state, done] = worth
        return self.critic[state, done]


class Episode:
    def __init__(self, world, path):
        _, decisions, _, turns = path
        self.turns = turns
        self.r = np.array([r for _, _, r in decisions])
        self.v = np.array([world.value(s, t) for t, (s, _, _) in enumerate(decisions)])
        self.energy = np.array([1 - 2 * world.now[world.seen(s)][a] + (world.now[world.seen(s)] ** 2).sum() for s, a, _ in decisions])
        self.score = np.array([world.score(world.now, s, a) for s, a, _ in decisions])
        self.anchors = [world.seen(decisions[turn[0]][0]) for turn in turns]
        self.R = self.r.sum()
        self.turn_r = [self.r[turn].sum() for turn in turns]
        self.turn_energy = [self.energy[turn].sum() for turn in turns]
        self.parts = [sum(self.turn_r[:-1]), self.turn_r[-1]]

    def spread(self, values):
        """One value per turn, on its tokens."""
        out = np.zeros(len(self.r))
        for turn, value in zip(self.turns, values):
            out[turn] = value
        return out

    def to_go(self, gamma):
        out, total = [], 0.0
        for r in reversed(self.turn_r):
            total = r + gamma * total
            out.append(total)
        return out[::-1]


def normal(values, keys, divide):
    """Less the mean of those with the same key, over their deviation; a single one stays."""
    out = []
    for value, key in zip(values, keys):
        own = np.array([v for v, k in zip(values, keys) if k == key])
        if len(own) == 1:
            out.append(value / (1 + EPS) if divide else value)
        elif own.min() == own.max():
            out.append(0.0)
        else:
            out.append((value - own.mean()) / ((own.std(ddof=1) + EPS) if divide else 1))
    return out


def gae(r, v, gamma, lam):
    n = len(r)
    delta = [r[t] + (gamma * v[t + 1] if t + 1 < n else 0) - v[t] for t in range(n)]
    return np.array([sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, n)) for t in range(n)])


def bi_level(e, gamma, lam):
    ends = [turn[-1] for turn in e.turns]
    high = gae(e.r[ends], e.v[ends], gamma, lam) + e.v[ends]
    out = np.zeros(len(e.r))
    for turn, target in zip(e.turns, high):
        r = e.r[turn].copy()
        r[-1] = target
        out[turn] = gae(r, e.v[turn], gamma, lam)
    return out


def discounted(r, gamma):
    return np.array([sum(gamma ** (k - t) * r[k] for k in range(t, len(r))) for t in range(len(r))])


def whiten(rows):
    flat = np.concatenate(rows)
    if len(flat) < 2:
        return [row - flat.mean() for row in rows]
    return [(row - flat.mean()) / math.sqrt(flat.var(ddof=1) + 1e-8) for row in rows]


def flat(batch, values):
    return [np.full(len(e.r), value) for e, value in zip(batch, values)]


def turn_keys(batch, groups, key):
    """Each turn's episode, and its key in its group."""
    where = [(i, k) for i, e in enumerate(batch) for k in range(len(e.turns))]
    return where, [(groups[i],) + key(batch[i], k) for i, k in where]


def by_turn(batch, where, values):
    rows = [[0.0] * len(e.turns) for e in batch]
    for (i, k), value in zip(where, values):
        rows[i][k] = value
    return rows


def against_others(batch, groups, gamma, weights):
    out = []
    for i, e in enumerate(batch):
        mates = [j for j in range(len(batch)) if j != i and groups[j] == groups[i]]
        own, row = e.to_go(gamma), []
        for k in range(len(e.turns)):
            baseline = 0.0
            for back in range(k, -1, -1):
                there = [j for j in mates if len(batch[j].turns) > back and weights(batch[j], back) > 0]
                if there:
                    baseline = np.average([batch[j].to_go(gamma)[back] for j in there], weights=[weights(batch[j], back) for j in there])
                    break
            row.append(own[k] - baseline)
        out.append(e.spread(row))
    return out


def token_baseline(batch, groups):
    out = []
    for i, e in enumerate(batch):
        row = []
        for j in range(len(e.r)):
            reach = [o for o, g in zip(batch, groups) if g == groups[i] and len(o.r) > j]
            weight = [o.energy[:j + 1].sum() for o in reach]
            baseline = sum(w * o.r[j:].sum() for w, o in zip(weight, reach)) / (sum(weight) + 1e-8) if len(reach) > 1 else 0
            row.append(e.r[j:].sum() - baseline)
        out.append(np.array(row))
    return out


def james_stein(batch, groups):
    returns, out = np.array([e.R for e in batch]), []
    for i in range(len(batch)):
        mates = [returns[j] for j in range(len(batch)) if groups[j] == groups[i] and j != i]
        rest = [np.array([returns[j] for j in range(len(batch)) if groups[j] == g]) for g in sorted(set(groups) - {groups[i]})]
        share = 0.0
        if len(rest) >= 2:
            pooled = np.mean([o.var(ddof=1) for o in rest])
            v = pooled / len(mates)
            tau = max(0.0, np.var([o.mean() for o in rest], ddof=1) - np.mean([o.var(ddof=1) / len(o) for o in rest]))
            share = v / (v + tau) if v + tau > 0 else 0.0
        prior = np.mean([o.mean() for o in rest]) if rest else 0.0
        out.append(returns[i] - (1 - share) * np.mean(mates) - share * prior)
    return out


def advantages(name, batch, groups, setup, linear):
    gamma, lam, divide = setup["discount"], setup["lambda"], not linear
    returns = [e.R for e in batch]
    white = whiten if divide else (lambda rows: rows)
    index = lambda e, k: (k,)
    if name == "gae":
        return white([gae(e.r, e.v, gamma, lam) for e in batch])
    if name == "bi_level_gae":
        return white([bi_level(e, gamma, lam) for e in batch])
    if name == "reinforce":
        return [discounted(e.r, gamma) for e in batch]
    if name == "reinforce_pp":
        return white([discounted(e.r, gamma) for e in batch])
    if name == "grpo":
        return flat(batch, normal(returns, groups, divide))
    if name == "brpo":
        return flat(batch, normal(returns, [0] * len(batch), divide))
    if name == "reinforce_pp_baseline":
        return white(flat(batch, normal(returns, groups, False)))
    if name == "rloo":
        return flat(batch, [r - np.mean([o for j, o in enumerate(returns) if j != i and groups[j] == groups[i]]) for i, r in enumerate(returns)])
    if name == "gdpo":
        parts = [normal([e.parts[k] for e in batch], groups, divide) for k in range(2)]
        return white(flat(batch, np.sum(parts, axis=0)))
    if name == "optimal_token_baseline":
        return token_baseline(batch, groups)
    if name == "james_stein":
        return flat(batch, james_stein(batch, groups))
    if name == "turn_rloo":
        return against_others(batch, groups, gamma, lambda e, k: 1.0)
    if name == "optimal_turn_baseline":
        return against_others(batch, groups, gamma, lambda e, k: e.turn_energy[k])
    if name == "turn_grpo":
        where, keys = turn_keys(batch, groups, index)
        rows = by_turn(batch, where, normal([batch[i].to_go(gamma)[k] for i, k in where], keys, divide))
        return [e.spread(row) for e, row in zip(batch, rows)]
    if name == "mt_grpo":
        where, keys = turn_keys(batch, groups, lambda e, k: ("outcome",) if k == len(e.turns) - 1 else (k,))
        rows = by_turn(batch, where, normal([batch[i].turn_r[k] for i, k in where], keys, divide))
        return [e.spread(discounted(row, gamma)) for e, row in zip(batch, rows)]
    if name == "gigpo":
        where, keys = turn_keys(batch, groups, lambda e, k: (e.anchors[k],))
        steps = normal([batch[i].to_go(gamma)[k] for i, k in where], keys, divide)
        rows = by_turn(batch, where, [s if keys.count(key) > 1 else 0.0 for s, key in zip(steps, keys)])
        whole = normal(returns, groups, divide)
        return [w + e.spread(row) for w, e, row in zip(whole, batch, rows)]
    raise KeyError(name)


NAMES = ["gae", "bi_level_gae", "grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "brpo", "gdpo", "optimal_token_baseline", "reinforce",
         "james_stein", "gigpo", "mt_grpo", "turn_grpo", "turn_rloo", "optimal_turn_baseline"]


def token_weights(batch, how, horizon):
    lengths = np.array([len(e.r) for e in batch])
    n = len(batch)
    return {"token-mean": np.full(n, 1 / lengths.sum()), "token-sum": np.ones(n), "seq-mean-token-sum": np.full(n, 1 / n),
            "seq-mean-token-mean": 1 / n / lengths, "seq-mean-token-sum-norm": np.full(n, 1 / horizon)}[how]


def repeated(chances, size):
    """Multisets of a size with their probabilities."""
    for chosen in itertools.combinations_with_replacement(range(len(chances)), size):
        ways = math.factorial(size)
        for i in set(chosen):
            ways //= math.factorial(chosen.count(i))
        yield chosen, ways * math.prod(chances[i] for i in chosen)


def group_outcomes(world):
    for s, p in enumerate(world.game["start"]):
        own = [i for i, path in enumerate(world.paths) if path[0] == s]
        if p > 0:
            for chosen, chance in repeated([world.chances[i] for i in own], world.setup["size"]):
                yield [own[i] for i in chosen], p * chance


def moments(world):
    setup = world.setup
    episodes = [Episode(world, path) for path in world.paths]
    outcomes = list(group_outcomes(world))
    direction = np.cos(np.arange(1, world.offsets[-1] + 1))
    mean = {(name, linear): np.zeros(world.offsets[-1]) for name in NAMES for linear in (False, True)}
    square = dict.fromkeys(mean, 0.0)
    for chosen, chance in repeated([p for _, p in outcomes], setup["groups"]):
        batch = [episodes[i] for k in chosen for i in outcomes[k][0]]
        groups = [g for g in range(setup["groups"]) for _ in range(setup["size"])]
        weights = token_weights(batch, setup["aggregation"], world.game["horizon"])
        for name, linear in mean:
            rows = advantages(name, batch, groups, setup, linear)
            g = sum(w * (row @ e.score) for w, row, e in zip(weights, rows, batch))
            mean[name, linear] += chance * g
            square[name, linear] += chance * (g @ g)
    return {name: [float(f"{v:.14g}") for linear in (False, True) for v in (mean[name, linear] @ direction, square[name, linear])]
            for name in NAMES}, float(world.truth @ direction)


def main():
    out, wanted = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40
    out.mkdir(exist_ok=True)
    rng, lines = np.random.default_rng(7), []
    while len(lines) < wanted:
        game, groups = random_game(rng), int(rng.choice([1, 1, 2, 3]))
        setup = {"groups": groups, "size": int(rng.integers(2, 4)) if groups == 1 else 2, "discount": float(rng.choice([1, 1, 0.9])),
                 "lambda": float(rng.choice([1, 0.7])), "blind": bool(rng.integers(2)), "age": int(rng.choice([0, 0, 2])),
                 "aggregation": str(rng.choice(["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]))}
        if not 3 <= len(trajectories(game)) <= [14, 8, 5][groups - 1]:
            continue
        world = World(game, setup)
        if world.truth @ world.truth < 1e-4:
            continue
        estimators, truth = moments(world)
        lines.append(json.dumps({"game": game, "setup": setup, "truth": truth, "estimators": estimators}) + "\n")
    (out / "games.jsonl").write_text("".join(lines))


main()
