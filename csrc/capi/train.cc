// Gradients, losses and the optimizer of gyre.h.
#include <algorithm>
#include <vector>

#include "capi/boundary.h"
#include "train/adamw.h"
#include "train/gradients.h"
#include "train/passes.h"

struct gyre_optimizer : gyre::capi::OfModel, gyre::AdamW {
  gyre_optimizer(gyre_model& of, const gyre_adamw_config& config) : OfModel{of.own}, AdamW(of.decoder, config) {}
};

using namespace gyre;
using namespace gyre::capi;

gyre_status gyre_gradients_new(const gyre_model* model, bool own, gyre_gradients** out) {
  return guard([&] { *out = new gyre_gradients(model->decoder, own); });
}

void gyre_gradients_free(gyre_gradients* g) { delete g; }

gyre_status gyre_gradients_zero(gyre_gradients* g) { return guard(&Gradients::zero, g); }

gyre_status gyre_gradients_add(gyre_gradients* g, const gyre_gradients* other, double scale) {
  return guard([&] { g->add(*other, scale); });
}

gyre_status gyre_gradients_add_weights(gyre_gradients* g, const gyre_model* model, double scale) {
  return guard([&] { g->add(model->decoder, scale); });
}

gyre_status gyre_gradients_dot(const gyre_gradients* a, const gyre_gradients* b, double* total, double* per_parameter) {
  return guard([&] { *total = a->dot(*b, {per_parameter, per_parameter ? a->set().named.size() : 0}); });
}

gyre_status gyre_gradients_products(const gyre_gradients* const* buffers, int32_t n, double* out) {
  return guard([&] {
    const std::vector<const Gradients*> list(buffers, buffers + n);
    const size_t pairs = list.size() * (list.size() + 1) / 2;
    Gradients::products(list, {out, pairs * list[0]->set().named.size()});
  });
}

gyre_status gyre_gradients_sketch(const gyre_gradients* g, int64_t dimension, float* out) {
  return guard([&] { g->sketch({out, static_cast<size_t>(dimension)}); });
}

gyre_status gyre_policy_backward(gyre_model* model, const gyre_batch* batch, const gyre_policy_inputs* inputs,
                                 const gyre_policy_loss* loss, const gyre_term* terms, int32_t num_terms,
                                 float* logprobs_out, float* entropies_out, gyre_policy_stats* stats,
                                 gyre_term_stats* term_stats) {
  return guard([&] {
    const PolicyResult result = policy_backward(model->decoder, batch_view(*batch), *inputs, *loss,
                                                {terms, static_cast<size_t>(num_terms)}, logprobs_out, entropies_out);
    *stats = result.stats;
    std::ranges::copy(result.terms, term_stats);
  });
}

gyre_status gyre_value_backward(gyre_model* critic, const gyre_batch* batch, const float* returns,
                                const float* old_values, const float* weights, double clip, const gyre_dropout* dropout,
                                gyre_gradients* gradients, float* values_out, gyre_value_stats* stats) {
  return guard([&] {
    *stats = value_backward(critic->decoder, batch_view(*batch), returns, old_values, weights, clip, *gradients,
                            values_out, *dropout);
  });
}

gyre_status gyre_optimizer_new(gyre_model* model, const gyre_adamw_config* config, gyre_optimizer** out) {
  return guard([&] {
    model->decoder.require_parameters("optimizer");
    *out = new gyre_optimizer(*model, *config);
  });
}

void gyre_optimizer_free(gyre_optimizer* opt) { delete opt; }

gyre_status gyre_optimizer_step(gyre_optimizer* opt, gyre_gradients* gradients, double lr, double max_norm,
                                double* grad_norm, bool* applied) {
  return guard([&] {
    const StepOutcome outcome = opt->step(*gradients, lr, max_norm);
    *grad_norm = outcome.grad_norm;
    *applied = outcome.applied;
  });
}

gyre_status gyre_gradients_begin_lane(gyre_gradients* g, int32_t lane) { return guard(begin_lane, g->set(), lane); }

gyre_status gyre_gradients_held(const gyre_gradients* g, int32_t i, gyre_held* out, gyre_tensor* tensor) {
  return guard(hand_held, g->set(), i, out, tensor);
}

gyre_status gyre_optimizer_held(const gyre_optimizer* opt, int32_t which, int32_t i, gyre_held* out,
                                gyre_tensor* tensor) {
  return guard([&] { hand_held(which == 0 ? opt->first_moment() : opt->second_moment(), i, out, tensor); });
}

int64_t gyre_optimizer_steps(const gyre_optimizer* opt) { return opt->steps(); }

gyre_status gyre_optimizer_set_steps(gyre_optimizer* opt, int64_t steps) {
  return guard(&gyre_optimizer::set_steps, opt, steps);
}

gyre_status gyre_optimizer_configure(gyre_optimizer* opt, const gyre_adamw_config* config) {
  return guard(&gyre_optimizer::configure, opt, *config);
}
