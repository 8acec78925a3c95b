// SPDX-License-Identifier: Apache-2.0
// The `workload` section of a scenario.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_choice.h"
#include "core/config/config_reader.h"
#include "core/model/image_grid.h"
#include "core/model/image_pixels.h"

namespace metronome {

// Trace: the arrival times in the trace file, the default of a trace without `arrivals`.
enum class ArrivalProcess : std::uint8_t {
  Poisson,
  Gamma,
  Constant,
  Burst,
  ClosedLoop,
  Steps,
  Trace
};
enum class LengthDistribution : std::uint8_t { Fixed, Uniform, Normal, Lognormal, Empirical };
enum class DatasetName : std::uint8_t { None, Random, Sonnet };
enum class SessionKind : std::uint8_t { None, Chat, Agent };
enum class PrefixKind : std::uint8_t { None, Groups, Tree };
enum class ImageKind : std::uint8_t { None, Tokens, Pixels, Folder };
enum class ImagePlace : std::uint8_t { Start, End, Spread };
enum class TraceFormat : std::uint8_t {
  Auto,
  Azure,
  Mooncake,
  Vidur,
  BurstGpt,
  ShareGpt,
  AiPerf,
  Bailian,
  ServeGen,
  Splitwise,
  GuideLlm,
  Weka,
  OpenTelemetry,
  Dynamo,
  Gateway,
  Custom,
  Plain
};
enum class TraceTimeUnit : std::uint8_t {
  Auto,
  Seconds,
  Milliseconds,
  Microseconds,
  Nanoseconds,
  Date
};
enum class TracePrompts : std::uint8_t { Auto, Whole, New };

// Upper limits of arrival times and lengths; error messages name them.
constexpr std::int64_t kMaxRequests = 100'000'000;
constexpr std::int64_t kMaxLengthTokens = 100'000'000;  // a prompt, a shared prefix, an output
constexpr std::size_t kMaxClasses = 1000;
constexpr std::int64_t kMaxArrivalSeconds = 1'000'000'000;

// Poisson, gamma and constant arrivals follow vLLM's serving benchmark. n gaps are drawn: gamma
// with shape `burstiness` and mean 1/rate. Poisson is burstiness 1, constant its limit at infinity.
// The gaps are added up and scaled so that the last of the n requests arrives at n/rate seconds. So
// the first request comes one gap after the start. A rate of .inf means all at 0.
struct ArrivalConfig {
  ArrivalProcess process = ArrivalProcess::Poisson;
  double rate = 1.0;                // requests/s: poisson, gamma, constant
  double burstiness = 1.0;          // gamma: vLLM's, 1 = Poisson, below 1 burstier
  std::int64_t burst_size = 0;      // burst: requests at once; 0 = all of them
  double burst_interval_s = 0;      // burst: between bursts
  std::int32_t concurrency = 1;     // closed_loop
  double think_time_ms = 0;         // closed_loop
  std::vector<std::int64_t> steps;  // steps: arrival step of each request, never decreasing
  SourceLocation where;             // for messages; not a key
};

struct LengthConfig {
  LengthDistribution distribution = LengthDistribution::Fixed;
  std::int64_t value = 512;               // fixed
  std::int64_t min = 1;                   // uniform (inclusive); clamp for normal and lognormal
  std::int64_t max = 1 << 20;             // uniform (inclusive); clamp for normal and lognormal
  double mean = 0;                        // normal; lognormal: with std, instead of median and p99
  double deviation = 0;                   // key `std`: standard deviation; both before clamping
  double median = 0;                      // lognormal
  double p99 = 0;                         // lognormal
  std::vector<std::int64_t> values = {};  // empirical
  std::vector<double> weights = {};       // empirical; empty = equal
};

struct PriorityConfig {
  std::vector<std::int64_t> values;  // empty = all 0
  std::vector<double> weights;       // empty = equal
};

// Prefixes that requests share, prepended to their drawn prompts. In a tree, level 1 is one node
// shared by every request, level 2 has `branching` nodes, level 3 `branching` squared. A request
// follows one path down, every child equally likely.
struct PrefixConfig {
  PrefixKind kind = PrefixKind::None;
  std::int64_t num_groups = 1;     // groups: requests of a group share one prefix
  std::int64_t prefix_tokens = 0;  // groups: length of the prefix; tree: tokens per level
  std::int64_t depth = 1;          // tree: levels
  std::int64_t branching = 2;      // tree: children per node
};

// Lengths as in the datasets of `vllm bench serve`: the keys mean what its options --random-* and
// --sonnet-* mean. Replaces the distributions of the lengths and the prefix.
//   random  prompt lengths are uniform in [floor(input_len (1 - r)), ceil(input_len (1 + r))],
//           r = range_ratio; output lengths alike; at least 1. prefix_len more tokens are shared.
//   sonnet  every prompt has input_len tokens, of which the first prefix_len are shared.
struct DatasetConfig {
  DatasetName name = DatasetName::None;
  // After reading these lengths are never absent, if there is a dataset.
  std::optional<std::int64_t> input_len;
  std::optional<std::int64_t> output_len;
  std::optional<std::int64_t> prefix_len;
  double range_ratio = 0;  // random
};

// Sessions: requests that continue earlier ones. The prompt of a request is the prompt of the one
// before, its output, and new tokens. It is sent some time after the one before has ended.
//   chat   a turn is one request: the user's new tokens have the distribution of prompt_tokens.
//   agent  a turn begins in the same way. Its first `tool_calls` requests end with a call of
//          call_tokens; the tool answers after tool_time_ms with tool_tokens, the new tokens of the
//          next request. The last request of a turn is the answer, of output_tokens.
// A session starts by `arrivals`; with a closed loop as soon as another one has ended.
struct SessionConfig {
  SessionKind kind = SessionKind::None;
  std::int64_t num_sessions = 0;
  LengthConfig turns = {.value = 1};
  LengthConfig think_time_ms = {.value = 1};  // from the end of a turn to the next one
  LengthConfig tool_calls = {.value = 1};
  LengthConfig call_tokens = {.value = 1};
  LengthConfig tool_tokens = {.value = 1};
  LengthConfig tool_time_ms = {.value = 1};
};

// Images in prompts. Each stands for a row of tokens between two marks, and is encoded before the
// first of them is computed.
//   tokens  the tokens of an image have the distribution `tokens`.
//   pixels  they follow from width and height, by the rule of core/model/image_grid.h.
//   folder  images are drawn from the PNG and JPEG files of a folder, each as likely; the tokens
//           follow from their sizes, in the same way.
struct ImageConfig {
  ImageKind kind = ImageKind::None;
  double share = 1;                             // of the requests have images
  LengthConfig count = {.value = 1};            // images of such a request
  LengthConfig tokens = {.value = 1024};        // tokens: without the marks
  LengthConfig width = {.value = 1024};         // pixels
  LengthConfig height = {.value = 1024};        // pixels
  std::string folder;                           // folder: a path as that of a trace
  ImagePlace place = ImagePlace::Start;         // before, behind or evenly among the drawn text
  std::int64_t num_distinct = 0;                // not folder: so many images; 0 = all differ
  std::int64_t pixels_per_token = 32;           // of a side: the model's patch and merge size
  std::int64_t min_pixels = kDefaultMinPixels;  // of a resized image
  std::int64_t max_pixels = kDefaultMaxPixels;

  SourceLocation where;  // of `folder`, for messages; not a key

  bool is_on() const { return kind != ImageKind::None; }
  // The most embeddings of one image.
  std::int64_t max_tokens() const { return max_pixels / (pixels_per_token * pixels_per_token); }
};

// Columns of a trace, or paths of its JSON fields ("data.input_tokens"). Empty: that of the format.
struct TraceColumns {
  std::string arrival, prompt, output, limit, hash_ids, tokens, session, parent, turn, delay,
      class_name, priority;

  bool any() const;
};

// Recorded requests. A trace has its own lengths and arrival times (shifted so that the first
// request arrives at 0). An `arrivals` section replaces its times by a synthetic process over its
// requests in order. core/workload/workload_trace.h describes the formats.
//
// `trace: FILE` is short for `trace: {file: FILE}`, and `trace: null` for `trace: {file: ""}`. The
// latter means no trace; a variant uses it to remove an inherited one. `session: NAME` and other
// columns may stand in `trace` itself.
struct TraceConfig {
  std::string file;  // absolute, or relative to the current folder; empty = synthetic
  TraceFormat format = TraceFormat::Auto;
  std::int64_t limit = 0;   // first N requests; 0 = all
  double rate_scale = 1.0;  // 2 = arrivals twice as dense
  bool jitter = false;      // mooncake: spread arrivals over their 3 s bucket
  // Log of the arrivals of the trace's requests at a real server, a path like `file`. Empty = the
  // trace's arrivals.
  std::string request_log;
  // Conversations (sharegpt): the tokenizer.json that measures them, a path like `file`, and the
  // output tokens of every request; nullopt = those of the recorded answer.
  std::string tokenizer;
  std::optional<double> characters_per_token;  // instead of a tokenizer: an estimate
  std::optional<std::int64_t> output_len;
  TraceColumns columns;
  TraceTimeUnit time_unit = TraceTimeUnit::Auto;  // auto: that of the format
  std::optional<std::int64_t> block_size;         // prompt tokens of a hash id; as above
  // Says if the prompt tokens of later turns count the whole prompt or the turn's own part; auto:
  // as the format does.
  TracePrompts prompts = TracePrompts::Auto;
  std::vector<std::string> class_names;  // of the workload's classes; not a key
  SourceLocation where;                  // of `file`, for messages; not a key
};

// Limits of a good request of a class; one that is not set is that of the scenario.
struct ClassSlo {
  std::optional<double> ttft_ms, tpot_ms, itl_ms, e2el_ms;
};

// Requests of one kind beside others, such as chat beside batch. All or no classes have a rate:
// then their requests come by themselves, else each request of the workload draws its class.
struct ClassConfig {
  std::string name;
  double share = 1;
  std::optional<double> rate;  // requests/s
  double burstiness = 1;
  LengthConfig prompt_tokens, output_tokens;  // not given: those of the workload
  bool has_prompt_tokens = false, has_output_tokens = false;
  std::vector<std::vector<std::int64_t>> lengths;  // pairs of both, drawn together; empty: none
  PrefixConfig prefix;                             // which no other class has
  std::optional<std::int64_t> priority;
  std::optional<std::int64_t> max_tokens;
  ClassSlo slo;
};

struct WorkloadConfig {
  std::int64_t num_requests = 0;  // synthetic workloads
  // The limit of output tokens that requests have; answers end there. nullopt: equals the answer.
  std::optional<std::int64_t> max_tokens;
  std::vector<ClassConfig> classes;  // empty: all requests are alike
  std::vector<Json> given_classes;   // as the scenario has them
  ArrivalConfig arrivals;
  LengthConfig prompt_tokens;
  LengthConfig output_tokens;
  PriorityConfig priority;
  PrefixConfig prefix;  // prepended to the drawn prompt
  ImageConfig images;   // behind the prefix
  DatasetConfig dataset;
  SessionConfig sessions;
  TraceConfig trace;

  // Whether the classes' own rates say when requests are sent.
  bool has_class_rates() const {
    return trace.file.empty() && !classes.empty() && classes.front().rate.has_value();
  }
};

// The names of formats; Auto is "auto". nullopt: no such format.
std::span<const std::string_view> trace_format_names();
std::optional<TraceFormat> trace_format_of(std::string_view name);

class Workload;

// Reads one `workload` mapping. `base_dir` resolves a relative trace path. A path from `--set` is
// relative to the current folder. Throws ConfigError for unknown keys, wrong types, missing
// required keys, and keys that the chosen process, distribution or trace does not use. `place_of`
// is the ConfigReader's. make_workload reports an unreadable trace.
WorkloadConfig read_workload_config(const ConfigNode& node, const std::string& path,
                                    const std::string& base_dir, PlaceOfKey place_of = nullptr);
void visit_fields(FieldVisitor& visitor, WorkloadConfig& config);

// The choices of arrival process, distributions, kind of prefix, and trace, each with the keys it
// does not use. Sections are relative to the `workload` mapping. A trace over drawn requests
// replaces their arrivals too, unless it comes with its own.
std::span<const Choice> workload_choices();

// The pictures of images.folder, by name. Throws ConfigError if there is none, or if one cannot be
// read.
std::vector<std::shared_ptr<const ImageFile>> read_pictures(const ImageConfig& images);

// Expands a short form of `trace` in a `workload` mapping, so that it merges like the long form.
void expand_trace_shorthand(ConfigNode& workload);
// Expands short forms of lengths: `prompt_tokens: 512` is {distribution: fixed, value: 512}.
void expand_length_shorthands(ConfigNode& workload);

// Sentences about allowed values that are rarely meant, such as a largest length below the median.
std::vector<std::string> workload_warnings(const WorkloadConfig& config);

// Draws or reads the workload. Equal config and seed give the same workload on every compiler.
// Throws ConfigError for an unreadable or malformed trace (file, line, error).
Workload make_workload(const WorkloadConfig& config, std::uint64_t seed);

}  // namespace metronome
