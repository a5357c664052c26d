package replies

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

//go:embed families.json
var shipped []byte

type family struct {
	Family   string    `json:"family"`
	Marks    []string  `json:"marks"` // of which a chat template writes one
	Template *Template `json:"response_template"`
}

// families are those that are shipped, in the order in which they are tried.
var families = sync.OnceValue(func() (list []*family) {
	if err := json.Unmarshal(shipped, &list); err != nil {
		panic(err) // a test reads them
	}
	return list
})

// Of is the template of the family whose chat template writes the same marks; of any other, Hermes's.
func Of(chatTemplate string) *Template {
	i := slices.IndexFunc(families(), func(f *family) bool {
		return slices.ContainsFunc(f.Marks, func(mark string) bool { return strings.Contains(chatTemplate, mark) })
	})
	if i < 0 {
		i = slices.IndexFunc(families(), func(f *family) bool { return f.Family == "hermes" })
	}
	return families()[i].Template
}
