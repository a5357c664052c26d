package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Without names episodes that updates leave out: "env=TAG", "row=NAME" (a task of a data set), "group=G", each at every
// step or, with "@STEP" behind it, at one.
type Without struct {
	Key, Value string
	Step       int // 0 = every step
}

// ParseWithout reads one.
func ParseWithout(text string) (Without, error) {
	key, value, found := strings.Cut(text, "=")
	w := Without{Key: key, Value: value}
	if at := strings.LastIndex(value, "@"); at >= 0 {
		step, err := strconv.Atoi(value[at+1:])
		if err != nil || step < 1 {
			return w, fmt.Errorf("%q: expected a step of 1 or more behind the @", text)
		}
		w.Value, w.Step = value[:at], step
	}
	_, err := strconv.Atoi(w.Value)
	switch {
	case !found || w.Value == "" || key != "env" && key != "row" && key != "group":
		return w, fmt.Errorf("%q: expected env=TAG, row=NAME or group=G, and perhaps @STEP behind it", text)
	case key == "group" && err != nil:
		return w, fmt.Errorf("%q: expected the number of a group, as the episodes' files have it", text)
	}
	return w, nil
}

// String is what ParseWithout reads.
func (w Without) String() string {
	if w.Step > 0 {
		return fmt.Sprintf("%s=%s@%d", w.Key, w.Value, w.Step)
	}
	return w.Key + "=" + w.Value
}

// Covers reports whether the episodes of a group at a step are meant.
func (w Without) Covers(step, group int, tag, row string) bool {
	if w.Step > 0 && w.Step != step {
		return false
	}
	switch w.Key {
	case "env":
		return tag == w.Value
	case "row":
		return row == w.Value
	}
	return strconv.Itoa(group) == w.Value
}
