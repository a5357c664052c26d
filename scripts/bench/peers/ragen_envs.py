"""Times RAGEN's environments: `ragen_envs.py SOURCE`, SOURCE being a checkout of RAGEN. Reads one JSON object per line,
{"tag": …, "seconds": …}, and writes {"reset": seconds, "step": seconds} or {"error": …}.

A reset makes and renders an episode, a step plays one action and renders the state after it. Actions are random; drawing them is not timed.
"""
import importlib
import json
import pathlib
import random
import sys
import time
import types
import unittest.mock

source = pathlib.Path(sys.argv[1])
for name in ("ragen", "ragen.env"):  # without their __init__, which imports every environment's dependencies
    package = types.ModuleType(name)
    package.__path__ = [str(source / name.replace(".", "/"))]
    sys.modules[name] = package
for name in ("hydra", "datasets", "matplotlib", "matplotlib.animation", "matplotlib.pyplot", "requests", "tqdm"):
    sys.modules[name] = unittest.mock.MagicMock()


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


def measure(tag, seconds):
    module, kind, config, options, chooser = TAGS[tag]
    config = getattr(importlib.import_module(f"ragen.env.{module}.config"), config)(**options)
    env = getattr(importlib.import_module(f"ragen.env.{module}.env"), kind)(config)
    if module == "sokoban":  # gym-sokoban draws a picture at every step, which RAGEN throws away
        env.get_image = lambda *_, **__: None
    seed, clock = 10000, time.perf_counter
    times = {"reset": [0.0, 0], "step": [0.0, 0]}

    def timed(what, call):
        begin = clock()
        result = call()
        times[what][0] += clock() - begin
        times[what][1] += 1
        return result

    end = clock() + seconds
    while clock() < end:
        timed("reset", lambda: env.reset(seed=seed))
        seed += 1
        draw = chooser(env)
        for _ in range(10):
            action = draw()
            if timed("step", lambda: env.step(action))[2]:
                break
    return {what: total / count for what, (total, count) in times.items()}


print(json.dumps({"ready": sorted(TAGS)}), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    try:
        answer = measure(task["tag"], task["seconds"])
    except Exception as problem:  # whatever RAGEN raises is the answer
        answer = {"error": f"{type(problem).__name__}: {problem}"}
    print(json.dumps(answer), flush=True)
