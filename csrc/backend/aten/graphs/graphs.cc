// CUDA graphs, in a library of their own (libgyre_graphs.so): it is linked against libtorch's CUDA half, which
// libgyre.so loads only where there is a GPU, and compiled where CUDA's headers are.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "backend/aten/graphs/recorder.h"

namespace gyre {
namespace {

class CudaRecording : public Recording {
 public:
  at::cuda::CUDAGraph& graph() { return graph_; }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaRecorder : public Recorder {
 public:
  explicit CudaRecorder(int device)
      : device_(static_cast<c10::DeviceIndex>(device)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)),
        pool_(at::cuda::graph_pool_handle()) {}

  std::unique_ptr<Recording> record(const std::function<void()>& operations) override {
    const c10::cuda::CUDAGuard on_device(device_);
    c10::cuda::getCurrentCUDAStream(device_).synchronize();  // what is read has been computed
    const c10::cuda::CUDAStreamGuard on_stream(stream_);     // the default stream cannot be recorded
    operations();
    stream_.synchronize();
    auto recording = std::make_unique<CudaRecording>();
    // Other threads go on using the device meanwhile.
    recording->graph().capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      operations();
    } catch (...) {
      try {
        recording->graph().capture_end();
      } catch (...) {  // it was broken by what is thrown on
      }
      throw;
    }
    recording->graph().capture_end();
    return recording;
  }

 private:
  c10::DeviceIndex device_;
  c10::cuda::CUDAStream stream_;
  at::cuda::MempoolId_t pool_;
};

}  // namespace
}  // namespace gyre

extern "C" __attribute__((visibility("default"))) gyre::Recorder* gyre_make_recorder(int device) {
  return new gyre::CudaRecorder(device);
}
