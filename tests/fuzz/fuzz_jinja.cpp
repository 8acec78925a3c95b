// SPDX-License-Identifier: Apache-2.0
// The bytes as a chat template, rendered for a conversation with tools.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json.h"
#include "models/text/jinja/template.h"
#include "models/text/utf8.h"
#include "tests/fuzz/refusal.h"

namespace {

using namespace metronome;

const Json& variables() {
  static const Json json = Json::parse(R"({
    "messages": [
      {"role": "system", "content": " Be brief. "},
      {"role": "user", "content": [{"type": "text", "text": "Gr\u00fc\u00dfe, \u4e16\u754c"}]},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "a1", "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]},
      {"role": "tool", "tool_call_id": "a1", "content": "17"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {"x": {"type": "array", "items": {"type": "number"}}}}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "n": 7, "s": "ab c",
    "l": [3, 1, 2], "d": {"b": 1, "a": null}})");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const JinjaLimits limits{.max_steps = 20'000,
                           .max_output_bytes = std::size_t{1} << 20,
                           .max_live_bytes = std::size_t{8} << 20};
  std::tm now{};
  now.tm_year = 125;
  now.tm_mday = 9;
  metronome::testing::parse_or_refuse([&] {
    const JinjaTemplate parsed = JinjaTemplate::parse(source, "fuzz");
    try {
      const std::string text = parsed.render(variables(), now, limits);
      METRONOME_CHECK(text.size() <= limits.max_output_bytes, "an output has its limit");
      METRONOME_CHECK(is_utf8(text), "texts are UTF-8");
    } catch (const JinjaError& error) {
      METRONOME_CHECK(is_utf8(error.what()), "messages are UTF-8");
    }
  });
  return 0;
}
