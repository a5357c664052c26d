"""TRL's GRPOTrainer: whole steps, with transformers' generate() as it does without a vLLM server."""
import shutil
import tempfile
import time
from importlib.metadata import version

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

clock = time.perf_counter
MICRO = 8  # sequences of one pass


class Gate(TrainerCallback):
    """Times every step, answers, and holds the trainer until the next step is asked for."""

    def __init__(self, channel, tokens):
        self.channel, self.tokens, self.begin = channel, tokens, clock()

    def on_step_end(self, args, state, control, **_):
        self.channel.figures(seconds=clock() - self.begin, tokens=self.tokens)
        if self.channel.receive() is None:
            control.should_training_stop = True
        self.begin = clock()
        return control


def even_length(completions, **_):
    return [float(len(text) % 2 == 0) for text in completions]


class Worker:
    def __init__(self, options, channel):
        torch.set_num_threads(options.threads)
        self.channel, self.path, self.bf16 = channel, options.model, options.dtype == "bf16"
        self.on_cpu = options.device == "cpu"
        self.versions = {name: version(name) for name in ("trl", "transformers", "torch")}
        self.notes = [f"gradient checkpointing off, micro-batches of {MICRO}, no reference model"]
        if self.bf16:
            self.notes.append("bf16 as its configuration means it: float32 weights under autocast")

    def grpo(self, task):
        """The first task starts the trainer, which answers for this one and all that follow."""
        texts, copies, new = task["texts"], task["copies"], task["new"]
        rows = len(texts[0]) * copies
        tokenizer = AutoTokenizer.from_pretrained(self.path, padding_side="left")
        folder = tempfile.mkdtemp()
        try:
            trainer = GRPOTrainer(
                model=AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32),
                processing_class=tokenizer, reward_funcs=even_length,
                train_dataset=Dataset.from_list([{"prompt": text} for step in texts for text in step]),
                args=GRPOConfig(
                    output_dir=folder, max_steps=len(texts), shuffle_dataset=False, learning_rate=1e-7, beta=0.0,
                    num_generations=copies, max_completion_length=new, temperature=1.0, top_k=0, top_p=1.0,
                    generation_kwargs={"min_new_tokens": new},  # no completion is short
                    per_device_train_batch_size=MICRO, gradient_accumulation_steps=rows // MICRO, gradient_checkpointing=False,
                    use_cpu=self.on_cpu, bf16=self.bf16, report_to="none", save_strategy="no", disable_tqdm=True,
                ),
                callbacks=[Gate(self.channel, rows * new)],
            )
            trainer.train()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return None
