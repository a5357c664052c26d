#!/usr/bin/env python3
"""Makes orchestrate/model/checkpoint/testdata/families: a tiny random checkpoint of every family, with odd sizes and options, and what
transformers computes with it in float64 with exact rotary tables.

    python -P scripts/fixtures_families.py [NAME...]

Needs torch, transformers, peft and safetensors. The weights are bfloat16 numbers, so that the files are small. expected.json lists cases: token
ids, the longest sequence that rotary scalings are settled by, log-probs, and of the gradient of their negative sum two numbers for each
tensor: its norm, and its product with sin(1), sin(2), … Of mixtures of experts also the sum over tokens of what csrc/train/balance.h says,
and its gradient, and in lora/ an adapter of PEFT. With --check DIR it opens a model that Gyre saved and compares it with these.
"""
import json
import math
import os
import random
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "orchestrate", "model", "checkpoint", "testdata", "families")
SHAPE = dict(vocab_size=41, hidden_size=20, intermediate_size=26, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, initializer_range=0.4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.5, rope_theta=300.0)
LONG = dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3], long_factor=[1.2, 2.0, 3.5])
S, F = "sliding_attention", "full_attention"
FAMILIES = {
    "mistral": dict(head_dim=6, sliding_window=7),
    "ministral": dict(head_dim=10, sliding_window=18, layer_types=[S, F, S]),
    "smollm3": dict(no_rope_layer_interval=2, use_sliding_window=True, sliding_window=9, attention_bias=True, hidden_size=24),
    "granite": dict(embedding_multiplier=1.7, logits_scaling=1.3, residual_multiplier=0.6, attention_multiplier=0.35, mlp_bias=True,
                    hidden_size=24),
    "granitemoehybrid": dict(embedding_multiplier=1.7, logits_scaling=1.3, residual_multiplier=0.6, attention_multiplier=0.35, hidden_size=24,
                             num_local_experts=0, shared_intermediate_size=22, layer_types=[F, F, F], position_embedding_type="rope", mamba_n_heads=4),
    "llama": dict(rope_parameters=YARN, head_dim=8, hidden_act="gelu_pytorch_tanh"),
    "qwen2": dict(rope_parameters=dict(rope_type="dynamic", factor=2.5, rope_theta=50.0), max_position_embeddings=32, hidden_size=24,
                  tie_word_embeddings=True),
    "qwen3": dict(rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=50.0), head_dim=6, use_sliding_window=True,
                  sliding_window=5, max_window_layers=1),
    "olmo2": dict(hidden_size=24, attention_bias=True),
    "olmo3": dict(hidden_size=24, sliding_window=6, layer_types=[S, F, S],
                  rope_parameters={F: YARN, S: dict(rope_type="default", rope_theta=70.0)}),
    "phi3": dict(hidden_size=32, rope_parameters=LONG, original_max_position_embeddings=32, sliding_window=21),
    "glm4": dict(head_dim=12, rope_parameters=dict(rope_type="default", rope_theta=60.0, partial_rotary_factor=0.5)),
    "glm": dict(head_dim=10, attention_bias=False, rope_parameters=dict(rope_type="linear", factor=1.5, rope_theta=60.0, partial_rotary_factor=0.7)),
    "gemma2": dict(head_dim=6, sliding_window=5, query_pre_attn_scalar=11, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3_text": dict(head_dim=6, sliding_window=6, query_pre_attn_scalar=9, layer_types=[S, F, S], final_logit_softcapping=5.0,
                        rope_parameters={F: dict(rope_type="linear", factor=3.0, rope_theta=900.0),
                                         S: dict(rope_type="default", rope_theta=40.0)}),
}
MIXTURES = {
    "qwen3_moe": dict(head_dim=6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=14, norm_topk_prob=True, mlp_only_layers=[1],
                      num_hidden_layers=4),
    "olmoe": dict(hidden_size=24, num_experts=7, num_experts_per_tok=3, intermediate_size=18),
    "mixtral": dict(head_dim=6, num_local_experts=3, num_experts_per_tok=2, sliding_window=11),
    "granitemoe": dict(embedding_multiplier=1.7, logits_scaling=1.3, residual_multiplier=0.6, attention_multiplier=0.35, hidden_size=24,
                       num_local_experts=4, num_experts_per_tok=2, attention_bias=True),
    "granitemoeshared": dict(num_local_experts=3, num_experts_per_tok=1, shared_intermediate_size=10, hidden_size=24),
}
UP, DOWN = "experts.gate_up_proj", "experts.down_proj"
ADAPTED = {"qwen3_moe": [UP, DOWN], "olmoe": ["mlp." + UP, "mlp." + DOWN], "mixtral": [DOWN], "granitemoe": [UP], "granitemoeshared": [UP, DOWN]}
BY_LENGTH = ("qwen2", "phi3")  # what a sequence's rotations are depends on its length


class exact:
    """Whatever transformers does in float32 it does in float64."""

    def __enter__(self):
        self.before = torch.float, torch.float32, torch.Tensor.float
        torch.float, torch.float32, torch.Tensor.float = torch.float64, torch.float64, torch.Tensor.double

    def __exit__(self, *_):
        torch.float, torch.float32, torch.Tensor.float = self.before


def logprobs(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0, :-1].log_softmax(-1).gather(-1, torch.tensor(ids)[1:, None])[:, 0]


def case(path, sequences, longest):
    with exact():
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager",
                                                     experts_implementation="eager").eval()
        scored = [logprobs(model, ids) for ids in sequences]
        (-torch.cat(scored).sum()).backward()
    gradients = sums(model)
    out = {"longest": longest, "ids": sequences, "logprobs": [[0.0] + [round(x, 9) for x in s.tolist()] for s in scored],
           "gradients": gradients}
    if os.path.basename(path) in MIXTURES:
        with exact():
            value = sum(balance(model, ids) for ids in sequences)
            model.zero_grad()
            value.backward()
        out["balance"], out["balance_gradients"] = value.item(), sums(model)
    return out


def balance(model, ids):
    layers = model(torch.tensor([ids]), use_cache=False, output_router_logits=True).router_logits
    total = 0
    for logits in layers:
        p = logits[:-1].softmax(-1)  # the last token's row predicts none
        chosen = torch.zeros_like(p).scatter_(-1, p.topk(model.config.num_experts_per_tok, -1).indices, 1.0)
        total = total + p.shape[-1] * (chosen.mean(0) * p).sum() / len(layers)
    return total


def sums(model):
    """Of all gradients, under the names and in the shapes of files."""
    weights = [(p, p.data) for p in model.parameters()]
    for p, data in weights:
        p.data = torch.zeros_like(data) if p.grad is None else p.grad
    with tempfile.TemporaryDirectory() as path:
        model.save_pretrained(path)
        file = load_file(os.path.join(path, "model.safetensors"))
    for p, data in weights:
        p.data = data
    out = {}
    for name, value in file.items():
        flat = value.double().flatten()
        out[name] = [float(flat.norm()), float(flat @ torch.sin(torch.arange(1, flat.numel() + 1, dtype=torch.float64)))]
    return out


def make(name):
    torch.manual_seed(sum(map(ord, name)))
    path = os.path.join(ROOT, name)
    shutil.rmtree(path, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **{**SHAPE, **{**FAMILIES, **MIXTURES}[name]}))
    for p in model.parameters():
        if p.dim() == 1:  # biases and norms away from their trivial initial values
            torch.nn.init.normal_(p, 0.5, 0.3)
    model.to(torch.bfloat16).save_pretrained(path)
    os.remove(os.path.join(path, "generation_config.json"))
    numbers = random.Random(5)
    short, long = ([numbers.randrange(3, SHAPE["vocab_size"]) for _ in range(n)] for n in (23, 47))
    cases = [case(path, [short], 0), case(path, [long], 47)] if name in BY_LENGTH else [case(path, [short, long], 0)]
    with open(os.path.join(path, "expected.json"), "w") as f:
        json.dump(cases, f)


def adapt(name):
    """An adapter of PEFT beside attention and experts, and what it computes."""
    import peft

    path = os.path.join(ROOT, name, "lora")
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(len(name))
    with exact():
        base = AutoModelForCausalLM.from_pretrained(os.path.join(ROOT, name), dtype=torch.float64, attn_implementation="eager",
                                                    experts_implementation="eager").eval()
        model = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=3, target_modules=["q_proj"], target_parameters=ADAPTED[name]))
        tensors = {n: p for n, p in model.named_parameters() if "lora_" in n}
        for p in tensors.values():
            p.data = torch.randn(p.shape, dtype=torch.float64).mul(0.3).bfloat16().double()
        numbers = random.Random(7)
        ids = [numbers.randrange(3, SHAPE["vocab_size"]) for _ in range(31)]
        scored = logprobs(model, ids)
        (-scored.sum()).backward()
    gradients = {}
    for n, p in tensors.items():
        flat = p.grad.flatten()
        gradients[n.replace(".default", "")] = [float(flat.norm()), float(flat @ torch.sin(torch.arange(1, flat.numel() + 1, dtype=torch.float64)))]
        p.data = p.data.bfloat16()
    model.peft_config["default"].base_model_name_or_path = ".."
    model.save_pretrained(path)
    os.remove(os.path.join(path, "README.md"))
    with open(os.path.join(path, "expected.json"), "w") as f:
        json.dump({"ids": [ids], "logprobs": [[0.0] + [round(x, 9) for x in scored.tolist()]], "gradients": gradients}, f)


def check(name, path):
    with open(os.path.join(ROOT, name, "expected.json")) as f:
        for c in json.load(f):
            got = case(path, c["ids"], 0)["logprobs"]
            worst = max(abs(a - b) for x, y in zip(got, c["logprobs"]) for a, b in zip(x, y))
            print(name, "log-probs differ by", worst)
            assert worst < 1e-8 and math.isfinite(worst)
    if os.path.exists(os.path.join(path, "lora")):
        import peft

        with open(os.path.join(ROOT, name, "lora", "expected.json")) as f:
            c = json.load(f)
        with exact():
            base = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager")
        model = peft.PeftModel.from_pretrained(base, os.path.join(path, "lora"), torch_device="cpu").double().eval()
        with exact():
            got = logprobs(model, c["ids"][0])
        worst = max(abs(a - b) for a, b in zip(got.tolist(), c["logprobs"][0][1:]))
        print(name, "adapter's log-probs differ by", worst)
        assert worst < 1e-8


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"]:  # DIR holds a folder for each family
        for family in sorted(os.listdir(sys.argv[2])):
            check(family, os.path.join(sys.argv[2], family))
    else:
        for family in sys.argv[1:] or [*FAMILIES, *MIXTURES]:
            make(family)
            if family in ADAPTED:
                adapt(family)
