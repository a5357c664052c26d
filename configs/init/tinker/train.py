"""A training loop of your own in Tinker's API: GRPO on train.jsonl. `pip install tinker`; `gyre serve model` computes.

    export TINKER_BASE_URL=http://127.0.0.1:8080 TINKER_API_KEY=tml-local
    python3 train.py [STEPS]
"""
import json
import random
import sys

import tinker
from tinker import types

from reward import score

STEPS, GROUPS, MEMBERS = int(sys.argv[1]) if len(sys.argv) > 1 else 30, 8, 16

with open("train.jsonl") as file:
    rows = [json.loads(line) for line in file]
client = tinker.ServiceClient().create_lora_training_client(base_model="model", rank=32).result()
tokenizer = client.get_tokenizer()
draw = random.Random(1)
for step in range(1, STEPS + 1):
    sampler = client.save_weights_and_get_sampling_client().result()
    tasks, data, rewards = draw.sample(rows, GROUPS), [], []
    for task in tasks:
        prompt = tokenizer.encode(task["question"])
        sampled = sampler.sample(
            prompt=types.ModelInput.from_ints(prompt), num_samples=MEMBERS,
            sampling_params=types.SamplingParams(max_tokens=2, temperature=1.0, seed=step)).result()
        scores = [score(tokenizer.decode(s.tokens, skip_special_tokens=True), task["answer"]) for s in sampled.sequences]
        rewards += scores
        mean = sum(scores) / len(scores)
        deviation = (sum((s - mean) ** 2 for s in scores) / (len(scores) - 1)) ** 0.5
        for reply, reward in zip(sampled.sequences, scores):
            if deviation == 0:
                continue  # equal rewards teach nothing
            ids, at = prompt + reply.tokens, len(prompt) - 1  # targets are the next tokens
            advantage = (reward - mean) / (deviation * len(reply.tokens) * GROUPS * MEMBERS)
            data.append(types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs={
                "target_tokens": ids[1:],
                "logprobs": [0.0] * at + list(reply.logprobs),
                "advantages": [0.0] * at + [advantage] * len(reply.tokens)}))
    if data:
        client.forward_backward(data, "importance_sampling").result()
        client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    print(f"step {step}  reward {sum(rewards) / len(rewards):.3f}  right {rewards.count(1.0)} of {len(rewards)}", flush=True)
