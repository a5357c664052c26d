// Decoding in tensors of fixed shape. A pass in which each sequence has one new token is computed as if it had a round
// number of rows, and each row a round number of pages: few shapes occur, nothing in their operations depends on a
// value, so that a GPU records a shape's operations once and repeats them with one launch (CUDA graphs). What a shape
// has too much reads and writes a scratch page that no sequence sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "model/pass.h"

namespace gyre {

class AngleTable;
struct AtenPass;

struct DecodeShape {
  int64_t rows, pages;  // pages of each row
  auto operator<=>(const DecodeShape&) const = default;
};

// The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... (2^k and 3·2^k) that is at least n.
int64_t round_shape(int64_t n);
// None for a pass in which a sequence has several rows, or with more rows than are worth a shape.
std::optional<DecodeShape> decode_shape(const Pass& pass);

// What libgyre_graphs.so gives: operations on a GPU, recorded once and repeated with one launch. Recordings share the
// memory of what lies between, so each is played to its end before the next.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // Runs the operations once, so that libraries have what they allocate at first use, then records them without
  // running them. They must neither wait for the device nor look at a value on it. What it returns repeats them: with
  // what is then in the tensors that were read, into those that were written. Throws what libtorch throws.
  virtual std::function<void()> record(const std::function<void()>& operations) = 0;
};

// The shapes that have occurred over one pool of pages.
class DecodeSteps {
 public:
  // Final hidden states of rows.
  using Run = std::function<at::Tensor(const at::Tensor& ids_R, const AtenPass& pass)>;

  // Rows that are too many write to `scratch_page`. `recorders` makes recorders; an empty one: nothing is recorded.
  // window: of the layers that have one; 0: none has. options: where, and the type of queries.
  DecodeSteps(const at::TensorOptions& options, int64_t scratch_page, int64_t window,
              std::function<std::unique_ptr<Recorder>()> recorders)
      : options_(options), scratch_page_(scratch_page), window_(window), recorders_(std::move(recorders)) {}

  // The hidden states of the pass's rows, as `run` computes them in the shape. `weights` is another number whenever
  // parameters may lie elsewhere.
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, DecodeShape shape, AngleTable& angles,
                   uint64_t weights, const Run& run);
  int64_t shapes() const { return static_cast<int64_t>(steps_.size()); }

 private:
  struct Step {
    at::Tensor inputs;  // int64: ids, positions and slots of R rows, then R x P pages
    at::Tensor keys_S;  // 0, 1, ...: positions of keys
    at::Tensor hidden_RH;
    bool met = false;
    std::function<void()> replay;  // empty until it is recorded
  };
  Step& step_of(DecodeShape shape, int64_t angles, uint64_t weights);

  at::TensorOptions options_;
  int64_t scratch_page_, window_;
  std::function<std::unique_ptr<Recorder>()> recorders_;
  // What the recordings read besides their own inputs: where it lies elsewhere, they are of no use.
  int64_t angles_ = 0;
  uint64_t weights_ = 0;
  std::unique_ptr<Recorder> recorder_;
  std::map<DecodeShape, Step> steps_;
};

}  // namespace gyre

extern "C" gyre::Recorder* gyre_make_recorder(int device);
