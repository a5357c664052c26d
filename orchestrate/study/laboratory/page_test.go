package laboratory

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/loop/advantage"
)

var rewrite = flag.Bool("update", false, "write the tables and the figure of docs/estimators.md")

// The tables of docs/estimators.md are what the laboratory measures. `go test ./orchestrate/study/laboratory -run Page
// -update` writes them, and the figure.
func TestPageIsCurrent(t *testing.T) {
	const path, picture = "../../../docs/estimators.md", "../../../docs/images/estimators.png"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := Check(t.Context(), advantage.Estimators, Options{Size: 4, Samples: 10000})
	if err != nil {
		t.Fatal(err)
	}
	want, games := string(page), table.New("game", "what it is")
	for _, g := range Games() {
		games.Add(g.Name, g.About)
	}
	for key, made := range map[string]string{"games": games.Markdown(), "game": ByGame(reports).Markdown(),
		"condition": ByCondition(reports).Markdown(), "claim": Claims(reports).Markdown()} {
		before, rest, found := strings.Cut(want, "<!-- laboratory: "+key+" -->\n")
		_, after, ends := strings.Cut(rest, "<!-- end -->")
		if !found || !ends {
			t.Fatalf("the page has no table %s", key)
		}
		want = before + "<!-- laboratory: " + key + " -->\n" + made + "<!-- end -->" + after
	}
	for _, r := range reports {
		if why := r.Broken(); why != "" {
			t.Errorf("%s %s", r.Name, why)
		}
	}
	f := Figure(reports)
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := f.Save(picture, figure.PrintDPI/2); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Error("docs/estimators.md is not what is measured: run go test ./orchestrate/study/laboratory " +
			"-run Page -update")
	}
	var drawn bytes.Buffer
	if err := f.PNG(&drawn, 50); err != nil || len(f.Panels) != 4 || f.Panels[0].Empty() ||
		len(f.Panels[1].Marks) != 6 {
		t.Errorf("the figure has %d panels: %v", len(f.Panels), err)
	}
}
