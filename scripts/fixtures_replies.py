#!/usr/bin/env python3
"""Writes orchestrate/model/chat/replies/testdata/transformers.jsonl: what transformers' parse_response makes of replies
that are generated in the forms of all families, whole and damaged, under the templates that Gyre ships and under some
that use what those do not.

    pip install transformers==5.24.0
    python3 scripts/fixtures_replies.py
"""
import json
import pathlib
import random

from transformers.utils.chat_parsing import parse_response

HERE = pathlib.Path(__file__).parent.parent / "orchestrate/model/chat/replies"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
         for name, properties in {
             "weather": {"city": {"type": "string"}, "days": {"type": "integer"}, "factor": {"type": "number"},
                         "metric": {"type": "boolean"}, "at": {"type": "object"}, "tags": {"type": "array"},
                         "note": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                         "zip": {"type": ["boolean", "string"]}, "until": {"type": "number", "nullable": True}},
             "noop": {}}.items()]
OTHERS = {  # what the shipped templates do not use
    "unquoted": {
        "start_anchor_pattern": r"<turn>model\n",
        "fields": {"thinking": {"open": "<channel>thought\n", "close_pattern": r"</channel>\s*"},
                   "tool_calls": {"open_pattern": r"<call>call:(?P<name>\w+)", "close_pattern": r"</call>\s*",
                                  "repeats": True, "content": "json",
                                  "content_args": {"string_delims": [["<q>", "</q>"]], "unquoted_keys": True},
                                  "transform": {"function": {"name": "{name}", "arguments": "{content}"}}},
                   "content": {"close_pattern": r"(?:</turn>|<eos>)\s*|$"}}},
    "lines": {
        "start_anchor": "A:",
        "fields": {"reasoning_content": {"open": ["(", "(("], "close": [")", "))"]},
                   "tool_calls": {"open_pattern": r"@(?P<name>\w+)\n", "close_pattern": r"\n(?P<id>\d+)@",
                                  "repeats": True, "content": "kv-lines", "content_args": {"kv_sep": "="},
                                  "transform": {"function": {"name": "{name}", "arguments": "{content}"}}},
                   "content": {"repeats": True, "join": "|"}}},
    "each": {
        "start_anchor": "A:",
        "fields": {"tool_calls": {"open": "<calls>", "close": "</calls>", "repeats": True, "content": "json",
                                  "transform_each": True,
                                  "transform": {"function": {"name": "{tool.name}", "arguments": "{args}"}}},
                   "content": {"repeats": True, "join": "", "content_args": {"strip": False}}}},
    "duplicates": {
        "start_anchor": "A:",
        "fields": {"tool_calls": {"open_pattern": r"<call (?P<name>\w+)>", "close": "</call>", "repeats": True,
                                  "content": "xml-inline",
                                  "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</\w+>",
                                                   "merge_duplicates": True, "value_parser": {
                                                       "name": "json", "args": {"allow_non_json": True}}},
                                  "transform": {"function": {"name": "{name}", "arguments": "{content}"}}},
                   "content": {"repeats": True, "join": ""}}}}
VALUES = {"city": ["Bern", "New  York", "a\"b\\c", "é 漢", "3", ""],
          "days": ["3", "3.0", " 7 ", "many", "-2", "1e2", "2.5"],
          "factor": ["0.5", "2", "1e3", "-0.25", "nan", "x"], "metric": ["true", "False", "1", "0", "yes"],
          "at": ['{"x": 1}', '{"x": {"y": [1, 2]}}', "{x", "[1]"], "tags": ['["a"]', "[]", "a, b", '{"a": 1}'],
          "note": ["5", "null", "None", "text"], "zip": ["03007", "1", "true"], "until": ["null", "3", "3.50", ""],
          "other": ["7", "true"]}


def arguments(rng):
    return {key: rng.choice(VALUES[key]) for key in rng.sample(sorted(VALUES), rng.randint(0, 4))}


def as_json(rng, values):
    """Values as a model writes them in JSON: mostly with their types."""
    out = {}
    for key, text in values.items():
        try:
            out[key] = json.loads(text) if rng.random() < 0.7 and text not in ("nan", "None") else text
        except ValueError:
            out[key] = text
    return json.dumps(out, ensure_ascii=False)


def call(form, rng):
    name, values = rng.choice(["weather", "noop", "other"]), arguments(rng)
    written = as_json(rng, values)
    both = '{"name": "%s", "arguments": %s}' % (name, written)
    tags = {"xml": "<parameter=%s>\n%s\n</parameter>\n", "glm": "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n",
            "duplicates": "<%s>%s</v>", "lines": "%s=%s\n"}
    body = "".join(tags[form] % pair for pair in values.items()) if form in tags else written
    lax = ", ".join(f"{key}:<q>{value}</q>" for key, value in values.items())
    return {"hermes": f"<tool_call>\n{both}\n</tool_call>", "granite": f"<|tool_call|>[{both}, {both}]",
            "mistral": f"[TOOL_CALLS]{name}[ARGS]{written}" if rng.random() < 0.5 else f"[TOOL_CALLS] [{both}]",
            "xml": f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>",
            "glm": f"<tool_call>{name}\n{body}</tool_call>",
            "deepseek": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{written}\n```"
                        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "gpt-oss": f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
                       f"{written}<|call|>",
            "llama": '{"name": "%s", "parameters": %s}' % (name, written),
            "unquoted": f"<call>call:{name}{{{lax}}}</call>", "lines": f"@{name}\n{body}1@",
            "each": '<calls>[{"tool": {"name": "%s"}, "args": %s}]</calls>' % (name, written),
            "duplicates": f"<call {name}>{body}{body}</call>"}[form]


THOUGHTS = {"mistral": ("[THINK]", "[/THINK]"), "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|>"),
            "unquoted": ("<channel>thought\n", "</channel>"), "lines": ("((", "))")}
PROMPTS = {"glm": "<|assistant|>", "mistral": "[/INST]", "deepseek": "<｜Assistant｜>", "gpt-oss": "<|start|>assistant",
           "granite": "<|start_of_role|>assistant<|end_of_role|>", "unquoted": "<turn>model\n", "lines": "A:",
           "llama": "<|start_header_id|>assistant<|end_header_id|>\n\n", "each": "A:", "duplicates": "A:"}


PLAIN = ("llama", "each", "duplicates")  # have no thinking


def reply(form, rng):
    begin, end = THOUGHTS.get(form, ("<think>", "</think>"))
    text = rng.choice(["", "", "So.", "It is 4.\nReally, a < b", "é\n\n 漢"])
    thought = f"{begin}\nHm, {text or 'yes'}\n{end}\n\n" if rng.random() < 0.4 and form not in PLAIN else ""
    if form == "gpt-oss" and text:
        text = f"<|channel|>final<|message|>{text}<|return|>"
    calls = [call(form, rng) for _ in range(rng.choice([0, 1, 1, 2]))]
    whole = thought + text + rng.choice(["", "\n", "\n\n"]) + "\n".join(calls)
    if rng.random() < 0.15:
        whole = whole[:rng.randint(0, len(whole))]
    return whole


def main():
    templates = {f["family"]: f["response_template"] for f in json.loads((HERE / "families.json").read_text())}
    rng, rows = random.Random(1), []
    for form, template in (templates | OTHERS).items():
        for _ in range(24):
            prompt = "question" + PROMPTS.get(form, "<|im_start|>assistant\n")
            said = reply(form, rng)
            if "<think>" in said and said.startswith("<think>") and rng.random() < 0.3:
                prompt, said = prompt + "<think>", said.removeprefix("<think>")
            row = {"family": form, "prompt": prompt, "reply": said}
            try:
                row["message"] = parse_response(said, template, prefix=prompt, tools=TOOLS)
            except (ValueError, KeyError):
                row["message"] = None
            rows.append(row)
    out = [{"templates": OTHERS, "tools": TOOLS}] + rows
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in out)
    (HERE / "testdata/transformers.jsonl").write_text(text + "\n")
    print(len(rows), "replies,", sum(row["message"] is None for row in rows), "of which transformers refuses")


main()
