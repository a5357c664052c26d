// Models of gyre.h: creation, parameters and forward-only passes.
#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "capi/boundary.h"
#include "fsdp/peers.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "train/evaluate.h"

namespace gyre::capi {
const NamedTensor& named_parameter(const ParameterSet& set, int32_t i) {
  if (i < 0 || static_cast<size_t>(i) >= set.named.size()) {
    throw std::invalid_argument("parameter index " + std::to_string(i) + ", expected 0 to " +
                                std::to_string(set.named.size() - 1));
  }
  return set.named[i];
}

void hand_held(const ParameterSet& set, int32_t i, gyre_held* out, gyre_tensor* tensor) {
  named_parameter(set, i);
  const HeldShard held = held_shard(set, i);
  deref(out, "out") = {.first = held.first, .own_first = held.own_first, .own_count = held.own_count};
  deref(tensor, "tensor") = new_tensor_handle(held.values);
}

}  // namespace gyre::capi

using namespace gyre;
using namespace gyre::capi;

gyre_status gyre_model_new(const gyre_model_config* config, const gyre_sharding* sharding, gyre_model** out,
                           gyre_error* err) {
  return guard(err, [&] {
    require_thread_setting();
    require_isa_setting();
    const ModelConfig c(deref(config, "config"));
    if (sharding == nullptr) {
      deref(out, "out") = new gyre_model(c);
      return;
    }
    const gyre_sharding& s = *sharding;
    if (s.shard < GYRE_SHARD_NONE || s.shard > GYRE_SHARD_FULL) {
      throw std::invalid_argument("sharding: shard is " + std::to_string(s.shard) +
                                  ", expected 0 to 2 (none, optimizer, full)");
    }
    deref(out, "out") = new gyre_model(c, {.group = s.group == nullptr ? nullptr : &s.group->group,
                                           .shard = static_cast<gyre_shard>(s.shard),
                                           .replicas = s.replicas,
                                           .prefetch = s.prefetch,
                                           .narrow = s.narrow != 0,
                                           .deterministic = s.deterministic != 0,
                                           .lanes = s.lanes});
  });
}

gyre_status gyre_model_gather(gyre_model* model, gyre_error* err) {
  return guard(err, [&] { deref(model, "model").decoder.prepare(); });
}

gyre_status gyre_model_share(gyre_model* model, gyre_group* group, gyre_error* err) {
  return guard(err, [&] {
    Decoder& decoder = deref(model, "model").decoder;
    Group& all = deref(group, "group").group;
    if (all.size() > 1) decoder.share(std::make_shared<GroupPeers>(all));
  });
}

gyre_status gyre_check_share(const gyre_model_config* config, int32_t ranks, gyre_error* err) {
  return guard(err, [&] {
    const ModelConfig c(deref(config, "config"));
    validate(c);
    const Slicing slicing(c, ranks);
  });
}

void gyre_model_lanes(const gyre_model* model, int32_t* first, int32_t* count) {
  *first = model == nullptr ? 0 : model->lanes.first;
  *count = model == nullptr ? 1 : model->lanes.count;
}

gyre_status gyre_model_held(const gyre_model* model, int32_t i, gyre_held* out, gyre_tensor* tensor, gyre_error* err) {
  return guard(err, [&] { hand_held(deref(model, "model").decoder.parameters(), i, out, tensor); });
}

void gyre_model_free(gyre_model* model) { delete model; }

int32_t gyre_model_parameter_count(const gyre_model* model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->decoder.parameters().named.size());
}

gyre_status gyre_model_parameter(const gyre_model* model, int32_t i, char name[GYRE_NAME_SIZE], gyre_tensor* out,
                                 gyre_error* err) {
  return guard(err, [&] {
    const Decoder& decoder = deref(model, "model").decoder;
    decoder.require_parameters("parameter");
    const NamedTensor& parameter = named_parameter(decoder.parameters(), i);
    if (parameter.name.size() >= GYRE_NAME_SIZE) throw std::length_error("parameter name too long: " + parameter.name);
    std::memcpy(&deref(name, "name"), parameter.name.c_str(), parameter.name.size() + 1);
    deref(out, "out") = new_tensor_handle(parameter.value);
  });
}

gyre_status gyre_model_touch(gyre_model* model, gyre_error* err) {
  return guard(err, [&] {
    Decoder& decoder = deref(model, "model").decoder;
    decoder.require_parameters("touch");
    decoder.touch();
  });
}

gyre_status gyre_model_freeze(gyre_model* model, int32_t filled, gyre_error* err) {
  return guard(err, [&] {
    Decoder& decoder = deref(model, "model").decoder;
    if (filled != 0) named_parameter(decoder.parameters(), filled - 1);
    decoder.freeze(filled);
  });
}

uint64_t gyre_model_version(const gyre_model* model) { return model == nullptr ? 0 : model->decoder.version(); }

gyre_status gyre_model_device(const gyre_model* model, char* out, size_t size, gyre_error* err) {
  return guard(err, [&] {
    const std::string line = deref(model, "model").decoder.backend().describe();
    std::snprintf(&deref(out, "out"), size, "%s", line.c_str());
  });
}

gyre_status gyre_model_set_recompute(gyre_model* model, bool on, gyre_error* err) {
  return guard(err, [&] { deref(model, "model").decoder.set_recompute(on); });
}

gyre_status gyre_model_work(const gyre_model* model, gyre_work* out, gyre_error* err) {
  return guard(err, [&] { deref(out, "out") = deref(model, "model").decoder.work(); });
}

gyre_status gyre_model_copy(gyre_model* dst, const gyre_model* src, gyre_error* err) {
  return guard(err, [&] {
    Decoder& to = deref(dst, "dst").decoder;
    const Decoder& from = deref(src, "src").decoder;
    if (!(to.config() == from.config()))
      throw std::invalid_argument("model copy: the two models have different configurations");
    to.require_parameters("model copy");
    from.require_parameters("model copy");
    const auto into = held_flats(to.parameters()), values = held_flats(from.parameters());
    if (into[0].numel() != values[0].numel())
      throw std::invalid_argument("model copy: the two models are spread over ranks in different ways");
    for (size_t k = 0; k < into.size(); ++k) into[k].copy_(values[k]);
    to.touch();
  });
}

gyre_status gyre_model_score(gyre_model* model, const gyre_batch* batch, double temperature, float* logprobs,
                             float* entropies, gyre_error* err) {
  return guard(err, [&] {
    const Batch view = batch_view(batch);
    evaluate_policy(deref(model, "model").decoder, view, temperature, required(logprobs, view, "logprobs"),
                    optional(entropies, view));
  });
}

gyre_status gyre_model_values(gyre_model* model, const gyre_batch* batch, float* values, gyre_error* err) {
  return guard(err, [&] {
    const Batch view = batch_view(batch);
    evaluate_critic(deref(model, "model").decoder, view, required(values, view, "values"));
  });
}

gyre_status gyre_model_logits(gyre_model* model, const int32_t* ids, int64_t len, float* logits, gyre_error* err) {
  return guard(err, [&] {
    Decoder& decoder = deref(model, "model").decoder;
    const int64_t offsets[] = {0, len};
    const std::vector<uint8_t> mask(len > 0 ? len : 0);
    const gyre_batch one{.num_sequences = 1, .offsets = offsets, .ids = ids, .mask = mask.data()};
    const Batch view = batch_view(&one);
    validate(view, decoder.config());
    if (decoder.config().head != GYRE_HEAD_LM) throw std::invalid_argument("logits: the model has a value head");
    const at::Tensor hidden_NH = decoder.forward(pack(view.ids, view.offsets), nullptr);
    at::Tensor logits_NV = at::empty({len, decoder.config().vocab_size}, hidden_NH.options());
    decoder.logits(hidden_NH, logits_NV);
    decoder.end_passes();
    const at::Tensor host_NV = logits_NV.to(at::kCPU);
    std::memcpy(&deref(logits, "logits"), host_NV.const_data_ptr<float>(), host_NV.nbytes());
  });
}
