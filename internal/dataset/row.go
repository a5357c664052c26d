package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gyre/internal/answer"
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
	Name     string // source and ID; an ID that an earlier row has is followed by the index
	Source   string // data_source: where the problem comes from
	Prompt   []Message
	Question string // the problem alone, without instructions
	Gold     string // the answer alone; "" when there is none
	Unit     string // that stood behind the answer, see package answer
	LeftOut  string // other words that stood there
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
	// NoQuestion are the file's rows that ask nothing, which are left out, NoAnswer those without an answer.
	NoQuestion, NoAnswer []int
	All                  int // rows of the file
	lines                []int
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
	set := &Set{Path: t.Path, Hash: t.Hash, All: len(t.Rows), lines: t.lines}
	taken := map[string]bool{}
	var wrong faults
	var absent lacking
	haveQuestion, haveAnswer := false, false
	for i, columns := range t.Rows {
		row, err := columns.Row(fields)
		var lacks lacking
		if errors.As(err, &lacks) { // as where the column is null, if other rows have it
			absent = lacking{cmp.Or(absent.question, lacks.question), cmp.Or(absent.answer, lacks.answer)}
		} else if err != nil {
			wrong.add(t.Place(i), err)
			continue
		}
		haveQuestion, haveAnswer = haveQuestion || lacks.question == nil, haveAnswer || lacks.answer == nil
		row.Index = i
		if row.ID == "" {
			row.ID = fmt.Sprint(i)
		}
		if row.Source == "" {
			base := filepath.Base(t.Path)
			row.Source = strings.TrimSuffix(base, filepath.Ext(base))
		}
		if row.Name = row.Source + "/" + row.ID; taken[row.Name] {
			row.Name += fmt.Sprintf("#%d", i)
		}
		taken[row.Name] = true
		if row.Gold == "" {
			set.NoAnswer = append(set.NoAnswer, i)
		}
		if strings.TrimSpace(answer.Visible(row.Question)) == "" {
			set.NoQuestion = append(set.NoQuestion, i)
		} else {
			set.Rows = append(set.Rows, row)
		}
	}
	if err := wrong.err(); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	if !haveQuestion || !haveAnswer {
		return nil, fmt.Errorf("%s: no row has what is asked for; the first: %w", t.Path, absent)
	}
	if len(set.Rows) == 0 {
		return nil, fmt.Errorf("%s: none of its %d rows has a question", t.Path, set.All)
	}
	return set, nil
}

// Notes say what is missing in the rows, in a line each.
func (s *Set) Notes() (lines []string) {
	note := func(rows []int, what string) {
		if len(rows) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d rows have no %s (%s)", s.Path, len(rows), s.All, what,
				s.named(rows)))
		}
	}
	note(s.NoQuestion, "question, and are left out")
	note(s.NoAnswer, "answer, or nothing behind "+answer.Mark+": no reply to them is right")
	return lines
}

// named is Named with the lines of the rows, where they have some.
func (s *Set) named(rows []int) string {
	text := Named(rows)
	if s.lines != nil {
		lines := make([]int, len(rows))
		for i, row := range rows {
			lines[i] = s.lines[row]
		}
		text += "; " + strings.Replace(Named(lines), "rows", "lines", 1)
	}
	return text
}

// Named names the first few rows; "" where there are none.
func Named(rows []int) string {
	const shown = 5
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(rows[:min(shown, len(rows))]), " ", ", "), "[]")
	switch {
	case text == "":
		return ""
	case len(rows) > shown:
		text += ", …"
	}
	return "rows " + text
}

// lacking says which columns a row does not have; one of them may be nil.
type lacking struct{ question, answer error }

func (l lacking) Error() string { return cmp.Or(l.question, l.answer).Error() }

// Row finds the prompt and the answer in the columns. After an error that a column is not there, the rest is read.
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
	name, noQuestion := c.find("question", fields.Question, questionNames)
	var err error
	switch v := c[name].(type) {
	case nil:
	case string:
		row.Question = v
		row.Prompt = []Message{{Role: "user", Content: v + fields.Suffix}}
	case []any:
		if row.Prompt, err = messagesOf(v); err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		if err = checkRoles(row.Prompt); err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		row.Question = row.Prompt[len(row.Prompt)-1].Content
	default:
		return row, fmt.Errorf("%s: expected a text or a list of messages, got %s", name, excerpt(v))
	}
	extra, _ := c["extra_info"].(map[string]any)
	if q := textOf(extra["question"]); q != "" && row.Question != "" {
		row.Question = q
	}
	var gold any
	var noAnswer error
	model, _ := c["reward_model"].(map[string]any)
	if truth, wrapped := model["ground_truth"]; wrapped && fields.Answer == "" {
		name, gold = "reward_model.ground_truth", truth
	} else if name, noAnswer = c.find("answer", fields.Answer, answerNames); noAnswer == nil {
		gold = c[name]
	}
	text, err := Answer(gold)
	if err == nil && !utf8.ValidString(row.Question+text) {
		err = fmt.Errorf("expected UTF-8 in it and in the question, got %.60q", text)
	}
	if err != nil {
		return row, fmt.Errorf("%s: %w", name, err)
	}
	found := answer.Gold(text)
	row.Gold, row.Unit, row.LeftOut = found.Text, found.Unit, found.Rest
	if noQuestion != nil || noAnswer != nil {
		return row, lacking{noQuestion, noAnswer}
	}
	return row, nil
}

// checkRoles refuses a conversation that the policy could not be asked to go on with.
func checkRoles(prompt []Message) error {
	known := []string{"system", "user", "assistant", "tool"}
	for i, m := range prompt {
		switch {
		case !slices.Contains(known, m.Role):
			return fmt.Errorf("message %d has the role %q%s: expected one of %s", i, m.Role, nearest.Hint(m.Role, known),
				strings.Join(known, ", "))
		case m.Role == "system" && i > 0:
			return fmt.Errorf("message %d has the role system: expected it first", i)
		case m.Role == "assistant" && i == len(prompt)-1:
			return errors.New("the last message has the role assistant: expected the one that is to be answered")
		}
	}
	return nil
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
		if parts, several := m["content"].([]any); several {
			text, err := textOfParts(parts)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			content = text
		} else if ok {
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

// textOfParts joins the texts of a content in parts, as chat templates do.
func textOfParts(parts []any) (string, error) {
	var joined strings.Builder
	for _, part := range parts {
		fields, _ := part.(map[string]any)
		text, is := fields["text"].(string)
		if kind := textOf(fields["type"]); !is || kind != "" && kind != "text" && kind != "input_text" && kind != "output_text" {
			return "", fmt.Errorf("only texts can be shown to a policy, its content has %s: leave the row out", excerpt(part))
		}
		joined.WriteString(text)
	}
	return joined.String(), nil
}

// textOf is a string as it is, any other value as JSON writes it, and nothing for null and NaN. A whole number has no
// decimals: a column of floats may hold nothing else.
func textOf(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case []byte:
		return string(x)
	}
	written, err := json.Marshal(v)
	if err != nil { // of a float that is not finite
		return strings.TrimPrefix(fmt.Sprint(v), "NaN")
	}
	text := string(written)
	_ = json.Unmarshal(written, &text) // a decimal of Parquet is a string
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) >= 1e21 || !strings.ContainsAny(text, ".eE") ||
		x == 0 && strings.ContainsAny(text, "123456789") {
		return text
	}
	return strconv.FormatFloat(x+0, 'f', 0, 64) // -0 + 0 is 0
}

// Answer is the text of an answer: of a list of one, its element.
func Answer(v any) (string, error) {
	switch x := v.(type) {
	case []any:
		if len(x) > 1 {
			return "", fmt.Errorf("expected one answer, got a list of %d: %s", len(x), excerpt(v))
		} else if len(x) == 1 {
			return Answer(x[0])
		}
		v = nil
	case map[string]any:
		return "", fmt.Errorf("expected a text, a number or a list of one, got an object: %s (a program that judges "+
			"by it can be given its text)", excerpt(v))
	}
	return textOf(v), nil
}

func excerpt(v any) string {
	s := textOf(v)
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return s
}
