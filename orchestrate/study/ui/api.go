package ui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc/iter"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/causes"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/runs"
)

// query is what an address asks for.
type query struct{ url.Values }

// number is a whole number, or the value that stands for none.
func (q query) number(name string, none int) int {
	if n, err := strconv.Atoi(q.Get(name)); err == nil {
		return n
	}
	return none
}

// real is a number; nil where there is none.
func (q query) real(name string) *float64 {
	if v, err := strconv.ParseFloat(q.Get(name), 64); err == nil {
		return &v
	}
	return nil
}

// filter has the fields of the bar of filters.
func (q query) filter() episodes.Filter {
	return episodes.Filter{Tag: q.Get("tag"), Stop: q.Get("stop"), Text: q.Get("text"),
		Low: q.real("low"), High: q.real("high"), Shortest: q.number("shortest", 0), Longest: q.number("longest", 0)}
}

// reply writes what a request is answered with, or what is wrong.
func reply(w http.ResponseWriter, r *http.Request, answer func(context.Context, query) (any, error)) {
	found, err := answer(r.Context(), query{r.URL.Query()})
	status := http.StatusOK
	if err != nil {
		found, status = map[string]string{"error": err.Error()}, http.StatusInternalServerError
		if errors.As(err, new(*missing)) || errors.Is(err, os.ErrNotExist) {
			status = http.StatusNotFound
		}
	}
	w.Header().Set("Content-Type", "application/json")
	out := io.Writer(w)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one
		defer packed.Close()
		out = packed
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(found) // a client that went away needs no answer
}

// rows is a table as a list of objects.
func rows(t *table.Table) (json.RawMessage, error) {
	var out bytes.Buffer
	err := table.WriteJSONList(&out, t)
	return out.Bytes(), err
}

// list has all runs and studies.
func (s *Server) list(ctx context.Context, _ query) (any, error) {
	found, err := s.find()
	if err != nil {
		return nil, err
	}
	summaries, err := iter.MapErr(found, func(dir *string) (runs.Summary, error) {
		r, err := s.run(*dir)
		if err != nil || ctx.Err() != nil {
			return runs.Summary{}, cmp.Or(err, context.Cause(ctx))
		}
		summary, err := runs.Summarize(*dir, r.series)
		if err != nil { // of one run
			summary.Status, summary.Reason = "unreadable", err.Error()
		}
		return summary, nil
	})
	if err != nil {
		return nil, err
	}
	listed, err := rows(runs.Table(summaries))
	return map[string]any{"runs": listed, "studies": append([]string{}, s.studies...)}, err
}

// one has what a run's page shows beside its curves.
func (s *Server) one(_ context.Context, q query) (any, error) {
	dir := q.Get("run")
	r, err := s.run(dir)
	if err != nil {
		return nil, err
	}
	summary, err := runs.Summarize(dir, r.series)
	if err != nil {
		return nil, err
	}
	listed, err := rows(runs.Table([]runs.Summary{summary}))
	steps := map[string][]int{}
	for _, f := range r.source.Files() {
		steps[f.Kind] = append(steps[f.Kind], f.Step)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "config.toml")) // a run of another program has none
	return map[string]any{"summary": listed, "files": steps, "metrics": r.series.Names(), "config": string(text)}, err
}

// suspected has what the detectors of package causes find in a run.
func (s *Server) suspected(ctx context.Context, q query) (any, error) {
	if _, err := s.run(q.Get("run")); err != nil { // one that is shown here
		return nil, err
	}
	run, err := rundir.Read(q.Get("run"))
	if err != nil {
		return nil, err
	}
	h, err := causes.Read(ctx, run)
	if err != nil {
		return nil, err
	}
	found, tested := causes.Rank(h)
	listed, err := rows(causes.Table(run, found))
	return map[string]any{"causes": listed, "said": causes.Said(len(found), tested)}, err
}

// mostPoints is how many points of a curve a page gets: of each stretch the lowest and the highest.
const mostPoints = 800

// curves has metrics over the steps of runs.
func (s *Server) curves(_ context.Context, q query) (any, error) {
	type curve struct {
		Run    string          `json:"run"`
		Key    string          `json:"key"`
		Steps  []int           `json:"steps"`
		Values episodes.Column `json:"values"`
		// the 95 % interval of a validation's success over its episodes
		Low  episodes.Column `json:"low,omitempty"`
		High episodes.Column `json:"high,omitempty"`
	}
	out := []curve{}
	for _, dir := range q.Values["run"] {
		r, err := s.run(dir)
		if err != nil {
			return nil, err
		}
		steps, columns, err := r.series.Read(q.Values["key"]...)
		if err != nil {
			return nil, err
		}
		for _, key := range q.Values["key"] {
			x, y := thin(steps, columns[key])
			if len(x) == 0 {
				continue
			}
			c := curve{Run: dir, Key: key, Steps: x, Values: y}
			if key == "val-env/*/success" {
				c.Low, c.High = band(dir, y)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// band is the 95 % interval of a run's validation successes over their episodes; nil where their number is not known.
func band(dir string, shares []float64) (low, high []float64) {
	c, err := config.Load(filepath.Join(dir, "config.toml"), nil)
	if err != nil {
		return nil, nil
	}
	n := (&rundir.Run{Config: c}).Episodes()
	for _, share := range shares {
		if n > 0 {
			e := statistics.Wilson(share, n, 0.95)
			low, high = append(low, e.Low), append(high, e.High)
		}
	}
	return low, high
}

// thin leaves out steps without a value, and of more than mostPoints all but the extremes of equal stretches.
func thin(steps []int, column []float64) (x []int, y []float64) {
	for i, v := range column {
		if !math.IsNaN(v) {
			x, y = append(x, steps[i]), append(y, v)
		}
	}
	if len(x) <= mostPoints {
		return x, y
	}
	var xs []int
	var ys []float64
	each := 2*len(y)/mostPoints + 1
	for begin := 0; begin < len(y); begin += each {
		low, high := begin, begin
		for i := begin; i < min(begin+each, len(y)); i++ {
			if y[i] < y[low] {
				low = i
			}
			if y[i] > y[high] {
				high = i
			}
		}
		first, last := min(low, high), max(low, high)
		xs, ys = append(xs, x[first], x[last]), append(ys, y[first], y[last])
	}
	return xs, ys
}

// compare has in what runs differ.
func (s *Server) compare(_ context.Context, q query) (any, error) {
	var list []*rundir.Run
	for _, dir := range q.Values["run"] {
		if _, err := s.run(dir); err != nil {
			return nil, err
		}
		info, _ := rundir.ReadInfo(dir) // what is broken there differs from nothing
		c, _ := config.Load(filepath.Join(dir, "config.toml"), nil)
		list = append(list, &rundir.Run{Dir: dir, Info: info, Config: c})
	}
	labels := runs.Labels(q.Values["run"])
	for i, r := range list {
		r.Name = labels[i]
	}
	ends, err := runs.Ends(list, labels, false)
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	tables := map[string]*table.Table{"configuration": runs.Configurations(list, labels), "ends": ends,
		"build": runs.Builds(list, labels), "files": runs.Files(list, labels)}
	note := ""
	if s.Paired != nil {
		differences, said, err := s.Paired(list)
		if err != nil {
			return nil, err
		}
		if note = said; differences != nil {
			tables["paired"] = differences
		}
	}
	for name, t := range tables {
		if out[name], err = rows(t); err != nil {
			return nil, err
		}
	}
	out["note"], err = json.Marshal(note)
	return out, err
}

// study has the tables of a study, as its summary.json lists them.
func (s *Server) study(_ context.Context, q query) (any, error) {
	if _, err := s.find(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := slices.Contains(s.studies, q.Get("study"))
	s.mu.Unlock()
	if !known {
		return nil, &missing{"there is no study " + q.Get("study")}
	}
	data, err := os.ReadFile(filepath.Join(q.Get("study"), "summary.json"))
	if err == nil && !json.Valid(data) {
		err = fmt.Errorf("%s/summary.json is not JSON", q.Get("study"))
	}
	return json.RawMessage(data), err
}

// group is the episodes of one state.
type group struct {
	Group    int              `json:"group"`
	Mean     float64          `json:"mean"`
	Spread   float64          `json:"spread"`
	Kept     *bool            `json:"kept"` // by the filter; null where that is not known
	Episodes []episodes.Entry `json:"episodes"`
}

// step has the wanted episodes of a step by group, those of the largest spread first.
func (s *Server) step(ctx context.Context, q query) (any, error) {
	r, file, err := s.file(q, q.Get("run"))
	if err != nil {
		return nil, err
	}
	found, err := r.source.Select(ctx, file, q.filter())
	if err != nil {
		return nil, err
	}
	learned, problem := episode.ReadLearned(filepath.Join(filepath.Dir(file.Path),
		fmt.Sprintf("update_%d.jsonl", file.Step)))
	groups, at := []*group{}, map[int]*group{}
	for _, e := range found {
		g := at[e.Group]
		if g == nil {
			g = &group{Group: e.Group}
			if file.Kind == "step" && problem == nil {
				g.Kept = new(bool)
			}
			at[e.Group], groups = g, append(groups, g)
		}
		if _, kept := learned[e.Episode]; kept && g.Kept != nil {
			*g.Kept = true
		}
		g.Episodes = append(g.Episodes, e)
	}
	for _, g := range groups {
		scores := make([]float64, len(g.Episodes))
		for i, e := range g.Episodes {
			scores[i] = e.Score
		}
		if g.Mean = statistics.Mean(scores); len(scores) > 1 {
			g.Spread = statistics.Deviation(scores)
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.Spread, a.Spread) })
	all, err := r.source.Index(file)
	return map[string]any{"kind": file.Kind, "step": file.Step, "groups": groups, "episodes": len(all)}, err
}

// A search gives so many episodes at once, or what it has found after so long: the page asks on.
const (
	mostFound = 200
	patience  = time.Second
)

// search has the wanted episodes of all steps of a kind, the latest first.
func (s *Server) search(ctx context.Context, q query) (any, error) {
	r, err := s.run(q.Get("run"))
	if err != nil {
		return nil, err
	}
	found, err := r.source.Search(ctx, q.Get("kind"), q.number("from", -1), q.filter(), mostFound, patience)
	return found, err
}

// file is that of a kind and a step of a run.
func (s *Server) file(q query, dir string) (*known, rundir.Stored, error) {
	r, err := s.run(dir)
	if err != nil {
		return nil, rundir.Stored{}, err
	}
	file, err := r.source.File(q.Get("kind"), q.number("step", -1))
	if err != nil {
		return nil, file, &missing{err.Error()}
	}
	return r, file, nil
}

// views has whole episodes, each named KIND:STEP:EPISODE:RUN.
func (s *Server) views(ctx context.Context, q query) (any, error) {
	out := []*episodes.View{}
	for _, name := range q.Values["e"] {
		r, entry, err := s.entry(ctx, name)
		if err != nil {
			return nil, err
		}
		v, err := r.source.View(ctx, entry)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// entry is an episode by its name.
func (s *Server) entry(ctx context.Context, name string) (*known, episodes.Entry, error) {
	parts := strings.SplitN(name, ":", 4)
	absent := &missing{fmt.Sprintf("there is no episode %q, expected KIND:STEP:EPISODE:RUN", name)}
	if len(parts) < 4 {
		return nil, episodes.Entry{}, absent
	}
	r, file, err := s.file(query{url.Values{"kind": parts[:1], "step": parts[1:2]}}, parts[3])
	if err != nil {
		return nil, episodes.Entry{}, err
	}
	number, err := strconv.Atoi(parts[2])
	if err != nil {
		return nil, episodes.Entry{}, absent
	}
	found, err := r.source.Select(ctx, file, episodes.Filter{Episodes: []int{number}})
	if err != nil || len(found) == 0 {
		return nil, episodes.Entry{}, errors.Join(err, absent)
	}
	return r, found[0], nil
}

// same lists the episodes of another step, or run, that play the task of an episode.
func (s *Server) same(ctx context.Context, q query) (any, error) {
	_, entry, err := s.entry(ctx, q.Get("e"))
	if err != nil {
		return nil, err
	}
	r, file, err := s.file(q, q.Get("run"))
	if err != nil {
		return nil, err
	}
	return r.source.Select(ctx, file, episodes.Filter{Task: entry.Task})
}
