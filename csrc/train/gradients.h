// A buffer shaped like a model's parameters, with the operations of gradient analysis. They run where the parameters
// are; nothing but their results comes to this process's memory.
#pragma once

#include <memory>
#include <span>

#include "backend/decoder.h"

namespace gyre {

class Gradients {
 public:
  explicit Gradients(const ModelConfig& config)
      : config_(config), backend_(open_backend(config)), set_(backend_->make_gradients()) {}
  // For a decoder that may be one of several ranks'. own: what this rank adds joins the other ranks' only through a
  // buffer that this one is added to.
  explicit Gradients(const Decoder& decoder, bool own = false)
      : config_(decoder.config()),
        backend_(decoder.shared_backend()),
        set_(own ? backend_->make_own_gradients() : backend_->make_gradients()) {}

  const ModelConfig& config() const { return config_; }
  ParameterSet& set() { return set_; }
  const ParameterSet& set() const { return set_; }

  void zero() { backend_->zero(set_); }
  void add(const Gradients& other, double scale);
  // The same with a model's parameters: what two of them differ by.
  void add(const Decoder& decoder, double scale);
  // Inner product in f64; per_parameter is empty or has one entry per set().named. On the CPU every bit is the same for
  // any number of threads.
  double dot(const Gradients& other, std::span<double> per_parameter) const;

  // dot() of all pairs a <= b of buffers, row by row of the upper triangle, each buffer read once:
  // out[pair * parameters + i].
  static void products(std::span<const Gradients* const> buffers, std::span<double> out);

  // Writes a count sketch (see Backend::sketch) of m = out.size() entries, best a prime. Inner products of sketches
  // estimate those of gradients without bias, with a standard deviation of about |a|·|b|/sqrt(m); sketches add up as
  // gradients do.
  void sketch(std::span<float> out) const { backend_->sketch(set_, out); }

  // Throws std::invalid_argument when the buffer was made for another configuration.
  void require_config(const ModelConfig& config) const;

 private:
  ModelConfig config_;
  std::shared_ptr<const Backend> backend_;
  ParameterSet set_;
};

}  // namespace gyre

// The handle of gyre.h.
struct gyre_gradients : gyre::Gradients {
  using Gradients::Gradients;
};
