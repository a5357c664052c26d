package quote

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// JSON is an error of decoding JSON in words about JSON, where the standard library names types of Go.
func JSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	field := ""
	if wrong.Field != "" {
		field = wrong.Field + ": "
	}
	return fmt.Errorf("%sgot %s, expected %s", field, wrong.Value, expected(wrong.Type.Kind()))
}

func expected(kind reflect.Kind) string {
	switch {
	case kind == reflect.Map || kind == reflect.Struct:
		return "an object"
	case kind == reflect.Int32:
		return "an integer that fits in 32 bits"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return "an integer"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	case kind == reflect.String:
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	}
	return "a list"
}
