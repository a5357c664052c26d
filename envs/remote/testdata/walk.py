"""A walk to the last cell of a corridor, with faults on demand."""

import os
import random
import time


class Walk:
    actions = ["Left", "Right"]
    instruction = "Walk to the last cell."
    stop = ["</act>"]
    tools = [{"name": "map", "description": "shows the way", "parameters": {"type": "object", "properties": {}}}]

    def __init__(self, fault="", once="", text=False):
        self.fault, self.once, self.text = fault, once, text
        if text:
            self.actions = None

    def broken(self):
        """True where the fault is to happen: always, or once for all processes that share a file."""
        if self.once:
            try:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
        return True

    def reset(self, seed):
        rng = random.Random(seed)
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
        return f"cell {self.at} of {self.length}", 1.0 if done else -0.1, done, {
            "success": done, "effective": was != self.at, "cell": self.at, "parts": {"arrived": float(done), "cost": -0.1}}


def make(**config):
    return Walk(**config)


class Puzzle:
    """In the manner of the verifiers library."""

    dataset = [{"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "answer": str(2 * n)} for n in range(5)]

    class rubric:
        def correct(completion, answer):
            return float(completion[-1]["content"] == answer)

        async def short(completion, **_):
            return 1.0 if len(completion[-1]["content"]) < 4 else 0.0

        reward_funcs, reward_weights = [correct, short], [1.0, 0.25]

    async def is_completed(self, messages, state):
        return state["turn"] >= 2 or messages[-1]["content"] == state["answer"]

    def env_response(self, messages, state):
        return [{"role": "user", "content": "Try again."}], state


def puzzle():
    import remote_env

    return remote_env.Verifiers(Puzzle())
