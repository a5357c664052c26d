// Package inspect writes evaluations as logs of Inspect (UK AI Security Institute, https://inspect.aisi.org.uk): a
// .eval file is a zip archive of JSON, with header.json for the whole, a file in samples/ for each episode, and
// summaries.json for lists of them. `inspect view` and inspect_ai's data frames open it; version 2 of the format, as
// inspect_ai 0.3 writes it.
//
// A task (tag and seed) is a sample, its episodes are the sample's epochs. Episodes are tokens, and messages are read
// from them: what stands between special tokens, and a role's name where the chat template writes one.
package inspect

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
)

// Log is an evaluation of one policy.
type Log struct {
	Task     string
	Model    string
	Hash     string // of the result; "" where it is not kept
	Settings map[string]any
	Created  time.Time
	// Success and Score are means over the episodes, with their standard errors.
	Success, SuccessError, Score, ScoreError float64
	Episodes                                 []*episode.Episode
}

type object = map[string]any

// Write writes the log to path, all or nothing. The tokenizer is that of the episodes.
func (l Log) Write(path string, tokenizer *chat.Tokenizer) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		epochs, ids := map[string]int{}, []string{}
		var summaries []object
		sum := usage{}
		for _, e := range l.Episodes {
			id := fmt.Sprintf("%s-%d", strings.ReplaceAll(e.Tag, "/", "_"), e.Seed)
			if epochs[id]++; epochs[id] == 1 {
				ids = append(ids, id)
			}
			sample, own := l.sample(e, id, epochs[id], tokenizer)
			sum.input, sum.output = sum.input+own.input, sum.output+own.output
			if err := add(archive, fmt.Sprintf("samples/%s_epoch_%d.json", id, epochs[id]), sample); err != nil {
				return err
			}
			summaries = append(summaries, summary(sample))
		}
		most := 1
		for _, n := range epochs {
			most = max(most, n)
		}
		head := l.header(ids, most, sum)
		start := object{"version": 2, "eval": head["eval"], "plan": head["plan"]}
		for _, part := range []struct {
			name  string
			value any
		}{{"_journal/start.json", start}, {"_journal/summaries/1.json", summaries}, {"summaries.json", summaries},
			{"header.json", head}} {
			if err := add(archive, part.name, part.value); err != nil {
				return err
			}
		}
		return archive.Close()
	})
}

func add(archive *zip.Writer, name string, value any) error {
	file, err := archive.Create(name)
	if err != nil {
		return err
	}
	return json.NewEncoder(file).Encode(value)
}

// header is what the log says of the whole.
func (l Log) header(ids []string, epochs int, sum usage) object {
	at := l.Created.UTC().Format(time.RFC3339)
	metric := func(name string, value float64) object {
		return object{"name": name, "value": value, "params": object{}}
	}
	scorers, scores := []any{}, []any{}
	scored := func(name, mean string, value, deviation float64) {
		scorers = append(scorers, object{"name": name, "options": object{}, "metrics": []any{}, "metadata": object{}})
		scores = append(scores, object{"name": name, "scorer": name, "params": object{}, "scored_samples": len(ids),
			"unscored_samples": 0, "metrics": object{mean: metric(mean, value), "stderr": metric("stderr", deviation)}})
	}
	if !slices.ContainsFunc(l.Episodes, func(e *episode.Episode) bool { return e.Unjudged }) {
		scored("success", "accuracy", l.Success, l.SuccessError)
	}
	scored("score", "mean", l.Score, l.ScoreError)
	return object{
		"version": 2, "status": "success",
		"eval": object{
			"eval_id": l.id("eval"), "run_id": l.id("run"), "task_id": l.id("task"), "created": at, "task": l.Task,
			"task_version": 0, "task_display_name": l.Task, "task_attribs": object{}, "task_args": l.Settings,
			"task_args_passed": l.Settings, "dataset": object{"name": l.Task, "samples": len(ids), "sample_ids": ids,
				"shuffled": false},
			"model": l.Model, "model_generate_config": object{}, "model_args": object{},
			"config": object{"epochs": epochs, "log_samples": true}, "packages": object{},
			"metadata": object{"result": l.Hash, "writer": "gyre"},
			"scorers":  scorers,
		},
		"plan": object{"name": "plan", "steps": []any{object{"solver": "episode", "params": object{},
			"params_passed": object{}}}, "config": object{}},
		"results": object{"total_samples": len(l.Episodes), "completed_samples": len(l.Episodes), "scores": scores},
		"stats": object{"started_at": at, "completed_at": at, "model_usage": object{l.Model: sum.object()},
			"role_usage": object{}},
	}
}

// id makes a name of 22 letters that the same log always has.
func (l Log) id(parts ...string) string {
	whole := append([]string{l.Task, l.Model, l.Hash, l.Created.String()}, parts...)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(whole, "\n"))))[:22]
}

// usage counts tokens as a server would: each turn's prompt is the whole sequence before its reply.
type usage struct{ input, output int }

func (u usage) object() object {
	return object{"input_tokens": u.input, "output_tokens": u.output, "total_tokens": u.input + u.output}
}

// sample is an episode.
func (l Log) sample(e *episode.Episode, id string, epoch int, tokenizer *chat.Tokenizer) (object, usage) {
	messages, events := []object{}, []object{}
	total, last, said := usage{}, usage{}, ""
	start, opened := 0, 0 // of the sequence that the policy sees: the token and the message
	say := func(m chat.Message) {
		n := len(messages)
		one := object{"id": l.id(id, fmt.Sprint(epoch), fmt.Sprint(n)), "role": m.Role, "content": m.Content}
		if m.Role == "assistant" {
			one["source"], one["model"] = "generate", l.Model
		}
		messages = append(messages, one)
	}
	for _, turn := range e.Turns {
		if at := e.SequenceStart(turn.Reply); at != start {
			start, opened = at, len(messages)
		}
		before, opening := read(e.IDs[turn.Observation:turn.Reply], tokenizer)
		for _, m := range before {
			say(m)
		}
		said = opening + textOf(e.IDs[turn.Reply:turn.End], tokenizer)
		seen := messages[opened:len(messages):len(messages)]
		say(chat.Message{Role: "assistant", Content: said})
		last = usage{turn.Reply - start, turn.End - turn.Reply}
		events = append(events, object{"event": "model", "uuid": l.id(id, fmt.Sprint(epoch), "turn",
			fmt.Sprint(len(events))), "timestamp": l.Created.UTC().Format(time.RFC3339), "working_start": 0, "model": l.Model,
			"input": seen,
			"tools": []any{}, "tool_choice": "none", "config": object{}, "output": l.output(messages[len(messages)-1],
				last)})
		total.input, total.output = total.input+last.input, total.output+last.output
	}
	input := ""
	if i := slices.IndexFunc(messages, func(m object) bool { return m["role"] == "user" }); i >= 0 {
		input = messages[i]["content"].(string)
	}
	score := func(value any) object {
		return object{"value": value, "answer": said, "explanation": "ended by " + e.Stop, "metadata": object{}}
	}
	scores := object{"score": score(e.Score)}
	if !e.Unjudged {
		scores["success"] = score(map[bool]int{true: 1}[e.Success])
	}
	output := object{"model": l.Model, "choices": []any{}, "completion": ""}
	if n := len(messages); n > 0 {
		output = l.output(messages[n-1], last)
	}
	return object{"id": id, "epoch": epoch, "input": input, "target": e.Gold, "messages": messages,
		"output": output, "scores": scores,
		"metadata": object{"tag": e.Tag, "seed": e.Seed, "label": e.Label, "stop": e.Stop, "turns": len(e.Turns)},
		"store":    object{}, "events": events, "model_usage": object{l.Model: total.object()}, "role_usage": object{},
		"uuid": l.id(id, fmt.Sprint(epoch)), "attachments": object{}}, total
}

// output is a reply as a model's.
func (l Log) output(said object, of usage) object {
	return object{"model": l.Model, "completion": said["content"], "usage": of.object(),
		"choices": []any{object{"message": said, "stop_reason": "stop"}}}
}

// summary is what lists show of a sample.
func summary(sample object) object {
	out := object{"completed": true, "retries": 0, "message_count": len(sample["messages"].([]object))}
	for _, name := range []string{"id", "epoch", "input", "target", "metadata", "scores", "model_usage", "role_usage",
		"uuid"} {
		out[name] = sample[name]
	}
	return out
}

// roles are those that chat templates name.
var roles = []string{"system", "user", "assistant", "tool"}

// read takes an observation's tokens apart into messages, and what opens the reply that follows. A template writes a
// special token, the name of a role, perhaps another special token, and what that role says.
func read(ids []int32, tokenizer *chat.Tokenizer) (messages []chat.Message, opening string) {
	role, named := "user", false // named: the name stood alone, what comes next is said
	for _, text := range parts(ids, tokenizer) {
		word, rest, broken := strings.Cut(strings.TrimLeft(text, " \n"), "\n")
		if word = strings.TrimSpace(word); !named && slices.Contains(roles, word) {
			role, named, text = word, !broken, rest
		} else {
			named = false
		}
		if text = strings.Trim(text, "\n"); text == "" || named {
			continue
		}
		if role == "assistant" { // what the reply goes on from
			opening += text
			continue
		}
		messages, role = append(messages, chat.Message{Role: role, Content: text}), "user"
	}
	return messages, opening
}

// parts are the texts between special tokens.
func parts(ids []int32, tokenizer *chat.Tokenizer) (out []string) {
	from := 0
	for i := range len(ids) + 1 {
		if i == len(ids) || tokenizer.Special(ids[i]) {
			if from < i {
				out = append(out, tokenizer.Decode(ids[from:i], false))
			}
			from = i + 1
		}
	}
	return out
}

// textOf is what a reply says, without the token that ends it.
func textOf(reply []int32, tokenizer *chat.Tokenizer) string {
	if n := len(reply); n > 0 && slices.Contains(tokenizer.StopIDs(), reply[n-1]) {
		reply = reply[:n-1]
	}
	return tokenizer.Decode(reply, false)
}
