package hf

import "strings"

// canonicalNames maps the names of one checkpoint to those of a CausalLM: without the prefixes of DataParallel and
// torch.compile, with "model." before those of a bare backbone. Buffers that transformers recomputes map to "".
func canonicalNames(names []string) map[string]string {
	out := make(map[string]string, len(names))
	bare := true
	for _, name := range names {
		short := name
		for {
			before := short
			short = strings.TrimPrefix(strings.TrimPrefix(short, "module."), "_orig_mod.")
			if short == before {
				break
			}
		}
		bare = bare && !strings.HasPrefix(short, "model.")
		out[name] = short
	}
	for name, short := range out {
		switch {
		case isBuffer(short):
			out[name] = ""
		case bare && (strings.HasPrefix(short, "embed_tokens.") || strings.HasPrefix(short, "layers.") || strings.HasPrefix(short, "norm.")):
			out[name] = "model." + short
		}
	}
	return out
}

func isBuffer(name string) bool {
	for _, suffix := range []string{"rotary_emb.inv_freq", "rotary_emb.original_inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
