package grid

import (
	"strings"
	"testing"
)

// ground shows the same glyph everywhere.
func ground(int) int { return 0 }

func TestEmptyObjectsAreLeftOut(t *testing.T) {
	got := Look{Format: "coord"}.Render(Size{2, 3}, ground, []Objects{{Label: "Boxes"}, {Label: "Player", At: []Pos{{1, 2}, {0, 0}}}, {Mark: '_', At: []Pos{{0, 1}}}})
	if want := "Board size: 2 rows x 3 cols (zero-indexed).\nPlayer: (1, 2), (0, 0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSurroundingsAreOneSlotPerCellAndWaysOneLetterPerAxis(t *testing.T) {
	objects := []Objects{{Mark: '.', Role: Aim, At: []Pos{{0, 0}, {3, 1}}}, {Mark: '$', Role: Actor, At: []Pos{{1, 2}}},
		{Mark: '@', Role: Actor, At: []Pos{{2, 0}}}, {Label: "Start", At: []Pos{{0, 1}}},
		{Mark: '_', At: []Pos{{0, 0}, {1, 2}, {1, 0}}}}
	look := Look{Format: "surroundings", View: 1, Blank: '#', Outside: '='}
	// The player is in column 0: what lies to its left is beyond the edge. Its box is one up and two to the right;
	// the box's targets lie one up and two left, two down and one left of that.
	if got, want := look.Render(Size{4, 4}, ground, objects), "@=_#=#=#. $NQ########.NM.QN"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	look.View = 0
	alone := []Objects{objects[0], {Mark: '@', Role: Actor, At: []Pos{{3, 3}}}, {Mark: '_'}}
	if got := look.Render(Size{4, 4}, ground, alone); got != "@.LL.OM" {
		t.Errorf("a player without boxes: %q, want its own ways", got)
	}
	if err := CheckSize("surroundings", Size{13, 4}); err == nil ||
		!strings.Contains(err.Error(), "up to 12 x 12 cells, the board has 13 x 4") {
		t.Error(err)
	}
	if CheckSize("surroundings", Size{12, 12}) != nil || CheckSize("grid", Size{90, 90}) != nil {
		t.Error("a board that fits is refused")
	}
	if text := look.Explain(Size{4, 4}, nil, "@: player", "walls"); !strings.Contains(text,
		"@: player, #: walls, =: beyond the edge") {
		t.Error(text)
	}
}

func TestSeparator(t *testing.T) {
	got := Look{Format: "grid", Glyphs: []rune("#√"), Separator: " "}.Render(Size{2, 3},
		func(cell int) int { return cell % 2 }, nil)
	if want := "# √ #\n√ # √"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExplainNamesTheTrueCorner(t *testing.T) {
	for format, want := range map[string][2]bool{"grid": {false, true}, "coord": {true, false},
		"grid_coord": {true, true}} {
		text := Look{Format: format, Glyphs: []rune("#")}.Explain(Size{4, 7}, []string{"wall"}, "", "")
		if strings.Contains(text, "(3, 6)") != want[0] || strings.Contains(text, "#: wall") != want[1] {
			t.Errorf("%s: %s", format, text)
		}
	}
}

func TestCheckActions(t *testing.T) {
	order := []string{"up", "down"}
	if err := CheckActions([]string{"1", "2"}, order); err != nil {
		t.Error(err)
	}
	for _, names := range [][]string{nil, {"a"}, {"a", "A"}, {"a", ""}, {"a", " b"}, {"a", "b", "c"}} {
		if err := CheckActions(names, order); err == nil ||
			!strings.Contains(err.Error(), "2 different names, for up, down") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

func TestDirections(t *testing.T) {
	p := Pos{3, 3}
	if p.Add(Up).Row != 2 || p.Add(Down).Row != 4 || p.Add(Left).Col != 2 || p.Add(Right).Col != 4 {
		t.Error("a direction points the wrong way")
	}
	if d := p.Distance(Pos{1, 4}); d != 3 {
		t.Errorf("distance %d, want 3", d)
	}
}
