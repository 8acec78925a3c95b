// SPDX-License-Identifier: Apache-2.0
// Keys that choose: what a value has no use for is refused beside it, dropped when inherited, and
// left out of the resolved config.
#include <filesystem>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config_choice.h"
#include "core/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

namespace fs = std::filesystem;
using testing::ScratchFolder;

// ---- the mechanism, on a table of its own ----

// Coffee has no use for leaves. Tea has none for what makes coffee; cream goes with coffee's beans.
Unused unused_by_drink(std::string_view drink) {
  if (drink == "coffee") return {{{"leaves", "no leaves in coffee"}}, {}};
  if (drink != "tea") return {};
  return {{{"filter.size", "no filter in tea"}, {"beans", "no beans in tea"}}, {"cream"}};
}

const Choice kDrinks[] = {{"cup", "drink.name", unused_by_drink}};

ConfigNode tree(const std::string& yaml) { return parse_config_text(yaml, "f.yaml"); }

std::string keys_of(const ConfigNode& node) {
  std::string keys;
  for (const ConfigNode::Entry& entry : node.entries) {
    keys += (keys.empty() ? "" : " ") + entry.key;
    if (!entry.value.entries.empty()) keys += "(" + keys_of(entry.value) + ")";
  }
  return keys;
}

TEST_CASE("a choice names the keys it has no use for", "[core][config]") {
  CHECK(unused_keys(tree("cup: {drink: {name: tea}}"), kDrinks) ==
        std::vector<std::string>{"cup.filter.size", "cup.beans"});
  for (const char* none : {"cup: {drink: {name: milk}}", "cup: {drink: {name: }}", "cup: {}",
                           "cup: {drink: tea}", "cup: {drink: {name: [tea]}}", "mug: 1"}) {
    INFO(none);
    CHECK(unused_keys(tree(none), kDrinks).empty());
  }
}

TEST_CASE("a key beside a choice that has no use for it is refused", "[core][config]") {
  const ConfigNode defaults = tree("cup: {leaves: true, beans: false}");
  const auto refuse = [&](const std::string& given, const std::string& path) -> std::string {
    const ConfigNode node = tree(given);
    try {
      refuse_unused_keys(node, node, kDrinks, defaults, path);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refuse("cup:\n  drink: {name: tea}\n  filter:\n    size: 4\n", "table") ==
        "f.yaml:4: table.cup.filter.size: no filter in tea");
  CHECK(refuse("cup:\n  drink: {name: coffee}\n  leaves: [a]\n", "") ==
        "f.yaml:3: cup.leaves: no leaves in coffee");
  CHECK(refuse("cup: {drink: {name: tea}, leaves: 1, cream: 1, filter: {}}", "").empty());
  CHECK(refuse("cup: {drink: {name: tea}, beans: false, filter: {size: }}", "").empty());
  CHECK_FALSE(refuse("cup: {drink: {name: tea}, beans: 'false'}", "").empty());
  CHECK(refuse("cup: {drink: {name: coffee}, leaves: }", "").empty());
  CHECK(refuse("cup: {drink: {name: coffee}, leaves: false}", "") ==
        "f.yaml:1: cup.leaves: no leaves in coffee");
  CHECK(refuse("cup: {beans: 1, leaves: 1}", "").empty());
}

TEST_CASE("a choice drops what it inherits and has no use for", "[core][config]") {
  const auto dropped = [](const std::string& base, const std::string& over) {
    ConfigNode inherited = tree(base);
    drop_inherited_keys(inherited, tree(over), kDrinks);
    return keys_of(inherited);
  };
  const std::string tea = "cup: {drink: {name: tea}}";
  CHECK(dropped("cup: {filter: {size: 4, kind: a}, beans: 1, cream: 2, leaves: 3}", tea) ==
        "cup(filter(kind) leaves)");
  CHECK(dropped("cup: {filter: {size: 4}, cream: 2}", tea) == "cup(filter)");
  CHECK(dropped("cup: {cream: 2, leaves: 3}", tea) == "cup(cream leaves)");  // nobody's cream
  CHECK(dropped("cup: {beans: 1, leaves: 3}", "cup: {cream: 1}") == "cup(beans leaves)");
  CHECK(dropped("beans: 1", tea) == "beans");
}

TEST_CASE("an assigned choice drops what the file gave, not what was assigned", "[core][config]") {
  const auto dropped = [](const std::string& file, const std::vector<std::string>& assignments) {
    ConfigNode root = tree(file);
    for (const std::string& assignment : assignments) apply_assignment(root, assignment);
    drop_superseded_keys(root, kDrinks);
    return keys_of(root);
  };
  const std::string file = "cup: {beans: {dark: 1, light: 2}, cream: {fat: 3}}";
  CHECK(dropped(file, {}) == "cup(beans(dark light) cream(fat))");
  CHECK(dropped(file, {"cup.drink.name=tea"}) == "cup(drink(name))");
  CHECK(dropped(file, {"cup.drink.name=tea", "cup.cream.sour=1"}) ==
        "cup(cream(sour) drink(name))");
  CHECK(dropped("cup: {beans: {dark: 1}}", {"cup.drink.name=tea", "cup.beans.green=1"}) ==
        "cup(beans(green) drink(name))");
  CHECK(dropped("cup: {drink: {name: tea}, beans: 1}", {"cup.leaves=1"}) ==
        "cup(drink(name) beans leaves)");
}

// ---- scenarios ----

const std::string kHead = "model: llama-3.2-3b\nhardware: h200\n";
const std::string kDrawn =
    "num_requests: 4, arrivals: {process: gamma, rate: 2, burstiness: 0.5}, "
    "prompt_tokens: {distribution: lognormal, median: 100, p99: 900, max: 1000}, "
    "output_tokens: {distribution: fixed, value: 10}, "
    "prefix: {kind: groups, num_groups: 2, prefix_tokens: 5}";

std::string with_workload(const std::string& workload) {
  return kHead + "workload: {" + workload + "}\n";
}

ScenarioFile load(const std::string& text, const std::vector<std::string>& assignments = {}) {
  return parse_scenario(text, "case.yaml", assignments);
}

std::string error_of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  const ScratchFolder folder;
  const std::string path = folder.write("case.yaml", text);
  try {
    load_scenario(path, assignments, std::nullopt);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    return message.starts_with(folder.path()) ? message.substr(folder.path().size() + 1) : message;
  }
  return "";
}

std::string resolved(const std::string& text, const std::vector<std::string>& assignments = {}) {
  return load(text, assignments).variants[0].to_json();
}

Json workload_of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  return Json::parse(resolved(text, assignments))["workload"];
}

void check_round_trip(const Scenario& scenario) {
  const std::string shown = scenario.to_json();
  INFO(shown);
  CHECK(resolved(shown + "\n") == shown);
}

// Alternatives of one key, each with other keys than the one before.
const std::vector<std::string> kArrivals = {
    "{process: poisson, rate: 2}",
    "{process: poisson, rate: .inf}",
    "{process: gamma, rate: 3, burstiness: 0.25}",
    "{process: gamma, rate: 3, burstiness: .inf}",
    "{process: constant, rate: 0.125}",
    "{process: burst}",
    "{process: burst, burst_size: 3, burst_interval_s: 0.5}",
    "{process: closed_loop, concurrency: 9, think_time_ms: 4}",
    "{process: steps, steps: [0, 1, 1, 7]}"};
const std::vector<std::string> kLengths = {
    "{distribution: fixed, value: 7}",
    "{distribution: uniform, min: 3, max: 9}",
    "{distribution: lognormal, median: 10, p99: 90.5}",
    "{distribution: lognormal, median: 10, p99: 90.5, min: 2, max: 80}",
    "{distribution: empirical, values: [3, 4]}",
    "{distribution: empirical, values: [3, 4], weights: [1, 0.5]}"};
const std::vector<std::string> kPrefixes = {
    "{kind: none}", "{kind: groups, num_groups: 3, prefix_tokens: 5}",
    "{kind: tree, prefix_tokens: 7, depth: 3, branching: 5}"};
const std::vector<std::string> kTraces = {
    "trace: a.csv", "trace: {file: /t/a.csv, format: azure, limit: 3, rate_scale: 2}",
    "trace: {file: m.jsonl, format: mooncake, jitter: true}",
    "trace: {file: m.jsonl, limit: 5}, arrivals: {process: closed_loop, concurrency: 4}",
    "trace: a.csv, arrivals: {process: trace}, priority: {values: [1, 2], weights: [0, 1]}"};

std::string drawn(const std::string& arrivals, const std::string& prompt_tokens,
                  const std::string& output_tokens, const std::string& prefix) {
  return "num_requests: 4, arrivals: " + arrivals + ", prompt_tokens: " + prompt_tokens +
         ", output_tokens: " + output_tokens + ", prefix: " + prefix;
}

std::vector<std::string> all_workloads() {
  std::vector<std::string> workloads = kTraces;
  for (const std::string& arrivals : kArrivals) {
    for (const std::string& prefix : kPrefixes) {
      workloads.push_back(drawn(arrivals, kLengths[0], kLengths[1], prefix));
    }
  }
  for (const std::string& prompt_tokens : kLengths) {
    for (const std::string& output_tokens : kLengths) {
      workloads.push_back(drawn(kArrivals[0], prompt_tokens, output_tokens, kPrefixes[0]));
    }
  }
  return workloads;
}

TEST_CASE("the resolved config shows the keys of the chosen workload only", "[core][scenario]") {
  CHECK(workload_of(with_workload("num_requests: 4, arrivals: {rate: 2}, "
                                  "prompt_tokens: {value: 9}, output_tokens: {value: 8}")) ==
        Json::parse(R"({
          "num_requests": 4, "max_tokens": null,
          "arrivals": {"process": "poisson", "rate": 2.0},
          "prompt_tokens": {"distribution": "fixed", "value": 9},
          "output_tokens": {"distribution": "fixed", "value": 8},
          "priority": {"values": [], "weights": []},
          "prefix": {"kind": "none"},
          "images": {"kind": "none"},
          "dataset": {"kind": "none"},
          "sessions": {"kind": "none"},
          "trace": {"file": ""}})"));
  CHECK(workload_of(with_workload("trace: {file: a.csv, format: azure}")) == Json::parse(R"({
          "max_tokens": null, "arrivals": {"process": "trace"},
          "priority": {"values": [], "weights": []}, "prefix": {"kind": "none"},
          "trace": {"file": "a.csv", "format": "azure", "limit": 0, "rate_scale": 1.0,
                    "request_log": "",
                    "columns": {"arrival": "", "prompt": "", "output": "", "limit": "",
                                "hash_ids": "", "tokens": "", "session": "", "parent": "",
                                "turn": "", "delay": "", "class": "", "priority": ""},
                    "time_unit": "auto", "block_size": null, "prompts": "auto"}})"));
  CHECK(workload_of(with_workload("trace: a.csv, arrivals: {process: burst}")) == Json::parse(R"({
          "max_tokens": null, "arrivals": {"process": "burst", "burst_size": 0},
          "priority": {"values": [], "weights": []}, "prefix": {"kind": "none"},
          "trace": {"file": "a.csv", "format": "auto", "limit": 0, "tokenizer": "",
                    "characters_per_token": null, "output_len": null,
                    "columns": {"arrival": "", "prompt": "", "output": "", "limit": "",
                                "hash_ids": "", "tokens": "", "session": "", "parent": "",
                                "turn": "", "delay": "", "class": "", "priority": ""},
                    "time_unit": "auto", "block_size": null, "prompts": "auto"}})"));
}

TEST_CASE("every workload's resolved config reads back as itself", "[core][scenario]") {
  for (const std::string& workload : all_workloads()) {
    INFO(workload);
    check_round_trip(load(with_workload(workload)).variants[0]);
  }
}

TEST_CASE("the resolved config of every shipped scenario reads back as itself", "[scenarios]") {
  std::size_t num_files = 0;
  const fs::path folder = fs::path(testing::source_dir()) / "scenarios";
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++num_files;
    INFO(entry.path().string());
    const ScenarioFile file = load_scenario(entry.path().string(), {}, std::nullopt);
    for (const Scenario& scenario : file.variants) check_round_trip(scenario);
  }
  CHECK(num_files >= 19);
}

// ---- inheriting ----

// Workloads that leave nothing to inherit: every key that their choices use.
const std::string kNoPriority = ", priority: {values: [], weights: []}";
const std::string kCompleteTrace =
    "trace: {file: b.jsonl, format: mooncake, limit: 2, rate_scale: 3, jitter: true}" + kNoPriority;
const std::vector<std::string> kCompleteDrawn = {
    drawn(kArrivals[0], kLengths[0], kLengths[5], kPrefixes[0]),
    drawn(kArrivals[2], kLengths[1], kLengths[3], kPrefixes[1]),
    drawn(kArrivals[4], kLengths[3], kLengths[1], kPrefixes[2]),
    drawn(kArrivals[6], kLengths[5], kLengths[0], kPrefixes[0]),
    drawn(kArrivals[7], kLengths[0], kLengths[1], kPrefixes[1]),
    drawn(kArrivals[8], kLengths[1], kLengths[3], kPrefixes[2])};

std::string as_yaml(const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::Null) return "null";
  if (node.kind == ConfigNode::Kind::Scalar) return node.scalar;
  std::string list;
  for (const ConfigNode& item : node.items) list += (list.empty() ? "" : ", ") + as_yaml(item);
  return "[" + list + "]";
}

// One `--set` per value.
void add_assignments(const ConfigNode& node, const std::string& key,
                     std::vector<std::string>& assignments) {
  if (node.kind != ConfigNode::Kind::Map) return assignments.push_back(key + "=" + as_yaml(node));
  for (const ConfigNode::Entry& entry : node.entries) {
    add_assignments(entry.value, key + "." + entry.key, assignments);
  }
}

void check_replaces(const std::string& over, const std::string& base) {
  INFO("over " << over << "\nbase " << base);
  const std::string alone = resolved(with_workload(over));
  const std::string variant = "variants: [{name: a, workload: {" + over + "}}]\n";
  CHECK(resolved(with_workload(base) + variant) == alone);
  std::vector<std::string> assignments;
  add_assignments(tree("{" + over + "}"), "workload", assignments);
  CHECK(resolved(with_workload(base), assignments) == alone);
}

TEST_CASE("a complete workload over any other is that workload alone", "[core][scenario]") {
  for (const std::string& base : all_workloads()) {
    for (const std::string& over : kCompleteDrawn) {
      check_replaces(over + kNoPriority + ", trace: null", base);
    }
    if (base.find("trace") == std::string::npos) check_replaces(kCompleteTrace, base);
  }
}

TEST_CASE("another arrival process keeps the keys it shares with the old one", "[core][scenario]") {
  const std::string base = with_workload(kDrawn);
  CHECK(workload_of(base, {"workload.arrivals.process=constant"})["arrivals"] ==
        Json::parse(R"({"process": "constant", "rate": 2.0})"));
  CHECK(workload_of(base, {"workload.arrivals.rate=20"})["arrivals"] ==
        Json::parse(R"({"process": "gamma", "rate": 20.0, "burstiness": 0.5})"));
  const ScenarioFile file =
      load(base +
               "variants:\n"
               "  - {name: a, workload: {arrivals: {process: poisson}}}\n"
               "  - {name: b, workload: {arrivals: {process: closed_loop, concurrency: 3}}}\n"
               "  - {name: c, workload: {arrivals: {burstiness: 4}}}\n",
           {"workload.arrivals.rate=20"});
  CHECK(file.variants[0].workload.arrivals.process == ArrivalProcess::Poisson);
  CHECK(file.variants[0].workload.arrivals.rate == 20);
  CHECK(file.variants[1].workload.arrivals.concurrency == 3);
  CHECK(file.variants[2].workload.arrivals.burstiness == 4);
  CHECK(file.variants[2].workload.arrivals.rate == 20);
  const std::string burst =
      "num_requests: 4, prompt_tokens: {value: 9}, output_tokens: {value: 8}, "
      "arrivals: {process: burst, burst_size: 2, burst_interval_s: 1}";
  CHECK(workload_of(with_workload(burst), {"workload.arrivals.burst_size=0"})["arrivals"] ==
        Json::parse(R"({"process": "burst", "burst_size": 0})"));
}

TEST_CASE("other lengths and prefixes drop the keys of the old ones", "[core][scenario]") {
  const ScenarioFile file =
      load(with_workload(kDrawn) +
           "variants:\n"
           "  - name: a\n"
           "    workload: {prompt_tokens: {distribution: uniform, min: 5}, prefix: {kind: none}}\n"
           "  - name: b\n"
           "    workload:\n"
           "      output_tokens: {distribution: empirical, values: [1, 2]}\n"
           "      prefix: {kind: tree, depth: 2}\n");
  const WorkloadConfig& a = file.variants[0].workload;
  CHECK(a.prompt_tokens.min == 5);
  CHECK(a.prompt_tokens.max == 1000);  // shared by both distributions
  CHECK(a.prompt_tokens.median == 0);
  CHECK(a.output_tokens.value == 10);
  CHECK(a.prefix.kind == PrefixKind::None);
  const WorkloadConfig& b = file.variants[1].workload;
  CHECK(b.prompt_tokens.median == 100);
  CHECK(b.output_tokens.values == std::vector<std::int64_t>{1, 2});
  CHECK(b.prefix.prefix_tokens == 5);
  CHECK(b.prefix.num_groups == 1);
}

TEST_CASE("a trace drops drawn requests, their arrivals too", "[core][scenario]") {
  const Json recorded = workload_of(with_workload("trace: a.csv"));
  const std::string base = with_workload(kDrawn);
  CHECK(workload_of(base + "variants: [{name: a, workload: {trace: a.csv}}]\n") == recorded);
  CHECK(workload_of(base, {"workload.trace=a.csv"}) == recorded);
  CHECK(workload_of(base, {"workload.trace.file=a.csv"}) == recorded);
  const Json slower = Json::parse(R"({"process": "poisson", "rate": 0.5})");
  CHECK(workload_of(base + "variants: [{name: a, workload: {trace: a.csv, arrivals: {rate: 0.5}}}]"
                           "\n")["arrivals"] == slower);
  CHECK(workload_of(base, {"workload.trace=a.csv", "workload.arrivals.rate=0.5"})["arrivals"] ==
        slower);
}

TEST_CASE("another trace keeps the arrivals that replace recorded ones", "[core][scenario]") {
  const std::string base =
      with_workload("trace: {file: a.csv, limit: 9}, arrivals: {process: constant, rate: 4}");
  const std::string expected = resolved(
      with_workload("trace: {file: b.csv, limit: 9}, arrivals: {process: constant, rate: 4}"));
  CHECK(resolved(base + "variants: [{name: a, workload: {trace: b.csv}}]\n") == expected);
  CHECK(resolved(base, {"workload.trace.file=b.csv"}) == expected);
  CHECK(workload_of(base, {"workload.trace=b.csv"})["arrivals"]["rate"] == 4.0);
  const std::string timed = with_workload("trace: {file: m.jsonl, rate_scale: 2, jitter: true}");
  CHECK(workload_of(timed, {"workload.arrivals.process=burst"})["arrivals"]["process"] == "burst");
  CHECK(workload_of(timed, {"workload.trace.format=azure"})["trace"] ==
        Json::parse(R"({"file": "m.jsonl", "format": "azure", "limit": 0, "rate_scale": 2.0,
                        "request_log": "",
                        "columns": {"arrival": "", "prompt": "", "output": "", "limit": "",
                                    "hash_ids": "", "tokens": "", "session": "", "parent": "",
                                    "turn": "", "delay": "", "class": "", "priority": ""},
                        "time_unit": "auto", "block_size": null, "prompts": "auto"})"));
}

TEST_CASE("null removes an inherited trace", "[core][scenario]") {
  const std::string base =
      with_workload("trace: {file: a.csv, limit: 9}, arrivals: {process: constant, rate: 4}");
  const std::string lengths =
      "num_requests: 3, prompt_tokens: {value: 9}, output_tokens: {value: 8}";
  for (const char* none : {"null", "''", "{file: ''}"}) {
    const std::string variant =
        "variants: [{name: a, workload: {trace: " + std::string(none) + ", " + lengths + "}}]\n";
    INFO(variant);
    const WorkloadConfig workload = load(base + variant).variants[0].workload;
    CHECK(workload.trace.file.empty());
    CHECK(workload.num_requests == 3);
    CHECK(workload.arrivals.rate == 4);
  }
  CHECK(error_of(base, {"workload.trace=null"}) ==
        "case.yaml:3: workload.num_requests: missing; a workload without a trace needs at least "
        "1");
}

TEST_CASE("the short form of a trace takes keys", "[core][scenario]") {
  const std::string base = with_workload("trace: a.csv");
  const std::string expected = resolved(with_workload("trace: {file: a.csv, limit: 5}"));
  CHECK(resolved(base, {"workload.trace.limit=5"}) == expected);
  CHECK(resolved(base + "variants: [{name: a, workload: {trace: {limit: 5}}}]\n") == expected);
  CHECK(resolved(with_workload(kDrawn), {"workload.trace=a.csv", "workload.trace.limit=5"}) ==
        expected);
  CHECK(resolved(with_workload(kDrawn) + "variants: [{name: a, workload: {trace: a.csv}}]\n",
                 {"variants.a.workload.trace.limit=5"}) == expected);
  CHECK(resolved(with_workload("trace: {file: b.csv, limit: 5}") +
                 "variants: [{name: a, workload: {trace: a.csv}}]\n") == expected);
  CHECK(error_of(with_workload(kDrawn), {"workload.trace.limit=5"}) ==
        "--set workload.trace.limit: workload.trace.file: missing; the path of a trace file");
}

// ---- what stays an error ----

TEST_CASE("a useless key given beside the choice is refused", "[core][scenario]") {
  const std::string base = with_workload(kDrawn);
  CHECK(error_of(base, {"workload.arrivals.process=constant", "workload.arrivals.burstiness=2"}) ==
        "--set workload.arrivals.burstiness: not used by process constant; it belongs to gamma");
  CHECK(error_of(base + "variants:\n"
                        "  - name: a\n"
                        "    workload:\n"
                        "      prompt_tokens: {distribution: fixed, value: 3, p99: 7}\n") ==
        "case.yaml:7: workload.prompt_tokens.p99: not used by distribution fixed; it belongs to "
        "lognormal");
  const std::string with_trace =
      ": not used with a trace, which brings its own requests; it belongs to workloads without a "
      "trace";
  CHECK(error_of(base + "variants: [{name: a, workload: {trace: a.csv, num_requests: 3}}]\n") ==
        "case.yaml:4: workload.num_requests" + with_trace);
  CHECK(error_of(base, {"workload.trace=a.csv", "workload.output_tokens.value=3"}) ==
        "--set workload.output_tokens.value: workload.output_tokens" + with_trace);
  CHECK(error_of(base + "variants: [{name: a, workload: {trace: {file: '', limit: 3}}}]\n") ==
        "case.yaml:4: workload.trace.limit: not used without a trace; it needs trace.file");
}

TEST_CASE("a base with variants is right by itself", "[core][scenario]") {
  const auto error_in_base = [](const std::string& workload, const std::string& variant) {
    return error_of(with_workload(workload) + "variants: [{name: a, " + variant + "}]\n");
  };
  CHECK(error_in_base("arrivals: {process: poisson, rate: 1, burstiness: 2}",
                      "workload: {trace: a.csv}") ==
        "case.yaml:3: workload.arrivals.burstiness: not used by process poisson; it belongs to "
        "gamma");
  CHECK(error_in_base("trace: a.csv, num_requests: 3", "workload: {trace: null, " + kDrawn + "}")
            .starts_with("case.yaml:3: workload.num_requests: not used with a trace"));
  CHECK(error_in_base(kDrawn + "}\nkv_cache: {backend: slotted, block_size: 8",
                      "kv_cache: {backend: paged}")
            .starts_with("case.yaml:4: kv_cache.block_size: the slotted backend has"));
}

TEST_CASE("an assignment that every variant's choice drops is a mistake", "[core][scenario]") {
  CHECK(error_of(with_workload(kDrawn) + "variants: [{name: a, workload: {trace: a.csv}}]\n",
                 {"workload.num_requests=9"}) ==
        "--set workload.num_requests: has no effect: every variant overrides or drops this key; "
        "allowed: variants.NAME.workload.num_requests for one variant");
}

}  // namespace
}  // namespace metronome::TEST_FILE
