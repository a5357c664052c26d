"""Writes the history of a run of Weights & Biases to DIR/history.jsonl, which `gyre plot steps DIR` draws: python3 scripts/wandb_history.py SOURCE DIR

SOURCE is ENTITY/PROJECT/RUN_ID on a server, the .wandb file or the folder of an offline run, or an export as .json or .csv with a column _step.
"""

import csv
import json
import math
import os
import pathlib
import struct
import sys


def from_server(path, folder):
    import wandb

    run = wandb.Api().run(path)
    for file in run.files():
        if file.name.startswith("media/table/"):
            file.download(root=folder, exist_ok=True)
    return run.id, run.name, folder, list(run.scan_history())


def log_records(data):
    """The records of a log of LevelDB: blocks of 32 KiB with pieces that have a checksum, a length and a kind (1 whole, 4 the last)."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def from_offline(path):
    from wandb.proto import wandb_internal_pb2

    about, rows = None, []
    for data in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        about = record.run if record.HasField("run") else about
        if record.HasField("history"):
            row = {}
            for item in record.history.item:
                *outer, key = item.nested_key or [item.key]
                table = row
                for name in outer:
                    table = table.setdefault(name, {})
                table[key] = json.loads(item.value_json)
            rows.append(row)
    return about.run_id, about.display_name, path.parent / "files", rows


def from_export(path):
    if path.suffix == ".json":
        rows = json.loads(path.read_text())
    else:
        rows = [{k: json.loads(v) if v[:1] in "-0123456789{[" else v for k, v in row.items() if v} for row in csv.DictReader(path.open())]
    return "", path.parent.name, path.parent, rows


def plain(v, folder):
    if isinstance(v, float) and not math.isfinite(v):
        return "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"
    if isinstance(v, dict) and v.get("_type") == "table-file":
        file = pathlib.Path(folder) / v["path"]
        v = json.loads(file.read_text()) if file.exists() else None
    if isinstance(v, dict) and "data" in v:
        return {"columns": v["columns"], "rows": [[plain(cell, folder) for cell in row] for row in v["data"]]}
    return v if isinstance(v, (bool, int, float, str)) else None


def main(source, out):
    path = pathlib.Path(source)
    if path.is_dir():
        path = next(path.glob("*.wandb"))
    os.makedirs(out, exist_ok=True)
    if not path.exists():
        run_id, name, folder, rows = from_server(source, out)
    else:
        run_id, name, folder, rows = from_offline(path) if path.suffix == ".wandb" else from_export(path)
    steps = {}
    for row in rows:
        steps.setdefault(int(row["_step"]), {}).update({k: plain(v, folder) for k, v in row.items()})
    with open(os.path.join(out, "history.jsonl"), "w") as file:
        for step in sorted(steps):
            file.write(json.dumps(steps[step] | {"_step": step}) + "\n")
    with open(os.path.join(out, "run.json"), "w") as file:
        json.dump({"id": run_id, "name": name}, file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
