// Operations of the device: libtorch's own of the CPU over the same memory, once it is clear that a GPU would take the
// arguments. What a GPU does with one kernel counts as one launch.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <set>
#include <string>

#include "tests/fake/device.h"

namespace gyre::fake {
namespace {

using Values = std::vector<c10::IValue>;

template <typename Body>
void each_tensor(const c10::IValue& v, Body&& body) {
  if (v.isTensor() && v.toTensor().defined()) body(v.toTensor());
  if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector()) body(t);
  }
  if (v.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector()) {
      if (t && t->defined()) body(*t);
    }
  }
}

c10::IValue opened(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() ? c10::IValue(open(v.toTensor())) : v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& t : v.toTensorVector()) all.push_back(open(t));
    return all;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> all;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector()) {
      all.push_back(t && t->defined() ? std::optional(open(*t)) : t);
    }
    return all;
  }
  return v.isDevice() ? c10::IValue(c10::Device(c10::kCPU)) : v;
}

constexpr char kMixed[] = "fake device: expected all tensors to be on the same device: ";

// Where an operation runs. Throws for tensors of several devices; a single number may be the host's.
c10::Device place_of(const std::string& name, const Values& arguments) {
  std::optional<c10::Device> device;
  for (const c10::IValue& v : arguments) {
    each_tensor(v, [&](const at::Tensor& t) {
      if (!ours(t)) return;
      TORCH_CHECK(!device || *device == t.device(), kMixed, name, " has ", *device, " and ", t.device());
      device = t.device();
    });
  }
  for (const c10::IValue& v : arguments) {
    if (v.isDevice() && !device) device = v.toDevice();
  }
  for (const c10::IValue& v : arguments) {
    each_tensor(v, [&](const at::Tensor& t) {
      TORCH_CHECK(ours(t) || t.dim() == 0, kMixed, name, " has ", t.device(), " of shape ", t.sizes());
    });
  }
  return device ? *device : c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice();
}

// Counts, and throws what may not be recorded.
void account(const std::string& name, const Values& arguments) {
  static const std::set<std::string> kWaits{"aten::nonzero",
                                            "aten::equal",
                                            "aten::is_nonzero",
                                            "aten::_unique2",
                                            "aten::masked_select",
                                            "aten::repeat_interleave",
                                            "aten::unique_consecutive",
                                            "aten::bincount"};
  bool waits = kWaits.contains(name);
  if (name == "aten::_index_put_impl_") {  // by a mask: its elements are counted
    for (const c10::IValue& v : arguments) {
      if (!v.isOptionalTensorList() && !v.isTensorList()) continue;
      each_tensor(v,
                  [&](const at::Tensor& t) { waits |= t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; });
    }
  }
  count_launch(name);
  if (!waits) return;
  refuse_recording(name + " waits for the device");
  count_wait(name);
}

Values run(const c10::OperatorHandle& op, const Values& host) {
  torch::jit::Stack stack = host;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack;
}

at::Tensor like(const at::Tensor& host, c10::Device device) {
  return at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
}

// New results on the device, and the tensors over their memory in order.
c10::IValue take(const c10::IValue& v, c10::Device device, std::vector<at::Tensor>& targets) {
  const auto one = [&](const at::Tensor& host) {
    if (!host.defined()) return host;
    at::Tensor t = like(host, device);
    targets.push_back(open(t).copy_(host));
    return t;
  };
  if (v.isTensor()) return one(v.toTensor());
  std::vector<at::Tensor> all;
  for (const at::Tensor& host : v.toTensorVector()) all.push_back(one(host));
  return all;
}

void put(const Values& results, const std::vector<at::Tensor>& targets) {
  size_t next = 0;
  for (const c10::IValue& r : results) {
    each_tensor(r, [&](const at::Tensor& host) {
      if (next < targets.size()) targets[next++].copy_(host);
    });
  }
}

bool writes(const c10::AliasInfo* alias) { return alias != nullptr && alias->isWrite(); }

// One call of an operation that has no kernel of its own.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Values arguments)
      : op_(op),
        schema_(op.schema()),
        name_(schema_.name()),
        arguments_(std::move(arguments)),
        device_(place_of(name_, arguments_)) {}

  Values results() {
    account(name_, arguments_);
    const Values results = run_now();
    Values out;
    for (size_t r = 0; r < schema_.returns().size(); ++r) out.push_back(result(r, results));
    if (recording != nullptr) {
      Values host;
      for (const c10::IValue& v : arguments_) host.push_back(opened(v));
      recording->calls.emplace_back(
          [op = op_, host = std::move(host), targets = targets_] { put(run(op, host), targets); });
    }
    return out;
  }

 private:
  // As on a GPU, nothing is written while it is recorded. New results are computed all the same, to learn their shapes.
  Values run_now() {
    Values host;
    bool written = false;
    std::vector<std::pair<at::Tensor, at::Tensor>> growing;  // what has no elements yet, and what stands for it
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const bool target = writes(schema_.arguments()[i].alias_info());
      written |= target;
      if (target && arguments_[i].isTensor() && ours(arguments_[i].toTensor()) &&
          arguments_[i].toTensor().numel() == 0) {
        const at::Tensor& t = arguments_[i].toTensor();
        growing.emplace_back(t, at::empty({0}, at::TensorOptions().dtype(t.dtype())));
        host.emplace_back(growing.back().second);
      } else {
        host.push_back(opened(arguments_[i]));
      }
    }
    if (recording != nullptr && written && growing.empty()) return {};
    Values results = run(op_, host);
    for (const auto& [t, stand_in] : growing) {
      if (stand_in.sizes() != t.sizes()) t.resize_(stand_in.sizes());
      if (stand_in.numel() > 0) open(t).copy_(stand_in);
    }
    return results;
  }

  c10::IValue result(size_t r, const Values& results) {
    const auto* const alias = schema_.returns()[r].alias_info();
    if (writes(alias)) {
      for (size_t a = 0; a < arguments_.size(); ++a) {
        const auto* const other = schema_.arguments()[a].alias_info();
        if (other != nullptr && *other == *alias) return arguments_[a];
      }
    }
    TORCH_CHECK(alias == nullptr, "fake device: ", name_, " returns a view, and the device does not know it");
    TORCH_CHECK(!results.empty(), "fake device: ", name_, " writes and returns something new, which is not recorded");
    if (results[r].isTensor() || results[r].isTensorList()) return take(results[r], device_, targets_);
    refuse_recording(name_ + " gives the host a value");
    count_wait(name_);
    return results[r];
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  const std::string name_;
  const Values arguments_;
  const c10::Device device_;
  std::vector<at::Tensor> targets_;  // over the memory of new results
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  for (c10::IValue& v : Call(op, std::move(arguments)).results()) stack->push_back(std::move(v));
}

// An operation that a GPU has a kernel of its own for, and the CPU under another name.
template <typename Body>
std::vector<at::Tensor> launch(const std::string& name, const std::vector<at::Tensor>& arguments, Body body) {
  const c10::Device device = place_of(name, Values(arguments.begin(), arguments.end()));
  count_launch(name);
  std::vector<at::Tensor> host, out, targets;
  for (const at::Tensor& t : arguments) host.push_back(open(t));
  for (const at::Tensor& t : body(host)) {
    out.push_back(t.defined() ? like(t, device) : t);
    if (t.defined()) targets.push_back(open(out.back()).copy_(t));
  }
  if (recording != nullptr) {
    recording->calls.emplace_back([host, targets, body] {
      size_t next = 0;
      for (const at::Tensor& t : body(host)) {
        if (t.defined()) targets[next++].copy_(t);
      }
    });
  }
  return out;
}

std::optional<at::Tensor> some(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& bias,
       double dropout, bool causal, bool, std::optional<double> scale) {
  const auto body = [=](const std::vector<at::Tensor>& t) {
    auto [out, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(t[0], t[1], t[2], dropout, causal, some(t[3]), scale);
    return std::vector<at::Tensor>{out, sums};
  };
  const auto out = launch("attention", {q, k, v, bias.value_or(at::Tensor())}, body);
  const at::Tensor none;
  return {out[0], out[1], none, none, q.size(2), k.size(2), none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attend_backward(
    const at::Tensor& d, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
    std::array<bool, 4>, const at::Tensor& out, const at::Tensor& sums, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const auto body = [=](const std::vector<at::Tensor>& t) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(t[0], t[1], t[2], t[3], t[5], t[6],
                                                                                 dropout, causal, some(t[4]), scale);
    return std::vector<at::Tensor>{dq, dk, dv};
  };
  const auto all = launch("attention backward", {d, q, k, v, bias, out, sums}, body);
  return {all[0], all[1], all[2], at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> normalize(const at::Tensor& x, at::IntArrayRef shape,
                                             const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  TORCH_CHECK(shape.size() == 1 && eps, "fake device: _fused_rms_norm is known over one dimension, with an epsilon");
  const auto body = [e = *eps](const std::vector<at::Tensor>& t) {
    const at::Tensor inverse = at::rsqrt(at::pow(t[0], 2).mean(-1, /*keepdim=*/true).add_(e));
    at::Tensor out = t[0] * inverse;
    if (t[1].defined()) out.mul_(t[1]);
    return std::vector<at::Tensor>{out, inverse};
  };
  const auto out = launch("norm", {x, weight.value_or(at::Tensor())}, body);
  return {out[0], out[1]};
}

std::tuple<at::Tensor, at::Tensor> normalize_backward(const at::Tensor& d, const at::Tensor& x, at::IntArrayRef,
                                                      const at::Tensor& inverse,
                                                      const std::optional<at::Tensor>& weight, std::array<bool, 2>) {
  const auto body = [](const std::vector<at::Tensor>& t) {
    const at::Tensor unit = t[1] * t[2], d_unit = t[3].defined() ? t[0] * t[3] : t[0];
    const at::Tensor d_x = (d_unit - unit * (d_unit * unit).mean(-1, /*keepdim=*/true)) * t[2];
    return std::vector<at::Tensor>{d_x, t[3].defined() ? (t[0] * unit).reshape({-1, t[3].numel()}).sum(0) : t[3]};
  };
  const auto out = launch("norm backward", {d, x, inverse, weight.value_or(at::Tensor())}, body);
  return {out[0], out[1]};
}

int64_t choose_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::overrideable);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", &attend);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attend_backward);
  m.impl("_fused_rms_norm", &normalize);
  m.impl("_fused_rms_norm_backward", &normalize_backward);
}

}  // namespace
}  // namespace gyre::fake

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &gyre::fake::choose_attention)
}
