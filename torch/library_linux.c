// Loads libgyre.so, and with it libtorch, when the package is first used: what needs no model starts without them. The
// functions of gyre.h are defined here as jumps through addresses that gyre_load fills in.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

#if defined(__x86_64__)
#define JUMP(address) "  jmp *" address "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(address) "  adrp x16, " address "\n  ldr x16, [x16, :lo12:" address "]\n  br x16\n"
#else
#error "torch/library_linux.c knows x86-64 and AArch64: add the jump of this processor"
#endif

// clang-format off
#define FUNCTIONS(F) \
  F(abi_version) F(build_info) F(bytes_free) F(check_tensor_parallel) F(cuda_info) F(describe_isa) F(engine_abort) \
  F(engine_dismiss) F(engine_follow) F(engine_forget) F(engine_free) F(engine_new) F(engine_poll) \
  F(engine_set_vocabulary) F(engine_sleep) F(engine_stats) F(engine_step) F(engine_submit) F(gradients_add) \
  F(gradients_add_weights) F(gradients_begin_lane) F(gradients_dot) F(gradients_free) F(gradients_held) \
  F(gradients_new) F(gradients_products) F(gradients_sketch) F(gradients_zero) F(group_abort) F(group_all_gather) \
  F(group_free) F(group_new) F(group_traffic) F(loss_at) F(measure) F(measure_rows) F(message) F(model_adapt) \
  F(model_device) F(model_free) F(model_freeze) F(model_gather) F(model_held) F(model_logits) F(model_new) \
  F(model_parameter) F(model_parameter_count) F(model_score) F(model_set_recompute) F(model_tensor_parallel) \
  F(model_touch) F(model_values) F(model_work) F(optimizer_configure) F(optimizer_free) F(optimizer_held) \
  F(optimizer_new) F(optimizer_set_steps) F(optimizer_step) F(optimizer_steps) F(peak_rss) F(policy_backward) \
  F(set_threads) F(store_claim) F(store_find) F(store_free) F(store_open_file) F(store_open_tcp) F(store_set) \
  F(tensor_copy_in) F(tensor_copy_out) F(tensor_free) F(tensor_info) F(threads) F(value_backward)
// clang-format on

// What a function is until the library is loaded: the end of the program, as the system's loader would end it.
static void refuse(void) {
  fputs("gyre: a function of libgyre.so was called, but the library is not loaded; run make lib\n", stderr);
  exit(127);
}

#define DEFINE(name)                                                                                           \
  __attribute__((visibility("hidden"), used)) void* gyre_at_##name = (void*)refuse;                            \
  __asm__(".text\n.globl gyre_" #name "\n.hidden gyre_" #name "\n.type gyre_" #name ", %function\ngyre_" #name \
          ":\n" JUMP("gyre_at_" #name) ".size gyre_" #name ", .-gyre_" #name "\n");
FUNCTIONS(DEFINE)

static const struct {
  const char* name;
  void** address;
} kFunctions[] = {
#define ENTRY(name) {"gyre_" #name, &gyre_at_##name},
    FUNCTIONS(ENTRY)};

const char* gyre_load(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
  if (library == NULL) return dlerror();
  for (size_t i = 0; i < sizeof kFunctions / sizeof *kFunctions; ++i) {
    void* address = dlsym(library, kFunctions[i].name);
    if (address == NULL) return dlerror();
    *kFunctions[i].address = address;
  }
  return NULL;
}
