// SPDX-License-Identifier: Apache-2.0
#include "core/run/run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/drive.h"
#include "core/engine/due_arrivals.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/scenario/engine_product.h"
#include "core/workload/front_end_arrivals.h"
#include "core/workload/session_arrivals.h"
#include "core/workload/workload_arrivals.h"

namespace metronome {

namespace {

// A backend that computes blocks also computes embeddings.
void set_items(const PromptSource& prompts, EngineSetup& setup) {
  setup.encoder.items = &prompts;
  setup.encoder.forgets_unfilled = setup.kv_cache.forgets_unfilled_blocks;
}

// The longest image that can ever be computed, in tokens.
std::int64_t longest_image(const Scenario& scenario, const EngineSetup& setup) {
  const EngineProduct& product = product_of(scenario.scheduler.policy);
  const std::int64_t cache_size = setup.encoder.cache_size;
  if (product.longest_image == nullptr) return cache_size;
  return product.longest_image(scenario, cache_size);
}

// Drawn images were checked with the scenario; those of a trace come with the workload.
void check_images(const Scenario& scenario, const PreparedRun& run, const Workload& workload) {
  if (!run.setup.encoder.takes_images()) {
    throw UnplacedConfigError("workload.trace", "has images, and " + run.model.name +
                                                    " takes text only; allowed: a model with a "
                                                    "vision tower, or a trace without images");
  }
  const std::int64_t longest = longest_image(scenario, run.setup);
  for (const EncoderItem& image : workload.images) {
    if (image.num_tokens <= longest) continue;
    throw UnplacedConfigError(
        scenario.workload.trace.file.empty() ? "workload.images" : "workload.trace",
        "an image has " + std::to_string(image.num_tokens) + " tokens; allowed: at most " +
            std::to_string(longest) + ", which the encoder's cache and a step can hold");
  }
}

}  // namespace

void check_workload(const Scenario& scenario, const PreparedRun& run,
                    const Workload& workload) try {
  if (!workload.images.empty()) check_images(scenario, run, workload);
  run.check_workload(workload);
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

RunOutcome run_workload(const EngineSetup& setup, Executor& executor, Clock& clock,
                        const Workload& workload, std::span<EventSink* const> sinks,
                        const ProgressFn& progress, std::int64_t steps_per_progress,
                        const FrontEnd& front_end) {
  std::optional<SessionArrivals> sessions;
  std::optional<WorkloadArrivals> single;
  std::vector<EventSink*> all_sinks(sinks.begin(), sinks.end());
  if (workload.has_sessions()) {
    all_sinks.push_back(&sessions.emplace(workload));
  } else {
    single.emplace(workload);
  }
  const PromptSource& prompts = sessions ? static_cast<const PromptSource&>(*sessions) : workload;
  ArrivalSource& clients = sessions ? static_cast<ArrivalSource&>(*sessions) : *single;
  const PrefixHasher hasher(&prompts);
  EngineSetup with_items = setup;
  if (!workload.images.empty()) set_items(prompts, with_items);
  Engine engine(with_items, executor, all_sinks, &hasher);
  FrontEndArrivals handed_over(clients, front_end);
  ArrivalSource& arrivals = front_end.is_off() ? clients : handed_over;
  RunOutcome outcome;
  DueArrivals source(arrivals, engine);
  outcome.completed = drive(engine, source, clock, progress, steps_per_progress);
  outcome.num_unsent = workload.requests.size() - arrivals.num_total();
  for (const EndReason reason :
       {EndReason::NeverFits, EndReason::QueueFull, EndReason::StepFailed}) {
    const std::string& message = engine.first_message(reason);
    if (!message.empty()) outcome.messages.push_back({reason, message});
  }
  outcome.remark = engine.remark();
  return outcome;
}

void serve_requests(const EngineSetup& setup, Executor& executor, Clock& clock, RequestFeed& feed,
                    std::span<EventSink* const> sinks) {
  const PrefixHasher hasher(&feed);
  EngineSetup with_items = setup;
  if (setup.encoder.takes_images()) set_items(feed, with_items);
  Engine engine(with_items, executor, sinks, &hasher);
  drive(engine, feed, clock);
}

}  // namespace metronome
