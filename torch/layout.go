package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"reflect"
	"unsafe"
)

// as is a struct of Go's as the struct of gyre.h that lies in memory in the same way, or with which it begins. It is
// for the pairs in mirrors alone.
func as[C, G any](v *G) *C { return (*C)(unsafe.Pointer(v)) }

// mirrors are the structs that gyre.h and this package both declare, field by field, so that nothing converts them. A
// field that gyre.h gets is added here in the same place, under its name in Go's spelling; a test compares names, types
// and offsets.
var mirrors = map[reflect.Type]reflect.Type{
	reflect.TypeFor[ModelConfig]():  reflect.TypeFor[C.gyre_model_config](),
	reflect.TypeFor[Shape]():        reflect.TypeFor[C.gyre_shape](),
	reflect.TypeFor[Rope]():         reflect.TypeFor[C.gyre_rope](),
	reflect.TypeFor[LoRA]():         reflect.TypeFor[C.gyre_lora](),
	reflect.TypeFor[Dropout]():      reflect.TypeFor[C.gyre_dropout](),
	reflect.TypeFor[Loss]():         reflect.TypeFor[C.gyre_task_loss](),
	reflect.TypeFor[PolicyLoss]():   reflect.TypeFor[C.gyre_policy_loss](),
	reflect.TypeFor[PolicyStats]():  reflect.TypeFor[C.gyre_policy_stats](),
	reflect.TypeFor[TermStats]():    reflect.TypeFor[C.gyre_term_stats](),
	reflect.TypeFor[ValueStats]():   reflect.TypeFor[C.gyre_value_stats](),
	reflect.TypeFor[AdamW]():        reflect.TypeFor[C.gyre_adamw_config](),
	reflect.TypeFor[EngineConfig](): reflect.TypeFor[C.gyre_engine_config](),
	reflect.TypeFor[Sampling]():     reflect.TypeFor[C.gyre_sampling](),
	reflect.TypeFor[Alternative]():  reflect.TypeFor[C.gyre_alternative](),
	reflect.TypeFor[Work]():         reflect.TypeFor[C.gyre_work](),
	reflect.TypeFor[EnginePhase]():  reflect.TypeFor[C.gyre_engine_phase](),
	reflect.TypeFor[EngineStats]():  reflect.TypeFor[C.gyre_engine_stats_t](),
}
