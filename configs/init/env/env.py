"""An environment: a number is to be guessed in three tries. `Game` is yours to change; `serve` speaks with gyre train."""
import json
import random
import sys


class Game:
    instruction = "Guess a digit from 0 to 9."

    def reset(self, seed):
        self.secret = random.Random(seed).randrange(10)
        self.tries = 0
        return "guess"  # what the policy sees

    def step(self, action):
        """Observation, reward, done, success."""
        self.tries += 1
        text = action.strip()
        if not text[:1].isdigit():
            return "a digit, please", 0.0, self.tries == 3, False
        guess, shape = int(text[0]), 0.1 if len(text) == 1 else 0.05
        if guess == self.secret:
            return "right", 1.0, True, True
        return ("higher" if guess < self.secret else "lower"), shape, self.tries == 3, False


def serve(make):
    """Answers create, reset, step and close, each a line of JSON with a list of items, one line each."""
    games, last, made = {}, {}, 0
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "create":
            ids = [str(made + i) for i in range(request.get("count", 1))]
            made += len(ids)
            games.update((key, make(**(request.get("config") or {}))) for key in ids)
            print(json.dumps({"ids": ids, "batch": 64}), flush=True)
            continue
        items = []
        for item in request["items"]:
            key = item["id"]
            if key not in games:
                answer = {"gone": True}
            elif request["method"] == "reset":
                answer = {"observation": {"text": games[key].reset(item["seed"])}, "instruction": Game.instruction}
                last[key] = (0, answer)
            elif request["method"] == "close":
                answer = {"observation": {"text": ""}}
                del games[key]
            elif last[key][0] == item["seq"]:  # asked again
                answer = last[key][1]
            else:
                text, reward, done, success = games[key].step(item["action"])
                answer = {"observation": {"text": text}, "reward": reward, "done": done, "success": success}
                last[key] = (item["seq"], answer)
            items.append({"id": key, **answer})
        print(json.dumps({"items": items}), flush=True)


serve(Game)
