// Gradients, losses and the optimizer of gyre.h.
#include <algorithm>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "train/loss.h"
#include "train/policy.h"
#include "train/value.h"

using namespace gyre;
using namespace gyre::capi;

namespace {

const ParameterSet& moment_of(const AdamW& adamw, int32_t which) {
  if (which != 0 && which != 1) {
    throw std::invalid_argument("optimizer state: which is " + std::to_string(which) +
                                ", expected 0 (first) or 1 (second moment)");
  }
  return which == 0 ? adamw.first_moment() : adamw.second_moment();
}

}  // namespace

gyre_status gyre_gradients_new(const gyre_model* model, bool own, gyre_gradients** out, gyre_error* err) {
  return guard(err, [&] { deref(out, "out") = new gyre_gradients(deref(model, "model").decoder, own); });
}

void gyre_gradients_free(gyre_gradients* g) { delete g; }

gyre_status gyre_gradients_zero(gyre_gradients* g, gyre_error* err) {
  return guard(err, [&] { deref(g, "gradients").gradients.zero(); });
}

gyre_status gyre_gradients_add(gyre_gradients* g, const gyre_gradients* other, double scale, gyre_error* err) {
  return guard(err, [&] { deref(g, "gradients").gradients.add(deref(other, "other gradients").gradients, scale); });
}

gyre_status gyre_gradients_dot(const gyre_gradients* a, const gyre_gradients* b, double* total, double* per_parameter,
                               gyre_error* err) {
  return guard(err, [&] {
    const Gradients& left = deref(a, "gradients").gradients;
    const std::span<double> parts =
        per_parameter == nullptr ? std::span<double>() : std::span<double>(per_parameter, left.set().named.size());
    deref(total, "total") = left.dot(deref(b, "other gradients").gradients, parts);
  });
}

gyre_status gyre_gradients_products(const gyre_gradients* const* buffers, int32_t n, double* out, gyre_error* err) {
  return guard(err, [&] {
    if (n < 1) throw std::invalid_argument("gradients: got " + std::to_string(n) + " buffers, expected at least 1");
    std::vector<const Gradients*> list;
    for (int32_t i = 0; i < n; ++i) list.push_back(&deref((&deref(buffers, "buffers"))[i], "gradients").gradients);
    const size_t pairs = static_cast<size_t>(n) * (n + 1) / 2;
    Gradients::products(list, {&deref(out, "out"), pairs * list[0]->set().named.size()});
  });
}

gyre_status gyre_gradients_sketch(const gyre_gradients* g, int64_t dimension, float* out, gyre_error* err) {
  return guard(err, [&] {
    if (dimension < 1) {
      throw std::invalid_argument("gradients: got a sketch dimension of " + std::to_string(dimension) +
                                  ", expected at least 1");
    }
    deref(g, "gradients").gradients.sketch({&deref(out, "out"), static_cast<size_t>(dimension)});
  });
}

gyre_status gyre_policy_backward(gyre_model* model, const gyre_batch* batch, const gyre_policy_inputs* inputs,
                                 const gyre_policy_loss* loss, const gyre_term* terms, int32_t num_terms,
                                 float* logprobs_out, float* entropies_out, gyre_policy_stats* stats,
                                 gyre_term_stats* term_stats, gyre_error* err) {
  return guard(err, [&] {
    const Batch view = batch_view(batch);
    const gyre_policy_inputs& in = deref(inputs, "inputs");
    const gyre_policy_loss& settings = deref(loss, "loss");
    PolicyInputs spans{.old_logprobs = {},
                       .advantages = optional(in.advantages, view),
                       .ref_logprobs = {},
                       .weights = optional(in.weights, view)};
    if (settings.objective == GYRE_POLICY_PPO) spans.old_logprobs = required(in.old_logprobs, view, "old_logprobs");
    if (has_kl(settings)) spans.ref_logprobs = required(in.ref_logprobs, view, "ref_logprobs");
    std::vector<Term> list;
    for (int32_t i = 0; i < num_terms; ++i) {
      const gyre_term& term = (&deref(terms, "terms"))[i];
      list.push_back({.name = &deref(term.name, "a term's name"),
                      .kind = static_cast<gyre_term_kind>(term.kind),
                      .advantages = optional(term.advantages, view),
                      .weights = optional(term.weights, view),
                      .into = term.into == nullptr ? nullptr : &term.into->gradients});
    }
    const PolicyResult result =
        policy_backward(deref(model, "model").decoder, view, spans, settings, list,
                        {.logprobs = optional(logprobs_out, view), .entropies = optional(entropies_out, view)});
    deref(stats, "stats") = result.stats;
    if (!list.empty()) std::ranges::copy(result.terms, &deref(term_stats, "term_stats"));
  });
}

gyre_status gyre_value_backward(gyre_model* critic, const gyre_batch* batch, const float* returns,
                                const float* old_values, const float* weights, double clip, gyre_gradients* gradients,
                                float* values_out, gyre_value_stats* stats, gyre_error* err) {
  return guard(err, [&] {
    const Batch view = batch_view(batch);
    const ValueInputs inputs{
        .returns = required(returns, view, "returns"),
        .old_values = clip > 0 ? required(old_values, view, "old_values") : std::span<const float>(),
        .weights = required(weights, view, "weights"),
        .clip = clip};
    deref(stats, "stats") = value_backward(deref(critic, "critic").decoder, view, inputs,
                                           deref(gradients, "gradients").gradients, optional(values_out, view));
  });
}

gyre_status gyre_optimizer_new(gyre_model* model, const gyre_adamw_config* config, gyre_optimizer** out,
                               gyre_error* err) {
  return guard(err, [&] {
    Decoder& decoder = deref(model, "model").decoder;
    decoder.require_parameters("optimizer");
    deref(out, "out") = new gyre_optimizer(decoder, deref(config, "config"));
  });
}

void gyre_optimizer_free(gyre_optimizer* opt) { delete opt; }

gyre_status gyre_optimizer_step(gyre_optimizer* opt, gyre_gradients* gradients, double lr, double max_norm,
                                double* grad_norm, bool* applied, gyre_error* err) {
  return guard(err, [&] {
    const StepOutcome outcome =
        deref(opt, "optimizer").adamw.step(deref(gradients, "gradients").gradients, lr, max_norm);
    deref(grad_norm, "grad_norm") = outcome.grad_norm;
    deref(applied, "applied") = outcome.applied;
  });
}

gyre_status gyre_gradients_begin_lane(gyre_gradients* g, int32_t lane, gyre_error* err) {
  return guard(err, [&] { begin_lane(deref(g, "gradients").gradients.set(), lane); });
}

gyre_status gyre_gradients_held(const gyre_gradients* g, int32_t i, gyre_held* out, gyre_tensor* tensor,
                                gyre_error* err) {
  return guard(err, [&] { hand_held(deref(g, "gradients").gradients.set(), i, out, tensor); });
}

gyre_status gyre_optimizer_held(const gyre_optimizer* opt, int32_t which, int32_t i, gyre_held* out,
                                gyre_tensor* tensor, gyre_error* err) {
  return guard(err, [&] { hand_held(moment_of(deref(opt, "optimizer").adamw, which), i, out, tensor); });
}

int64_t gyre_optimizer_steps(const gyre_optimizer* opt) { return opt == nullptr ? 0 : opt->adamw.steps(); }

gyre_status gyre_optimizer_set_steps(gyre_optimizer* opt, int64_t steps, gyre_error* err) {
  return guard(err, [&] { deref(opt, "optimizer").adamw.set_steps(steps); });
}
