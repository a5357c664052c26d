#!/usr/bin/env python3
"""Serves text environments written in Python to Gyre (docs/remote-environments.md), over HTTP or stdin/stdout.

    python scripts/remote_env.py --gym FrozenLake-v1 --actions Left,Down,Right,Up --port 8900
    python scripts/remote_env.py --factory my_module:make --stdio

A factory is called with the options of the experiment (config = '{"size": 4}') and returns an object with

    reset(seed) -> text                       or (text, info)
    step(action) -> (text, reward, done)      or Gymnasium's five values

and, where it likes, the attributes instruction (text), actions (list of names; absent = any text), tools, stop, and close().
Instead of text a list of messages {"role": "user" | "tool", "content": …} may be returned. The info of a step may hold "success",
"valid", "effective", "parts" ({name: value}) and numbers for metrics. Needs nothing beyond the standard library.
"""

import argparse
import asyncio
import collections
import contextlib
import functools
import hmac
import importlib
import inspect
import json
import math
import os
import random
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
    """A number that JSON can hold, or None."""
    if isinstance(value, (bool, int, float)) or hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = float(value)
        return value if math.isfinite(value) else None
    return None


class Gymnasium:
    """A Gymnasium environment: actions are names of its discrete ones, observations what it draws or says."""

    def __init__(self, env, actions, show=None, instruction=""):
        self.env, self.actions, self.instruction, self.show = env, list(actions), instruction, show
        self.close = env.close

    def _text(self, observation):
        if self.show:
            return self.show(self.env, observation)
        if getattr(self.env, "render_mode", None) == "ansi":
            return str(self.env.render()).strip("\n")
        return observation if isinstance(observation, str) else f"observation: {observation}"

    def reset(self, seed):
        self.env.action_space.seed(seed)
        return self._text(self.env.reset(seed=seed)[0])

    def step(self, action):
        names = [name.lower() for name in self.actions]
        if action.lower() not in names:
            return None  # no such action
        observation, reward, terminated, truncated, info = self.env.step(names.index(action.lower()))
        numbers = {key: number(value) for key, value in info.items()}
        numbers = {key: value for key, value in numbers.items() if value is not None}
        return self._text(observation), float(reward), terminated or truncated, {"success": terminated and reward > 0, **numbers}


class Place:
    """One environment and what was last said about it."""

    def __init__(self, env):
        self.env, self.lock, self.seq, self.last, self.running = env, threading.Lock(), 0, None, False

    def reset(self, item):
        random.seed(item["seed"])  # for environments that use the global generator; processes of one environment only are exact then
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
            raise ValueError(f"step {item['seq']} after step {self.seq}" if self.running else "the episode is not running")
        told = finished(self.env.step(item["action"]))
        if told is None:
            out = {"observation": shown(self.state), "reward": 0.0, "valid": False}
        else:
            state, reward, done, *rest = told
            if len(rest) == 2:  # terminated, truncated, info
                done, rest = done or rest[0], [rest[1]]
            info = dict(rest[0]) if rest else {}
            out = {"observation": shown(state), "reward": float(reward), "done": bool(done), "success": bool(info.pop("success", False))}
            for name in ("valid", "effective"):
                if name in info:
                    out[name] = bool(info.pop(name))
            parts = info.pop("parts", {})
            out["parts"] = [{"name": name, "value": value} for name, value in parts.items()] if isinstance(parts, dict) else parts
            out["info"] = {k: number(v) for k, v in info.items() if number(v) is not None}
            self.state, self.running = state, not out["done"]
        self.seq, self.last = item["seq"], out
        return out


def shown(state):
    if isinstance(state, list):
        keep = ("role", "name", "content")
        return {"messages": [{**{k: m[k] for k in keep if m.get(k)}, "call_id": m.get("tool_call_id") or m.get("call_id") or ""} for m in state]}
    if isinstance(state, dict):
        return state
    return {"text": str(state)}


class Server:
    """The protocol: create, reset, step, close; each answers a list of items in order. At most `batch` of them make a request. With
    side_by_side each has a thread of its own while they take long, so that those that wait (for a network, a judge) wait at the same time."""

    LONG = 0.01  # seconds, many times what a thread takes to start

    def __init__(self, factory, capacity=4096, batch=64, side_by_side=False):
        self.factory, self.capacity, self.batch, self.side_by_side = factory, capacity, batch, side_by_side
        self.places, self.lock = collections.OrderedDict(), threading.Lock()
        self.pace = collections.defaultdict(float)  # seconds that an item takes, by method, the last ones counting most

    def answer(self, method, request):
        if method not in ("create", "reset", "step", "close"):
            return {"error": f"unknown method {method!r}: expected create, reset, step or close"}
        items = [request.get("config") or {}] * int(request.get("count", 1)) if method == "create" else request.get("items", [])
        if len(items) > self.batch:
            return {"error": f"{len(items)} items in a request, expected at most {self.batch}"}
        if method == "create":
            return {"ids": self.keep(self.each(method, lambda config: Place(self.factory(**config)), items)), "batch": self.batch}
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
        wbufsize, disable_nagle_algorithm = -1, True  # an answer is sent at once and as a whole, not after the client's delayed acknowledgement

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
                self.reply(200, {"status": "ok", "protocol": 1, "batch": server.batch, "environments": len(server.places)})
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


def serve_stdio(server):
    out, sys.stdout = sys.stdout, sys.stderr  # what environments print must not get between the lines
    for line in sys.stdin:
        try:
            request = json.loads(line)
            text = json.dumps(server.answer(request.get("method"), request), allow_nan=False)
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            text = json.dumps({"error": f"{type(problem).__name__}: {problem}"[:2000]})
        print(text, file=out, flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--factory", metavar="MODULE:FUNCTION", help="makes an environment from the experiment's options")
    what.add_argument("--gym", metavar="ID", help="a Gymnasium environment with discrete actions")
    what.add_argument("--verifiers", metavar="ID", help="an environment that verifiers.load_environment knows")
    options.add_argument("--actions", default="", help="names of --gym's actions, in order, with commas")
    options.add_argument("--instruction", default="", help="rules of --gym's environment")
    options.add_argument("--stdio", action="store_true", help="talk over stdin and stdout instead of HTTP")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8900, help="0 = any free one")
    options.add_argument("--batch", type=int, default=64, help="items that a request may hold; 1 suits environments that take long and unequally")
    given = options.parse_args()
    if given.batch < 1:
        options.error(f"argument --batch: expected at least 1, got {given.batch}")
    if given.factory:
        sys.path.insert(0, os.getcwd())
        module, _, name = given.factory.partition(":")
        factory = getattr(importlib.import_module(module), name)
    elif given.gym:
        import gymnasium

        def factory(**config):
            config.setdefault("render_mode", "ansi")
            env = gymnasium.make(given.gym, **config)
            names = [n for n in given.actions.split(",") if n] or [str(n) for n in range(env.action_space.n)]
            return Gymnasium(env, names, instruction=given.instruction)
    else:
        import verifiers
        from remote_verifiers import Verifiers

        @functools.cache
        def shared(config):
            return verifiers.load_environment(given.verifiers, **json.loads(config))

        loading = threading.Lock()

        def factory(**config):
            with loading:
                return Verifiers(shared(json.dumps(config, sort_keys=True)))
    if given.stdio:
        serve_stdio(Server(factory, batch=given.batch))
    else:
        serve_http(Server(factory, batch=given.batch, side_by_side=True), given.host, given.port, os.environ.get("GYRE_ENV_TOKEN", ""))


if __name__ == "__main__":
    main()
