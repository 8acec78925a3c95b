// SPDX-License-Identifier: Apache-2.0
#include "study/compose/compose_workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/base/command_errors.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_chars.h"
#include "core/config/config_reader.h"
#include "core/workload/workload_config.h"

namespace metronome {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& text) {
  throw UsageError(option + ": '" + printable(text) +
                   "' is no length; allowed: TOKENS, LEAST-MOST, or MEDIAN:P99");
}

// "1500", "1k" for 1,000 or "1K" for 1,024.
std::optional<std::int64_t> count_in(std::string_view text) {
  std::int64_t count = 0;
  const bool is_short = text.ends_with('k') || text.ends_with('K');
  const std::int64_t unit = !is_short ? 1 : text.back() == 'k' ? 1000 : 1024;
  if (is_short) text.remove_suffix(1);
  const auto [end, error] = read_number(text.data(), text.data() + text.size(), count);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() && count >= 1;
  return is_whole && count <= kMaxLengthTokens / unit ? std::optional(count * unit) : std::nullopt;
}

// A length as an option has it.
struct Length {
  LengthDistribution distribution = LengthDistribution::Fixed;
  std::int64_t first = 0;  // the value, the least, or the median
  std::int64_t last = 0;   // the value, the most, or the p99

  // A lognormal length is drawn up to twice its p99, or to what the server takes.
  std::int64_t longest(std::int64_t most) const {
    return distribution == LengthDistribution::Lognormal ? std::min(2 * last, most) : last;
  }
};

Length parse_length(const std::string& option, const std::string& text) {
  const std::size_t between = text.find_first_of("-:");
  Length length;
  if (between != std::string::npos) {
    length.distribution =
        text[between] == ':' ? LengthDistribution::Lognormal : LengthDistribution::Uniform;
  }
  const auto first = count_in(std::string_view(text).substr(0, between));
  const auto last =
      between == std::string::npos ? first : count_in(std::string_view(text).substr(between + 1));
  if (!first || !last || *last < *first) refuse(option, text);
  length.first = *first;
  length.last = *last;
  return length;
}

// Sets `workload.KEY`.
void set_length(const std::string& key, const Length& length, std::int64_t most,
                const std::string& reason, YamlDraft& draft) {
  const std::string section = "workload." + key + ".";
  const std::string first = std::to_string(length.first);
  const std::string last = std::to_string(length.last);
  switch (length.distribution) {
    case LengthDistribution::Lognormal:
      draft.set(section + "distribution", "lognormal", reason);
      draft.set(section + "median", first);
      draft.set(section + "p99", last);
      draft.set(section + "max", std::to_string(length.longest(most)),
                length.longest(most) == most ? "the longest that the server takes" : "");
      break;
    case LengthDistribution::Uniform:
      draft.set(section + "distribution", "uniform", reason);
      draft.set(section + "min", first);
      draft.set(section + "max", last);
      break;
    default: draft.set("workload." + key, first, reason);
  }
}

const WorkloadPreset& named_preset(const std::string& name) {
  std::vector<std::string_view> names;
  for (const WorkloadPreset& preset : workload_presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  throw UsageError("--workload: '" + printable(name) + "' is no preset" +
                   did_you_mean(name, names) + "; allowed: " + join_names(names));
}

// A file of this machine is found from any folder.
std::string absolute(const std::string& path) { return std::filesystem::absolute(path).string(); }

void check_options(const ScenarioRequest& request) {
  const auto refuse_both = [](bool both, const char* first, const std::string& second) {
    if (both) {
      throw UsageError(std::string(first) + ": contradicts " + second + "; allowed: one of them");
    }
  };
  const bool has_lengths = !request.prompt.empty() || !request.output.empty();
  const bool has_file = !request.sharegpt.empty() || !request.trace.empty();
  refuse_both(!request.sharegpt.empty() && !request.trace.empty(), "--sharegpt", "--trace");
  refuse_both(has_file && has_lengths, request.sharegpt.empty() ? "--trace" : "--sharegpt",
              "--prompt and --output");
  refuse_both(has_file && !request.workload.empty(),
              request.sharegpt.empty() ? "--trace" : "--sharegpt", "a preset of the workload");
  refuse_both(request.rate && request.clients, "--rate", "--clients");
  if (has_lengths && (request.prompt.empty() || request.output.empty()) &&
      request.workload.empty()) {
    throw UsageError(std::string(request.prompt.empty() ? "--prompt" : "--output") +
                     ": is missing; allowed: both lengths, or a preset such as --chat");
  }
}

// Measures conversations without --tokenizer: the model's own where it is a folder or a GGUF
// file of this machine, else the characters of a token.
void set_measure(YamlDraft& draft, std::vector<std::string>& notes) {
  const std::string text = draft.value("model");
  const std::string model = text.starts_with('"') ? Json::parse(text).get<std::string>() : text;
  for (const std::string& file : {model + "/tokenizer.json", model}) {
    const bool is_tokenizer = file.ends_with(".json") || file.ends_with(".gguf");
    if (!is_tokenizer || file.ends_with("config.json") || !path_exists(file)) continue;
    draft.set_text("workload.trace.tokenizer", absolute(file), "the model's own");
    return;
  }
  // OpenAI's rule of thumb for English (platform.openai.com/tokenizer).
  draft.set("workload.trace.characters_per_token", "4", "no --tokenizer");
  notes.emplace_back(
      "Lengths of --sharegpt are estimates, a token for 4 characters, as there is no --tokenizer: "
      "the tokenizer.json of the model gives them exactly.");
}

// Requests that make percentiles steady: ten for each client, as the public sweep sends, or two
// minutes of them.
std::int64_t usual_requests(const ScenarioRequest& request) {
  constexpr std::int64_t kLeast = 400;
  constexpr std::int64_t kMost = 20'000;
  constexpr double kSeconds = 120;
  if (request.clients) return std::max<std::int64_t>(10 * *request.clients, 20);
  const double count = std::ceil(request.rate.value_or(1) * kSeconds);
  return static_cast<std::int64_t>(
      std::clamp(count, static_cast<double>(kLeast), static_cast<double>(kMost)));
}

// The request to one of several equal engines.
ScenarioRequest share_of(ScenarioRequest request, std::int64_t num_ranks, bool has_arrivals,
                         YamlDraft& draft, std::vector<std::string>& notes) {
  if (num_ranks == 1) return request;
  const auto ranks = static_cast<double>(num_ranks);
  if (request.rate) *request.rate /= ranks;
  if (request.clients) *request.clients = (*request.clients + num_ranks - 1) / num_ranks;
  const bool has_load = request.rate || request.clients;
  if (!has_load && has_arrivals) draft.set("workload.trace.rate_scale", format_double(1 / ranks));
  notes.push_back(
      fmt::format("The scenario is one of {0} data-parallel ranks, with its share of the load: "
                  "multiply requests and tokens a second by {0} for all of them.",
                  num_ranks));
  return request;
}

void set_arrivals(const ScenarioRequest& request, bool has_file, YamlDraft& draft,
                  std::vector<std::string>& notes) {
  if (request.clients) {
    draft.set("workload.arrivals.process", "closed_loop");
    draft.set("workload.arrivals.concurrency", std::to_string(*request.clients));
  } else if (request.rate) {
    draft.set("workload.arrivals.process", "poisson");
    draft.set("workload.arrivals.rate", format_double(*request.rate));
  } else if (!has_file) {
    draft.set("workload.arrivals.process", "poisson");
    draft.set("workload.arrivals.rate", "1", "no --rate or --clients");
    notes.push_back(
        "The scenario has one request a second, as neither --rate nor --clients is given.");
  }
}

}  // namespace

ComposedWorkload set_workload(const ScenarioRequest& whole, std::int64_t num_ranks,
                              std::int64_t context, YamlDraft& draft,
                              std::vector<std::string>& notes) {
  check_options(whole);
  const ScenarioRequest request = share_of(whole, num_ranks, !whole.trace.empty(), draft, notes);
  const bool has_file = !request.sharegpt.empty() || !request.trace.empty();
  if (has_file) {
    const bool is_chats = !request.sharegpt.empty();
    draft.set_text("workload.trace.file", absolute(is_chats ? request.sharegpt : request.trace));
    if (is_chats) draft.set("workload.trace.format", "sharegpt");
    if (!request.tokenizer.empty()) {
      draft.set_text("workload.trace.tokenizer", absolute(request.tokenizer));
    } else if (is_chats) {
      set_measure(draft, notes);
    }
    if (request.num_requests) {
      draft.set("workload.trace.limit", std::to_string(*request.num_requests));
    }
    set_arrivals(request, !is_chats, draft, notes);
    return {};
  }
  const bool has_lengths = !request.prompt.empty() && !request.output.empty();
  const WorkloadPreset* preset = nullptr;
  if (!request.workload.empty()) {
    preset = &named_preset(request.workload);
  } else if (!has_lengths) {
    preset = &workload_presets().front();
    notes.push_back("The requests are those of --" + std::string(preset->name) + ", " +
                    std::string(preset->summary) + ", as no lengths are given.");
  }
  draft.set("workload.num_requests",
            std::to_string(request.num_requests.value_or(usual_requests(request))),
            request.num_requests ? "" : "enough for steady percentiles");
  set_arrivals(request, false, draft, notes);
  constexpr std::int64_t kOne = 1;
  const std::string reason = preset == nullptr ? "" : std::string(preset->source);
  const auto length = [&](const char* option, const std::string& given, std::string_view usual) {
    return parse_length(option, given.empty() ? std::string(usual) : given);
  };
  const Length output = length("--output", request.output, preset ? preset->output : "");
  const Length prompt = length("--prompt", request.prompt, preset ? preset->prompt : "");
  const std::int64_t most_output = request.output.empty() ? std::max(context / 2, kOne) : context;
  const std::int64_t room = std::max(context - output.longest(most_output), kOne);
  const std::int64_t shared = preset == nullptr ? 0 : std::min(preset->shared_tokens, room / 2);
  set_length("prompt_tokens", prompt, room - shared, request.prompt.empty() ? reason : "", draft);
  set_length("output_tokens", output, most_output, "", draft);
  if (shared > 0) {
    draft.set("workload.prefix.kind", "groups");
    draft.set("workload.prefix.num_groups", "1");
    draft.set("workload.prefix.prefix_tokens", std::to_string(shared));
  }
  return {preset, prompt.longest(room - shared) + shared + output.longest(most_output)};
}

}  // namespace metronome
