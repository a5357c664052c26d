package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"gyre/internal/atomicfile"
)

// logWidth is that of the tables in the summary log, which people read in windows of any width.
const logWidth = 160

// The summary log is the summary as text. It is written anew when the study is started, grows by a line as each run
// ends, and ends in the lines of all runs in their order and the tables. What a run's line says is also in a file
// beside its log, LOG.result.

// head is what the summary log begins with.
func (x *execution) head() []string {
	s := x.study
	if len(s.Header) > 0 {
		return s.Header
	}
	place := fmt.Sprintf("slots=%d | threads_per_run=%d", len(x.slots), x.slots[0].threads)
	if len(s.Devices) > 0 {
		place += fmt.Sprintf(" | devices=%s | devices_per_run=%d", strings.Join(s.Devices, ","),
			len(x.slots[0].devices))
	}
	return []string{fmt.Sprintf("base=%s | steps=%d | seeds=%d", s.BasePath(), x.base.Run.Steps, s.Seeds), place}
}

// beginLog starts the log with the lines of the runs that are over already.
func (x *execution) beginLog() error {
	return atomicfile.Write(x.study.summaryLog(), func(w io.Writer) error {
		fmt.Fprintf(w, "=== %s: %s\n%s\n", x.study.title(), time.Now().Format(time.DateTime),
			strings.Join(x.head(), "\n"))
		for _, r := range x.state.Runs {
			if r.Over() || r.Status == Paused {
				fmt.Fprint(w, x.study.line(r))
			}
		}
		return nil
	})
}

// logRun adds the line of a run that has just ended.
func (x *execution) logRun(r *Run, line string) error {
	result := strings.TrimSuffix(r.Log, ".log") + ".result"
	err := atomicfile.Write(result, func(w io.Writer) error { _, err := io.WriteString(w, line); return err })
	return errors.Join(err, x.addToLog(line))
}

// endLog adds the lines of all runs and the tables.
func (x *execution) endLog(s *Summary) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n=== %s Summary ===\n%s\n", x.study.title(), x.head()[0])
	for _, r := range x.shown() {
		text.WriteString(x.study.line(r))
	}
	text.WriteByte('\n')
	if err := s.Text(&text, logWidth); err != nil {
		return err
	}
	return x.addToLog(text.String())
}

func (x *execution) addToLog(text string) error {
	f, err := os.OpenFile(x.study.summaryLog(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// line says what a run took and how it ended, and the last words of one that failed.
func (s *Study) line(r *Run) string {
	parts := []string{r.Line}
	if s.Seeds > 1 {
		parts = append(parts, fmt.Sprintf("seed=%d", r.Seed))
	}
	result := newRow(r, "")
	end := map[Status]string{
		Finished: "status=success",
		Failed:   "status=fail",
		Paused:   fmt.Sprintf("status=paused | steps=%d", result.Steps),
		// a training regime that failed, and no failure of the run
		StoppedEarly: fmt.Sprintf("status=stopped_early | early_stop=%s | steps=%d", result.Rule, result.Steps),
	}[r.Status]
	if end == "" {
		return strings.Join(append(parts, "status=missing\n"), separator)
	}
	parts = append(parts, "train_time="+seconds(result.Train), "eval_time="+seconds(result.Eval),
		"total_time="+seconds(result.Total), fmt.Sprintf("wall_time=%.0fs", r.Seconds), "gpu="+r.Devices, end)
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
