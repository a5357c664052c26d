"""llama.cpp through the low-level binding of llama-cpp-python: one batch per step, one sequence per prompt, weights in f32 or f16."""
import ctypes
import time

import llama_cpp as ll

clock = time.perf_counter
ROWS = 2048  # tokens of one call


class Sequences:
    """A context with rows that grow together; each row's last token is the one drawn last and not yet computed."""

    def __init__(self, model, count, length, threads, unified):
        how = ll.llama_context_default_params()
        how.n_ctx = -(-length // 256) * 256 * (1 if unified else count)
        if unified:  # one pool, in which sequences can share positions
            how.n_ctx = -(-length * count // 256) * 256
        how.n_batch, how.n_ubatch, how.n_seq_max, how.kv_unified = ROWS, 512, count, unified
        how.n_threads = how.n_threads_batch = threads
        self.context = ll.llama_init_from_model(model, how)
        if not self.context:
            raise RuntimeError("llama.cpp made no context")
        self.memory = ll.llama_get_memory(self.context)
        self.batch = ll.llama_batch_init(ROWS, 0, 1)
        self.wanted = []  # (row of the batch, sequence) whose logits are to be sampled
        self.count, self.length, self.last = count, [0] * count, [0] * count
        self.sampler = None

    def close(self):
        ll.llama_batch_free(self.batch)
        ll.llama_free(self.context)

    def restart(self, seed, greedy=False):
        ll.llama_memory_clear(self.memory, True)
        self.length = [0] * self.count
        if self.sampler:
            ll.llama_sampler_free(self.sampler)
        self.sampler = ll.llama_sampler_chain_init(ll.llama_sampler_chain_default_params())
        ll.llama_sampler_chain_add(self.sampler, ll.llama_sampler_init_greedy() if greedy else ll.llama_sampler_init_dist(seed))

    def append(self, sequence, ids):
        """Queues tokens of a sequence; the last one's successor will be drawn."""
        for place, token in enumerate(ids):
            if self.batch.n_tokens == ROWS:
                self.compute()
            row, b = self.batch.n_tokens, self.batch
            b.token[row], b.pos[row], b.n_seq_id[row] = token, self.length[sequence], 1
            b.seq_id[row][0], b.logits[row] = sequence, place == len(ids) - 1
            if b.logits[row]:
                self.wanted.append((row, sequence))
            b.n_tokens = row + 1
            self.length[sequence] += 1

    def compute(self):
        if self.batch.n_tokens:
            if ll.llama_decode(self.context, self.batch):
                raise RuntimeError("llama_decode failed")
            for row, sequence in self.wanted:
                self.last[sequence] = self.draw(row)
            self.last_row = self.wanted[-1][0] if self.wanted else None
        self.batch.n_tokens, self.wanted = 0, []

    def draw(self, row):
        return ll.llama_sampler_sample(self.sampler, self.context, row)

    def share(self, source):
        """Gives all other sequences the positions of one, and each a first token of its own."""
        for sequence in range(self.count):
            if sequence != source:
                ll.llama_memory_seq_cp(self.memory, source, sequence, -1, -1)
                self.length[sequence] = self.length[source]
                self.last[sequence] = self.draw(self.last_row)

    def decode(self, steps):
        """Draws steps more tokens for every sequence; gives all new ones, the pending first included."""
        out = [[token] for token in self.last]
        for _ in range(steps):
            for sequence in range(self.count):
                self.append(sequence, [self.last[sequence]])
            self.compute()
            for sequence in range(self.count):
                out[sequence].append(self.last[sequence])
        return out


class Worker:
    def __init__(self, options, channel):
        if not options.gguf:
            raise ImportError("no GGUF file was given (--gguf)")
        # The callback must outlive the model, and with it this object.
        self.silence = ll.llama_log_callback(lambda level, text, data: None)
        ll.llama_log_set(self.silence, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(options.gguf.encode(), ll.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {options.gguf}")
        self.threads, self.sequences, self.shape = options.threads, None, None
        self.versions = {"llama-cpp-python": ll.__version__}
        self.notes = ["keys and values in f16, its default"]

    def _open(self, count, length, unified):
        if self.shape != (count, length, unified):
            if self.sequences:
                self.sequences.close()
            self.sequences = Sequences(self.model, count, length, self.threads, unified)
            self.shape = (count, length, unified)
        return self.sequences

    def greedy(self, task):
        s = self._open(1, len(task["prompts"][0]) + task["new"], False)
        s.restart(0, greedy=True)
        s.append(0, task["prompts"][0])
        s.compute()
        return {"output": s.decode(task["new"] - 1)[0]}

    def generate(self, task):
        prompts, copies, new = task["prompts"], task["copies"], task["new"]
        if copies > 1 and len(prompts) > 1:
            raise RuntimeError("copies of several prompts are not supported")
        # A warm-up asks for fewer tokens but must leave the context that the repeats use.
        s = self._open(len(prompts) * copies, max(len(prompts[0]) + new, 192), copies > 1)
        s.restart(task["seed"])
        begin = clock()
        for sequence, prompt in enumerate(prompts):
            s.append(sequence, prompt)
        s.compute()
        if copies > 1:
            s.share(0)
        first = clock()
        s.decode(new - 1)
        end = clock()
        return {"seconds": end - begin, "tokens": s.count * new, "first_seconds": first - begin, "later_tokens": s.count * (new - 1)}

    def rollout(self, task):
        """Sequences stay: a turn computes its observation and the last token of the reply before."""
        observations, new = task["observations"], task["new"]
        s = self._open(len(observations), 1024, False)
        s.restart(task["seed"])
        turns = []
        for turn in range(len(observations[0])):
            begin = clock()
            for sequence, episode in enumerate(observations):
                pending = [s.last[sequence]] if turn else []
                s.append(sequence, pending + episode[turn])
            s.compute()
            s.decode(new - 1)
            turns.append(clock() - begin)
        return {"seconds": sum(turns), "tokens": len(observations) * len(turns) * new, "turn_seconds": turns}
