// The device that is none finds what a GPU would: each test is a fault that the tensor backend could have.
#include <ATen/ATen.h>

#include "backend/aten/network.h"
#include "backend_fixture.h"
#include "tests/fake/device.h"

namespace gyre::testing {
namespace {

class FakeDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = absence("fake"); !why.empty()) GTEST_SKIP() << why;
    fake::start();
  }
  static at::TensorOptions on(int device, at::ScalarType type = at::kFloat) {
    return at::TensorOptions().device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device)).dtype(type);
  }
};

template <typename Body>
std::string thrown_by(Body&& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return std::string(e.what()).substr(0, std::string_view(e.what()).find('\n'));
  }
  return "nothing was thrown";
}

#define EXPECT_THROWS(body, text)                                            \
  do {                                                                       \
    const std::string thrown = thrown_by([&] { static_cast<void>(body); });  \
    EXPECT_NE(thrown.find(text), std::string::npos) << #body ": " << thrown; \
  } while (false)

// A decoding step of one row, twice: the second time it is recorded. `fault` is called in the model's pass.
void decode(const at::TensorOptions& options, const std::function<void(const at::Tensor& ids_R)>& fault) {
  ModelConfig config = llama_config();
  config.set_device("fake");
  const auto backend = open_backend(config);  // whose recordings these are
  const auto kv = backend->make_pages(1);
  kv->decode_in_fixed_shapes(true);
  AngleTable angles(config, {options.device(), at::kFloat});
  const std::vector<int32_t> ids{5}, pages{0};
  for (int64_t position = 3; position < 6; ++position) {
    const Pass pass = inference_pass(1, std::vector<RowSpan>{{0, 1, position, pages}});
    dynamic_cast<AtenPages&>(*kv).steps()->infer(ids, pass, *decode_shape(pass), angles, 1,
                                                 [&](const at::Tensor& ids_R, const AtenPass&) {
                                                   fault(ids_R);
                                                   return ids_R.unsqueeze(1).to(at::kFloat);
                                                 });
  }
}

TEST_F(FakeDevice, AHostThatReadsOrWritesDies) {
  const at::Tensor x = at::ones({4}, on(0));
  const auto died = ::testing::ExitedWithCode(139);
  EXPECT_EXIT(static_cast<void>(*static_cast<volatile const float*>(x.const_data_ptr<float>())), died,
              "the host touched device memory; stack:");
  EXPECT_EXIT(*static_cast<volatile float*>(x.mutable_data_ptr<float>()) = 1, died, "the host touched device memory");
  EXPECT_EXIT(
      {
        std::vector<float> values(4);
        std::memcpy(values.data(), x.const_data_ptr(), x.nbytes());
      },
      died, "the host touched device memory");
  EXPECT_EQ(x.sum().item<float>(), 4);  // operations may
}

TEST_F(FakeDevice, TensorsOfSeveralDevicesThrow) {
  const at::Tensor x = at::ones({4, 3}, on(0)), other = at::ones({4, 3}, on(1)), host = at::ones({4, 3});
  const at::Tensor rows = at::zeros({2}, at::kLong);
  const char* const text = "tensors to be on the same device";  // as libtorch says it for a GPU
  EXPECT_THROWS(x + host, text);
  EXPECT_THROWS(x + other, text);
  EXPECT_THROWS(x.index_select(0, rows), text);
  EXPECT_THROWS(x.index_select(0, rows.to(other.device())), text);
  EXPECT_THROWS(x.index({rows}), text);
  EXPECT_THROWS(at::mm(x, host.t()), text);
  EXPECT_THROWS(at::cat({x, host}), text);
  EXPECT_EQ((x + at::scalar_tensor(2.0)).sum().item<float>(), 36);  // one number may be the host's
  EXPECT_TRUE(at::equal(other.to(at::kCPU), host));
}

// A tensor without a number of its device is on the current one.
TEST_F(FakeDevice, AMissingGuardThrows) {
  const at::Tensor x = at::ones({4}, on(1));
  const auto current = at::TensorOptions().device(at::kPrivateUse1);
  EXPECT_THROWS(x + at::arange(4, current), "found at least two devices, fake:1 and fake:0");
  const c10::DeviceGuard guard(x.device());
  EXPECT_EQ((x + at::arange(4, current)).sum().item<float>(), 10);
}

TEST_F(FakeDevice, WhatNothingWroteIsNotANumber) {
  const at::Tensor fresh = at::empty({3, 2}, on(0));
  fresh.narrow(0, 0, 2).zero_();
  EXPECT_TRUE(fresh.narrow(0, 0, 2).to(at::kCPU).eq(0).all().item<bool>());
  EXPECT_TRUE(fresh.narrow(0, 2, 1).to(at::kCPU).isnan().all().item<bool>());
  EXPECT_EQ(at::empty({1}, on(0, at::kLong)).item<int64_t>(), -1);
  at::Tensor once = at::full({1000}, 7.0, on(0));
  once.reset();
  EXPECT_TRUE(at::empty({1000}, on(0)).to(at::kCPU).isnan().all().item<bool>());  // freed memory, too
}

// Indices that nothing wrote are -1.
TEST_F(FakeDevice, AnUnwrittenIndexThrows) {
  const at::Tensor x = at::ones({4, 3}, on(0));
  EXPECT_THROWS(x.index_select(0, at::empty({2}, on(0, at::kLong))), "index out of range");
}

TEST_F(FakeDevice, TheLedgerCountsWaits) {
  const at::Tensor x = at::arange(6, on(0));
  const auto waits = [&](const std::function<void()>& body) {
    const fake::Ledger before = fake::ledger();
    body();
    return (fake::ledger() - before).waits;
  };
  EXPECT_EQ(waits([&] { x.mul(2).add_(1); }), 0);
  EXPECT_EQ(waits([&] { x[2].item<float>(); }), 1);
  EXPECT_EQ(waits([&] { x.index({x.gt(2)}); }), 1);
  EXPECT_EQ(waits([&] { x.gt(2).nonzero(); }), 1);
  EXPECT_EQ(waits([&] { x.to(at::kCPU); }), 1);
  EXPECT_EQ(waits([&] { at::ones({3}).to(x.device()); }), 1);  // from memory that is not pinned
  EXPECT_EQ(waits([&] { upload(at::ones({3}), x.device()); }), 0);
}

TEST_F(FakeDevice, ARecordingThrowsWhereTheHostWaitsOrCopies) {
  const auto options = on(0, at::kLong);
  const char* const what = "as a CUDA graph: fake device: not permitted while recording: ";
  decode(options, [](const at::Tensor&) {});  // without a fault
  EXPECT_THROWS(decode(options, [](const at::Tensor& ids) { ids.sum().item(); }), c10::str(what, "reading a value"));
  EXPECT_THROWS(decode(options, [](const at::Tensor& ids) { ids.to(at::kCPU); }), c10::str(what, "a copy to the host"));
  EXPECT_THROWS(decode(options, [](const at::Tensor& ids) { at::ones({2}).to(ids.device()); }),
                c10::str(what, "a copy to the device"));
  EXPECT_THROWS(decode(options, [](const at::Tensor& ids) { ids.nonzero(); }), c10::str(what, "aten::nonzero"));
  EXPECT_THROWS(decode(options, [](const at::Tensor& ids) { at::ones({2}, on(1)) + ids; }),
                "tensors to be on the same device");
}

TEST_F(FakeDevice, ARecordingThrowsWhereItsMemoryIsKept) {
  at::Tensor kept;
  EXPECT_THROWS(decode(on(0, at::kLong), [&](const at::Tensor& ids) { kept = ids + 1; }), "1 tensors (512 bytes) that");
}

TEST_F(FakeDevice, AReplayThrowsWhereWhatItReadsHasGone) {
  auto weight = std::make_unique<at::Tensor>(at::ones({1}, on(0, at::kLong)));
  int passes = 0;
  EXPECT_THROWS(decode(on(0, at::kLong),
                       [&](const at::Tensor& ids) {
                         ids + *weight;
                         // Not recorded, then before the recording, then in it: the third step replays.
                         if (++passes == 3) weight = std::make_unique<at::Tensor>();
                       }),
                "memory that has been freed since it was recorded");
}

// What only the host computes is not computed again.
TEST_F(FakeDevice, AReplayComputesWhereItWasRecorded) {
  const at::Tensor x = at::zeros({3}, on(0)), y = at::empty({3}, on(0));
  const std::unique_ptr<Recorder> recorder = fake::recorder();
  int calls = 0;
  const auto replay = recorder->record([&] {
    ++calls;
    y.copy_(x.mul(2).add_(x.index_select(0, at::arange(3, on(0, at::kLong)))));
  });
  EXPECT_EQ(calls, 2);
  for (const double value : {1.0, 5.0}) {
    x.fill_(value);
    replay();
    EXPECT_EQ(y.sum().item<double>(), 9 * value);
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace gyre::testing
