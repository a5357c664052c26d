package dataset

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/answer"
	"gyre/internal/hub"
)

// The instructions that follow a problem.
const (
	BoxedInstruction = ` Let's think step by step and output the final answer in \boxed{your answer here}.`
	HashInstruction  = ` Let's think step by step and output the final answer after "####".`
)

// Instructions are the ones that have a name.
var Instructions = map[string]string{"": "", "boxed": BoxedInstruction, "hash": HashInstruction}

// RewardModel is verl's column of that name.
type RewardModel struct {
	Style       string `json:"style" parquet:"style"`
	GroundTruth string `json:"ground_truth" parquet:"ground_truth"`
}

// ExtraInfo is verl's column of that name.
type ExtraInfo struct {
	Split    string `json:"split" parquet:"split"`
	Index    int64  `json:"index" parquet:"index"`
	Answer   string `json:"answer" parquet:"answer"`
	Question string `json:"question" parquet:"question"`
}

// Training is a row for training, in verl's columns.
type Training struct {
	DataSource  string      `json:"data_source" parquet:"data_source"`
	Prompt      []Message   `json:"prompt" parquet:"prompt,list"`
	Ability     string      `json:"ability" parquet:"ability"`
	RewardModel RewardModel `json:"reward_model" parquet:"reward_model"`
	ExtraInfo   ExtraInfo   `json:"extra_info" parquet:"extra_info"`
}

// MATHTraining is a row of MATH: what rldynamic's script leaves of the original columns comes first.
type MATHTraining struct {
	Solution string `json:"solution" parquet:"solution"`
	Subject  string `json:"subject" parquet:"subject"`
	Level    int64  `json:"level" parquet:"level"`
	UniqueID string `json:"unique_id" parquet:"unique_id"`
	Training
}

// Sources of the prepared rows.
const (
	MATH500    = "HuggingFaceH4/MATH-500"
	GSM8K      = "openai/gsm8k"
	MetaMathQA = "meta-math/MetaMathQA"
)

// hubFiles are the files of the known sets on a hub.
var hubFiles = map[string]map[string]string{
	"math500": {"test": MATH500 + "/resolve/main/test.jsonl"},
	"gsm8k": {
		"train": GSM8K + "/resolve/main/main/train-00000-of-00001.parquet",
		"test":  GSM8K + "/resolve/main/main/test-00000-of-00001.parquet",
	},
	"metamathqa": {"train": MetaMathQA + "/resolve/main/MetaMathQA-395K.json"},
}

// Download brings a split of a known set from a hub into dir and returns its path. What is there already is not
// downloaded again.
func Download(ctx context.Context, h hub.Hub, name, split, dir string, progress hub.Progress) (string, error) {
	remote, known := hubFiles[name][split]
	if !known {
		return "", fmt.Errorf("no %s split of %s is known on the hub", split, name)
	}
	path := filepath.Join(dir, name+"-"+split+filepath.Ext(remote))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	err := h.Fetch(ctx, "datasets/"+remote, path, hub.File{Name: filepath.Base(path), Size: -1}, progress)
	return path, h.Unreachable(err, fmt.Sprintf("copy the file datasets/%s from a machine that has it, and give it "+
		"with --input (both files of gsm8k: in a folder, as train and test)", remote))
}

//go:embed split_math500.json
var splitFile []byte

// Math500Split gives the indices of MATH-500's 470 training and 30 validation problems: those of the rldynamic project,
// which are numpy's permutation of seed 42, cut after 30.
func Math500Split() (train, validation []int) {
	var split struct {
		Train      []int `json:"train_indices"`
		Validation []int `json:"val_indices"`
	}
	if err := json.Unmarshal(splitFile, &split); err != nil {
		panic(err) // the file is compiled in
	}
	return split.Train, split.Validation
}

// MATH makes training rows of MATH's columns (problem, solution, answer, subject or type, level, unique_id),
// keeping the given rows in the given order.
func MATH(t *Table, indices []int, split, instruction string) ([]MATHTraining, error) {
	var out []MATHTraining
	for i, index := range indices {
		if index < 0 || index >= len(t.Rows) {
			return nil, fmt.Errorf("%s: no row %d, it has %d", t.Path, index, len(t.Rows))
		}
		row, err := mathRow(t.Rows[index])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", t.Path, t.Place(index), err)
		}
		question := row.ExtraInfo.Question
		row.Prompt = []Message{{Role: "user", Content: question + instruction}}
		row.Ability, row.RewardModel.Style = "math", "rule"
		row.ExtraInfo.Split, row.ExtraInfo.Index = split, int64(i)
		out = append(out, row)
	}
	return out, nil
}

func mathRow(c Columns) (row MATHTraining, err error) {
	problem, answer := textOf(c["problem"]), textOf(c["answer"])
	row.Solution, row.UniqueID = textOf(c["solution"]), textOf(c["unique_id"])
	if answer == "" && row.Solution != "" { // the original MATH has the answer in its solution only
		answer = boxedAnswer(row.Solution)
	}
	if problem == "" || answer == "" {
		return row, errors.New("expected the columns problem and answer (or a solution with a box)")
	}
	if row.Subject = textOf(c["subject"]); row.Subject == "" {
		row.Subject = textOf(c["type"])
	}
	level := strings.TrimPrefix(textOf(c["level"]), "Level ")
	if row.Level, err = strconv.ParseInt(level, 10, 64); err != nil && level != "" && level != "?" {
		return row, fmt.Errorf("level: expected a number, got %q", level)
	}
	row.DataSource = MATH500
	row.RewardModel.GroundTruth, row.ExtraInfo.Answer, row.ExtraInfo.Question = answer, answer, problem
	return row, nil
}

// GSM makes training rows of GSM8K's columns (question, answer with its #### line).
func GSM(t *Table, indices []int, split, instruction string) ([]Training, error) {
	var out []Training
	for i, index := range indices {
		c := t.Rows[index]
		question, worked := textOf(c["question"]), textOf(c["answer"])
		gold := answer.Marked(worked).Text
		if question == "" || gold == "" {
			return nil, fmt.Errorf(`%s: %s: expected the columns question and answer, the latter with "#### NUMBER"`,
				t.Path, t.Place(index))
		}
		out = append(out, Training{
			DataSource: GSM8K, Prompt: []Message{{Role: "user", Content: question + instruction}}, Ability: "math",
			RewardModel: RewardModel{"rule", gold}, ExtraInfo: ExtraInfo{split, int64(i), worked, question},
		})
	}
	return out, nil
}

// MetaMathRow is a row of MetaMathQA, as the environment MetamathQA reads it.
type MetaMathRow struct {
	Query    string `json:"query" parquet:"query"`
	Response string `json:"response" parquet:"response"`
	Type     string `json:"type" parquet:"type"`
}

// MetaMath keeps the rows that say which answer they come to. left counts the others.
func MetaMath(t *Table) (rows []MetaMathRow, left int, err error) {
	for _, c := range t.Rows {
		row := MetaMathRow{textOf(c["query"]), textOf(c["response"]), textOf(c["type"])}
		if _, answer, found := strings.Cut(row.Response, MetaMathMark); row.Query == "" || !found ||
			strings.TrimSpace(answer) == "" {
			left++
			continue
		}
		rows = append(rows, row)
	}
	if rows == nil {
		err = fmt.Errorf("%s: expected the columns query and response, the latter with %q before its answer", t.Path,
			MetaMathMark)
	}
	return rows, left, err
}

// MetaMathMark stands before the answer in a response of MetaMathQA.
const MetaMathMark = "The answer is:"

// All is the indices 0 to n-1.
func All(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Without leaves out the problems that also occur in another table, whatever their spacing and case.
func Without(t *Table, other *Table) (kept []int, removed int) {
	seen := map[string]bool{}
	for _, c := range other.Rows {
		seen[folded(problemOf(c))] = true
	}
	for i, c := range t.Rows {
		if seen[folded(problemOf(c))] {
			removed++
		} else {
			kept = append(kept, i)
		}
	}
	return slices.Clip(kept), removed
}

func problemOf(c Columns) string {
	row, err := c.Row(Fields{})
	if err != nil {
		return textOf(c["problem"])
	}
	return row.Question
}

// folded makes problems comparable that differ in spacing, case and punctuation only.
func folded(s string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(s) {
		if !strings.ContainsRune(" \t\r\n\u00a0.,;:!?$~", r) {
			out.WriteRune(r)
		}
	}
	return out.String()
}
