"""RAGEN's environments, from a checkout of its sources.

A reset makes and renders an episode, a step plays one action and renders the state after it. Actions are random; drawing them is not timed.
"""
import importlib
import random
import sys
import time
import types
import unittest.mock


def discrete(env):
    return lambda: random.choice(list(env.ACTION_LOOKUP))


def sudoku(env):
    return lambda: "place %d at row %d col %d" % tuple(random.randint(1, 9) for _ in range(3))


TAGS = {
    "SimpleSokoban": ("sokoban", "SokobanEnv", "SokobanEnvConfig", {"dim_room": (6, 6), "num_boxes": 1}, discrete),
    "LargerSokoban": ("sokoban", "SokobanEnv", "SokobanEnvConfig", {"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10}, discrete),
    "FrozenLake": ("frozen_lake", "FrozenLakeEnv", "FrozenLakeEnvConfig", {"success_rate": 0.8}, discrete),
    "Bandit": ("bandit", "BanditEnv", "BanditEnvConfig", {}, discrete),
    "SimpleSudoku": ("sudoku", "SudokuEnv", "SudokuEnvConfig", {"difficulty": "easy", "render_format": "with_feedback", "show_conflicts": True}, sudoku),
    "game_2048": ("game_2048", "Game2048Env", "Game2048EnvConfig", {}, discrete),
    "rubikscube": ("rubikscube", "RubiksCube2x2Env", "RubiksCube2x2Config", {"scramble_depth": 1, "max_steps": 20}, discrete),
}


def prepare(source):
    """Makes RAGEN's environments importable without what their packages import besides."""
    for name in ("ragen", "ragen.env"):
        package = types.ModuleType(name)
        package.__path__ = [f"{source}/{name.replace('.', '/')}"]
        sys.modules[name] = package
    for name in ("hydra", "datasets", "matplotlib", "matplotlib.animation", "matplotlib.pyplot", "requests", "tqdm"):
        sys.modules[name] = unittest.mock.MagicMock()


class Worker:
    def __init__(self, options, channel):
        prepare(options.source)
        self.versions, self.notes = {"python": sys.version.split()[0]}, []

    def environment(self, task):
        module, kind, config, options, chooser = TAGS[task["tag"]]
        config = getattr(importlib.import_module(f"ragen.env.{module}.config"), config)(**options)
        env = getattr(importlib.import_module(f"ragen.env.{module}.env"), kind)(config)
        if module == "sokoban":  # gym-sokoban draws a picture at every step, which RAGEN throws away
            env.get_image = lambda *_, **__: None
        seed, clock = 10000, time.perf_counter
        spent, count = {"resets": 0.0, "steps": 0.0}, {"resets": 0, "steps": 0}

        def timed(what, call):
            begin = clock()
            result = call()
            spent[what] += clock() - begin
            count[what] += 1
            return result

        end = clock() + task["seconds"]
        while clock() < end:
            timed("resets", lambda: env.reset(seed=seed))
            seed += 1
            draw = chooser(env)
            for _ in range(10):
                action = draw()
                if timed("steps", lambda: env.step(action))[2]:
                    break
        return {"seconds": spent[task["counts"]], "tokens": count[task["counts"]]}
