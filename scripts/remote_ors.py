"""Servers of the Open Reward Standard (openreward) for remote_env.py. It needs nothing beyond the standard library.

    python scripts/remote_env.py --ors http://127.0.0.1:8080 --port 8900        (tag RemoteText)

Every episode is a session on the server; the seed chooses its task. Tools are called with <tool_call>; a reply without a call
goes to the environment's terminal tool, where it has one. Options: `environment` (the server's first), `split` (train), and
`success`: what an episode must have earned to be one (1). ORS_TOKEN holds a bearer token for servers that ask for one.
"""

import json
import os
import time
import urllib.error
import urllib.request

from remote_protocol import number, result, said, tool_calls

STARTING = 600  # seconds that an environment may take to be ready


def factory(given):
    address = given.ors.rstrip("/")
    return lambda **config: OpenReward(address, given.instruction, **config)


class OpenReward:
    stop = ["</tool_call>"]

    def __init__(self, address, instruction, environment="", split="train", success=1.0):
        self.address, self.instruction, self.split, self.enough = address, instruction, split, success
        self.session = None
        self.name = environment or self.ask("GET", "/list_environments")[0]
        self.tasks = self.ask("POST", f"/{self.name}/num_tasks", {"split": split})["num_tasks"]
        if self.tasks < 1:
            raise ValueError(f"split {split!r} of {self.name} has no tasks")

    def ask(self, method, path, body=None):
        """One request; the answer is JSON, or JSON in a stream of events."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers["X-Session-ID"] = self.session
        if os.environ.get("ORS_TOKEN"):
            headers["Authorization"] = "Bearer " + os.environ["ORS_TOKEN"]
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        end = time.monotonic() + STARTING
        while True:
            try:
                with urllib.request.urlopen(request, timeout=STARTING) as answer:
                    stream = answer.headers.get_content_type() == "text/event-stream"
                    return events(answer) if stream else json.load(answer)
            except urllib.error.HTTPError as problem:
                if problem.code != 503 or not problem.headers.get("Retry-After") or time.monotonic() > end:
                    says = problem.read(2000).decode(errors="replace")
                    raise RuntimeError(f"{path}: the server answers {problem.code}: {says}") from None
                time.sleep(min(float(problem.headers["Retry-After"]), 10))

    def reset(self, seed):
        self.close()
        self.session = self.ask("POST", "/create_session")["task_id"]
        self.ask("POST", "/create", {"env_name": self.name, "split": self.split, "index": seed % self.tasks})
        prompt = text(self.ask("GET", f"/{self.name}/prompt"))
        offered = self.ask("GET", f"/{self.name}/task_tools")
        self.tools = [{"name": t["name"], "description": t["description"], "parameters": t.get("input_schema") or {}}
                      for t in offered["tools"]]
        self.terminal = offered.get("terminal_tool")
        self.earned, self.calls = 0.0, 0
        return prompt

    def step(self, reply):
        calls = tool_calls(reply)
        if not calls and self.terminal:
            arguments = {self.terminal["arg"]: said(reply).strip()} if self.terminal.get("arg") else {}
            calls = [(self.terminal["name"], arguments)]
        if not calls:
            return None  # no action
        state, reward, done, info = [], 0.0, False, {}
        for name, arguments in calls:
            self.calls += 1
            answer = self.call(name, arguments)
            if not answer["ok"]:
                state.append(result(name, self.calls, "error: " + answer["error"]))
                info["valid"] = False
                continue
            output = answer["output"]
            state.append(result(name, self.calls, text(output["blocks"])))
            reward += output.get("reward") or 0.0
            info |= {key: number(v) for key, v in (output.get("metadata") or {}).items() if number(v) is not None}
            if done := output.get("finished", False):
                break
        self.earned += reward
        return state, reward, done, {**info, "success": done and self.earned >= self.enough}

    def call(self, name, arguments):
        if not name or not isinstance(arguments, dict):
            return {"ok": False, "error": f"this is no call: {arguments}"}
        events = self.ask("POST", f"/{self.name}/call", {"name": name, "input": arguments})
        if "error" in events:
            raise RuntimeError(f"{name}: {events['error']}")
        return json.loads(events["chunk"] + events["end"])

    def close(self):
        if self.session:
            try:
                self.ask("POST", "/delete")
                self.ask("POST", "/delete_session")
            finally:
                self.session = None


def events(lines):
    """The data of a stream of events, by their kinds; that of chunks is put together."""
    kind, data, told = "", [], {"chunk": "", "end": ""}
    for line in lines:
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data" and kind:
            data.append(value)
        elif not field and kind and not value:
            told[kind] = told.get(kind, "") + "\n".join(data)
            kind, data = "", []
    return told


def text(blocks):
    """The text of a prompt or of a tool's output; a picture is said to be one."""
    return "\n".join(block.get("text") if block["type"] == "text" else f"({block['type']})" for block in blocks)
