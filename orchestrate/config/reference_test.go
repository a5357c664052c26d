package config_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("update", false, "write docs/configuration.md from the comments and tags of the tables")

// sources are the files that hold the tables.
var sources = []string{"config.go", "importance.go", "measures.go", "machine.go", "sampling.go"}

// The page is what the tables say: struct tags give keys, defaults and legal values, field comments the help.
func TestReferenceIsUpToDate(t *testing.T) {
	const file = "../../docs/configuration.md"
	want, err := page(sources...)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("docs/configuration.md is not what the tables say (%v): run go generate ./orchestrate/config", err)
	}
}

func TestEveryKeyIsDescribed(t *testing.T) {
	content, err := page(sources...)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, line := range strings.Split(string(content), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), " | ")
		if len(cells) != 5 || cells[1] == "" || strings.TrimSuffix(cells[4], " |") == "" {
			t.Errorf("incomplete row: %s", line)
		}
	}
	if rows < 80 {
		t.Errorf("%d keys described, expected all of them", rows)
	}
}

const header = `# Configuration

An experiment is one TOML file. Every key has a default except ` + "`model.path` and the `tag` of each `[[envs]]`" + `, and
any key can be overridden on the command line by its dotted name; elements of lists go by index:

` + "```sh" + `
gyre train configs/sokoban_ppo_filter.toml filter.value=0.8 run.name=try envs.0.groups=4 envs.0.options.boxes=2
` + "```" + `

An override's value is read as TOML; anything that is not is a string. Nothing may follow a TOML value, not even a
comment. Paths are relative to the working directory.
Everything wrong with a configuration is reported at once, with its line or override, and exits with code 2. The resolved
configuration of a run, every key included, is ` + "`config.toml`" + ` in its directory.

This page is generated from the comments of ` + "`orchestrate/config`" + ` by ` + "`go generate ./orchestrate/config`" + `.
`

// page renders the reference of the structs in Go files, starting from the type Config.
func page(sources ...string) ([]byte, error) {
	var declarations []ast.Decl
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		declarations = append(declarations, file.Decls...)
	}
	structs, help := map[string]*ast.StructType{}, map[string]string{}
	for _, declaration := range declarations {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		for _, spec := range general.Specs {
			t := spec.(*ast.TypeSpec)
			if s, ok := t.Type.(*ast.StructType); ok {
				structs[t.Name.Name], help[t.Name.Name] = s, text(general.Doc)
			}
		}
	}
	if structs["Config"] == nil {
		return nil, fmt.Errorf("%v declare no struct Config", sources)
	}
	var out bytes.Buffer
	out.WriteString(header)
	described := map[string]bool{}
	var table func(path string, field *ast.Field)
	table = func(path string, field *ast.Field) {
		path += tag(field).Get("toml")
		title, name := "["+path+"]", typeOf(field)
		if element, ok := strings.CutPrefix(name, "[]"); ok {
			title, name = "["+title+"]", element
		}
		described[name] = true
		fmt.Fprintf(&out, "\n## `%s`\n\n%s\n\n", title, help[name])
		out.WriteString("| key | type | default | legal values | meaning |\n|---|---|---|---|---|\n")
		for _, f := range structs[name].Fields.List {
			row(&out, f)
		}
		for _, f := range structs[name].Fields.List { // lists of tables in a table, once
			if element := strings.TrimPrefix(typeOf(f), "[]"); structs[element] != nil && !described[element] {
				table(path+".", f)
			}
		}
	}
	for _, field := range structs["Config"].Fields.List {
		if field.Tag != nil {
			table("", field)
		}
	}
	return out.Bytes(), nil
}

func row(out *bytes.Buffer, f *ast.Field) {
	t := tag(f)
	kinds := map[string]string{"string": "string", "bool": "boolean", "int": "integer", "int64": "integer",
		"uint64": "integer", "float64": "number", "[2]float64": "two numbers", "map[string]any": "table",
		"[]Env": "tables", "[]string": "strings", "[]Logger": "names or commands", "Targets": "name or names"}
	legal := ""
	if list, ok := t.Lookup("oneof"); ok {
		legal = "`" + strings.ReplaceAll(list, ",", "` `") + "`"
	} else if interval, ok := t.Lookup("range"); ok {
		legal = strings.Replace(interval, ",)", ", ∞)", 1)
	} else if typeOf(f) == "uint64" {
		legal = "[0, ∞)"
	}
	value := ""
	if text, ok := t.Lookup("default"); ok {
		value = "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
	}
	fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n", t.Get("toml"), kinds[typeOf(f)], value, legal,
		strings.ReplaceAll(text(f.Doc), "|", `\|`))
}

func tag(f *ast.Field) reflect.StructTag {
	literal, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		panic(err) // the Go compiler has accepted it
	}
	return reflect.StructTag(literal)
}

func text(comment *ast.CommentGroup) string { return strings.Join(strings.Fields(comment.Text()), " ") }

func typeOf(f *ast.Field) string {
	switch t := f.Type.(type) {
	case *ast.StarExpr: // a key without a default
		return t.X.(*ast.Ident).Name
	case *ast.Ident:
		return t.Name
	case *ast.ArrayType:
		element := t.Elt.(*ast.Ident).Name
		if length, ok := t.Len.(*ast.BasicLit); ok {
			return "[" + length.Value + "]" + element
		}
		return "[]" + element
	case *ast.MapType:
		return "map[string]any"
	}
	return ""
}
