// SPDX-License-Identifier: Apache-2.0
// Slow decodes and rough gaps of SGLang logs: known answers.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "core/base/number_text.h"
#include "reports/terminal/log_gaps.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

std::string decode_line(int num_running, double rate, int second = 0) {
  return "[2025-08-01 12:00:" + std::string(second < 10 ? "0" : "") + std::to_string(second) +
         "] Decode batch. #running-req: " + std::to_string(num_running) +
         ", #token: 90000, token usage: 0.08, cuda graph: True, gen throughput (token/s): " +
         fixed_text(rate, 2) + ", #queue-req: 0\n";
}

LogGaps gaps_of_text(const std::string& text) {
  std::istringstream in(text);
  return gaps_of(read_engine_log(in, "x.log"));
}

bool notes_have(const LogGaps& gaps, const std::string& part) {
  return std::any_of(gaps.notes.begin(), gaps.notes.end(),
                     [&part](const std::string& note) { return contains(note, part); });
}

}  // namespace

TEST_CASE("one line of SGLang whose forty decodes are far slower is named",
          "[reports][log_diagnosis]") {
  const std::string batch =
      "[2025-08-01 12:00:00] Prefill batch. #new-seq: 1, #new-token: 500, #cached-token: 0, token "
      "usage: 0.08, #running-req: 24, #queue-req: 0, #pending-token: 0, cuda graph: False, input "
      "throughput (token/s): 8000.00\n";
  std::string usual;
  for (int i = 0; i < 4; ++i) usual += decode_line(24, 1500);  // 16 ms
  // Of fewer requests, and of more than any line before.
  for (const int num_running : {20, 29}) {
    const std::string slow = decode_line(num_running, num_running / 0.169);
    const LogGaps gaps = gaps_of_text(usual + batch + usual + slow + batch + usual);
    REQUIRE(gaps.slow.size() == 1);
    CHECK((gaps.slow[0].first_where == 10 && gaps.slow[0].last_where == 10));
    CHECK(gaps.slow[0].ratio() > 8);
    INFO(gaps.notes.front());
    CHECK(notes_have(gaps, "From line 10 (12:00:00) on, a decode step of " +
                               std::to_string(num_running) + " requests takes 169.0 ms"));
    CHECK(notes_have(gaps, ", in this line alone. No scheduler setting explains it"));
    // A server that only decodes may have been without requests.
    CHECK(gaps_of_text(usual + usual + slow + usual).slow.empty());
  }
  // One line of about as many is nearer than those of far fewer.
  const std::string few = decode_line(1, 70) + decode_line(2, 139.5) + decode_line(25, 1490);
  const LogGaps rising = gaps_of_text(decode_line(1, 70) + few + batch + decode_line(30, 785) +
                                      decode_line(29, 171.47));
  REQUIRE(rising.slow.size() == 1);
  CHECK(rising.slow[0].first_where == 7);
  // Five times as long, or with a prompt between: a hiccup.
  for (const std::string& last : {decode_line(24, 24 / 0.08), batch + decode_line(24, 24 / 0.16)}) {
    CHECK(gaps_of_text(batch + usual + usual + last + usual).slow.empty());
  }
}

namespace {

// It begins with lines of 20 requests and steps of 20 ms. With `has_rates` the log says of a batch
// how long it took, with all that ran since the one before.
struct BatchLog {
  std::string text;
  int second = 0;
  bool has_rates;
  double before_s = 0;  // of the decodes before

  explicit BatchLog(bool with_rates) : has_rates(with_rates) {
    add(6, 20, 0);
    add(6, 20, 2000);
  }
  // Lines of forty steps, each behind a prompt of so many tokens; 0: none.
  BatchLog& add(int count, double step_ms, int num_tokens, double token_ms = 0.1) {
    for (int i = 0; i < count; ++i) {
      if (num_tokens > 0) {
        text += "[2025-08-01 12:00:" + std::string(second < 10 ? "0" : "") +
                std::to_string(second) +
                "] Prefill batch. #new-seq: 1, #new-token: " + std::to_string(num_tokens) +
                ", #cached-token: 0, token usage: 0.08, #running-req: 20, #queue-req: 0";
        const double batch_s = before_s + token_ms * num_tokens / 1000;
        if (has_rates) {
          text += ", #pending-token: 0, cuda graph: False, input throughput (token/s): " +
                  fixed_text(num_tokens / batch_s, 2);
        }
        text += "\n";
      }
      before_s = 40 * step_ms / 1000;
      const double seconds = (40 * step_ms + token_ms * num_tokens) / 1000;
      second += static_cast<int>(std::lround(seconds));
      text += decode_line(20, 20 * 40 / seconds, second);
    }
    return *this;
  }
};

double longest_prefill_ms(const LogGaps& gaps) {
  TimeNs longest = 0;
  for (const LoggedGap& gap : gaps.gaps) longest = std::max(longest, gap.gap_ns - gap.decode_ns);
  return to_ms(longest);
}

}  // namespace

TEST_CASE("slow decodes of SGLang between prompts are named", "[reports][log_diagnosis]") {
  for (const bool has_rates : {false, true}) {
    INFO((has_rates ? "with" : "without") << " times of batches");
    const auto log = [has_rates] { return BatchLog(has_rates); };
    CHECK(gaps_of_text(log().text).slow.empty());
    // A slow line without a prompt between two with one.
    const LogGaps between = gaps_of_text(
        log().add(1, 200, 1000).add(1, 250, 0).add(1, 200, 1000).add(3, 20, 2000).text);
    REQUIRE(between.slow.size() == 1);
    CHECK((between.slow[0].first_where == 20 && between.slow[0].last_where == 23));
    INFO(between.notes.front());
    CHECK(notes_have(between,
                     "From line 20 (12:00:20) on, a decode step of 20 requests takes 250 ms"));
    // Only lines with prompts.
    const LogGaps only = gaps_of_text(log().add(3, 200, 1000).add(3, 20, 2000).text);
    REQUIRE(only.slow.size() == 1);
    CHECK((only.slow[0].first_where == 20 && only.slow[0].last_where == 24));
    CHECK(notes_have(only, "a decode step of 20 requests takes at least "));
    // Prompts with a long context may take twice as long: these are no decodes.
    const LogGaps longer = gaps_of_text(log().add(1, 20, 20000, 0.2).add(3, 20, 2000).text);
    CHECK(longer.slow.empty());
    CHECK(longest_prefill_ms(longer) > 2500);
    if (has_rates) continue;
    CHECK(longest_prefill_ms(between) < 300);
    CHECK(longest_prefill_ms(only) < 300);
  }
}

TEST_CASE("a log of SGLang without pending tokens says that its longest gap is rough",
          "[reports][log_diagnosis]") {
  const auto batch = [](int num_waiting, bool has_pending, const char* rate) {
    return "[2025-08-01 12:00:00] Prefill batch. #new-seq: 1, #new-token: 1000, #cached-token: 0, "
           "token usage: 0.08, #running-req: 10, #queue-req: " +
           std::to_string(num_waiting) + (has_pending ? ", #pending-token: 0" : "") +
           ", cuda graph: False, input throughput (token/s): " + rate + "\n";
  };
  const auto gaps = [&](int num_waiting, bool has_pending, const std::string& settings) {
    return gaps_of_text(settings + decode_line(10, 1000) + decode_line(10, 1000) +
                        batch(num_waiting, has_pending, "10000.00") +
                        batch(0, has_pending, "8000.00") + batch(0, has_pending, "8000.00") +
                        decode_line(10, 500));
  };
  const auto longest_ms = [](const LogGaps& of) {
    TimeNs longest = 0;
    for (const LoggedGap& gap : of.gaps) longest = std::max(longest, gap.gap_ns);
    return to_ms(longest);
  };
  // A decode step takes 10 ms, the first batch 100 ms; the others have 25 ms for decodes.
  const std::string lacks = "The log has no '#pending-token'";
  const LogGaps apart = gaps(0, false, "");
  CHECK(notes_have(apart, lacks));
  CHECK(notes_have(apart, "is an estimate: it may be shorter, or about "));
  CHECK(notes_have(apart, "between the batches of lines 3 to 5."));
  CHECK_FALSE(notes_have(gaps(0, true, ""), lacks));
  // Prompts wait behind a batch where requests do, or where the batch is full.
  CHECK(longest_ms(gaps(1, false, "")) > longest_ms(gaps(1, true, "")) + 100);
  const std::string full = "server_args=ServerArgs(chunked_prefill_size=1000)\n";
  CHECK(longest_ms(gaps(1, false, full)) > longest_ms(gaps(1, false, "")) + 100);
  CHECK_FALSE(
      notes_have(gaps(1, false, "server_args=ServerArgs(enable_mixed_chunk=True)\n"), lacks));
}

}  // namespace TEST_FILE
