#!/usr/bin/env python3
"""Serve a Python reward function to Gyre: reward_command.py FILE.py FUNCTION (what verl calls custom_reward_function.path and .name)."""
import contextlib, importlib.util, inspect, json, sys

spec = importlib.util.spec_from_file_location("rewards", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, sys.argv[2])
taken = inspect.signature(function).parameters
rest = any(p.kind is p.VAR_KEYWORD for p in taken.values())
for line in sys.stdin:
    row = json.loads(line)
    given = {k: row[k] for k in ("data_source", "solution_str", "ground_truth", "extra_info") if rest or k in taken}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the function prints is no answer
            answer = function(**given)
    except Exception as e:
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
