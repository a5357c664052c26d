package openai

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"gyre/orchestrate/model/chat"
)

// The newest responses are kept, as many and as large ones as there is room for.
func TestStoredResponsesAreBounded(t *testing.T) {
	var s storedResponses
	r := httptest.NewRequest("GET", "/", nil)
	add := func(i int, text string) {
		s.add(storedResponse{id: fmt.Sprint(i), owner: ownerOf(r), messages: []chat.Message{{Content: text}}})
	}
	for i := range mostStored + 10 {
		add(i, "")
	}
	if _, found := s.find(r, "9", false); found || len(s.list) != mostStored || s.list[0].id != "10" {
		t.Errorf("%d are kept, from %s on", len(s.list), s.list[0].id)
	}
	large := strings.Repeat("x", mostStoredBytes/4)
	for i := range 5 {
		add(10000+i, large)
	}
	if len(s.list) != 3 || s.bytes > mostStoredBytes || s.list[2].id != "10004" {
		t.Errorf("%d are kept with %d bytes", len(s.list), s.bytes)
	}
	for _, one := range []string{"10002", "10003", "10004"} {
		if _, found := s.find(r, one, true); !found {
			t.Errorf("%s is gone", one)
		}
	}
	if len(s.list) != 0 || s.bytes != 0 {
		t.Errorf("%d with %d bytes are left", len(s.list), s.bytes)
	}
}
