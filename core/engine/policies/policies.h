// SPDX-License-Identifier: Apache-2.0
// The factory functions of our own policies, one file each. registry.cpp lists them by name.
#pragma once

#include <memory>

namespace metronome {

class Policy;
struct PolicyContext;

std::unique_ptr<Policy> make_static(const PolicyContext& context);
std::unique_ptr<Policy> make_continuous(const PolicyContext& context);
std::unique_ptr<Policy> make_chunked(const PolicyContext& context);
std::unique_ptr<Policy> make_token_budget(const PolicyContext& context);
std::unique_ptr<Policy> make_single_prefill(const PolicyContext& context);
std::unique_ptr<Policy> make_slo(const PolicyContext& context);

}  // namespace metronome
