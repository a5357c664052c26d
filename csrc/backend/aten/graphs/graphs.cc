// CUDA graphs, in a library of their own (libgyre_graphs.so): it is linked against libtorch's CUDA half, which
// libgyre.so loads only where there is a GPU, and compiled where CUDA's headers are.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "backend/aten/decode.h"

namespace gyre {
namespace {

class CudaRecorder : public Recorder {
 public:
  explicit CudaRecorder(int device)
      : device_(static_cast<c10::DeviceIndex>(device)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)),
        pool_(at::cuda::graph_pool_handle()) {}

  std::function<void()> record(const std::function<void()>& operations) override {
    const c10::cuda::CUDAGuard on_device(device_);
    c10::cuda::getCurrentCUDAStream(device_).synchronize();  // what is read has been computed
    const c10::cuda::CUDAStreamGuard on_stream(stream_);     // the default stream cannot be recorded
    operations();
    stream_.synchronize();
    const auto graph = std::make_shared<at::cuda::CUDAGraph>();
    // Other threads go on using the device meanwhile.
    graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      operations();
    } catch (...) {
      try {
        graph->capture_end();
      } catch (...) {  // it was broken by what is thrown on
      }
      throw;
    }
    graph->capture_end();
    return [graph] { graph->replay(); };
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
