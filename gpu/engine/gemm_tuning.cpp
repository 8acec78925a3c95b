// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/gemm_tuning.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "gpu/kernels/cuda_check.h"
#include "gpu/plan/bit_digest.h"

namespace metronome {
namespace {

constexpr int kNumSamples = 3;  // the median counts
constexpr int kRunsPerSample = 4;
// Longer runs are timed one by one; still longer ones only once.
constexpr double kLongMicroseconds = 100;
constexpr double kVeryLongMicroseconds = 1000;
// An algorithm is dropped if its first run takes this many times as long as the best.
constexpr double kHopeless = 1.5;

// Maximum number of outputs that are compared between algorithms.
constexpr std::int64_t kMaxCompared = 65536;

constexpr std::size_t kMaxDrawn = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

// Bits of a random bfloat16 number with magnitude between 2^-8 and 1. Products of zeros, or of few
// different bits, draw less power and run faster than those of a model.
std::uint16_t draw_number(std::uint64_t seed, std::size_t index) {
  const std::uint64_t bits = mix64(mix64(seed) + index);
  const std::uint64_t exponent = 0x77 + ((bits >> 16) & 7);
  return static_cast<std::uint16_t>((bits & 0x807f) | (exponent << 7));
}

// Rows of w and x whose exact product is 0. Each element of the first half has a counterpart in the
// second half, in another order: equal in w, negated in x. The computed sum is then the kernel's
// rounding error alone. It differs for nearly all outputs if the order of summation differs. For
// other sums, rounding to bfloat16 would hide all but one difference in 10^4.
std::vector<std::uint16_t> draw_cancelling_rows(std::size_t num_rows, std::size_t k, bool is_x) {
  std::vector<std::uint16_t> rows(num_rows * k, 0);
  const std::size_t half = k / 2;
  constexpr std::uint16_t kSign = 0x8000;
  for (std::size_t row = 0; row < num_rows; ++row) {
    std::uint16_t* const values = rows.data() + row * k;
    for (std::size_t i = 0; i < half; ++i) {
      values[i] = draw_number(is_x ? 1 : 2, row * k + i);
      const std::size_t counterpart = half + (half - 1 - i + half / 3) % half;
      values[counterpart] = static_cast<std::uint16_t>(is_x ? values[i] ^ kSign : values[i]);
    }
  }
  return rows;
}

// Repeats `drawn` up to `size` elements.
DeviceArray<std::uint16_t> repeated(const std::vector<std::uint16_t>& drawn, std::size_t size,
                                    cudaStream_t stream) {
  DeviceArray<std::uint16_t> numbers(size);
  std::size_t filled = std::min(size, drawn.size());
  numbers.upload(std::span(drawn).first(filled));
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // `stream` does not wait for it
  while (filled < size) {
    const std::size_t count = std::min(filled, size - filled);
    check_cuda(cudaMemcpyAsync(numbers.data() + filled, numbers.data(),
                               count * sizeof(std::uint16_t), cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync");
    filled += count;
  }
  return numbers;
}

// Runs algorithms of one product on random data.
class Bench {
 public:
  Bench(const GemmLibrary& library, GemmProblem& problem)
      : library_(library),
        problem_(problem),
        stream_(make_stream()),
        start_(make_event()),
        stop_(make_event()) {
    const GemmShape& shape = problem.shape();
    const auto l2_bytes =
        static_cast<std::size_t>(std::max(device_attribute(cudaDevAttrL2CacheSize), 1));
    const auto w_size = static_cast<std::size_t>(shape.n * shape.k);
    w_stride_ = rounded_up(w_size, 128);
    // There are enough copies of the weights that each leaves the cache before its next use. In a
    // step, too, the weights of a layer are no longer in the cache.
    const std::size_t w_bytes = w_stride_ * sizeof(std::uint16_t);
    num_weights_ = rounded_up(3 * l2_bytes, w_bytes) / w_bytes;
    const auto max_rows = static_cast<std::size_t>(problem.max_rows());
    const auto k = static_cast<std::size_t>(shape.k);
    const std::size_t w_rows = std::clamp<std::size_t>(kMaxDrawn / k, 1, num_weights_ * w_size / k);
    w_ = repeated(draw_cancelling_rows(w_rows, k, false), num_weights_ * w_stride_, stream_.get());
    x_ = repeated(draw_cancelling_rows(kGemmRows, k, true), max_rows * k, stream_.get());
    y_ = DeviceArray<std::byte>(max_rows * static_cast<std::size_t>(shape.n) * output_bytes());
    displaced_ = DeviceArray<std::byte>(l2_bytes);
    check_cuda(cudaMemsetAsync(y_.data(), 0, y_.num_bytes(), stream_.get()), "cudaMemsetAsync");
  }

  // Time of one run with a cold cache. `best` is the time to beat.
  double microseconds(GemmMode mode, std::int64_t rows, const GemmAlgorithm& algorithm,
                      double best) {
    const double first = sample(mode, rows, algorithm, 1);
    if (first > kHopeless * best || first > kVeryLongMicroseconds) return first;
    const int num_runs = first > kLongMicroseconds ? 1 : kRunsPerSample;
    std::array<double, kNumSamples> samples{};
    for (double& value : samples) value = sample(mode, rows, algorithm, num_runs);
    std::sort(samples.begin(), samples.end());
    return samples[kNumSamples / 2];
  }

  // Digest of kGemmRows rows of the result. first_row is a multiple of kGemmRows, so these rows
  // have the same inputs for every first_row and every `rows`.
  std::uint64_t digest(GemmMode mode, std::int64_t rows, const GemmAlgorithm& algorithm,
                       std::int64_t first_row = 0) {
    const std::int64_t n = problem_.shape().n;
    const std::int64_t num_compared = std::min(kGemmRows * n, kMaxCompared);
    const std::size_t num_bytes = static_cast<std::size_t>(num_compared) * output_bytes();
    std::byte* const from = y_.data() + static_cast<std::size_t>(first_row * n) * output_bytes();
    check_cuda(cudaMemsetAsync(from, 0, num_bytes, stream_.get()), "cudaMemsetAsync");
    problem_.run(library_, mode, rows, algorithm, weights(0), input(), y_.data(), stream_.get());
    std::vector<std::byte> bytes(num_bytes);
    check_cuda(
        cudaMemcpyAsync(bytes.data(), from, num_bytes, cudaMemcpyDeviceToHost, stream_.get()),
        "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    BitDigest digest;
    digest.add(bytes);
    return digest.value();
  }

 private:
  std::size_t output_bytes() const {
    return problem_.shape().has_float_output ? sizeof(float) : sizeof(std::uint16_t);
  }
  const __nv_bfloat16* weights(std::size_t copy) const {
    return reinterpret_cast<const __nv_bfloat16*>(w_.data() + copy * w_stride_);
  }
  const __nv_bfloat16* input() const { return reinterpret_cast<const __nv_bfloat16*>(x_.data()); }

  void run_next(GemmMode mode, std::int64_t rows, const GemmAlgorithm& algorithm) {
    problem_.run(library_, mode, rows, algorithm, weights(next_weights_), input(), y_.data(),
                 stream_.get());
    next_weights_ = (next_weights_ + 1) % num_weights_;
  }

  // First overwrites the cache, then makes a run that is not timed (a kernel's first run loads it).
  // Both keep the device busy until the host has enqueued the timed runs.
  double sample(GemmMode mode, std::int64_t rows, const GemmAlgorithm& algorithm, int num_runs) {
    check_cuda(cudaMemsetAsync(displaced_.data(), 0, displaced_.num_bytes(), stream_.get()),
               "cudaMemsetAsync");
    run_next(mode, rows, algorithm);
    check_cuda(cudaEventRecord(start_.get(), stream_.get()), "cudaEventRecord");
    for (int i = 0; i < num_runs; ++i) run_next(mode, rows, algorithm);
    check_cuda(cudaEventRecord(stop_.get(), stream_.get()), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(stop_.get()), "cudaEventSynchronize");
    return 1000.0 * elapsed_ms(start_, stop_) / num_runs;
  }

  const GemmLibrary& library_;
  GemmProblem& problem_;
  Stream stream_;
  CudaEvent start_;
  CudaEvent stop_;
  std::size_t w_stride_ = 0;  // elements
  std::size_t num_weights_ = 0;
  std::size_t next_weights_ = 0;
  DeviceArray<std::uint16_t> w_;      // [num_weights, w_stride]
  DeviceArray<std::uint16_t> x_;      // [max_rows, k]
  DeviceArray<std::byte> y_;          // [max_rows, n]
  DeviceArray<std::byte> displaced_;  // the size of the L2 cache
};

constexpr double kNothingToBeat = 1e12;

std::int64_t fewest_rows(const std::vector<std::int64_t>& buckets, std::size_t bucket) {
  return bucket == 0 ? kGemmRows : buckets[bucket - 1] + kGemmRows;
}

// "cuBLASLt has WHAT for a product of 16 rows, n 64, k 128".
std::string fault_text(const std::string& what, const GemmShape& shape, std::int64_t rows) {
  return "cuBLASLt has " + what + " for a product of " + std::to_string(rows) + " rows, n " +
         std::to_string(shape.n) + ", k " + std::to_string(shape.k);
}

// An algorithm in a bucket, measured there.
struct Candidate {
  GemmAlgorithm algorithm{};
  GemmTraits traits;
  bool is_invariant = false;
  std::uint64_t digest = 0;  // if is_invariant
  double microseconds = 0;

  GemmChoice choice() const { return {algorithm, microseconds, gemm_name(traits)}; }
};

// Algorithm id and digest, which identify a group of candidates.
using GroupKey = std::pair<std::int32_t, std::uint64_t>;

// "algo 66, digest 0123456789abcdef"
std::string group_name(const GroupKey& key) {
  return "algo " + std::to_string(key.first) + ", digest " + hex_digits(key.second);
}

// Invariant candidates with the same bits and the same algorithm id.
struct Group {
  std::int32_t id = 0;
  std::uint64_t digest = 0;
  std::size_t num_buckets = 0;  // that have a candidate of the group
  double slowness = 0;          // sum over them: its best time / the best of all groups

  bool has(const Candidate& candidate) const {
    return candidate.is_invariant && candidate.traits.id == id && candidate.digest == digest;
  }
};

class Tuner {
 public:
  Tuner(const GemmLibrary& library, GemmProblem& problem, const std::vector<std::int64_t>& buckets)
      : library_(library),
        problem_(problem),
        buckets_(buckets),
        bench_(library, problem),
        measured_(buckets.size()) {}

  GemmChoices choose() {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const GemmAlgorithm& algorithm : proposals(bucket)) measure(bucket, algorithm);
    }
    GemmChoices choices;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      const Candidate* best = best_of(bucket, [](const Candidate&) { return true; });
      if (best == nullptr) {
        throw CudaError(fault_text("no algorithm", problem_.shape(), buckets_[bucket]));
      }
      choices.fastest.push_back(best->choice());
    }
    choices.invariant = choose_invariant(choices.invariant_fault);
    return choices;
  }

  std::string describe_invariant(const std::vector<GemmAlgorithm>& chosen,
                                 const std::function<void()>& poll) {
    const std::vector<GemmAlgorithm> all = all_proposals();
    std::map<GroupKey, std::string> rows_of;
    std::string by_bucket;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (poll) poll();
      const std::string rows = std::to_string(buckets_[bucket]);
      by_bucket += "  " + rows + " rows:\n";
      for (const auto& [key, num_algorithms] : count_groups(all, bucket)) {
        rows_of[key] += " " + rows;
        by_bucket += "    " + std::to_string(num_algorithms) + " of " + group_name(key) + "\n";
      }
      if (!chosen.empty()) by_bucket += describe_chosen(chosen[bucket], bucket);
    }
    std::string text;
    for (const auto& [key, rows] : rows_of) {
      text += "  " + group_name(key) + ", serves rows" + rows + "\n";
    }
    return text + by_bucket;
  }

 private:
  std::vector<GemmAlgorithm> proposals(std::size_t bucket) {
    const std::int64_t rows = buckets_[bucket];
    std::vector<GemmAlgorithm> all = problem_.propose(library_, GemmMode::Fastest, rows);
    std::vector<GemmAlgorithm> invariant = problem_.propose(library_, GemmMode::Invariant, rows);
    const auto is_hopper = [](const GemmAlgorithm& algorithm) {
      const std::optional<GemmTraits> traits = gemm_traits(algorithm);
      return traits && traits->id == kHopperAlgorithm;
    };
    if (std::none_of(invariant.begin(), invariant.end(), is_hopper)) {
      const auto more = problem_.propose(library_, GemmMode::Invariant, rows, kHopperAlgorithm);
      invariant.insert(invariant.end(), more.begin(), more.end());
    }
    for (const GemmAlgorithm& algorithm : invariant) {
      if (std::find(all.begin(), all.end(), algorithm) == all.end()) all.push_back(algorithm);
    }
    return all;
  }

  std::vector<GemmAlgorithm> all_proposals() {
    std::vector<GemmAlgorithm> all;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const GemmAlgorithm& algorithm : proposals(bucket)) {
        if (std::find(all.begin(), all.end(), algorithm) == all.end()) all.push_back(algorithm);
      }
    }
    return all;
  }

  // Counts the algorithms with the same bits for the most rows of a bucket, by group.
  std::map<GroupKey, std::int64_t> count_groups(const std::vector<GemmAlgorithm>& algorithms,
                                                std::size_t bucket) {
    std::map<GroupKey, std::int64_t> counts;
    for (const GemmAlgorithm& algorithm : algorithms) {
      if (!can_run(GemmMode::Invariant, bucket, algorithm)) continue;
      if (const auto digest = digest_of(algorithm, buckets_[bucket], 0)) {
        ++counts[{gemm_traits(algorithm).value().id, *digest}];
      }
    }
    return counts;
  }

  // The digest of the last rows shows whether a result depends on the row's index.
  std::string describe_chosen(const GemmAlgorithm& algorithm, std::size_t bucket) {
    const std::int64_t fewest = fewest_rows(buckets_, bucket);
    const std::int64_t most = buckets_[bucket];
    const auto text_of = [&](std::int64_t rows, std::int64_t first_row) {
      const auto digest = digest_of(algorithm, rows, first_row);
      return digest ? hex_digits(*digest) : std::string("refused");
    };
    return "    chosen: " + gemm_name(gemm_traits(algorithm).value()) + "\n      digest " +
           text_of(fewest, 0) + " for " + std::to_string(fewest) + " rows, " + text_of(most, 0) +
           " for " + std::to_string(most) + ", " + text_of(most, most - kGemmRows) +
           " of their last " + std::to_string(kGemmRows) + "\n";
  }

  // nullopt if the library refuses to run it.
  std::optional<std::uint64_t> digest_of(const GemmAlgorithm& algorithm, std::int64_t rows,
                                         std::int64_t first_row) {
    try {
      return bench_.digest(GemmMode::Invariant, rows, algorithm, first_row);
    } catch (const CublasRefused&) {
      return std::nullopt;
    }
  }

  bool can_run(GemmMode mode, std::size_t bucket, const GemmAlgorithm& algorithm) {
    return can_run_bucket(library_, problem_, mode, buckets_, bucket, algorithm);
  }

  template <class Predicate>
  const Candidate* best_of(std::size_t bucket, const Predicate& counts) const {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : measured_[bucket]) {
      if (!counts(candidate)) continue;
      if (best == nullptr || candidate.microseconds < best->microseconds) best = &candidate;
    }
    return best;
  }

  // Adds the algorithm to the bucket's candidates if it can run.
  void measure(std::size_t bucket, const GemmAlgorithm& algorithm) {
    const bool is_invariant = can_run(GemmMode::Invariant, bucket, algorithm);
    if (!is_invariant && !can_run(GemmMode::Fastest, bucket, algorithm)) return;
    const GemmMode mode = is_invariant ? GemmMode::Invariant : GemmMode::Fastest;
    const Candidate* best = best_of(bucket, [is_invariant](const Candidate& candidate) {
      return candidate.is_invariant || !is_invariant;
    });
    Candidate candidate;
    candidate.algorithm = algorithm;
    candidate.traits = gemm_traits(algorithm).value();
    candidate.is_invariant = is_invariant;
    try {
      if (is_invariant) candidate.digest = bench_.digest(mode, buckets_[bucket], algorithm);
      candidate.microseconds = bench_.microseconds(
          mode, buckets_[bucket], algorithm, best == nullptr ? kNothingToBeat : best->microseconds);
    } catch (const CublasRefused&) {
      return;
    }
    measured_[bucket].push_back(candidate);
  }

  // Sorted: Hopper's groups first, then those that serve the most buckets, then the fastest.
  std::vector<Group> groups() const {
    std::map<GroupKey, Group> found;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      const Candidate* best =
          best_of(bucket, [](const Candidate& candidate) { return candidate.is_invariant; });
      std::map<GroupKey, double> times;
      for (const Candidate& candidate : measured_[bucket]) {
        if (!candidate.is_invariant) continue;
        const double time = candidate.microseconds;
        const auto at = times.try_emplace({candidate.traits.id, candidate.digest}, time).first;
        at->second = std::min(at->second, time);
      }
      for (const auto& [key, time] : times) {
        Group& group = found[key];
        group.id = key.first;
        group.digest = key.second;
        ++group.num_buckets;
        group.slowness += best->microseconds > 0 ? time / best->microseconds : 1;
      }
    }
    std::vector<Group> sorted;
    for (const auto& [key, group] : found) sorted.push_back(group);
    std::stable_sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) {
      return std::tuple(a.id != kHopperAlgorithm, b.num_buckets, a.slowness) <
             std::tuple(b.id != kHopperAlgorithm, a.num_buckets, b.slowness);
    });
    return sorted;
  }

  // For a bucket that got no proposal of the group: tries the group's algorithms of other buckets,
  // nearest first.
  void complete(const Group& group, std::size_t bucket) {
    for (std::size_t distance = 1; distance < buckets_.size(); ++distance) {
      for (const std::size_t other : {bucket - distance, bucket + distance}) {
        if (other >= buckets_.size()) continue;  // includes wrapped negative indices
        const std::vector<Candidate> neighbours = measured_[other];
        for (const Candidate& candidate : neighbours) {
          if (!group.has(candidate)) continue;
          if (!can_run(GemmMode::Invariant, bucket, candidate.algorithm)) continue;
          measure(bucket, candidate.algorithm);
          const std::vector<Candidate>& measured = measured_[bucket];
          if (!measured.empty() && group.has(measured.back())) return;
        }
      }
    }
  }

  // Empty if no group serves all buckets; then sets `fault`.
  std::vector<GemmChoice> choose_invariant(std::string& fault) {
    std::size_t unserved = 0;  // first bucket that the best group does not serve
    std::string best_id = "none";
    const std::vector<Group> all = groups();
    for (const Group& group : all) {
      std::vector<GemmChoice> choices;
      for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const auto is_in_group = [&group](const Candidate& candidate) {
          return group.has(candidate);
        };
        if (best_of(bucket, is_in_group) == nullptr) complete(group, bucket);
        const Candidate* best = best_of(bucket, is_in_group);
        if (best == nullptr) {
          if (&group == &all.front()) {
            unserved = bucket;
            best_id = std::to_string(group.id);
          }
          break;
        }
        choices.push_back(best->choice());
      }
      if (choices.size() == buckets_.size()) return choices;
    }
    fault = fault_text(
        "no algorithm that sums in the same order as for other row counts (of those with one "
        "accumulator, id " +
            best_id + " serves the most)",
        problem_.shape(), buckets_[unserved]);
    return {};
  }

  const GemmLibrary& library_;
  GemmProblem& problem_;
  const std::vector<std::int64_t>& buckets_;
  Bench bench_;
  std::vector<std::vector<Candidate>> measured_;  // [bucket]
};

}  // namespace

std::vector<std::int64_t> gemm_buckets(std::int64_t max_rows) {
  std::vector<std::int64_t> buckets = {kGemmRows};
  for (std::int64_t power = 2 * kGemmRows; buckets.back() < max_rows; power *= 2) {
    buckets.push_back(power);
    if (power < max_rows) buckets.push_back(power + power / 2);
  }
  return buckets;
}

bool can_run_bucket(const GemmLibrary& library, GemmProblem& problem, GemmMode mode,
                    const std::vector<std::int64_t>& buckets, std::size_t bucket,
                    const GemmAlgorithm& algorithm) {
  return problem.can_run(library, mode, fewest_rows(buckets, bucket), algorithm) &&
         problem.can_run(library, mode, buckets[bucket], algorithm);
}

GemmChoices choose_gemms(const GemmLibrary& library, GemmProblem& problem,
                         const std::vector<std::int64_t>& buckets) {
  return Tuner(library, problem, buckets).choose();
}

std::string describe_invariant_gemms(const GemmLibrary& library, GemmProblem& problem,
                                     const std::vector<std::int64_t>& buckets,
                                     const std::vector<GemmAlgorithm>& chosen,
                                     const std::function<void()>& poll) {
  return Tuner(library, problem, buckets).describe_invariant(chosen, poll);
}

GemmChoice fastest_gemm(const GemmLibrary& library, GemmProblem& problem, std::int64_t rows) {
  Bench bench(library, problem);
  std::optional<GemmChoice> best;
  for (const GemmAlgorithm& algorithm : problem.propose(library, GemmMode::Fastest, rows)) {
    const double time_to_beat = best ? best->microseconds : kNothingToBeat;
    double microseconds = 0;
    try {
      microseconds = bench.microseconds(GemmMode::Fastest, rows, algorithm, time_to_beat);
    } catch (const CublasRefused&) {
      continue;
    }
    if (microseconds >= time_to_beat) continue;
    best = {algorithm, microseconds, gemm_name(gemm_traits(algorithm).value())};
  }
  if (!best) throw CudaError(fault_text("no algorithm", problem.shape(), rows));
  return *best;
}

}  // namespace metronome
