#!/usr/bin/env python3
"""Serves text environments written in Python to Gyre (docs/remote-environments.md), over HTTP or stdin/stdout.

    python scripts/remote_env.py --gym FrozenLake-v1 --actions Left,Down,Right,Up --port 8900
    python scripts/remote_env.py --factory my_module:make --stdio
    python scripts/remote_env.py --ragen WebShop --source ~/RAGEN        (also --verifiers, --openenv, --ors)

A factory is called with the options of the experiment (config = '{"size": 4}') and returns an object with

    reset(seed) -> text                       or (text, info)
    step(action) -> (text, reward, done)      or Gymnasium's five values

and, where it likes, the attributes instruction (text), actions (list of names; absent = any text), tools, stop, and close().
Instead of text a list of messages {"role": "user" | "tool", "content": …} may be returned. The info of a step may hold "success",
"valid", "effective", "parts" ({name: value}) and numbers for metrics. Needs nothing beyond the standard library.
"""

import argparse
import importlib
import os
import sys

from remote_protocol import Server, aside, number, serve_http, serve_stdio


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
        info = {"success": terminated and reward > 0, **numbers}
        return self._text(observation), float(reward), terminated or truncated, info


def gymnasium(given):
    """Makes environments of Gymnasium."""
    import gymnasium

    def factory(**config):
        config.setdefault("render_mode", "ansi")
        env = gymnasium.make(given.gym, **config)
        names = [n for n in given.actions.split(",") if n] or [str(n) for n in range(env.action_space.n)]
        return Gymnasium(env, names, instruction=given.instruction)

    return factory


def own(given):
    """The factory that --factory names."""
    sys.path.insert(0, os.getcwd())
    module, _, name = given.factory.partition(":")
    return getattr(importlib.import_module(module), name)


def adapter(module):
    """The factory of a library's adapter, which is imported when it is asked for."""
    return lambda given: importlib.import_module(module).factory(given)


KINDS = {
    "factory": (own, "MODULE:FUNCTION", "makes an environment from the experiment's options"),
    "gym": (gymnasium, "ID", "a Gymnasium environment with discrete actions"),
    "verifiers": (adapter("remote_verifiers"), "ID", "an environment that verifiers.load_environment knows"),
    "ragen": (adapter("remote_ragen"), "NAME", "an environment of RAGEN's registry, or a tag of its config/envs.yaml"),
    "openenv": (adapter("remote_openenv"), "URL", "a server of OpenEnv"),
    "ors": (adapter("remote_ors"), "URL", "a server of the Open Reward Standard"),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = options.add_mutually_exclusive_group(required=True)
    for name, (_, metavar, text) in KINDS.items():
        what.add_argument("--" + name, metavar=metavar, help=text)
    options.add_argument("--actions", default="", help="names of --gym's actions, in order, with commas")
    options.add_argument("--instruction", default="", help="rules of the environment of --gym and --openenv")
    options.add_argument("--source", default="", help="a checkout of RAGEN, where the package is not installed")
    options.add_argument("--stdio", action="store_true", help="talk over stdin and stdout instead of HTTP")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8900, help="0 = any free one")
    options.add_argument("--batch", type=int, default=64,
                         help="items that a request may hold; 1 suits environments that take long and unequally")
    given = options.parse_args()
    if given.batch < 1:
        options.error(f"argument --batch: expected at least 1, got {given.batch}")
    out = aside() if given.stdio else None
    factory = next(make for name, (make, _, _) in KINDS.items() if getattr(given, name))(given)
    if given.stdio:
        serve_stdio(Server(factory, batch=given.batch), out)
    else:
        server = Server(factory, batch=given.batch, side_by_side=True)
        serve_http(server, given.host, given.port, os.environ.get("GYRE_ENV_TOKEN", ""))


if __name__ == "__main__":
    main()
