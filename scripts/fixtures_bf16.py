#!/usr/bin/env python3
"""Makes orchestrate/model/checkpoint/testdata/bf16.json: what transformers computes with the tiny checkpoints of
orchestrate/loop/trainer/testdata/pytorch in float32, and how far its own bfloat16 is from that.

    python scripts/fixtures_bf16.py          needs torch and transformers; run it outside the repository's torch/ folder's reach (-P)

For every checkpoint: a sequence of token ids, its log-probs in float32, the mean and the largest distance of those in pure bfloat16 (weights,
activations, logits) and under autocast from them, and the gradients' cosine per parameter of the mean log-prob in autocast with float32's.
"""
import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM

root = pathlib.Path(__file__).resolve().parent.parent / "orchestrate"
torch.set_num_threads(1)


def logprobs(model, ids, autocast=False):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(input_ids=ids, use_cache=False).logits
    return logits.float()[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]


def gradients(model, ids, autocast):
    model.zero_grad()
    logprobs(model, ids, autocast).mean().backward()
    return {name: p.grad.flatten().double().clone() for name, p in model.named_parameters()}


def case(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    numbers = random.Random(7)
    ids = torch.tensor([[numbers.randrange(model.config.vocab_size) for _ in range(60)]])
    with torch.no_grad():
        exact, mixed = logprobs(model, ids), logprobs(model, ids, autocast=True)
        pure = logprobs(AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval(), ids)
    one, other = gradients(model, ids, False), gradients(model, ids, True)
    cosines = {name: float(one[name] @ other[name] / (one[name].norm() * other[name].norm())) for name in one}
    return {
        "ids": ids[0].tolist(), "logprobs": exact.tolist(),
        "pure": {"mean": (pure - exact).abs().mean().item(), "max": (pure - exact).abs().max().item()},
        "autocast": {"mean": (mixed - exact).abs().mean().item(), "max": (mixed - exact).abs().max().item()},
        "least_cosine": min(cosines.values()),
    }


found = {path.name: case(path) for path in sorted((root / "loop/trainer/testdata/pytorch").iterdir())
         if path.name in ("llama", "llama3", "qwen2", "qwen3")}
(root / "model/checkpoint/testdata/bf16.json").write_text(json.dumps(found) + "\n")
