"""Feeds the metrics of a run of Gyre to Weights & Biases. `run.loggers = ["jsonl", "wandb"]` starts it.

Standard input has one JSON object per line: the run first (id, name, project, dir, config), then the records of metrics.jsonl, those of steps
before a resumption again. The run is online where a key is known (`wandb login`, WANDB_API_KEY), else offline in RUN/wandb, for `wandb sync`.
WANDB_MODE, WANDB_PROJECT and WANDB_ENTITY go before that.
"""

import json
import netrc
import os
import sys

import wandb


def value(v):
    if isinstance(v, dict) and "columns" in v:
        return wandb.Table(columns=v["columns"], data=[[value(cell) for cell in row] for row in v["rows"]])
    return float(v) if v in ("NaN", "Infinity", "-Infinity") else v


def key_known():
    try:
        return "WANDB_API_KEY" in os.environ or any("wandb" in host for host in netrc.netrc().hosts)
    except (OSError, netrc.NetrcParseError):
        return False


def main():
    about = json.loads(sys.stdin.readline())
    mode = os.environ.get("WANDB_MODE") or ("online" if key_known() else "offline")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or about["project"], name=about["name"], id=about["id"], dir=about["dir"],
        config=about["config"], mode=mode, resume="allow" if mode == "online" else None)
    done = run.step  # an online run that is resumed has the earlier steps already
    for line in sys.stdin:
        record = json.loads(line)
        step = record.pop("step")
        if step >= done:
            run.log({k: value(v) for k, v in record.items() if k != "schema" and v is not None}, step=step)
    run.finish()


if __name__ == "__main__":
    main()
