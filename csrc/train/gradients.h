// A buffer shaped like a model's parameters, with the operations of gradient analysis.
#pragma once

#include <span>

#include "model/parameters.h"

namespace gyre {

class Gradients {
 public:
  explicit Gradients(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  ParameterSet& set() { return set_; }
  const ParameterSet& set() const { return set_; }

  void zero();
  void add(const Gradients& other, double scale);
  // Inner product in f64. Blocks of fixed size are summed one by one and then in order, so every bit is the same for
  // any number of threads. per_parameter is empty or has one entry per set().named.
  double dot(const Gradients& other, std::span<double> per_parameter) const;

  // dot() of all pairs a <= b of buffers, bit for bit, row by row of the upper triangle, but each buffer is read once:
  // out[pair * parameters + i].
  static void products(std::span<const Gradients* const> buffers, std::span<double> out);

  // Writes a count sketch (Charikar, Chen and Farach-Colton 2002): entry i of the parameters laid one after another is
  // added with a random sign into out[i mod m], m = out.size(), best a prime. Inner products of sketches estimate those
  // of gradients without bias, with a standard deviation of about |a|·|b|/sqrt(m); sketches add up as gradients do.
  void sketch(std::span<float> out) const;

  // Throws std::invalid_argument when the buffer was made for another configuration.
  void require_config(const ModelConfig& config) const;

 private:
  ModelConfig config_;
  ParameterSet set_;
};

}  // namespace gyre
