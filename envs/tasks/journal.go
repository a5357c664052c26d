package tasks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// journal is what an episode did, for people.
type journal struct {
	text    strings.Builder
	judged  string
	verdict outcome
}

func (j *journal) call(what, says string) {
	fmt.Fprintf(&j.text, "%s\n%s\n\n", what, strings.TrimSuffix(says, "\n"))
}

func (j *journal) tests(said string, verdict outcome) { j.judged, j.verdict = said, verdict }

// keep writes the journal of an episode into a new folder, if that is asked for: TASK-SEED-MEMBER, and once more with
// a number where an episode of that name has been played.
func (j *journal) keep(g *game) error {
	if g.options.Logs == "" {
		return nil
	}
	if err := os.MkdirAll(g.options.Logs, 0o777); err != nil {
		return fmt.Errorf("option logs: %w", err)
	}
	name := fmt.Sprintf("%s-%d-%d", g.task.Name, g.seed, g.member)
	folder := filepath.Join(g.options.Logs, name)
	err := os.Mkdir(folder, 0o777)
	for i := 2; os.IsExist(err); i++ {
		folder = filepath.Join(g.options.Logs, fmt.Sprintf("%s.%d", name, i))
		err = os.Mkdir(folder, 0o777)
	}
	if err != nil {
		return fmt.Errorf("option logs: %w", err)
	}
	result, err := json.MarshalIndent(map[string]any{"task": g.task.Name, "seed": g.seed, "member": g.member,
		"reward": j.verdict.reward, "tests_passed": j.verdict.share, "parts": j.verdict.parts,
		"tool_seconds": g.spent.Seconds()}, "", "  ")
	if err != nil {
		return err
	}
	for file, content := range map[string]string{"instruction.md": g.task.Instruction + "\n",
		"session.txt": j.text.String(), "tests.txt": j.judged, "result.json": string(result) + "\n"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o666); err != nil {
			return fmt.Errorf("option logs: %w", err)
		}
	}
	return nil
}
