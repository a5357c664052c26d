package static

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/internal/answer"
	"gyre/internal/dataset"
)

// own are a few questions of each form, so that the tags can be tried without a file.
//
//go:embed metamathqa.jsonl gsm8k.jsonl mmlu.jsonl
var own embed.FS

// question is a question and its answer.
type question struct{ text, gold string }

// form is how a data set writes its rows, what its answers are, and when one is right.
type form struct {
	read  func(row map[string]any) (question, error)
	asks  string
	right func(answer, gold string) bool
}

var forms = map[string]form{
	"metamathqa": {after("query", "response", dataset.MetaMathMark), "Give the answer alone, without its derivation.",
		sameText},
	"gsm8k": {after("question", "answer", answer.Mark), "The answer is a number.", sameNumber},
	"mmlu":  {readMMLU, "The answer is the letter of a choice.", sameChoice},
}

// questions reads a file of a form, or our own.
func (f form) questions(name, path string) ([]question, error) {
	questions, err := envs.ReadRows("problems", path, own, name+".jsonl", f.read)
	if errors.Is(err, fs.ErrNotExist) && name == "metamathqa" {
		err = fmt.Errorf("%w (`gyre data prepare metamathqa` makes data/metamathqa/train.jsonl)", err)
	}
	return questions, err
}

func column(row map[string]any, name string) (string, error) {
	text, ok := row[name].(string)
	if !ok || strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("expected a text in column %q", name)
	}
	return text, nil
}

// after reads rows whose answer follows a mark at the end of its solution.
func after(ask, solution, mark string) func(row map[string]any) (question, error) {
	return func(row map[string]any) (question, error) {
		text, err := column(row, ask)
		if err != nil {
			return question{}, err
		}
		reasoned, err := column(row, solution)
		if err != nil {
			return question{}, err
		}
		i := strings.LastIndex(reasoned, mark)
		if i < 0 || strings.TrimSpace(reasoned[i+len(mark):]) == "" {
			return question{}, fmt.Errorf("expected an answer after %q in column %q", mark, solution)
		}
		gold := strings.TrimSpace(reasoned[i+len(mark):])
		if mark == answer.Mark {
			gold = answer.Marked(reasoned).Text
		}
		return question{text, gold}, nil
	}
}

func readMMLU(row map[string]any) (question, error) {
	text, err := column(row, "question")
	if err != nil {
		return question{}, err
	}
	choices, ok := row["choices"].([]any)
	index, err := strconv.Atoi(fmt.Sprint(row["answer"]))
	if !ok || len(choices) < 2 || len(choices) > 4 || err != nil || index < 0 || index >= len(choices) {
		return question{}, fmt.Errorf("expected two to four texts in column \"choices\" and the index of one in " +
			"column \"answer\"")
	}
	for i, choice := range choices {
		text += fmt.Sprintf("\n%c. %v", 'A'+i, choice)
	}
	return question{text, string(rune('A' + index))}, nil
}

// sameText ignores case and white space.
func sameText(answer, gold string) bool { return squeeze(answer) == squeeze(gold) }

func squeeze(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
}

// numeral is a number with a sign, thousands and decimals, and what makes it part of another one. A minus after a digit
// is a subtraction.
var numeral = regexp.MustCompile(`(?:^|[^\d.,])(-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?)(\s*[/:^]\s*\d)?`)

// sameNumber compares what is after #### in a reply with the gold answer, or else all of it or its first number.
func sameNumber(reply, gold string) bool {
	read, gold := answer.Marked(reply), answer.Plain(gold).Text
	right := func(text string) bool {
		return sameText(text, gold) || reward.GradeAnswer(text, gold, reward.Lenient).Correct
	}
	if read.Marked {
		return right(read.Text)
	}
	first := numeral.FindStringSubmatch(reply)
	return right(answer.Plain(reply).Text) ||
		first != nil && first[2] == "" && right(strings.ReplaceAll(first[1], ",", ""))
}

// letter is a choice that stands by itself: the A of "answer" is none.
var letter = regexp.MustCompile(`\b[A-D]\b`)

// sameChoice takes the last choice that an answer names; a lone letter may be a small one.
func sameChoice(answer, gold string) bool {
	if lone := strings.Trim(strings.TrimSpace(answer), ".():"); len(lone) == 1 {
		return strings.ToUpper(lone) == gold
	}
	named := letter.FindAllString(answer, -1)
	return len(named) > 0 && named[len(named)-1] == gold
}
