"""Servers in the manner of OpenEnv and of the Open Reward Standard, in this process."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Session:
    """OpenEnv's end of a socket: guess a number, with an action of one field, of two, or as a tool."""

    def send(self, text):
        message = json.loads(text)
        data, kind = message["data"], message["type"]
        if kind == "reset":
            self.secret, self.answer = data["seed"] % 9 + 1, seen({"text": f"Guess from 1 to {data.get('most', 9)}.", "hint": ""}, 0, False)
        elif data.get("type") == "list_tools":
            self.answer = seen({"tools": [{"name": "guess", "description": "Guesses.", "input_schema": {"type": "object"}}]}, 0, False)
        else:
            guess = data["arguments"] if data.get("type") == "call_tool" else data
            if guess.get("number") == 0:
                raise ConnectionError("the line is dead")
            if not isinstance(guess.get("number"), int):
                self.answer = {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "no number"}}
                return
            right = guess["number"] == self.secret
            said = {"text": "right" if right else "wrong", "loud": bool(guess.get("loud"))} if "loud" in guess else {"text": "right" if right else "wrong"}
            self.answer = seen(said, float(right), right, {"off": abs(guess["number"] - self.secret)})

    def recv(self):
        return json.dumps(self.answer)

    def close(self):
        pass


def seen(observation, reward, done, metadata=None):
    return {"type": "observation", "data": {"observation": {"metadata": {}, **observation}, "reward": reward, "done": done, "metadata": metadata}}


def openenv(kind="one", **config):
    import remote_openenv

    number, loud = {"type": "integer"}, {"type": "boolean"}
    fields = {"one": {"number": number}, "two": {"number": number, "loud": loud}, "tool": {"tool_name": {}, "arguments": {}, "type": {}}}[kind]
    schema = {"properties": {"metadata": {}, **fields}, "required": ["number"], "description": "A guess."}
    return remote_openenv.OpenEnv(Session, schema, "", **config)


class Standard(BaseHTTPRequestHandler):
    """The Open Reward Standard: sums, which are answered by a tool or by plain text."""

    sessions = {}

    def answer(self, body, kind="application/json", status=200, headers=()):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, *events):
        self.answer(": ping\r\n\r\n" + "".join(f"event: {kind}\r\ndata: {data}\r\n\r\n" for kind, data in events), "text/event-stream")

    def do_GET(self):
        session = self.sessions.get(self.headers.get("X-Session-ID"))
        if self.path == "/list_environments":
            return self.answer('["sums"]')
        if session is None:
            return self.answer('{"detail": "no session"}', status=404)
        if session["waits"]:
            session["waits"] -= 1
            return self.answer('{"detail": "starting"}', status=503, headers=[("Retry-After", "0")])
        if self.path == "/sums/prompt":
            blocks = [{"type": "text", "text": f"What is {session['index']} + 1?"}, {"type": "image", "data": "", "mimeType": "image/png"}]
            return self.answer(json.dumps(blocks))
        self.answer(json.dumps({"tools": [{"name": "hint", "description": "Helps.", "input_schema": None}],
                                "terminal_tool": {"name": "final", "arg": "text"}}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sid = self.headers.get("X-Session-ID")
        if self.path == "/sums/num_tasks":
            return self.answer(json.dumps({"num_tasks": {"train": 5, "none": 0}[body["split"]]}))
        if self.path == "/create_session":
            return self.stream(("task_id", f"s{len(self.sessions)}"), ("end", ""))
        if self.path == "/create":
            self.sessions[sid] = {"index": body["index"], "waits": 1}
            return self.answer("{}")
        if self.path in ("/delete", "/delete_session"):
            self.sessions.pop(sid, None) if self.path == "/delete" else None
            return self.answer("{}")
        told = json.dumps({"ok": False, "error": "no such tool"})
        if body["name"] == "broken":
            return self.stream(("task_id", "t"), ("error", "the sandbox is gone"))
        if body["name"] == "hint":
            told = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": "count"}], "reward": -0.25, "metadata": {"hints": 1}}})
        if body["name"] == "final":
            right = body["input"]["text"] == str(self.sessions[sid]["index"] + 1)
            told = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": "done"}], "reward": 1.5 * right, "finished": True}})
        self.stream(("task_id", "t"), ("chunk", told[:7]), ("end", told[7:]))

    def log_message(self, *_):
        pass


def ors(**config):
    import remote_ors

    if not hasattr(ors, "server"):
        ors.server = ThreadingHTTPServer(("127.0.0.1", 0), Standard)
        threading.Thread(target=ors.server.serve_forever, daemon=True).start()
    return remote_ors.OpenReward(f"http://127.0.0.1:{ors.server.server_address[1]}", "", **config)


class Painted:
    """Draws as Gymnasium's environments do."""

    def reset(self, seed):
        return "\x1b[41mS\x1b[0mF\x1b[34;1mR\x1b[0m\x1b[2J|\x1b[43m\x1b[35mY\x1b[0m\x1b[0m"

    def step(self, action):
        return [{"role": "tool", "content": "\x1b]0;title\x07\x1b[1mbold\x1b[0m"}], 0.0, True


def painted():
    return Painted()
