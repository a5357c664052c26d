// Models of gyre.h: creation, parameters and forward-only passes.
#include <ATen/ops/empty.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "capi/boundary.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "train/passes.h"

namespace gyre::capi {

const NamedTensor& named_parameter(const ParameterSet& set, int32_t i) {
  require(i >= 0 && static_cast<size_t>(i) < set.named.size(), "parameter index ", i, ", expected 0 to ",
          set.named.size() - 1);
  return set.named[i];
}

void hand_held(const ParameterSet& set, int32_t i, gyre_held* out, gyre_tensor* tensor) {
  named_parameter(set, i);
  const HeldShard held = held_shard(set, i);
  *out = held.place;
  *tensor = new at::Tensor(held.values);
}

}  // namespace gyre::capi

using namespace gyre;
using namespace gyre::capi;

gyre_status gyre_model_new(const gyre_model_config* config, const gyre_sharding* sharding, gyre_model** out) {
  return guard([&] {
    require_thread_setting();
    require_isa_setting();
    const ModelConfig c(*config);
    require(!c.int8 || (c.frozen && c.device() == "cpu" && sharding == nullptr),
            "model in int8: expected a frozen one on the cpu that is not in shards (model.base_dtype, fsdp.shard)");
    *out = make<gyre_model>(c, sharding);
  });
}

gyre_status gyre_model_adapt(gyre_model* base, const gyre_lora* lora, int32_t head, const gyre_sharding* sharding,
                             gyre_model** out) {
  return guard([&] {
    ModelConfig c = base->decoder.config();
    require(c.lora.rank == 0, "adapter: the base has an adapter itself");
    const bool some = (lora->targets & (GYRE_LORA_ALL | GYRE_LORA_EXPERTS)) != 0;
    require(lora->rank >= 1 && some && std::isfinite(lora->scale), "adapter: rank is ", lora->rank, ", targets are ",
            lora->targets, ", scale is ", lora->scale,
            ", expected a rank of at least 1, some targets and a finite scale");
    c.lora = *lora, c.head = head, c.frozen = false;
    *out = make<gyre_model>(c, sharding, base->own);
  });
}

gyre_status gyre_model_gather(gyre_model* model) { return guard(&Decoder::prepare, model->decoder); }

gyre_status gyre_model_tensor_parallel(gyre_model* model, gyre_group* group) {
  return guard([&] {
    require(model->decoder.peers() == nullptr, "the model is tensor parallel already");
    if (group->size() == 1) return;
    model->decoder.share(group->own);
  });
}

gyre_status gyre_check_tensor_parallel(const gyre_model_config* config, int32_t ranks) {
  return guard([&] {
    const ModelConfig c(*config);
    const Slicing slicing(c, ranks);
  });
}

gyre_status gyre_model_held(const gyre_model* model, int32_t i, gyre_held* out, gyre_tensor* tensor) {
  return guard([&] { hand_held(model->decoder.parameters(), i, out, tensor); });
}

void gyre_model_free(gyre_model* model) { release(model); }

int32_t gyre_model_parameter_count(const gyre_model* model) {
  return static_cast<int32_t>(model->decoder.parameters().named.size());
}

gyre_status gyre_model_parameter(const gyre_model* model, int32_t i, char name[GYRE_NAME_SIZE], gyre_tensor* out) {
  return guard([&] {
    model->decoder.require_parameters("parameter");
    const NamedTensor& parameter = named_parameter(model->decoder.parameters(), i);
    std::snprintf(name, GYRE_NAME_SIZE, "%s", parameter.name.c_str());
    *out = new at::Tensor(parameter.value);
  });
}

gyre_status gyre_model_touch(gyre_model* model) {
  return guard([&] {
    model->decoder.require_parameters("touch");
    model->decoder.touch();
  });
}

gyre_status gyre_model_freeze(gyre_model* model, int32_t filled) {
  return guard([&] {
    if (filled != 0) named_parameter(model->decoder.parameters(), filled - 1);
    model->decoder.freeze(filled);
  });
}

gyre_status gyre_model_device(const gyre_model* model, char* out, size_t size) {
  return guard([&] { std::snprintf(out, size, "%s", model->decoder.backend().describe().c_str()); });
}

gyre_status gyre_model_set_recompute(gyre_model* model, bool on) {
  return guard(&Decoder::set_recompute, model->decoder, on);
}

void gyre_model_work(const gyre_model* model, gyre_work* out) { *out = model->decoder.work(); }

gyre_status gyre_model_score(gyre_model* model, const gyre_batch* batch, double temperature, float* logprobs,
                             float* entropies, const gyre_support* likeliest) {
  return guard(
      [&] { evaluate_policy(model->decoder, batch_view(*batch), temperature, logprobs, entropies, likeliest); });
}

gyre_status gyre_model_values(gyre_model* model, const gyre_batch* batch, float* values) {
  return guard([&] { evaluate_critic(model->decoder, batch_view(*batch), values); });
}

gyre_status gyre_model_logits(gyre_model* model, const int32_t* ids, int64_t len, float* logits) {
  return guard([&] {
    Decoder& decoder = model->decoder;
    const int64_t offsets[] = {0, len};
    const std::vector<uint8_t> mask(len);
    const Batch batch{.offsets = offsets, .ids = {ids, static_cast<size_t>(len)}, .mask = mask};
    validate(batch, decoder.config());
    require(decoder.config().head == GYRE_HEAD_LM, "logits: the model has a value head");
    const at::Tensor hidden_NH = decoder.forward(pack(batch.ids, batch.offsets), nullptr);
    at::Tensor logits_NV = at::empty({len, decoder.config().vocab_size}, hidden_NH.options());
    decoder.logits(hidden_NH, logits_NV);
    decoder.end_passes();
    const at::Tensor host_NV = logits_NV.to(at::kCPU);
    std::memcpy(logits, host_NV.const_data_ptr<float>(), host_NV.nbytes());
  });
}
