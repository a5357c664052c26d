#include "backend/aten/decode.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/aten/cuda.h"
#include "backend/aten/network.h"

namespace gyre {
namespace {

// Above that, kernels take longer than their launches, and a shape's rows that are too many cost more than it saves.
constexpr int64_t kMostRows = 512;

// What Step::inputs holds.
std::vector<int64_t> inputs_of(std::span<const int32_t> ids, const Pass& pass, DecodeShape shape, int64_t scratch) {
  const auto [rows, width] = shape;
  std::vector<int64_t> inputs(static_cast<size_t>(rows * (3 + width)));
  const auto at = [&](int64_t list, int64_t row) -> int64_t& { return inputs[static_cast<size_t>(list * rows + row)]; };
  int64_t* const pages = &inputs[static_cast<size_t>(3 * rows)];
  std::fill(pages, pages + rows * width, scratch);
  for (int64_t r = pass.rows; r < rows; ++r) at(2, r) = scratch * kPageTokens + r % kPageTokens;
  for (const PagedRows& s : pass.attended) {
    at(0, s.row) = ids[static_cast<size_t>(s.row)];
    at(1, s.row) = s.position;
    at(2, s.row) = s.pages[s.position / kPageTokens] * kPageTokens + s.position % kPageTokens;
    std::copy_n(s.pages, s.page_count(), pages + s.row * width);
  }
  return inputs;
}

}  // namespace

int64_t round_shape(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power >= 4 && power / 4 * 3 >= n ? power / 4 * 3 : power;
}

std::optional<DecodeShape> decode_shape(const Pass& pass) {
  if (pass.rows > kMostRows) return std::nullopt;
  int64_t widest = 1;
  for (const PagedRows& s : pass.attended) {
    if (s.count != 1) return std::nullopt;
    widest = std::max(widest, s.page_count());
  }
  return DecodeShape{round_shape(pass.rows), round_shape(widest)};
}

DecodeSteps::Step& DecodeSteps::step_of(DecodeShape shape, int64_t angles, uint64_t weights) {
  if (angles != angles_ || weights != weights_) {
    steps_.clear();
    recorder_.reset();
    angles_ = angles, weights_ = weights;
  }
  Step& step = steps_[shape];
  if (!step.inputs.defined()) {
    const auto numbers = at::TensorOptions().dtype(at::kLong).device(options_.device());
    step.inputs = at::empty({shape.rows * (3 + shape.pages)}, numbers);
    step.keys_S = at::arange(shape.pages * kPageTokens, numbers);
  }
  return step;
}

at::Tensor DecodeSteps::infer(std::span<const int32_t> ids, const Pass& pass, DecodeShape shape, AngleTable& angles,
                              uint64_t weights, const Run& run) {
  angles.reserve(pass.end);
  Step& step = step_of(shape, angles.positions(), weights);
  std::vector<int64_t> inputs = inputs_of(ids, pass, shape, scratch_page_);
  const at::Tensor host = at::from_blob(inputs.data(), {static_cast<int64_t>(inputs.size())}, at::kLong);
  step.inputs.copy_(options_.device().is_cpu() ? host : host.pin_memory(), /*non_blocking=*/true);

  const auto [rows, width] = shape;
  const auto list = [&](int64_t i) { return step.inputs.narrow(0, i * rows, rows); };
  const auto operations = [&] {
    const at::Tensor positions_R = list(1);
    AtenPass fixed;
    fixed.angles = angles.at(positions_R);
    fixed.attention.slots_N = list(2);
    fixed.attention.decode_pages_RP = step.inputs.narrow(0, 3 * rows, rows * width).view({rows, width});
    const at::Tensor past = step.keys_S.unsqueeze(0) <= positions_R.unsqueeze(1);
    fixed.attention.decode_mask_R11S = mask_of(past, options_).view({rows, 1, 1, -1});
    if (window_ > 0) {
      const at::Tensor seen = seen_within(step.keys_S, positions_R.unsqueeze(1), window_);
      fixed.attention.decode_window_R11S = mask_of(seen, options_).view({rows, 1, 1, -1});
    }
    const at::Tensor hidden_RH = run(list(0), fixed);
    if (!step.hidden_RH.defined()) step.hidden_RH = at::empty_like(hidden_RH);
    step.hidden_RH.copy_(hidden_RH);
  };
  // A shape that occurs once is not worth recording.
  if (recorders_ && step.met) {
    if (!step.replay) {
      if (!recorder_) recorder_ = recorders_();
      try {
        step.replay = recorder_->record(operations);
      } catch (const std::exception& e) {
        throw std::runtime_error("recording a decoding step of " + std::to_string(rows) + " rows and " +
                                 std::to_string(width) + " pages as a CUDA graph: " + e.what() +
                                 "; engine.cuda_graphs=false decodes without");
      }
    }
    step.replay();
  } else {
    operations();
    step.met = true;
  }
  return step.hidden_RH.narrow(0, 0, pass.rows).clone();  // the next step of the shape writes over it
}

AtenPages::AtenPages(const ModelConfig& config, const Placement& placement, int64_t num_pages)
    : num_pages_(num_pages), window_(config.shape.window), placement_(placement) {
  // Zeros: what a masked-out position holds is multiplied by 0, so it must be finite.
  keys_ = at::zeros({config.num_layers, (num_pages + 1) * kPageTokens, config.num_kv_heads, config.head_dim},
                    at::TensorOptions().dtype(placement.compute).device(placement.device));
  values_ = at::zeros_like(keys_);
}

void AtenPages::copy_page(int64_t from, int64_t to) {
  for (const at::Tensor* pool : {&keys_, &values_}) {
    const at::Tensor pages = pool->view({pool->size(0), num_pages_ + 1, -1});
    pages.select(1, to).copy_(pages.select(1, from));
  }
}

void AtenPages::decode_in_fixed_shapes(bool on) {
  steps_.reset();
  if (!on) return;
  const at::Device device = keys_.device();
  std::function<std::unique_ptr<Recorder>()> recorders;
  auto* make = placement_.make_recorder;
  if (device.is_cuda()) {
    std::string problem;
    make =
        reinterpret_cast<decltype(&gyre_make_recorder)>(cuda_part("libgyre_graphs.so", "gyre_make_recorder", &problem));
  }
  if (!device.is_cpu()) {
    if (make == nullptr) return;  // where nothing can be recorded, the shapes would only cost
    recorders = [make, index = device.index()] { return std::unique_ptr<Recorder>(make(index)); };
  }
  steps_ = std::make_unique<DecodeSteps>(placement_.options(), num_pages_, window_, std::move(recorders));
}

}  // namespace gyre
