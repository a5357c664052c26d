package gyre

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gyre/internal/child"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// startServer starts the program in Options.Server, which is gyre or takes the arguments of `vllm serve`, and gives its
// URL once it answers.
func (s *server) startServer() (string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(address)
	command := exec.Command(s.Server, "serve", s.Model, "--port", port, "--dtype", string(s.On.Compute))
	command.Env, command.Stderr, command.SysProcAttr = os.Environ(), s.log, child.Attributes()
	if filepath.Base(s.Server) == "vllm" {
		command.Args = append(command.Args, "--max-model-len", "1280", "--enforce-eager")
		// vLLM's guide for CPUs asks to load Intel's OpenMP first.
		command.Env = append(command.Env, "VLLM_CPU_KVCACHE_SPACE=1",
			fmt.Sprintf("VLLM_CPU_OMP_THREADS_BIND=0-%d", s.Threads-1),
			"LD_PRELOAD="+filepath.Join(filepath.Dir(filepath.Dir(s.Server)), "lib", "libiomp5.so"))
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }() // ends with stop
	s.stop = func() { _ = command.Process.Signal(os.Interrupt); <-ended }
	for {
		select {
		case <-ended:
			return "", fmt.Errorf("%s ended: %s", s.Server, command.ProcessState)
		case <-time.After(200 * time.Millisecond):
		}
		if r, err := http.Get("http://" + address + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "http://" + address, nil
			}
		}
	}
}

// serve lets clients ask, each one prompt after the other, and measures what they wait for.
func (s *server) serve(t work.Task) (worker.Figures, error) {
	if s.url == "" {
		var err error
		if s.url, err = s.startServer(); err != nil {
			return worker.Figures{}, err
		}
	}
	firsts, rests := make([]float64, len(t.Prompts)), make([]float64, len(t.Prompts))
	problems := make([]error, len(t.Prompts))
	begin := time.Now()
	var all sync.WaitGroup
	for client := range t.Copies {
		all.Go(func() {
			for i := client; i < len(t.Prompts); i += t.Copies {
				firsts[i], rests[i], problems[i] = ask(s.url, s.Model, t.Prompts[i], t.New)
			}
		})
	}
	all.Wait()
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	return worker.Figures{Seconds: time.Since(begin).Seconds(), Parts: map[string]float64{"first token": median(firsts),
		"between tokens": median(rests)}}, errors.Join(problems...)
}

// ask streams a continuation, and gives the seconds to its first token and from one to the next.
func ask(url, model string, prompt []int32, tokens int) (first, between float64, err error) {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": true,
		"temperature": 1, "stream": true, "stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	var last float64
	var event struct {
		Choices []json.RawMessage
		Usage   struct {
			Completion int `json:"completion_tokens"`
		}
	}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || json.Unmarshal([]byte(data), &event) != nil || len(event.Choices) == 0 {
			continue
		}
		if last = time.Since(begin).Seconds(); first == 0 {
			first = last
		}
	}
	if event.Usage.Completion != tokens {
		return 0, 0, fmt.Errorf("%s: %d new tokens, expected %d", r.Status, event.Usage.Completion, tokens)
	}
	return first, (last - first) / float64(max(tokens-1, 1)), nil
}
