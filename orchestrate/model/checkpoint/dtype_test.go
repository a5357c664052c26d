package checkpoint

import (
	"testing"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func TestFloatTypesAreNumberedAlike(t *testing.T) {
	for file, memory := range map[weights.DType]torch.DType{weights.F32: torch.F32, weights.F16: torch.F16,
		weights.BF16: torch.BF16, weights.F64: torch.F64} {
		if inMemory(file) != memory || weights.DType(memory) != file || file.String() != memory.String() {
			t.Errorf("%v in files is %d, in memory %d", file, file, memory)
		}
	}
}
