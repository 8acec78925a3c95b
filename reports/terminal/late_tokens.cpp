// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/late_tokens.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/text_table.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

constexpr const char* kLaterThanP99 = "over p99";

// Columns of the tables, in the order of FirstTokenPart.
constexpr const char* kLateColumns[] = {"front end",      "slots",   "KV blocks",   "encoder",
                                        "behind prompts", "held",    "own prefill", "other prompts",
                                        "encoding",       "decodes", "host",        "preempted"};
static_assert(std::size(kLateColumns) == kNumFirstTokenParts);

std::string late_ms(TimeNs ns) { return ms_text(to_ms(ns)); }

double part_share(TimeNs part, TimeNs total) {
  return total == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(total);
}

TextBlock late_rows_block(const LateTokens& late) {
  std::vector<std::string> header = {"", "requests"};
  for (const char* column : kLateColumns) header.push_back(std::string(column) + " %");
  TextTable table(std::move(header), 0);
  for (const FirstTokenRow& row : late.rows) {
    const std::string limit = row.limit_ms ? ", " + ms_text(*row.limit_ms) + " ms" : std::string();
    std::vector<std::string> cells = {row.name + limit, grouped_text(row.num_requests)};
    for (const TimeNs part : row.parts.ns) {
      cells.push_back(fixed_text(part_share(part, row.parts.total_ns()), 1));
    }
    table.row(std::move(cells));
  }
  table.drop_columns_of("0.0");
  return {
      .title = "parts of the time to the first token; from slots to held, it waits in the queue",
      .table = std::move(table)};
}

std::string culprit_text(const FirstTokenCulprit& culprit) {
  if (culprit.request == kNoRequest) return "no other prompt";
  return fmt::format("request {}, {} ({})", index(culprit.request),
                     count_text(culprit.num_tokens, "token"), late_ms(culprit.prefill_ns));
}

TextBlock latest_block(const LateTokens& late) {
  if (late.latest.empty()) return {};
  std::vector<std::string> header = {"TTFT ms"};
  header.insert(header.end(), std::begin(kLateColumns), std::end(kLateColumns));
  header.insert(header.end(), {"at s", "request", "prompt", "delayed most by"});
  const std::size_t last = header.size() - 1;
  TextTable table(std::move(header), last);
  for (const LateToken& token : late.latest) {
    std::vector<std::string> cells = {late_ms(token.ttft_ns)};
    for (const TimeNs part : token.parts.ns) cells.push_back(late_ms(part));
    cells.insert(
        cells.end(),
        {grouped_text(to_seconds(token.arrival), 2), std::to_string(token.request),
         grouped_text(std::int64_t{token.num_prompt_tokens}), culprit_text(token.culprit)});
    table.row(std::move(cells));
  }
  table.drop_columns_of("0");
  table.drop_columns_of("0.0");
  return {.title = "latest first tokens; milliseconds", .table = std::move(table)};
}

void append_first_token_parts(const FirstTokenParts& parts, JsonText& json) {
  for (std::size_t p = 0; p < kNumFirstTokenParts; ++p) {
    json.key(key_of(static_cast<FirstTokenPart>(p))).ms(parts.ns[p]);
  }
}

}  // namespace

LateTokens find_late_tokens(const RunRecord& record, const EngineLimits& limits,
                            std::optional<double> ttft_limit_ms, std::size_t max_entries) {
  LateTokens late;
  if (!record.replicas.empty()) return late;  // the steps are not those of one engine
  const FirstTokens tokens(record, limits);
  late.rows = first_token_rows(record, tokens, ttft_limit_ms);
  for (const std::size_t i : tokens.latest(max_entries)) {
    const RequestRecord& request = record.requests[i];
    late.latest.push_back({i, request.arrival, request.ttft_ns(), request.num_prompt_tokens,
                           tokens.parts()[i], tokens.culprit(i)});
  }
  return late;
}

std::vector<TextBlock> late_token_blocks(const LateTokens& late) {
  if (late.rows.empty()) return {};
  return {late_rows_block(late), latest_block(late)};
}

std::string late_verdict(const LateTokens& late) {
  // The limit, if some are above it; else the p99.
  const FirstTokenRow* row = nullptr;
  for (const FirstTokenRow& one : late.rows) {
    if (one.limit_ms && one.num_requests > 0) row = &one;
  }
  if (row == nullptr) return {};
  const FirstTokenPart largest = row->parts.largest();
  return "of the time to the first tokens " +
         (row->name == kLaterThanP99 ? std::string("over the p99") : row->name) + ", " +
         fixed_text(part_share(row->parts[largest], row->parts.total_ns()), 1) + " % is " +
         std::string(part_words(largest));
}

void append_late_tokens(const LateTokens& late, JsonText& json) {
  json.begin_object();
  json.key("which").begin_array();
  for (const FirstTokenRow& row : late.rows) {
    json.begin_object();
    json.field("which", row.name);
    if (row.limit_ms) json.field("limit_ms", *row.limit_ms);
    json.field("requests", row.num_requests);
    append_first_token_parts(row.parts, json);
    json.end_object();
  }
  json.end_array();
  json.key("latest").begin_array();
  for (const LateToken& token : late.latest) {
    json.begin_object();
    json.field("request", static_cast<std::int64_t>(token.request));
    json.key("arrival_ms").ms(token.arrival);
    json.key("ttft_ms").ms(token.ttft_ns);
    json.field("prompt_tokens", token.num_prompt_tokens);
    append_first_token_parts(token.parts, json);
    json.key("delayed_most_by");
    if (token.culprit.request == kNoRequest) {
      json.null();
    } else {
      json.begin_object();
      json.field("request", static_cast<std::int64_t>(index(token.culprit.request)));
      json.field("prefill_tokens", token.culprit.num_tokens);
      json.key("prefill_ms").ms(token.culprit.prefill_ns);
      json.end_object();
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace metronome
