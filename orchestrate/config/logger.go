package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"gyre/internal/nearest"
	"gyre/internal/settings"
)

// loggers are the names that run.loggers takes.
var loggers = []string{"jsonl", "tensorboard", "wandb"}

// Logger is a place where metrics go: one with a name, or a command that is started and reads them from its standard
// input.
type Logger struct {
	Name    string   `toml:"name"`
	Command []string `toml:"command"`
}

var _ settings.Decoder = (*Logger)(nil)

// DecodeSetting reads a name, or a table with a command.
func (l *Logger) DecodeSetting(value any) error {
	switch v := value.(type) {
	case string:
		if !slices.Contains(loggers, v) {
			return fmt.Errorf("expected one of %s, or { command = [\"PROGRAM\", …] }; got %q%s",
				strings.Join(loggers, ", "), v, nearest.Hint(v, loggers))
		}
		l.Name = v
		return nil
	case map[string]any:
		words, ok := v["command"].([]any)
		for _, word := range words {
			text, isText := word.(string)
			l.Command, ok = append(l.Command, text), ok && isText && text != ""
		}
		if ok && len(words) > 0 && len(v) == 1 {
			return nil
		}
	}
	return errors.New(`expected the name of a logger, or { command = ["PROGRAM", "ARGUMENT", …] }`)
}

// MarshalTOML writes what DecodeSetting reads.
func (l Logger) MarshalTOML() ([]byte, error) {
	if l.Name != "" {
		return fmt.Appendf(nil, "%q", l.Name), nil
	}
	list, err := toml.Marshal(map[string]any{"command": l.Command})
	return fmt.Appendf(nil, "{ %s }", strings.TrimSpace(string(list))), err
}

// Logs reports whether a logger of a name is among the run's.
func (r Run) Logs(name string) bool {
	return slices.ContainsFunc(r.Loggers, func(l Logger) bool { return l.Name == name })
}
