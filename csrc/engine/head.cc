#include "engine/head.h"

#include <algorithm>

#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kHeadRows = 64;  // rows of logits kept at once

}  // namespace

std::vector<Draw> draw_tokens(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                              std::span<Sequence* const> sequences) {
  const int64_t vocab = decoder.config().vocab_size;
  const int64_t count = static_cast<int64_t>(rows.size());
  std::vector<Draw> draws(count);
  for (int64_t begin = 0; begin < count; begin += kHeadRows) {
    const int64_t n = std::min(kHeadRows, count - begin);
    const at::Tensor logits_RV = decoder.row_logits(hidden_NH, rows.subspan(begin, n));
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
