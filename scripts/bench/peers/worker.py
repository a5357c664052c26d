"""Runs one program's side of the benchmark.

    worker.py transformers|vllm|llama|trl|ragen --model DIR --threads N [--dtype f32|bf16|f16|autocast] [--gguf FILE]
        [--prefix-cache] [--device cuda] [--source DIR]
"""
import argparse
import importlib
import traceback

from channel import Channel


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
