#!/usr/bin/env python3
"""Serve a Python reward function to Gyre: reward_command.py FILE.py FUNCTION (what verl calls custom_reward_function.path and .name)."""
import importlib.util, inspect, json, os, sys

from remote_protocol import finished, number

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the file and its functions print is no answer
if len(sys.argv) != 3 or not os.path.isfile(sys.argv[1]) or not sys.argv[1].endswith(".py"):
    sys.exit(f"expected a Python file that exists and the name of a function in it, got {sys.argv[1:]}")
spec = importlib.util.spec_from_file_location("rewards", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, sys.argv[2], None)
if not callable(function):
    there = [name for name, value in vars(module).items() if inspect.isfunction(value)]
    sys.exit(f"{sys.argv[1]} has no function {sys.argv[2]!r}; it has {', '.join(there) or 'none'}")
taken = inspect.signature(function).parameters
rest = any(p.kind is p.VAR_KEYWORD for p in taken.values())


def plain(value):
    """The value as JSON holds it: any kind of number as a number, all else as a text."""
    known = number(value)
    return known if known is not None else value if isinstance(value, str) else repr(value)[:200]


for line in sys.stdin:
    row = json.loads(line)
    given = {k: row[k] for k in ("data_source", "solution_str", "ground_truth", "extra_info") if rest or k in taken}
    try:
        answer = finished(function(**given))
        answer = {str(k): plain(v) for k, v in answer.items()} if isinstance(answer, dict) else plain(answer)
    except (Exception, SystemExit) as e:
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), file=answers, flush=True)
