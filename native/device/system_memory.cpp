#include "device/runtime.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

namespace ae {
namespace {

// A number in a file of /proc or /sys, after `key` where one is given. Absent where it is not a number ("max").
std::optional<size_t> read_number(const char* path, const char* key) {
  FILE* file = std::fopen(path, "r");
  if (!file) {
    return std::nullopt;
  }
  std::optional<size_t> found;
  char line[256];
  while (!found && std::fgets(line, sizeof(line), file)) {
    uint64_t value = 0;
    if (std::sscanf(line, key, &value) == 1) {
      found = value;
    }
  }
  std::fclose(file);
  return found;
}

} // namespace

SystemMemory system_memory() {
  struct sysinfo info{};
  sysinfo(&info);
  SystemMemory memory{size_t(info.totalram) * info.mem_unit, size_t(info.freeram) * info.mem_unit,
                      size_t(info.totalswap) * info.mem_unit};
  if (auto available = read_number("/proc/meminfo", "MemAvailable: %" SCNu64)) {
    memory.available = *available * 1024;
  }
  // A container's own bound, where it has one.
  if (auto bound = read_number("/sys/fs/cgroup/memory.max", "%" SCNu64); bound && *bound < memory.total) {
    memory.total = *bound;
    memory.swap = 0;
    const size_t used = std::min(read_number("/sys/fs/cgroup/memory.current", "%" SCNu64).value_or(0), *bound);
    memory.available = std::min(memory.available, *bound - used);
  }
  return memory;
}

} // namespace ae
