// SGLang: a step prefills whenever a prompt can be admitted, and decodes otherwise. A prompt that
// does not fit the step is chunked; at most one request has an unfinished prompt. The new-token
// ratio estimates the output to reserve. If the estimate was too low, requests are retracted. Names
// are SGLang's where they exist.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

using Batch = std::vector<Request*>;

// Limits of the longest-prefix order.
constexpr std::size_t kMaxSortedQueue = 128;
constexpr std::int32_t kInBatchPrefixTokens = 32;

void drop_ended(Batch& batch) {
  std::erase_if(batch, [](const Request* request) { return request->has_ended(); });
}

bool has_decodable(const Batch& batch) {
  return std::any_of(batch.begin(), batch.end(),
                     [](const Request* request) { return request->is_decodable(); });
}

// The remaining token budget of a prefill step. While it counts, no blocks leave the pool.
// `available` falls only by cached prefixes of admitted requests, which can no longer be evicted.
struct PrefillAdder {
  enum class Verdict : std::uint8_t { Continue, NoToken, Other };

  std::int64_t page_size;
  std::int64_t available;  // free tokens, including cached ones
  double total_offset;     // part of it: taken by this step, or expected as output of all requests
  std::int64_t rem_input;
  std::int64_t rem_chunk;

  double rem_total() const { return static_cast<double>(available) - total_offset; }
  std::int64_t ceil_page(std::int64_t tokens) const {
    return ceil_div(tokens, page_size) * page_size;
  }
  std::int64_t floor_page(std::int64_t tokens) const { return tokens / page_size * page_size; }

  void reserve(std::int64_t extend, std::int64_t max_new) {
    const std::int64_t input = ceil_page(extend);
    total_offset += static_cast<double>(input + page_size + max_new);
    rem_input -= input;
    rem_chunk -= input;
  }

  // The next chunk of a prompt with `extend` tokens left. It continues even without tokens left for
  // it, because its blocks would otherwise never be released.
  std::int64_t next_chunk(std::int64_t extend) const {
    const std::int64_t left = std::min(rem_chunk, static_cast<std::int64_t>(rem_total()));
    return std::min(extend, left > 0 ? left : rem_chunk);
  }

  // SGLang's cur_rem excludes expected output and is never less than rem_total.
  Verdict verdict() const {
    if (rem_total() <= 0) return Verdict::NoToken;
    return rem_input <= 0 || rem_chunk <= 0 ? Verdict::Other : Verdict::Continue;
  }
};

class SglangScheduler final : public Scheduler {
 public:
  explicit SglangScheduler(const SchedulerContext& context)
      : Scheduler(context),
        settings_(context.config.sglang),
        page_size_(context.kv_cache.block_size()),
        chunks_(settings_.chunked_prefill_size > 0),
        mixes_(chunks_ && settings_.enable_mixed_chunk),  // whole prompts are never mixed
        // SGLang needs whole pages: a chunk below one page would never begin.
        chunk_size_(ceil_div(settings_.chunked_prefill_size, page_size_) * page_size_),
        init_ratio_(
            std::min(settings_.init_new_token_ratio * settings_.schedule_conservativeness, 1.0)),
        min_ratio_(init_ratio_ * settings_.min_new_token_ratio_factor),
        new_token_ratio_(init_ratio_) {}

  // A request that cannot reserve this in an empty cache would wait forever.
  std::string refusal(const RequestSpec& spec) const override {
    std::string reason = Scheduler::refusal(spec);
    const std::int64_t total =
        spec.num_prompt_tokens + clipped(spec.max_output_tokens) + page_size_;
    const std::int64_t capacity = kv_cache().num_blocks() * page_size_;
    if (!reason.empty() || total < capacity) return reason;
    return "for which sglang reserves " + std::to_string(total) +
           " tokens; it can reserve fewer than " + std::to_string(capacity) +
           " tokens of the KV cache";
  }

 private:
  using Verdict = PrefillAdder::Verdict;

  std::int64_t max_tokens_per_step() const override {
    return chunks_ ? std::max<std::int64_t>(chunk_size_, max_num_seqs()) : INT64_MAX;
  }

  void requeue(Request& request) override { queue().push_back(request); }

  void fill_plan() override {
    if (!has_work()) new_token_ratio_ = init_ratio_;
    merge_last_batch();
    if (!must_decode() && prefill()) return;
    decode();
    // All requests of a batch may have ended. Only decode() finds it empty; then prefill is tried
    // again.
    while (nothing_runs() && !queue().empty()) {
      batch_is_full_ = false;
      if (prefill()) return;
      refuse(*queue().front());  // accepted, then retracted and grown too large
    }
  }

  // Moves the last prefill's requests to the decodes, except one with an unfinished prompt.
  void merge_last_batch() {
    if (last_batch_.empty()) return;
    const std::size_t num_before = last_batch_.size();
    drop_ended(last_batch_);
    std::erase_if(last_batch_,
                  [](const Request* request) { return request->state == RequestState::Prefill; });
    // A batch that replaces an empty one is not marked full.
    if (last_batch_.size() < num_before || running_batch_.empty()) batch_is_full_ = false;
    running_batch_.insert(running_batch_.end(), last_batch_.begin(), last_batch_.end());
    last_batch_.clear();
  }

  bool must_decode() const {
    return settings_.max_consecutive_prefill_batches > 0 &&
           num_consecutive_prefills_ >= settings_.max_consecutive_prefill_batches &&
           num_unfinished_prefills() == 0 && has_decodable(running_batch_);
  }

  bool prefill() {
    Request* chunked = num_unfinished_prefills() > 0 ? unfinished_prefills().front() : nullptr;
    if ((batch_is_full_ || queue().empty()) && chunked == nullptr) return false;
    const std::int64_t allocatable = max_num_seqs() - std::ssize(running_batch_);
    if (allocatable <= 0 && chunked == nullptr) {
      batch_is_full_ = true;
      return false;
    }
    if (settings_.schedule_policy == SglangConfig::SchedulePolicy::Lpm) sort_by_longest_prefix();
    PrefillAdder adder = make_adder();
    if (chunked != nullptr) add_chunked(adder, *chunked);
    Verdict verdict = Verdict::Continue;
    while (verdict == Verdict::Continue && !queue().empty()) {
      if (std::ssize(last_batch_) >= allocatable) batch_is_full_ = true;
      if (batch_is_full_) break;
      verdict = add_one(adder, *queue().front());
    }
    if (verdict == Verdict::NoToken) batch_is_full_ = true;
    if (last_batch_.empty()) return false;
    if (mixes_) mix_with_running();
    ++num_consecutive_prefills_;
    if (current_plan().num_decode_tokens > 0) num_consecutive_prefills_ = 0;
    return true;
  }

  PrefillAdder make_adder() const {
    const std::int64_t mixed = mixes_ ? std::ssize(running_batch_) : 0;
    double expected = 0;
    for (const Request* request : running_batch_) {
      const std::int64_t left = request->max_output_tokens - request->num_output_tokens;
      expected += static_cast<double>(clipped(left)) * new_token_ratio_;
    }
    return {.page_size = page_size_,
            .available = kv_cache().num_free_blocks() * page_size_,
            .total_offset = static_cast<double>(mixed) + expected,
            .rem_input = settings_.max_prefill_tokens - mixed,
            .rem_chunk = chunks_ ? chunk_size_ - mixed : INT64_MAX};
  }

  void add_chunked(PrefillAdder& adder, Request& request) {
    const std::int64_t extend = request.num_uncomputed_tokens();
    const std::int64_t num_tokens = adder.next_chunk(extend);
    adder.reserve(num_tokens, num_tokens == extend ? clipped(request.max_output_tokens) : 0);
    const auto num_new = static_cast<std::int32_t>(num_tokens);
    // Only mixed-in decodes can have taken its room; SGLang runs out of memory here. Then no
    // request is admitted, because rem_total is used up.
    while (!kv_cache().grow(request, request.num_computed_tokens + num_new)) retract();
    add_chunk(request, num_new);
    last_batch_.push_back(&request);
  }

  Verdict add_one(PrefillAdder& adder, Request& request) {
    const PrefixHit& hit = kv_cache().find_prefix(request);
    const std::int64_t extend = request.num_tokens() - hit.num_tokens;
    const std::int64_t left = request.max_output_tokens - request.num_output_tokens;
    const std::int64_t locked = kv_cache().num_blocks_to_take(hit, hit.num_tokens) * page_size_;
    const auto total = static_cast<double>(extend + clipped(left) + page_size_);
    if (total >= adder.rem_total() - static_cast<double>(locked)) return Verdict::NoToken;
    const std::int64_t input = adder.ceil_page(extend);
    // Without chunking the first request is always allowed.
    if (!chunks_ && !last_batch_.empty() && input >= adder.rem_input) return Verdict::Other;
    const bool is_whole = input <= adder.rem_chunk;
    const std::int64_t num_tokens = is_whole ? extend : adder.floor_page(adder.rem_chunk);
    if (num_tokens <= 0) return Verdict::Other;
    adder.available -= locked;
    adder.reserve(num_tokens, is_whole ? clipped(request.max_output_tokens) : 0);
    const auto num_new = static_cast<std::int32_t>(num_tokens);
    start(request, hit, hit.num_tokens + num_new);
    add_chunk(request, num_new);
    last_batch_.push_back(&request);
    return adder.verdict();
  }

  void mix_with_running() {
    plan_tokens();
    last_batch_.insert(last_batch_.end(), running_batch_.begin(), running_batch_.end());
    running_batch_.clear();
  }

  void decode() {
    const std::size_t num_before = running_batch_.size();
    drop_ended(running_batch_);
    if (has_decodable(running_batch_)) {
      if (has_room_to_decode()) {
        const double decay = (init_ratio_ - min_ratio_) / settings_.new_token_ratio_decay_steps;
        new_token_ratio_ = std::max(new_token_ratio_ - decay, min_ratio_);
      } else {
        do {
          retract();
        } while (running_batch_.size() > 1 && !has_room_to_decode());
        METRONOME_CHECK(has_room_to_decode(), "a request that runs alone has room");
      }
      plan_tokens();
      num_consecutive_prefills_ = 0;
    }
    if (running_batch_.size() < num_before || running_batch_.empty()) batch_is_full_ = false;
  }

  // Plans one token for each running request. All have room, except perhaps beside a prefill, where
  // SGLang runs out of memory. There a request without room waits a step.
  void plan_tokens() {
    for (Request* request : running_batch_) {
      if (!request->is_decodable()) continue;  // ended, or its last token is in flight
      if (kv_cache().grow(*request, request->num_computed_tokens + 1)) add_chunk(*request, 1);
    }
  }

  bool has_room_to_decode() const {
    std::int64_t num_pages = 0;
    for (const Request* request : running_batch_) {
      if (!request->is_decodable()) continue;
      num_pages += kv_cache().num_missing_blocks(*request, request->num_computed_tokens + 1);
    }
    return num_pages <= kv_cache().num_free_blocks();
  }

  // Retracts the request with the fewest outputs; ties go to the longest prompt, then to the last
  // to join. Then estimates the ratio anew from the remaining requests.
  void retract() {
    drop_ended(running_batch_);
    METRONOME_CHECK(!running_batch_.empty(), "a running request can be retracted");
    const auto goes_first = [](const Request* a, const Request* b) {
      return a->num_output_tokens != b->num_output_tokens
                 ? a->num_output_tokens < b->num_output_tokens
                 : a->num_prompt_tokens > b->num_prompt_tokens;
    };
    const auto victim =
        std::min_element(running_batch_.rbegin(), running_batch_.rend(), goes_first);
    preempt(**victim);
    running_batch_.erase(std::next(victim).base());
    std::int64_t num_decoded = 0;
    std::int64_t max_new = 0;
    for (const Request* request : running_batch_) {
      num_decoded += request->num_output_tokens + settings_.retract_decode_steps;
      max_new += request->max_output_tokens;
    }
    new_token_ratio_ =
        std::min(1.0, static_cast<double>(num_decoded) / static_cast<double>(max_new + 1));
  }

  // Sorts by longest cached prefix. Of requests with the same uncached beginning, one goes first
  // and the others last: they will hit the blocks it computes. A long queue stays unsorted.
  void sort_by_longest_prefix() {
    if (queue().size() > kMaxSortedQueue) return;
    struct Ranked {
      std::int64_t key;
      RequestId request;
    };
    std::vector<Ranked> order;
    std::set<BlockHash> beginnings;
    for (const Request* request : queue().in_order()) {
      const std::int32_t num_tokens = request->num_tokens();
      const std::int32_t matched = kv_cache().find_prefix(*request, num_tokens).num_tokens;
      std::int64_t key = -std::min(matched, num_tokens - 1);
      if (matched <= kInBatchPrefixTokens) {
        const BlockHash beginning = kv_cache().name_of_prefix(*request, kInBatchPrefixTokens);
        if (beginning != kNoHash && !beginnings.insert(beginning).second) key = INT64_MAX;
      }
      order.push_back({key, request->id});
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Ranked& a, const Ranked& b) { return a.key < b.key; });
    // The order persists until the next sort. New requests have key 0, so they join at the back.
    std::map<RequestId, std::int64_t> places;
    for (const Ranked& ranked : order) {
      const std::int64_t place = std::ssize(places) - std::ssize(order);
      places[ranked.request] = place;
    }
    queue().sort_by([&](const Request& request) { return places.at(request.id); });
  }

  std::int64_t clipped(std::int64_t max_new_tokens) const {
    return std::min<std::int64_t>(max_new_tokens, settings_.clip_max_new_tokens);
  }

  SglangConfig settings_;
  std::int64_t page_size_;
  bool chunks_;
  bool mixes_;
  std::int64_t chunk_size_;
  double init_ratio_;
  double min_ratio_;
  double new_token_ratio_;
  // Decoding requests in the order they joined. Ended requests stay and count until the batch is
  // filtered, which SGLang does at decoding.
  Batch running_batch_;
  Batch last_batch_;  // requests of the last step, if it prefilled
  bool batch_is_full_ = false;
  std::int32_t num_consecutive_prefills_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_sglang(const SchedulerContext& context) {
  return std::make_unique<SglangScheduler>(context);
}

}  // namespace metronome
