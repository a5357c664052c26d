// What libgyre_nccl.so gives to libgyre.so.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

// A new reference to a process group of NCCL. Throws what c10d throws.
extern "C" c10d::Backend* gyre_make_nccl(c10d::Store* store, int rank, int size, double timeout);
