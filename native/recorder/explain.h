// What happened, as JSON for ae_explain(): regions by time, direct ops by count.
#pragma once

#include <string>

#include "recorder/trie.h"

namespace ae {

std::string explain_regions(const Trie& trie);

} // namespace ae
