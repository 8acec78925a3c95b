// SPDX-License-Identifier: Apache-2.0
// The bytes as the config.json of a model.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/model/model_catalogue.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  metronome::testing::parse_or_refuse([&] {
    const metronome::ModelConfig model =
        metronome::parse_hugging_face_config(text, "config.json", "fuzz");
    METRONOME_CHECK(model.shape_error().empty(), "what is accepted is sound");
    METRONOME_CHECK(model.n_params() > 0, "no count overflows");
  });
  return 0;
}
