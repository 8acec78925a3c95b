#include "reports/file_writer.h"
#include "reports/json_text.h"
#include "reports/result_files.h"

namespace metronome {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 18;  // stays in the cache

void append_output(std::size_t request, const OutputLog::Output& output, JsonText& json) {
  json.begin_object();
  json.field("request", request);
  json.key("token_ids");
  json.begin_array();
  for (const TokenId token : output.token_ids) json.value(value(token));
  json.end_array();
  if (!output.logprobs.empty()) {
    json.key("logprobs");
    json.begin_array();
    for (const std::vector<TokenLogprob>& at_token : output.logprobs) {
      json.begin_array();
      for (const TokenLogprob& entry : at_token) {
        json.begin_array();
        json.value(value(entry.token));
        json.value(static_cast<double>(entry.logprob));
        json.end_array();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.end_object();
  json.end_line();
}

}  // namespace

void write_outputs_jsonl(const OutputLog& outputs, FileWriter& file) {
  JsonText json;
  for (std::size_t i = 0; i < outputs.outputs().size(); ++i) {
    const OutputLog::Output& output = outputs.outputs()[i];
    if (output.token_ids.empty()) continue;
    append_output(i, output, json);
    if (json.size() >= kFlushBytes) {
      file.write(json.view());
      json.clear();
    }
  }
  file.write(json.view());
}

}  // namespace metronome
