"""Runs one program's side of the benchmark.

    worker.py transformers|vllm|llama|trl|ragen --model DIR --threads N [--dtype f32|bf16|f16|autocast] [--gguf FILE]
        [--prefix-cache] [--device cuda] [--source DIR]
"""
import argparse
import importlib
import json
import os
import resource
import sys
import traceback


class Channel:
    """The worker's side of the protocol: one JSON object per line, tasks in, answers out. It takes standard output for
    itself; whatever libraries print goes to standard error."""

    def __init__(self):
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def _send(self, line):
        self._out.write(json.dumps(line) + "\n")

    def hello(self, program, versions, notes=()):
        self._send({"hello": {"program": program, "versions": versions, "notes": list(notes)}})

    def unavailable(self, why):
        self._send({"unavailable": why})

    def figures(self, **figures):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        figures["peak_bytes"] = peak if sys.platform == "darwin" else peak * 1024
        self._send({"figures": figures})

    def error(self, why):
        self._send({"error": why})

    def receive(self):
        """The next task, None at the end."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["transformers", "vllm", "llama", "trl", "ragen"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16", "autocast"], default="f32")
    parser.add_argument("--gguf", default="")
    parser.add_argument("--prefix-cache", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--source", default="")  # a checkout of RAGEN
    options = parser.parse_args()
    channel = Channel()
    try:
        worker = importlib.import_module(options.program + "_worker").Worker(options, channel)
    except ImportError as error:
        channel.unavailable(f"{type(error).__name__}: {error}")
        return
    except Exception as error:
        traceback.print_exc()
        channel.unavailable(f"it does not start: {type(error).__name__}: {error}")
        return
    channel.hello(options.program, worker.versions, worker.notes)
    while (task := channel.receive()) is not None:
        try:
            figures = getattr(worker, task["op"])(task)
        except Exception as error:
            traceback.print_exc()
            channel.error(f"{type(error).__name__}: {error}")
            continue
        if figures is not None:  # None: the worker has answered for itself
            channel.figures(**figures)


if __name__ == "__main__":
    main()
