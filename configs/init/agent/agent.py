"""An agent with a loop of its own: gyre train starts it once per episode and trains on what it asks the model.

It finds OPENAI_BASE_URL, OPENAI_API_KEY and GYRE_TASK in its environment. The client of the package openai works too.
"""
import json
import os
import random
import urllib.request

from reward import score


def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "policy", "messages": messages}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"] or ""


with open("train.jsonl") as file:
    tasks = [json.loads(line) for line in file]
task = random.Random(json.loads(os.environ["GYRE_TASK"])["seed"]).choice(tasks)  # one seed, one task in a group

messages = [{"role": "user", "content": task["question"]}]
reply = ask(messages)
if score(reply, task["answer"]) < 1:  # a second try
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "again"}]
    reply = ask(messages)

reward = score(reply, task["answer"])
print(json.dumps({"reward": reward, "success": reward == 1}))  # the last line of JSON ends the episode
