package dataset

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// Values mean what their columns' types say, at every depth, and are written again as they were.
func TestParquetTypes(t *testing.T) {
	date := parquet.Date()
	path := parquetFile(t, parquet.Group{"u64": parquet.Uint(64), "u32": parquet.Optional(parquet.Uint(32)), "date": date,
		"ts": parquet.Timestamp(parquet.Microsecond), "local": parquet.TimestampAdjusted(parquet.Millisecond, false),
		"time": parquet.Time(parquet.Millisecond), "list": parquet.List(date),
		"repeated": parquet.Repeated(date), "group": parquet.Group{"date": date},
		"groups": parquet.List(parquet.Group{"date": date}), "map": parquet.Map(parquet.String(), date),
		"dec": parquet.Decimal(2, 18, parquet.Int64Type), "text": parquet.String(), "none": parquet.Optional(date)},
		map[string]any{"u64": ^uint64(0), "u32": ^uint32(0), "date": int32(19724), "ts": int64(-1500000),
			"local": int64(1704164640120), "time": int32(3600000),
			"list": []any{int32(1)}, "repeated": []any{int32(2)}, "group": map[string]any{"date": int32(3)},
			"groups": []any{map[string]any{"date": int32(4)}}, "map": map[string]any{"a": int32(5)}, "dec": int64(-150),
			"text": "date"})
	table, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string]string{"u64": "18446744073709551615", "u32": "4294967295",
		"date": `"2024-01-02"`, "ts": `"1969-12-31T23:59:58.5Z"`, "local": `"2024-01-02T03:04:00.12"`,
		"time": `"01:00:00"`, "list": `["1970-01-02"]`,
		"repeated": `["1970-01-03"]`, "group": `{"date":"1970-01-04"}`, "groups": `[{"date":"1970-01-05"}]`,
		"map": `{"a":"1970-01-06"}`, "dec": "-1.5", "text": `"date"`, "none": "null"} {
		if got, err := json.Marshal(table.Rows[0][column]); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", column, got, err, want)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy.parquet")
	if err := table.WriteRows(copied, []int{0}); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(copied); err != nil || fmt.Sprint(again.Rows) != fmt.Sprint(table.Rows) {
		t.Errorf("written and read again: %v, %v", again, err)
	}
}

// What cannot be read is refused with its column and type, and a file without rows is called that.
func TestParquetRefusals(t *testing.T) {
	group := func(node parquet.Node) parquet.Node { return parquet.Group{"x": parquet.Group{"y": node}} }
	inner := func(v any) map[string]any { return map[string]any{"x": map[string]any{"y": v}} }
	for want, path := range map[string]string{
		"column x.y: values of the type INTERVAL": parquetFile(t, group(parquet.IntervalNode()), inner(make([]byte, 12))),
		"column x.y: values of the type DECIMAL":  parquetFile(t, group(parquet.Decimal(2, 18, parquet.Int64Type)), inner(int64(123456789012345678))),
		"column x.y: values of the type FIXED_LEN_BYTE_ARRAY(2)": parquetFile(t, // a float16 is one for the library
			group(parquet.Leaf(parquet.FixedLenByteArrayType(2))), inner([]byte{0x66, 0x2e})),
		"it has no rows": parquetFile(t, group(parquet.String())),
	} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func parquetFile(t *testing.T, schema parquet.Node, rows ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := parquet.NewGenericWriter[any](file, parquet.NewSchema("rows", schema))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Contents in parts are joined where all of them are texts, in Parquet and in JSONL.
func TestContentsInParts(t *testing.T) {
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	prompt := func(parts ...any) map[string]any {
		return map[string]any{"prompt": []any{map[string]any{"role": "user", "content": parts}}, "answer": "2"}
	}
	part := parquet.Group{"type": parquet.String(), "text": parquet.Optional(parquet.String()),
		"image_url": parquet.Optional(parquet.String())}
	schema := parquet.Group{"prompt": parquet.List(parquet.Group{"role": parquet.String(),
		"content": parquet.List(part)}), "answer": parquet.String()}
	jsonl := func(row map[string]any) string {
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, "parts.jsonl", string(line))
	}
	whole := prompt(text("1+1"), text("?"))
	for _, path := range []string{parquetFile(t, schema, whole), jsonl(whole)} {
		set, err := Load(path, Fields{})
		if err != nil || set.Rows[0].Question != "1+1?" || set.Rows[0].Prompt[0] != (Message{"user", "1+1?"}) {
			t.Errorf("%s: %+v, %v", path, set, err)
		}
	}
	seen := prompt(text("See"), map[string]any{"type": "image_url", "image_url": "x.png"})
	for _, path := range []string{parquetFile(t, schema, seen), jsonl(seen), jsonl(prompt("text"))} {
		if _, err := Load(path, Fields{}); err == nil || !strings.Contains(err.Error(), "message 0: only texts can be shown") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
