#include "kernels/isa.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(GYRE_X86_VARIANTS) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/table.h"

extern "C" {
#if defined(GYRE_X86_VARIANTS)
extern const gyre::Kernels gyre_kernels_avx2, gyre_kernels_avx512, gyre_kernels_avx512_bf16, gyre_kernels_amx;
#if !defined(__AVX2__)
extern const gyre::Kernels gyre_kernels_portable;
#endif
#else
extern const gyre::Kernels gyre_kernels_native;
#endif
}

#if defined(GYRE_X86_VARIANTS) && defined(__AVX2__)
// What is not a kernel needs these instructions too. Before anything else of the library runs, a processor without them
// is told so.
[[gnu::constructor(101), gnu::target("arch=x86-64")]] static void require_baseline() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return;
  std::fputs(
      "libgyre: this processor has no AVX2 or FMA, for which the library was built: build it with "
      "-DGYRE_BASELINE=x86-64\n",
      stderr);
  std::_Exit(1);
}
#endif

namespace gyre {

#define GYRE_POINTER(name) decltype(name) name = nullptr;
GYRE_ALL_KERNELS(GYRE_POINTER)
#undef GYRE_POINTER

namespace {

#if defined(GYRE_X86_VARIANTS)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// The matrix unit's registers are large: the kernel of the system wants to be asked for them, once per process.
bool has_amx() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::vector<Variant> make_variants() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && has_avx512(), bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  Variant plain{"avx512", &gyre_kernels_avx512, avx512};
  Variant paired{"avx512_bf16", &gyre_kernels_avx512_bf16, bf16, true};
  // Intel's VDPBF16PS takes twice as long as the two fused operations that give the same bits.
  if (__builtin_cpu_is("intel")) {
    paired.bf16_is_faster = false;
    std::swap(plain, paired);
  }
  std::vector<Variant> all{
      {"avx2", &gyre_kernels_avx2, avx2}, plain, paired, {"amx", &gyre_kernels_amx, bf16 && has_amx(), true}};
#if !defined(__AVX2__)
  all.insert(all.begin(), {"portable", &gyre_kernels_portable, true});
#endif
  return all;
}
#else
std::vector<Variant> make_variants() { return {{{"native", &gyre_kernels_native, true}}}; }
#endif

const auto kVariants = make_variants();
const Variant* in_use = nullptr;

void use(const Variant& variant) {
#define GYRE_USE(name) gyre::name = variant.kernels->name;
  GYRE_ALL_KERNELS(GYRE_USE)
#undef GYRE_USE
  in_use = &variant;
}

// The variant of that name, null where there is none that runs here.
const Variant* find(const std::string& name) {
  const auto at = std::ranges::find_if(kVariants, [&](const Variant& v) { return v.runs_here && name == v.name; });
  return at == kVariants.end() ? nullptr : &*at;
}

std::string asked_for() {
  const char* name = std::getenv("GYRE_ISA");
  return name == nullptr ? "" : name;
}

[[noreturn]] void refuse(const std::string& what, const std::string& name) {
  std::string known;
  for (const Variant& v : kVariants) {
    if (v.runs_here) known += (known.empty() ? "" : ", ") + std::string(v.name);
  }
  throw std::invalid_argument(what + " is \"" + name + "\", expected one that this processor can run: " + known);
}

const bool chosen = [] {
  const Variant* variant = find(asked_for());
  const auto best = std::ranges::find_if(kVariants.rbegin(), kVariants.rend(), &Variant::runs_here);
  use(variant ? *variant : *best);
  return true;
}();

}  // namespace

std::span<const Variant> variants() { return kVariants; }
const Variant& variant_in_use() { return *in_use; }

void use_variant(const std::string& name) {
  const Variant* variant = find(name);
  if (variant == nullptr) refuse("instruction set", name);
  use(*variant);
}

void require_isa_setting() {
  const std::string name = asked_for();
  if (!name.empty() && find(name) == nullptr) refuse("GYRE_ISA", name);
}

}  // namespace gyre
