#include "train/gradients.h"

#include <stdexcept>
#include <vector>

namespace gyre {

void Gradients::add(const Gradients& other, double scale) {
  require_config(other.config_);
  backend_->add(set_, other.set_, static_cast<float>(scale));
}

double Gradients::dot(const Gradients& other, std::span<double> per_parameter) const {
  require_config(other.config_);
  std::vector<double> own;
  if (per_parameter.empty()) {
    own.resize(set_.named.size());
    per_parameter = own;
  }
  backend_->dot(set_, other.set_, per_parameter);
  double total = 0;
  for (double part : per_parameter) total += part;
  return total;
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
  if (!(config_ == config))
    throw std::invalid_argument("gradients: the buffer was made for a model of another configuration");
}

}  // namespace gyre
