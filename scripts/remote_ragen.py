"""Environments of RAGEN's registry for remote_env.py.

    python scripts/remote_env.py --ragen sokoban --port 8900                        RAGEN's package is installed
    python scripts/remote_env.py --ragen WebShop --source ~/RAGEN --port 8900       a checkout; a tag of its config/envs.yaml

A name of the registry takes the options of its configuration class, a tag those of config/envs.yaml besides. Environments with an
action_lookup offer its names as actions (tag Remote), the others take any text.
"""

import importlib
import inspect
import os
import pathlib
import sys
import types

from remote_protocol import number


def factory(given):
    """Makes environments of one class of the registry."""
    source = pathlib.Path(given.source).expanduser() if given.source else None
    if source:
        sys.path.insert(0, str(source))
    tag = tags(source).get(given.ragen, {})
    kind, settings = registered(tag.get("env_type", given.ragen), source)
    rules = tag.get("env_instruction") or given.instruction

    def make(mode="train", **config):
        options = settings(**{**(tag.get("env_config") or {}), **config})
        return Ragen(kind(options), options, mode, rules)

    return make


def tags(source):
    """The tags of config/envs.yaml: environments with their options and rules."""
    if not source or not (path := source / "config" / "envs.yaml").exists():
        return {}
    import yaml

    return yaml.safe_load(path.read_text())["custom_envs"]


def registered(name, source):
    """A class of the registry and the class of its options. Where the registry cannot be imported, because it imports what other
    environments depend on, the environment is imported alone."""
    try:
        registry = importlib.import_module("ragen.env")
        return registry.REGISTERED_ENVS[name], registry.REGISTERED_ENV_CONFIGS[name]
    except KeyError:
        known = ", ".join(sorted(registry.REGISTERED_ENVS))
        raise SystemExit(f"remote_ragen: RAGEN registers no {name!r}; it has {known}") from None
    except ImportError as problem:
        if not source or not (source / "ragen" / "env" / name / "env.py").exists():
            raise SystemExit(f"remote_ragen: {problem}: install RAGEN with what {name!r} depends on, or name a checkout "
                             "with --source") from None
    for package in ("ragen", "ragen.env"):  # without their __init__
        module = types.ModuleType(package)
        module.__path__ = [str(source / package.replace(".", os.sep))]
        sys.modules[package] = module
    return one(name, "env", "reset"), one(name, "config", "")


def one(name, part, method):
    """The class that a module of an environment defines."""
    module = importlib.import_module(f"ragen.env.{name}.{part}")
    found = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
    found = [c for c in found if method in vars(c)] if method else [c for c in found if c.__name__.endswith("Config")]
    if len(found) != 1:
        raise SystemExit(f"remote_ragen: {module.__name__}: expected one class of an environment, found {len(found)}")
    return found[0]


class Ragen:
    """An environment of RAGEN, played as its manager plays it."""

    def __init__(self, env, options, mode, instruction):
        self.env, self.options, self.mode, self.instruction = env, options, mode, (instruction or "").strip()

    def reset(self, seed):
        takes = inspect.signature(self.env.reset).parameters
        named = "mode" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values())
        self.env.reset(seed=seed, **({"mode": self.mode} if named else {}))
        lookup = getattr(self.options, "action_lookup", None) or {}  # that of a bandit depends on the seed
        self.numbers = {str(name).lower(): key for key, name in lookup.items()}
        self.actions = [str(name) for name in lookup.values()] or None
        return self.seen()

    def step(self, action):
        if self.actions:
            if action.lower() not in self.numbers:
                return None  # no such action
            action = self.numbers[action.lower()]
        _, reward, done, info = self.env.step(action)
        told = {"action_is_valid": "valid", "action_is_effective": "effective"}
        info = {told.get(key, key): value for key, value in info.items() if key in told or number(value) is not None}
        return self.seen(), float(reward), bool(done), info

    def seen(self):
        state = self.env.render()
        if not isinstance(state, str):
            raise TypeError(f"{type(self.env).__name__} draws {type(state).__name__}, expected a text: set render_mode to text")
        return state

    def close(self):
        self.env.close()
