// Registration with the dispatcher, one function a group of kernels; ae_init() calls them all.
#pragma once

#include <torch/library.h>

namespace ae {

void register_factories(torch::Library& m);                            // empty, resize_, set_: metadata and memory
void register_views(torch::Library& m);                                // views with a kernel of their own
void register_copies(torch::Library& m);                               // copies within the device and to and from the host, item()
void register_composites(torch::Library& m, torch::Library& autograd); // what PyTorch routes by device
void register_rnn(torch::Library& m, torch::Library& autograd);        // recurrent layers and cells, the CPU's way
void register_hot(torch::Library& m, torch::Library& autograd);        // ops with unboxed kernels (tables/hot_ops.def)
void register_recorder(torch::Library& m);                             // everything else, boxed
void register_fallbacks();                                             // foreign namespaces, sparse

} // namespace ae
