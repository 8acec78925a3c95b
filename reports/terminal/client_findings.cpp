// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/client_findings.h"

#include <algorithm>

#include "core/base/count_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "reports/measured/measured_reader.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

using TextRows = std::vector<std::vector<std::string>>;

// Keeps the first `most` entries of this order.
template <class Entry, class Before>
void keep_first(std::vector<Entry>& entries, std::size_t most, const Before& before) {
  std::stable_sort(entries.begin(), entries.end(), before);
  if (entries.size() > most) entries.resize(most);
}

std::vector<ClientGap> client_gaps(const MeasuredRun& run) {
  std::vector<ClientGap> gaps;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const MeasuredRequest& request = run.requests[i];
    if (!request.error.empty()) continue;
    const bool has_times = request.start != kNoTime && request.ttft_ns != kNoTime;
    TimeNs time = has_times ? request.start + request.ttft_ns : kNoTime;
    for (std::size_t k = 0; k < request.gaps.size(); ++k) {
      gaps.push_back({.request = i, .chunk = k + 1, .gap_ns = request.gaps[k], .began = time});
      if (has_times) time += request.gaps[k];
    }
  }
  return gaps;
}

void count_first_tokens(const MeasuredRun& run, ClientGap& gap) {
  if (gap.began == kNoTime) return;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const MeasuredRequest& request = run.requests[i];
    if (i == gap.request || request.start == kNoTime || request.ttft_ns == kNoTime) continue;
    const TimeNs first = request.start + request.ttft_ns;
    if (first <= gap.began || first > gap.began + gap.gap_ns) continue;
    ++gap.num_first_tokens;
    gap.num_prompt_tokens += std::max(request.num_prompt_tokens, 0);
  }
}

void describe_requests(const MeasuredRun& run, ClientFindings& findings) {
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  for (const MeasuredRequest& request : run.requests) {
    if (!request.error.empty()) continue;
    const bool has_ttft = request.ttft_ns != kNoTime;
    if (has_ttft) ttft.push_back(static_cast<double>(request.ttft_ns));
    if (has_ttft && request.e2el_ns != kNoTime && request.num_output_tokens > 1) {
      tpot.push_back(static_cast<double>(request.e2el_ns - request.ttft_ns) /
                     (request.num_output_tokens - 1));
    }
    for (const TimeNs gap : request.gaps) itl.push_back(static_cast<double>(gap));
  }
  findings.ttft = describe(ttft);
  findings.tpot = describe(tpot);
  findings.itl = describe(itl);
}

void count_over(const std::vector<ClientGap>& gaps, ClientFindings& findings) {
  findings.num_gaps = std::ssize(gaps);
  if (!findings.itl_limit_ms) return;
  const TimeNs limit = longest_within(*findings.itl_limit_ms);
  std::optional<std::size_t> last;
  for (const ClientGap& gap : gaps) {
    if (gap.gap_ns <= limit) continue;
    ++findings.num_gaps_over;
    if (last != gap.request) ++findings.num_requests_over;
    last = gap.request;
  }
}

std::vector<LateFirstToken> first_tokens(const MeasuredRun& run) {
  std::vector<LateFirstToken> tokens;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const MeasuredRequest& request = run.requests[i];
    if (!request.error.empty() || request.ttft_ns == kNoTime) continue;
    tokens.push_back({i, request.ttft_ns, request.start, request.num_prompt_tokens});
  }
  return tokens;
}

void add_notes(const MeasuredRun& run, ClientFindings& findings) {
  std::vector<std::string>& notes = findings.notes;
  for (const std::string& lack : run.lacks) notes.push_back("Of this result: " + lack + ".");
  if (findings.num_gaps > 0 && !findings.itl_limit_ms) {
    notes.push_back("There is no ITL limit: give --target-itl MS to count the gaps over it.");
  }
  notes.push_back(
      "A client sees no steps. What the server computed in a gap is in its log: metronome diagnose "
      "LOG. Settings without the gap follow from a run of its scenario: metronome run SCENARIO, "
      "then metronome diagnose FOLDER, or metronome diagnose LOG --scenario SCENARIO.");
}

std::string seconds_text(TimeNs time) {
  return time == kNoTime ? "-" : fixed_text(to_seconds(time), 3);
}

std::string tokens_text(std::int32_t tokens) {
  return tokens == kUnknownTokens ? "-" : grouped_text(std::int64_t{tokens});
}

std::string distribution_line(const char* name, const Distribution& distribution) {
  if (distribution.count == 0) return {};
  return std::string("  ") + name + " p50 " + ms_text(distribution.p50_ms) + " ms, p99 " +
         ms_text(distribution.p99_ms) + " ms, longest " + ms_text(distribution.max_ms) + " ms\n";
}

std::string gap_table(const ClientFindings& findings) {
  TextRows rows = {{"longest gaps, ms", "at s", "request", "chunk", "first tokens", "prompts"}};
  for (const ClientGap& gap : findings.longest_gaps) {
    const bool is_placed = gap.began != kNoTime;
    rows.push_back({ms_text(to_ms(gap.gap_ns)), seconds_text(gap.began),
                    std::to_string(gap.request), std::to_string(gap.chunk),
                    is_placed ? grouped_text(gap.num_first_tokens) : "-",
                    is_placed ? grouped_text(gap.num_prompt_tokens) : "-"});
  }
  return aligned_rows(rows);
}

std::string first_token_table(const ClientFindings& findings) {
  TextRows rows = {{"latest first tokens, ms", "sent at s", "request", "prompt"}};
  for (const LateFirstToken& token : findings.latest_first_tokens) {
    rows.push_back({ms_text(to_ms(token.ttft_ns)), seconds_text(token.start),
                    std::to_string(token.request), tokens_text(token.num_prompt_tokens)});
  }
  return aligned_rows(rows);
}

// "12 of 300 gaps (4.0 %) are longer than 30 ms, in 5 of 100 requests".
std::string over_line(const MeasuredRun& run, const ClientFindings& findings) {
  const double share =
      static_cast<double>(findings.num_gaps_over) / static_cast<double>(findings.num_gaps);
  return "  " + grouped_text(findings.num_gaps_over) + " of " +
         count_text(findings.num_gaps, "gap") + " (" + percent_text(share, 2) + ") longer than " +
         ms_text(*findings.itl_limit_ms) + " ms, in " + grouped_text(findings.num_requests_over) +
         " of " + count_text(run.num_completed, "request") + "\n";
}

void append_time(const char* key, TimeNs time, JsonText& json) {
  json.key(key);
  if (time == kNoTime) {
    json.null();
  } else {
    json.value(to_seconds(time));
  }
}

void append_latency(const char* key, const Distribution& latency, JsonText& json) {
  json.key(key).begin_object();
  json.field("count", latency.count);
  json.field("p50_ms", latency.p50_ms);
  json.field("p99_ms", latency.p99_ms);
  json.field("max_ms", latency.max_ms);
  json.end_object();
}

}  // namespace

ClientFindings examine_client(const MeasuredRun& run, std::optional<double> itl_limit_ms,
                              std::size_t max_entries) {
  ClientFindings findings;
  findings.itl_limit_ms = itl_limit_ms;
  describe_requests(run, findings);
  findings.longest_gaps = client_gaps(run);
  count_over(findings.longest_gaps, findings);
  keep_first(findings.longest_gaps, max_entries,
             [](const ClientGap& a, const ClientGap& b) { return a.gap_ns > b.gap_ns; });
  for (ClientGap& gap : findings.longest_gaps) count_first_tokens(run, gap);
  findings.latest_first_tokens = first_tokens(run);
  keep_first(
      findings.latest_first_tokens, max_entries,
      [](const LateFirstToken& a, const LateFirstToken& b) { return a.ttft_ns > b.ttft_ns; });
  add_notes(run, findings);
  return findings;
}

std::string client_findings_text(const MeasuredRun& run, const ClientFindings& findings) {
  const std::size_t columns = output_columns();
  std::string text = printable(run.path) + "\n  " + wrapped(measured_run_text(run), 2, columns);
  text += distribution_line("TTFT", findings.ttft);
  text += distribution_line("TPOT", findings.tpot);
  text += distribution_line("ITL", findings.itl);
  if (findings.itl_limit_ms && findings.num_gaps > 0) text += over_line(run, findings);
  if (!findings.longest_gaps.empty()) text += "\n" + gap_table(findings);
  if (!findings.latest_first_tokens.empty()) text += "\n" + first_token_table(findings);
  text += "\n";
  for (const std::string& note : findings.notes) text += wrapped(printable(note), 0, columns);
  return text;
}

void append_client_findings(const MeasuredRun& run, const ClientFindings& findings,
                            JsonText& json) {
  json.begin_object();
  json.field("label", run.path);
  json.field("client", run.client);
  json.field("run", static_cast<std::int64_t>(run.number));
  json.field("completed", run.num_completed);
  json.field("failed", run.num_failed);
  append_latency("ttft", findings.ttft, json);
  append_latency("tpot", findings.tpot, json);
  append_latency("itl", findings.itl, json);
  json.key("itl_limit_ms");
  if (findings.itl_limit_ms) {
    json.value(*findings.itl_limit_ms);
  } else {
    json.null();
  }
  json.field("gaps", findings.num_gaps);
  json.field("gaps_over_limit", findings.num_gaps_over);
  json.field("requests_over_limit", findings.num_requests_over);
  json.key("longest_gaps").begin_array();
  for (const ClientGap& gap : findings.longest_gaps) {
    json.begin_object();
    json.field("gap_ms", to_ms(gap.gap_ns));
    json.field("request", static_cast<std::int64_t>(gap.request));
    json.field("chunk", static_cast<std::int64_t>(gap.chunk));
    append_time("began_s", gap.began, json);
    json.field("first_tokens", gap.num_first_tokens);
    json.field("prompt_tokens", gap.num_prompt_tokens);
    json.end_object();
  }
  json.end_array();
  json.key("latest_first_tokens").begin_array();
  for (const LateFirstToken& token : findings.latest_first_tokens) {
    json.begin_object();
    json.field("ttft_ms", to_ms(token.ttft_ns));
    json.field("request", static_cast<std::int64_t>(token.request));
    append_time("sent_s", token.start, json);
    json.end_object();
  }
  json.end_array();
  json.key("notes").begin_array();
  for (const std::string& note : findings.notes) json.value(note);
  json.end_array();
  json.end_object();
}

}  // namespace metronome
