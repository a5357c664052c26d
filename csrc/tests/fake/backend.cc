// model.device = "fake" and "fake:1": the tensor backend on the device that is none, and its recordings.
#include <ATen/ATen.h>

#include "backend/aten/cuda.h"
#include "backend/aten/network.h"
#include "tests/fake/device.h"

namespace gyre::fake {
namespace {

class FakeRecorder : public Recorder {
 public:
  std::function<void()> record(const std::function<void()>& operations) override {
    operations();
    const auto recorded = std::make_shared<Recording>();
    struct Scope {
      explicit Scope(Recording* r) { recording = r; }
      ~Scope() { recording = nullptr; }
    };
    {
      const Scope scope(recorded.get());
      operations();
    }
    const auto [bytes, count] = recorded->pool.kept();
    TORCH_CHECK(count == 0, "fake device: ", count, " tensors (", bytes,
                " bytes) that were made while recording are kept: the next recording's replay writes over them");
    recorded->pool.poison();  // what a replay does not compute must show
    return [recorded] {
      require_outside(*recorded);
      count_launch("replay");
      for (const auto& call : recorded->calls) call();
    };
  }
};

Recorder* make_recorder(int) { return new FakeRecorder; }

const BackendKind kFake(
    "fake, fake:1", 1, [](const ModelConfig& c) { return c.device() == "fake" || c.device() == "fake:1"; },
    [](const ModelConfig& c) {
      if (cuda_state().devices > 0) throw std::invalid_argument("model device: \"fake\" is for machines without a GPU");
      start();
      const at::Device device(at::kPrivateUse1, c.device() == "fake" ? 0 : 1);
      const bool wide = c.compute == GYRE_COMPUTE_F32;
      return make_aten_backend(c, {device, wide ? at::kFloat : at::kBFloat16, &make_recorder});
    });

}  // namespace

std::unique_ptr<Recorder> recorder() { return std::make_unique<FakeRecorder>(); }

}  // namespace gyre::fake
