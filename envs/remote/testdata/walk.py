"""A walk to the last cell of a corridor, with faults on demand."""

import os
import random
import time


class Walk:
    actions = ["Left", "Right"]
    instruction = "Walk to the last cell."
    stop = ["</act>"]
    tools = [{"name": "map", "description": "shows the way", "parameters": {"type": "object", "properties": {}}}]

    steps = 0  # of all environments of this process

    def __init__(self, fault="", once="", after=0, text=False):
        self.fault, self.once, self.after, self.text = fault, once, after, text
        if text:
            self.actions = None

    def broken(self):
        """True where the fault is to happen: always, or once for all processes that share a file, and not in the process's first steps."""
        Walk.steps += 1
        if Walk.steps <= self.after:
            return False
        if self.once:
            try:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
        return True

    def reset(self, seed):
        rng = random.Random(seed)
        if self.fault == "resets":
            return eval(self.once)
        self.length, self.at, self.luck = rng.randint(3, 5), 0, rng.random()
        return f"cell 0 of {self.length}, luck {self.luck:.3f}"

    def step(self, action):
        if self.fault == "hang" and self.broken():
            time.sleep(1000)
        if self.fault == "die" and self.broken():
            os._exit(3)
        if self.fault == "raise" and self.broken():
            raise RuntimeError("lost the way")
        if self.fault == "print":
            print("noise on stdout")
        if self.text:
            return [{"role": "tool", "name": "map", "tool_call_id": "c1", "content": action}], 0.5, True, {
                "parts": [{"name": "shout", "value": 1.0, "placement": "spread", "from": 1, "to": 3}]}
        if action not in self.actions:
            return None
        was, self.at = self.at, max(0, self.at + (1 if action == "Right" else -1))
        done = self.at == self.length - 1
        if self.fault == "returns":
            return *eval(self.once), 1.0, True
        if self.fault == "spelling":
            return "there", 1.0, True, {"sucess": True}
        return f"cell {self.at} of {self.length}", 1.0 if done else -0.1, done, {
            "success": done, "effective": was != self.at, "cell": self.at, "parts": {"arrived": float(done), "cost": -0.1}}


def make(**config):
    return Walk(**config)


class Puzzle:
    """In the manner of the verifiers library: its rollout asks a client for replies."""

    dataset = [{"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "answer": str(2 * n)} for n in range(5)]

    class rubric:
        weights = [1.0, 0.25]

        async def score_rollout(state):
            said = state["completion"][-1]["content"]
            state["metrics"] = {"correct": float(said == state["answer"]), "short": float(len(said) < 4)}
            state["reward"] = state["metrics"]["correct"] + 0.25 * state["metrics"]["short"]

    async def rollout(self, input, client, model, sampling_args=None):
        messages, said = list(input["prompt"]), ""
        for _ in range(2):
            answer = await client.chat.completions.create(messages=messages, model=model)
            said = answer.choices[0].message.content
            messages.append({"role": "assistant", "content": said})
            if said == input["answer"]:
                break
            messages.append({"role": "user", "content": "Try again."})
        if said == "crash":
            raise RuntimeError("lost the thread")
        return {"answer": input["answer"], "completion": [m for m in messages if m["role"] == "assistant"]}


def puzzle():
    import remote_verifiers

    return remote_verifiers.Verifiers(Puzzle())


def library(kind):
    """Environments of the verifiers library itself."""
    import remote_verifiers
    import verifiers
    from datasets import Dataset

    def last(completion):
        return completion[-1]["content"] if isinstance(completion[-1], dict) else completion[-1].content

    def correct(completion, answer):
        return float(last(completion) == answer)

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    class Guess(verifiers.MultiTurnEnv):
        async def env_response(self, messages, state, **_):
            return [{"role": "user", "content": "higher" if int(last(messages)) < int(state["answer"]) else "lower"}]

        @verifiers.stop
        async def guessed(self, state):
            return bool(state["trajectory"]) and last(state["trajectory"][-1]["completion"]) == state["answer"]

    given = {"dataset": Dataset.from_list([{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(9)]),
             "rubric": verifiers.Rubric(funcs=[correct])}
    made = {"turns": lambda: Guess(max_turns=4, system_prompt="Guess.", **given), "single": lambda: verifiers.SingleTurnEnv(**given),
            "tools": lambda: verifiers.ToolEnv(tools=[add], max_turns=4, **given)}
    return remote_verifiers.Verifiers(made[kind]())
