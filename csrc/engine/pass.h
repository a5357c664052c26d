// One forward pass of an engine, as the first of several tensor-parallel ranks sends it to the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/pass.h"

namespace gyre {

struct EnginePass {
  EnginePass() = default;
  // What encode() gave, of a process of the same build.
  explicit EnginePass(std::string_view bytes);
  EnginePass(EnginePass&&) = default;  // moving keeps the page tables in place, copying would not
  std::string encode() const;
  // All rows are of sequences that decode.
  bool decodes() const { return decode_rows == std::ssize(ids); }

  int64_t num_pages = 0;         // of the pool
  std::vector<int32_t> copies;   // pages from, to, from, to, ...: copied one after another before the pass
  std::vector<int32_t> ids;      // of the rows
  std::vector<RowSpan> spans;    // of sequences; page tables are elsewhere, of a decoded pass in tables_
  std::vector<int64_t> sampled;  // rows that a token is drawn from
  int64_t decode_rows = 0;

 private:
  std::vector<int32_t> tables_;
};

}  // namespace gyre
