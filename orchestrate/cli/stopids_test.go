package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Replies end at every id of generation_config.json, however it is spelt, and not before --min-tokens.
func TestGenerateStopsAtTheConfiguredIDs(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyPolicy(t))); err != nil {
		t.Fatal(err)
	}
	row := `{"ids": [5, 6]}`
	flags := []string{"generate", "--model", dir, "--max-tokens", "12", "--temperature", "0"}
	free := results[generated](t, row, append(flags, "--ignore-eos")...)[0]
	for _, spelling := range []string{"%d", "[299, %d]", "[%d]"} {
		end := free.IDs[len(free.IDs)-1]
		text := fmt.Sprintf(`{"eos_token_id": `+spelling+`}`, end)
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		first := slices.Index(free.IDs, end) + 1
		got := results[generated](t, row, flags...)[0]
		if got.FinishReason != "stop" || !slices.Equal(got.IDs, free.IDs[:first]) {
			t.Errorf("%s: %v (%s), want %v", text, got.IDs, got.FinishReason, free.IDs[:first])
		}
		if got := results[generated](t, row, append(flags, "--min-tokens", "12")...)[0]; len(got.IDs) != 12 || slices.Contains(got.IDs[:11], end) {
			t.Errorf("%s with --min-tokens 12: %v", text, got.IDs)
		}
	}
}
