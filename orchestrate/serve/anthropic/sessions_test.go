package anthropic_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// A client that sends back what it got goes on from the exact tokens, three turns of tools with thinking long; one that
// changes its text begins a branch.
func TestSessionsKeepWhatWasDrawn(t *testing.T) {
	for _, template := range []string{"qwen3.jinja", "thinking.jinja"} {
		t.Run(template, func(t *testing.T) {
			all := map[string]int{}
			playSessions(start(t, template, nil), all)
			if all["tool_use"] < 10 || all["thinking"]+all["text"] < 30 || all["text"] < 2 || all["thinking"] < 1 {
				t.Errorf("the sessions had %v", all)
			}
		})
	}
}

func playSessions(s *served, all map[string]int) {
	for n := range 30 {
		_, text := s.do("POST", "/v1/sessions", "{}")
		var opened struct {
			ID, Key string
			APIKey  string `json:"api_key"`
		}
		if err := json.Unmarshal([]byte(text), &opened); err != nil {
			s.Fatal(text)
		}
		messages := []any{map[string]any{"role": "user", "content": fmt.Sprint("add ", n)}}
		drawn := 0
		for turn := range 4 {
			list, _ := json.Marshal(messages)
			body := `{"model": "tiny", "max_tokens": 10, "tools": ` + tools + `, "messages": ` + string(list) + "}"
			var m message
			switch turn {
			case 0: // by the address, as the client of a base URL asks
				m = s.ask("/v1/sessions/"+opened.ID+"/v1/messages", body)
			case 1:
				m = s.stream("/v1/sessions/"+opened.ID+"/messages", body)
			default:
				m = s.ask("/v1/messages", body, "x-api-key", opened.APIKey)
			}
			drawn += m.Usage.Output
			for _, b := range m.Content {
				all[b.Type]++
			}
			said, results := []any{}, []any{}
			for _, b := range m.Content {
				said = append(said, b)
				if b.Type == "tool_use" {
					results = append(results, map[string]any{"type": "tool_result", "tool_use_id": b.ID, "content": "3"})
				}
			}
			slices.Reverse(results)
			results = append(results, map[string]any{"type": "text", "text": fmt.Sprint("and ", turn)})
			messages = append(messages, map[string]any{"role": "assistant", "content": said},
				map[string]any{"role": "user", "content": results})
		}
		branches := func() (list []struct{ Mask []int }) {
			_, text := s.do("GET", "/v1/sessions/"+opened.ID, "")
			var session struct{ Branches []struct{ Mask []int } }
			if err := json.Unmarshal([]byte(text), &session); err != nil {
				s.Fatal(text)
			}
			return session.Branches
		}
		list := branches()
		sampled := 0
		for _, b := range list {
			for _, one := range b.Mask {
				sampled += one
			}
		}
		if len(list) != 1 || sampled != drawn {
			s.Errorf("%d branches with %d tokens drawn, want 1 with %d: %+v", len(list), sampled, drawn, messages)
		}
		messages[1].(map[string]any)["content"] = "something else"
		edited, _ := json.Marshal([]any{messages[0], messages[1], map[string]any{"role": "user", "content": "so?"}})
		s.ask("/v1/messages", `{"model": "tiny", "max_tokens": 3, "messages": `+string(edited)+`, "tools": `+tools+"}",
			"x-api-key", opened.APIKey)
		if list := branches(); len(list) != 2 {
			s.Errorf("%d branches after an edit, want 2", len(list))
		}
	}
}
