// SPDX-License-Identifier: Apache-2.0
// genai-perf's profile_export.json, whose experiments have the responses of each request in
// nanoseconds, and profile_export_genai_perf.json or .csv, the summary. Read with genai-perf 0.0.8
// to 0.0.16.
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "reports/measured/formats.h"
#include "reports/measured/metric_summary.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

bool is_export(const Json& value) { return value.contains("experiments"); }

// One response of a server: the text of one or several events.
struct AnswerChunk {
  bool has_text = false;
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
  bool is_error = false;
};

bool has_content(const Json& choice) {
  const auto is_text = [](const Json* value) {
    return value != nullptr && value->is_string() && !value->string().empty();
  };
  for (const char* part : {"delta", "message"}) {
    const Json* message = choice.find(part);
    if (message == nullptr) continue;
    if (is_text(message->find("content")) || is_text(message->find("reasoning_content"))) {
      return true;
    }
  }
  return is_text(choice.find("text"));
}

void read_event(std::string_view text, AnswerChunk& response) {
  if (text == "[DONE]") return;
  const std::optional<Json> event = Json::try_parse(text);
  if (!event || !event->is_object()) {
    response.has_text = response.has_text || !text.empty();
    return;
  }
  const JsonPlace place("response", *event);
  if (value_if(place, "error")) response.is_error = true;
  if (const auto usage = value_if(place, "usage")) {
    response.prompt_tokens = count_if(*usage, "prompt_tokens");
    response.completion_tokens = count_if(*usage, "completion_tokens");
  }
  if (const Json* choices = event->find("choices"); choices != nullptr) {
    for (const Json& choice : *choices) response.has_text |= has_content(choice);
  }
  if (text_if(place, "text_output") || text_if(place, "generated_text")) response.has_text = true;
}

AnswerChunk read_chunk(std::string_view text) {
  constexpr std::string_view kData = "data:";
  AnswerChunk response;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("\n\n"), text.size());
    std::string_view event = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    if (event.starts_with(kData)) event.remove_prefix(kData.size());
    while (!event.empty() && (event.front() == ' ' || event.front() == '\n')) {
      event.remove_prefix(1);
    }
    while (!event.empty() && (event.back() == '\n' || event.back() == '\r')) {
      event.remove_suffix(1);
    }
    if (!event.empty()) read_event(event, response);
  }
  return response;
}

// The texts of the responses. One that does not begin an event belongs to the one before it: the
// network split it.
std::vector<std::string> chunk_texts(const JsonPlace& request) {
  std::vector<std::string> texts;
  bool has_events = false;
  request.at("response_outputs").for_each([&](const JsonPlace& output) {
    std::string text = text_if(output, "response").value_or("");
    if (text.empty()) text = text_if(output, "text_output").value_or("");
    has_events = has_events || text.starts_with("data:");
    if (has_events && !text.empty() && !text.starts_with("data:") && !texts.empty()) {
      texts.back() += text;
      text.clear();
    }
    texts.push_back(std::move(text));
  });
  return texts;
}

MeasuredRequest read_genai_request(const JsonPlace& place) {
  MeasuredRequest request;
  request.start = place.at("timestamp").time();
  if (const auto inputs = value_if(place, "request_inputs")) {
    request.session = text_if(*inputs, "session_id").value_or("");
  }
  const std::vector<std::string> texts = chunk_texts(place);
  std::size_t i = 0;
  std::int32_t num_chunks = 0;
  TimeNs last = kNoTime;
  bool is_error = false;
  place.at("response_timestamps").for_each([&](const JsonPlace& stamp) {
    const TimeNs time = stamp.time();
    if (time < std::max(request.start, last)) stamp.fail("is before the response before it");
    const AnswerChunk response = i < texts.size() ? read_chunk(texts[i]) : AnswerChunk{};
    ++i;
    is_error = is_error || response.is_error;
    if (response.prompt_tokens) {
      request.num_prompt_tokens = static_cast<std::int32_t>(*response.prompt_tokens);
    }
    if (response.completion_tokens) {
      request.num_output_tokens = static_cast<std::int32_t>(*response.completion_tokens);
    }
    if (!response.has_text) return;
    ++num_chunks;
    add_token_time(time, last, request);
  });
  if (request.num_output_tokens == kUnknownTokens) request.num_output_tokens = num_chunks;
  if (is_error) {
    add_failure(request, "an error in the answer");
  } else if (num_chunks == 0) {
    add_failure(request, "no tokens");
  }
  return request;
}

// The model in the body of a request.
std::string genai_model(const JsonPlace& request) {
  const std::optional<JsonPlace> inputs = value_if(request, "request_inputs");
  const auto payload = inputs ? text_if(*inputs, "payload") : std::nullopt;
  const auto body = payload ? Json::try_parse(*payload) : std::nullopt;
  return body ? text_if(JsonPlace("payload", *body), "model").value_or("") : "";
}

MeasuredRun read_experiment(const JsonPlace& place) {
  MeasuredRun run;
  run.client = "genai-perf";
  run.has_gaps = true;
  const JsonPlace load = place.at("experiment");
  const std::string mode = text_if(load, "mode").value_or("");
  if (mode == "concurrency") run.max_concurrency = count_if(load, "value");
  if (mode == "request_rate") run.request_rate = number_if(load, "value");
  bool has_lengths = true;
  place.at("requests").for_each([&](const JsonPlace& request) {
    if (run.model.empty()) run.model = genai_model(request);
    run.requests.push_back(read_genai_request(request));
    const MeasuredRequest& read = run.requests.back();
    has_lengths = has_lengths && (!read.error.empty() || read.num_prompt_tokens != kUnknownTokens);
  });
  if (!has_lengths) {
    run.lacks.push_back(
        "it has no token counts: a chunk with text counts as a token, and lengths of prompts are "
        "unknown");
  }
  return run;
}

std::string summary_model(const JsonPlace& summary) {
  for (const char* path :
       {"input_config.model", "input_config.model_names", "input_config.formatted_model_name"}) {
    const std::optional<JsonPlace> model = value_at(summary, path);
    if (!model || model->json().empty()) continue;
    const Json& first = model->json().is_array() ? model->json().front() : model->json();
    if (first.is_string()) return first.string();
  }
  return "";
}

MeasuredRun read_genai_summary(const JsonPlace& summary) {
  MeasuredRun run;
  run.client = "genai-perf";
  read_metric_summary(summary, run);
  run.model = summary_model(summary);
  run.max_concurrency = count_if(summary, "concurrency");
  if (const auto stimulus = value_at(summary, "input_config.perf_analyzer.stimulus")) {
    run.max_concurrency = count_if(*stimulus, "concurrency");
    run.request_rate = number_if(*stimulus, "request_rate");
  }
  if (const auto config = value_if(summary, "input_config")) {
    if (!run.max_concurrency) run.max_concurrency = count_if(*config, "concurrency");
    if (!run.request_rate) run.request_rate = number_if(*config, "request_rate");
  }
  run.lacks.push_back("it has no requests, which profile_export.json beside it has");
  return run;
}

}  // namespace

bool is_genai_perf(const Json& value) {
  return (is_export(value) && value.contains("service_kind")) || has_metric_summary(value);
}

std::vector<MeasuredRun> read_genai_perf(const MeasuredFiles& files) {
  std::vector<MeasuredRun> runs;
  for (const MeasuredFile& file : files) {
    const JsonPlace place = file.documents.front().place();
    if (!is_export(place.json())) continue;
    place.at("experiments").for_each([&](const JsonPlace& experiment) {
      runs.push_back(read_experiment(experiment));
    });
  }
  if (!runs.empty()) return runs;
  for (const MeasuredFile& file : files) {
    runs.push_back(read_genai_summary(file.documents.front().place()));
  }
  return runs;
}

}  // namespace metronome
