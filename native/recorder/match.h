// The hot path: is this call the one that the trie predicts?
#pragma once

#include "recorder/region.h"

namespace ae {

// Compares the call with the node, leaf by leaf. Where it matches, storages that enter the region have been touched
// and numbers noted; else the region is as it was.
bool match(const Node& node, const c10::IValue* args, Region& region);

} // namespace ae
