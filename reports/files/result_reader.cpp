// SPDX-License-Identifier: Apache-2.0
#include "reports/files/result_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "core/engine/engine_config.h"
#include "core/metrics/client_record.h"
#include "core/scenario/scenario.h"
#include "reports/files/requests_reader.h"
#include "reports/files/result_bands.h"
#include "reports/files/result_names.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReadable = "a readable file";

std::optional<double> number_or_none(const JsonPlace& place) {
  const bool is_nan = place.json().is_number() && std::isnan(place.json().get<double>());
  if (place.is_null() || is_nan) return std::nullopt;  // Python writes NaN for what it lacks
  return place.number();
}

void read_limits(const JsonPlace& place, SloConfig& slo) {
  slo.ttft_ms = number_or_none(place.at("ttft_ms"));
  slo.tpot_ms = number_or_none(place.at("tpot_ms"));
  slo.itl_ms = number_or_none(place.at("itl_ms"));
  slo.e2el_ms = number_or_none(place.at("e2el_ms"));
}

RunInfo read_info(const JsonPlace& result) {
  if (result.at(std::string(kResultSchemaKey)).integer(0, INT32_MAX) != kResultSchema) {
    result.at(std::string(kResultSchemaKey))
        .fail(fmt::format("is the schema of another version; allowed: {}", kResultSchema));
  }
  RunInfo info;
  info.label = result.at("label").text();
  if (result.has("scenario")) info.scenario = result.at("scenario").text_or_empty();
  if (result.has("description")) info.description = result.at("description").text_or_empty();
  info.backend = result.at("backend").text();
  info.date = result.at("date").text();
  info.model = result.at("model_id").text();
  info.hardware = result.at("hardware").text();
  info.weights = result.at("weights").text_or_empty();
  info.policy = result.at("policy").text();
  info.seed = static_cast<std::uint64_t>(result.at("seed").integer(0, kNever));
  info.digest = result.at("digest").text_or_empty();
  info.keeps_steps = !result.has("steps_kept");
  info.output_digest = result.at("output_digest").text_or_empty();
  info.num_prompts = result.at("num_prompts").integer(0, kNever);
  const JsonPlace rate = result.at("request_rate");
  if (rate.json() != "inf") info.request_rate = rate.number();
  const JsonPlace burstiness = result.at("burstiness");
  info.burstiness =
      burstiness.json() == "inf" ? std::numeric_limits<double>::infinity() : burstiness.number();
  const JsonPlace concurrency = result.at("max_concurrency");
  if (!concurrency.is_null()) info.max_concurrency = concurrency.integer(0, kNever);
  info.tensor_parallel_size = result.at("tensor_parallel_size").count();
  if (result.has("price_per_gpu_hour")) {
    info.price_per_gpu_hour = number_or_none(result.at("price_per_gpu_hour"));
  }
  const JsonPlace blocks = result.at("num_kv_blocks");
  if (!blocks.is_null()) info.num_blocks = blocks.integer(0, kMaxBlocks);
  info.is_calibrated = result.has("steps_outside_calibration");
  const JsonPlace slo = result.at("slo");
  read_limits(slo, info.slo);
  for (const RunGoalKey& goal : run_goal_keys()) {
    const std::string key(goal.key);
    if (slo.has(key)) info.slo.*goal.member = number_or_none(slo.at(key));
  }
  if (slo.has("classes")) {
    slo.at("classes").for_each([&info](const JsonPlace& given) {
      SloConfig& own = info.slo.by_class.emplace_back();
      own.class_name = given.at("name").text();
      read_limits(given, own);
    });
  }
  if (const JsonPlace config = result.at("config"); !config.is_null()) {
    info.config = config.json();
  }
  if (result.has("config_reasons")) info.config_reasons = result.at("config_reasons").json();
  if (result.has("endpoint_type")) info.endpoint_type = result.at("endpoint_type").text();
  if (result.has("server")) info.server = result.at("server").json();
  if (result.has("client")) info.client = result.at("client").json();
  info.accuracy = read_accuracy(result);
  return info;
}

// The counts of drafts, which the record's own files lack.
DraftCounts read_drafts(const JsonPlace& result) {
  DraftCounts drafts;
  if (!result.has("spec_decode_num_drafts")) return drafts;
  drafts.num_drafts = result.at("spec_decode_num_drafts").integer(1, kNever / (kMaxDrafts + 1));
  // Position i is reached by no more drafts than position i - 1.
  const auto read = [&](const char* key, std::vector<std::int64_t>& counts) {
    result.at(key).for_each([&](const JsonPlace& count) {
      counts.push_back(count.integer(0, counts.empty() ? drafts.num_drafts : counts.back()));
    });
  };
  read("spec_decode_drafted_per_position", drafts.drafted);
  read("spec_decode_accepted_per_position", drafts.accepted);
  const std::size_t num_positions = drafts.drafted.size();
  if (num_positions == 0 || num_positions > static_cast<std::size_t>(kMaxDrafts) ||
      drafts.accepted.size() != num_positions) {
    result.at("spec_decode_accepted_per_position")
        .fail(fmt::format("has not as many entries as spec_decode_drafted_per_position, 1 to {}",
                          kMaxDrafts));
  }
  return drafts;
}

FileSizes read_files(const JsonPlace& result) {
  if (!result.has("files")) return std::nullopt;
  std::map<std::string, std::int64_t> files;
  const JsonPlace sizes = result.at("files");
  for (const auto& [name, ignored] : sizes.json().items()) {
    files[name] = sizes.at(name).integer(0, kNever - 1);
  }
  return files;
}

FigureValue read_figure(const JsonPlace& place) {
  const Json& json = place.json();
  if (json.is_array()) {
    FigureValue figure = {.kind = FigureValue::Kind::List, .has_counts = true};
    place.for_each([&figure](const JsonPlace& entry) {
      figure.list.push_back(entry.number());
      figure.has_counts = figure.has_counts && entry.json().is_number_integer();
    });
    return figure;
  }
  if (json.is_number_integer()) {
    return {.kind = FigureValue::Kind::Count, .count = place.integer(-kNever, kNever)};
  }
  const std::optional<double> number = number_or_none(place);
  if (!number) return {.kind = FigureValue::Kind::Null};
  return {.kind = FigureValue::Kind::Number, .number = *number};
}

StallCause read_cause(const JsonPlace& place) {
  const auto found = std::find(std::begin(kStallCauses), std::end(kStallCauses), place.text());
  if (found == std::end(kStallCauses)) {
    place.fail("is no cause of a stall; allowed: " + join_names(kStallCauses));
  }
  return static_cast<StallCause>(found - std::begin(kStallCauses));
}

std::int32_t count_or(const JsonPlace& place, std::int32_t otherwise) {
  return place.is_null() ? otherwise : place.count();
}

// A duration that a file has in milliseconds.
TimeNs read_ms(const JsonPlace& place) {
  return std::llround(place.number(0, kMaxSeconds * 1e3) * static_cast<double>(kNsPerMs));
}

Stall read_stall(const JsonPlace& place) {
  Stall stall;
  if (place.is_null()) return stall;
  stall.gap_ns = read_ms(place.at("gap_ms"));
  stall.request = static_cast<RequestId>(place.at("request").count());
  stall.began_at = place.at("began_ns").time();
  stall.step_before = count_or(place.at("step_before"), stall.step_before);
  stall.step_after = count_or(place.at("step_after"), stall.step_after);
  stall.cause = read_cause(place.at("cause"));
  if (const JsonPlace largest = place.at("largest_prefill"); !largest.is_null()) {
    stall.prefill_request = static_cast<RequestId>(largest.at("request").count());
    stall.prefill_position = largest.at("first_position").count();
    stall.prefill_tokens = largest.at("num_tokens").count();
    stall.prefill_step = largest.at("step").count();
  }
  const JsonPlace tokens = place.at("prefill_tokens");
  if (!tokens.is_null()) stall.num_prefill_tokens = tokens.integer(0, kNever - 1);
  if (place.has("encode_ms")) stall.encode_ns = read_ms(place.at("encode_ms"));
  return stall;
}

// The part of a run that result.json alone has.
struct ResultHead {
  RunInfo info;
  FigureBands bands;
  FileSizes files;
  DraftCounts drafts;
  std::int64_t num_completed = 0;  // requests
};

// A folder's result.json.
struct ResultFile {
  std::string path;
  Json json;
  JsonPlace place;

  explicit ResultFile(const std::string& folder)
      : path(folder + "/" + std::string(kResultFile)),
        json(read_json_file(path, "a folder that metronome wrote")),
        place(path, json) {}
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
};

ResultHead read_head(const std::string& folder) {
  const ResultFile file(folder);
  const JsonPlace& result = file.place;
  return {read_info(result), read_bands(result), read_files(result), read_drafts(result),
          result.at("completed").integer(0, kNever - 1)};
}

// The step belongs to an engine of a fleet, whose steps follow each other.
void read_replica(const JsonPlace& line, RunRecord& record) {
  const JsonPlace place = line.at("replica");
  const auto replica = static_cast<std::size_t>(place.integer(0, INT32_MAX));
  if (replica + 1 < record.replicas.size()) {
    place.fail(fmt::format("is before {}, that of the last step; allowed: steps by replica",
                           record.replicas.size() - 1));
  }
  while (record.replicas.size() <= replica) record.replicas.push_back({record.steps.size()});
  ++record.replicas.back().num_steps;
}

StepEntry read_step(const JsonPlace& line, RunRecord& record) {
  StepEntry step;
  if (line.has("replica")) read_replica(line, record);
  const bool is_first = !record.replicas.empty() && record.replicas.back().num_steps == 1;
  const auto position = static_cast<std::int64_t>(record.steps.size());
  if (line.at("step").integer(0, kNever - 1) != position) {
    line.at("step").fail(
        fmt::format("is not {}, the next step; allowed: every step, in order", position));
  }
  step.planned_at = line.at("planned_ns").time();
  step.started_at = line.at("started_ns").integer(step.planned_at, kNever - 1);
  step.finished_at = line.at("finished_ns").integer(step.started_at, kNever - 1);
  if (!is_first && !record.steps.empty() && step.finished_at < record.steps.back().finished_at) {
    line.at("finished_ns").fail("is before the end of the previous step");
  }
  step.num_prefill_tokens = line.at("prefill_tokens").count();
  step.num_decode_tokens = line.at("decode_tokens").count();
  step.num_emitted = line.at("emitted").count();
  step.num_running = line.at("running").count();
  step.num_waiting = line.at("waiting").count();
  step.num_used_blocks = line.at("used_blocks").count();
  step.num_preempted = static_cast<std::uint32_t>(line.at("preempted").count()) & 0x3fffffffu;
  step.failed = line.at("failed").truth() ? 1 : 0;
  step.extrapolated = line.has("extrapolated") && line.at("extrapolated").truth() ? 1 : 0;
  step.decode_only_ns = line.at("decode_only_ns").time_or_none();
  if (line.has("draft_tokens")) {
    step.draft_ns = line.at("draft_ns").time();
    step.num_draft_tokens = line.at("draft_tokens").count();
    step.num_accepted_tokens = line.at("accepted_tokens").count();
  }
  if (line.has("encode_ns")) {
    step.encode_ns = line.at("encode_ns").time();
    record.has_encodings = true;
  }
  step.first_prefill_chunk = static_cast<std::int32_t>(record.prefills.size());
  std::int64_t num_prefill_tokens = 0;
  line.at("prefills").for_each([&](const JsonPlace& entry) {
    const std::vector<std::int32_t> chunk = entry.counts(3);
    record.prefills.push_back({static_cast<RequestId>(chunk[0]), chunk[1], chunk[2]});
    ++step.num_prefill_chunks;
    num_prefill_tokens += chunk[2];
  });
  if (num_prefill_tokens != step.num_prefill_tokens) {
    line.at("prefills")
        .fail(fmt::format("has {} tokens, but prefill_tokens is {}", num_prefill_tokens,
                          step.num_prefill_tokens));
  }
  return step;
}

// The tokens of each step of a request's runs. Returns their sum.
std::int64_t read_step_tokens(const JsonPlace& place, std::int64_t num_steps, RunRecord& record) {
  std::int64_t num_tokens = 0;
  record.first_count.push_back(record.token_counts.size());
  place.for_each([&](const JsonPlace& count) {
    num_tokens += count.integer(1, kMaxDrafts + 1);
    record.token_counts.push_back(static_cast<std::uint8_t>(count.integer(1, kMaxDrafts + 1)));
  });
  const std::size_t num_counts = record.token_counts.size() - record.first_count.back();
  if (num_counts != static_cast<std::size_t>(num_steps)) {
    place.fail(fmt::format("has {} entries; allowed: one for each of the {} steps of runs",
                           num_counts, num_steps));
  }
  return num_tokens;
}

// The token runs of one request: existing steps, in order.
void read_runs(const JsonPlace& line, RunRecord& record, RequestRecord& request) {
  request.first_run = static_cast<std::uint32_t>(record.runs.size());
  std::int64_t last_step = 0;
  std::int64_t num_tokens = 0;
  const JsonPlace runs = line.at("runs");
  runs.for_each([&](const JsonPlace& entry) {
    const std::vector<std::int32_t> run = entry.counts(2);
    const std::int64_t end = std::int64_t{run[0]} + run[1];
    if (run[1] < 1 || run[0] < last_step || end > static_cast<std::int64_t>(record.steps.size())) {
      entry.fail("is not after the previous run, or not within the lines of steps.jsonl");
    }
    last_step = end - 1;
    num_tokens += run[1];
    record.runs.push_back({run[0], run[1]});
  });
  if (line.has("step_tokens")) {
    num_tokens = read_step_tokens(line.at("step_tokens"), num_tokens, record);
  }
  if (num_tokens != request.num_output_tokens) {
    runs.fail(fmt::format("has {} tokens, but output_tokens is {}", num_tokens,
                          request.num_output_tokens));
  }
  if (num_tokens == 0) return check_token_times(line, request, kNoTime, kNoTime);
  const auto finished_at = [&record](std::int32_t step) {
    return record.steps.finished_at(static_cast<std::size_t>(step));
  };
  check_token_times(line, request, finished_at(record.runs[request.first_run].first_step),
                    finished_at(record.runs.back().last_step()));
}

void read_replica_of(const JsonPlace& place, RunRecord& record) {
  const std::int64_t replica = place.json().is_null() ? -1 : place.integer(0, INT32_MAX);
  record.replica_of.push_back(static_cast<std::int32_t>(replica));
  while (std::ssize(record.replicas) <= replica) record.replicas.push_back({record.steps.size()});
}

// The chunks of both files belong together.
void check_chunks(const RunRecord& record, const std::string& steps, const std::string& requests) {
  std::vector<std::int64_t> num_chunks(record.requests.size());
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const StepEntry& step = record.steps[s];
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const auto chunk = static_cast<std::size_t>(step.first_prefill_chunk + c);
      const std::size_t request = index(record.prefills[chunk].request);
      if (request < record.requests.size()) {
        ++num_chunks[request];
        continue;
      }
      throw ConfigError(fmt::format("{}:{}: prefills: has a request that is not in requests.jsonl",
                                    steps, s + 1));
    }
  }
  for (std::size_t i = 0; i < num_chunks.size(); ++i) {
    if (num_chunks[i] == record.requests[i].num_prefill_chunks) continue;
    throw ConfigError(
        fmt::format("{}:{}: prefill_chunks: is {}, but {} has {} chunks of the request", requests,
                    i + 1, record.requests[i].num_prefill_chunks, kStepsFile, num_chunks[i]));
  }
}

// Fails with the missing files that the run should have written.
void require_record(const std::string& steps, const std::string& requests) {
  std::string missing;
  for (const std::string& path : {steps, requests}) {
    if (!path_exists(path)) missing += (missing.empty() ? "" : ", ") + path;
  }
  if (missing.empty()) return;
  throw ConfigError(missing +
                    ": missing; allowed: a run with --set results.steps=true --set "
                    "results.requests=true (a sweep does not write them by default)");
}

// For a run measured by a client. `class_names` are those of its limits, if there are any.
RunRecord read_client_record(const std::string& folder, std::vector<std::string> class_names) {
  std::vector<WatchedRequest> requests;
  const std::string path = folder + "/" + std::string(kRequestsFile);
  for_each_json_line(path, kReadable, [&](const JsonPlace& line, std::size_t i) {
    WatchedRequest& watched = requests.emplace_back();
    watched.request = read_request(line, i, RequestsSource::Client);
    watched.request.class_number = read_class(line, class_names);
    watched.view = {line.at("due_ns").time(), line.at("output_tokens").count()};
    line.at("token_ns").for_each([&](const JsonPlace& time) {
      const TimeNs earliest =
          watched.token_times.empty() ? watched.request.arrival : watched.token_times.back();
      watched.token_times.push_back(time.integer(earliest, kNever - 1));
    });
    const bool has_token = !watched.token_times.empty();
    check_token_times(line, watched.request, has_token ? watched.token_times.front() : kNoTime,
                      has_token ? watched.token_times.back() : kNoTime);
  });
  if (requests.empty()) throw ConfigError(path + ": is empty; allowed: one line per request");
  RunRecord record = make_client_record(requests);
  record.class_names = std::move(class_names);
  return record;
}

RunRecord read_record(const std::string& folder, std::vector<std::string> class_names,
                      DraftCounts drafts) {
  RunRecord record;
  record.class_names = std::move(class_names);
  const std::string steps = folder + "/" + std::string(kStepsFile);
  const std::string requests = folder + "/" + std::string(kRequestsFile);
  require_record(steps, requests);
  record.drafts = std::move(drafts);
  for_each_json_line(steps, kReadable, [&](const JsonPlace& line, std::size_t) {
    record.steps.push_back(read_step(line, record));
  });
  for_each_json_line(requests, kReadable, [&](const JsonPlace& line, std::size_t i) {
    RequestRecord& request =
        record.requests.emplace_back(read_request(line, i, RequestsSource::Engine));
    request.class_number = read_class(line, record.class_names);
    read_runs(line, record, request);
    if (line.has("replica")) read_replica_of(line.at("replica"), record);
    if (!record.first_count.empty() && record.first_count.size() != record.requests.size()) {
      line.fail("has no step_tokens, which other lines have");
    }
    if (line.has("handed_over_ns")) {
      const JsonPlace time = line.at("handed_over_ns");
      record.handed_over.push_back(time.integer(request.arrival, kNever - 1));
    }
    if (!record.handed_over.empty() && record.handed_over.size() != record.requests.size()) {
      line.fail("has no handed_over_ns, which other lines have");
    }
    read_preemptions(line, i, record);
  });
  if (!record.replicas.empty() && record.replica_of.size() != record.requests.size()) {
    throw ConfigError(requests + ": some lines lack the replica, which steps.jsonl has");
  }
  if (record.drafts.num_drafts > 0 && record.token_counts.empty() && !record.runs.empty()) {
    throw ConfigError(requests +
                      ": has no step_tokens; allowed: the file of the run with drafts that "
                      "result.json tells of");
  }
  check_chunks(record, steps, requests);
  std::sort(record.preemptions.begin(), record.preemptions.end(), [](const auto& a, const auto& b) {
    return std::tie(a.time, a.request) < std::tie(b.time, b.request);
  });
  derive_token_facts(record);
  return record;
}

bool has_result_file(const fs::path& folder) {
  return path_exists((folder / kResultFile).string());
}

// The names of the folders in `path` that have a result.
std::vector<std::string> folders_with_results(const std::string& path, std::error_code& error) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (has_result_file(entry.path())) names.push_back(entry.path().filename().string());
  }
  return names;
}

// Limits belong to classes by number.
std::vector<std::string> class_names(const SloConfig& slo) {
  std::vector<std::string> names;
  for (const SloConfig& own : slo.by_class) names.push_back(own.class_name);
  return names;
}

}  // namespace

bool has_results(const std::string& path) {
  std::error_code error;
  return has_result_file(path) || !folders_with_results(path, error).empty();
}

std::vector<std::string> result_folders(const std::string& path) {
  constexpr const char* kAllowed = "a folder that `metronome run` or `metronome sweep` wrote";
  check_folder(path, kAllowed);
  if (has_result_file(path)) return {path};
  std::error_code error;
  std::vector<std::string> names = folders_with_results(path, error);
  if (error) {
    throw ConfigError(path + ": cannot be read (" + error.message() + "); allowed: " + kAllowed);
  }
  if (names.empty()) throw ConfigError(path + ": contains no result; allowed: " + kAllowed);
  std::sort(names.begin(), names.end());
  const std::string summary = (fs::path(path) / kSummaryFile).string();
  if (path_exists(summary)) {
    const Json runs = read_json_file(summary, kReadable);
    const bool is_sweep = runs.is_array() && !runs.empty() && runs.front().contains("point");
    const char* const key = is_sweep ? "point" : "label";
    std::map<std::string, std::size_t> ranks;  // rank of each one's first row
    for (const Json& run : runs) {
      const Json* name = run.find(key);
      if (name != nullptr && name->is_string()) ranks.emplace(name->string(), ranks.size());
    }
    const auto rank = [&ranks](const std::string& name) {
      const auto found = ranks.find(name);
      return found == ranks.end() ? ranks.size() : found->second;
    };
    if (is_sweep) {
      std::erase_if(names, [&](const std::string& name) { return rank(name) == ranks.size(); });
    }
    std::stable_sort(names.begin(), names.end(),
                     [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  }
  std::vector<std::string> folders;
  for (const std::string& name : names) folders.push_back((fs::path(path) / name).string());
  return folders;
}

bool has_record(const std::string& folder) {
  const auto has = [&folder](std::string_view file) {
    return path_exists((fs::path(folder) / file).string());
  };
  if (!has(kRequestsFile)) return false;
  return has(kStepsFile) || read_result_info(folder).backend == kHttpBackend;
}

RunInfo read_result_info(const std::string& folder) { return read_head(folder).info; }

FigureValues read_figures(const JsonPlace& object) {
  FigureValues values;
  const auto figures = all_figures();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (object.has(figures[i].key)) values.set(i, read_figure(object.at(figures[i].key)));
  }
  return values;
}

ResultContent read_result_content(const std::string& folder) {
  const ResultFile file(folder);
  ResultContent content;
  content.info = read_info(file.place);
  content.figures = read_figures(file.place);
  content.bands = read_bands(file.place);
  content.files = read_files(file.place);
  if (file.place.has("longest_stall")) {
    content.longest_stall = read_stall(file.place.at("longest_stall"));
  }
  if (file.place.has("classes")) content.classes = file.place.at("classes").json();
  if (file.place.has("priorities")) content.priorities = file.place.at("priorities").json();
  if (file.place.has("replicas")) content.replicas = file.place.at("replicas").json();
  if (file.place.has("fleet_events")) content.fleet_events = file.place.at("fleet_events").json();
  return content;
}

StoredRun read_result(const std::string& folder) {
  StoredRun run;
  run.folder = folder;
  ResultHead head = read_head(folder);
  run.result.info = std::move(head.info);
  run.result.bands = std::move(head.bands);
  run.result.files = std::move(head.files);
  if (!run.result.info.keeps_steps) {
    throw ConfigError(folder + "/" + std::string(kResultFile) +
                      ": the run kept no steps of all replicas; allowed: the folder of a replica "
                      "of fleet.steps_of, or a run with fleet.keep_steps: true");
  }
  const bool is_watched = run.result.info.backend == kHttpBackend;
  std::vector<std::string> names = class_names(run.result.info.slo);
  run.record = is_watched ? read_client_record(folder, std::move(names))
                          : read_record(folder, std::move(names), std::move(head.drafts));
  run.result.summary = summarize(run.record, {run.result.info.slo, run.result.info.num_blocks});
  if (run.result.summary.completed != head.num_completed) {
    throw ConfigError(fmt::format("{}/{}: has {} completed requests; allowed: {}, as {} says",
                                  folder, kRequestsFile, run.result.summary.completed,
                                  head.num_completed, kResultFile));
  }
  return run;
}

void require_steps(const StoredRun& run) {
  if (run.record.has_steps()) return;
  throw ConfigError(run.folder +
                    ": was recorded by a client and has no steps; allowed: a folder that "
                    "`metronome run` or `metronome sweep` wrote");
}

Scenario scenario_of(const StoredRun& run) {
  return scenario_of_config(run, run.result.info.config, {});
}

Scenario scenario_of_config(const StoredRun& run, const Json& config,
                            std::span<const Setting> settings) {
  const std::string where = run.folder + "/" + std::string(kResultFile) + ": config";
  if (config.is_null()) {
    throw ConfigError(where + ": is null; allowed: a run of a scenario");
  }
  Scenario scenario = resolved_scenario(config, where, settings);
  scenario.name = run.result.info.label;
  return scenario;
}

}  // namespace metronome
