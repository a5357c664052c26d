// Which instructions the kernels use. They are compiled once for each variant of the instruction set, with GYRE_VARIANT
// defined, into objects that share nothing but one table of functions; everyone else calls them through pointers, which
// are set when the library is loaded: to the best variant that this processor can run, or to the one that GYRE_ISA
// names.
#pragma once

#include <span>
#include <string>

#ifdef GYRE_VARIANT
#define GYRE_KERNEL(result, name, ...) result name(__VA_ARGS__)
#else
#define GYRE_KERNEL(result, name, ...) extern result (*name)(__VA_ARGS__)
#endif

namespace gyre {

struct Kernels;

struct Variant {
  const char* name;
  const Kernels* kernels;
  bool runs_here;               // the processor has its instructions
  bool bf16_is_faster = false;  // it multiplies bf16 numbers in clearly less time than f32 ones
};

// In ascending order of preference.
std::span<const Variant> variants();
const Variant& variant_in_use();
// Not while kernels run. Throws std::invalid_argument naming those that this processor can run.
void use_variant(const std::string& name);
// Throws std::invalid_argument when GYRE_ISA names none that this processor can run.
void require_isa_setting();

}  // namespace gyre
