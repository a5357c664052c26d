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
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/nearest"
	"gyre/internal/quote"
	"gyre/internal/table"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// promptRow is one line of input to score, generate and tokenize: {"ids": […]}, {"text": …} or {"messages": […]} as in
// requests to a server, with tools and chat_template_kwargs, and which adapter it is for.
type promptRow struct {
	at       string // where it stands, for messages
	ids      []int32
	text     *string
	messages []chat.Message
	offer    chat.Offer
	adapter  string // "" where the row names none
}

// rowKeys are all keys of a row; the first three say what it is.
var rowKeys = []string{"ids", "text", "messages", "tools", "chat_template_kwargs", "adapter"}

// promptFlags are those of the commands that read prompts.
func promptFlags() []cli.Flag {
	return append([]cli.Flag{required("model", "Hugging Face `DIR` of the model"), adapterFlag(), inputFlag()},
		modelFlags()...)
}

// parsePrompt reads a line.
func parsePrompt(line []byte) (promptRow, error) {
	var row promptRow
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return row, fmt.Errorf("not a JSON object: %w", quote.JSON(err))
	}
	have := slices.Sorted(maps.Keys(fields))
	given := slices.DeleteFunc(slices.Clone(rowKeys[:3]), func(key string) bool { return fields[key] == nil })
	if len(given) == 0 {
		return row, fmt.Errorf("expected one of ids, text and messages, got %q", have)
	}
	if len(given) > 1 {
		return row, fmt.Errorf("expected exactly one of ids, text and messages, got %q", given)
	}
	for _, key := range have {
		if !slices.Contains(rowKeys, key) {
			return row, fmt.Errorf("there is no key %.80q of rows%s: expected %s, and beside it %s", key,
				nearest.Hint(key, rowKeys), given[0], strings.Join(rowKeys[3:], ", "))
		}
	}
	key, value := given[0], fields[given[0]]
	into, expected := map[string]any{"ids": &row.ids, "text": &row.text},
		map[string]string{"ids": "a list of one or more token ids (integers)", "text": "a string"}
	if key == "messages" {
		return row, row.readMessages(fields)
	}
	if json.Unmarshal(value, into[key]) != nil || len(row.ids) == 0 && row.text == nil {
		return row, fmt.Errorf("%s: expected %s, got %s", key, expected[key], excerpt(value))
	}
	for _, beside := range []string{"tools", "chat_template_kwargs"} {
		if fields[beside] != nil {
			return row, fmt.Errorf("%s: is for the chat template, which writes messages, got %s", beside, key)
		}
	}
	return row, row.readAdapter(fields)
}

func (r *promptRow) readAdapter(fields map[string]json.RawMessage) error {
	if value, ok := fields["adapter"]; ok && (json.Unmarshal(value, &r.adapter) != nil || r.adapter == "") {
		return fmt.Errorf("adapter: expected the name of an adapter (a string), got %s", excerpt(value))
	}
	return nil
}

// readMessages reads a row of messages.
func (r *promptRow) readMessages(fields map[string]json.RawMessage) (err error) {
	if r.messages, err = chat.ReadMessages(fields["messages"]); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if len(r.messages) == 0 {
		return errors.New(`messages: expected a list of at least one {"role": "…", "content": "…"}, got []`)
	}
	if i := slices.IndexFunc(r.messages, func(m chat.Message) bool { return m.Role == "" }); i >= 0 {
		return fmt.Errorf("messages: message %d has no role", i)
	}
	r.messages = chat.ForTemplates(r.messages)
	if r.offer.Tools, err = chat.ReadTools(fields["tools"]); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	if value := fields["chat_template_kwargs"]; value != nil && json.Unmarshal(value, &r.offer.Variables) != nil {
		return fmt.Errorf("chat_template_kwargs: expected an object, got %s", excerpt(value))
	}
	return r.readAdapter(fields)
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
	adapters, on, err := openingModel(c, dir)
	if err != nil {
		return nil, err
	}
	p := new(prompts)
	on.Frozen = true
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
		row.ids, err = p.tokenizer.EncodeDocument(*row.text)
	case row.messages != nil:
		row.ids, err = p.tokenizer.EncodeMessages(row.messages, generate || row.open(), row.offer)
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

// printf writes a result for people.
func printf(c *cli.Context, format string, args ...any) error {
	_, err := fmt.Fprintf(c.App.Writer, format, args...)
	return err
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
