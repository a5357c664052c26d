// Package translate makes Gyre's configurations of other programs': Hydra overrides and resolved YAML of RAGEN and
// verl, and the words of the first RAGEN's train.sh.
//
//	words.go       from words and files to settings by their keys
//	translate.go   from settings to a document
//	document.go    the TOML document, with where each of its lines comes from
//	table.go       what every key becomes, or why nothing does: the lists of keys.md
//	ragen.go, verl.go, trainsh.go   settings that act together, and rules where none is given
package translate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/nearest"
	"gyre/orchestrate/config"
)

// Result is a translated configuration.
type Result struct {
	Document []byte // TOML, which says of each line where it comes from
	Config   *config.Config
	Command  []string // what follows `gyre train FILE`: --resume-from DIR
	Unused   []Unused // settings that have no counterpart
	Notes    []string // what to do or to know before the run
}

// Unused is a setting that the document does not carry, and why.
type Unused struct{ Key, Value, Why string }

// translation is one configuration on its way.
type translation struct {
	trainSh string         // the environment of a run of train.sh, "" = of another program
	verl    bool           // a run of verl itself, and not of RAGEN
	given   map[string]any // their settings by key
	order   []string       // of their first mention
	doc     document
	command []string
	unused  []Unused
	notes   []string
	errs    []error
}

// apply carries every setting over by the row of its key. An unknown key is an error where the table is complete.
func (t *translation) apply(rows []row, complete bool) {
	byKey := map[string]row{}
	for _, r := range rows {
		for _, key := range r.keys {
			byKey[key] = r
		}
	}
	for _, key := range t.order {
		value, still := t.given[key]
		if !still { // taken out by ~key
			continue
		}
		r, ok := byKey[key]
		for prefix := key; !ok && prefix != ""; {
			prefix = prefix[:max(strings.LastIndexByte(prefix, '.'), 0)]
			r, ok = byKey[prefix+".*"]
		}
		convert := conversions[key]
		switch {
		case !ok && complete:
			t.fail(key, "is no key of train.sh%s", nearest.Hint(key, slices.Collect(maps.Keys(byKey))))
		case !ok:
			hint := nearest.Hint(key, slices.Collect(maps.Keys(byKey)))
			t.drop(key, show(value), "unknown to this translation"+hint)
		case r.ours == nil:
			t.drop(key, show(value), r.how)
		case value == nil: // null stands for the default, there as here
		case convert != nil:
			if value = convert(t, key, value); value != nil {
				t.put(r.ours[0], value, key)
			}
		case len(r.ours) == 1 && !strings.HasPrefix(r.ours[0], "-") && !strings.Contains(r.ours[0], " "):
			t.put(r.ours[0], value, key)
		}
	}
}

// finish writes the document and has it judged.
func (t *translation) finish(checks []config.Check) (Result, error) {
	text := t.doc.render()
	result := func() Result {
		return Result{Document: text, Command: t.command, Unused: t.unused, Notes: t.notes}
	}
	if len(t.errs) > 0 {
		return result(), errors.Join(t.errs...)
	}
	tolerant := func(c *config.Config, report func(key, format string, args ...any)) {
		for _, check := range checks {
			check(c, func(key, format string, args ...any) {
				if slices.ContainsFunc(args, missingFile) { // the reader fetches the data before training
					t.note("%s: %s", key, fmt.Sprintf(format, args...))
					return
				}
				report(key, format, args...)
			})
		}
	}
	c, err := config.Parse("translation", text, nil, tolerant)
	if err != nil {
		return result(), fmt.Errorf("the translated configuration cannot run:\n%w", err)
	}
	whole := result()
	whole.Config = c
	return whole, nil
}

// Text is the document for a file, which says at its end what it lacks: an error of the translation, settings without
// a counterpart, and what is to be done before a run.
func (r Result) Text(problem error) []byte {
	var lines []string
	add := func(head string, of ...string) {
		if len(of) > 0 {
			lines = append(lines, "", head)
			lines = append(lines, of...)
		}
	}
	if problem != nil {
		add("To be mended before this can run:", strings.Split(problem.Error(), "\n")...)
	}
	var unused []string
	for _, u := range r.Unused {
		unused = append(unused, fmt.Sprintf("%s=%s: %s", u.Key, u.Value, u.Why))
	}
	add("Without a counterpart here:", unused...)
	add("To know or to do before the run:", r.Notes...)
	out := slices.Clone(r.Document)
	for _, line := range lines {
		if line != "" {
			line = "# " + oneLine.Replace(strings.ToValidUTF8(line, "?"))
		}
		out = append(out, line+"\n"...)
	}
	return out
}

// oneLine takes out what ends a comment of TOML.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ", "\x00", "")

// missingFile reports whether what a check says names a file that is not there.
func missingFile(arg any) bool {
	err, ok := arg.(error)
	return ok && errors.Is(err, fs.ErrNotExist)
}

// put sets one of our keys; from names the settings it comes from.
func (t *translation) put(key string, value any, from ...string) {
	for i, name := range from {
		if v, ok := t.given[name]; ok {
			from[i] = name + "=" + show(v)
		}
	}
	t.doc.set(key, value, strings.Join(from, " "))
}

// rule is a value that the other program takes where nothing is said.
type rule struct {
	key   string
	value any
}

// rules puts the values of rules that nothing has set.
func (t *translation) rules(list []rule, from string) {
	for _, r := range list {
		if t.doc.find(r.key) < 0 {
			t.put(r.key, r.value, from)
		}
	}
}

func (t *translation) drop(key, value, why string) {
	t.unused = append(t.unused, Unused{key, value, why})
}

func (t *translation) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

func (t *translation) fail(key, format string, args ...any) {
	err := fmt.Errorf("%s "+format, append([]any{key}, args...)...)
	if !slices.ContainsFunc(t.errs, func(e error) bool { return e.Error() == err.Error() }) { // several may read a key
		t.errs = append(t.errs, err)
	}
}

// The values of settings that act together, with the other program's defaults.

func (t *translation) text(key, missing string) string {
	if v := t.given[key]; v != nil {
		return show(v)
	}
	return missing
}

func (t *translation) truth(key string, missing bool) bool {
	v, ok := t.given[key].(bool)
	if !ok && t.given[key] != nil {
		t.fail(key, "is %s, expected true or false", show(t.given[key]))
	}
	if !ok {
		return missing
	}
	return v
}

func (t *translation) number(key string, missing float64) float64 {
	switch v := t.given[key].(type) {
	case nil:
	case int:
		return float64(v)
	case float64:
		return v
	default:
		t.fail(key, "is %s, expected a number", show(v))
	}
	return missing
}

func (t *translation) integer(key string, missing int) int {
	x := t.number(key, float64(missing))
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		t.fail(key, "is %s, expected an integer", show(t.given[key]))
		return missing
	}
	return int(x)
}

func (t *translation) list(key string) []any {
	switch v := t.given[key].(type) {
	case nil:
		return nil
	case []any:
		return v
	default:
		return []any{v}
	}
}

// modelDir is a model's directory: a name on the hub becomes the place where `gyre model pull` puts it.
func (t *translation) modelDir(name string) string {
	if atomicfile.Exists(name) || !hubName.MatchString(name) {
		return name
	}
	dir := "models/" + filepath.Base(name)
	if !atomicfile.Exists(dir) {
		t.note("get the model: gyre model pull %s", name)
	}
	return dir
}

var hubName = regexp.MustCompile(`^[\w-][\w.-]*/[\w.-]+$`)

// device says how to compute on the GPUs that other programs take for granted.
func (t *translation) device(gpus int) {
	if gpus > 1 {
		t.note("for %d GPUs, a rank on each: gyre train FILE --ranks %d model.device=cuda", gpus, gpus)
		return
	}
	t.note("for a GPU: gyre train FILE model.device=cuda")
}

// show writes a value as an override would.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, show(x))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return fmt.Sprint(value)
}
