// Running units block of rows by block of rows: compare it once, time it a few times, then use it or leave it.
#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "device/device.h"
#include "runtime/fragment.h"
#include "runtime/stats.h"
#include "runtime/tile_run.h"

namespace ae {
namespace {

constexpr uint32_t kTimings = 3; // of each way, after the comparison

} // namespace

void Fragment::run_tiles(Tiles& tiles, Plan& plan, Region& region, std::shared_ptr<const Fault>& fault) {
  auto units = [&] {
    for (uint32_t u = tiles.first; u < tiles.first + tiles.count; ++u) {
      run_unit(plan.units[u], plan, region, fault);
    }
  };
  auto end = plan.units.begin() + tiles.first + tiles.count;
  bool compared = std::all_of(plan.units.begin() + tiles.first, end, [](const auto& u) { return u.compared || u.loops.empty(); });
  if (tiles.stage == Tiles::Stage::Refused || !compared || !has_arena_ || !tainted_.empty()) {
    return units();
  }
  auto before = fault;
  uint64_t start = now_ns();
  if (tiles.stage == Tiles::Stage::New || (tiles.stage == Tiles::Stage::Timed && tiles.timed % 2 == 1)) {
    units();
    tiles.units_ns = std::min(tiles.units_ns, now_ns() - start);
    if (tiles.stage == Tiles::Stage::New && fault == before) {
      try_blocks(tiles, plan, region);
    }
  } else {
    try {
      run_blocks(tiles, plan, region);
    } catch (const c10::OutOfMemoryError&) { // all that was written is written again
      return units();
    } catch (const std::exception& error) {
      tiles.stage = Tiles::Stage::Refused;
      tiles.why = message_of(error);
      return units();
    }
    tiles.ns = std::min(tiles.ns, now_ns() - start);
  }
  if (tiles.stage == Tiles::Stage::Timed && ++tiles.timed > 2 * kTimings) {
    bool pays = tiles.ns < tiles.units_ns;
    tiles.stage = pays ? Tiles::Stage::Used : Tiles::Stage::Refused;
    tiles.why = pays ? "" : "not quicker than one unit after the other";
  }
}

void Fragment::run_blocks(Tiles& tiles, Plan& plan, Region& region) {
  for (uint32_t u = tiles.first; u < tiles.first + tiles.count; ++u) {
    for (uint32_t slot : plan.units[u].begins) {
      begin(slot, region);
    }
  }
  if (!tiles.run) {
    tiles.run = std::make_shared<TileRun>(tiles, plan, [&](uint32_t step) {
      auto& s = steps_[step];
      patch(s, s.arguments, region);
      return TileStep{s.node, &s.callee, &s.arguments};
    });
  }
  tiles.run->each_arguments([&](uint32_t step, auto& arguments) { patch(steps_[step], arguments, region); });
  std::vector<std::byte*> slots(slots_.size());
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    slots[slot] = static_cast<std::byte*>(const_cast<void*>(storages_[slot]->data()));
  }
  tiles.run->run(tiles, plan, slots, arena_ + tiles.scratch, region.parameters);
}

// The units have run: everything that they wrote is written again by blocks, and has to be the same.
void Fragment::try_blocks(Tiles& tiles, Plan& plan, Region& region) {
  struct Result {
    const Access* access;
    std::byte* at;
    c10::DataPtr copy;
    size_t bytes;
  };
  std::vector<Result> results;
  try {
    for (const auto& access : tiles.results) {
      auto* at = static_cast<std::byte*>(const_cast<void*>(storages_[access.slot]->data())) + access.begin;
      auto bytes = static_cast<size_t>(access.end() - access.begin);
      results.push_back({&access, at, allocate_block(bytes), bytes});
    }
  } catch (const c10::OutOfMemoryError&) {
    return; // another time
  }
  for (const auto& r : results) {
    std::memcpy(r.copy.get(), r.at, r.bytes);
  }
  for (const auto& r : results) {
    if (r.access->dense()) { // nothing may be left as it was
      std::transform(r.at, r.at + r.bytes, r.at, [](std::byte b) { return ~b; });
    }
  }
  bool same = true;
  try {
    run_blocks(tiles, plan, region);
    for (const auto& r : results) {
      same = same && same_values(*r.access, r.at, static_cast<const std::byte*>(r.copy.get()));
    }
    tiles.stage = same ? Tiles::Stage::Timed : Tiles::Stage::Refused;
    tiles.why = same ? "" : "gave other results than one unit after the other";
  } catch (const c10::OutOfMemoryError&) {
    same = false;
  } catch (const std::exception& error) {
    same = false;
    tiles.stage = Tiles::Stage::Refused;
    tiles.why = message_of(error);
  }
  if (!same) {
    for (const auto& r : results) {
      std::memcpy(r.at, r.copy.get(), r.bytes);
    }
  }
  if (tiles.stage == Tiles::Stage::Refused) {
    bump(counters.kernels_refused);
  }
}

} // namespace ae
