#!/usr/bin/env python3
"""Plays sessions of harnesses that know nothing of Gyre, and compares what is kept and trained on with what was drawn.

    python3 -m venv build/harnesses && build/harnesses/bin/pip install openai openai-agents
    build/harnesses/bin/python scripts/foreign_harnesses.py [--sessions 2000] [--gyre ./gyre]

Four harnesses play in five templates with a random policy each, four fifths of the sessions at `gyre serve` and the rest
in a step of `gyre train`, by the same client. The policy's tokens are phrases as well as bytes, so that it thinks, calls
tools and acts in the form of ReAct. What is compared, token by token with the prefix that it was drawn behind: the ids
and log-probs that clients were sent; the branches of the sessions, or the episodes that were trained on; `gyre score`.
"""
import argparse
import asyncio
import json
import pathlib
import random
import re
import subprocess
import tempfile

import agents
import httpx2 as httpx
import openai

parser = argparse.ArgumentParser()
parser.add_argument("--sessions", type=int, default=2000)
parser.add_argument("--gyre", default="./gyre")
parser.add_argument("--templates", default="orchestrate/serve/session/testdata")
args = parser.parse_args()
agents.set_tracing_disabled(True)

PHRASES = ["<think>", "</think>", "\n<think>", " <think>", "</think>\n", "</think>\n\n", "\n</think>\n", "<think>\n", "Observation:"]
for a in range(12):
    PHRASES += ['<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": %d}}\n</tool_call>' % (a, b) for b in (1, 2)]
    PHRASES += [f"Action: add[{a}, {a + 1}]", f"\nAction: add[{a}, 3]\n", f"Final Answer: {a}", f" {a} and "]
ADD = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}


def make_policy(at):
    """A random model in whose tokenizer the phrases stand in the place of the newest merges."""
    texts = [str(p) for p in pathlib.Path("docs").glob("*.md")]
    corpus = [word for text in texts for word in ("--corpus", text)]
    subprocess.run([args.gyre, "model", "init", at, "--family", "qwen2", "--hidden", "64", "--layers", "2", "--heads", "4",
        "--intermediate", "128", "--std", "0.12", "--vocab", "512", *corpus], check=True, capture_output=True)
    path = at / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    by_id = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    first = max(by_id) + 1 - len(PHRASES)
    for i, text in enumerate(PHRASES, first):
        del tokenizer["model"]["vocab"][by_id[i]]
        tokenizer["added_tokens"].append({"id": i, "content": text, "special": False, "normalized": False,
            "single_word": False, "lstrip": False, "rstrip": False})
    del tokenizer["model"]["merges"][-len(PHRASES):]
    path.write_text(json.dumps(tokenizer))


class Session:
    """A session with a record of the answers that its client was sent."""

    def __init__(self, opened, seed):
        self.id, self.rng, self.drawn = opened["id"], random.Random(seed), {}
        self.key, self.root = opened["api_key"], opened["base_url"]
        hooks = httpx.AsyncClient(event_hooks={"response": [self.heard]}, timeout=600)
        self.client = openai.AsyncOpenAI(base_url=self.root, api_key=self.key, http_client=hooks, max_retries=9)

    async def heard(self, response):
        answer = json.loads(await response.aread())
        for choice in answer.get("choices", []):
            note(self.drawn, answer["prompt_token_ids"], choice["token_ids"],
                [t["logprob"] for t in choice["logprobs"]["content"]])

    async def ask(self, messages, **more):
        answer = await self.client.chat.completions.create(model="policy", messages=messages, max_tokens=24, logprobs=True,
            extra_body={"return_token_ids": True}, **more)
        return [c.message for c in answer.choices]


def note(book, prompt, ids, logprobs):
    """Enters drawn tokens under all that stands before them and themselves."""
    place = 0
    for token in prompt:
        place = hash((place, token))
    for token, logprob in zip(ids, logprobs, strict=True):
        place = hash((place, token))
        assert book.setdefault(place, logprob) == logprob, "one token, two log-probs"


def read(book, ids, mask, logprobs):
    place = 0
    for token, drawn, logprob in zip(ids, mask, logprobs, strict=True):
        place = hash((place, token))
        if drawn:
            assert book.setdefault(place, logprob) == logprob, "one token, two log-probs"


async def react(s, strip=False):
    """A plain ReAct loop; or one that takes thinking out of what it sends back."""
    messages = [{"role": "system", "content": "Use Action: add[a, b]."}, {"role": "user", "content": f"{s.rng.random()}?"}]
    for _ in range(4):
        said = (await s.ask(messages, stop=["Observation:"]))[0].content or ""
        if strip:
            said = re.sub(r"<think>.*?</think>\s*", "", said, flags=re.S).split("</think>")[-1]
        messages.append({"role": "assistant", "content": said.strip()})
        call = re.search(r"add\[(\d+), (\d+)\]", said)
        if "Final Answer" in said:
            break
        found = int(call[1]) + int(call[2]) if call else "no action"
        messages.append({"role": "user", "content": f"Observation: {found}"})


async def strips(s):
    await react(s, strip=True)


async def edits(s):
    """Goes back, forgets what is old, corrects what was said, and takes the second of two replies."""
    messages = [{"role": "user", "content": f"{s.rng.random()}?"}]
    for _ in range(5):
        said = s.rng.choice(await s.ask(messages, n=s.rng.choice([1, 2]))).content or ""
        habit = s.rng.randrange(5)
        if habit == 0 and len(messages) > 2:
            messages = messages[2:]  # a window
        elif habit == 1:
            messages[s.rng.randrange(len(messages)) // 2 * 2] = {"role": "user", "content": "Something else."}
        elif habit == 2:
            continue  # asks again
        messages.append({"role": "assistant", "content": said + " (shortened)" if habit == 3 else said})
        messages.append({"role": "user", "content": "Go on."})


async def sdk(s):
    """The OpenAI Agents SDK with a tool."""
    async def invoke(_, arguments):
        return str(sum(json.loads(arguments).values()))

    tool = agents.FunctionTool(name="add", description="adds", params_json_schema=ADD["parameters"], on_invoke_tool=invoke,
        strict_json_schema=False)
    settings = agents.ModelSettings(max_tokens=24, extra_body={"return_token_ids": True, "logprobs": True})
    agent = agents.Agent(name="adder", instructions="Add.", tools=[tool], model_settings=settings,
        model=agents.OpenAIChatCompletionsModel(model="policy", openai_client=s.client))
    past = []
    for _ in range(2):
        past.append({"role": "user", "content": f"{s.rng.random()}?"})
        try:
            past = (await agents.Runner.run(agent, past, max_turns=4)).to_input_list()
        except (agents.MaxTurnsExceeded, agents.ModelBehaviorError, openai.BadRequestError):
            # a reply that is all thinking and was cut off, or a template that takes one call at a time
            break


HARNESSES = [react, strips, edits, sdk]


async def call(http, method, url, **more):
    """Asks again where a connection was lost, as OpenAI's client does: the server closes those that say nothing for 10 s."""
    for _ in range(9):
        try:
            return await http.request(method, url, **more)
        except httpx.TransportError as error:
            print("note: again after", repr(error))
            await asyncio.sleep(1)
    raise SystemExit(f"{url} is not reached")


async def play(http, root, number):
    """Opens a session, lets a harness play, reads what was kept and posts a reward."""
    while (opened := await call(http, "POST", root + "/v1/sessions", json={})).status_code == 429:
        await asyncio.sleep(0.05)
    s = Session(opened.raise_for_status().json(), number)
    try:
        await HARNESSES[number % len(HARNESSES)](s)
    except openai.BadRequestError as error:  # a reply that its client cannot send back in this template
        print("note:", str(error)[:150])
    own = {"Authorization": "Bearer " + s.key}
    kept = (await call(http, "GET", root + "/v1/sessions/" + s.id, headers=own)).json()
    await call(http, "POST", s.root + "/reward", json={"reward": s.rng.random()}, headers=own)
    await s.client.close()
    return s.drawn, kept["branches"]


async def play_all(root, numbers):
    slots = asyncio.Semaphore(16)

    async def one(http, n):
        async with slots:
            return await play(http, root, n)

    async with httpx.AsyncClient(timeout=600) as http:
        return await asyncio.gather(*(one(http, n) for n in numbers))


def compare(name, policy, played, trained=None):
    drawn, kept, rows = {}, {}, []
    for own, branches in played:
        drawn |= own
        for b in branches:
            read(kept, b["ids"], b["mask"], b["logprobs"])
            rows.append(b)
    asked = "".join(json.dumps({"ids": b["ids"]}) + "\n" for b in rows)
    scored = subprocess.run([args.gyre, "score", "--model", policy], input=asked, capture_output=True, text=True, check=True)
    gap = 0.0
    for b, line in zip(rows, scored.stdout.splitlines(), strict=True):
        pairs = zip(b["logprobs"], json.loads(line)["logprobs"], strict=True)
        gap = max([gap] + [abs(x - y) for x, y in pairs if x is not None])
    equal = kept == drawn and (trained is None or trained == drawn) and gap == 0
    print(f"{'ok  ' if equal else 'FAIL'} {name:22} {len(played):5} sessions {len(rows):5} branches {len(drawn):7} tokens drawn "
        f"{len(kept.items() & drawn.items()):7} kept" + (f" {len(trained.items() & drawn.items()):7} trained" if trained is not None
        else "") + f"  gap {gap:g}", flush=True)
    return equal


def at_server(policy, template, numbers):
    server = subprocess.Popen([args.gyre, "serve", policy, "--port", "0", "--served-model", "policy", "--chat-template", template,
        "--max-sessions", "4096"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        played = asyncio.run(play_all(server.stdout.readline().strip(), numbers))
    finally:
        server.terminate()
        server.wait()
    return compare(template.stem, policy, played)


def in_training(policy, template, numbers, folder):
    (folder / "run.toml").write_text(f"""
        run = {{ name = "run", output = "{folder}", steps = 1, validate_every = 0, validate_first = false, save_every = 0 }}
        model = {{ path = "{policy}", chat_template = "{template}" }}
        filter = {{ strategy = "none" }}
        algorithm = {{ advantage = "grpo", entropy_coef = 0.0 }}
        actor = {{ mini_batch = {len(numbers)} }}
        analysis = {{ enabled = false }}
        rollout = {{ max_tokens = 24, max_length = 4096, env_workers = 64 }}
        early_stop = {{ spread_fraction = 0.0, low_success_count = 0 }}
        [[envs]]
        tag = "gateway"
        groups = {len(numbers) // 4}
        group_size = 4
        max_turns = 64
        options = {{ listen = "127.0.0.1:9417", attempt_timeout = 600 }}
        """)
    run = subprocess.Popen([args.gyre, "train", folder / "run.toml"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            try:
                httpx.get("http://127.0.0.1:9417/healthz")
                break
            except httpx.ConnectError:
                if run.poll() is not None:
                    raise SystemExit(run.stderr.read())
                asyncio.run(asyncio.sleep(0.1))
        played = asyncio.run(play_all("http://127.0.0.1:9417", numbers))
        if run.wait(300):
            raise SystemExit(run.stderr.read())
    finally:
        run.kill()
    trained = {}
    for line in (folder / "run/rollouts/step_1.jsonl").read_text().splitlines():
        e = json.loads(line)
        edges = [0, *[c for c in e.get("contexts", []) if c], len(e["ids"])]
        for at, to in zip(edges, edges[1:]):
            read(trained, e["ids"][at:to], e["mask"][at:to], e["logprobs"][at:to])
    metrics = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
    gap = metrics.get("rollout/logprob_gap_max", metrics.get("values", {}).get("rollout/logprob_gap_max"))
    print("     rollout/logprob_gap_max", gap)
    return compare(template.stem + " trained", policy, played, trained) and gap == 0


good = True
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    make_policy(folder / "policy")
    templates = sorted(pathlib.Path(args.templates).resolve().glob("*.jinja")) or parser.error("no templates")
    for i, template in enumerate(templates):
        numbers = range(i * args.sessions // len(templates), (i + 1) * args.sessions // len(templates))
        cut = len(numbers) - len(numbers) // 20 * 4
        good &= at_server(folder / "policy", template, numbers[:cut])
        (folder / template.stem).mkdir()
        good &= in_training(folder / "policy", template, numbers[cut:], folder / template.stem)
raise SystemExit(not good)
