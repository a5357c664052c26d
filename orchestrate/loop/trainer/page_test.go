package trainer

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/budget"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/importance"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/run/metrics"
)

var rewrite = flag.Bool("update", false, "write docs/metrics.md from the tags of the metrics")

// documented are the tables of docs/metrics.md that are made of the structs in which phases report.
var documented = map[string][]any{
	"rollout": {rollout.Stats{}, episodeMetrics{}, source.SamplingMetrics{}, session.EngineMetrics{}},
	"batch":   {batchMetrics{}, analysisOnly{}},
	"filter":  {source.RefillMetrics{}, selectionMetrics{}},
	"budget":  {budget.Metrics{}},
	"update": {source.StalenessMetrics{}, source.MixedMetrics{}, importance.Correction{}, scoreMetrics{}, advantage.Reweighting{},
		dataMetrics{}, actorMetrics{}, criticMetrics{}},
	"bucket":     {gradients.Result{}},
	"proxy":      {gradients.Proxy{}},
	"analysis":   {analysisMetrics{}, sourceMetrics{}},
	"why":        {whyMetrics{}, verifiedMetrics{}},
	"collapse":   {collapse.Metrics{}},
	"components": {gradients.ComponentMetrics{}},
	"time":       {session.TimeMetrics{}, session.UsefulMetrics{}, session.TrafficMetrics{}, session.TotalMetrics{}, session.TestingMetrics{}},
	"sft":        {sft.Metrics{}},
}

// The tables of docs/metrics.md are those of the code. `go test ./orchestrate/loop/trainer -run Page -update` makes
// them.
func TestMetricsPageIsCurrent(t *testing.T) {
	const path = "../../../docs/metrics.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pageOf(string(page), documented)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Error("docs/metrics.md is not what the metrics' tags say: run go test ./orchestrate/loop/trainer -run Page " +
			"-update")
	}
}

// described is one row of docs/metrics.md.
type described struct{ Name, Unit, Doc string }

// describeAll lists the metrics of structs with their units and meanings. A field that holds a struct and has a meaning
// of its own is one row: it speaks for the fields inside, which say nothing or are described elsewhere.
func describeAll(structs ...any) []described {
	var out []described
	for _, s := range structs {
		out = append(out, describe(reflect.TypeOf(s), "")...)
	}
	return out
}

func describe(t reflect.Type, prefix string) (out []described) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("metric")
		if f.Anonymous && !tagged {
			out = append(out, describe(f.Type, prefix)...)
		}
		if !tagged {
			continue
		}
		name := strings.Trim(prefix+"/"+strings.TrimSuffix(tag, ",omitzero"), "/")
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		own := described{name, f.Tag.Get("unit"), f.Tag.Get("doc")}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[metrics.Table]() {
			var silent []string
			inside := describe(inner, name)
			for _, d := range inside {
				if d.Doc == "" {
					silent = append(silent, strings.TrimPrefix(d.Name, name+"/"))
				}
			}
			switch {
			case own.Doc == "":
				out = append(out, inside...)
				continue
			case len(silent) > 0:
				own.Name = fmt.Sprintf("%s/{%s}", name, strings.Join(silent, ","))
			default: // described where it came first
				own.Name = name + "/…"
			}
		}
		out = append(out, own)
	}
	return out
}

// pageOf replaces the tables of docs/metrics.md: each stands between the lines "<!-- metrics: KEY -->" and "<!-- end
// -->" and lists the structs of that key. It fails where page and tables do not have the same keys.
func pageOf(page string, tables map[string][]any) (string, error) {
	const begin, end = "<!-- metrics: ", "<!-- end -->"
	var out strings.Builder
	done := map[string]bool{}
	for {
		before, rest, found := strings.Cut(page, begin)
		out.WriteString(before)
		if !found {
			break
		}
		key, rest, _ := strings.Cut(rest, " -->")
		_, rest, closed := strings.Cut(rest, end)
		structs, known := tables[key]
		if !known || !closed {
			return "", fmt.Errorf("the table %q of the page is not known, or has no %s", key, end)
		}
		done[key] = true
		out.WriteString(begin + key + " -->\n| metric | unit | meaning |\n|---|---|---|\n")
		for _, d := range describeAll(structs...) {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", d.Name, d.Unit, strings.ReplaceAll(d.Doc, "|", `\|`))
		}
		out.WriteString(end)
		page = rest
	}
	for key := range tables {
		if !done[key] {
			return "", fmt.Errorf("the page has no table %q", key)
		}
	}
	return out.String(), nil
}

type pageExtent struct {
	Mean float64 `metric:"mean"`
	Max  float64 `metric:"max"`
}

type pageBucket struct {
	Norm  float64 `metric:"norm" doc:"its length"`
	Count int     `metric:"sample_count" doc:"episodes"`
}

type pagePhase struct {
	Loss    float64               `metric:"actor/loss" unit:"nats" doc:"of | the policy"`
	Gap     float64               `metric:"rollout/gap,omitzero" doc:"a gap"`
	KL      *float64              `metric:"actor/kl" doc:"a divergence"`
	Length  *pageExtent           `metric:"length" unit:"tokens" doc:"of a reply"`
	Buckets map[string]pageBucket `metric:"share/{bucket}"`
	Note    string                `metric:"note,omitzero" doc:"a text"`
	Empty   bool                  `metric:"empty" doc:"whether"`
	Rewards metrics.Table         `metric:"rewards" doc:"a table"`
}

func TestPageListsEveryField(t *testing.T) {
	page := "a\n<!-- metrics: one -->\nold\n<!-- end -->\nb\n"
	got, err := pageOf(page, map[string][]any{"one": {pagePhase{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| `actor/loss` | nats | of \\| the policy |",
		"| `length/{mean,max}` | tokens | of a reply |",
		"| `share/{bucket}/norm` |  | its length |", "| `share/{bucket}/sample_count` |  | episodes |",
		"| `rewards` |  | a table |"} {
		if !strings.Contains(got, row+"\n") {
			t.Errorf("no row %s in\n%s", row, got)
		}
	}
	if again, _ := pageOf(got, map[string][]any{"one": {pagePhase{}}}); again != got || strings.Contains(got, "old") {
		t.Errorf("made again:\n%s", again)
	}
	if _, err := pageOf(page, map[string][]any{"one": {pagePhase{}}, "two": {pagePhase{}}}); err == nil {
		t.Error("a table that the page lacks is not missed")
	}
	if _, err := pageOf(page, nil); err == nil {
		t.Error("a table that nobody knows is accepted")
	}
}
