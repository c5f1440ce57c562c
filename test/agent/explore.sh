#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Explores every state of the agent's protocol for a small step, and sees to it that broken protocols are found out.
# shellcheck source=test/explore_model.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../explore_model.sh"

for variant in "" -DHINT -DDIES "-DDIES -DHINT" -DDOWNS=2; do
  # shellcheck disable=SC2086 # none, one or two words
  isRight safety -DREPLAYS="$([[ $variant == *DIES* || $variant == *DOWNS* ]] && echo 2 || echo 3)" $variant
  # shellcheck disable=SC2086
  isRight progress -DREPLAYS=1 $variant
done
isFoundOut safety -DRELEASE_DISCARDS
isFoundOut safety -DDISCARD_BESIDE_PREFETCHES -DHINT
isFoundOut safety -DWAIT_FOR_POPULATE_ALONE
isFoundOut safety -DDONE_BEFORE_DISCARD
isFoundOut progress -DNO_WATCHDOG -DDIES
