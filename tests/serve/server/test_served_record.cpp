// SPDX-License-Identifier: Apache-2.0
// A server's requests as a trace that can be run again.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/metrics/digest.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "models/image/image_file.h"
#include "models/image/image_processor.h"
#include "serve/server/served_record.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"
#include "tests/serve/server/serve_lab.h"

namespace metronome::TEST_FILE {
namespace {

using namespace testing;

constexpr const char* kScenario =
    "model: qwen3-vl-4b\nhardware: h200\nseed: 3\n"
    "engine: {max_num_seqs: 16, max_model_len: 4096}\n"
    "scheduler: {policy: vllm, max_num_batched_tokens: 256}\n";
constexpr const char* kNoWorkload =
    "workload: {num_requests: 1, arrivals: {rate: 1}, prompt_tokens: {value: 10}, output_tokens: "
    "{value: 10}}\n";

Scenario scenario_of(const ScratchFolder& folder, const std::string& workload) {
  const std::string path = folder.write("s.yaml", kScenario + workload);
  return load_scenario(path, {}, std::nullopt).variants.front();
}

// A prompt of text and pictures of the fixtures, 20 tokens of text before each and behind.
LiveRequest request_of(std::uint64_t ticket, const ImageProcessor& processor,
                       const std::vector<std::string>& pictures) {
  std::vector<TokenId> tokens;
  std::vector<PromptImage> images;
  const auto add_text = [&] {
    for (int i = 0; i < 20; ++i) tokens.push_back(TokenId{static_cast<int>(ticket) * 31 + i});
  };
  for (const std::string& name : pictures) {
    add_text();
    const std::string path = source_dir() + "/tests/fixtures/images/" + name;
    std::string bytes = read_file(path).value();
    images.push_back(processor.prepare(read_image(bytes, name), name));
    images.back().file = std::make_shared<const ImageFile>(ImageFile{name, std::move(bytes)});
    tokens.push_back(TokenId{processor.tower.image_token});
  }
  add_text();
  place_prompt_images(processor.tower.image_token, "prompt", images, tokens);
  LiveRequest request;
  request.ticket = Ticket{ticket};
  request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
  request.images = std::make_shared<const std::vector<PromptImage>>(std::move(images));
  request.max_output_tokens = 5 + static_cast<std::int32_t>(ticket);
  request.sampling.seed = ticket;
  return request;
}

TEST_CASE("served images are in the trace, and a run of it decides alike", "[serve][images]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/out";
  SimulatedBackend backend;
  PreparedVariant variant;
  variant.scenario = scenario_of(folder, kNoWorkload);
  variant.run = backend.prepare(variant.scenario);
  variant.workload = std::make_shared<const Workload>(make_workload(variant.scenario.workload, 3));
  ImageProcessor processor;
  processor.tower = variant.run->model.vision;
  ServedRecord record(out, backend, variant, "20260101-000000");
  std::vector<LiveRequest> sent;
  {
    Served served(*variant.run, 20, 100,
                  [&](const LiveEngine& engine) { return record.sinks(engine); });
    const std::vector<std::string> pictures[] = {
        {"colours.png"}, {"tall.jpg", "colours.png"}, {}, {"alpha.png", "alpha.png"}, {"tall.jpg"}};
    for (std::uint64_t i = 0; i < 5; ++i) {
      sent.push_back(request_of(i, processor, pictures[i]));
      std::vector<LiveRequest> one = {sent.back()};
      CHECK(served.engine.submit(std::move(one)));
    }
    served.wait_for_ends(5);
  }
  const std::size_t num_journal_bytes = read_file(out + ".served.jsonl").value().size();
  CHECK(record.num_bytes() > static_cast<std::int64_t>(num_journal_bytes));
  record.write();

  const Scenario again = scenario_of(
      folder, "workload: {trace: {file: '" + out + "/trace.jsonl', format: sharegpt}}\n");
  const Workload workload = make_workload(again.workload, again.seed);
  REQUIRE(workload.requests.size() == 5);
  CHECK(workload.pictures.size() == 3);
  std::size_t num_images = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const std::span<const EncoderItem> items = workload.encoder_items(static_cast<RequestId>(i));
    REQUIRE(items.size() == sent[i].images->size());
    for (std::size_t k = 0; k < items.size(); ++k, ++num_images) {
      const PromptImage& image = (*sent[i].images)[k];
      CHECK(items[k].content == image.content);
      CHECK(items[k].begin == image.first_token);
      CHECK(items[k].num_tokens == image.grid.num_tokens);
      const Workload::Picture& picture = workload.pictures.at(image.content);
      CHECK(picture.file->bytes == image.file->bytes);
      CHECK(grid_of_tokens(processor.tower, picture.rows, picture.columns) == image.grid);
    }
  }
  CHECK(num_images == 6);

  Simulation simulation = prepare_simulation(again);
  check_workload(again, simulation, workload);
  EventDigest digest;
  EventSink* sinks[] = {&digest};
  VirtualClock clock;
  simulation.run(workload, clock, sinks);
  const std::string result = read_file(out + "/result.json").value();
  CHECK(result.find("\"digest\": \"" + digest.hex() + "\"") != std::string::npos);
}

TEST_CASE("a trace with images needs a model that takes them", "[serve][images]") {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& text, int num_image_tokens = 2) {
    std::string ids = "1";
    for (int i = 0; i < num_image_tokens; ++i) ids += ", 2";
    const std::string count = std::to_string(num_image_tokens);
    folder.write("t", "{\"input_toks\": " + std::to_string(num_image_tokens + 1) +
                          ", \"output_toks\": 2, \"arrival_time_ns\": 0, \"input_tok_ids\": [" +
                          ids + "], \"images\": [{\"first_token\": 1, \"rows\": 1, \"columns\": " +
                          count + ", \"content\": 4}]}\n");
    const std::string path = folder.write("s.yaml", text + "workload: {trace: t}\n");
    const Scenario scenario = load_scenario(path, {}, std::nullopt).variants.front();
    const Simulation simulation = prepare_simulation(scenario);
    const Workload workload = make_workload(scenario.workload, scenario.seed);
    std::string message = error_of([&] { check_workload(scenario, simulation, workload); });
    return message.substr(std::min(message.size(), path.size() + 1));
  };
  CHECK(refusal("model: qwen3-vl-4b\nhardware: h200\n").empty());
  CHECK(refusal("model: llama-3.1-8b\nhardware: h200\n") ==
        "3: workload.trace: has images, and llama-3.1-8b takes text only; allowed: a model with a "
        "vision tower, or a trace without images");
  CHECK(refusal("model: qwen3-vl-4b\nhardware: h200\nscheduler: {policy: vllm, version: 0.25}\n") ==
        "3: scheduler.version: the rules of vLLM 0.25 for images are not known; allowed: 0.33 or "
        "later");
  // An image that no step could compute would wait forever.
  const std::string vllm =
      "model: qwen3-vl-4b\nhardware: h200\nscheduler: {policy: vllm, max_num_batched_tokens: ";
  const std::string whole = ", disable_chunked_mm_input: true";
  CHECK(refusal(vllm + "512}\n", 16384).empty());
  CHECK(refusal(vllm + "512}\n", 16385) ==
        "4: workload.trace: an image has 16385 tokens; allowed: at most 16384, which the encoder's "
        "cache and a step can hold");
  CHECK(refusal(vllm + "20000" + whole + "}\n", 20000).empty());
  CHECK(refusal(vllm + "20000" + whole + "}\n", 20001)
            .starts_with("4: workload.trace: an image has 20001 tokens; allowed: at most 20000"));
}

}  // namespace
}  // namespace metronome::TEST_FILE
