package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
)

// maxDownload bounds a data file from the hub.
const maxDownload = 1 << 30

// hubFiles are the files of the known sets on a Hugging Face hub.
var hubFiles = map[string]map[string]string{
	"math500": {"test": MATH500 + "/resolve/main/test.jsonl"},
	"gsm8k": {
		"train": GSM8K + "/resolve/main/main/train-00000-of-00001.parquet",
		"test":  GSM8K + "/resolve/main/main/test-00000-of-00001.parquet",
	},
	"metamathqa": {"train": MetaMathQA + "/resolve/main/MetaMathQA-395K.json"},
}

// Download brings a split of a known set from a hub into dir and returns its path. What is there already is not
// downloaded again.
func Download(ctx context.Context, client *http.Client, endpoint, token, name, split, dir string) (string, error) {
	remote, known := hubFiles[name][split]
	if !known {
		return "", fmt.Errorf("no %s split of %s is known on the hub", split, name)
	}
	path := filepath.Join(dir, name+"-"+split+filepath.Ext(remote))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	address := endpoint + "/datasets/" + remote
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", fmt.Errorf("no way to the hub %s: %w\nHF_ENDPOINT names another hub. Without one: copy the file "+
			"datasets/%s from a machine that has it, and give it with --input (both files of gsm8k: in a folder, as "+
			"train and test)", endpoint, err, remote)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", address, answer.Status)
	}
	return path, atomicfile.Write(path, func(w io.Writer) error {
		n, err := io.Copy(w, io.LimitReader(answer.Body, maxDownload+1))
		if err == nil && n > maxDownload {
			err = errors.New("the file is larger than any data set that is known")
		}
		return err
	})
}
