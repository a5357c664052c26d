"""Feeds the metrics of a run of Gyre to MLflow: run.loggers = ["jsonl", { command = ["python3", "scripts/mlflow_sink.py"] }].

Standard input has one JSON object per line: the run first (id, name, project, dir, config), then the records of metrics.jsonl, those of steps
before a resumption again. MLFLOW_TRACKING_URI says where runs are kept; ./mlflow.db without it, which takes the package mlflow (mlflow-skinny
is enough for a server). A folder will not do: it cannot hold both actor/grad_norm and actor/grad_norm/task. MLflow keeps numbers (texts and
tables stay in metrics.jsonl) and takes no @ in names.
"""

import json
import sys

import mlflow


def flat(prefix, v):
    if isinstance(v, dict):
        for key, inner in v.items():
            yield from flat(f"{prefix}.{key}" if prefix else key, inner)
    else:
        yield prefix, v


def number(v):
    return float(v) if isinstance(v, (int, float)) or v in ("NaN", "Infinity", "-Infinity") else None


def main():
    about = json.loads(sys.stdin.readline())
    mlflow.set_experiment(about["project"])
    earlier = mlflow.search_runs(filter_string=f"tags.gyre_id = '{about['id']}'", output_format="list")
    with mlflow.start_run(run_id=earlier[0].info.run_id if earlier else None, run_name=about["name"], tags={"gyre_id": about["id"]}):
        if not earlier:
            mlflow.log_params({key: str(v)[:500] for key, v in flat("", about["config"])})
        for line in sys.stdin:
            record = json.loads(line)
            step = record.pop("step")
            numbers = {key: number(v) for key, v in record.items() if key != "schema"}
            mlflow.log_metrics({key.replace("@", " at "): v for key, v in numbers.items() if v is not None}, step=step)


if __name__ == "__main__":
    main()
