"""Servers of OpenEnv (openenv, openenv-core) for remote_env.py; `pip install websockets` is all that it needs here.

    python scripts/remote_env.py --openenv http://127.0.0.1:8000 --port 8900        (tag RemoteText)

Every place has a session of its own on the server. What a reply is follows from the server's schema of actions: an environment
of tools (MCP) is called with <tool_call>; an action of one field is the reply's text; an action of several fields is a call of a
tool `act` that has them as its arguments. Option `success`: what an episode must have earned to be one (1). The other options go
to the server's reset.
"""

import json
import urllib.request

from remote_protocol import number, result, tool_calls


def factory(given):
    address = given.openenv.rstrip("/")

    def make(**config):
        with urllib.request.urlopen(address + "/schema", timeout=30) as answer:
            schema = json.load(answer)["action"]
        return OpenEnv(lambda: connect(address), schema, given.instruction, **config)

    return make


def connect(address):
    """Opens a session."""
    from websockets.sync.client import connect as open_socket

    return open_socket("ws" + address.removeprefix("http") + "/ws", max_size=64 << 20)


class Refused(Exception):
    """The server does not take an action."""


class OpenEnv:
    def __init__(self, connect, schema, instruction, success=1.0, **options):
        self.connect, self.instruction, self.enough, self.options = connect, instruction, success, options
        self.socket = None
        self.fields = {name: field for name, field in schema.get("properties", {}).items() if name != "metadata"}
        self.field = next(iter(self.fields)) if len(self.fields) == 1 else None
        if self.field:
            self.actions = self.fields[self.field].get("enum")
        elif "tool_name" not in self.fields:
            parameters = {"type": "object", "properties": self.fields}
            parameters |= {key: schema[key] for key in ("required", "$defs") if key in schema}
            self.tools = [{"name": "act", "description": schema.get("description", ""), "parameters": parameters}]
        if not self.field:
            self.stop = ["</tool_call>"]

    def ask(self, kind, data):
        self.socket.send(json.dumps({"type": kind, "data": data}))
        answer = json.loads(self.socket.recv())
        if answer["type"] == "error":
            code, message = answer["data"].get("code"), answer["data"].get("message")
            raise (Refused if code == "VALIDATION_ERROR" else RuntimeError)(f"the server answers {code}: {message}")
        return answer["data"]

    def reset(self, seed):
        if self.socket is None:
            self.socket = self.connect()
        self.earned, self.calls = 0.0, 0
        try:
            answer = self.ask("reset", {"seed": seed, **self.options})
            if "tool_name" in self.fields:
                listed = self.ask("step", {"type": "list_tools"})["observation"]["tools"]
                self.tools = [{"name": t["name"], "description": t.get("description") or "",
                               "parameters": t.get("input_schema") or {}} for t in listed]
        except Exception:
            self.close()  # another reset opens another session
            raise
        return text(answer["observation"]) or "The episode begins."

    def step(self, reply):
        if self.field:
            actions = [(None, None, {self.field: value(reply.strip(), self.fields[self.field])})]
        else:
            calls = tool_calls(reply)
            if "tool_name" in self.fields:
                actions = [(name, arguments, {"type": "call_tool", "tool_name": name, "arguments": arguments})
                           for name, arguments in calls]
            else:
                actions = [(name, arguments, arguments) for name, arguments in calls]
        state, reward, done, info = [], 0.0, False, {}
        for name, arguments, action in actions:
            self.calls += 1
            if name is not None and not any(name == tool["name"] and isinstance(arguments, dict) for tool in self.tools):
                known = ", ".join(tool["name"] for tool in self.tools)
                state.append(result(name, self.calls, f"error: expected a call of one of {known}"))
                info["valid"] = False
                continue
            try:
                answer = self.ask("step", action)
            except Refused as problem:
                if name is None:
                    return None  # no such action
                state.append(result(name, self.calls, f"error: {problem}"))
                info["valid"] = False
                continue
            seen = text(answer["observation"], without=("tool_name",))
            state.append(seen if name is None else result(name, self.calls, seen))
            reward += answer.get("reward") or 0.0
            info |= {key: number(v) for key, v in (answer.get("metadata") or {}).items() if number(v) is not None}
            if done := bool(answer.get("done")):
                break
        if not state:
            return None
        self.earned += reward
        info.setdefault("success", done and self.earned >= self.enough)
        return state[0] if self.field else state, reward, done, info

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None


def value(said, schema):
    """The text of a reply as the value of a field."""
    if schema.get("type", "string") == "string":
        return said
    try:
        return json.loads(said)
    except ValueError:
        return said  # the server says what it expects


def text(observation, without=()):
    """What an observation says: its one text, or its fields by name."""
    without = ("metadata", *without)
    fields = {name: v for name, v in observation.items() if name not in without and v not in (None, "", [], {})}
    if set(fields) == {"result"} and isinstance(fields["result"], dict):  # of a tool
        fields["result"] = fields["result"].get("data", fields["result"])
    if len(fields) == 1 and isinstance(only := next(iter(fields.values())), str):
        return only
    written = {name: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for name, v in fields.items()}
    return "\n".join(f"{name}: {v}" for name, v in written.items())
