"""An agent with a loop and a tool of its own, for docs/gateway.md: it multiplies by asking a calculator.

Needs `pip install openai`, or plays with the standard library alone where that is missing.
"""
import json, os, random, re, urllib.request

try:
    from openai import OpenAI

    def ask(messages, client=OpenAI()):
        return client.chat.completions.create(model="policy", messages=messages).choices[0].message.content
except ImportError:
    def ask(messages):
        request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps({"model": "policy", "messages": messages}).encode(), {"Content-Type": "application/json",
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
        return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

draw = random.Random(json.loads(os.environ["GYRE_TASK"])["seed"])
a, b = draw.randint(11, 99), draw.randint(11, 99)
example = [("user", "What is 13 * 45?"), ("assistant", "calc(13 * 45)"), ("user", "585"), ("assistant", "585")]
messages = [{"role": role, "content": text} for role, text in [*example, ("user", f"What is {a} * {b}?")]]
called, said = 0.0, ""
for turn in range(2):
    said = ask(messages)
    call = re.search(r"calc\((\d+) ?\* ?(\d+)\)", said)
    if not call:
        break
    called = 1.0
    result = int(call[1]) * int(call[2])
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": str(result)}]
right = float(called and turn > 0 and str(a * b) in said)
print(json.dumps({"reward": 0.2 * called + 0.8 * right, "components": {"called": called, "right": right}}))
