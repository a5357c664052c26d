package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// scorer is a server that gives the token with the id n the log-prob -n, in one of the two forms or in none.
func scorer(form string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		var body scoring
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var list []string
		for i, id := range body.Prompt {
			switch {
			case i == 0:
				list = append(list, "null")
			case form == "echo":
				list = append(list, fmt.Sprintf("-%d", id))
			default:
				list = append(list, fmt.Sprintf(`{"%d": {"logprob": -%d}, "99": {"logprob": -0.5}}`, id, id))
			}
		}
		all := "[" + strings.Join(list, ", ") + "]"
		switch {
		case form == "echo" && !body.Echo:
			http.Error(w, `{"error": {"message": "there is no prompt_logprobs"}}`, http.StatusBadRequest)
		case form == "echo":
			fmt.Fprintf(w, `{"choices": [{"logprobs": {"token_logprobs": %s}}]}`, all)
		case form == "prompt" && body.PromptLogprobs != nil:
			fmt.Fprintf(w, `{"choices": [{"prompt_logprobs": %s}]}`, all)
		default:
			fmt.Fprint(w, `{"choices": [{"text": "x"}]}`)
		}
	}
}

func TestTeacher(t *testing.T) {
	sequences := [][]int32{{5, 6, 7}, {8}, {}, {9, 1}}
	want := [][]float32{{0, -6, -7}, {0}, {}, {0, -1}}
	for _, form := range []string{"prompt", "echo"} {
		s := serveAnswers(t, scorer(form))
		teacher, err := OpenTeacher(t.Context(), Config{URL: s.URL, Model: "tiny"})
		if err != nil {
			t.Fatal(err)
		}
		defer teacher.Close()
		if got, err := teacher.Logprobs(t.Context(), sequences); err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, %v; want %v", form, got, err, want)
		}
	}
	s := serveAnswers(t, scorer("none"))
	if _, err := OpenTeacher(t.Context(), Config{URL: s.URL, Model: "tiny"}); !errors.Is(err, errNoScores) {
		t.Errorf("a server without log-probs: %v", err)
	}
	s = serveAnswers(t, says(401, `{"error": {"message": "bad key"}}`))
	_, err := OpenTeacher(t.Context(), Config{URL: s.URL, Model: "tiny"})
	if err == nil || !strings.Contains(err.Error(), "bad key") || s.asked.Load() != 1 {
		t.Errorf("a key that is refused: %v after %d requests", err, s.asked.Load())
	}
}
