#include "model/config.h"
#include "train/losses/loss.h"

namespace gyre {

extern const PolicyLoss kPpo, kNll, kDecoupledPpo, kGspo, kCispo, kSapo, kDppo, kClipCov, kKlCov, kImportanceSampling,
    kDro;

namespace {

constexpr const PolicyLoss* kLosses[] = {&kPpo,     &kNll,   &kDecoupledPpo,       &kGspo, &kCispo, &kSapo, &kDppo,
                                         &kClipCov, &kKlCov, &kImportanceSampling, &kDro};
constexpr auto kCount = static_cast<int32_t>(std::size(kLosses));

}  // namespace

const PolicyLoss& policy_loss(int32_t index) {
  require(index >= 0 && index < kCount, "policy loss: index is ", index, ", expected 0 to ", kCount - 1);
  return *kLosses[index];
}

}  // namespace gyre

gyre_loss gyre_loss_at(int32_t i) {
  if (i < 0 || i >= gyre::kCount) return {};
  return *gyre::kLosses[i];
}
