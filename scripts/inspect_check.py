#!/usr/bin/env python3
"""Opens a log of `gyre eval --inspect` with inspect_ai's own loader (pip install inspect_ai pandas pyarrow).

    python3 scripts/inspect_check.py FILE.eval [EPISODES.jsonl]

With the episodes that the same evaluation wrote (--output), scores and sampled tokens are compared with them."""
import json
import sys

from inspect_ai.analysis import evals_df, messages_df, samples_df
from inspect_ai.log import read_eval_log


def main(path, episodes=None):
    log = read_eval_log(path)
    samples, frame, messages = log.samples, samples_df(path), messages_df(path)
    assert log.status == "success" and len(evals_df(path)) == 1, log.status
    assert len(samples) == len(frame) == log.results.total_samples, (len(samples), len(frame))
    assert len(messages) > len(samples) and all(s.messages for s in samples)
    used = sum(u.output_tokens for s in samples for u in s.model_usage.values())
    assert used == sum(u.output_tokens for u in log.stats.model_usage.values())
    accuracy = log.results.scores[0].metrics["accuracy"].value
    assert abs(accuracy - frame["score_success"].astype(float).mean()) < 1e-9, accuracy
    if episodes:
        played, epochs = {}, {}
        for row in map(json.loads, open(episodes)):
            name = f"{row['tag'].replace('/', '_')}-{row['seed']}"
            epochs[name] = epochs.get(name, 0) + 1
            played[name, epochs[name]] = row
        assert len(played) == len(samples)
        for s in samples:
            row = played[s.id, s.epoch]
            assert (bool(s.scores["success"].value), s.scores["score"].value) == (row["success"], row["score"]), s.id
            tokens = sum(u.output_tokens for u in s.model_usage.values())
            assert tokens == sum(end - reply for _, reply, end in row["turns"]), s.id
            assert sum(m.role == "assistant" for m in s.messages) == len(row["turns"]), s.id
    print(f"{path}: {len(samples)} samples, {len(messages)} messages, success {accuracy:.3f}, {used} tokens sampled")


if __name__ == "__main__":
    main(*sys.argv[1:])
