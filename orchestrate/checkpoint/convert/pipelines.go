package convert

// pipeline is what a name in tokenizer.ggml.pre stands for, in Hugging Face's JSON.
type pipeline struct {
	normalizer, pre, post any
	ignoreMerges, addBOS  bool // addBOS: unless the file says otherwise
}

// The splitting expressions are those of the models' own tokenizer.json.
const (
	qwenSplit  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var pipelines = map[string]pipeline{
	"smollm":    {pre: sequence(object{"type": "Digits", "individual_digits": true}, byteLevel(false, true, true))},
	"gpt-2":     {pre: byteLevel(false, true, true), post: byteLevel(true, false, true)},
	"qwen2":     {normalizer: object{"type": "NFC"}, pre: sequence(split(qwenSplit), byteLevel(false, false, false)), post: byteLevel(false, false, false)},
	"llama-bpe": {pre: sequence(split(llamaSplit), byteLevel(false, true, false)), post: byteLevel(true, false, true), ignoreMerges: true, addBOS: true},
}

func byteLevel(addPrefixSpace, trimOffsets, useRegex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": addPrefixSpace, "trim_offsets": trimOffsets, "use_regex": useRegex}
}

func sequence(steps ...object) object { return object{"type": "Sequence", "pretokenizers": steps} }

func split(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// prepend is the post-processor that puts one token before every text.
func prepend(token string, id int64) object {
	special := object{"SpecialToken": object{"id": token, "type_id": 0}}
	text := func(name string, kind int) object { return object{"Sequence": object{"id": name, "type_id": kind}} }
	return object{"type": "TemplateProcessing", "single": []object{special, text("A", 0)},
		"pair":           []object{special, text("A", 0), object{"SpecialToken": object{"id": token, "type_id": 1}}, text("B", 1)},
		"special_tokens": object{token: object{"id": token, "ids": []int64{id}, "tokens": []string{token}}}}
}
