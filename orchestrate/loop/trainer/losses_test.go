package trainer

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// TestActorHasTheKeysOfLosses compares [actor] with the table of policy losses: actor.loss takes their names, and each
// of their constants is a key with the same default and interval.
func TestActorHasTheKeysOfLosses(t *testing.T) {
	fields := map[string]reflect.StructTag{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Actor]()) {
		fields[f.Tag.Get("toml")] = f.Tag
	}
	var names []string
	for _, loss := range torch.Losses() {
		if !loss.Compares {
			continue // not of a policy gradient
		}
		names = append(names, loss.Name)
		for _, c := range loss.Constants {
			tag := fields[c.Name]
			value, err := strconv.ParseFloat(tag.Get("default"), 64)
			if names := tag.Get("oneof"); names != "" {
				value, err = float64(slices.Index(strings.Split(names, ","), tag.Get("default"))), nil
			}
			if err != nil || value != c.Default || tag.Get("range")+tag.Get("oneof") != c.Range {
				t.Errorf("loss %s has a constant %s in %s with default %v, but [actor] has %q", loss.Name, c.Name, c.Range,
					c.Default, tag)
			}
		}
	}
	if got := fields["loss"].Get("oneof"); got != strings.Join(names, ",") {
		t.Errorf("actor.loss takes %q, but the table has %q", got, names)
	}
	if got := (config.Actor{ClipLow: 0.25}).Constants()["clip_low"]; got != 0.25 {
		t.Errorf("clip_low is %v", got)
	}
}
