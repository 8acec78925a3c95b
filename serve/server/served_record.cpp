#include "serve/server/served_record.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/json_text.h"
#include "reports/files/result_files.h"
#include "reports/files/result_names.h"
#include "reports/files/variant_result.h"

namespace metronome {

ServedRecord::ServedRecord(const std::string& folder, const Backend& backend,
                           const PreparedVariant& variant, std::string date)
    : folder_(folder), backend_(backend), variant_(variant), date_(std::move(date)) {}

std::vector<EventSink*> ServedRecord::sinks(const LiveEngine& engine) {
  engine_ = &engine;
  std::vector<EventSink*> sinks = {&digest_, &recorder_, this};
  if (backend_.is_measured()) sinks.push_back(&outputs_);
  return sinks;
}

void ServedRecord::on_event(const Event& event, const Request& request) {
  if (served_.size() > index(event.request)) return;
  METRONOME_CHECK(served_.size() == index(event.request),
                  "requests come in the order of their ids");
  const std::span<const TokenId> prompt = *engine_->request(event.request).prompt;
  served_.push_back({request.arrival, {prompt.begin(), prompt.end()}});
}

void ServedRecord::write_trace(const RunRecord& record) {
  FileWriter file(folder_.path(kServedTraceFile));
  JsonText line;
  bool is_first = true;
  for (std::size_t i = 0; i < served_.size(); ++i) {
    const std::int32_t num_tokens = record.requests[i].num_output_tokens;
    if (num_tokens == 0) continue;  // refused, or its client disconnected: cannot be replayed
    line.clear();
    line.begin_object();
    if (is_first) line.field(kResultSchemaKey, kResultSchema);
    is_first = false;
    line.field("input_toks", static_cast<std::int64_t>(served_[i].prompt.size()));
    line.field("output_toks", num_tokens);
    line.field("arrival_time_ns", served_[i].arrival);
    line.key("input_tok_ids").begin_array();
    for (const TokenId id : served_[i].prompt) line.value(value(id));
    line.end_array();
    line.end_object();
    line.end_line();
    file.write(line.view());
  }
  file.close();
}

void ServedRecord::write() {
  VariantOutcome outcome;
  outcome.record = recorder_.finish();
  outcome.outputs = std::move(outputs_);
  RunInfo& info = outcome.result.info;
  info = run_info(backend_, variant_, date_);
  info.digest = digest_.hex();
  info.output_digest = outcome.outputs.digest();
  info.num_prompts = static_cast<std::int64_t>(outcome.record.requests.size());
  info.request_rate.reset();
  const TimeNs span = served_.empty() ? 0 : served_.back().arrival;
  if (span > 0) info.request_rate = static_cast<double>(served_.size()) / to_seconds(span);
  info.burstiness = 1;
  info.max_concurrency.reset();
  outcome.result.summary = summary_of(variant_, outcome.record);
  write_variant(outcome, variant_.scenario.results, folder_, {});
  const RunResult results[] = {outcome.result};
  folder_.write(kSummaryFile, summary_json(results));
  write_trace(outcome.record);
  folder_.commit();
}

}  // namespace metronome
