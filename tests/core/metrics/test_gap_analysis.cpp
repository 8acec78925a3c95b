// SPDX-License-Identifier: Apache-2.0
// Gaps split into their causes: known answers, and a walk over every gap, token by token.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/rng.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/summary.h"
#include "tests/catch.h"
#include "tests/fake_run.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr TimeNs kMs = kNsPerMs;

// Steps whose decodes would have taken `decode_only` alone.
struct Bench {
  RunRecorder recorder;
  FakeRun run{{&recorder}};
  StepResult result;

  void step(TimeNs from, TimeNs until, TimeNs decode_only, const std::vector<FakeChunk>& chunks,
            TimeNs encode_ns = 0) {
    result.decode_only_ns = decode_only;
    result.encode_ns = encode_ns;
    run.next.result = &result;
    run.step(from, until, chunks);
  }
};

}  // namespace

TEST_CASE("the encoding of images is a part of its own", "[core][gaps]") {
  Bench bench;
  const RequestId a = bench.run.submit(0, 10);
  const RequestId b = bench.run.submit(0, 6000);
  bench.step(0, 10 * kMs, 0, {prefill(a, 0, 10, true)});
  bench.step(11 * kMs, 31 * kMs, 10 * kMs, {decode(a), prefill(b, 0, 100, false)}, 6 * kMs);
  bench.step(31 * kMs, 61 * kMs, 10 * kMs, {prefill(b, 100, 900, false)}, 5 * kMs);
  bench.step(61 * kMs, 71 * kMs, 10 * kMs, {decode(a)});
  const RunRecord record = bench.recorder.finish();
  CHECK(record.has_encodings);
  CHECK(record.steps[1].encode_ns == 6 * kMs);
  const GapAnalysis gaps(record);
  const GapParts first{
      .decode_ns = 10 * kMs, .encode_ns = 6 * kMs, .prefill_ns = 4 * kMs, .host_ns = 1 * kMs};
  const GapParts second{.decode_ns = 10 * kMs, .encode_ns = 5 * kMs, .prefill_ns = 25 * kMs};
  CHECK(gaps.parts({a, 0, 1, 0}) == first);
  CHECK(gaps.parts({a, 1, 3, 0}) == second);
  GapParts total = first;
  total += second;
  CHECK(gaps.total() == total);
}

TEST_CASE("a stall is put down to images where they took longer than the prefill", "[core][gaps]") {
  for (const TimeNs encode_ns : {7 * kMs, 5 * kMs}) {
    Bench bench;
    const RequestId a = bench.run.submit(0, 10);
    const RequestId b = bench.run.submit(0, 6000);
    bench.step(0, 10 * kMs, 0, {prefill(a, 0, 10, true)});
    bench.step(10 * kMs, 30 * kMs, 10 * kMs, {decode(a), prefill(b, 0, 100, false)}, encode_ns);
    bench.run.end(a, 30 * kMs);
    const Stall stall = summarize(bench.recorder.finish(), {}).longest_stall;
    CHECK(stall.cause == (encode_ns > 5 * kMs ? StallCause::Encoding : StallCause::Prefill));
    CHECK(stall.encode_ns == encode_ns);
    CHECK(stall.prefill_request == b);
  }
}

TEST_CASE("a gap is split among decodes, prefills and the host", "[core][gaps]") {
  Bench bench;
  const RequestId a = bench.run.submit(0, 10);
  const RequestId b = bench.run.submit(0, 10);
  const RequestId c = bench.run.submit(0, 6000);
  bench.step(0, 10 * kMs, 0, {prefill(a, 0, 10, true), prefill(b, 0, 10, true)});
  bench.step(11 * kMs, 21 * kMs, 10 * kMs, {decode(a), decode(b)});
  // c's first chunk runs beside both, its second while b is passed over.
  bench.step(22 * kMs, 62 * kMs, 11 * kMs, {decode(a), decode(b), prefill(c, 0, 4000, false)});
  bench.step(62 * kMs, 92 * kMs, 10 * kMs, {decode(a), prefill(c, 4000, 2000, true)});
  bench.step(95 * kMs, 107 * kMs, 12 * kMs, {decode(a), decode(b), decode(c)});
  const RunRecord record = bench.recorder.finish();
  const GapAnalysis gaps(record);
  CHECK_FALSE(gaps.is_estimated());
  CHECK(gaps.parts({a, 1, 2, 0}) ==
        GapParts{.decode_ns = 11 * kMs, .prefill_ns = 29 * kMs, .host_ns = 1 * kMs});
  CHECK(gaps.parts({b, 2, 4, 0}) == GapParts{.decode_ns = 12 * kMs,
                                             .prefill_ns = 20 * kMs,
                                             .host_ns = 3 * kMs,
                                             .waiting_ns = 10 * kMs});
  const std::vector<Culprit> culprits = gaps.culprits(9);
  REQUIRE(culprits.size() == 2);
  CHECK(record.prefills[2] == PrefillChunk{c, 0, 4000});
  CHECK((culprits[0].chunk == 2 && culprits[0].step == 2 && culprits[0].added_ns == 29 * kMs));
  CHECK(culprits[0].num_delayed == 2);
  CHECK(culprits[1].stall_ns() == 40 * kMs);  // b, passed over, suffers as a does
  CHECK(gaps.worst_chunk({b, 2, 4, 0}).chunk == 3);
  CHECK(gaps.worst_chunk({a, 1, 2, 0}).added_ns == 29 * kMs);
  const std::vector<CulpritRequest> requests = gaps.culprit_requests(9);
  REQUIRE(requests.size() == 1);
  CHECK((requests[0].request == c && requests[0].num_chunks == 2));
  CHECK(requests[0].stall_ns == 98 * kMs);
  const std::vector<TokenGap> longest = gaps.longest_gaps(3, 1);
  REQUIRE(longest.size() == 3);
  CHECK((longest[0].request == b && longest[0].gap_ns == 45 * kMs && longest[0].step_before == 2));
  CHECK((longest[1].request == a && longest[1].step_after == 2));
  CHECK((longest[2].request == a && longest[2].step_after == 3 && longest[2].gap_ns == 30 * kMs));
}

// Prompts run alone here, as in separate passes: a gap of a spans the steps of b, c and d.
TEST_CASE("the cause of a gap is the chunk that took most of it, in whichever step",
          "[core][gaps]") {
  Bench bench;
  const RequestId a = bench.run.submit(0, 10);
  const RequestId b = bench.run.submit(0, 400);
  const RequestId c = bench.run.submit(0, 300);
  const RequestId d = bench.run.submit(0, 50);
  bench.step(0, 10 * kMs, 0, {prefill(a, 0, 10, true)});
  bench.step(10 * kMs, 30 * kMs, 0, {prefill(b, 0, 400, false)});                  // most tokens
  bench.step(30 * kMs, 70 * kMs, 0, {prefill(c, 0, 300, false)});                  // most time
  bench.step(70 * kMs, 85 * kMs, 0, {prefill(d, 0, 50, true)});                    // last
  bench.step(85 * kMs, 91 * kMs, 6 * kMs, {decode(a), decode(d)});                 // no prefill
  bench.step(91 * kMs, 99 * kMs, 8 * kMs, {decode(a), prefill(b, 400, 1, true)});  // in no time
  bench.run.end(a, 99 * kMs);
  const RunRecord record = bench.recorder.finish();
  const GapAnalysis gaps(record);
  const TokenGap gap{a, 0, 4, 81 * kMs};
  CHECK(record.prefills[2].request == c);
  CHECK((gaps.worst_chunk(gap).chunk == 2 && gaps.worst_chunk(gap).added_ns == 40 * kMs));
  CHECK(gaps.num_prefill_tokens(gap) == 750);
  CHECK(gaps.worst_chunk({a, 4, 5, 8 * kMs}).chunk == -1);
  CHECK(gaps.num_prefill_tokens({a, 4, 5, 8 * kMs}) == 1);
  // The summary names the same.
  const Stall stall = longest_stall_of(record, index(a));
  CHECK(stall.cause == StallCause::Prefill);
  CHECK((stall.prefill_request == c && stall.prefill_tokens == 300 && stall.prefill_step == 2));
  CHECK(stall.num_prefill_tokens == 750);
}

TEST_CASE("chunks share what their step took by their tokens", "[core][gaps]") {
  Bench bench;
  const RequestId a = bench.run.submit(0, 10);
  const RequestId b = bench.run.submit(0, 100);
  const RequestId c = bench.run.submit(0, 300);
  bench.step(0, 10 * kMs, 0, {prefill(a, 0, 10, true)});
  bench.step(10 * kMs, 60 * kMs, 10 * kMs,
             {decode(a), prefill(b, 0, 100, true), prefill(c, 0, 300, true)});
  const RunRecord record = bench.recorder.finish();
  const std::vector<Culprit> culprits = GapAnalysis(record).culprits(1);
  REQUIRE(culprits.size() == 1);
  CHECK(record.prefills[static_cast<std::size_t>(culprits[0].chunk)].request == c);
  CHECK(culprits[0].stall_ns() == 30 * kMs);
}

TEST_CASE("decode times are estimated where the executor does not tell", "[core][gaps]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  std::vector<RequestId> requests;
  TimeNs now = 0;
  const auto time_of = [](std::int32_t decodes, std::int32_t blocks) {
    return 8 * kMs + decodes * 100'000 + blocks * 2'000;
  };
  for (std::int32_t i = 0; i < 40; ++i) {
    requests.push_back(run.submit(0, 64));
    std::vector<FakeChunk> chunks;
    for (std::int32_t r = 0; r < i; ++r)
      chunks.push_back(decode(requests[static_cast<std::size_t>(r)]));
    const std::int32_t blocks = (i * i * 7) % 500;
    if (i > 0) {
      run.next.num_used_blocks = blocks;
      run.step(now, now + time_of(i, blocks), chunks);
      now += time_of(i, blocks);
    }
    chunks.push_back(prefill(requests.back(), 0, 64, true));
    run.next.num_used_blocks = blocks + 3;
    run.step(now, now + time_of(i, blocks + 3) + 5 * kMs, chunks);
    now += time_of(i, blocks + 3) + 5 * kMs;
  }
  const RunRecord record = recorder.finish();
  const GapAnalysis gaps(record);
  CHECK(gaps.is_estimated());
  for (std::size_t s = 3; s < record.steps.size(); ++s) {
    if (record.steps[s].num_prefill_tokens == 0) continue;
    const auto step = static_cast<std::int32_t>(s);
    CHECK(std::abs(gaps.prefill_ns(step) - 5 * kMs) < 1'000);
  }
}

TEST_CASE("without steps of decodes alone, prefill tokens are fitted too", "[core][gaps]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 64);
  const RequestId b = run.submit(0, 1 << 20);
  run.step(0, kMs, {prefill(a, 0, 64, true)});
  std::int32_t position = 0;
  TimeNs now = kMs;
  for (std::int32_t tokens = 100; tokens < 2000; tokens += 100) {
    const TimeNs until = now + 6 * kMs + tokens * 20'000;
    run.step(now, until, {decode(a), prefill(b, position, tokens, false)});
    position += tokens;
    now = until;
  }
  const RunRecord record = recorder.finish();
  const std::vector<TimeNs> decode_ns = estimate_decode_ns(record);
  CHECK(decode_ns[0] == 0);
  for (std::size_t s = 1; s < decode_ns.size(); ++s) CHECK(std::abs(decode_ns[s] - 6 * kMs) < kMs);
}

TEST_CASE("an empty record has no gaps", "[core][gaps]") {
  const RunRecord record{};
  const GapAnalysis gaps(record);
  CHECK(gaps.total().total_ns() == 0);
  CHECK(gaps.longest_gaps(5, 1).empty());
  CHECK(gaps.culprits(5).empty());
}

namespace {

// A random run: prefills in chunks, decodes that may be passed over, preemptions, host gaps, steps
// handed over before the one ahead is done.
RunRecord random_record(Rng& rng, std::vector<std::vector<std::int32_t>>& token_steps) {
  Bench bench;
  struct Live {
    RequestId id;
    std::int32_t computed = 0;
    std::int32_t known = 0;
  };
  std::vector<Live> live;
  TimeNs now = 0;
  for (int s = 0; s < 60; ++s) {
    while (live.size() < 6 && rng.uniform_int(0, 2) == 0) {
      const auto length = static_cast<std::int32_t>(rng.uniform_int(1, 300));
      live.push_back({bench.run.submit(now, length), 0, length});
    }
    std::vector<FakeChunk> chunks;
    bool has_decode = false;
    for (Live& request : live) {
      const std::int64_t draw = rng.uniform_int(0, 11);
      if (draw == 0) continue;
      if (draw == 1 && request.computed > 0) {  // and perhaps back at once
        bench.run.preempt(request.id, now);
        request.computed = 0;
        if (rng.uniform_int(0, 1) == 0) continue;
      }
      const std::int32_t left = request.known - request.computed;
      if (left == 1 && request.computed > 0) {
        chunks.push_back(decode(request.id));
        has_decode = true;
        ++request.computed, ++request.known;
        continue;
      }
      const auto n = static_cast<std::int32_t>(rng.uniform_int(1, left));
      chunks.push_back(prefill(request.id, request.computed, n, n == left));
      request.computed += n;
      request.known += n == left ? 1 : 0;
    }
    if (chunks.empty()) continue;
    const TimeNs from = now + rng.uniform_int(0, 3);
    now = from + rng.uniform_int(1, 100);
    bench.step(from, now, has_decode ? rng.uniform_int(1, now - from) : 0, chunks);
    std::erase_if(live, [&](const Live& request) {
      return rng.uniform_int(0, 40) == 0 && request.known > 0;
    });
  }
  token_steps = bench.run.token_steps;
  return bench.recorder.finish();
}

// `all` are the gaps there are: ten longest, at most two of a step.
void check_longest(const GapAnalysis& gaps, std::vector<TokenGap> all) {
  std::sort(all.begin(), all.end(), [](const TokenGap& a, const TokenGap& b) {
    return std::tuple(-a.gap_ns, a.step_after, a.request) <
           std::tuple(-b.gap_ns, b.step_after, b.request);
  });
  std::map<std::int32_t, int> num_taken;
  std::erase_if(all, [&](const TokenGap& gap) { return ++num_taken[gap.step_after] > 2; });
  all.resize(std::min<std::size_t>(all.size(), 10));
  const std::vector<TokenGap> longest = gaps.longest_gaps(10, 2);
  REQUIRE(longest.size() == all.size());
  for (std::size_t g = 0; g < all.size(); ++g) {
    REQUIRE(longest[g].gap_ns == all[g].gap_ns);
    REQUIRE(longest[g].request == all[g].request);
    REQUIRE(longest[g].step_after == all[g].step_after);
  }
}

}  // namespace

TEST_CASE("the sums agree with a walk over every gap", "[core][gaps][property]") {
  const std::uint64_t seed = 20261;
  INFO("seed " << seed);
  Rng rng(seed, "gaps");
  int num_preempted_gaps = 0;
  for (int round = 0; round < 300; ++round) {
    INFO("round " << round);
    std::vector<std::vector<std::int32_t>> token_steps;
    const RunRecord record = random_record(rng, token_steps);
    const GapAnalysis gaps(record);
    GapParts total, long_gaps;
    std::int64_t num_long = 0;
    constexpr TimeNs kLimit = 70;
    std::vector<std::int32_t> delayed(record.steps.size());
    std::vector<TokenGap> all;
    for (std::size_t i = 0; i < token_steps.size(); ++i) {
      for (std::size_t t = 1; t < token_steps[i].size(); ++t) {
        const std::int32_t before = token_steps[i][t - 1];
        const std::int32_t after = token_steps[i][t];
        const auto step = [&](std::int32_t s) { return record.steps[static_cast<std::size_t>(s)]; };
        GapParts parts;
        bool is_preempted = false;
        for (const PreemptionRecord& p : record.preemptions) {
          is_preempted =
              is_preempted || (index(p.request) == i && p.time >= step(before).planned_at &&
                               p.time < step(after).finished_at);
        }
        for (std::int32_t s = before + 1; s <= after; ++s) {
          const TimeNs idle = step(s).started_at - step(s - 1).finished_at;
          const TimeNs decodes =
              step(s).num_prefill_tokens == 0 ? step(s).duration_ns() : step(s).decode_only_ns;
          parts.host_ns += idle;
          (s == after ? parts.decode_ns : parts.waiting_ns) += decodes;
          parts.prefill_ns += step(s).duration_ns() - decodes;
          delayed[static_cast<std::size_t>(s)] += is_preempted ? 0 : 1;
        }
        if (is_preempted) parts = {.preemption_ns = parts.total_ns()};
        num_preempted_gaps += is_preempted ? 1 : 0;
        const TimeNs gap_ns = step(after).finished_at - step(before).finished_at;
        const TokenGap gap{static_cast<RequestId>(i), before, after, gap_ns};
        REQUIRE(gaps.parts(gap) == parts);
        REQUIRE(parts.total_ns() == gap_ns);
        const GapCauses own_steps(record, before + 1, after);  // the gap's, and no others
        REQUIRE(own_steps.parts(gap) == parts);
        REQUIRE(own_steps.worst_chunk(gap).chunk == gaps.worst_chunk(gap).chunk);
        REQUIRE(own_steps.worst_chunk(gap).added_ns == gaps.worst_chunk(gap).added_ns);
        total += parts;
        if (gap_ns > kLimit) long_gaps += parts;
        num_long += gap_ns > kLimit ? 1 : 0;
        all.push_back(gap);
      }
    }
    REQUIRE(gaps.total() == total);
    REQUIRE(gaps.beyond(-1).parts == total);
    REQUIRE(gaps.beyond(-1).num_gaps == static_cast<std::int64_t>(all.size()));
    REQUIRE(gaps.beyond(kLimit).parts == long_gaps);
    REQUIRE(gaps.beyond(kLimit).num_gaps == num_long);
    for (const TokenGap& gap : all) {
      const auto after = static_cast<std::size_t>(gap.step_after);
      const bool is_preempted = gaps.parts(gap).preemption_ns > 0;
      REQUIRE(gaps.num_waiting(gap) == (is_preempted ? 1 : delayed[after]));
    }
    for (std::size_t s = 0; s < delayed.size(); ++s) {
      REQUIRE(gaps.num_delayed(static_cast<std::int32_t>(s)) == delayed[s]);
    }
    check_longest(gaps, std::move(all));
  }
  CHECK(num_preempted_gaps > 100);
}

}  // namespace TEST_FILE
