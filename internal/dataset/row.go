package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/internal/nearest"
)

// Message is one message of a prompt.
type Message struct {
	Role    string `json:"role" parquet:"role"`
	Content string `json:"content" parquet:"content"`
}

// Row is a prompt with its answer.
type Row struct {
	Index    int    // in its file
	ID       string // unique_id and the like; the index when there is none
	Source   string // data_source: where the problem comes from
	Prompt   []Message
	Question string // the problem alone, without instructions
	Gold     string // the answer alone; "" when there is none
	Columns  Columns
}

// Fields says which columns hold question and answer; empty ones are found by name. Suffix is added to questions
// that are not prompts yet.
type Fields struct{ Question, Answer, Suffix string }

// Set is a file whose rows are prompts.
type Set struct {
	Path string
	Hash string
	Rows []Row
}

// The columns that are looked for, in this order.
var (
	questionNames = []string{"prompt", "problem", "question", "instruction", "input", "text"}
	answerNames   = []string{"ground_truth", "answer", "gold", "target", "expected_answer", "final_answer", "output",
		"label"}
	idNames = []string{"unique_id", "id", "uid", "question_id"}
)

// Load reads a file and finds prompts and answers in its columns.
func Load(path string, fields Fields) (*Set, error) {
	table, err := Read(path)
	if err != nil {
		return nil, err
	}
	return table.Set(fields)
}

// Set finds prompts and answers in the columns of a table.
func (t *Table) Set(fields Fields) (*Set, error) {
	set := &Set{Path: t.Path, Hash: t.Hash}
	for i, columns := range t.Rows {
		row, err := columns.Row(fields)
		if err != nil {
			return nil, fmt.Errorf("%s row %d: %w", t.Path, i, err)
		}
		row.Index = i
		if row.ID == "" {
			row.ID = fmt.Sprint(i)
		}
		if row.Source == "" {
			base := filepath.Base(t.Path)
			row.Source = strings.TrimSuffix(base, filepath.Ext(base))
		}
		set.Rows = append(set.Rows, row)
	}
	return set, nil
}

// Row finds the prompt and the answer in the columns.
func (c Columns) Row(fields Fields) (Row, error) {
	row := Row{Columns: c, Source: textOf(c["data_source"])}
	for _, name := range idNames {
		if row.ID = textOf(c[name]); row.ID != "" {
			break
		}
	}
	if meta, ok := c["metadata"].(map[string]any); ok && row.Source == "" {
		row.Source = textOf(meta["source_dataset"])
	}
	name, err := c.find("question", fields.Question, questionNames)
	if err != nil {
		return row, err
	}
	switch v := c[name].(type) {
	case string:
		row.Question = v
		row.Prompt = []Message{{Role: "user", Content: v + fields.Suffix}}
	case []any:
		if row.Prompt, err = messagesOf(v); err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		row.Question = row.Prompt[len(row.Prompt)-1].Content
	default:
		return row, fmt.Errorf("%s: expected a text or a list of messages, got %s", name, excerpt(v))
	}
	extra, _ := c["extra_info"].(map[string]any)
	if q := textOf(extra["question"]); q != "" {
		row.Question = q
	}
	if model, ok := c["reward_model"].(map[string]any); ok && fields.Answer == "" {
		row.Gold = textOf(model["ground_truth"])
		return row, nil
	}
	if name, err = c.find("answer", fields.Answer, answerNames); err != nil {
		return row, err
	}
	row.Gold = AfterHash(textOf(c[name]))
	return row, nil
}

// find chooses a column.
func (c Columns) find(what, given string, names []string) (string, error) {
	if given != "" {
		names = []string{given}
	}
	for _, name := range names {
		if _, ok := c[name]; ok {
			return name, nil
		}
	}
	have := slices.Sorted(maps.Keys(c))
	if given != "" {
		return "", fmt.Errorf("no column %q%s; it has %s", given, nearest.Hint(given, have), strings.Join(have, ", "))
	}
	return "", fmt.Errorf("no column for the %s: expected one of %s, or its name to be given; it has %s", what,
		strings.Join(names, ", "), strings.Join(have, ", "))
}

func messagesOf(list []any) ([]Message, error) {
	var messages []Message
	for i, item := range list {
		m, ok := item.(map[string]any)
		role, content := textOf(m["role"]), ""
		if ok {
			content, ok = m["content"].(string)
		}
		if !ok || role == "" {
			return nil, fmt.Errorf(`message %d: expected {"role": …, "content": …}, got %s`, i, excerpt(item))
		}
		messages = append(messages, Message{role, content})
	}
	if len(messages) == 0 {
		return nil, errors.New("expected at least one message")
	}
	return messages, nil
}

// textOf is a string as it is, any other value as JSON writes it, and nothing for null.
func textOf(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func excerpt(v any) string {
	s := textOf(v)
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return s
}

// hashAnswer is GSM8K's last line.
var hashAnswer = regexp.MustCompile(`#### (-?[0-9.,]+)`)

// AfterHash gives the number after the last #### of a worked answer, without separators, or the text itself.
func AfterHash(text string) string {
	all := hashAnswer.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return text
	}
	return strings.ReplaceAll(all[len(all)-1][1], ",", "")
}
