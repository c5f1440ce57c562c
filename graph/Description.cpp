// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Description.h"
