#include "kernels/table.h"

#define GYRE_JOIN(a, b) a##b
#define GYRE_TABLE(variant) GYRE_JOIN(gyre_kernels_, variant)

// The one symbol of a variant that others see.
extern "C" const gyre::Kernels GYRE_TABLE(GYRE_VARIANT);
extern "C" const gyre::Kernels GYRE_TABLE(GYRE_VARIANT) = {
#define GYRE_ENTRY(name) .name = gyre::name,
    GYRE_ALL_KERNELS(GYRE_ENTRY)
#undef GYRE_ENTRY
};
