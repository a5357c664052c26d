package tasks

import (
	"context"
	"fmt"
	"time"

	"gyre/envs/sandbox"
	"gyre/envs/tools"
)

const (
	shellName = "shell"
	fileName  = "file"
)

func (g *game) tools() []tools.Tool {
	file := tools.Texts([2]string{"action", "read, write or replace"}, [2]string{"path", "the file"},
		[2]string{"text", "what is written, or put in the place of old"},
		[2]string{"old", "text that stands in the file once"})
	file["required"] = []string{"action", "path"}
	file["properties"].(map[string]any)["action"].(map[string]any)["enum"] = []string{"read", "write", "replace"}
	return []tools.Tool{
		{Name: shellName, Description: "Runs a command in a shell that lasts.", Argument: "command",
			Meaning: "what the shell runs", Use: g.shell},
		{Name: fileName, Description: "Reads, writes or changes a file.", Schema: file, Call: g.file},
	}
}

// timed does something in the session, and counts its time.
func (g *game) timed(ctx context.Context, do func() (sandbox.Said, error)) (sandbox.Said, error) {
	if err := g.open(ctx); err != nil {
		return sandbox.Said{}, err
	}
	begun := time.Now()
	said, err := do()
	g.spent += time.Since(begun)
	return said, err
}

// shell is the tool of that name.
func (g *game) shell(ctx context.Context, command string) (string, error) {
	limit := min(time.Duration(g.options.Commands*float64(time.Second)), g.left())
	said, err := g.timed(ctx, func() (sandbox.Said, error) { return g.session.Run(ctx, command, limit) })
	if err != nil {
		return "", err
	}
	text := shorten(said.Output, g.options.Shown)
	note := func(format string, args ...any) { text += fmt.Sprintf("["+format+"]", args...) }
	switch {
	case said.End == sandbox.Exited:
		note("the shell has ended with status %d; the next command starts another", said.Status)
	case said.End == sandbox.TimedOut:
		note("stopped after %v, with all that the shell had started; the next command starts another", limit)
	case said.End == sandbox.Processes:
		note("too many processes: stopped; the next command starts another shell")
	case said.Status != 0:
		note("exit status %d", said.Status)
	case text == "":
		text = "(no output)"
	}
	g.log.call("$ "+command, text)
	return text, nil
}

// file is the tool of that name.
func (g *game) file(ctx context.Context, arguments map[string]any) (string, bool, error) {
	given := map[string]string{}
	for name, value := range arguments {
		text, isText := value.(string)
		if !isText || name != "action" && name != "path" && name != "text" && name != "old" {
			return fmt.Sprintf("error: file takes the texts action, path, text and old, not %q", name), false, nil
		}
		given[name] = text
	}
	_, hasText := given["text"]
	said, err := g.timed(ctx, func() (sandbox.Said, error) {
		switch action := given["action"]; {
		case given["path"] == "":
			return sandbox.Said{Status: 1, Output: "path is missing"}, nil
		case action == "read":
			return g.session.Read(ctx, given["path"])
		case action == "write" && hasText:
			return g.session.Write(ctx, given["path"], given["text"])
		case action == "replace" && hasText && given["old"] != "":
			return g.session.Replace(ctx, given["path"], given["old"], given["text"])
		case action == "write" || action == "replace":
			return sandbox.Said{Status: 1, Output: "write takes text, and replace takes old and text"}, nil
		}
		return sandbox.Said{Status: 1, Output: "action is read, write or replace"}, nil
	})
	if err != nil {
		return "", false, err
	}
	text := shorten(said.Output, g.options.Shown)
	if said.Status != 0 {
		text = "error: " + text
	}
	g.log.call(fmt.Sprintf("file %s %s", given["action"], given["path"]), text)
	return text, said.Status == 0, nil
}

// shorten keeps the beginning and the end of a text.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return fmt.Sprintf("%s\n[%d characters left out]\n%s", string(runes[:most/2]), len(runes)-most/2*2,
		string(runes[len(runes)-most/2:]))
}
