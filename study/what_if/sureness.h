// SPDX-License-Identifier: Apache-2.0
// The certainty of a search's answer: the error of step times near its run, and what becomes of the
// advised change at both ends of that.
#pragma once

#include "core/base/text_block.h"
#include "study/what_if/replays.h"
#include "study/what_if/what_if.h"

namespace metronome {

class JsonText;

// Up to four more replays, where the error of step times is known.
Sureness sureness_of(const WhatIf& what_if, Replays& replays);

TextBlock sureness_block(const WhatIf& what_if);
// Appends the key `sureness` of an object.
void append_sureness(const WhatIf& what_if, JsonText& json);

}  // namespace metronome
