"""The worker's side of the protocol: one JSON object per line, tasks in, answers out."""
import json
import os
import resource
import sys


class Channel:
    """Takes standard output for itself; whatever libraries print goes to standard error."""

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
