package figure

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

var nan = math.NaN()

func labels(list []plot.Tick) string {
	var out []string
	for _, t := range list {
		if !t.IsMinor() {
			out = append(out, t.Label)
		}
	}
	return strings.Join(out, " ")
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		ticker    plot.Ticker
		low, high float64
		want      string
	}{
		{ticks{}, 0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{ticks{}, -0.07, 0.06, "−0.06 −0.04 −0.02 0.00 0.02 0.04 0.06"},
		{ticks{integer: true}, 0, 2, "0 1 2"},
		{logTicks{}, -2, 1, "0.01 0.1 1 10"},
		{logTicks{}, 0, 1, "1 2 5 10"},
	} {
		if got := labels(c.ticker.Ticks(c.low, c.high)); got != c.want {
			t.Errorf("%T from %v to %v: %q, want %q", c.ticker, c.low, c.high, got, c.want)
		}
	}
}

// The numbers of an axis are multiples of one power of ten, which its label names: never 0.00025 beside 5e−5.
func TestAnAxisHasOneUnit(t *testing.T) {
	p := Panel{Y: Axis{Label: "learning rate"}, Marks: []Mark{{X: []float64{1, 2}, Y: []float64{5e-5, 2.5e-4}}}}
	made := p.render()
	if got := labels(made.Y.Tick.Marker.Ticks(made.Y.Min, made.Y.Max)); made.Y.Label.Text != "learning rate (× 1e−4)" ||
		got != "0.5 1.0 1.5 2.0 2.5" {
		t.Errorf("%q with %q", made.Y.Label.Text, got)
	}
}

// Values that are not defined are gaps: nothing is drawn across them, and a band ends where either of its bounds does.
func TestGapsAreNotBridged(t *testing.T) {
	for _, c := range []struct {
		columns [][]float64
		want    string
	}{
		{[][]float64{{1, 2, 3, 4}}, "[[0 1 2 3]]"},
		{[][]float64{{nan, 2, nan, 4}}, "[[1] [3]]"},
		{[][]float64{{1, 2, nan, 4}, {1, nan, 3, 4}}, "[[0] [3]]"},
		{[][]float64{{nan, nan, nan, nan}}, "[]"},
	} {
		if got := fmt.Sprint(finite(c.columns...)); got != c.want {
			t.Errorf("%v: %v, want %v", c.columns, got, c.want)
		}
	}
}

// An axis shows its bounds and every value, band and interval beside them.
func TestPanelsCutNothingOff(t *testing.T) {
	curve := Mark{X: []float64{1, 2, 3}, Y: []float64{0.2, nan, 0.4}}
	for name, c := range map[string]struct {
		marks     []Mark
		axis      Axis
		low, high float64
	}{
		"its values":         {[]Mark{curve}, Axis{}, 0.2, 0.4},
		"the bounds it must": {[]Mark{curve}, Axis{Low: -1, High: 1}, -1, 1},
		"values beyond them": {[]Mark{curve, {X: []float64{1}, Y: []float64{3}}}, Axis{Low: -1, High: 1}, -1, 3},
		"a band": {[]Mark{{X: curve.X, Y: curve.Y, Low: []float64{-1, 0, nan},
			High: []float64{1, 2, 2}}}, Axis{}, -1, 2},
		"a single, flat, value": {[]Mark{{X: []float64{5}, Y: []float64{2}}}, Axis{}, 2, 2},
		"bars from 0 down":      {[]Mark{{Kind: Bars, X: []float64{0}, Y: []float64{-2}}}, Axis{}, -2, -0.01},
	} {
		p := Panel{Y: c.axis, Marks: c.marks}.render()
		if !(p.Y.Min < c.low && p.Y.Max > c.high) {
			t.Errorf("%s: the axis runs from %v to %v, and does not show %v to %v", name, p.Y.Min, p.Y.Max, c.low,
				c.high)
		}
		if span := max(c.high-c.low, 1); p.Y.Min < c.low-span || p.Y.Max > c.high+span || !(p.X.Min < p.X.Max) {
			t.Errorf("%s: the axes run from %v to %v and %v to %v, far beyond %v to %v", name, p.X.Min, p.X.Max,
				p.Y.Min, p.Y.Max, c.low, c.high)
		}
	}
	if !(Panel{Marks: []Mark{{X: []float64{1}, Y: []float64{nan}}}}).Empty() || (Panel{Marks: []Mark{curve}}).Empty() {
		t.Error("a panel is empty where no value is defined, and only there")
	}
}

func TestPanelsShareARange(t *testing.T) {
	panels := []Panel{{Marks: []Mark{{X: []float64{1}, Y: []float64{2}}}},
		{Marks: []Mark{{X: []float64{1}, Y: []float64{7}, Low: []float64{-1}, High: []float64{8}}}}}
	ShareY(panels)
	for _, p := range panels {
		if p.Y.Low != -1 || p.Y.High != 8 {
			t.Errorf("%+v", p.Y)
		}
	}
}

// A bar's number stands above its error bar.
func TestNumbersStandClearOfErrorBars(t *testing.T) {
	p := Panel{X: Axis{Names: []string{"a", "b"}},
		Marks: []Mark{{Kind: Bars, X: []float64{0, 1}, Y: []float64{1, 2}, Low: []float64{0.5, 1.5},
			High: []float64{1.5, 2.5}, Text: []string{"1.00", "2.00"}}}}.render()
	var record recorder.Canvas
	canvas := draw.NewCanvas(&record, 4*vg.Inch, 3*vg.Inch)
	p.Draw(canvas)
	data := p.DataCanvas(canvas)
	_, y := p.Transforms(&data)
	found := 0
	for _, action := range record.Actions {
		if text, ok := action.(*recorder.FillString); ok {
			if whisker, known := map[string]float64{"1.00": 1.5, "2.00": 2.5}[text.String]; known {
				if found++; text.Point.Y <= y(whisker) {
					t.Errorf("%s stands at %v, the end of its error bar at %v", text.String, text.Point.Y, y(whisker))
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of two numbers are drawn", found)
	}
}

// every is a panel with every kind of mark.
func every() (p Panel) {
	x, y := []float64{0, 1, 2}, []float64{1, nan, 3}
	for kind := Line; kind <= Tiles; kind++ {
		p.Add(Mark{Kind: kind, X: x, Y: y, Low: []float64{0, 0, 2}, High: []float64{2, nan, 4}, Z: y,
			Text: []string{"a", "b", "c"}, Color: Color(int(kind)),
			Groups: [][]float64{{1, 2, 3}, {2}, {1, 1}}, Label: fmt.Sprint(kind)})
	}
	p.Title, p.X = "every", Axis{Names: []string{"Q1\n1", "Q2\n2", "Q3\n3"}, Label: "groups"}
	return p
}

func TestOneDescriptionManyForms(t *testing.T) {
	wide := every()
	wide.Wide = true
	f := Figure{Title: "title", Caption: strings.Repeat("a long caption ", 30), Columns: 2,
		Panels: []Panel{wide, every(), every(), every()}}
	var out bytes.Buffer
	if err := f.PNG(&out, 60); err != nil {
		t.Fatal(err)
	}
	if size, err := png.DecodeConfig(&out); err != nil || size.Width < 300 || size.Height < 500 {
		t.Errorf("%+v, %v: want two columns below a wide panel", size, err)
	}
	panels := f.SVG()
	if len(panels) != 4 {
		t.Fatalf("%d panels", len(panels))
	}
	for _, svg := range panels {
		if !bytes.Contains(svg, []byte(">every</text>")) || !bytes.Contains(svg, []byte(">groups</text>")) {
			t.Error("a panel lacks its title or what stands below its axis")
		}
	}
	line := Panel{X: Axis{Label: "steps"}, Y: Axis{Label: "success in %", Low: 0, High: 100},
		Marks: []Mark{{X: []float64{0, 10}, Y: []float64{0, 100}}}}
	if text := line.Terminal(60); !strings.Contains(text, "success in % over the steps") {
		t.Error(text)
	}
}

// Points at uneven distances keep their places on the axis of a terminal.
func TestTheTerminalsAxisIsTrue(t *testing.T) {
	got := along(Mark{X: []float64{0, 1, 4}, Y: []float64{0, 50, 80}}, 5)
	for i, want := range []float64{0, 50, 60, 70, 80} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("point %d is %v, want %v", i, got[i], want)
		}
	}
}
