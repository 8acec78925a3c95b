// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/log_facts.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "engines/log/log_dialect.h"

namespace metronome {
namespace {

std::int64_t count_of(const EngineLog& log, Observed kind) {
  return std::count_if(log.observations.begin(), log.observations.end(),
                       [kind](const LogObservation& seen) { return seen.kind == kind; });
}

std::string setting(const EngineLog& log, std::string_view name) {
  const auto found = log.settings.find(std::string(name));
  return found == log.settings.end() ? std::string() : found->second;
}

// A flag as an argument of the engine: "--no-enable-prefix-caching" is enable_prefix_caching false.
void append_flag(std::string_view flag, JsonText& json) {
  flag.remove_prefix(std::min<std::size_t>(2, flag.size()));
  const std::size_t space = flag.find(' ');
  std::string name(flag.substr(0, space));
  const bool is_off = space == std::string_view::npos && name.starts_with("no-");
  if (is_off) name.erase(0, 3);
  std::replace(name.begin(), name.end(), '-', '_');
  json.key(name);
  if (space == std::string_view::npos) return json.value(!is_off);
  const std::string_view value = flag.substr(space + 1);
  if (const auto count = number_in<std::int64_t>(value)) return json.value(*count);
  if (const auto number = number_in<double>(value)) return json.value(*number);
  json.value(value);
}

void append_text(const char* key, const std::string& text, JsonText& json) {
  json.key(key);
  if (text.empty()) return json.null();
  json.value(text);
}

}  // namespace

std::string log_text(const EngineLog& log) {
  const auto count = [&log](Observed kind, const char* noun) {
    return count_text(count_of(log, kind), noun);
  };
  if (log.dialect->form == LogForm::Batches) {
    return std::string(log.engine_name()) + " log, " +
           grouped_text(count_of(log, Observed::Prefill)) +
           (count_of(log, Observed::Prefill) == 1 ? " batch" : " batches") + " of prompts, " +
           count(Observed::Decode, "line") + " about decodes";
  }
  const std::string version = setting(log, "version");
  std::string reports;
  if (log.has(Observed::Report)) reports += ", " + count(Observed::Report, "report");
  if (log.has(Observed::Answer)) reports += ", " + count(Observed::Answer, "answer");
  if (!log.has(Observed::Iteration)) {
    return std::string(log.engine_name()) + (version.empty() ? "" : " " + version) + " log" +
           reports;
  }
  return std::string(log.engine_name()) + (version.empty() ? "" : " " + version) +
         " iteration log, " + count(Observed::Iteration, "iteration") + reports;
}

std::vector<std::string> left_out_notes(const EngineLog& log) {
  std::vector<std::string> notes;
  if (!log.other_starts.empty()) {
    notes.push_back(fmt::format(
        "{} starts {} times in the log: this is about the start {}, behind which most was logged.",
        log.engine_name(), log.other_starts.size() + 1,
        log.start_line == 0 ? "before its first line"
                            : fmt::format("in line {}", log.start_line)));
  }
  if (log.num_lacking > 0) {
    notes.push_back(
        fmt::format("{} without a field that {} logs {} left out: line {}, the first, has no '{}'.",
                    count_text(log.num_lacking, "line"), log.engine_name(),
                    was_or_were(log.num_lacking), log.first_lacking, log.lacking_field));
  }
  if (log.num_broken > 0) {
    notes.push_back(fmt::format(
        "{}, cut or written into each other, {} left out: the first is line {}.",
        count_text(log.num_broken, "line"), was_or_were(log.num_broken), log.first_broken));
  }
  return notes;
}

void append_engine(const EngineLog& log, std::span<const std::string> flags, JsonText& json) {
  const LogDialect& engine = *log.dialect;
  json.begin_object();
  json.field("name", engine.name());
  const std::string version = setting(log, "version");  // "0.32.0" has the rules of 0.32
  append_text("version", version.substr(0, version.find('.', version.find('.') + 1)), json);
  append_text("model", setting(log, engine.server->model), json);
  json.key("settings").begin_object();
  for (const std::string& flag : flags) append_flag(flag, json);
  json.end_object();
  json.key("kv_cache_tokens");
  const auto tokens = number_in<std::int64_t>(setting(log, engine.server->pool));
  if (tokens) {
    json.value(*tokens);
  } else {
    json.null();
  }
  if (engine.form == LogForm::Iterations) {
    json.field("iterations", count_of(log, Observed::Iteration));
    json.field("reports", count_of(log, Observed::Report));
    if (log.has(Observed::Answer)) json.field("answers", count_of(log, Observed::Answer));
  } else {
    json.field("prefill_batches", count_of(log, Observed::Prefill));
    json.field("decode_lines", count_of(log, Observed::Decode));
  }
  json.end_object();
}

}  // namespace metronome
