// SPDX-License-Identifier: Apache-2.0
// Sizes chunks by time instead of tokens. A step adds the largest prefill chunk to its decodes with
// which its predicted end keeps every decode within its target. TTFT deadlines order the prompts.
//
// A decode must end within its ITL target after the last token. With a TPOT target the mean gap
// since the first token must stay within that. All decodes got their last token from the previous
// step. A step that begins late has less time. Without decodes the first prompt gets up to
// max_num_batched_tokens, and others join it within the target.
//
// Prompts run by deadline, short ones a little earlier. Prompts that miss their deadline, or yield
// so that more others meet theirs (core/engine/policies/deadline_order.h), come after these, oldest
// first. They do not starve: a `late_share` of the steps with prompts begins with the oldest of
// them. A waiting prompt that finds no room blocks the admission of all after it.
//
// Admission requires that all decodes, with their current contexts, leave room for a tile of a
// prompt within the target. The policy does not know output lengths: max_num_seqs must keep
// contexts from exceeding the target. When they grow until no chunk keeps the target, prompts wait
// at most `max_held_steps` steps and then advance by a tile. When decodes alone exceed it, prompts
// advance by a tile in every step. If the decode of the longest context alone plus a tile misses
// the target, the target restricts no request.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/decode_run.h"
#include "core/engine/policies/deadline_order.h"
#include "core/engine/policies/policies.h"
#include "core/engine/policies/step_correction.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

constexpr double kRateWeight = 1.0 / 8;
// Decode-only steps are alike, so only one of this many is compared with its prediction.
constexpr std::int64_t kDecodeStepsPerLesson = 8;
constexpr TimeNs kGapSteps = 8;  // the host gap is a mean over about this many steps

std::optional<TimeNs> ns_of(const std::optional<double>& ms) {
  if (!ms) return std::nullopt;
  return std::llround(*ms * static_cast<double>(kNsPerMs));
}

std::string tenths_text(TimeNs ns) {
  const TimeNs tenths = (ns + kNsPerMs / 20) / (kNsPerMs / 10);
  return fmt::format("{}.{} ms", tenths / 10, tenths % 10);
}

class SloPolicy final : public Policy {
 public:
  explicit SloPolicy(const PolicyContext& context)
      : predictor_(context.predictor),
        is_separate_(context.step_shape == StepShape::Separate),
        itl_target_(ns_of(context.config.slo.itl_target_ms)),
        tpot_target_(ns_of(context.config.slo.tpot_target_ms)),
        ttft_deadline_(ns_of(context.config.slo.ttft_deadline_ms)),
        budget_(token_budget(context.config)),
        tile_(context.config.slo.tile_tokens),
        headroom_(context.config.slo.headroom),
        late_share_(context.config.slo.late_share),
        max_held_steps_(context.config.slo.max_held_steps) {}

  std::string remark() const override {
    if (num_missed_ == 0) return {};
    return fmt::format(
        "policy slo: {} of {} steps with prompts and decodes took longer than predicted and missed "
        "their target, by up to {}",
        num_missed_, num_mixed_steps_, tenths_text(worst_miss_ns_));
  }

  bool may_repeat() const override { return false; }  // it learns from each step
  std::int64_t max_tokens_per_step() const override { return budget_; }

  void fill(Books& books) override {
    books_ = &books;
    books_->plan_decodes();
    begin_forecast();
    list_jobs();
    if (!jobs_.empty()) plan_prompts();
    end_forecast();
  }

  void requeue(Books& books, Request& request) override {
    Policy::requeue(books, request);
    line_.push(request);
  }

  void on_commit(Books& books, const StepPlan& plan, const StepResult& result,
                 const CommitReport& report) override {
    if (predictor_ == nullptr) return;
    --num_in_flight_;
    const Forecast& forecast = forecasts_[static_cast<std::size_t>(plan.step_index % kMaxInFlight)];
    if (plan.step_index == newest_step_) {
      free_at_ = result.finished_at;
    } else {
      free_at_ += result.finished_at - forecast.finish;  // the later step shifts with it
    }
    if (tpot_target_) {
      first_token_at_.resize(books.requests().size(), kNoTime);
      for (const RequestId id : report.first_tokens) {
        first_token_at_[index(id)] = result.finished_at;
      }
    }
    const TimeNs finished_before = std::exchange(finished_at_, result.finished_at);
    if (result.failed) return;
    if (result.started_at > finished_before) {  // the device was waiting for the host
      const TimeNs expected = std::max<TimeNs>(forecast.gap_ns + gap_correction_, 0);
      const TimeNs gap = result.started_at - plan.planned_at;
      // A hiccup of the host, of many gaps' length, says little of the next gap.
      gap_correction_ += (std::min(gap, 2 * expected + kNsPerMs) - expected) / kGapSteps;
    }
    correction_.learn(forecast.device_ns, result.finished_at - result.started_at,
                      plan.num_prefill_tokens);
    if (plan.num_prefill_tokens == 0 || plan.num_decode_tokens == 0) return;
    ++num_mixed_steps_;
    if (!forecast.is_within_target || result.finished_at <= forecast.deadline) return;
    ++num_missed_;
    worst_miss_ns_ = std::max(worst_miss_ns_, result.finished_at - forecast.deadline);
  }

 private:
  // A launched step whose result is not yet known.
  struct Forecast {
    TimeNs device_ns = kNoTime;  // predicted, not corrected; kNoTime: not predicted
    TimeNs gap_ns = 0;           // predicted, not corrected
    TimeNs finish = 0;
    TimeNs deadline = kNever;  // of its decodes
    bool is_within_target = false;
  };

  // ---- time ----

  bool is_timed() const { return predictor_ != nullptr && (itl_target_ || tpot_target_); }

  // Host time before the planned step, predicted and corrected.
  TimeNs host_gap(const StepPlan& plan) const {
    if (predictor_ == nullptr) return 0;
    return std::max<TimeNs>(predictor_->host_gap_ns(plan) + gap_correction_, 0);
  }

  void begin_forecast() {
    const TimeNs gap = host_gap(books_->plan());
    start_ = std::max(books_->now() + gap, free_at_);
    deadline_ = decode_deadline();
    const TimeNs target = std::min(itl_target_.value_or(kNever), tpot_target_.value_or(kNever));
    if (!is_timed()) {
      limit_ns_ = steady_limit_ns_ = kNever;
      return;
    }
    const auto margin = static_cast<TimeNs>(headroom_ * static_cast<double>(target));
    // While the device waits for the host, the decodes wait, too.
    const TimeNs pause = std::max<TimeNs>(books_->now() + gap - free_at_, 0);
    steady_limit_ns_ = target - margin - std::min(pause, gap);
    limit_ns_ = deadline_ == kNever ? steady_limit_ns_ : deadline_ - margin - start_;
  }

  // The time at which the step must end for its decodes.
  TimeNs decode_deadline() {
    if (books_->plan().num_decode_tokens == 0 || !is_timed()) return kNever;
    TimeNs deadline = itl_target_ ? free_at_ + *itl_target_ : kNever;
    if (!tpot_target_) return deadline;
    visit_decodes([&](RequestId id, std::int32_t end_position) {
      const std::int64_t num_gaps = end_position - books_->requests()[id].num_prompt_tokens;
      deadline = std::min(deadline, first_token_at(id) + num_gaps * *tpot_target_);
    });
    return deadline;
  }

  // If unknown, the step in flight will give the first token.
  TimeNs first_token_at(RequestId id) const {
    const std::size_t at = index(id);
    return at < first_token_at_.size() && first_token_at_[at] != kNoTime ? first_token_at_[at]
                                                                         : free_at_;
  }

  // Calls `visit` with the request and the end of each decode of the plan.
  template <class Visit>
  void visit_decodes(const Visit& visit) const {
    if (const RunMembers* run = books_->plan().run.members) {
      for (const RunMembers::Member& member : run->all()) {
        visit(member.request, run->position_of(member) + 1);
      }
    }
    for (const ScheduledChunk& chunk : books_->plan().chunks) {
      if (chunk.kind == ChunkKind::Decode) visit(chunk.request, chunk.end_position());
    }
  }

  // The trial step: the current plan, to which a chunk can be added.
  void reset_trial() {
    trial_.run = books_->plan().run;
    trial_.chunks = books_->plan().chunks;
  }
  void clear_trial() {
    trial_.run = {};
    trial_.chunks.clear();
  }

  // Time from `start_` to the end of the trial step. Its chunks may delay it, because the host
  // prepares them.
  TimeNs predict_trial(std::int32_t num_prefill_tokens) {
    const auto num_chunks = static_cast<std::int32_t>(trial_.num_chunks());
    const std::int32_t num_decodes = is_separate_ ? books_->plan().num_decode_tokens : 0;
    trial_.passes.clear();
    if (num_decodes > 0) trial_.passes.push_back({0, num_decodes});
    if (num_decodes < num_chunks) trial_.passes.push_back({num_decodes, num_chunks});
    if (trial_.passes.empty()) return 0;
    trial_.num_decode_tokens = books_->plan().num_decode_tokens;
    trial_.num_prefill_tokens = num_prefill_tokens;
    trial_ns_ = predictor_->step_ns(trial_);
    const TimeNs begin = std::max(books_->now() + host_gap(trial_), free_at_);
    return begin - start_ + correction_.corrected_ns(trial_ns_, num_prefill_tokens);
  }

  TimeNs predict_with(const Request& request, std::int32_t num_tokens) {
    if (!is_timed()) return 0;
    const std::int32_t num_left = books_->num_uncomputed_tokens(request);
    trial_.chunks.push_back({.request = request.id,
                             .first_position = request.num_tokens() - num_left,
                             .num_tokens = num_tokens,
                             .kind = ChunkKind::Prefill,
                             .samples_token = num_tokens == num_left});
    const TimeNs ns = predict_trial(books_->plan().num_prefill_tokens + num_tokens);
    trial_.chunks.pop_back();
    return ns;
  }

  // ---- order ----

  // Lists prompts in the order of service.
  void list_jobs() {
    for (; num_known_ < books_->requests().size(); ++num_known_) {
      Request& request = books_->requests()[static_cast<RequestId>(num_known_)];
      if (request.state == RequestState::Waiting) line_.push(request);
    }
    if (ttft_deadline_) line_.set_lost_aside(start_ - *ttft_deadline_);
    jobs_.clear();
    late_turn_ = nullptr;
    for (Request* request : books_->unfinished_prefills()) jobs_.push_back({.request = request});
    if (books_->next_waiting() != nullptr) line_.list(jobs_);
    if (jobs_.size() < 2) return;
    // Requests preempted after their first output token come first. The others are in submission
    // order, which is deadline order.
    const auto is_before = [](const PromptJob& a, const PromptJob& b) {
      const bool answers_a = a.request->num_output_tokens() > 0;
      const bool answers_b = b.request->num_output_tokens() > 0;
      return answers_a != answers_b ? answers_a : a.request->id < b.request->id;
    };
    if (!std::is_sorted(jobs_.begin(), jobs_.end(), is_before)) {
      std::sort(jobs_.begin(), jobs_.end(), is_before);
    }
    if (ttft_deadline_ && is_timed()) set_back_late_jobs();
  }

  void set_back_late_jobs() {
    const double ns_per_token = ns_per_prompt_token();
    for (PromptJob& job : jobs_) {
      const std::int32_t num_tokens = books_->num_uncomputed_tokens(*job.request);
      job.work_ns = std::llround(ns_per_token * num_tokens);
      if (job.request->num_output_tokens() == 0) {
        job.deadline = job.request->arrival + *ttft_deadline_;
      }
    }
    late_marker_.mark_late(jobs_, start_);
    const auto is_on_time = [](const PromptJob& job) { return !job.is_late; };
    const auto late = std::stable_partition(jobs_.begin(), jobs_.end(), is_on_time);
    const auto answers = [](const PromptJob& job) { return job.request->num_output_tokens() > 0; };
    const auto unanswered = std::find_if_not(jobs_.begin(), late, answers);
    const auto first = static_cast<std::size_t>(unanswered - jobs_.begin());
    const auto count = static_cast<std::size_t>(late - unanswered);
    let_short_jobs_pass(std::span(jobs_).subspan(first, count), start_);
    if (late == jobs_.end() || late == jobs_.begin()) return;
    late_credit_ = std::min(late_credit_ + late_share_, 2.0);
    if (late_credit_ < 1) return;
    late_turn_ = late->request;
    std::rotate(jobs_.begin(), late, late + 1);
  }

  // Time per prompt token, beside the current number of decodes.
  double ns_per_prompt_token() {
    if (ns_per_token_ == 0) {
      constexpr std::int32_t kTypicalTokens = 2048;
      clear_trial();
      trial_.chunks.assign(1, {.request = jobs_.front().request->id,
                               .first_position = 0,
                               .num_tokens = kTypicalTokens,
                               .kind = ChunkKind::Prefill,
                               .samples_token = true});
      trial_.passes.assign(1, {0, 1});
      trial_.num_decode_tokens = 0;
      trial_.num_prefill_tokens = kTypicalTokens;
      const TimeNs ns = correction_.corrected_ns(predictor_->step_ns(trial_), kTypicalTokens);
      ns_per_token_ = static_cast<double>(ns) / kTypicalTokens;
    }
    return ns_per_token_;
  }

  // ---- chunks ----

  // The k-th chunk size that ends a forward pass on a tile boundary.
  std::int32_t aligned(std::int32_t k) const {
    const StepPlan& plan = books_->plan();
    const std::int32_t before = is_separate_ ? plan.num_prefill_tokens : plan.num_tokens();
    return k * tile_ - before % tile_;
  }
  // The largest such size up to `most`, the rest of the budget. If no such size fits and the step
  // has no prefill yet, returns `most`.
  std::int32_t aligned_below(std::int32_t most) const {
    const std::int32_t k = (most - aligned(0)) / tile_;
    if (k > 0) return aligned(k);
    return books_->plan().num_prefill_tokens > 0 ? 0 : most;
  }

  std::int32_t tokens_left() const { return budget_ - books_->plan().num_tokens(); }

  // The largest chunk within the limit; 0: none. `base_ns` is the step's time without it.
  std::int32_t largest_chunk(const Request& request, TimeNs base_ns) {
    const std::int32_t remaining = books_->num_uncomputed_tokens(request);
    const std::int32_t most = std::min(remaining, tokens_left());
    if (most <= 0) return 0;
    const bool is_free = !is_timed() || books_->plan().empty();
    const TimeNs most_ns = is_free ? 0 : predict_with(request, most);
    if (is_free || most_ns <= limit_ns_) {
      return most == remaining ? most : aligned_below(most);
    }
    // Chunk `low` is within the limit, chunk `high` is not.
    std::int32_t low = 0;
    std::int32_t high = (most - aligned(0) + tile_ - 1) / tile_;
    TimeNs low_ns = base_ns;
    TimeNs high_ns = most_ns;
    if (low_ns > limit_ns_) return 0;
    for (bool halves = false; high - low > 1; halves = !halves) {
      std::int32_t middle = low + (high - low) / 2;
      if (!halves && high_ns > low_ns) {  // time is nearly linear: a secant saves predictions
        const double share =
            static_cast<double>(limit_ns_ - low_ns) / static_cast<double>(high_ns - low_ns);
        middle =
            std::clamp(low + static_cast<std::int32_t>(share * (high - low)), low + 1, high - 1);
      }
      const TimeNs ns = predict_with(request, aligned(middle));
      (ns <= limit_ns_ ? low : high) = middle;
      (ns <= limit_ns_ ? low_ns : high_ns) = ns;
    }
    return low == 0 ? 0 : aligned(low);
  }

  // The chunk by which a prompt advances when nothing fits.
  std::int32_t least_chunk(const Request& request) const {
    const std::int32_t chunk = 2 * aligned(1) >= tile_ ? aligned(1) : aligned(2);
    return std::min({chunk, books_->num_uncomputed_tokens(request), tokens_left()});
  }

  // ---- a step ----

  void plan_prompts() {
    reset_trial();
    const bool has_decodes = books_->plan().num_decode_tokens > 0;
    TimeNs base_ns = is_timed() && has_decodes ? predict_trial(0) : 0;
    bool must_advance = has_decodes && (base_ns > limit_ns_ || num_held_steps_ >= max_held_steps_);
    can_keep_target_ = !is_timed() || can_keep_target();
    reset_trial();
    if (has_decodes && !can_keep_target_) {
      limit_ns_ = std::max(limit_ns_, 2 * least_step_ns());
      must_advance = true;
    }
    bool may_admit = true;
    for (const PromptJob& job : jobs_) {
      Request& request = *job.request;
      const bool waits = request.state == RequestState::Waiting;
      if (waits ? !may_admit : request.state != RequestState::Prefill) continue;
      std::int32_t num_tokens = largest_chunk(request, base_ns);
      const bool is_first = books_->plan().num_prefill_tokens == 0;
      if (num_tokens == 0 && is_first && must_advance) num_tokens = least_chunk(request);
      if (num_tokens <= 0) break;
      const bool completes = num_tokens == books_->num_uncomputed_tokens(request);
      if (!(waits ? admit(request, num_tokens) : books_->plan_prefill(request, num_tokens))) {
        may_admit = may_admit && !waits;
        reset_trial();
        continue;
      }
      if (&request == late_turn_) late_credit_ -= 1;
      is_full_ = !completes;
      if (is_full_) break;
      reset_trial();
      if (is_timed()) base_ns = predict_trial(books_->plan().num_prefill_tokens);
    }
    const bool has_advanced = books_->plan().num_prefill_tokens > 0;
    num_held_steps_ = has_advanced || !has_decodes ? 0 : num_held_steps_ + 1;
  }

  bool admit(Request& request, std::int32_t num_tokens) {
    if (books_->next_waiting() == nullptr || !has_time_for(request)) return false;
    if (!books_->admit(request, num_tokens)) return false;
    line_.remove(request);
    return true;
  }

  // Whether the decodes of all running requests and of this one leave room for a tile of a prompt.
  bool has_time_for(const Request& request) {
    if (!is_timed() || books_->nothing_runs() || !can_keep_target_) return true;
    clear_trial();
    if (const RunMembers* run = books_->plan().run.members) {
      next_run_ = *run;
      next_run_.take_steps(1);
      trial_.run.num_decodes = next_run_.size();
      trial_.run.members = &next_run_;
    }
    for (const ScheduledChunk& chunk : books_->plan().chunks) {
      if (chunk.samples_token) add_decode(chunk.request, chunk.end_position());
    }
    for (const Request* begun : books_->running_behind_run()) {
      if (begun->state == RequestState::Prefill) add_decode(begun->id, begun->num_tokens());
    }
    add_decode(request.id, request.num_tokens());
    return predict_beside_tile() <= steady_limit_ns_;
  }

  void add_decode(RequestId id, std::int32_t position) {
    trial_.chunks.push_back({.request = id,
                             .first_position = position,
                             .num_tokens = 1,
                             .kind = ChunkKind::Decode,
                             .samples_token = true});
  }

  TimeNs predict_beside_tile() {
    const auto num_decodes = static_cast<std::int32_t>(trial_.num_chunks());
    trial_.chunks.push_back({.request = kNoRequest,
                             .first_position = 0,
                             .num_tokens = tile_,
                             .kind = ChunkKind::Prefill,
                             .samples_token = false});
    trial_.num_decode_tokens = num_decodes;
    trial_.num_prefill_tokens = tile_;
    trial_.passes.clear();
    if (is_separate_) trial_.passes.push_back({0, num_decodes});
    trial_.passes.push_back({is_separate_ ? num_decodes : 0, num_decodes + 1});
    return correction_.corrected_ns(predictor_->step_ns(trial_), tile_);
  }

  // The time of the shortest step that serves a prompt.
  TimeNs least_step_ns() {
    reset_trial();
    const Request& request = *jobs_.front().request;
    return predict_with(request, least_chunk(request));
  }

  // Whether the decode of the longest context alone leaves room for a tile. If not, the target
  // cannot be kept: requests are neither kept out nor held, and steps with prompts may take twice
  // the shortest time.
  bool can_keep_target() {
    std::int32_t longest = 0;
    visit_decodes([&](RequestId, std::int32_t end) { longest = std::max(longest, end - 1); });
    clear_trial();
    add_decode(kNoRequest, longest);
    return predict_beside_tile() <= steady_limit_ns_;
  }

  // ---- results ----

  void end_forecast() {
    const StepPlan& plan = books_->plan();
    if (plan.empty() || predictor_ == nullptr) return;
    is_pipelined_ = is_pipelined_ || num_in_flight_ > 0;
    ++num_in_flight_;
    const bool is_mixed = plan.num_prefill_tokens > 0 && plan.num_decode_tokens > 0;
    const bool is_lesson = plan.step_index % kDecodeStepsPerLesson == 0;
    Forecast& forecast = forecasts_[static_cast<std::size_t>(plan.step_index % kMaxInFlight)];
    forecast = {.gap_ns = predictor_->host_gap_ns(plan), .deadline = deadline_};
    if (plan.num_prefill_tokens > 0 || is_lesson || is_pipelined_) {
      reset_trial();
      const TimeNs step_ns = predict_trial(plan.num_prefill_tokens);
      forecast.device_ns = trial_ns_;
      free_at_ = start_ + step_ns;
      forecast.is_within_target = is_mixed && free_at_ <= deadline_;
      if (std::exchange(is_full_, false)) learn_rate(step_ns + start_ - books_->now());
    }
    forecast.finish = free_at_;
    newest_step_ = plan.step_index;
  }

  void learn_rate(TimeNs step_ns) {
    const double ns = static_cast<double>(step_ns) / books_->plan().num_prefill_tokens;
    ns_per_token_ += ns_per_token_ == 0 ? ns : kRateWeight * (ns - ns_per_token_);
  }

  Books* books_ = nullptr;  // while it fills a plan
  StepTimePredictor* predictor_;
  bool is_separate_;
  std::optional<TimeNs> itl_target_;
  std::optional<TimeNs> tpot_target_;
  std::optional<TimeNs> ttft_deadline_;
  std::int32_t budget_;
  std::int32_t tile_;
  double headroom_;
  double late_share_;
  std::int32_t max_held_steps_;

  // Known or predicted state of the device.
  StepCorrection correction_;
  TimeNs gap_correction_ = 0;  // measured minus predicted
  TimeNs free_at_ = 0;         // end of the last launched step
  TimeNs finished_at_ = 0;     // end of the last committed step
  std::int64_t newest_step_ = -1;
  std::int32_t num_in_flight_ = 0;
  bool is_pipelined_ = false;
  std::array<Forecast, kMaxInFlight> forecasts_;
  std::vector<TimeNs> first_token_at_;  // by request; kNoTime: unknown
  double ns_per_token_ = 0;             // per prompt token, in steps that a prompt fills

  // State of the current plan.
  TimeNs start_ = 0;            // when it reaches the device
  TimeNs deadline_ = kNever;    // of its decodes
  TimeNs limit_ns_ = kNever;    // for its device time
  TimeNs steady_limit_ns_ = 0;  // the same for a step right after one in which every decode got a
                                // token
  std::vector<PromptJob> jobs_;
  LateMarker late_marker_;
  const Request* late_turn_ = nullptr;  // a late request that goes first in this plan
  StepPlan trial_;
  RunMembers next_run_;   // the plan's run, a step further
  TimeNs trial_ns_ = 0;   // predicted, not corrected
  bool is_full_ = false;  // the plan ends in the middle of a prompt
  bool can_keep_target_ = true;

  DeadlineLine line_;          // waiting requests
  std::size_t num_known_ = 0;  // requests submitted before the last plan
  double late_credit_ = 0;
  std::int32_t num_held_steps_ = 0;
  std::int64_t num_mixed_steps_ = 0;
  std::int64_t num_missed_ = 0;
  TimeNs worst_miss_ns_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_slo(const PolicyContext& context) {
  return std::make_unique<SloPolicy>(context);
}

}  // namespace metronome
