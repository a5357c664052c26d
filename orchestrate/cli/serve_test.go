package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// serving starts the server as a user does, and gives its address, what it logs, and what ends it.
func serving(t *testing.T, args ...string) (address string, log *bytes.Buffer, stop func() int) {
	t.Helper()
	read, written := io.Pipe()
	log = &bytes.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		app := newApp([]*cli.Command{serveCommand()}, written, log)
		ended <- run(ctx, app, append([]string{"gyre", "serve", "--port", "0"}, args...))
		written.Close()
	}()
	url := make([]byte, 200)
	n, err := read.Read(url)
	if err != nil {
		t.Fatalf("no URL: %v (exit %d, %s)", err, <-ended, log.String())
	}
	if address = strings.TrimSpace(string(url[:n])); !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("it printed %q", address)
	}
	return address, log, func() int {
		cancel()
		return <-ended
	}
}

// TestServeSaysWhatGenerateSays starts the server as a user does, and compares greedy replies and those of a seed with
// `gyre generate`'s, byte for byte. The end of the command's context drains it.
func TestServeSaysWhatGenerateSays(t *testing.T) {
	policy := tinyPolicy(t)
	address, log, stop := serving(t, policy, "--served-model", "tiny")
	const messages = `[{"role": "system", "content": "a"}, {"role": "user", "content": "héllo <|im_end|>"}]`
	for sampling, flags := range map[string][]string{
		`"temperature": 0`: {"--temperature", "0"},
		`"temperature": 0.9, "top_p": 0.9, "seed": 11`: {"--temperature", "0.9", "--top-p", "0.9", "--seed", "11"},
	} {
		type line struct {
			IDs          []int32
			Text         string
			Logprobs     []float32
			FinishReason string `json:"finish_reason"`
		}
		want := results[line](t, `{"messages": `+messages+`}`,
			append([]string{"generate", "--model", policy, "--max-tokens", "40"}, flags...)...)[0]
		resp, err := http.Post(address+"/v1/chat/completions", "application/json", strings.NewReader(
			`{"model": "tiny", "max_tokens": 40, "logprobs": true, "return_token_ids": true, "messages": `+messages+
				`, `+sampling+`}`))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Choices []struct {
				Message  struct{ Content string }
				TokenIDs []int32 `json:"token_ids"`
				Logprobs struct {
					Content []struct{ Logprob float32 }
				}
				FinishReason string `json:"finish_reason"`
			}
		}
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || len(got.Choices) != 1 {
			t.Fatalf("%s: %+v, %v", sampling, got, err)
		}
		c := got.Choices[0]
		same := c.Message.Content == want.Text && c.FinishReason == want.FinishReason &&
			len(c.TokenIDs) == len(want.IDs) && len(c.Logprobs.Content) == len(want.IDs)
		for i := 0; same && i < len(want.IDs); i++ {
			same = c.TokenIDs[i] == want.IDs[i] && c.Logprobs.Content[i].Logprob == want.Logprobs[i]
		}
		if !same {
			t.Errorf("%s: served %+v, generated %+v", sampling, c, want)
		}
	}
	if code := stop(); code != 0 || !strings.Contains(log.String(), "draining") ||
		strings.Contains(log.String(), "héllo") {
		t.Errorf("exit %d, log %s", code, log.String())
	}
}

func TestServeIsNotOpenedToOthersByAccident(t *testing.T) {
	policy := tinyPolicy(t)
	t.Setenv("SHORT", "1234567")
	t.Setenv("LONG", "12345678")
	for flags, want := range map[string]string{
		"--listen 0.0.0.0":                          "give it a key",
		"--listen 0.0.0.0 --key-env SHORT":          "at least 8",
		"--listen 0.0.0.0 --key-env LONG":           "--insecure",
		"--listen 127.0.0.1:80 --port 81":           "--port cannot be given",
		"--tls-cert x":                              "go together",
		"--key-env NO_SUCH_VARIABLE":                "NO_SUCH_VARIABLE",
		"--max-length 100000":                       "positions",
		"--adapter no/such/adapter":                 "no/such/adapter",
		"--chat-template no/such/file":              "no/such/file",
		"--listen 127.0.0.1 --max-waiting -3":       "--max-waiting",
		"--listen 127.0.0.1:999999 --max-waiting 1": "999999",
	} {
		var out, errs bytes.Buffer
		app := newApp([]*cli.Command{serveCommand()}, &out, &errs)
		code := run(t.Context(), app, append([]string{"gyre", "serve", policy}, strings.Fields(flags)...))
		if code == 0 || out.Len() > 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", flags, code, out.String(), errs.String(), want)
		}
	}
}

// Replies of the terminal's chat depend on what was said before.
func TestChatInTheTerminal(t *testing.T) {
	chat := func(input string) string {
		var out, errs bytes.Buffer
		app := newApp([]*cli.Command{chatCommand()}, &out, &errs)
		app.Reader = strings.NewReader(input)
		code := run(t.Context(), app, []string{"gyre", "chat", tinyPolicy(t), "--seed", "3", "--max-tokens", "12"})
		if code != 0 || strings.ContainsRune(out.String(), 0x1b) {
			t.Fatalf("exit %d, stdout %q, stderr %s", code, out.String(), errs.String())
		}
		return out.String()
	}
	one, two := chat("hi\n"), chat("hi\n\nand?\n")
	if one == "" || !strings.HasPrefix(two, one) || len(two) <= len(one) {
		t.Errorf("one message: %q, two: %q", one, two)
	}
}
