"""The reward of a reply. As a program it judges for gyre train: an object of JSON per line in, a number per line out."""
import json
import sys


def score(reply: str, answer: str) -> float:
    """1 for the right answer. Less for what comes near, so that replies differ before any of them is right."""
    text = reply.strip()
    if text == answer:
        return 1.0
    if text.startswith(answer):
        return 0.6
    return 0.1 if text[:1].isdigit() else 0.0


if __name__ == "__main__":
    for line in sys.stdin:
        row = json.loads(line)  # also: data_source, extra_info, prompt, id, tokens, truncated
        print(score(row["solution_str"], row["ground_truth"]), flush=True)
