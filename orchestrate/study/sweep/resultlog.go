package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"gyre/internal/atomicfile"
)

// logWidth is that of the tables in the summary log, which people read in windows of any width.
const logWidth = 160

// resultLog is the summary as text. It is written anew when the study is started, grows by a line as each run ends,
// and ends in the lines of all runs in their order and the tables. What a run's line says is also in a file beside
// its log, LOG.result.
type resultLog struct {
	mu    sync.Mutex
	study *Study
	head  []string
}

// beginLog starts the log of an execution with the lines of the runs that are over already.
func (x *execution) beginLog() (*resultLog, error) {
	s := x.study
	l := &resultLog{study: s, head: s.Header}
	if len(l.head) == 0 {
		place := fmt.Sprintf("slots=%d | threads_per_run=%d", len(x.slots), x.slots[0].threads)
		if len(s.Devices) > 0 {
			place += fmt.Sprintf(" | devices=%s | devices_per_run=%d", strings.Join(s.Devices, ","),
				len(x.slots[0].devices))
		}
		l.head = []string{fmt.Sprintf("base=%s | steps=%d | seeds=%d", s.BasePath(), x.base.Run.Steps, s.Seeds), place}
	}
	return l, atomicfile.Write(s.summaryLog(), func(w io.Writer) error {
		fmt.Fprintf(w, "=== %s: %s\n%s\n", s.title(), time.Now().Format(time.DateTime), strings.Join(l.head, "\n"))
		for _, r := range x.state.Runs {
			if r.over() || r.Status == Paused {
				fmt.Fprint(w, l.line(r))
			}
		}
		return nil
	})
}

// ended adds the line of a run that has just ended.
func (l *resultLog) ended(r *Run, line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	result := strings.TrimSuffix(r.Log, ".log") + ".result"
	err := atomicfile.Write(result, func(w io.Writer) error { _, err := io.WriteString(w, line); return err })
	return errors.Join(err, l.add(line))
}

// end adds the lines of all runs and the tables.
func (l *resultLog) end(runs []*Run, s *Summary) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n=== %s Summary ===\n%s\n", l.study.title(), l.head[0])
	for _, r := range runs {
		text.WriteString(l.line(r))
	}
	text.WriteByte('\n')
	if err := s.Text(&text, logWidth); err != nil {
		return err
	}
	return l.add(text.String())
}

func (l *resultLog) add(text string) error {
	f, err := os.OpenFile(l.study.summaryLog(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// line says what a run took and how it ended, and the last words of one that failed.
func (l *resultLog) line(r *Run) string {
	parts := []string{r.Line}
	if l.study.Seeds > 1 {
		parts = append(parts, fmt.Sprintf("seed=%d", r.Seed))
	}
	if !r.over() && r.Status != Paused {
		return strings.Join(append(parts, "status=missing\n"), separator)
	}
	row := newRow(r, "")
	parts = append(parts, "train_time="+seconds(row.Train), "eval_time="+seconds(row.Eval),
		"total_time="+seconds(row.Total),
		fmt.Sprintf("wall_time=%.0fs", r.Seconds), "gpu="+r.Devices)
	switch r.Status {
	case Finished:
		parts = append(parts, "status=success")
	case StoppedEarly: // a training regime that failed, and no failure of the run
		parts = append(parts, "status=stopped_early", "early_stop="+row.Rule, fmt.Sprintf("steps=%d", row.Steps))
	case Paused:
		parts = append(parts, "status=paused", fmt.Sprintf("steps=%d", row.Steps))
	case Failed:
		parts = append(parts, "status=fail")
	}
	text := strings.Join(parts, separator) + "\n"
	if r.Status == Failed {
		for _, last := range lastLines(r.Log, 2) {
			text += "  error: " + last + "\n"
		}
	}
	return text
}

func seconds(v float64) string {
	if math.IsNaN(v) {
		return "N/A"
	}
	return fmt.Sprintf("%.2fs", v)
}
