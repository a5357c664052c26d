#!/usr/bin/env python3
"""Writes the fixtures that hold Gyre's games against other people's: envs/*/testdata.

    python3 -m venv VENV
    VENV/bin/pip install "setuptools<80" gymnasium==1.4.0 magiccube==1.2.0 py-sudoku==2.0.0
    VENV/bin/pip install --no-deps gym-sokoban==0.0.6 gymnasium-2048==0.1.2
    VENV/bin/python scripts/fixtures_envs.py

FrozenLake's transition probabilities are Gymnasium's, Sokoban's transitions gym-sokoban's, 2048's those of gymnasium-2048,
the cube's turns magiccube's, Sudoku's solutions py-sudoku's and the values of arithmetic Python's own. What these packages
need only for drawing (gym, pygame) is replaced by empty modules. Runs with one seed, so that the files do not change.
"""
import fractions
import json
import pathlib
import random
import sys
import types
import unittest.mock

import numpy as np

ENVS = pathlib.Path(__file__).resolve().parent.parent / "envs"


def write(env, name, rows):
    folder = ENVS / env / "testdata"
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
    (folder / name).write_text(text)
    print(folder / name, len(rows), "rows", len(text), "bytes")


def frozenlake(rng):
    from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv, generate_random_map

    maps = [MAPS["4x4"], MAPS["8x8"]] + [generate_random_map(size=4, p=0.8, seed=rng.randrange(2**31)) for _ in range(4)]
    rows = []
    for desc in maps:
        for slippery, rate in ((True, 1 / 3), (True, 0.8), (False, 1)):
            env = FrozenLakeEnv(desc=desc, is_slippery=slippery, success_rate=rate)
            table = []
            for state in range(env.nrow * env.ncol):
                cell = desc[state // env.ncol][state % env.ncol]
                if cell in "GH":
                    continue
                for action in range(4):
                    merged = {}
                    for p, after, reward, done in env.P[state][action]:
                        key = (int(after), float(reward), bool(done))
                        merged[key] = merged.get(key, 0) + p
                    table.append([state, action, [[round(p, 12), *key] for key, p in sorted(merged.items()) if p > 0]])
            rows.append({"map": desc, "slippery": slippery, "success_rate": rate, "transitions": table})
    write("frozenlake", "gymnasium.jsonl", rows)


def sokoban(rng):
    gym = types.ModuleType("gym")
    gym.Env = object
    sys.modules["gym"] = gym
    for name in ("utils", "utils.seeding", "spaces", "spaces.discrete", "envs", "envs.registration"):
        sys.modules["gym." + name] = unittest.mock.MagicMock()
    for name in ("imageio", "requests", "tqdm"):
        sys.modules[name] = unittest.mock.MagicMock()
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    rows = []
    while len(rows) < 1000:
        height, width, boxes = rng.randint(5, 8), rng.randint(5, 8), rng.randint(1, 3)
        fixed = np.zeros((height, width), dtype=int)
        for r in range(1, height - 1):
            for c in range(1, width - 1):
                fixed[r, c] = int(rng.random() < 0.85)
        free = [(r, c) for r in range(height) for c in range(width) if fixed[r, c]]
        if len(free) < 2 * boxes + 1:
            continue
        rng.shuffle(free)
        for cell in free[:boxes]:
            fixed[cell] = 2
        state = fixed.copy()
        placed = free[1 : 1 + boxes]  # one box may start on a target
        for cell in placed:
            state[cell] = 3 if fixed[cell] == 2 else 4
        player = free[1 + boxes] if len(free) > 1 + boxes else free[0]
        if all(fixed[cell] == 2 for cell in placed):
            continue
        state[player] = 5
        env = SokobanEnv(dim_room=(height, width), max_steps=60, num_boxes=boxes, reset=False)
        env.room_fixed, env.room_state, env.player_position = fixed, state, np.array(player)
        env.num_env_steps, env.reward_last = 0, 0
        env.boxes_on_target = sum(fixed[cell] == 2 for cell in placed)
        env.render = lambda *_, **__: None

        def draw():
            return ["".join("S" if s == 5 and f == 2 else "#_O√XP"[s] for s, f in zip(srow, frow)) for srow, frow in zip(env.room_state, env.room_fixed)]

        start, actions, rewards, moved = draw(), "", "", ""
        letters = {-0.1: ".", 0.9: "+", -1.1: "-", 10.9: "!"}
        for _ in range(30):
            action = rng.randint(1, 4)
            before = tuple(env.player_position)
            _, reward, done, _ = env.step(action)
            actions += "UDLR"[action - 1]
            rewards += letters[round(float(reward), 6)]
            moved += str(int(tuple(env.player_position) != before))
            if done:
                break
        rows.append(["/".join(start), actions, rewards, moved, bool(done), "/".join(draw())])
    write("sokoban", "gym_sokoban.jsonl", rows)


def game2048(rng):
    sys.modules["pygame"] = unittest.mock.MagicMock()
    from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv as Env

    def cells(board):
        return "".join(f"{int(v):x}" for v in board.flat)

    rows = []
    for _ in range(800):
        density, top = rng.random(), rng.randint(1, 6)
        board = np.array([rng.randint(1, top) if rng.random() < density else 0 for _ in range(16)], dtype=np.uint8).reshape(4, 4)
        moves = []
        for action in range(4):
            after, points, legal = Env.apply_action(board, action)
            moves.append([cells(after), int(points), bool(legal)])
        rows.append([cells(board), bool(Env.is_terminated(board)), moves])
    write("game2048", "gymnasium_2048.jsonl", rows)


def rubikscube(rng):
    import magiccube

    def stickers(cube):
        faces = cube.get_all_faces()
        colours = {"W": "W", "O": "O", "G": "G", "R": "R", "B": "B", "Y": "Y"}
        return "".join(colours[sticker.name] for face in "ULFRBD" for row in faces[magiccube.cube_base.Face[face]] for sticker in row)

    rows = []
    for _ in range(300):
        cube = magiccube.Cube(2, "W" * 4 + "O" * 4 + "G" * 4 + "R" * 4 + "B" * 4 + "Y" * 4)
        turns = [rng.choice("UDLRFB") + rng.choice(["", "'"]) for _ in range(rng.randint(1, 20))]
        for turn in turns:
            cube.rotate(turn)
        rows.append({"turns": " ".join(turns), "stickers": stickers(cube)})
    write("rubikscube", "magiccube.jsonl", rows)


def sudoku(rng):
    from sudoku import Sudoku

    rows = []
    for width, count, difficulty in ((2, 20, 0.5), (3, 20, 0.5)):
        seed = rng.randrange(2**31)
        while sum(len(row["puzzle"]) == width * width for row in rows) < count:
            seed += 1
            puzzle = Sudoku(width, width, seed=seed).difficulty(difficulty)
            if puzzle.has_multiple_solutions():
                continue
            grid = [[v or 0 for v in row] for row in puzzle.board]
            rows.append({"puzzle": grid, "solution": puzzle.solve().board})
    write("sudoku", "py_sudoku.jsonl", rows)


def arithmetic(rng):
    def expression(depth):
        if depth == 0 or rng.random() < 0.2:
            return str(rng.randint(0, 30))
        kind = rng.random()
        if kind < 0.15:
            return "-" + expression(depth - 1)
        if kind < 0.4:
            return "(" + expression(depth - 1) + ")"
        return expression(depth - 1) + rng.choice([" + ", "-", " * ", "/", "*", " - "]) + expression(depth - 1)

    rows = []
    while len(rows) < 1200:
        text = expression(4)
        if rng.random() < 0.15:  # broken ones
            cut = rng.randrange(len(text))
            text = text[:cut] + rng.choice(["", "(", ")", "+", "*", " "]) + text[cut + 1 :]
        text = text.strip()  # Python takes leading spaces for an indentation
        try:
            code = compile(text, "expression", "eval")
            if "**" in text or "//" in text or any(c in text for c in "{}[],.") or isinstance(eval(code), (tuple, type(None))):
                continue
            # exact arithmetic: numbers become fractions
            value = eval("".join(f"F({t})" if t.isdigit() else t for t in tokens(text)), {"F": fractions.Fraction})
            rows.append([text, float(value)])
        except ZeroDivisionError:
            rows.append([text, None])
        except (SyntaxError, TypeError):
            if not any(len(t) > 1 and t[0] == "0" for t in tokens(text)):
                rows.append([text, None])
    write("arithmetic", "python.jsonl", rows)


def tokens(text):
    import re

    return re.findall(r"\d+|\D", text)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    for game in (frozenlake, sokoban, game2048, rubikscube, sudoku, arithmetic):
        game(random.Random(2604))
