#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Explores every order in which threads get past a plan in force, and sees to it that broken protocols are found out.
# shellcheck source=test/explore_model.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../explore_model.sh"

isRight safety -DTHREAD
isRight safety -DLIBRARY
for broken in NO_COUNT COUNT_NO_CAPTURED ASIDE_FIRST "ASIDE_LOCKS -DLIBRARY" NO_TAKE_BACK INSTALL_ASIDE; do
  # shellcheck disable=SC2086 # one or two words
  isFoundOut safety -D$broken
done
