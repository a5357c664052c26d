package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// promptRow is one line of input to score and generate: {"ids": […]}, {"text": …} or {"messages": […]}, and
// which adapter it is for.
type promptRow struct {
	at       string // where it stands, for messages
	ids      []int32
	text     *string
	messages []chat.Message
	adapter  string // "" where the row names none
}

// promptFlags are those of the commands that read prompts.
func promptFlags() []cli.Flag {
	return []cli.Flag{required("model", "Hugging Face `DIR` of the model"), adapterFlag(), inputFlag(),
		atLeast(0, "threads", 0, "use `N` CPU threads; 0 = one per core"), deviceFlag(), dtypeFlag()}
}

// parsePrompt reads a line. Keys other than these three and adapter are ignored.
func parsePrompt(line []byte) (promptRow, error) {
	var row promptRow
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return row, fmt.Errorf("not a JSON object: %w", err)
	}
	var given []string
	for _, key := range []string{"ids", "text", "messages"} {
		if _, ok := fields[key]; ok {
			given = append(given, key)
		}
	}
	if len(given) == 0 {
		return row, fmt.Errorf("expected one of ids, text and messages, got %q", slices.Sorted(maps.Keys(fields)))
	}
	if len(given) > 1 {
		return row, fmt.Errorf("expected exactly one of ids, text and messages, got %q", given)
	}
	key, value := given[0], fields[given[0]]
	into, expected := map[string]any{"ids": &row.ids, "text": &row.text, "messages": &row.messages},
		map[string]string{"ids": "a list of one or more token ids (integers)", "text": "a string",
			"messages": `a list of at least one {"role": "…", "content": "…"}`}
	if json.Unmarshal(value, into[key]) != nil || len(row.ids) == 0 && row.text == nil && len(row.messages) == 0 {
		return row, fmt.Errorf("%s: expected %s, got %s", key, expected[key], excerpt(value))
	}
	if i := slices.IndexFunc(row.messages, func(m chat.Message) bool { return m.Role == "" }); i >= 0 {
		return row, fmt.Errorf("messages: message %d has no role", i)
	}
	if value, ok := fields["adapter"]; ok && (json.Unmarshal(value, &row.adapter) != nil || row.adapter == "") {
		return row, fmt.Errorf("adapter: expected the name of an adapter (a string), got %s", excerpt(value))
	}
	return row, nil
}

// prompts is the checked input of score and generate.
type prompts struct {
	rows      []promptRow
	tokenizer *chat.Tokenizer              // nil when not needed, or not there
	model     *experiment.Model            // of rows that name no adapter
	adapters  map[string]*experiment.Model // by name, beside model
}

// openPrompts reads, encodes and checks every row before the weights are loaded. To be continued (generate), a row must
// leave room for a token, a conversation is always followed by the template's generation prompt, and a tokenizer is
// good for the text of results. Otherwise a conversation that ends with the assistant is complete.
func openPrompts(c *cli.Context, generate bool) (*prompts, error) {
	dir := c.String("model")
	on, err := placement(c)
	if err != nil {
		return nil, err
	}
	adapters, err := givenAdapters(c)
	if err != nil {
		return nil, err
	}
	if on, err = settleBeside(on, dir, adapters); err != nil {
		return nil, err
	}
	on.Frozen = true
	if err := openThreads(c, on); err != nil {
		return nil, err
	}
	p := new(prompts)
	if p.model, err = experiment.OpenModel(dir, torch.HeadLM, on); errors.Is(err, fs.ErrNotExist) {
		return nil, Usagef("--model: %w", err)
	} else if err != nil {
		return nil, err
	}
	if err := p.openAdapters(adapters); err != nil {
		return nil, err
	}
	words := len(c.StringSlice("stop")) > 0 // and not only ids
	err = readRows(c, func(line []byte, at string) error {
		row, err := parsePrompt(line)
		if err == nil {
			err = p.checkAdapter(row.adapter)
		}
		if err != nil {
			return Usagef("%s: %w", at, err)
		}
		row.at, words = at, words || row.ids == nil
		p.rows = append(p.rows, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(p.rows) == 0 {
		return nil, Usagef(`no rows; expected lines of {"ids": […]}, {"text": "…"} or {"messages": […]}`)
	}
	if words || generate && atomicfile.Exists(dir, "tokenizer.json") {
		if p.tokenizer, err = chat.Load(dir); err != nil && words {
			return nil, err
		} else if err != nil {
			fmt.Fprintf(c.App.ErrWriter, "gyre: results have no text: %v\n", err)
		}
	}
	for i := range p.rows {
		if err := p.encode(&p.rows[i], generate); err != nil {
			return nil, Usagef("%s: %w", p.rows[i].at, err)
		}
	}
	return p, nil
}

// encode gives a row its token ids and checks them against the model.
func (p *prompts) encode(row *promptRow, generate bool) (err error) {
	switch {
	case row.text != nil:
		row.ids, err = p.tokenizer.Encode(*row.text, true)
	case row.messages != nil:
		row.ids, err = p.tokenizer.EncodeMessages(row.messages, generate || row.open())
	}
	if err != nil {
		return err
	}
	model := p.model.Shape
	outside := slices.IndexFunc(row.ids, func(id int32) bool { return id < 0 || int64(id) >= model.VocabSize })
	switch n := int64(len(row.ids)); {
	case n == 0:
		return errors.New("the text has no tokens")
	case outside >= 0:
		return fmt.Errorf("token %d is %d, but the model's vocabulary has ids 0 to %d", outside, row.ids[outside],
			model.VocabSize-1)
	case generate && n >= model.MaxPositions:
		return fmt.Errorf("the prompt has %d tokens, but the model has %d positions for prompt and new tokens together",
			n, model.MaxPositions)
	case n > model.MaxPositions:
		return fmt.Errorf("the row has %d tokens, but the model has %d positions", n, model.MaxPositions)
	}
	return nil
}

// open reports whether a conversation waits for the assistant.
func (r promptRow) open() bool { return r.messages[len(r.messages)-1].Role != "assistant" }

// readRows hands over every row of the input as it comes, with its place for messages. Blank lines are skipped.
func readRows(c *cli.Context, take func(line []byte, at string) error) error {
	input, source := c.App.Reader, "stdin"
	if path := c.String("input"); path != "" {
		f, err := os.Open(path)
		if err != nil {
			return Usagef("--input: %w", err)
		}
		defer f.Close()
		input, source = f, path
	}
	rows := bufio.NewReader(input)
	for n := 1; ; n++ {
		if err := c.Context.Err(); err != nil {
			return err
		}
		line, ended := rows.ReadBytes('\n')
		if ended != nil && !errors.Is(ended, io.EOF) {
			return fmt.Errorf("reading %s: %w", source, ended)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := take(line, fmt.Sprintf("%s line %d", source, n)); err != nil {
				return err
			}
		}
		if ended != nil {
			return nil
		}
	}
}

// eachRow answers every row of the input with one line of output.
func eachRow(c *cli.Context, answer func(line []byte) (any, error)) error {
	results := lines(c.App.Writer)
	return readRows(c, func(line []byte, at string) error {
		result, err := answer(line)
		if err != nil {
			return Usagef("%s: %w", at, err)
		}
		return write(results, result)
	})
}

// lines writes one JSON value per line.
func lines(w io.Writer) *json.Encoder {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return out
}

func write(out *json.Encoder, value any) error {
	if err := out.Encode(value); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// printJSON prints one value for programs, indented.
func printJSON(c *cli.Context, value any) error {
	out := lines(c.App.Writer)
	out.SetIndent("", "  ")
	return write(out, value)
}

// show prints a table: for people, or as JSON lines with --json.
func show(c *cli.Context, t *table.Table) error {
	if c.Bool("json") {
		return t.WriteJSON(c.App.Writer)
	}
	return t.Write(c.App.Writer)
}

// excerpt shows a value in a message.
func excerpt(value []byte) string {
	const limit = 60
	if len(value) > limit {
		return string(value[:limit]) + "…"
	}
	return string(value)
}
