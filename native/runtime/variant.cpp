// When a region is fused, and when it is not worth it: observe, decide, execute.
#include <ATen/Parallel.h>

#include <algorithm>

#include "common/policy.h"
#include "runtime/fragment.h"

namespace ae {
namespace {

constexpr uint32_t kMaxViolations = 3;

} // namespace

Plan& Variant::choose(const std::vector<Parameter>& numbers) {
  ++launches;
  if ((stage == Stage::Fused || stage == Stage::Compiling) && fused->threads != at::get_num_threads()) {
    stage = Stage::Cold;
  }
  if (stage == Stage::Cold && policy(Policy::Fuse) != 0 && static_cast<int64_t>(launches) > policy(Policy::FuseAfter)) {
    input.numbers.values = &numbers;
    fused = plan_fused(input);
    stage = fused ? Stage::Compiling : Stage::Unfused;
    if (fused && policy(Policy::VerifyPlans) != 0) {
      std::string wrong = verify(*fused, input);
      TORCH_INTERNAL_ASSERT(wrong.empty(), wrong);
    }
    if (fused && policy(Policy::CompareLaunches) == 0) {
      for (auto& unit : fused->units) {
        unit.compared = true;
      }
      for (auto& tiles : fused->tiles) {
        tiles.stage = Tiles::Stage::Used;
      }
    }
    input.numbers.values = nullptr;
    fused_launches = 0;
    fused_ns = ~uint64_t(0);
  }
  if (stage == Stage::Compiling && fused->all_ready()) {
    stage = Stage::Fused;
  }
  if ((stage == Stage::Compiling || stage == Stage::Fused) && fused_launches <= 1 && fused->any_failed()) {
    stage = Stage::Cold; // plan again, without those
  }
  if (stage != Stage::Fused || policy(Policy::Fuse) == 0) {
    return *plain;
  }
  if (const Guard* guard = fused->violated(numbers); C10_UNLIKELY(guard != nullptr)) {
    if (++violations >= kMaxViolations) { // it is no constant: plan for any value
      input.numbers.varying.push_back(guard->parameter);
      violations = 0;
      stage = Stage::Cold;
    }
    return *plain;
  }
  return *fused;
}

void Variant::observe(const Plan& plan, uint64_t ns) {
  if (&plan == plain.get()) {
    plain_ns = std::min(plain_ns, ns);
    return;
  }
  fused_ns = std::min(fused_ns, ns);
  if (static_cast<int64_t>(++fused_launches) == policy(Policy::ProfitLaunches) && fused_ns > plain_ns) {
    stage = Stage::Unfused;
  }
}

const char* Variant::stage_name() const {
  constexpr const char* names[] = {"cold", "compiling", "fused", "unfused"};
  return names[static_cast<size_t>(stage)];
}

const Plan& Variant::current() const {
  return stage == Stage::Fused ? *fused : *plain;
}

} // namespace ae
