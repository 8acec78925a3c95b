// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_limit.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/engine/budget_terms.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "-",
    "not completed",
    "ITL: full step",
    "ITL",
    "TPOT",
    "TTFT: a prompt alone",
    "TTFT: KV cache",
    "TTFT: max_num_seqs",
    "TTFT: throughput",
    "E2EL",
};

// From this share of the time on, a device that makes requests wait has no time left.
constexpr double kBusy = 0.5;

// A step with nothing but prompt tokens: the first ones of prompts of `longest` tokens, or the last
// ones, which attend to all others.
StepPlan prefill_plan(std::int64_t num_tokens, std::int64_t longest, bool are_last) {
  StepPlan plan;
  for (std::int64_t left = num_tokens; left > 0;) {
    const std::int64_t size = std::min(left, longest);
    left -= size;
    const auto id = static_cast<RequestId>(plan.chunks.size());
    const auto position = static_cast<std::int32_t>(are_last ? longest - size : 0);
    plan.chunks.push_back({id, position, static_cast<std::int32_t>(size), ChunkKind::Prefill,
                           are_last || size == longest});
  }
  plan.passes = {{0, static_cast<std::int32_t>(plan.chunks.size())}};
  plan.num_prefill_tokens = static_cast<std::int32_t>(num_tokens);
  plan.num_running = static_cast<std::int32_t>(plan.chunks.size());
  return plan;
}

// A step with nothing but decodes, each with so many tokens in the cache.
StepPlan decode_plan(std::int64_t num_decodes, std::int64_t num_cached) {
  StepPlan plan;
  for (std::int64_t i = 0; i < num_decodes; ++i) {
    plan.chunks.push_back({static_cast<RequestId>(i), static_cast<std::int32_t>(num_cached), 1,
                           ChunkKind::Decode, true});
  }
  plan.passes = {{0, static_cast<std::int32_t>(num_decodes)}};
  plan.num_decode_tokens = static_cast<std::int32_t>(num_decodes);
  plan.num_running = static_cast<std::int32_t>(num_decodes);
  return plan;
}

// From one step's end to the next one's, where such steps follow each other.
class StepDurations {
 public:
  StepDurations(const Scenario& scenario, const PreparedRun& run)
      : predictor_(make_step_predictor(scenario, run.model)),
        has_steps_in_flight_(scenario.engine.async_depth > 1) {}

  double ms(const StepPlan& plan) const {
    const TimeNs step_ns = predictor_->step_ns(plan);
    const TimeNs gap_ns = predictor_->host_gap_ns(plan);
    // The host prepares a step while the device computes another.
    return to_ms(has_steps_in_flight_ ? std::max(step_ns, gap_ns) : step_ns + gap_ns);
  }
  // Of prompt tokens alone, as prefill_plan().
  double prefill_ms(std::int64_t num_tokens, std::int64_t longest, bool are_last) const {
    return ms(prefill_plan(num_tokens, longest, are_last));
  }

 private:
  std::unique_ptr<StepTimePredictor> predictor_;
  bool has_steps_in_flight_;
};

std::int32_t largest_image(const Workload& workload) {
  std::int32_t largest = 0;
  for (const EncoderItem& image : workload.images)
    largest = std::max(largest, image.num_embeddings);
  return largest;
}

// StepBounds::capacity and num_cached_requests, where a full step's tokens and time are known.
void set_capacity(const StepDurations& times, const PreparedRun& run, const Workload& workload,
                  std::int64_t longest, StepBounds& bounds) {
  double num_prompt_tokens = 0;
  double num_output_tokens = 0;
  for (const RequestSpec& request : workload.requests) {
    num_prompt_tokens += request.num_prompt_tokens;
    num_output_tokens += request.max_output_tokens;
  }
  double num_embeddings = 0;
  for (const EncoderItem& image : workload.images) num_embeddings += image.num_embeddings;
  const double largest = std::max(largest_image(workload), 1);
  const auto num_requests = static_cast<double>(workload.requests.size());
  const auto mean_length =
      static_cast<std::int64_t>((num_prompt_tokens + num_output_tokens / 2) / num_requests);
  const std::int64_t room =
      std::int64_t{run.setup.kv_cache.num_blocks} * run.setup.kv_cache.block_size;
  std::int64_t num_decodes = run.setup.max_num_seqs;
  if (room > 0) {
    bounds.num_cached_requests = room / std::max<std::int64_t>(mean_length, 1);
    num_decodes = std::min(num_decodes, bounds.num_cached_requests);
  }
  num_decodes = std::max<std::int64_t>(num_decodes, 1);
  const double decode_ms = times.ms(decode_plan(num_decodes, mean_length));
  const double total_ms = num_embeddings / largest * bounds.encode_ms +
                          num_prompt_tokens / static_cast<double>(bounds.full_step_tokens) *
                              times.prefill_ms(bounds.full_step_tokens, longest, false) +
                          num_output_tokens / static_cast<double>(num_decodes) * decode_ms;
  bounds.capacity = num_requests / total_ms * 1e3;
}

std::string limit_text(const char* name, const std::optional<double>& limit_ms) {
  return std::string(name) + " limit of " + ms_text(limit_ms.value_or(0)) + " ms";
}

std::string tokens_text(std::int64_t num_tokens) { return count_text(num_tokens, "token"); }

// A change that may help, as one of `remedies_text()`.
struct Advised {
  TuneRemedy remedy;
  const char* text;
};

// "A, b or c may help." of those that were not compared, then those that were. `lead`: "Only " or
// nothing.
std::string remedies_text(const std::vector<Advised>& all, const ComparedRemedies& compared,
                          const std::string& lead = "") {
  std::vector<std::string> open;
  std::string seen;
  for (const Advised& advised : all) {
    if (compared.moot.contains(advised.remedy)) continue;
    const auto found = compared.names.find(advised.remedy);
    if (found == compared.names.end()) {
      open.emplace_back(advised.text);
    } else {
      seen += (seen.empty() ? "" : ", ") + std::string(advised.text) + " (" + found->second + ")";
    }
  }
  std::string text = lead;
  for (std::size_t i = 0; i < open.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == open.size() ? " or " : ", ") + open[i];
  }
  if (open.empty()) {
    text.clear();
  } else {
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    text += " may help.";
  }
  if (!seen.empty()) {
    text += (text.empty() ? "" : " ") + compared.verdict + ": " + seen + ".";
  }
  return text;
}

std::vector<Advised> cache_remedies() {
  using R = TuneRemedy;
  return {{R::LargerCache, "a larger cache"},
          {R::Fp8Cache, "kv_cache.dtype fp8"},
          {R::Other, "weights of fewer bits"},
          {R::MoreGpus, "more GPUs"}};
}

// The cause of TuneLimit::KvCache, in a sentence.
std::string full_cache_text(const StepBounds& bounds) {
  std::string text = "Requests wait for blocks of the KV cache";
  if (bounds.num_cached_requests > 0) {
    text += ", which holds about " + count_text(bounds.num_cached_requests, "request");
  }
  return text + ".";
}

std::string full_step_advice(const SloConfig& slo, const StepBounds& bounds,
                             const ComparedRemedies& compared) {
  std::string text = "A full step of " + tokens_text(bounds.full_step_tokens) + " takes " +
                     ms_text(bounds.full_step_ms) + " ms alone" +
                     (bounds.encode_ms > 0 ? ", " + ms_text(bounds.encode_ms) +
                                                 " of them to encode the largest image"
                                           : "") +
                     ", more than the " + limit_text("ITL", slo.itl_ms) + ". ";
  using R = TuneRemedy;
  if (bounds.fitting_tokens > 0) {
    text += "A budget of at most " + tokens_text(bounds.fitting_tokens) +
            " keeps the limit, before decodes are added. ";
    return text + remedies_text({{R::SmallerBudget, "a smaller token budget"},
                                 {R::FasterGpu, "a faster GPU"},
                                 {R::MoreGpus, "more GPUs"},
                                 {R::Other, "a higher limit"}},
                                compared);
  }
  text += "Even a step of one token takes " + ms_text(bounds.one_token_ms) + " ms. ";
  std::vector<Advised> left = {{R::FasterGpu, "a faster GPU"},
                               {R::MoreGpus, "more GPUs"},
                               {R::Other, "a smaller model"},
                               {R::Other, "a higher limit"}};
  if (bounds.encode_ms > 0) left.insert(left.begin(), {R::Other, "smaller images"});
  return text + remedies_text(left, compared, "Only ");
}

std::int64_t longest_prompt(const Workload& workload) {
  std::int64_t longest = 1;
  for (const RequestSpec& request : workload.requests) {
    longest = std::max<std::int64_t>(longest, request.num_prompt_tokens);
  }
  return longest;
}

bool is_faster(const std::string& to, const std::string& from) {
  const std::optional<HardwareSpec> a = known_hardware(to);
  const std::optional<HardwareSpec> b = known_hardware(from);
  if (!a || !b) return false;
  const bool is_as_fast = a->peak_flops >= b->peak_flops && a->peak_bandwidth >= b->peak_bandwidth;
  return is_as_fast && (a->peak_flops > b->peak_flops || a->peak_bandwidth > b->peak_bandwidth);
}

bool has_larger_cache(const Scenario& to, const Scenario& from) {
  const auto& blocks_to = to.kv_cache.num_blocks;
  const auto& blocks_from = from.kv_cache.num_blocks;
  if (blocks_to && blocks_from) {
    return *blocks_to * to.kv_cache.block_size > *blocks_from * from.kv_cache.block_size;
  }
  return !blocks_to && !blocks_from &&
         to.cost_model.gpu_memory_utilization > from.cost_model.gpu_memory_utilization;
}

// Whether `to` is `from` with the remedy, whatever else differs.
bool has_remedy(TuneRemedy remedy, const Scenario& to, const Scenario& from) {
  const std::int64_t size_to = largest_prefill(to.scheduler);
  const std::int64_t size_from = largest_prefill(from.scheduler);
  const bool has_sizes = size_to > 0 && size_from > 0;
  switch (remedy) {
    case TuneRemedy::LargerBudget: return has_sizes && size_to > size_from;
    case TuneRemedy::SmallerBudget: return has_sizes && size_to < size_from;
    case TuneRemedy::HigherMaxNumSeqs: return to.engine.max_num_seqs > from.engine.max_num_seqs;
    case TuneRemedy::LowerMaxNumSeqs: return to.engine.max_num_seqs < from.engine.max_num_seqs;
    case TuneRemedy::LargerCache: return has_larger_cache(to, from);
    case TuneRemedy::Fp8Cache: return to.kv_dtype == KvDtype::Fp8 && from.kv_dtype != KvDtype::Fp8;
    case TuneRemedy::LongerRequests:
      return to.engine.max_model_len.value_or(kNever) > from.engine.max_model_len.value_or(kNever);
    case TuneRemedy::FasterGpu: return is_faster(to.hardware, from.hardware);
    case TuneRemedy::MoreGpus:
      return to.cost_model.tensor_parallel_size > from.cost_model.tensor_parallel_size;
    case TuneRemedy::Other: break;
  }
  return false;
}

}  // namespace

std::string_view to_string(TuneLimit limit) { return kNames[static_cast<std::size_t>(limit)]; }

std::int64_t longest_request(const Workload& workload) {
  std::int64_t longest = 1;
  for (const RequestSpec& request : workload.requests) {
    longest = std::max<std::int64_t>(
        longest, std::int64_t{request.num_prompt_tokens} + request.max_output_tokens);
  }
  return longest;
}

StepBounds step_bounds(const Scenario& scenario, const PreparedRun& run, const Workload& workload) {
  const StepDurations times(scenario, run);
  const std::int64_t longest =
      std::min<std::int64_t>(longest_prompt(workload), run.setup.max_model_len);
  StepBounds bounds;
  bounds.full_step_tokens = largest_prefill(scenario.scheduler);
  if (bounds.full_step_tokens == 0) bounds.full_step_tokens = longest;
  bounds.encode_ms = to_ms(image_encode_ns(scenario, run.model, largest_image(workload)));
  const auto with_image_ms = [&](std::int64_t num_tokens) {
    return times.prefill_ms(num_tokens, longest, true) + bounds.encode_ms;
  };
  bounds.full_step_ms = with_image_ms(bounds.full_step_tokens);
  bounds.one_token_ms = with_image_ms(1);
  set_capacity(times, run, workload, longest, bounds);
  const std::int64_t chunk = std::min(bounds.full_step_tokens, longest);
  const std::int64_t num_steps = (longest + chunk - 1) / chunk;
  bounds.longest_prompt_ms =
      static_cast<double>(num_steps) * times.prefill_ms(chunk, longest, false) + bounds.encode_ms;
  if (!scenario.slo.itl_ms || bounds.one_token_ms > *scenario.slo.itl_ms) return bounds;
  std::int64_t low = 1;
  std::int64_t high = std::max<std::int64_t>(bounds.full_step_tokens, 2);
  while (high > low + 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (with_image_ms(middle) <= *scenario.slo.itl_ms ? low : high) = middle;
  }
  bounds.fitting_tokens = bounds.full_step_ms <= *scenario.slo.itl_ms ? high : low;
  return bounds;
}

TuneLimit binding_limit(const TuneTrial& failing, const SloConfig& slo, const StepBounds& bounds) {
  const SloMisses& misses = failing.misses;
  const std::size_t most = std::max(
      {misses.ttft, misses.tpot, misses.itl, misses.e2el, misses.not_completed, std::size_t{1}});
  if (misses.not_completed == most) return TuneLimit::NotCompleted;
  if (misses.itl == most) {
    return bounds.full_step_ms > slo.itl_ms.value_or(0) ? TuneLimit::FullStep : TuneLimit::Itl;
  }
  if (misses.tpot == most) return TuneLimit::Tpot;
  if (misses.ttft != most && misses.e2el != most) return TuneLimit::None;
  const WaitReasons& waits = failing.waits;
  const double longest = std::max({waits.kv_cache, waits.max_num_seqs, waits.steps});
  if (longest > 0 && waits.kv_cache == longest) return TuneLimit::KvCache;
  if (longest > 0 && waits.max_num_seqs == longest) return TuneLimit::MaxNumSeqs;
  if (misses.ttft == most && slo.ttft_ms && bounds.longest_prompt_ms > *slo.ttft_ms &&
      failing.summary.busy_share < kBusy) {
    return TuneLimit::PromptAlone;
  }
  return misses.ttft == most || failing.summary.busy_share >= kBusy ? TuneLimit::Throughput
                                                                    : TuneLimit::E2el;
}

ComparedRemedies compared_remedies(const Scenario& from, const std::vector<ComparedSetting>& others,
                                   std::string verdict) {
  ComparedRemedies compared;
  compared.verdict = std::move(verdict);
  if (largest_prefill(from.scheduler) == 0) {
    compared.moot = {TuneRemedy::LargerBudget, TuneRemedy::SmallerBudget};
  }
  if (from.kv_dtype == KvDtype::Fp8) compared.moot.insert(TuneRemedy::Fp8Cache);
  if (!from.engine.max_model_len) compared.moot.insert(TuneRemedy::LongerRequests);
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(TuneRemedy::Other); ++i) {
    const auto remedy = static_cast<TuneRemedy>(i);
    for (const ComparedSetting& other : others) {
      if (has_remedy(remedy, *other.scenario, from)) compared.names.emplace(remedy, other.name);
    }
  }
  return compared;
}

std::string limit_advice(TuneLimit limit, const SloConfig& slo, const StepBounds& bounds,
                         const ComparedRemedies& compared) {
  using R = TuneRemedy;
  const Advised faster = {R::FasterGpu, "a faster GPU"};
  const Advised more = {R::MoreGpus, "more GPUs"};
  const Advised smaller = {R::SmallerBudget, "a smaller token budget"};
  const Advised fewer = {R::LowerMaxNumSeqs, "a lower max_num_seqs"};
  const Advised higher = {R::Other, "a higher limit"};
  const auto text = [&compared](const std::string& why, const std::vector<Advised>& remedies) {
    return why + " " + remedies_text(remedies, compared);
  };
  switch (limit) {
    case TuneLimit::None: return "";
    case TuneLimit::NotCompleted:
      return text("Requests are refused or too long for this engine.",
                  {{R::LargerCache, "a larger KV cache"},
                   {R::LongerRequests, "a longer max_model_len"},
                   {R::Other, "shorter requests"}});
    case TuneLimit::FullStep: return full_step_advice(slo, bounds, compared);
    case TuneLimit::Itl: {
      std::string why = "Steps with decodes and prompt tokens take longer than the " +
                        limit_text("ITL", slo.itl_ms) + ".";
      std::vector<Advised> remedies = {smaller, fewer, faster};
      if (bounds.encode_ms > 0) {
        why += " The largest image takes " + ms_text(bounds.encode_ms) +
               " ms to encode, at any budget.";
        remedies.insert(remedies.begin(), {R::Other, "smaller images"});
      }
      return text(why, remedies);
    }
    case TuneLimit::Tpot:
      return text("Steps take longer on average than the " + limit_text("TPOT", slo.tpot_ms) + ".",
                  {smaller, fewer, faster});
    case TuneLimit::PromptAlone:
      return text("The longest prompt alone takes " + ms_text(bounds.longest_prompt_ms) +
                      " ms to prefill, more than the " + limit_text("TTFT", slo.ttft_ms) + ".",
                  {higher, {R::Other, "shorter prompts"}, faster, more});
    case TuneLimit::KvCache: return text(full_cache_text(bounds), cache_remedies());
    case TuneLimit::MaxNumSeqs:
      return text("Requests wait because max_num_seqs requests are running.",
                  {{R::HigherMaxNumSeqs, "a higher max_num_seqs"}});
    case TuneLimit::Throughput:
      return text("Requests wait for room in a step.",
                  {{R::LargerBudget, "a larger token budget"}, faster, more});
    case TuneLimit::E2el:
      return text("Answers take longer than the " + limit_text("E2EL", slo.e2el_ms) + ".",
                  {{R::Other, "shorter answers"}, faster, higher});
  }
  return "";
}

std::string overload_advice(const TuneTrial& trial, TuneLimit limit, const StepBounds& bounds,
                            const ComparedRemedies& compared) {
  constexpr double kClear = 2.5;  // the closed form may be wrong by as much
  const bool has_waited = limit == TuneLimit::Throughput || limit == TuneLimit::KvCache ||
                          limit == TuneLimit::MaxNumSeqs;
  const double load = trial.load;
  const bool lacks_cache = limit == TuneLimit::KvCache;
  std::vector<Advised> remedies = {{TuneRemedy::FasterGpu, "a faster GPU"},
                                   {TuneRemedy::MoreGpus, "more GPUs"}};
  if (lacks_cache) remedies = cache_remedies();
  remedies.insert(remedies.begin(), {TuneRemedy::Other, "a lower load"});
  if (!has_waited || trial.summary.busy_share < kBusy) return "";
  if (!(bounds.capacity > 0) || load < kClear * bounds.capacity) return "";
  return "At " + rate_text(load) + " requests/s the load is " +
         fixed_text(load / bounds.capacity, 1) + " times the capacity (about " +
         rate_text(bounds.capacity) + " requests/s). " +
         (lacks_cache ? full_cache_text(bounds) + " " : "") + remedies_text(remedies, compared);
}

Scenario with_fitting_length(const Scenario& scenario, const PreparedRun& run,
                             const Workload& workload, std::string& note) {
  constexpr std::int64_t kRound = 256;
  Scenario fitting = scenario;
  const KvCacheLayout& cache = run.setup.kv_cache;
  const std::int64_t num_usable = cache.num_blocks - (cache.has_null_block ? 1 : 0);
  const std::int64_t capacity = std::max<std::int64_t>(num_usable, 0) * cache.block_size;
  if (capacity == 0 || run.setup.max_model_len <= capacity) return fitting;
  const std::int64_t needed = (longest_request(workload) + kRound - 1) / kRound * kRound;
  const std::int64_t length = std::min({needed, capacity, std::int64_t{run.setup.max_model_len}});
  fitting.engine.max_model_len = length;
  note = "max_model_len is reduced to " + tokens_text(length) + ", " +
         (needed <= capacity ? "enough for the longest request" : "the size of the KV cache") +
         ": the engine does not start with " + tokens_text(run.setup.max_model_len) +
         ", more than the cache holds (" + grouped_text(capacity) + ")";
  return fitting;
}

}  // namespace metronome
