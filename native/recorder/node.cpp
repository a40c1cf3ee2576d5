#include "recorder/node.h"

#include "runtime/fragment.h"

namespace ae {

Node::Node() = default;
Node::~Node() = default;

} // namespace ae
