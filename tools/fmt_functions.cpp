// SPDX-License-Identifier: Apache-2.0
// The functions of fmt that are not inline, for builds without its shared library. Debian has no
// static one, and every file that compiled them itself would take seconds longer.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace {

// The one that fmt::format calls. Others find it here because something uses it.
[[gnu::used]] std::string (*const used)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace
