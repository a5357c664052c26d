"""Gyre's protocol for environments (docs/remote-environments.md), over HTTP or stdin and stdout.

remote_env.py and the adapters for other libraries' environments beside it share this module. It needs the standard library only.
"""

import asyncio
import collections
import contextlib
import hmac
import inspect
import json
import math
import numbers
import os
import random
import re
import sys
import threading
import time
import traceback
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_REQUEST = 16 << 20


def finished(value):
    """The value, awaited if need be."""
    if not inspect.isawaitable(value):
        return value

    async def wait():
        return await value

    return asyncio.run(wait())


def number(value):
    """A number of any library as one that JSON can hold, or None."""
    if hasattr(value, "item"):  # of numpy and torch, whatever its shape
        try:
            value = value.item()
        except (TypeError, ValueError, RuntimeError):  # it has several elements
            return None
    if not isinstance(value, numbers.Number) or isinstance(value, complex):
        return None
    try:
        value = float(value)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


COLOURS = "black red green yellow blue magenta cyan white".split()
COLOURED = re.compile(r"\x1b\[([\d;]*)m([^\x1b]*)\x1b\[0?m")
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def plain(text):
    """A text without escape sequences and control characters. What was highlighted stands in brackets, and a colour is named: "[P]", "R(blue)"."""

    def mark(match):
        codes = [int(code or 0) for code in match[1].split(";")]
        for code in codes:
            if code == 7 or 40 <= code <= 47 or 100 <= code <= 107:
                return f"[{match[2]}]"
        for code in codes:
            if 30 <= code <= 37 or 90 <= code <= 97:
                return f"{match[2]}({COLOURS[code % 10]})"
        return match[2]

    count = 1
    while count:  # colours inside colours: the inner ones first
        text, count = COLOURED.subn(mark, text)
    return ESCAPE.sub("", text)


CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def said(reply):
    """What a reply says after its thoughts."""
    return reply.partition("</think>")[2] if "</think>" in reply else reply


def tool_calls(reply):
    """The calls of a reply as chat templates write them, as (name, arguments); a call that is no JSON has no name and its text."""
    calls = []
    for text in CALL.findall(said(reply)):
        try:
            call = json.loads(text)
            name, arguments = str(call["name"]), call.get("arguments", {})
            if isinstance(arguments, str):  # JSON inside a string
                arguments = json.loads(arguments)
            calls.append((name, arguments if isinstance(arguments, dict) else {}))
        except (ValueError, KeyError, TypeError):
            calls.append(("", text))
    return calls


def result(name, number, text):
    """The message that answers a tool call."""
    return {"role": "tool", "name": name, "tool_call_id": f"call_{number}", "content": text}


class Place:
    """One environment and what was last said about it."""

    def __init__(self, env):
        self.env, self.lock, self.seq, self.last, self.running = env, threading.Lock(), 0, None, False

    def reset(self, item):
        random.seed(item["seed"])  # for environments with the global generator; exact in a process of one environment only
        if hasattr(self.env, "set_member"):
            self.env.set_member(item.get("member", 0))
        state = finished(self.env.reset(item["seed"]))
        if isinstance(state, tuple):
            state = state[0]
        self.seq, self.last, self.running, self.state = 0, None, True, state
        out = {"observation": shown(state), "instruction": getattr(self.env, "instruction", "") or ""}
        for name in ("actions", "tools", "stop"):
            if getattr(self.env, name, None):
                out[name] = list(getattr(self.env, name))
        return out

    def step(self, item):
        if item["seq"] == self.seq and self.last:  # asked again: the answer got lost on its way
            return self.last
        if not self.running or item["seq"] != self.seq + 1:
            where = f"step {item['seq']} after step {self.seq}" if self.running else "the episode is not running"
            raise ValueError(where)
        told = finished(self.env.step(item["action"]))
        if told is None:
            out = {"observation": shown(self.state), "reward": 0.0, "valid": False}
        else:
            state, reward, done, *rest = told
            if len(rest) == 2:  # terminated, truncated, info
                done, rest = done or rest[0], [rest[1]]
            info = dict(rest[0]) if rest else {}
            out = {"observation": shown(state), "reward": float(reward), "done": bool(done)}
            for name in ("success", "valid", "effective"):
                if name in info:
                    out[name] = bool(info.pop(name))
            parts = info.pop("parts", {})
            if isinstance(parts, dict):
                parts = [{"name": name, "value": value} for name, value in parts.items()]
            out["parts"] = parts
            # Names of metrics hold no separators and begin with no dot.
            out["info"] = {re.sub(r"[^\w.+@-]|^\.", "_", str(k))[:100]: number(v) for k, v in info.items() if number(v) is not None}
            self.state, self.running = state, not out["done"]
        self.seq, self.last = item["seq"], out
        return out


def shown(state):
    """What an environment returned, as an observation."""
    text = state["text"] if isinstance(state, dict) and "messages" not in state and "text" in state else state
    if text is None or callable(text) or isinstance(text, (tuple, set)):
        raise TypeError(f"the environment returned {text!r:.80} to be shown: expected a text, or a list of messages with role and content")
    if isinstance(state, list):
        for m in state:
            if not isinstance(m, dict) or not isinstance(m.get("content"), (str, type(None))):
                raise TypeError(f"the environment returned a message {m!r:.80}: expected a dictionary of role and content, a text")
        return {"messages": [{
            "role": m.get("role", ""), "name": m.get("name") or "", "content": plain(m.get("content") or ""),
            "call_id": m.get("tool_call_id") or m.get("call_id") or ""} for m in state]}
    if isinstance(state, dict):
        return {**state, "text": plain(state["text"])} if isinstance(state.get("text"), str) else state
    return {"text": plain(str(state))}


class Server:
    """The protocol: create, reset, step, close; each answers a list of items in order. At most `batch` of them make a request.

    With side_by_side each has a thread of its own while they take long, so that those that wait (for a network, a judge) wait at
    the same time.
    """

    LONG = 0.01  # seconds, many times what a thread takes to start

    def __init__(self, factory, capacity=4096, batch=64, side_by_side=False):
        self.factory, self.capacity, self.batch, self.side_by_side = factory, capacity, batch, side_by_side
        self.places, self.lock = collections.OrderedDict(), threading.Lock()
        self.pace = collections.defaultdict(float)  # seconds that an item takes, by method, the last ones counting most

    def answer(self, method, request):
        if method not in ("create", "reset", "step", "close"):
            return {"error": f"unknown method {method!r}: expected create, reset, step or close"}
        items = request.get("items", [])
        if method == "create":
            items = [request.get("config") or {}] * int(request.get("count", 1))
        if len(items) > self.batch:
            return {"error": f"{len(items)} items in a request, expected at most {self.batch}"}
        if method == "create":
            places = self.each(method, lambda config: Place(self.factory(**config)), items)
            return {"ids": self.keep(places), "batch": self.batch}
        return {"items": self.each(method, lambda item: self.item(method, item), items)}

    def each(self, method, function, items):
        done, problems = [None] * len(items), []

        def one(index):
            begun = time.monotonic()
            try:
                done[index] = function(items[index])
            except Exception as problem:  # of a factory
                problems.append(problem)
            self.pace[method] += 0.2 * (time.monotonic() - begun - self.pace[method])

        index = 0
        while index < len(items) and not (self.side_by_side and self.pace[method] > self.LONG):
            one(index)
            index += 1
        threads = [threading.Thread(target=one, args=(rest,), daemon=True) for rest in range(index, len(items))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return done

    def keep(self, places):
        keys = [uuid.uuid4().hex for _ in places]
        with self.lock:
            self.places.update(zip(keys, places))
            old = [self.places.popitem(last=False)[1] for _ in range(len(self.places) - self.capacity)]
        for forgotten in old:
            shut(forgotten.env)
        return keys

    def item(self, method, item):
        key = item.get("id")
        with self.lock:
            place = self.places.pop(key, None) if method == "close" else self.places.get(key)
            if place and method != "close":
                self.places.move_to_end(key)
        if place is None:
            return {"id": key, "gone": True}
        with place.lock:
            try:
                if method == "close":
                    shut(place.env)
                    return {"id": key, "observation": {}}
                return {"id": key, **getattr(place, method)(item)}
            except Exception as problem:  # of the environment: its episode fails, not the server
                traceback.print_exc(file=sys.stderr)
                place.running = False
                return {"id": key, "error": f"{type(problem).__name__}: {problem}"[:2000]}


def shut(env):
    with contextlib.suppress(Exception):
        if hasattr(env, "close"):
            finished(env.close())


def serve_http(server, host, port, token):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize, disable_nagle_algorithm = -1, True  # an answer is sent as a whole, not after a delayed acknowledgement

        def reply(self, status, body):
            text = json.dumps(body, allow_nan=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

        def do_GET(self):
            if self.path == "/health":
                known = len(server.places)
                self.reply(200, {"status": "ok", "protocol": 1, "batch": server.batch, "environments": known})
            else:
                self.reply(404, {"error": "expected GET /health, or POST to /create, /reset, /step or /close"})

        def do_POST(self):
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= MAX_REQUEST:
                self.close_connection = True
                return self.reply(413, {"error": f"requests may have at most {MAX_REQUEST} bytes"})
            body = self.rfile.read(length)
            if token and not hmac.compare_digest(self.headers.get("Authorization", ""), "Bearer " + token):
                return self.reply(401, {"error": "wrong or missing bearer token"})
            try:
                self.reply(200, server.answer(self.path.strip("/"), json.loads(body)))
            except Exception as problem:  # a request that is none, or a factory that fails
                traceback.print_exc(file=sys.stderr)
                self.reply(400, {"error": f"{type(problem).__name__}: {problem}"[:2000]})

        def log_message(self, *_):
            pass

    class Listener(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 256

    with Listener((host, port), Handler) as listener:
        print(f"listening on http://{host}:{listener.server_address[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            listener.serve_forever()


def aside():
    """Gives standard output to the protocol alone: what this process and those it starts print goes to standard error from now on."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def serve_stdio(server, out):
    for line in sys.stdin:
        try:
            request = json.loads(line)
            text = json.dumps(server.answer(request.get("method"), request), allow_nan=False)
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            text = json.dumps({"error": f"{type(problem).__name__}: {problem}"[:2000]})
        print(text, file=out, flush=True)
