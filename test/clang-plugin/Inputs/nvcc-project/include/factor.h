// SPDX-License-Identifier: Apache-2.0
/// \file
/// Found only with the target's include folders.
#pragma once
inline constexpr int factor = FACTOR;
