"""transformers: generate() with its key-value cache, scoring and training with plain PyTorch, in float32, under bf16 autocast or in pure bf16."""
import time
from importlib.metadata import version

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


def clock():
    """The time when everything that was asked of a GPU is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


class FirstToken(StoppingCriteria):
    """Stops nothing; notes when every sequence has its first token."""

    def __init__(self):
        self.at = None

    def __call__(self, input_ids, scores, **_):
        if self.at is None:
            self.at = clock()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def token_logprobs(logits, ids):
    """Log-probability of every id under the logits at its place, a sequence at a time: the normalised logits of a whole batch are never
    held, which is the cheapest way in memory and in time."""
    chosen = logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.stack([torch.logsumexp(row, -1) for row in logits])


class Worker:
    def __init__(self, options, channel):
        torch.set_num_threads(options.threads)
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16 if options.dtype == "bf16" else torch.float32)
        self.device = torch.device(options.device)
        self.model.to(self.device)
        self.autocast = options.dtype == "autocast"
        self.model.generation_config.eos_token_id = None  # never ends early, and costs no logits processor
        self.model.generation_config.pad_token_id = 0
        self.optimizer = self.adapted = None
        self.versions = {name: version(name) for name in ("transformers", "torch")}
        self.notes = [f"attention {self.model.config._attn_implementation}"]

    def _arithmetic(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)

    def _adapt(self, task):
        """Puts PEFT's adapters beside all linear layers: as many as the task asks for, at random, B too. A model keeps those of one task."""
        want = (task["rank"], task["adapters"])
        if self.adapted == want:
            return
        import peft

        self.versions["peft"] = version("peft")
        if self.adapted:
            self.model = self.model.unload()
        targets = {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
        if any(name.endswith(".experts.down_proj") for name, _ in self.model.named_parameters()):
            targets = {"target_modules": targets["target_modules"][:4], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}
        config = peft.LoraConfig(r=want[0], lora_alpha=want[0], **targets)
        self.model = peft.get_peft_model(self.model, config, adapter_name="0")
        for i in range(1, want[1]):
            self.model.add_adapter(str(i), config)
        for name, p in self.model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(p.data, std=0.01)
        self.model.set_adapter("0")
        self.adapted, self.optimizer = want, None

    def _sample(self, rows, new, **sampling):
        """Continues rows of any lengths, padded on the left; gives the new tokens, when it began and when the first were there."""
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=self.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self.device)
        first, begin = FirstToken(), clock()
        with torch.inference_mode(), self._arithmetic():
            out = self.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=new,
                                      stopping_criteria=StoppingCriteriaList([first]), **sampling)
        if out.shape[1] != width + new:
            raise RuntimeError(f"{out.shape[1] - width} new tokens, expected {new}")
        return out[:, width:].tolist(), begin, first.at

    def greedy(self, task):
        return {"output": self._sample(task["prompts"], task["new"], do_sample=False)[0][0]}

    def generate(self, task):
        torch.manual_seed(task["seed"])
        rows = [prompt for prompt in task["prompts"] for _ in range(task["copies"])]
        own = {}
        if task.get("adapters"):
            self._adapt(task)
            self.model.eval()
            own = {"adapter_names": [str(n % task["adapters"]) for n in range(len(task["prompts"])) for _ in range(task["copies"])]}
        _, begin, first = self._sample(rows, task["new"], do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **own)
        seconds = clock() - begin
        return {"seconds": seconds, "tokens": len(rows) * task["new"], "first_seconds": first - begin,
                "later_tokens": len(rows) * (task["new"] - 1)}

    def rollout(self, task):
        """Every turn encodes the whole history again: generate() keeps no cache for rows of unequal growth."""
        torch.manual_seed(task["seed"])
        histories = [[] for _ in task["observations"]]
        turns = []
        for turn in range(len(task["observations"][0])):
            begin = clock()
            for history, episode in zip(histories, task["observations"]):
                history += episode[turn]
            replies, _, _ = self._sample(histories, task["new"], do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
            for history, reply in zip(histories, replies):
                history += reply
            turns.append(clock() - begin)
        return {"seconds": sum(turns), "tokens": len(histories) * len(turns) * task["new"], "turn_seconds": turns}

    def logprobs(self, task):
        ids = torch.tensor(task["sequences"], device=self.device)
        begin = clock()
        with torch.inference_mode(), self._arithmetic():
            logits = self.model(input_ids=ids, use_cache=False).logits
            token_logprobs(logits[:, :-1], ids[:, 1:])
        return {"seconds": clock() - begin, "tokens": ids.numel()}

    def update(self, task):
        """One step of a clipped policy loss over all sequences in one batch; logits are made only where they are trained on."""
        if task.get("adapters"):
            self._adapt(task)
        if self.optimizer is None:
            self.model.train()
            self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-7, fused=True)
        ids = torch.tensor(task["sequences"], device=self.device)
        trained = ids[:, max(task.get("context", 0), 1):]
        count = trained.shape[1]
        old = torch.full(trained.shape, -torch.tensor(float(self.model.config.vocab_size)).log().item(), device=self.device)
        advantages = (torch.arange(trained.numel(), device=self.device) % 3 - 1).reshape(trained.shape).float()
        begin = clock()
        self.optimizer.zero_grad(set_to_none=True)
        with self._arithmetic():
            logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=count + 1).logits[:, :-1]
        ratio = (token_logprobs(logits, trained) - old).exp()
        loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).mean()
        del logits
        loss.backward()
        passes = clock()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        end = clock()
        return {"seconds": end - begin, "tokens": ids.numel(), "parts": {"passes": passes - begin, "optimizer": end - passes}}

    def probe(self, task):
        """The peak of float32 matrix products as libtorch computes them: the shapes of a transformer's blocks, plain and with packed weights."""
        best = 0.0
        for n, k in ((1536, 576), (576, 1536)):
            x, w = torch.randn(1024, k), torch.randn(n, k)
            forms = [lambda: torch.nn.functional.linear(x, w)]
            try:
                packed = torch.ops.mkldnn._reorder_linear_weight(w, 1024)
                forms.append(lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], ""))
            except (AttributeError, RuntimeError):  # a libtorch without oneDNN
                pass
            for form in forms:
                for _ in range(20):
                    begin = clock()
                    form()
                    best = max(best, 2 * 1024 * n * k / (clock() - begin))
        return {"machine": {"flops": best}}
