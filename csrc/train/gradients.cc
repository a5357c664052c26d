#include "train/gradients.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace gyre {

void Gradients::add(const Gradients& other, double scale) {
  require_config(other.config_);
  backend_->add(set_, other.set_, static_cast<float>(scale));
}

void Gradients::add(const Decoder& decoder, double scale) {
  require_config(decoder.config());
  backend_->add(set_, decoder.parameters(), static_cast<float>(scale));
}

double Gradients::dot(const Gradients& other, std::span<double> per_parameter) const {
  const Gradients* const pair[] = {this, &other};
  const size_t sets = this == &other ? 1 : 2, parameters = set_.named.size();
  std::vector<double> all(parameters * sets * (sets + 1) / 2);
  products({pair, sets}, all);
  const auto own = std::span(all).subspan((sets - 1) * parameters, parameters);  // this with this, or this with other
  if (!per_parameter.empty()) std::ranges::copy(own, per_parameter.begin());
  return std::accumulate(own.begin(), own.end(), 0.0);
}

void Gradients::products(std::span<const Gradients* const> buffers, std::span<double> out) {
  std::vector<const ParameterSet*> sets;
  for (const Gradients* g : buffers) {
    g->require_config(buffers[0]->config_);
    sets.push_back(&g->set_);
  }
  buffers[0]->backend_->products(sets, out);
}

void Gradients::require_config(const ModelConfig& config) const {
  require(config_ == config, "gradients: the buffer was made for a model of another configuration");
}

}  // namespace gyre
