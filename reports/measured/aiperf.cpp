// SPDX-License-Identifier: Apache-2.0
// AIPerf's profile_export.jsonl, a line for each request, and profile_export_aiperf.json, the
// summary and the settings. Read with AIPerf 0.1 to 0.13.
#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>

#include "core/base/number_text.h"
#include "reports/measured/formats.h"
#include "reports/measured/metric_summary.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

bool is_aiperf_record(const Json& value) {
  const Json* metadata = value.find("metadata");
  return metadata != nullptr && metadata->contains("request_start_ns");
}

bool has_metrics(const MeasuredFile& file) {
  return file.documents.front().json.contains("metrics");
}

// The failure of a record: {"code": 500, "type": ..., "message": ...}.
std::string aiperf_error(const JsonPlace& error) {
  const std::string type = text_if(error, "type").value_or("error");
  const std::optional<std::int64_t> code = count_if(error, "code");
  return code ? fmt::format("{} {}", type, *code) : type;
}

MeasuredRequest read_aiperf_record(const JsonPlace& line, bool& has_gaps) {
  MeasuredRequest request;
  const JsonPlace metadata = line.at("metadata");
  request.start = metadata.at("request_start_ns").time();
  if (const auto session = value_of_any(metadata, {"x_correlation_id", "conversation_id"})) {
    if (session->json().is_string()) request.session = session->text();
  }
  const std::optional<JsonPlace> error = value_if(line, "error");
  const std::optional<JsonPlace> cancelled = value_if(metadata, "was_cancelled");
  if (error) {
    add_failure(request, aiperf_error(*error));
  } else if (cancelled && cancelled->truth()) {
    add_failure(request, "cancelled");
  }
  if (!request.error.empty()) return request;
  const JsonPlace metrics = line.at("metrics");
  request.e2el_ns = metric_time(metrics.at("request_latency"));
  if (const auto ttft = value_of_any(metrics, {"time_to_first_token", "ttft"})) {
    request.ttft_ns = metric_time(*ttft);
  }
  if (const auto length = value_if(metrics, "input_sequence_length")) {
    request.num_prompt_tokens = token_count(length->at("value"));
  }
  if (const auto length = value_if(metrics, "output_sequence_length")) {
    request.num_output_tokens = token_count(length->at("value"));
  }
  const std::optional<JsonPlace> chunks = value_if(metrics, "inter_chunk_latency");
  if (chunks && chunks->at("value").json().is_array()) {
    const double unit = unit_ns(chunks->at("unit"));
    chunks->at("value").for_each(
        [&](const JsonPlace& gap) { request.gaps.push_back(time_in(gap, unit)); });
    has_gaps = true;
  }
  return request;
}

void read_aiperf_records(const MeasuredFile& file, MeasuredRun& run) {
  std::int64_t num_warmup = 0;
  for (const MeasuredDocument& document : file.documents) {
    const JsonPlace line = document.place();
    if (text_if(line.at("metadata"), "benchmark_phase") == "warmup") {
      ++num_warmup;
      continue;
    }
    run.requests.push_back(read_aiperf_record(line, run.has_gaps));
  }
  if (num_warmup > 0) {
    run.lacks.push_back(grouped_text(num_warmup) + " of its requests are a warm-up, left out");
  }
  if (!run.has_gaps) run.lacks.push_back("it has no gaps between tokens: no ITL");
}

// The settings have moved from version to version.
void read_aiperf_settings(const JsonPlace& summary, MeasuredRun& run) {
  if (const auto version = text_if(summary, "aiperf_version")) run.client += " " + *version;
  for (const char* path :
       {"input_config.endpoint.model_names", "input_config.models.items", "input_config.models"}) {
    const std::optional<JsonPlace> models = value_at(summary, path);
    if (!models || models->json().empty()) continue;
    const Json& first = models->json().is_array() ? models->json().front() : models->json();
    const Json* name = first.is_object() ? first.find("name") : &first;
    if (name != nullptr && name->is_string()) run.model = name->string();
  }
  for (const char* path : {"input_config.loadgen", "input_config.load", "input_config.phases"}) {
    std::optional<JsonPlace> load = value_at(summary, path);
    if (!load) continue;
    if (load->json().is_array()) {  // the last phase is the measured one
      const JsonPlace phases = *load;
      phases.for_each([&load](const JsonPlace& phase) { load = phase; });
    }
    for (const char* key : {"request_rate", "rate"}) {
      if (const auto rate = number_if(*load, key)) run.request_rate = rate;
    }
    if (const auto most = count_if(*load, "concurrency")) run.max_concurrency = most;
  }
}

MeasuredRun aiperf_run() {
  MeasuredRun run;
  run.client = "AIPerf";
  return run;
}

}  // namespace

bool is_aiperf(const Json& value) {
  if (is_aiperf_record(value)) return true;
  const Json* metrics = value.find("records");  // of 0.1
  if (metrics != nullptr) return has_metric_summary(*metrics);
  return has_metric_summary(value) &&
         (value.contains("was_cancelled") || value.contains("benchmark_duration"));
}

std::vector<MeasuredRun> read_aiperf(const MeasuredFiles& files) {
  std::vector<MeasuredRun> runs;
  const MeasuredFile* raw = nullptr;
  std::vector<JsonPlace> summaries;
  for (const MeasuredFile& file : files) {
    const MeasuredDocument& first = file.documents.front();
    if (!is_aiperf_record(first.json)) {
      summaries.push_back(first.place());
    } else if (!has_metrics(file)) {
      raw = &file;
    } else {
      runs.push_back(aiperf_run());
      read_aiperf_records(file, runs.back());
    }
  }
  if (runs.empty() && summaries.empty()) {
    raw->documents.front().place().fail(
        "has the raw answers alone; allowed: profile_export.jsonl beside it, or its folder");
  }
  if (runs.empty()) {
    for (const JsonPlace& summary : summaries) {
      MeasuredRun run = aiperf_run();
      read_metric_summary(value_if(summary, "records").value_or(summary), run);
      read_aiperf_settings(summary, run);
      run.lacks.push_back("it has no requests, which profile_export.jsonl beside it has");
      runs.push_back(std::move(run));
    }
  } else if (runs.size() == 1 && summaries.size() == 1) {
    read_aiperf_settings(summaries.front(), runs.front());
  }
  return runs;
}

}  // namespace metronome
