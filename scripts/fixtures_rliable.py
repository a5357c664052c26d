#!/usr/bin/env python3
"""Writes internal/statistics/testdata/rliable.json: statistics of random scores as rliable (Agarwal et al. 2021) computes them.

    pip install rliable 'pandas<3' && python3 scripts/fixtures_rliable.py

Takes minutes: rliable's probability of improvement is slow.
"""
import json
import os

import numpy as np
from rliable import library, metrics

random = np.random.default_rng(7)
cases = []
for _ in range(6):
    tasks, runs_x, runs_y = int(random.integers(1, 5)), int(random.integers(3, 11)), int(random.integers(3, 11))
    x = np.round(random.beta(2, 3, (runs_x, tasks)), 2)  # rounded: some are equal
    y = np.round(random.beta(2, 2, (runs_y, tasks)), 2)
    means, intervals = library.get_interval_estimates({"x": x}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=20000)
    chances, bounds = library.get_interval_estimates({"x,y": (x, y)}, metrics.probability_of_improvement, reps=5000)
    cases.append({
        "x": x.T.tolist(), "y": y.T.tolist(),  # a row per task
        "iqm": [float(means["x"][0]), *map(float, intervals["x"][:, 0])],
        "improvement": [float(chances["x,y"]), *map(float, np.ravel(bounds["x,y"]))],
    })
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
os.makedirs("orchestrate/study/sweep/testdata", exist_ok=True)
with open("internal/statistics/testdata/rliable.json", "w") as file:
    json.dump(cases, file)
    file.write("\n")
