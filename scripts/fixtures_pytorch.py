#!/usr/bin/env python3
"""Makes orchestrate/loop/trainer/testdata/pytorch: tiny random checkpoints, hand-written episodes, and what PyTorch makes of them.

    python scripts/fixtures_pytorch.py orchestrate/loop/trainer/testdata/pytorch

Needs torch, transformers, peft and safetensors. Each case replays the same episodes for ten steps with a plain PyTorch training loop:
log-probs by transformers' own forward pass, losses written out below, torch.optim.AdamW, clip_grad_norm_. `gyre train --replay` has to
arrive at the same losses, gradient norms and weights. The cases in lora/ train PEFT's adapters, which begin where
adapter_model.safetensors says, and hold the gradients of the first log-probs' sum too.
"""
import json
import os
import random
import sys

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, LlamaForTokenClassification, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
torch.set_num_threads(1)
VOCAB, STEPS = 61, 10

SHAPE = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16, rope_theta=500.0)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "llama3": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=False, rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=False)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=10, tie_word_embeddings=True)),
}


def make(kind, seed):
    cls, config = MODELS[kind]
    torch.manual_seed(seed)
    model = cls(config).float()
    with torch.no_grad():
        for name, p in model.named_parameters():  # biases and norms start at 0 and 1: move them so that errors in them show
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
    return model


def write_model(model, folder):
    model.save_pretrained(os.path.join(out, folder))
    for extra in ("generation_config.json",):
        path = os.path.join(out, folder, extra)
        if os.path.exists(path):
            os.remove(path)


def episodes(rng, groups, size):
    rows = []
    for g in range(groups):
        for k in range(size):
            ids, mask, rewards, turns = [], [], [], rng.choice([1, 2])
            for _ in range(turns):
                prompt, reply = rng.randrange(3, 9), rng.randrange(2, 8)
                ids += [rng.randrange(3, VOCAB) for _ in range(prompt + reply)]
                mask += [0] * prompt + [1] * reply
                rewards.append([len(ids) - 1, round(rng.choice([-0.1, 0.9, 10.9, -1.1]) + rng.random() * 0.1, 3)])
            ids.append(2)  # a template token after the last reply
            mask.append(0)
            rows.append({"group": g, "ids": ids, "mask": mask, "rewards": rewards})
    return rows


def write_rows(rows, name):
    with open(os.path.join(out, name), "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")


def logprobs(model, ids, temperature, entropy=False):
    logits = model(torch.tensor([ids])).logits[0, :-1] / temperature
    lp = torch.log_softmax(logits, -1)
    chosen = lp[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    h = -(lp.exp() * lp).sum(-1) if entropy else None
    pad = torch.zeros(1)
    return torch.cat([pad, chosen]), (torch.cat([pad, h]) if entropy else None)


def values(critic, ids):
    v = critic(torch.tensor([ids])).logits[0, :, 0]
    return torch.cat([torch.zeros(1), v[:-1]])


def aggregate(xs, masks, mode):
    """xs, masks: lists of per-episode tensors; the whole mini-batch at once, so the normaliser is global."""
    rows = [(x * m).sum() for x, m in zip(xs, masks)]
    if mode == "token-mean":
        return sum(rows) / sum(m.sum() for m in masks)
    if mode == "token-sum":
        return sum(rows)
    if mode == "seq-mean-token-sum":
        return sum(rows) / len(rows)
    if mode == "seq-mean-token-mean":
        return sum(r / m.sum() for r, m in zip(rows, masks)) / len(rows)
    raise ValueError(mode)


def policy_loss(c, lps, ents, olds, advs, refs, masks):
    pg, kl = [], []
    for lp, old, adv, ref in zip(lps, olds, advs, refs):
        ratio = torch.exp(torch.clamp(lp - old, -20, 20))
        loss = torch.maximum(-adv * ratio, -adv * ratio.clamp(1 - c["clip_low"], 1 + c["clip_high"]))
        loss = torch.where(adv < 0, torch.minimum(-adv * c["clip_dual"], loss), loss)
        pg.append(loss)
        if ref is not None:
            d = torch.clamp(ref - lp, -20, 20)
            kl.append(torch.clamp(torch.exp(d) - d - 1, -10, 10))
    parts = {"pg": aggregate(pg, masks, c["mode"]), "entropy": aggregate(ents, masks, c["mode"])}
    total = parts["pg"] - c["entropy_coef"] * parts["entropy"]
    if c["kl_coef"]:
        parts["kl"] = aggregate(kl, masks, c["mode"])
        total = total + c["kl_coef"] * parts["kl"]
    return total, parts


def score(row):
    return sum(v for _, v in row["rewards"])


def grpo(rows):
    advs = []
    for r in rows:
        group = torch.tensor([score(x) for x in rows if x["group"] == r["group"]])
        a = (score(r) - group.mean()) / (group.std() + 1e-6)
        advs.append(a * torch.tensor(r["mask"], dtype=torch.float))
    return advs


def gae(rows, vals, gamma, lam):
    advs, rets = [], []
    for r, v in zip(rows, vals):
        m, n = r["mask"], len(r["ids"])
        reward = [0.0] * n
        reward[max(t for t in range(n) if m[t])] = score(r)
        a, ret, nv, acc = [0.0] * n, [0.0] * n, 0.0, 0.0
        for t in reversed(range(n)):
            if m[t]:
                delta = reward[t] + gamma * nv - float(v[t])
                acc = delta + gamma * lam * acc
                nv = float(v[t])
                a[t], ret[t] = acc, acc + float(v[t])
        advs.append(torch.tensor(a, dtype=torch.float64))
        rets.append(torch.tensor(ret))
    flat = torch.cat([a[torch.tensor(r["mask"]).bool()] for a, r in zip(advs, rows)])
    mean, var = flat.mean(), flat.var()
    return [((a - mean) / torch.sqrt(var + 1e-8)).float() * torch.tensor(r["mask"]) for a, r in zip(advs, rows)], rets


def adam(model, lr):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def adapt(kind, **options):
    """PEFT's adapters beside a model; B is random instead of zero, so that errors in it show."""
    torch.manual_seed(2)
    model = get_peft_model(make(kind, 1), LoraConfig(task_type="CAUSAL_LM", base_model_name_or_path=kind, **options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name:
                p.normal_(0, 0.1)
    return model


def adapters(model):
    """The adapters' tensors by the names of PEFT's files, without the embeddings that PEFT saves beside."""
    return {n: t.detach().clone() for n, t in get_peft_model_state_dict(model, save_embedding_layers=False).items()}


def run(name, kind, rows, c, reference=None, critic=None, lora=None):
    model = adapt(kind, **lora) if lora else make(kind, 1)
    folder = os.path.join(out, "lora" if lora else "expected")
    os.makedirs(folder, exist_ok=True)
    if lora:
        model.save_pretrained(os.path.join(folder, name), save_embedding_layers=False)
        os.remove(os.path.join(folder, name, "README.md"))
        scored = [logprobs(model, r["ids"], 1.0)[0] for r in rows[:4]]
        (-torch.cat(scored).sum()).backward()
        grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    opt = adam(model, c["lr"])
    copt = adam(critic, c["critic_lr"]) if critic else None
    masks = [torch.tensor(r["mask"], dtype=torch.float) for r in rows]
    log = []
    for step in range(STEPS):
        with torch.no_grad():
            olds = [logprobs(model, r["ids"], c["temperature"])[0] for r in rows]
            if "logprobs" in rows[0]:
                olds = [torch.tensor([x or 0.0 for x in r["logprobs"]]) for r in rows]
            refs = [logprobs(reference, r["ids"], c["temperature"])[0] if c["kl_coef"] else None for r in rows]
            if critic:
                vals = [values(critic, r["ids"]) * m for r, m in zip(rows, masks)]
                advs, rets = gae(rows, vals, c["gamma"], c["lam"])
            else:
                advs = grpo(rows)
        entry = {"step": step + 1}
        for b in range(0, len(rows), c["mini_batch"]):
            sl = slice(b, b + c["mini_batch"])
            if critic:
                copt.zero_grad()
                per = []
                for r, old, ret in zip(rows[sl], vals[sl], rets[sl]):
                    v = values(critic, r["ids"])
                    clipped = old + (v - old).clamp(-0.5, 0.5)
                    per.append(0.5 * torch.maximum((v - ret) ** 2, (clipped - ret) ** 2))
                loss = aggregate(per, masks[sl], "token-mean")
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(critic.parameters(), c["clip_grad"])
                copt.step()
                entry.setdefault("vf_loss", []).append(loss.item())
                entry.setdefault("critic_grad_norm", []).append(norm.item())
        for b in range(0, len(rows), c["mini_batch"]):
            sl = slice(b, b + c["mini_batch"])
            opt.zero_grad()
            both = [logprobs(model, r["ids"], c["temperature"], True) for r in rows[sl]]
            total, parts = policy_loss(c, [x[0] for x in both], [x[1] for x in both], olds[sl], advs[sl], refs[sl], masks[sl])
            total.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), c["clip_grad"])
            opt.step()
            entry.setdefault("grad_norm", []).append(norm.item())
            for k, v in parts.items():
                entry.setdefault(k, []).append(v.item())
        log.append(entry)
    end, expected = adapters(model) if lora else {n: p.detach().clone() for n, p in model.named_parameters()}, {}
    if lora:
        end.update({"grad." + n.replace(".default", ""): g for n, g in grads.items()})
        expected = {"ids": [r["ids"] for r in rows[:4]], "logprobs": [x.tolist() for x in scored]}
    json.dump({"case": name, "model": kind, "config": c, "steps": log, **expected}, open(os.path.join(folder, name + ".json"), "w"))
    save_file(end, os.path.join(folder, name + ".safetensors"))


rng = random.Random(7)
rows = episodes(rng, 3, 4)
write_rows(rows, "episodes.jsonl")

for kind in MODELS:
    model = make(kind, 1)
    write_model(model, kind)
    with torch.no_grad():
        scored = [[None] + logprobs(model, r["ids"], 1.0)[0][1:].tolist() for r in rows[:4]]
        greedy = []
        for r in rows[:4]:
            ids = list(r["ids"][:6])
            for _ in range(12):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            greedy.append(ids[6:])
    json.dump({"ids": [r["ids"] for r in rows[:4]], "logprobs": scored, "prompts": [r["ids"][:6] for r in rows[:4]], "greedy": greedy},
              open(os.path.join(out, kind, "expected.json"), "w"))

# old log-probs of some other policy: ratios far from 1, so that both clips act
with torch.no_grad():
    other = make("llama", 5)
    mixed = []
    for r in rows:
        lp = (logprobs(make("llama", 1), r["ids"], 1.0)[0] * 0.8 + logprobs(other, r["ids"], 1.0)[0] * 0.2).tolist()
        mixed.append({**r, "logprobs": [x if m else None for x, m in zip(lp, r["mask"])]})
write_rows(mixed, "episodes_old.jsonl")
mixed = [json.loads(line) for line in open(os.path.join(out, "episodes_old.jsonl"))]

reference = make("llama", 3)
write_model(reference, "reference")
torch.manual_seed(11)
critic_config = LlamaConfig(**SHAPE, tie_word_embeddings=True, num_labels=1, classifier_dropout=0.0)
critic = LlamaForTokenClassification(critic_config).float().eval()
write_model(critic, "critic")

base = dict(lr=3e-3, critic_lr=1e-3, clip_low=0.2, clip_high=0.28, clip_dual=3.0, clip_grad=1.0, temperature=1.0, gamma=1.0, lam=1.0,
            mode="token-mean", entropy_coef=0.001, kl_coef=0.0, mini_batch=12)
run("grpo", "llama", rows, {**base, "mode": "seq-mean-token-mean", "kl_coef": 0.05, "mini_batch": 5}, reference=reference)
run("grpo_old", "llama", mixed, {**base, "temperature": 1.0, "mode": "token-sum"})
run("grpo_qwen2", "qwen2", rows, {**base, "temperature": 0.7, "mode": "seq-mean-token-sum"})
run("grpo_qwen3", "qwen3", rows, base)
run("grpo_llama3", "llama3", rows, base)
run("ppo", "llama", rows, {**base, "gamma": 0.99, "lam": 0.95, "mini_batch": 8}, critic=critic)

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
run("llama", "llama", rows, base, lora=dict(r=4, lora_alpha=8, target_modules=ALL))
run("qwen2", "qwen2", rows, {**base, "mode": "seq-mean-token-sum"},
    lora=dict(r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
run("heads", "qwen2", rows, base, lora=dict(r=3, lora_alpha=6, target_modules=["v_proj", "embed_tokens", "lm_head"]))
run("qwen3", "qwen3", rows, base, lora=dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]))

def beside(name, kind, **lora):
    """An adapter that no run trains: what is trained whole beside it differs from the base."""
    model = adapt(kind, **lora)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if p.requires_grad and "lora_" not in n:
                p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(os.path.join(out, "lora", name))
    os.remove(os.path.join(out, "lora", name, "README.md"))
    with torch.no_grad():
        scored = [logprobs(model, r["ids"], 1.0)[0].tolist() for r in rows[:4]]
    json.dump({"model": kind, "ids": [r["ids"] for r in rows[:4]], "logprobs": scored}, open(os.path.join(out, "lora", name + ".json"), "w"))


# Adapters of several ranks and scales, not of every layer, and of one side of a tied head
beside("uneven", "llama", r=4, lora_alpha=6, target_modules=["q_proj", "gate_proj", "embed_tokens"], rank_pattern={"gate_proj": 2},
       exclude_modules=r".*layers\.1\.self_attn.*")
beside("patterns", "llama", r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "up_proj"], layers_to_transform=[1],
       rank_pattern={"v_proj": 5, "up_proj": 2}, alpha_pattern={"layers.1.mlp.up_proj": 3, "self_attn.[kv]_proj": 8})
# What a merge alone takes: trained biases, and the head of a tied model trained whole
beside("biases", "qwen2", r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"], bias="all")
beside("saved", "llama", r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["lm_head"])
