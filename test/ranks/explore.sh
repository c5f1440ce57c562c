#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Explores every order in which three ranks come to decisions, and sees to it that broken protocols are found out.
# shellcheck source=test/explore_model.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../explore_model.sh"

isRight safety
isRight safety -DDIES
isRight progress -DDIES -DROUNDS=1
isFoundOut safety -DOVERWRITES
isFoundOut safety -DOWN_OUTCOME
isFoundOut safety -DNO_TIMEOUT -DDIES
isFoundOut safety -DDELETES_AT_ONCE
isFoundOut safety -DDELETES_AFTER_ANY
