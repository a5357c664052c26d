package hf

import "strings"

// canonicalNames maps the names of one checkpoint to those of a CausalLM: without the prefixes of DataParallel,
// torch.compile and whatever held the model as an attribute ("model.model.layers…" of Lightning), with "model." before
// those of a bare backbone. Buffers that transformers recomputes map to "".
func canonicalNames(names []string) map[string]string {
	out := make(map[string]string, len(names))
	holder, bare := holderOf(names), true
	for _, name := range names {
		short := strings.TrimPrefix(unwrapped(name), holder)
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

// unwrapped is the name without the prefixes of DataParallel and torch.compile, in any order.
func unwrapped(name string) string {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "module."), "_orig_mod.")
		if short == name {
			return name
		}
		name = short
	}
}

// holderOf is what stands before the CausalLM's own names: read off the token embedding, which every decoder has once. With several
// embeddings there are several models, and no prefix is taken off.
func holderOf(names []string) string {
	holder, found := "", false
	for _, name := range names {
		before, ok := strings.CutSuffix(unwrapped(name), "embed_tokens.weight")
		if !ok {
			continue
		}
		if found {
			return ""
		}
		holder, found = strings.TrimSuffix(before, "model."), true
	}
	return holder
}

func isBuffer(name string) bool {
	for _, suffix := range []string{"rotary_emb.inv_freq", "rotary_emb.original_inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
