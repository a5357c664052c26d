#include "engine/head.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kHeadRows = 64;  // rows of logits kept at once

}  // namespace

std::vector<Draw> draw_tokens(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                              std::span<Sequence* const> sequences) {
  const int64_t hidden = decoder.config().hidden_size, vocab = decoder.config().vocab_size;
  const int64_t count = static_cast<int64_t>(rows.size());
  std::vector<Draw> draws(count);
  for (int64_t begin = 0; begin < count; begin += kHeadRows) {
    const int64_t n = std::min(kHeadRows, count - begin);
    at::Tensor hidden_RH = at::empty({n, hidden}, hidden_NH.options());
    for (int64_t r = 0; r < n; ++r)
      std::memcpy(hidden_RH.mutable_data_ptr<float>() + r * hidden,
                  hidden_NH.const_data_ptr<float>() + rows[begin + r] * hidden, hidden * sizeof(float));
    at::Tensor logits_RV = at::empty({n, vocab}, hidden_NH.options());
    decoder.logits(hidden_RH, logits_RV);
    const float* logits = logits_RV.const_data_ptr<float>();
    parallel_for(n, std::max<int64_t>(1, 16384 / vocab), [&](int64_t r) {
      const Sequence& s = *sequences[begin + r];
      const Sampling& sampling = s.request.sampling;
      const bool may_stop = sampling.ignore_eos || s.outputs() >= sampling.min_tokens;
      draws[begin + r] = draw_token({logits + r * vocab, static_cast<size_t>(vocab)}, sampling, s.outputs(),
                                    may_stop ? std::span<const int32_t>() : std::span(s.request.stop_ids));
    });
  }
  return draws;
}

}  // namespace gyre
