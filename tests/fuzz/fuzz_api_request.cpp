// SPDX-License-Identifier: Apache-2.0
// The first byte chooses an endpoint; the rest is the body that a client posts to it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/error.h"
#include "models/text/tokenizer.h"
#include "serve/server/api_request.h"

namespace {

using namespace metronome;

const ServedModel& model() {
  static const ServedModel served = [] {
    ServedModel made;
    made.name = "tiny";
    made.root = "tiny";
    made.tokenizer = byte_tokenizer();
    made.vocab_size = 256;
    made.max_model_len = 4096;
    made.computes = false;
    made.answer_lengths = {1, 20};
    return made;
  }();
  return served;
}

void check_request(const ApiRequest& request) {
  METRONOME_CHECK(request.num_choices() >= 1 && request.num_choices() <= model().max_choices,
                  "as many answers as allowed");
  METRONOME_CHECK(request.answer_tokens.size() == static_cast<std::size_t>(request.num_choices()),
                  "a length for each answer");
  for (const std::vector<TokenId>& prompt : request.prompts) {
    METRONOME_CHECK(
        !prompt.empty() && request.max_tokens >= 1 &&
            static_cast<std::int64_t>(prompt.size()) + request.max_tokens <= model().max_model_len,
        "a request fits the context");
    for (const TokenId id : prompt) {
      METRONOME_CHECK(value(id) >= 0 && value(id) < model().vocab_size, "tokens of the model");
    }
  }
  METRONOME_CHECK(request.sampling.temperature >= 0 && request.sampling.top_p > 0 &&
                      request.sampling.top_p <= 1 && request.sampling.top_k >= 0,
                  "parameters that can be sampled with");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    switch (data[0] % 5) {
      case 0: check_request(parse_generation(ApiKind::Completion, body, model(), 1)); break;
      case 1: check_request(parse_generation(ApiKind::Chat, body, model(), 1)); break;
      case 2: check_request(parse_generation(ApiKind::Generate, body, model(), 1)); break;
      case 3: parse_tokenize(body, model()); break;
      default: parse_detokenize(body, model()); break;
    }
  } catch (const ApiError& error) {
    METRONOME_CHECK(error.status == 400 || error.status == 404, "the client is told what is wrong");
    METRONOME_CHECK(error.what()[0] != '\0', "and in words");
  }
  return 0;
}
