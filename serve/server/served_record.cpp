// SPDX-License-Identifier: Apache-2.0
#include "serve/server/served_record.h"

#include <algorithm>
#include <utility>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "models/image/image_file.h"
#include "reports/files/result_files.h"
#include "reports/files/result_names.h"
#include "reports/files/variant_result.h"
#include "system/file_writer.h"

namespace metronome {

ServedRecord::ServedRecord(const std::string& folder, const Backend& backend,
                           const PreparedVariant& variant, std::string date)
    : folder_(folder),
      journal_(folder_.target() + ".served.jsonl"),
      backend_(backend),
      variant_(variant),
      date_(std::move(date)) {}

std::vector<EventSink*> ServedRecord::sinks(const LiveEngine& engine) {
  engine_ = &engine;
  std::vector<EventSink*> sinks = {&digest_, &recorder_, this};
  if (backend_.is_measured()) sinks.push_back(&outputs_);
  return sinks;
}

void ServedRecord::on_event(const Event& event, const Request& request) {
  if (served_.size() <= index(event.request)) {
    METRONOME_CHECK(served_.size() == index(event.request),
                    "requests come in the order of their ids");
    served_.push_back({.arrival = request.arrival});
  }
  if (event.kind != EventKind::Ended) return;
  served_[index(event.request)].line = write_line(event, request);
  count_bytes();
}

void ServedRecord::on_step(const StepRecord&, std::span<const ScheduledChunk>,
                           const RequestTable&) {
  count_bytes();
}

void ServedRecord::count_bytes() {
  num_bytes_ = journal_.num_bytes() +
               static_cast<std::int64_t>(served_.size() * sizeof(Served) + recorder_.num_bytes() +
                                         outputs_.num_bytes());
}

ServedJournal::Line ServedRecord::write_line(const Event& event, const Request& request) {
  // Refused, or its client disconnected before a token: cannot be replayed.
  if (request.num_output_tokens() == 0) return journal_.append({});
  const std::vector<TokenId>& prompt = *engine_->request(event.request).prompt;
  line_.clear();
  line_.begin_object();
  line_.field(kResultSchemaKey, kResultSchema);
  line_.field("input_toks", static_cast<std::int64_t>(prompt.size()));
  line_.field("output_toks", request.num_output_tokens());
  line_.field("arrival_time_ns", request.arrival);
  line_.field("ignore_eos", request.ignores_eos);
  line_.key("input_tok_ids").begin_array();
  for (const TokenId id : prompt) line_.value(value(id));
  line_.end_array();
  write_images(engine_->request(event.request));
  line_.end_object();
  line_.end_line();
  return journal_.append(line_.view());
}

// The file of an image is in the first line that has it.
void ServedRecord::write_images(const LiveRequest& request) {
  if (!request.images || request.images->empty()) return;
  line_.key("images").begin_array();
  for (const PromptImage& image : *request.images) {
    line_.begin_object();
    line_.field("first_token", std::int64_t{image.first_token});
    line_.field("rows", image.grid.n_token_rows(engine_->model().vision));
    line_.field("columns", image.grid.n_token_columns(engine_->model().vision));
    line_.field("content", static_cast<std::int64_t>(image.content));
    if (image.file && recorded_images_.insert(image.content).second) {
      const std::string& bytes = image.file->bytes;
      line_.field("url", data_url(media_type(bytes), bytes));
    }
    line_.end_object();
  }
  line_.end_array();
}

void ServedRecord::write_trace() {
  FileWriter file(folder_.path(kServedTraceFile));
  for (const Served& served : served_) {
    if (served.line.size > 0) file.write(journal_.read(served.line));
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
  write_variant(outcome, variant_, folder_);
  const RunResult results[] = {outcome.result};
  folder_.write(kSummaryFile, summary_json(results));
  write_trace();
  folder_.commit();
  journal_.remove();
}

}  // namespace metronome
