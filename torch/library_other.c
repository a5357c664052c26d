//go:build !linux

// Elsewhere the program is linked against the library.
#include <stddef.h>

#include "library.h"

const char* gyre_load(const char* path) { return NULL; }
