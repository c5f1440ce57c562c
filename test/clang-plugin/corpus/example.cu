// SPDX-License-Identifier: Apache-2.0
/// \file
/// The kernels of the transformer example.
#include "../../../docs/examples/cpp/kernels.cuh"
