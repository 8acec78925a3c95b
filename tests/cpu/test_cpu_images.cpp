// SPDX-License-Identifier: Apache-2.0
// Images under a real engine on the CPU executor: chunks that end anywhere inside one, preemption,
// prefix caching, shared images and failing steps change no bit.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/draws.h"
#include "tests/random_serving.h"

namespace metronome::TEST_FILE {
namespace {

using namespace testing;

ModelConfig vision_model() {
  ModelConfig model = small_model(Family::Qwen3);
  model.architecture = "Qwen3VLForConditionalGeneration";
  model.mrope_sections = {2, 2, 2};
  model.vision = {.depth = 2,
                  .hidden_dim = 24,
                  .n_heads = 2,
                  .ffn_dim = 30,
                  .patch_size = 3,
                  .temporal_patch_size = 2,
                  .merge_size = 2,
                  .out_dim = model.hidden_dim,
                  .num_positions = 16,
                  .deepstack_layers = {0, 1},
                  .image_token = 130};
  return model;
}

struct ImageAt {
  std::uint64_t content;
  std::int32_t begin;
  std::int32_t num_tokens;
};

EncoderItem item_of(const ImageAt& image) {
  return {.content = content_id(ContentKind::Image, image.content),
          .begin = image.begin,
          .num_tokens = image.num_tokens,
          .num_embeddings = image.num_tokens};
}

LabPrompt prompt_of(const Lab& lab, std::uint64_t seed, std::int32_t num_tokens,
                    const std::vector<ImageAt>& images, std::int32_t max_output = 6,
                    std::int64_t arrival_step = 0) {
  LabPrompt prompt{lab.ids(seed, num_tokens), max_output, arrival_step, {}};
  for (const ImageAt& image : images) prompt.images.push_back(item_of(image));
  return prompt;
}

// An image at the start and one at the end, one in the middle, text alone, and two that share an
// image with others.
std::vector<LabPrompt> mixed_prompts(const Lab& lab) {
  return {prompt_of(lab, 1, 27, {{1, 0, 12}, {2, 18, 9}}), prompt_of(lab, 2, 30, {{3, 7, 15}}),
          prompt_of(lab, 3, 17, {}), prompt_of(lab, 4, 25, {{1, 5, 12}}, 4, 2),
          prompt_of(lab, 5, 22, {{3, 2, 15}}, 6, 5)};
}

LabSettings with_images(const std::string& policy) {
  LabSettings settings{.policy = policy};
  settings.encoder = {.compute_budget = 64, .cache_size = 64, .limits_chunks = policy == "vllm"};
  return settings;
}

// Each prompt served alone, whole.
std::vector<LabRun> runs_alone(Lab& lab, const std::vector<LabPrompt>& prompts) {
  std::vector<LabRun> runs;
  for (const LabPrompt& prompt : prompts) runs.push_back(lab.run(with_images("vllm"), {prompt}));
  return runs;
}

void check_same(const std::vector<LabRun>& alone, const LabRun& run) {
  for (std::uint32_t i = 0; i < alone.size(); ++i) {
    INFO("request " << i);
    REQUIRE(run.ends[i] == EndReason::Length);
    CHECK(is_same(alone[i], 0, run, i));
  }
}

TEST_CASE("an image has other tokens than its text, and than another image", "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  const LabRun first = lab.run(with_images("vllm"), {prompt_of(lab, 1, 20, {{1, 4, 9}})});
  const LabRun other = lab.run(with_images("vllm"), {prompt_of(lab, 1, 20, {{2, 4, 9}})});
  const LabRun later = lab.run(with_images("vllm"), {prompt_of(lab, 1, 20, {{1, 5, 9}})});
  CHECK_FALSE(has_same_logits(first, 0, other, 0));
  CHECK_FALSE(has_same_logits(first, 0, later, 0));
  CHECK(is_same(first, lab.run(with_images("vllm"), {prompt_of(lab, 1, 20, {{1, 4, 9}})})));
}

TEST_CASE("chunks, steps, batches and threads change no bit of requests with images",
          "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  const std::vector<LabPrompt> prompts = mixed_prompts(lab);
  const std::vector<LabRun> alone = runs_alone(lab, prompts);
  for (const std::string policy : {"chunked", "token_budget", "vllm"}) {
    for (std::int64_t chunk = 1; chunk <= 31; ++chunk) {
      for (const StepShape shape : {StepShape::Mixed, StepShape::Separate}) {
        if (policy == "vllm" && shape == StepShape::Separate) continue;
        LabSettings settings = with_images(policy);
        settings.chunk = chunk;
        settings.budget = policy == "vllm" ? chunk + 5 : 64;
        settings.shape = shape;
        settings.async_depth = chunk % 2 == 0 ? 2 : 1;
        INFO(policy << ", chunks of " << chunk << (shape == StepShape::Mixed ? "" : ", separate"));
        check_same(alone, lab.run(settings, prompts));
      }
    }
  }
  for (const int num_threads : {2, 3, 4}) {
    Lab other(vision_model(), num_threads, 3);
    LabSettings settings = with_images("vllm");
    settings.budget = 11;
    INFO(num_threads << " threads");
    check_same(alone, other.run(settings, prompts));
  }
}

TEST_CASE("an image is encoded once for all who have it, and dropped in the end", "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  std::vector<LabPrompt> prompts;
  for (std::uint64_t i = 0; i < 5; ++i) prompts.push_back(prompt_of(lab, i, 20, {{7, 3, 12}}));
  LabSettings settings = with_images("vllm");
  settings.budget = 16;
  const LabRun run = lab.run(settings, prompts);
  CHECK(run.num_encoded == 1);
  check_same(runs_alone(lab, prompts), run);
  // No room for two: the next one drops what nobody needs any more.
  settings.encoder.compute_budget = settings.encoder.cache_size = 12;
  settings.max_num_seqs = 1;
  std::vector<LabPrompt> others;
  for (std::uint64_t i = 0; i < 4; ++i) others.push_back(prompt_of(lab, i, 20, {{i, 3, 12}}));
  const LabRun one_by_one = lab.run(settings, others);
  CHECK(one_by_one.num_encoded == 4);
  CHECK(one_by_one.num_images_left == 1);
  check_same(runs_alone(lab, others), one_by_one);
}

TEST_CASE("preemption inside an image and behind it changes no bit", "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  std::vector<LabPrompt> prompts = mixed_prompts(lab);
  for (LabPrompt& prompt : prompts) prompt.max_output = 20;
  const std::vector<LabRun> alone = runs_alone(lab, prompts);
  std::int32_t num_preemptions = 0;
  for (const std::int64_t num_blocks : {14, 15, 16, 17, 20, 24}) {
    for (const std::int64_t budget : {7, 12, 40}) {
      LabSettings settings = with_images("vllm");
      settings.num_blocks = num_blocks;
      settings.budget = budget;
      INFO(num_blocks << " blocks, a budget of " << budget);
      const LabRun run = lab.run(settings, prompts);
      num_preemptions += run.num_preemptions;
      check_same(alone, run);
    }
  }
  CHECK(num_preemptions > 20);
}

TEST_CASE("a prefix that ends inside an image is found, if the image is the same",
          "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  // The second has the same image and other text behind it, the third another image.
  std::vector<LabPrompt> prompts = {prompt_of(lab, 1, 30, {{1, 6, 16}}),
                                    prompt_of(lab, 1, 30, {{1, 6, 16}}, 6, 20),
                                    prompt_of(lab, 1, 30, {{2, 6, 16}}, 6, 40)};
  prompts[1].ids[25] = TokenId{(value(prompts[1].ids[25]) + 1) % 130};
  const std::vector<LabRun> alone = runs_alone(lab, prompts);
  for (const std::int32_t block_size : {2, 4, 5, 9}) {
    LabSettings settings = with_images("vllm");
    settings.caches_prefixes = true;
    settings.block_size = block_size;
    settings.budget = 13;
    INFO("blocks of " << block_size);
    const LabRun run = lab.run(settings, prompts);
    CHECK(run.prefix_hits[1] == 25 / block_size * block_size);
    CHECK(run.prefix_hits[2] == 6 / block_size * block_size);
    check_same(alone, run);
  }
}

TEST_CASE("a failing step takes its requests, and the images of others stay right",
          "[cpu][images]") {
  Lab lab(vision_model(), 1, 3);
  const std::vector<LabPrompt> prompts = mixed_prompts(lab);
  const std::vector<LabRun> alone = runs_alone(lab, prompts);
  int num_complete = 0;
  for (int failing = 0; failing < 12; ++failing) {
    LabSettings settings = with_images("vllm");
    settings.budget = 14;
    settings.async_depth = 1 + failing % 2;
    int step = 0;
    settings.hook = [&](const ForwardBatch&) {
      if (step++ == failing) throw std::runtime_error("injected");
    };
    INFO("step " << failing);
    const LabRun run = lab.run(settings, prompts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      if (run.ends[i] != EndReason::Length) continue;
      ++num_complete;
      CHECK(is_same(alone[i], 0, run, i));
    }
    CHECK(run.num_free_blocks == run.num_blocks);
  }
  CHECK(num_complete > 10);
}

// Prompts with the same images in the same places, so that prefixes with images are found again,
// and with one of their own.
void draw_images(Rng& rng, std::vector<LabPrompt>& prompts) {
  constexpr ImageAt kShared[] = {{1, 2, 9}, {2, 14, 12}, {3, 29, 7}};
  std::uint64_t next = 10;
  for (LabPrompt& prompt : prompts) {
    const auto num_tokens = static_cast<std::int32_t>(prompt.ids.size());
    std::vector<ImageAt> images;
    for (const ImageAt& image : kShared) {
      if (image.begin + image.num_tokens <= num_tokens && chance(rng, 0.7)) images.push_back(image);
    }
    const std::int32_t begin =
        images.empty() ? 0 : images.back().begin + images.back().num_tokens + draw(rng, 0, 3);
    if (begin < num_tokens && chance(rng, 0.4)) {
      images.push_back({next++, begin, draw(rng, 1, std::min(num_tokens - begin, 14))});
    }
    for (const ImageAt& image : images) prompt.images.push_back(item_of(image));
  }
}

void check_random_images(std::uint64_t begin, std::uint64_t end) {
  // About half of what was seen when this was written, in 100 cases.
  const Coverage least = {{"preemptions", 20},  {"prefix hits", 15}, {"step_failed", 30},
                          {"failed steps", 15}, {"kv", 150},         {"logits", 2'000},
                          {"length", 150},      {"images", 150},     {"hits behind images", 5}};
  const ModelConfig model = vision_model();
  Lab lab(model, 1, 3);
  check_random_servings(begin, end, least, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "cpu images");
    RandomServing random = draw_serving(rng, Family::Qwen3, model.vocab_size);
    draw_images(rng, random.prompts);
    EncoderSetup encoder = {.compute_budget = draw(rng, 14, 40), .cache_size = draw(rng, 14, 60)};
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random));
    const ServeFn serve = [&](LabSettings settings, const std::vector<LabPrompt>& prompts) {
      encoder.limits_chunks = settings.policy == "vllm";
      settings.encoder = encoder;
      return lab.run(settings, prompts);
    };
    const ServeFn together = [&](const LabSettings& settings,
                                 const std::vector<LabPrompt>& prompts) {
      LabRun run = serve(settings, prompts);
      coverage["images"] += run.num_encoded;
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const bool has_image =
            !prompts[i].images.empty() && prompts[i].images.front().end() <= run.prefix_hits[i];
        coverage["hits behind images"] += has_image ? 1 : 0;
      }
      return run;
    };
    check_serving(random, ServingLimits{}, together, serve, coverage);
  });
}

TEST_CASE("random serving with images gives every request what it gets alone",
          "[cpu][images][property]") {
  check_random_images(0, 150);
}

TEST_CASE("much more random serving with images gives every request what it gets alone",
          "[cpu][images][property][slow]") {
  check_random_images(150, 2'000);
}

}  // namespace
}  // namespace metronome::TEST_FILE
