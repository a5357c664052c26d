#!/usr/bin/env python3
"""Tries each feature of a running `gyre serve` with Anthropic's package (pip install anthropic) and says what failed.

    python3 scripts/try_anthropic.py http://127.0.0.1:8080 [--key KEY] [--clients 32]

Works with any model. Thinking and calls are tried as far as the model thinks and calls; `--make DIR` writes a random
policy that does both: serve it with --chat-template orchestrate/serve/session/testdata/qwen3.jinja. With LiteLLM
(pip install litellm) and openai installed, LiteLLM asks by both APIs too.
"""
import argparse
import asyncio
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("url", nargs="?")
parser.add_argument("--key", default="none")
parser.add_argument("--clients", type=int, default=32)
parser.add_argument("--make", type=pathlib.Path)
parser.add_argument("--gyre", default="./gyre")
args = parser.parse_args()

if args.make:
    subprocess.run([args.gyre, "model", "init", args.make, "--family", "qwen2", "--hidden", "64", "--layers", "2", "--heads", "4",
        "--intermediate", "128", "--std", "0.12", "--vocab", "512", "--corpus", "docs/serve.md", "--corpus", "docs/rewards.md"], check=True)
    phrases = [f"<think>\nthought {i} " for i in range(24)] + [f"</think>\n\nsaid {i} " for i in range(24)]
    phrases += ['<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": 2}}\n</tool_call>' % i for i in range(48)]
    path = args.make / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    by_id = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    for i, text in enumerate(phrases, max(by_id) + 1 - len(phrases)):  # in the place of the newest merges
        del tokenizer["model"]["vocab"][by_id[i]]
        tokenizer["added_tokens"].append({"id": i, "content": text, "special": False, "normalized": False,
            "single_word": False, "lstrip": False, "rstrip": False})
    del tokenizer["model"]["merges"][-len(phrases):]
    path.write_text(json.dumps(tokenizer))
    sys.exit()

import anthropic  # noqa: E402

client = anthropic.Anthropic(base_url=args.url, api_key=args.key, max_retries=8)
model = client.models.list().data[0].id
GREEDY = {"temperature": 0}  # newer packages take how tokens are drawn in extra_body alone
ask = {"model": model, "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12}
tools = [{"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {
    "a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}]
passed, failed = 0, []


def check(name, holds, seen=""):
    global passed
    print(f"{'ok  ' if holds else 'FAIL'}  {name}" + ("" if holds else f": {seen}"))
    passed += bool(holds)
    if not holds:
        failed.append(name)


def refused(name, kind, says, call, error_type="invalid_request_error"):
    try:
        check(name, False, call())
    except anthropic.APIStatusError as error:
        body = error.body or {}
        check(name, isinstance(error, kind) and body.get("type") == "error" and body["error"]["type"] == error_type
              and says in body["error"]["message"] and error.request_id, repr(error))


def say(drawn=GREEDY, **more):
    return client.messages.create(**{**ask, "extra_body": drawn, **more})


def text_of(m):
    return "".join(b.text for b in m.content if b.type == "text")


def words_of(m):
    return "".join(getattr(b, b.type, "") for b in m.content)  # also what is thought


def blocks(m):
    """The content without what differs between two answers."""
    return [{k: v for k, v in b.to_dict().items() if k != "id" and v is not None} for b in m.content]


def total(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def counted(**more):
    return client.messages.count_tokens(**{**{k: v for k, v in ask.items() if k != "max_tokens"}, **more}).input_tokens


# whole
check("a model", client.models.retrieve(model).id == model and client.models.retrieve(model).type == "model")
whole = say()
check("a message", whole.type == "message" and whole.role == "assistant" and whole.id.startswith("msg") and whole.model == model, whole)
check("its content", all(b.type in ("text", "thinking", "tool_use") for b in whole.content), whole)
check("its usage", whole.usage.input_tokens >= 0 and 0 < whole.usage.output_tokens <= 12, whole)
check("its request's id", bool(whole._request_id), whole._request_id)
check("greedy twice", blocks(say()) == blocks(whole))
check("top_k of 1 is greedy", blocks(say({"temperature": 1, "top_k": 1})) == blocks(whole))
check("top_p", say({"temperature": 1, "top_p": 0.5}).usage.output_tokens > 0)
check("max_tokens", say(max_tokens=1).usage.output_tokens == 1 and say(max_tokens=1).stop_reason in ("max_tokens", "tool_use", "end_turn"))
check("blocks are texts", blocks(say(messages=[{"role": "user", "content": [{"type": "text", "text": "Name a colour."}]}])) == blocks(whole))
check("metadata, cache_control, service_tier", blocks(say(metadata={"user_id": "u"}, service_tier="auto", messages=[{"role": "user", "content": [
    {"type": "text", "text": "Name a colour.", "cache_control": {"type": "ephemeral"}}]}])) == blocks(whole))
system = say(system="Answer in one word.")
check("a system", total(say(system="Answer in one word. Be kind.").usage) > total(system.usage), system)
check("a system in blocks", blocks(say(system=[{"type": "text", "text": "Answer in one word."}])) == blocks(system))
check("a cached prompt", say(system="Answer in one word.").usage.cache_read_input_tokens > 0)

# streamed
events = list(say(stream=True))
kinds = [e.type for e in events]
check("the order of events", kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds)
depth = [("content_block_start", "content_block_stop").index(k) for k in kinds if k in ("content_block_start", "content_block_stop")]
check("blocks open and close in turn", depth == [0, 1] * (len(depth) // 2), kinds)
check("the beginning of a stream", events[0].message.content == [] and events[0].message.stop_reason is None, events[0])
with client.messages.stream(**ask, extra_body=GREEDY) as stream:
    texts = "".join(stream.text_stream)
    final = stream.get_final_message()
check("a stream's text", texts == text_of(whole), texts)
check("a stream's content", blocks(final) == blocks(whole), final)
check("a stream's end", final.stop_reason == whole.stop_reason and total(final.usage) == total(whole.usage)
      and final.usage.output_tokens == whole.usage.output_tokens, final)
check("a stream's request's id", bool(stream.request_id))

# stops
long = words_of(say(max_tokens=24, thinking={"type": "disabled"}))
stop = long.strip()[2:4] or "e"
stopped = say(max_tokens=24, thinking={"type": "disabled"}, stop_sequences=["\0never", stop])
check("stop_sequences", stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop and stop not in words_of(stopped), stopped)
with client.messages.stream(**{**ask, "max_tokens": 24}, extra_body=GREEDY, thinking={"type": "disabled"}, stop_sequences=[stop]) as stream:
    final = stream.get_final_message()
check("stop_sequences of a stream", final.stop_reason == "stop_sequence" and final.stop_sequence == stop and blocks(final) == blocks(stopped), final)

# counts
check("count_tokens", counted() == total(whole.usage))
check("count_tokens with a system", counted(system="Answer in one word.") == total(system.usage))
with_tools = say(tools=tools)
check("count_tokens with tools", counted(tools=tools) == total(with_tools.usage))
history = ask["messages"] + [
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "I add.", "signature": "another's"}, {"type": "text", "text": "Adding."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "3"}], "is_error": False},
        {"type": "text", "text": "So?"}]}]
try:
    check("thinking, calls and results in the history", say(messages=history, tools=tools).usage.output_tokens > 0)
    check("count_tokens of it", counted(messages=history, tools=tools) == total(say(messages=history, tools=tools).usage))
except anthropic.BadRequestError as error:  # a template without tools refuses the role
    print("note  tools in the history:", error)

# tools
check("tool_choice auto", blocks(say(tools=tools, tool_choice={"type": "auto"})) == blocks(with_tools))
check("tool_choice none", blocks(say(tools=tools, tool_choice={"type": "none"})) == blocks(whole))


def plain(m):
    """What a random policy says may be markup, which no template takes back as a content."""
    return not any(mark in text_of(m) for mark in ("think>", "<|"))


def called(m):
    return [b for b in m.content if b.type == "tool_use"]


def played(attempts=60, **more):
    """An answer with a call, if one is drawn."""
    for _ in range(attempts):
        m = client.messages.create(**{**ask, "max_tokens": 16, "tools": tools, **more})
        if called(m) and plain(m):
            return m


first = played()
if first:
    use = called(first)[0]
    check("a call", use.id.startswith("toolu_") and use.name == "add" and isinstance(use.input, dict) and first.stop_reason == "tool_use", first)
    check("disable_parallel_tool_use", all(len(called(m)) <= 1 for m in (
        client.messages.create(**{**ask, "max_tokens": 24}, tools=tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True}) for _ in range(9))))
    said = list(ask["messages"])
    for turn in range(3):
        m = played(messages=said)
        said += [{"role": "assistant", "content": m.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": b.id, "content": str(turn)} for b in called(m)]}]
        check(f"turn {turn + 1} of tools", total(m.usage) == counted(messages=said[:-2], tools=tools), m)
    for _ in range(60):
        with client.messages.stream(**{**ask, "max_tokens": 16}, tools=tools) as stream:
            deltas = [e for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        if called(final):
            break
    check("a call in a stream", bool(called(final)) and deltas and called(final)[-1].input == json.loads(deltas[-1].partial_json), final)
    numbers = []

    @anthropic.beta_tool
    def add(a: float, b: float) -> str:
        """Adds two numbers."""
        numbers.append((a, b))
        return str(a + b)

    kept = anthropic.Anthropic(base_url=args.url, api_key=client.post("/v1/sessions", body={}, cast_to=object)["api_key"])
    runs = [list(kept.beta.messages.tool_runner(**{**ask, "max_tokens": 24}, tools=[add], max_iterations=3)) for _ in range(9)]
    check("the tool runner", numbers and max(map(len, runs)) > 1, (numbers, runs))
else:
    print("note  the model calls no tool")

# thinking
thoughtful = None
for _ in range(150):
    m = client.messages.create(**{**ask, "max_tokens": 16}, thinking={"type": "adaptive"})
    if m.content and m.content[0].type == "thinking" and plain(m):
        thoughtful = m
        break
if thoughtful:
    block = thoughtful.content[0]
    check("thinking", bool(block.thinking) and bool(block.signature), block)
    back = ask["messages"] + [{"role": "assistant", "content": thoughtful.content}, {"role": "user", "content": "So?"}]
    check("thinking comes back", say(messages=back).usage.output_tokens > 0)
    changed = [{**block.to_dict(), "thinking": block.thinking + "!"}]
    refused("thinking that was changed", anthropic.BadRequestError, "signature", lambda: say(messages=[
        *ask["messages"], {"role": "assistant", "content": changed}, ask["messages"][0]]))
    for _ in range(600):
        with client.messages.stream(**ask, thinking={"type": "adaptive"}) as stream:
            seen = [e.type for e in stream]
            final = stream.get_final_message()
        if "thinking" in seen:
            break
    check("thinking in a stream", "signature" in seen and any(b.type == "thinking" and b.signature for b in final.content), seen)
else:
    print("note  the model does not think")
check("thinking enabled", say(max_tokens=1025, thinking={"type": "enabled", "budget_tokens": 1024}).usage.output_tokens > 0)
check("thinking disabled", say(thinking={"type": "disabled"}).usage.output_tokens > 0)

# what is refused
bad = anthropic.BadRequestError
image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
user = ask["messages"]
refused("an image", bad, "image", lambda: say(messages=[{"role": "user", "content": [image]}]))
refused("a document", bad, "document", lambda: say(messages=[{"role": "user", "content": [{"type": "document", "source": {
    "type": "text", "media_type": "text/plain", "data": "x"}}]}]))
refused("an image of a tool", bad, "image", lambda: say(messages=[*history[:2], {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}]}]))
refused("the result of no call", bad, "toolu_9", lambda: say(messages=[{"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "toolu_9", "content": "3"}]}]))
refused("a forced call", bad, "tool_choice", lambda: say(tools=tools, tool_choice={"type": "any"}))
refused("a named call", bad, "tool_choice", lambda: say(tools=tools, tool_choice={"type": "tool", "name": "add"}))
refused("a strict tool", bad, "strict", lambda: say(tools=[{**tools[0], "strict": True}]))
refused("a JSON schema", bad, "output_config", lambda: say(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}))
refused("a tool of the server", bad, "web_search", lambda: say(tools=[{"type": "web_search_20250305", "name": "web_search"}]))
refused("the beginning of a reply", bad, "last message", lambda: say(messages=[*user, {"role": "assistant", "content": "It is"}]))
refused("a role", bad, "role", lambda: say(messages=[{"role": "king", "content": "x"}]))
refused("no messages", bad, "messages", lambda: say(messages=[]))
refused("a temperature", bad, "temperature", lambda: say({"temperature": -1}))
refused("max_tokens of 0", bad, "at least 1", lambda: say(max_tokens=0))
refused("an unknown parameter", bad, "did you mean temperature?", lambda: say({"temprature": 1}))
refused("a budget that is too large", bad, "budget_tokens", lambda: say(thinking={"type": "enabled", "budget_tokens": 2000}))
refused("a prompt too long", bad, "", lambda: say(messages=[{"role": "user", "content": "word " * 200000}]))
refused("a stream's request", bad, "tool_choice", lambda: say(tools=tools, tool_choice={"type": "any"}, stream=True))
refused("an unknown model", anthropic.NotFoundError, "no model", lambda: say(model=model + "x"), "not_found_error")
refused("an unknown model's count", anthropic.NotFoundError, "no model", lambda: counted(model=model + "x"), "not_found_error")
refused("an unknown path", anthropic.NotFoundError, "nothing at", lambda: client.messages.batches.list(), "not_found_error")
refused("another version", bad, "2023-06-01", lambda: say(extra_headers={"anthropic-version": "2020-01-01"}))
refused("a body too large", anthropic.APIStatusError, "larger", lambda: client.with_options(max_retries=0).messages.create(
    **{**ask, "system": "x" * (65 << 20)}), "request_too_large")

# keys
bearer = anthropic.Anthropic(base_url=args.url, auth_token=args.key, api_key=None)
check("a key as Bearer", bearer.messages.create(**ask).usage.output_tokens > 0)
if args.key != "none":
    wrong = anthropic.Anthropic(base_url=args.url, api_key="wrong")
    refused("a wrong key", anthropic.AuthenticationError, "key", lambda: wrong.messages.create(**ask), "authentication_error")
    refused("a wrong key's count", anthropic.AuthenticationError, "key", lambda: wrong.messages.count_tokens(
        model=model, messages=user), "authentication_error")

# sessions
opened = client.post("/v1/sessions", body={}, cast_to=object)
for name, at in ("address", dict(base_url=opened["base_url"], api_key=args.key)), ("key", dict(base_url=args.url, api_key=opened["api_key"])):
    own = anthropic.Anthropic(**at)
    said, drawn = [{"role": "user", "content": f"By its {name}."}], 0
    before = client.get(f"/v1/sessions/{opened['id']}", cast_to=object)["branches"]
    for turn in range(4):
        m = own.messages.create(**{**ask, "messages": said, "tools": tools})
        drawn += m.usage.output_tokens
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "3"} for b in called(m)]
        said += [{"role": "assistant", "content": m.content}, {"role": "user", "content": results + [{"type": "text", "text": f"{turn}?"}]}]
    branches = client.get(f"/v1/sessions/{opened['id']}", cast_to=object)["branches"]
    check(f"a session by its {name}", len(branches) == len(before) + 1 and sum(branches[-1]["mask"]) == drawn, (len(before), len(branches), drawn))

# many at a time
def one(i):
    return client.messages.create(**{**ask, "max_tokens": 16 + i % 32}).usage.output_tokens <= 16 + i % 32


with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
    check(f"{args.clients} clients", all(pool.map(one, range(args.clients))))


async def together():
    async with anthropic.AsyncAnthropic(base_url=args.url, api_key=args.key, max_retries=8) as several:
        return await asyncio.gather(*(several.messages.create(**ask, extra_body=GREEDY) for _ in range(8)))


check("the asynchronous client", all(blocks(m) == blocks(whole) for m in asyncio.run(together())))

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for prices otherwise
try:
    import litellm
except ImportError:
    print("note  LiteLLM is not installed")
else:
    litellm.suppress_debug_info = True
    for name, route in ("Anthropic's", dict(model="anthropic/" + model, api_base=args.url)), (
            "OpenAI's", dict(model="openai/" + model, api_base=args.url + "/v1")):
        route = {**route, "api_key": args.key, "messages": ask["messages"], "max_tokens": 24, "temperature": 0}
        answer = litellm.completion(**route)
        check(f"LiteLLM by {name} API", answer.usage.completion_tokens > 0 and answer.choices[0].finish_reason, answer)
        parts = list(litellm.completion(**route, stream=True))
        streamed = "".join(p.choices[0].delta.content or "" for p in parts)
        check(f"LiteLLM in a stream by {name} API", streamed == (answer.choices[0].message.content or ""), (streamed, answer))
        functions = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}} for t in tools]
        check(f"LiteLLM with tools by {name} API", bool(litellm.completion(**{**route, "temperature": 1}, tools=functions).choices))
    by = dict(model="openai/" + model, api_base=args.url + "/v1", api_key=args.key, max_output_tokens=12, temperature=0)
    response = litellm.responses(input="Name a colour.", **by)
    after = litellm.responses(input="Another.", previous_response_id=response.id, **by)
    check("LiteLLM's responses go on", after.usage.input_tokens > response.usage.input_tokens, after)

print(f"{passed} passed")
sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)
