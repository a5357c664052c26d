"""Environments of the verifiers library (0.1.9 to 0.3) for remote_env.py: they run their own rollouts, and the policy is Gyre.

    python scripts/remote_env.py --verifiers ENVIRONMENT --port 8900        (tag RemoteText)

An environment's rollout asks a model for replies. Here that model waits until Gyre's policy has said something: a reset gives what
the environment asks first, a step hands over a reply and gives what it asks next, or the rubric's rewards, each a component.
"""

import asyncio
import functools
import inspect
import json
import queue
import threading
import time
import types

from remote_protocol import CALL, tool_calls


def factory(given):
    """Makes places at an environment that verifiers knows; equal options share it."""
    import verifiers

    @functools.cache
    def shared(config):
        return verifiers.load_environment(given.verifiers, **json.loads(config))

    loading = threading.Lock()

    def make(**config):
        with loading:
            return Verifiers(shared(json.dumps(config, sort_keys=True)))

    return make


def loop():
    """The event loop in which all rollouts of this process run, in a thread of its own."""
    if not hasattr(loop, "running"):
        loop.running = asyncio.new_event_loop()
        threading.Thread(target=loop.running.run_forever, daemon=True).start()
    return loop.running


class Verifiers:
    """One place at an environment, which may be shared: every rollout has a state of its own."""

    def __init__(self, env):
        if "input" not in inspect.signature(env.rollout).parameters:
            raise TypeError(f"{type(env).__name__}.rollout takes no input: expected verifiers 0.1.9 to 0.3")
        self.env, self.task, self.tools = env, None, []
        data = getattr(env, "get_dataset", None)
        self.rows = data() if data else env.dataset

    def reset(self, seed):
        self.close()
        self.asked, self.replies = queue.Queue(), asyncio.Queue()
        row = {"example_id": seed % len(self.rows), **self.rows[seed % len(self.rows)]}
        self.task = asyncio.run_coroutine_threadsafe(self._play(row), loop())
        return self._next()[0]

    def step(self, reply):
        loop().call_soon_threadsafe(self.replies.put_nowait, reply)
        return self._next()

    def close(self):
        if self.task:
            self.task.cancel()
            self.task = None

    def _next(self):
        """What the environment says next: messages and whether it is over, with the rewards."""
        what, value = self.asked.get()
        if what == "failed":
            raise value
        if what == "messages":
            return value, 0.0, False
        reward, parts, most = value
        return [], reward, True, {"success": most > 0 and reward >= most - 1e-9, "parts": parts}

    async def _play(self, row):
        try:
            state = await self.env.rollout(row, client(self._answer), "gyre", {})
            if state.get("error"):
                raise RuntimeError(f"the rollout failed: {state['error']!r}")
            score = getattr(self.env.rubric, "score_rollout")
            if getattr(self.env.rubric, "has_group_rewards", False):
                raise TypeError("the rubric compares the rollouts of a group; expected one that scores single rollouts")
            told = score(state) if len(inspect.signature(score).parameters) == 1 else score(state, score_sem=NoLimit())
            if inspect.isawaitable(told):
                await told
            rubrics = getattr(self.env.rubric, "rubrics", [self.env.rubric])
            weights = [w for r in rubrics for w in getattr(r, "weights", None) or getattr(r, "reward_weights", [])]
            parts = {name: float(value) for name, value in (state["metrics"] or {}).items()}
            self.asked.put(("over", (float(state["reward"]), parts, sum(max(0.0, w) for w in weights))))
        except asyncio.CancelledError:
            raise
        except BaseException as problem:
            self.asked.put(("failed", problem))

    async def _answer(self, *, messages, tools=None, **_):
        """Stands in for a model: tells what was asked and waits for the policy."""
        messages = [m if isinstance(m, dict) else dict(m) for m in messages]
        new = max((i + 1 for i, m in enumerate(messages) if m.get("role") == "assistant"), default=0)
        self.tools = [tool.get("function", tool) for tool in tools or []]
        self.asked.put(("messages", [{**m, "content": text(m.get("content"))} for m in messages[new:]]))
        reply = await self.replies.get()
        return completion(reply, bool(tools))


class NoLimit:
    """A semaphore that lets everybody in."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


def text(content):
    """The text of a message, whose content may be a list of pieces."""
    if isinstance(content, list):
        return "".join(piece.get("text", "") for piece in content if isinstance(piece, dict))
    return content or ""


def completion(reply, tools):
    """A reply as OpenAI's interface has it, its tool calls read as chat templates write them."""
    message = {"role": "assistant", "content": reply or " "}  # the library takes no reply for a failing model
    calls = tool_calls(reply) if tools else []
    if calls:
        message["content"] = CALL.sub("", reply).strip()
        message["tool_calls"] = [  # a call without a name: the environment says that there is no such tool
            {"id": f"call_{k + 1}", "type": "function", "function": {
                "name": name, "arguments": json.dumps(arguments) if name else arguments}}
            for k, (name, arguments) in enumerate(calls)]
    body = {"id": "gyre", "object": "chat.completion", "created": int(time.time()), "model": "gyre", "choices": [
        {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    try:
        from openai.types.chat import ChatCompletion
    except ImportError:
        return json.loads(json.dumps(body), object_hook=lambda fields: types.SimpleNamespace(**fields))
    return ChatCompletion.model_validate(body)


def client(answer):
    """What an environment asks for replies: OpenAI's asynchronous client as far as it is used, as the library wraps it."""
    chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=answer))
    plain = types.SimpleNamespace(chat=chat, base_url="http://gyre")
    try:
        from verifiers.clients import OpenAIChatCompletionsClient
    except ImportError:
        return plain

    class Client(OpenAIChatCompletionsClient):
        async def get_native_response(self, prompt, model, sampling_args, tools=None, **_):
            return await answer(messages=prompt, tools=tools)

    wrapped = Client(plain)
    wrapped.chat = chat
    return wrapped
