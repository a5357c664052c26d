#!/usr/bin/env python3
"""Holds losses, corrections and advantage estimators against definitions in float64, and against verl's and TRL's, on
random multi-turn batches.

    python3 scripts/check_losses.py [--batches 1000] [--verl DIR] [--trl]

Needs PyTorch, and with --trl TRL: GRPOTrainer's loss is run with given log-probs in place of a model, and its correction
for vLLM, which is no function, is taken out of its source. DIR holds verl's package (pip download verl --no-deps, unpacked): its trainer/ppo/core_algos.py is run
on the same batches; libraries that it imports for other ends may be missing (verl's gdpo is in float32: 1e-4). Derivatives are autograd's, of the
formulas of values in docs/losses.md. Gyre computes each batch through configuration, correction, aggregation and
backward pass: the tests TestLossesOfGivenCases and TestGivenCases read the batches. Prints a table; exits with 1 where
anything differs by more than 1e-5 of the largest derivative."""
import argparse, importlib, json, math, os, random, subprocess, sys, tempfile, types
from collections import Counter

import numpy
import torch

torch.set_default_dtype(torch.float64)
PRESETS = {
    "none": {}, "token_tis": dict(correction="truncate", high=2), "seq_tis": dict(correction="truncate", level="sequence", high=2),
    "geometric_tis": dict(correction="truncate", level="geometric", low=0.9, high=1.1),
    "token_icepop": dict(correction="mask", low=0.5, high=5), "token_rs": dict(reject="token", reject_low=0.7, reject_high=1.4),
    "seq_mis": dict(correction="truncate", level="sequence", high=2, reject="sequence", reject_low=0.5, reject_high=2),
    "geo_rs": dict(reject="geometric", reject_low=0.97, reject_high=1.03),
    "k3_rs_token_tis": dict(correction="truncate", high=2, reject="k3", reject_high=0.01),
}
LOSSES = ["ppo", "decoupled_ppo", "gspo", "cispo", "sapo", "dppo", "clip_cov", "kl_cov", "importance_sampling", "dro"]
single = lambda v: torch.tensor(v, dtype=torch.float32).double().item()


def turns(draw, tokens):
    """A mask of three to five replies between observations."""
    mask = []
    for _ in range(draw.randint(3, 5)):
        mask += [0] * draw.randint(1, 2) + [1] * draw.randint(1, 3)
    mask += [0] * draw.randint(0, 1)
    return mask[:tokens]


def weights(p, b, m, o):
    """Importance weights, and the mask that rejection leaves."""
    e, n = p - b, m.sum(-1, keepdim=True).clamp(min=1)
    cap = lambda v: v.clamp(-20, 20)
    levels = {"token": cap(e), "sequence": cap((e * m).sum(-1, keepdim=True)).expand_as(e),
              "geometric": cap((e * m).sum(-1, keepdim=True) / n).expand_as(e)}
    w = levels[o.get("level", "token")].exp()
    low, high = o.get("low", 0.0), o.get("high", 2.0)
    correction = o.get("correction", "none")
    if correction == "truncate":
        w = w.clamp(low, high)
    elif correction == "mask":
        w = torch.where((w >= low) & (w <= high), w, torch.zeros_like(w))
    elif not o.get("always"):
        w = torch.ones_like(w)
    kept, reject = m.clone(), o.get("reject", "none")
    if reject == "k3":
        z = cap(e)
        inside = (((z.exp() - 1 - z) * m).sum(-1, keepdim=True) / n <= o["reject_high"]).expand_as(e)
    elif reject != "none":
        z = cap(e)
        z = {"token": z, "sequence": cap((z * m).sum(-1, keepdim=True)), "geometric": (z * m).sum(-1, keepdim=True) / n}[reject]
        inside = ((z.exp() >= o["reject_low"]) & (z.exp() <= o["reject_high"])).expand_as(e)
    if reject != "none":
        kept = m * inside
    return w, kept


def values(loss, c, x, p, b, A, m, chosen):
    """v of each token; x alone is differentiated."""
    d = (x - p).clamp(-20, 20)
    r = d.exp()
    low, high = 1 - c.get("clip_low", 0.2), 1 + c.get("clip_high", 0.28)
    clipped = lambda ratio: torch.maximum(-A * ratio, -A * ratio.clamp(low, high))
    if loss in ("ppo", "decoupled_ppo"):
        u = clipped(r)
        return torch.where(A < 0, torch.minimum(u, -A * c["clip_dual"]), u) if c["clip_dual"] else u
    if loss == "gspo":
        s = ((x - p) * m).sum(-1, keepdim=True) / m.sum(-1, keepdim=True).clamp(min=1)
        return clipped(s.detach().clamp(max=10).exp() * (x - x.detach()).exp())
    if loss == "cispo":
        return -r.clamp(low, high).detach() * A * x
    if loss == "sapo":
        tau = torch.where(A > 0, torch.tensor(c["sapo_tau_pos"]), torch.tensor(c["sapo_tau_neg"]))
        return -A * 4 / tau * torch.sigmoid(tau * (r - 1))
    if loss == "dppo":
        pi, o = x.detach().exp(), p.exp()
        if c["dppo_divergence"] == "tv":
            left = torch.where(A > 0, pi - o > c["dppo_high"], o - pi > c["dppo_low"])
        else:
            D = o * (p - x.detach()) + (1 - o) * ((1 - o + 1e-8) / (1 - pi + 1e-8)).log()
            left = torch.where(A > 0, (pi > o) & (D > c["dppo_high"]), (pi < o) & (D > c["dppo_low"]))
        return torch.where(left, torch.zeros_like(x), -r.clamp(max=c["dppo_cap"]).detach() * A * x)
    if loss == "clip_cov":
        return clipped(r) * (1 - chosen)
    if loss == "kl_cov":
        return -A * r + c["kl_cov_coef"] * (x - p).abs() * chosen
    if loss == "importance_sampling":
        return -A * (x - b).clamp(-20, 20).exp()
    return -(A * x - c["dro_beta"] / 2 * (x - b) ** 2)


def covariance(x, A, m):
    n = m.sum()
    return (A - (A * m).sum() / n) * (x.detach() - (x.detach() * m).sum() / n)


def eligible(loss, c, x, p, A, m):
    """Tokens that clip_cov may draw, or the ones that kl_cov takes."""
    cov = covariance(x, A, m)
    if loss == "kl_cov":
        order = sorted(((-cov[i, t].item(), i, t) for i, t in m.nonzero().tolist()))
        return [[i, t] for _, i, t in order[: max(1, int(c["kl_cov_ratio"] * m.sum().item()))]]
    r = (x - p).clamp(-20, 20).exp()
    free = -A * r.clamp(1 - c["clip_low"], 1 + c["clip_high"]) <= -A * r
    return (m.bool() & free & (cov > c["clip_cov_low"]) & (cov < c["clip_cov_high"])).nonzero().tolist()


def aggregate(v, w, m, mode):
    n = m.sum(-1, keepdim=True)
    if m.sum() == 0:
        return (v * 0).sum()
    if mode == "token-mean":
        return (v * w * m).sum() / m.sum()
    if mode == "seq-mean-token-sum-norm":
        return (v * w * m).sum() / m.shape[1]
    return (v * w * m / n.clamp(min=1)).sum() / (n > 0).sum()


def constants(draw, loss):
    u = lambda low, high: round(draw.uniform(low, high), 3)
    c = {"clip_low": u(0.05, 0.4), "clip_high": u(0.05, 0.5)}
    if loss in ("ppo", "decoupled_ppo"):
        c["clip_dual"] = draw.choice([0, u(1.1, 3)])
    if loss == "gspo":
        c = {"clip_low": u(0.005, 0.05), "clip_high": u(0.005, 0.05)}
    if loss == "cispo" and draw.random() < 0.3:
        c["clip_low"] = 1
    if loss == "sapo":
        c = {"sapo_tau_pos": u(0.5, 2), "sapo_tau_neg": u(0.5, 2)}
    if loss == "dppo":
        tv = draw.random() < 0.5
        edge = (0.01, 0.2) if tv else (0.001, 0.05)
        c = {"dppo_divergence": "tv" if tv else "kl", "dppo_low": u(*edge), "dppo_high": u(*edge), "dppo_cap": u(1.1, 5)}
    if loss == "clip_cov":
        c |= {"clip_cov_ratio": u(0.02, 0.3), "clip_cov_low": u(0.05, 0.5), "clip_cov_high": u(1, 5)}
    if loss == "kl_cov":
        c = {"kl_cov_ratio": u(0.02, 0.3), "kl_cov_coef": u(0, 2)}
    if loss == "dro":
        c = {"dro_beta": u(0.01, 2)}
    return c


def result(loss, c, data, chosen, mode, shift=0.0):
    p, b, A, m, o = data["p"], data["b"], data["A"], data["m"], data["o"]
    w, kept = weights(p, b, m, o)
    x = (data["x"] + shift).requires_grad_(True)
    total = aggregate(values(loss, c, x, p, b, A, kept, chosen), w, kept, mode)
    return total.item(), torch.autograd.grad(total, x)[0], w, kept


def loss_case(draw, number, loss):
    """A batch that is not within rounding of an edge."""
    while True:
        rows = [turns(draw, 14) for _ in range(draw.randint(2, 6))]
        width = max(map(len, rows))
        fill = lambda make: torch.tensor([[single(make(t < len(r))) for t in range(width)] for r in rows])
        x = fill(lambda _: max(-7, min(-0.03, -draw.expovariate(0.7))))
        spread = draw.choice([0.02, 0.2, 0.6])
        p = (x + fill(lambda _: draw.gauss(0, spread))).clamp(max=-0.01).float().double()
        plain = loss in ("importance_sampling", "dro")
        o = {} if plain else PRESETS[draw.choice(list(PRESETS) if loss != "decoupled_ppo" else ["none", "token_tis", "token_icepop"])]
        apart = loss == "decoupled_ppo" or o or plain
        b = (p + fill(lambda _: draw.gauss(0, 0.02 if o.get("reject") else 0.3))).clamp(max=-0.01).float().double() if apart else p
        A = fill(lambda _: draw.choice([0, 1, -1, draw.gauss(0, 1), draw.gauss(0, 2)]))
        m = torch.tensor([r + [0] * (width - len(r)) for r in rows], dtype=torch.float64)
        c = constants(draw, loss)
        data = dict(x=x, p=p, b=b, A=A, m=m, o=dict(o, always=loss == "decoupled_ppo"))
        kept = weights(p, b, m, data["o"])[1]
        if kept.sum() < 2:
            continue
        chosen, may, taken = torch.zeros_like(x), [], []
        jitter = torch.tensor([[draw.choice([-2e-6, 2e-6]) for _ in range(width)] for _ in rows])
        if loss in ("clip_cov", "kl_cov"):
            may = eligible(loss, c, x, p, A, kept)
            if any(may != eligible(loss, c, x + s * jitter, p, A, kept) for s in (1, -1)):
                continue
            count = min(len(may), max(1, math.floor(c.get("clip_cov_ratio", 0) * kept.sum().item())))
            taken = may if loss == "kl_cov" else draw.sample(may, count)
            for i, t in taken:
                chosen[i, t] = 1
        out, safe = {}, True
        for name, mode in (("token_mean", "token-mean"), ("seq_mean_token_mean", "seq-mean-token-mean")):
            total, grad, w, kept = result(loss, c, data, chosen, mode)
            for s in (1, -1):
                other = result(loss, c, data, chosen, mode, s * jitter)[1]
                safe &= (other - grad).abs().max().item() <= 1e-4 * max(grad.abs().max().item(), 1e-6)
            out[name] = {"loss": total, "grad": grad.tolist()}
        if not safe:
            continue
        cut = lambda v: [row[: len(r)] for row, r in zip(v.tolist(), rows)]
        for name in out:
            out[name]["grad"] = [g[: len(r)] for g, r in zip(out[name]["grad"], rows)]
        case = dict(id=f"{loss}-{number}", loss=loss, constants=c, importance=o, logp=cut(x), proximal=cut(p), behaviour=cut(b),
                    advantages=cut(A), mask=rows, eligible=may if loss == "clip_cov" else [], selected=taken if loss == "clip_cov" else [],
                    **out)
        return case, dict(data, chosen=chosen, c=c, loss=loss, may=may, taken=taken)


# ---- advantages ----

def whiten(rows, masks):
    flat = [a for r, m in zip(rows, masks) for a, k in zip(r, m) if k]
    mean = math.fsum(flat) / len(flat)
    var = math.fsum((a - mean) ** 2 for a in flat) / (len(flat) - 1)
    return [[(a - mean) / math.sqrt(var + 1e-8) if k else 0 for a, k in zip(r, m)] for r, m in zip(rows, masks)]


def standard(scores, groups, divide):
    out = []
    for s, g in zip(scores, groups):
        all_ = [t for t, h in zip(scores, groups) if h == g]
        mean = math.fsum(all_) / len(all_) if len(all_) > 1 else 0
        dev = math.sqrt(math.fsum((t - mean) ** 2 for t in all_) / (len(all_) - 1)) if len(all_) > 1 else 1
        out.append((s - mean) / (dev + 1e-6) if divide else s - mean)
    return out


def estimate(name, rows, o):
    masks, groups = [r["mask"] for r in rows], [r["group"] for r in rows]
    scores = [math.fsum(r["rewards"]) for r in rows]
    spread = lambda per: [[a if k else 0 for k in m] for a, m in zip(per, masks)]
    if name == "grpo":
        a = spread(standard(scores, groups, o["norm_by_std"]))
        return a, a
    if name == "rloo":
        per = []
        for i, (s, g) in enumerate(zip(scores, groups)):
            rest = [t for j, (t, h) in enumerate(zip(scores, groups)) if h == g and j != i]
            per.append(s - math.fsum(rest) / len(rest) if rest else s)
        return (a := spread(per)), a
    if name == "reinforce_pp_baseline":
        a = whiten(spread(standard(scores, groups, False)), masks)
        return a, a
    if name == "gdpo":
        per = [0.0] * len(rows)
        for part, weight in o["weights"].items():
            for i, v in enumerate(standard([r["parts"][part] for r in rows], groups, o["norm_by_std"])):
                per[i] += weight * v
        a = whiten(spread(per), masks)
        return a, a
    A, R = [], []
    for r in rows:
        a, ret, G, value = [0.0] * len(r["mask"]), [0.0] * len(r["mask"]), 0.0, 0.0
        for t in reversed(range(len(a))):
            if not r["mask"][t]:
                continue
            if name == "gae":
                G = r["rewards"][t] + o["gamma"] * value - r["values"][t] + o["gamma"] * o["lambda"] * G
                value = r["values"][t]
                a[t], ret[t] = G, G + value
            else:
                G = r["rewards"][t] + (o["gamma"] if name == "reinforce_pp" else 1) * G
                a[t] = ret[t] = G
        A.append(a), R.append(ret)
    if name != "optimal_token_baseline":
        return whiten(A, masks), R
    at = [[t for t, k in enumerate(m) if k] for m in masks]
    E = [[math.fsum(r["energies"][t] for t in places[: j + 1]) for j in range(len(places))] for r, places in zip(rows, at)]
    out = [list(a) for a in A]
    for i, places in enumerate(at):
        for j, t in enumerate(places):
            own = [k for k in range(len(rows)) if groups[k] == groups[i] and len(at[k]) > j]
            if len(own) > 1:
                out[i][t] -= math.fsum(E[k][j] * A[k][at[k][j]] for k in own) / (math.fsum(E[k][j] for k in own) + 1e-8)
    return out, R


ESTIMATORS = ["grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "gae", "gdpo", "optimal_token_baseline"]


def advantage_case(draw, number, name):
    rows, end = [], draw.random() < 0.5
    for _ in range(draw.randint(4, 10)):
        mask = turns(draw, 30)
        last = [t for t, k in enumerate(mask) if k and (t + 1 == len(mask) or not mask[t + 1])]
        rewards = [0.0] * len(mask)
        for t in last[-1:] if end else last:
            rewards[t] = draw.choice([0.0, 1.0, -0.1, 10.9, draw.gauss(0, 1)])
        rows.append(dict(group=draw.randrange(3), mask=mask, rewards=rewards, values=[draw.gauss(0, 1) for _ in mask],
                         energies=[draw.uniform(0.01, 1) for _ in mask], parts={k: single(draw.gauss(0, 1)) for k in "ab"}))
    o = {"norm_by_std": draw.random() < 0.5, "gamma": draw.choice([1.0, 0.99, 0.9]), "lambda": draw.choice([1.0, 0.95, 0.5]),
         "weights": {"a": 0.75, "b": 1.5} if name == "gdpo" else {}}
    a, r = estimate(name, rows, o)
    keep = r if name in ("gae", "reinforce_pp") else []
    return dict(id=f"{name}-{number}", estimator=name, rows=rows, advantages=a, returns=keep, **o), o


# ---- verl ----

def load_verl(folder):
    class Missing(types.ModuleType):
        __path__ = []
        def __getattr__(self, key):
            if key.startswith("__"):
                raise AttributeError(key)
            return Config if key in ("ActorConfig",) else type(key, (), {})
    class Config(types.SimpleNamespace):
        def get(self, key, default=None):
            return getattr(self, key, default)
    sys.path.insert(0, folder)
    utils = Missing("verl.utils")
    utils.as_torch_index = lambda index, device=None: torch.as_tensor(index)
    for name in ("verl", "omegaconf", "verl.trainer", "verl.trainer.ppo", "verl.trainer.config", "verl.workers", "verl.workers.config"):
        sys.modules[name] = Missing(name)
    sys.modules["verl.utils"] = utils
    mend = Missing("verl.utils.import_utils")
    mend.deprecated = lambda *_, **__: lambda f: f
    sys.modules["verl.utils.import_utils"] = mend
    import ast
    math_ = types.ModuleType("verl.utils.torch_functional")
    source = open(os.path.join(folder, "verl/utils/torch_functional.py")).read()
    wanted = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name.startswith("masked_")]
    exec("import torch\n" + "\n".join(ast.unparse(n) for n in wanted), math_.__dict__)
    sys.modules["verl.utils.torch_functional"] = utils.torch_functional = math_
    sys.modules["verl"].utils = utils
    sys.modules["verl.trainer.config"].AlgoConfig = type("AlgoConfig", (), {})
    spec = importlib.util.spec_from_file_location("core_algos", os.path.join(folder, "verl/trainer/ppo/core_algos.py"))
    core = importlib.util.module_from_spec(spec)
    sys.modules["core_algos"] = core
    spec.loader.exec_module(core)
    return core, Config


def verl_loss(core, Config, d, mode):
    """verl's loss and derivative; None where it has none of the name, or another definition on purpose."""
    c, loss, o = d["c"], d["loss"], d["o"]
    name = {"ppo": "vanilla", "decoupled_ppo": "vanilla", "dppo": "dppo_" + c.get("dppo_divergence", "")}.get(loss, loss)
    if name == "importance_sampling" or name == "sapo" and mode == "token-mean":
        return None
    p, w, kept = d["b"] if loss == "dro" else d["p"], *weights(d["p"], d["b"], d["m"], o)
    config = Config(clip_ratio=0.2, clip_ratio_low=c.get("dppo_low", c.get("clip_low")), clip_ratio_high=c.get("dppo_high", c.get("clip_high")),
                    clip_ratio_c=c.get("dppo_cap", c.get("clip_dual") or 1e9), tau_pos=c.get("sapo_tau_pos"), tau_neg=c.get("sapo_tau_neg"),
                    global_batch_info={}, policy_loss=Config(clip_cov_ratio=c.get("clip_cov_ratio"), clip_cov_lb=c.get("clip_cov_low"),
                    clip_cov_ub=c.get("clip_cov_high"), kl_cov_ratio=c.get("kl_cov_ratio"), ppo_kl_coef=c.get("kl_cov_coef"), dro_beta=c.get("dro_beta")))
    x = d["x"].clone().requires_grad_(True)
    plain = torch.randperm
    places = [d["may"].index(q) for q in d["taken"]] if loss == "clip_cov" else []
    torch.randperm = lambda n: torch.tensor(places + [k for k in range(n) if k not in places])
    try:
        total, _ = core.get_policy_loss_fn(name)(old_log_prob=p, log_prob=x, advantages=d["A"], response_mask=kept, loss_agg_mode=mode,
                                                 config=config, rollout_is_weights=w)
    finally:
        torch.randperm = plain
    return total.item(), torch.autograd.grad(total, x)[0]


def verl_advantages(core, Config, case, o):
    name, rows = case["estimator"], case["rows"]
    width = max(len(r["mask"]) for r in rows)
    pad = lambda key: torch.tensor([[float(v) for v in r[key]] + [0.0] * (width - len(r["mask"])) for r in rows])
    rewards, mask, index = pad("rewards"), pad("mask"), [r["group"] for r in rows]
    index = numpy.array(index)
    common = dict(token_level_rewards=rewards, response_mask=mask)
    if name == "gae":
        a, r = core.compute_gae_advantage_return(rewards, pad("values"), mask, o["gamma"], o["lambda"])
    elif name == "grpo":
        a, r = core.compute_grpo_outcome_advantage(**common, index=index, norm_adv_by_std_in_grpo=o["norm_by_std"])
    elif name == "rloo":
        a, r = core.compute_rloo_outcome_advantage(**common, index=index)
    elif name == "reinforce_pp":
        a, r = core.compute_reinforce_plus_plus_outcome_advantage(**common, config=Config(gamma=o["gamma"]))
    elif name == "reinforce_pp_baseline":
        a, r = core.compute_reinforce_plus_plus_baseline_outcome_advantage(**common, index=index, config=Config())
    elif name == "optimal_token_baseline":
        half = ((1 - pad("energies")) / 2).clamp(min=1e-9)  # energy = 1 - 2 pi + sum of squares
        a, r = core.compute_multi_turn_optimal_token_baseline_advantage(**common, index=index, old_log_probs=half.log(),
                                                                        sum_pi_squared=torch.zeros_like(rewards))
    else:
        parts = {k: [r["parts"][k] for r in rows] for k in o["weights"]}
        a, r = core.compute_gdpo_outcome_advantage(
            **common, index=index, norm_adv_by_std_in_grpo=o["norm_by_std"], non_tensor_batch=parts,
            config=Config(gdpo_reward_keys=list(parts), gdpo_reward_weights=list(o["weights"].values())),
            batch={"prompts": torch.zeros(len(rows), 0), "attention_mask":
                   torch.tensor([[1] * len(r["mask"]) + [0] * (width - len(r["mask"])) for r in rows])})
    return a * mask


# ---- TRL ----

# A row of the table, what it is here, and what TRL calls it. TRL's dr_grpo also divides by the number of sequences.
TRL = {"grpo": ("ppo", "seq-mean-token-mean", {}), "bnpo": ("ppo", "token-mean", {}), "dapo": ("ppo", "token-mean", {}),
       "dr_grpo": ("ppo", "seq-mean-token-sum-norm", {}), "cispo": ("cispo", "token-mean", {}), "sapo": ("sapo", "seq-mean-token-mean", {}),
       "gspo/grpo": ("gspo", "seq-mean-token-mean", {"importance_sampling_level": "sequence"}),
       "gspo/bnpo": ("gspo", "token-mean", {"importance_sampling_level": "sequence"})}
VLLM = {"": {}, "token_truncate": dict(correction="truncate", low=0.0), "token_mask": dict(correction="mask"),
        "sequence_truncate": dict(correction="truncate", level="sequence", low=0.0),
        "sequence_mask": dict(correction="mask", level="sequence")}


def load_trl():
    """TRL's loss, and its correction as a function of (self, mask, old and sampling log-probs)."""
    import ast
    from trl.trainer import grpo_trainer
    for node in ast.walk(ast.parse(open(grpo_trainer.__file__).read())):
        if isinstance(node, ast.If) and "vllm_importance_sampling_correction" in ast.unparse(node.test) and \
                "per_sequence_logps_diff" in ast.unparse(node):
            code = compile(ast.unparse(node), "correction", "exec")
    def correct(self, mask, old, sampling):
        names = dict(torch=torch, math=math, self=self, completion_mask=mask, tool_mask=None, old_per_token_logps=old,
                     sampling_per_token_logps=sampling)
        exec(code, names)
        return names["vllm_importance_sampling_ratio"]
    return grpo_trainer.GRPOTrainer, correct


def trl_distance(trl, draw, number, name):
    """How far TRL's loss and derivative are from the definition's, on a batch that both know."""
    from collections import defaultdict
    Trainer, correct = trl
    loss, mode, more = TRL[name]
    d = loss_case(draw, number, loss)[1]
    c, how = dict(d["c"]), draw.choice([k for k in VLLM if loss != "gspo" or not k.startswith("token")])
    o = VLLM[how] and dict(VLLM[how], low=VLLM[how].get("low", 0.5), high=2.0)
    if loss == "cispo":
        c["clip_low"] = 1  # TRL has no lower bound
    if c.get("clip_dual", 0) < 1 + c.get("clip_high", 0):
        c["clip_dual"] = 0  # delta is another thing there
    A = d["A"][:, :1].expand_as(d["A"]).contiguous() if loss == "gspo" else d["A"]  # a sequence's ratio has one advantage, and one weight
    b = (d["p"] + torch.tensor([[draw.gauss(0, 0.3) for _ in r] for r in d["p"].tolist()])).clamp(max=-0.01)
    total, grad, _, _ = result(loss, c, dict(d, A=A, b=b, o=o), d["chosen"], mode)
    x, t = d["x"].clone().requires_grad_(True), object.__new__(Trainer)
    t.__dict__.update(
        model=types.SimpleNamespace(training=False), _metrics=defaultdict(lambda: defaultdict(list)), aux_loss_enabled=False,
        accelerator=types.SimpleNamespace(num_processes=1, gather=lambda v: v, reduce=lambda v, reduction: v),
        _get_per_token_logps_and_entropies=lambda *_, **__: (x, torch.zeros_like(x), None), top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level="token", beta=0.0, loss_type=name.split("/")[-1],
        epsilon_low=c.get("clip_low"), epsilon_high=1 + c["clip_high"] if loss == "cispo" else c.get("clip_high"), use_vllm=how != "",
        vllm_importance_sampling_correction=True, vllm_importance_sampling_mode=how, vllm_importance_sampling_clip_min=o.get("low"),
        vllm_importance_sampling_clip_max=o.get("high"), max_completion_length=x.shape[1], _entropy_bonus_enabled=False,
        args=types.SimpleNamespace(delta=c.get("clip_dual") or None, sapo_temperature_pos=c.get("sapo_tau_pos"),
                                   sapo_temperature_neg=c.get("sapo_tau_neg")))
    t.__dict__.update(more)
    inputs = dict(prompt_ids=torch.zeros(len(x), 1), prompt_mask=torch.ones(len(x), 1), completion_ids=torch.zeros_like(x),
                  completion_mask=d["m"], advantages=A, old_per_token_logps=d["p"], num_items_in_batch=d["m"].sum())
    if how:
        inputs["importance_sampling_ratio"] = correct(t, d["m"], d["p"], b)
    theirs = t._compute_loss(t.model, inputs) * (len(x) if name == "dr_grpo" else 1)
    size = max(grad.abs().max().item(), 1e-3)
    return max((torch.autograd.grad(theirs, x)[0] - grad).abs().max().item() / size, abs(theirs.item() - total) / max(1, abs(total)))


def support_distance(draw):
    """How far TRL's reverse KL over some tokens and a tail, and its gradient, are from kl_top_k's in docs/losses.md."""
    from trl.experimental.sdpo.loss_utils import add_tail_bucket, compute_divergence
    vocab = draw.randint(8, 60)
    fill = lambda: torch.tensor([[draw.gauss(0, 2) for _ in range(vocab)] for _ in range(3)])
    z = fill().requires_grad_(True)
    x, y = z.log_softmax(1), fill().log_softmax(1)
    ids = y.topk(draw.randint(1, vocab // 2), 1).indices
    theirs = compute_divergence(add_tail_bucket(x.gather(1, ids)), add_tail_bucket(y.gather(1, ids)), 1.0).sum()
    p, q, inside = x.detach().exp(), y.exp(), torch.zeros_like(y).scatter(1, ids, 1).bool()
    others = lambda v: v.masked_fill(inside, 0).sum(1, keepdim=True).log()
    c = torch.where(inside, x.detach() - y, others(p) - others(q))
    D = (p * c).sum(1, keepdim=True)
    return max((torch.autograd.grad(theirs, z)[0] - p * (c - D)).abs().max().item(), abs(theirs.item() - D.sum().item()))


def go_test(package, test, variable, path):
    done = subprocess.run(["go", "test", package, "-count=1", "-run", f"^{test}$"], env=dict(os.environ, **{variable: path}),
                          capture_output=True, text=True)
    return done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--batches", type=int, default=1000)
    args.add_argument("--verl")
    args.add_argument("--trl", action="store_true")
    args.add_argument("--only", help="one loss or estimator")
    args = args.parse_args()
    core, Config = load_verl(args.verl) if args.verl else (None, None)
    wrong, folder = False, tempfile.mkdtemp()
    print(f"{'name':24}{'batches':>9}{'Gyre':>8}{'verl':>8}   largest distance from verl")
    for kind, names in (("loss", LOSSES), ("advantage", ESTIMATORS)):
        for name in names:
            if args.only not in (None, name):
                continue
            draw, path = random.Random(name), os.path.join(folder, name + ".jsonl")
            apart, compared = 0.0, 0
            with open(path, "w") as f:
                for number in range(args.batches):
                    case, d = (loss_case if kind == "loss" else advantage_case)(draw, number, name)
                    f.write(json.dumps(case) + "\n")
                    if not core:
                        continue
                    if kind == "loss":
                        for key, mode in (("token_mean", "token-mean"), ("seq_mean_token_mean", "seq-mean-token-mean")):
                            got = verl_loss(core, Config, d, mode)
                            if got is None:
                                continue
                            total, grad = got
                            ours = torch.tensor([g + [0.0] * (d["x"].shape[1] - len(g)) for g in case[key]["grad"]])
                            size = max(ours.abs().max().item(), 1e-3)
                            apart, compared = max(apart, (grad - ours).abs().max().item() / size,
                                                  abs(total - case[key]["loss"]) / max(1, abs(total))), compared + 1
                    else:
                        got = verl_advantages(core, Config, case, d)
                        for row, own in zip(got.tolist() if got is not None else [], case["advantages"]):
                            apart, compared = max([apart] + [abs(a - b) / max(1, abs(b)) for a, b in zip(row, own)]), compared + 1
            same, said = go_test("./orchestrate/loop/trainer" if kind == "loss" else "./orchestrate/loop/advantage",
                                 "TestLossesOfGivenCases" if kind == "loss" else "TestGivenCases", "GYRE_GIVEN_CASES", path)
            held = "-" if not compared else "same" if apart < (1e-4 if name == "gdpo" else 1e-5) else "APART"
            print(f"{name:24}{args.batches:9}{'same' if same else 'APART':>8}{held:>8}   {apart:.1e}", flush=True)
            if not same:
                print(said)
            wrong |= not same or held == "APART"
    if args.trl:
        trl = load_trl()
        print(f"\n{'loss_type of TRL':24}{'batches':>9}   largest distance from TRL")
        for name in TRL:
            draw = random.Random(name)
            apart = max(trl_distance(trl, draw, number, name) for number in range(args.batches))
            print(f"{name:24}{args.batches:9}   {apart:.1e}", flush=True)
            wrong |= apart > 1e-5
        draw = random.Random("kl_top_k")
        apart = max(support_distance(draw) for _ in range(args.batches))
        print(f"{'kl_top_k':24}{args.batches:9}   {apart:.1e}")
        wrong |= apart > 1e-5
    sys.exit(wrong)


main()
