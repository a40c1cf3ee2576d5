#include "plan/access.h"

#include <algorithm>
#include <numeric>

namespace ae {

int64_t Access::end() const {
  int64_t last = begin + item;
  for (const auto& dim : dims) {
    last += (dim.size - 1) * dim.stride;
  }
  return last;
}

int64_t Access::numel() const {
  int64_t n = 1;
  for (const auto& dim : dims) {
    n *= dim.size;
  }
  return n;
}

bool Access::dense() const {
  return dims.empty() || (dims.size() == 1 && dims[0].stride == item);
}

Access make_access(uint32_t slot, c10::ScalarType type, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   c10::IntArrayRef shape) {
  Access access;
  access.slot = slot;
  access.type = type;
  access.item = static_cast<int64_t>(c10::elementSize(type));
  access.begin = offset * access.item;
  size_t missing = shape.size() - sizes.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) {
      continue;
    }
    bool expanded = i < missing || sizes[i - missing] == 1;
    int64_t stride = expanded ? 0 : strides[i - missing] * access.item;
    if (!access.dims.empty() && access.dims.back().stride == stride * shape[i]) {
      access.dims.back() = {access.dims.back().size * shape[i], stride};
    } else {
      access.dims.push_back({shape[i], stride});
    }
  }
  return access;
}

bool may_overlap(const Access& a, const Access& b) {
  if (a.slot != b.slot || a.end() <= b.begin || b.end() <= a.begin) {
    return false;
  }
  // Bytes in common: a.begin + sum(i * stride) + x = b.begin + sum(j * stride) + y for indices within their sizes and
  // x, y within the elements. The strides larger than some bound add up to multiples of their greatest common divisor,
  // the rest to an interval. If no multiple lies in it, there are none in common.
  c10::SmallVector<Dim, 8> terms(a.dims.begin(), a.dims.end());
  terms.append(b.dims.begin(), b.dims.end());
  std::sort(terms.begin(), terms.end(), [](const Dim& x, const Dim& y) { return x.stride < y.stride; });
  int64_t distance = b.begin - a.begin;
  // The interval that the inner terms span: distance + [-(spread of a), spread of b], elements included.
  auto spread = [](const Access& access, int64_t bound) {
    int64_t sum = access.item - 1;
    for (const auto& dim : access.dims) {
      sum += dim.stride <= bound ? (dim.size - 1) * dim.stride : 0;
    }
    return sum;
  };
  for (size_t split = 0; split <= terms.size(); ++split) {
    if (split > 0 && split < terms.size() && terms[split].stride == terms[split - 1].stride) {
      continue;
    }
    int64_t bound = split == 0 ? 0 : terms[split - 1].stride;
    int64_t divisor = 0;
    for (size_t i = split; i < terms.size(); ++i) {
      divisor = std::gcd(divisor, terms[i].stride);
    }
    int64_t low = distance - spread(a, bound);
    int64_t high = distance + spread(b, bound);
    bool contains =
        divisor == 0 ? low <= 0 && 0 <= high : (high >= 0 ? high / divisor : -((-high + divisor - 1) / divisor)) * divisor >= low;
    if (!contains) {
      return false;
    }
  }
  return true;
}

std::optional<Space> refine(const Space& space, const Access& access) {
  c10::SmallVector<int64_t, 8> ends; // products of the inner sizes, ascending
  auto add = [&](auto begin, auto end, auto size) {
    int64_t product = 1;
    while (end != begin) {
      product *= size(*--end);
      ends.push_back(product);
    }
  };
  add(space.begin(), space.end(), [](int64_t s) { return s; });
  add(access.dims.begin(), access.dims.end(), [](const Dim& d) { return d.size; });
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  Space refined;
  int64_t before = 1;
  for (int64_t product : ends) {
    if (product % before != 0) {
      return std::nullopt;
    }
    refined.insert(refined.begin(), product / before);
    before = product;
  }
  return refined;
}

c10::SmallVector<int64_t, 4> strides_in(const Space& space, const Access& access) {
  c10::SmallVector<int64_t, 4> strides(space.size(), 0);
  size_t at = access.dims.size();
  int64_t within = 1; // of the access's dimension that is under way
  for (size_t i = space.size(); i-- > 0;) {
    if (at == 0) {
      break; // only a single element is left: it does not move
    }
    strides[i] = access.dims[at - 1].stride * within;
    within *= space[i];
    if (within == access.dims[at - 1].size) {
      --at;
      within = 1;
    }
  }
  return strides;
}

} // namespace ae
