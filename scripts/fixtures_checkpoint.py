"""Makes the small files under orchestrate/model/checkpoint/*/testdata that the Go tests read.

    python scripts/fixtures_checkpoint.py

Needs torch, transformers, safetensors and gguf (0.19 or later). The results are committed; run it again only to change them.
"""
import collections
import json
import os
import pickle
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForTokenClassification, Qwen2Config, Qwen3Config

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "orchestrate", "model", "checkpoint")


def folder(*parts):
    path = os.path.join(ROOT, *parts)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def pickles():
    """The same values in every protocol that is read."""
    out = folder("weights", "testdata", "pickle")
    value = {
        "numbers": [1, -2, 300, 70000, -70000, 2**40, -(2**40), 2**62, 1.5, None, True, False],
        "tuples": ((), ("x",), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "text é": "ünï",
        5: collections.OrderedDict([("k", [])]),
    }
    value["again"] = value["tuples"]
    for protocol in range(2, 6):
        with open(os.path.join(out, f"protocol{protocol}.pkl"), "wb") as f:
            pickle.dump(value, f, protocol)


def state_dicts():
    """Layouts a state dict may have: strides, offsets, shared storages, parameters, every float type, wrappers."""
    out = folder("weights", "testdata", "torch")
    base = torch.arange(24, dtype=torch.float32)
    tensors = collections.OrderedDict(
        dense=base.view(4, 6),
        transposed=base.view(4, 6).t(),
        window=base.view(4, 6)[1:3, 2:5],
        scalar=torch.tensor(7.5),
        half=torch.arange(6).half() / 4,
        brain=torch.arange(6).bfloat16() / 4,
        double=torch.arange(6).double() / 4,
        count=torch.tensor([1, 2, 3]),
        parameter=torch.nn.Parameter(torch.full((2, 2), 3.0)),
    )
    torch.save(tensors, os.path.join(out, "plain.pt"))
    torch.save(tensors, os.path.join(out, "protocol4.pt"), pickle_protocol=4)
    torch.save({"epoch": 3, "lr": 0.1, "global_step": torch.tensor(7), "state_dict": tensors}, os.path.join(out, "wrapped.pt"))
    torch.save(tensors, os.path.join(out, "legacy.pt"), _use_new_zipfile_serialization=False)
    module = torch.nn.Linear(2, 3)
    torch.nn.init.ones_(module.weight), torch.nn.init.zeros_(module.bias)
    torch.save(module.state_dict(), os.path.join(out, "module.pt"))  # carries _metadata
    torch.save(module, os.path.join(out, "whole_module.pt"))  # refers to a class: must be refused


def shape(**extra):
    return dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, initializer_range=0.3, **extra)


def save_with_logits(model, path, dtype=None):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    model = model.float().eval()
    if dtype:
        model = model.to(dtype).float()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    (model.to(dtype) if dtype else model).save_pretrained(path)
    with open(os.path.join(path, "logits.json"), "w") as f:
        json.dump({"ids": ids, "last": [round(x, 6) for x in logits[-1].tolist()]}, f)


def models():
    """Tiny random models of each family, and one of them in every file layout."""
    torch.manual_seed(1)
    out = folder("testdata")

    def put(name, config, dtype=None):
        model = AutoModelForCausalLM.from_config(config)
        for p in model.parameters():  # biases and norms away from their trivial initial values
            if p.dim() == 1:
                torch.nn.init.normal_(p, 0.5, 0.3)
        save_with_logits(model, os.path.join(out, name), dtype)
        return model

    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    put("llama", LlamaConfig(**shape(rope_parameters=llama3, attention_bias=True, mlp_bias=True)))
    put("qwen2", Qwen2Config(**shape(tie_word_embeddings=True)), torch.bfloat16)
    put("qwen3", Qwen3Config(**shape(head_dim=8)), torch.float16)

    # The older spelling of the same configuration.
    with open(os.path.join(out, "llama", "config.json")) as f:
        config = json.load(f)
    rope = config.pop("rope_parameters")
    config["rope_theta"], config["rope_scaling"] = rope.pop("rope_theta"), rope
    config["torch_dtype"] = config.pop("dtype")
    state = load_file(os.path.join(out, "llama", "model.safetensors"))
    logits = os.path.join(out, "llama", "logits.json")

    def layout(name):
        path = os.path.join(out, name)
        os.makedirs(path)
        shutil.copy(logits, path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f, indent=2)
        return path

    def shards(path, stem, ending, save):
        names = sorted(state)
        half = len(names) // 2
        files = {f"{stem}-0000{i}-of-00002.{ending}": part for i, part in ((1, names[:half]), (2, names[half:]))}
        for file, part in files.items():
            save({n: state[n] for n in part}, os.path.join(path, file))
        index = {"metadata": {"total_size": sum(t.numel() * 4 for t in state.values())},
                 "weight_map": {n: file for file, part in files.items() for n in part}}
        with open(os.path.join(path, f"{stem}.{ending}.index.json"), "w") as f:
            json.dump(index, f)

    shards(layout("llama-sharded"), "model", "safetensors", save_file)
    shards(layout("llama-bin-sharded"), "pytorch_model", "bin", torch.save)
    compiled = {"module._orig_mod." + n: t for n, t in state.items()}
    compiled["module._orig_mod.model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    torch.save({"model": compiled, "step": 3}, os.path.join(layout("llama-bin"), "pytorch_model.bin"))

    torch.manual_seed(2)
    critic = LlamaForTokenClassification(LlamaConfig(**shape(num_labels=1)))
    torch.nn.init.normal_(critic.score.bias)
    critic.save_pretrained(os.path.join(out, "critic"))


def gguf_blocks():
    """Random blocks of every quantised type and what they stand for."""
    out = folder("weights", "testdata", "gguf")
    random = np.random.default_rng(3)
    for kind in ("Q4_1", "Q8_0"):
        t = gguf.GGMLQuantizationType[kind]
        per_block, size = gguf.GGML_QUANT_SIZES[t]
        blocks = random.integers(0, 256, (3, size), dtype=np.uint8)
        scale = np.float16(random.normal(0, 0.1, (3, 2))).view(np.uint8)
        width = 4 if kind == "Q4_1" else 2
        blocks[:, :width] = scale[:, :width]  # halves must be finite
        values = gguf.quants.dequantize(blocks, t).astype("<f4")
        assert values.size == 3 * per_block
        with open(os.path.join(out, kind + ".bin"), "wb") as f:
            f.write(blocks.tobytes() + values.tobytes())


def permute(w, heads):
    """Hugging Face's order of a llama's q and k rows to GGUF's: the two halves of each head interleaved."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path, arch, model, pre, dtype, **flags):
    """A model as llama.cpp's converter would write it, with a vocabulary of 32 tokens."""
    c = model.config
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(c.num_hidden_layers), w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size), w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads), w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps), w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_key_length(c.head_dim), w.add_value_length(c.head_dim)
    tokens = [chr(0x61 + i) for i in range(26)] + ["ab", "abc", "<bos>", "<eos>", "<tool>", "[PAD31]"]
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre(pre), w.add_token_list(tokens)
    w.add_token_types([1] * 28 + [3, 3, 4, 5]), w.add_token_merges(["a b", "ab c"])
    w.add_bos_token_id(28), w.add_eos_token_id(29), w.add_chat_template("{{ messages }}")
    for key, value in flags.items():
        getattr(w, key)(value)
    short = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm", "q_proj": "attn_q",
             "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
             "post_attention_layernorm": "ffn_norm", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    for name, t in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        parts = name.split(".")
        block = f"blk.{parts[2]}." if "layers" in parts else ""
        t = t.float().numpy()
        if arch == "llama" and parts[-2] in ("q_proj", "k_proj"):
            t = permute(t, c.num_attention_heads if parts[-2] == "q_proj" else c.num_key_value_heads)
        w.add_tensor(block + short[parts[-2]] + "." + parts[-1], t.astype(dtype if t.ndim > 1 else np.float32))
    if arch == "llama" and c.rope_parameters["rope_type"] == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](c, "cpu")
        plain = 1.0 / c.rope_parameters["rope_theta"] ** (torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        w.add_tensor("rope_freqs.weight", (plain / scaled).numpy().astype(np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def gguf_models():
    """A llama with every quirk of its GGUF form beside what it was made of; a qwen3 whose origin is testdata/qwen3."""
    out = folder("convert", "testdata")
    torch.manual_seed(4)
    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=8192)
    config = LlamaConfig(**{**shape(rope_parameters=llama3, attention_bias=True), "hidden_size": 32, "num_hidden_layers": 1, "eos_token_id": 29,
                            "bos_token_id": 28})
    llama = AutoModelForCausalLM.from_config(config)
    for p in llama.parameters():
        torch.nn.init.normal_(p, 0.5, 0.3)
    save_file({n: t.contiguous() for n, t in llama.state_dict().items()}, os.path.join(out, "llama.safetensors"))
    write_gguf(os.path.join(out, "llama.gguf"), "llama", llama, "llama-bpe", np.float32, add_eot_token_id=27)
    qwen3 = AutoModelForCausalLM.from_pretrained(os.path.join(ROOT, "testdata", "qwen3"), dtype=torch.float32)
    write_gguf(os.path.join(out, "qwen3.gguf"), "qwen3", qwen3, "qwen2", np.float16)


if __name__ == "__main__":
    pickles()
    state_dicts()
    models()
    gguf_blocks()
    gguf_models()
