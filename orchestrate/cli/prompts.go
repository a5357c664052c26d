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
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// promptRow is one line of input to score and generate: {"ids": […]}, {"text": …} or {"messages": […]}.
type promptRow struct {
	line     int
	ids      []int32
	text     *string
	messages []chat.Message
}

// promptFlags are those of the commands that read prompts.
func promptFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "model", Required: true, Usage: "Hugging Face `DIR` of the model"},
		inputFlag(),
		&cli.IntFlag{Name: "threads", Usage: "use `N` CPU threads; 0 = one per core"},
	}, placementFlags()...)
}

// readPrompts reads every row before any work is done. Blank lines are skipped, keys other than the three are ignored.
func readPrompts(r io.Reader, source string) ([]promptRow, error) {
	var rows []promptRow
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading %s: %w", source, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			row, bad := parsePrompt(line)
			if bad != nil {
				return nil, Usagef("%s line %d: %w", source, n, bad)
			}
			row.line = n
			rows = append(rows, row)
		}
		if err != nil {
			break
		}
	}
	if len(rows) == 0 {
		return nil, Usagef(`%s: no rows; expected lines of {"ids": […]}, {"text": "…"} or {"messages": […]}`, source)
	}
	return rows, nil
}

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
	value := fields[given[0]]
	switch given[0] {
	case "ids":
		if json.Unmarshal(value, &row.ids) != nil || len(row.ids) == 0 {
			return row, fmt.Errorf("ids: expected a list of one or more token ids (integers), got %s", excerpt(value))
		}
	case "text":
		if json.Unmarshal(value, &row.text) != nil || row.text == nil {
			return row, fmt.Errorf("text: expected a string, got %s", excerpt(value))
		}
	case "messages":
		if json.Unmarshal(value, &row.messages) != nil || len(row.messages) == 0 {
			return row, fmt.Errorf(`messages: expected a list of at least one {"role": "…", "content": "…"}, got %s`,
				excerpt(value))
		}
		for i, m := range row.messages {
			if m.Role == "" {
				return row, fmt.Errorf("messages: message %d has no role", i)
			}
		}
	}
	return row, nil
}

func excerpt(value []byte) string {
	const limit = 60
	if len(value) > limit {
		return string(value[:limit]) + "…"
	}
	return string(value)
}

// encode gives every row its token ids and checks them against the model.
func (p *prompts) encode(source string, use promptUse) error {
	for i := range p.rows {
		row := &p.rows[i]
		var err error
		switch {
		case row.text != nil:
			row.ids, err = p.tokenizer.Encode(*row.text, true)
		case row.messages != nil:
			row.ids, err = p.tokenizer.EncodeMessages(row.messages, use.generate ||
				row.messages[len(row.messages)-1].Role != "assistant")
		}
		if err == nil {
			err = checkIDs(row.ids, p.model.Shape, use)
		}
		if err != nil {
			return Usagef("%s line %d: %w", source, row.line, err)
		}
	}
	return nil
}

func checkIDs(ids []int32, model torch.ModelConfig, use promptUse) error {
	if len(ids) == 0 {
		return errors.New("the text has no tokens")
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int64(id) >= model.VocabSize }); i >= 0 {
		return fmt.Errorf("token %d is %d, but the model's vocabulary has ids 0 to %d", i, ids[i], model.VocabSize-1)
	}
	if use.generate && int64(len(ids)) >= model.MaxPositions {
		return fmt.Errorf("the prompt has %d tokens, but the model has %d positions for prompt and new tokens together",
			len(ids),
			model.MaxPositions)
	}
	if int64(len(ids)) > model.MaxPositions {
		return fmt.Errorf("the row has %d tokens, but the model has %d positions", len(ids), model.MaxPositions)
	}
	return nil
}

// loadTokenizer loads the model's tokenizer. When it is only good for giving results a text, there may be none (nil),
// or one that cannot be used, which stderr is told.
func loadTokenizer(dir string, required bool, stderr io.Writer) (*chat.Tokenizer, error) {
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); !required && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	tokenizer, err := chat.Load(dir)
	if err != nil && !required {
		fmt.Fprintf(stderr, "gyre: results have no text: %v\n", err)
		return nil, nil
	}
	return tokenizer, err
}

// needsTokenizer says whether any row is not given as ids.
func needsTokenizer(rows []promptRow) bool {
	return slices.ContainsFunc(rows, func(r promptRow) bool { return r.text != nil || r.messages != nil })
}

// prompts is the checked input of score and generate.
type prompts struct {
	rows      []promptRow
	tokenizer *chat.Tokenizer // nil when not needed, or not there
	model     *experiment.Model
}

// promptUse says what the rows are for. To be continued, a row must leave room for a token, a conversation is always
// followed by the template's generation prompt, and a tokenizer is good for the text of results. Otherwise a
// conversation that ends with the assistant is complete.
type promptUse struct{ generate bool }

// openPrompts reads, encodes and checks every row before the weights are loaded.
func openPrompts(c *cli.Context, use promptUse) (*prompts, error) {
	dir := c.String("model")
	on, err := placementOf(c)
	if err != nil {
		return nil, err
	}
	if on, _, err = experiment.Settle(on, dir); err != nil {
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
	input, source, err := openInput(c)
	if err != nil {
		return nil, err
	}
	defer input.Close()
	if p.rows, err = readPrompts(input, source); err != nil {
		return nil, err
	}
	required := needsTokenizer(p.rows) || len(c.StringSlice("stop")) > 0
	if required || use.generate {
		if p.tokenizer, err = loadTokenizer(dir, required, c.App.ErrWriter); err != nil {
			return nil, err
		}
	}
	return p, p.encode(source, use)
}
