package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// readParquet survives files that the library stumbles over. stored are the rows as the library writes them.
func readParquet(content []byte) (rows, stored []Columns, schema *parquet.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not a Parquet file that can be read: %v", p)
		}
	}()
	file, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
	if err != nil || file.NumRows() == 0 {
		return nil, nil, nil, err
	}
	schema = file.Schema()
	reader := parquet.NewGenericReader[any](file, schema)
	defer reader.Close()
	batch := make([]any, 256)
	for {
		n, err := reader.Read(batch)
		for _, row := range batch[:n] {
			columns, ok := row.(map[string]any)
			if !ok {
				return nil, nil, nil, fmt.Errorf("row %d: expected columns, got %T", len(rows), row)
			}
			meant, err := meaning(schema, "", row)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("row %d: %w", len(rows), err)
			}
			rows, stored = append(rows, meant.(map[string]any)), append(stored, columns)
		}
		clear(batch)
		if errors.Is(err, io.EOF) {
			return rows, stored, schema, nil
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("after row %d: %w", len(rows), err)
		}
	}
}

// meaning is what a stored value stands for by the type of its column: the library gives days, ticks and bits.
func meaning(node parquet.Node, column string, stored any) (meant any, err error) {
	switch x := stored.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		fields, out := map[string]parquet.Node{}, make(map[string]any, len(x))
		for _, f := range node.Fields() {
			fields[f.Name()] = f
		}
		for name, value := range x {
			field := fields[name]
			if entry := fields["key_value"]; field == nil && entry != nil { // a map with keys of its own
				field = entry.Fields()[len(entry.Fields())-1]
			}
			if out[name] = value; field != nil {
				if out[name], err = meaning(field, column+"."+name, value); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	case []any:
		if !node.Leaf() && len(node.Fields()) == 1 && node.Fields()[0].Repeated() { // LIST, of two or three levels
			if node = node.Fields()[0]; !node.Leaf() && len(node.Fields()) == 1 {
				node = node.Fields()[0]
			}
		}
		out := make([]any, len(x))
		for i, value := range x {
			if out[i], err = meaning(node, column, value); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if !node.Leaf() {
		return stored, nil
	}
	if meant = scalar(node.Type(), stored); meant == nil {
		return nil, fmt.Errorf("column %s: values of the type %s cannot be read: store them as texts, or leave the "+
			"column out", column[1:], node.Type())
	}
	return meant, nil
}

// mostExact bounds decimals, of which the library makes a float64.
const mostExact = 1e15

// scalar is meaning for one value that is not null; nil = it cannot be told exactly.
func scalar(of parquet.Type, stored any) any {
	var kind any
	if logical := of.LogicalType(); logical != nil {
		kind = logical.Value
	}
	switch k := kind.(type) {
	case *format.IntType:
		if x, signed := stored.(int64); signed && !k.IsSigned {
			return uint64(x)
		} else if x, signed := stored.(int32); signed && !k.IsSigned {
			return uint32(x)
		}
	case *format.DecimalType:
		if x, float := stored.(float64); float && math.Abs(x)*math.Pow10(int(k.Scale)) > mostExact {
			return nil
		}
		return stored
	case *format.DateType:
		return time.Unix(reflect.ValueOf(stored).Int()*24*60*60, 0).UTC().Format(time.DateOnly)
	case *format.TimeType:
		return ticks(stored, k.Unit).Format("15:04:05.999999999")
	case *format.TimestampType:
		written := "2006-01-02T15:04:05.999999999"
		if k.IsAdjustedToUTC {
			written += "Z"
		}
		return ticks(stored, k.Unit).Format(written)
	}
	if of.Kind() == parquet.FixedLenByteArray || of.Kind() == parquet.Int96 {
		return nil // a float16, which the library does not know, an interval, an old form of times
	}
	return stored
}

// ticks is the time so many units after the beginning of 1970.
func ticks(stored any, unit format.TimeUnit) time.Time {
	n, perSecond := reflect.ValueOf(stored).Int(), int64(time.Second/unit.Value.Duration())
	return time.Unix(n/perSecond, n%perSecond*int64(unit.Value.Duration())).UTC()
}
