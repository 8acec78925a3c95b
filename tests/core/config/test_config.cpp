// SPDX-License-Identifier: Apache-2.0
// Configuration trees, their reader and their two writers, on a small struct of every field type.
#include <limits>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::Answers;
using testing::error_of;
using testing::ScratchFolder;

struct Sample {
  std::int64_t whole = 3;
  std::int32_t small = 4;
  double real = 0.5;
  bool flag = false;
  std::string word = "plain";
  int fruit = 0;
  std::vector<std::int64_t> wholes;
  std::vector<double> reals;
  std::optional<std::int64_t> sized;
  std::optional<double> limit;
  std::optional<std::int64_t> count;
  double endless = 1;
};

constexpr std::string_view kFruits[] = {"apple", "banana", "cherry"};

void visit_fields(FieldVisitor& visitor, Sample& sample) {
  visitor.integer("whole", sample.whole, -5, 100, "a whole number");
  visitor.integer("small", sample.small, 0, 10, "fits 32 bits");
  visitor.number("real", sample.real, 0, 1, "a share");
  visitor.boolean("flag", sample.flag, "yes or no");
  if (visitor.open_section("inner", "nested")) {
    visitor.text("word", sample.word, "any text");
    std::span<const std::string_view> fruits(kFruits);
    visitor.choice("fruit", sample.fruit, fruits, "one of three");
    if (visitor.open_section("deep", "nested twice")) {
      visitor.integers("wholes", sample.wholes, 0, 9, "digits");
      visitor.numbers("reals", sample.reals, 0, 9, "reals");
      visitor.close_section();
    }
    visitor.close_section();
  }
  visitor.integer_or_auto("sized", sample.sized, 1, 8, "or auto");
  visitor.optional_number("limit", sample.limit, 0, 10, "or null");
  visitor.optional_integer("count", sample.count, 0, 10, "or null");
  visitor.number("endless", sample.endless, 0, std::numeric_limits<double>::infinity(), "no end");
}

Sample read(std::string_view yaml) {
  const ConfigNode root = parse_config_text(yaml, "f.yaml");
  ConfigReader reader(root, "");
  Sample sample;
  visit_fields(reader, sample);
  reader.finish();
  return sample;
}

std::string show(Sample sample) {
  return fields_to_json([&](FieldVisitor& visitor) { visit_fields(visitor, sample); });
}

TEST_CASE("a configuration tree knows the line of every value", "[core][config]") {
  const ConfigNode root = parse_config_text(
      "# comment\n"
      "a: 1\n"
      "b:\n"
      "  c: \"quoted\"\n"
      "  d: [1,\n"
      "      x]\n"
      "e:\n"
      "  - f: 2\n"
      "    g: ~\n"
      "h: {i: '5',\n"
      "    j: 6}\n",
      "f.yaml");
  CHECK(root.where.to_string() == "f.yaml:2");
  CHECK(root.find("a")->scalar == "1");
  CHECK(root.find("a")->where.line == 2);
  CHECK_FALSE(root.find("a")->is_quoted);
  CHECK(root.find("b")->where.line == 3);
  CHECK(root.find("b")->find("c")->is_quoted);
  CHECK(root.find("b")->find("d")->items[1].where.line == 6);
  const ConfigNode& item = root.find("e")->items[0];
  CHECK(item.where.line == 8);
  CHECK(item.find("g")->kind == ConfigNode::Kind::Null);
  CHECK(item.find("g")->where.line == 9);
  CHECK(root.find("h")->find("i")->is_quoted);
  CHECK(root.find("h")->find("j")->where.line == 11);
  CHECK(root.find("missing") == nullptr);
}

TEST_CASE("empty documents are null", "[core][config]") {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "~\n"}) {
    INFO("text: " << text);
    CHECK(parse_config_text(text, "f.yaml").kind == ConfigNode::Kind::Null);
  }
}

TEST_CASE("documents that are refused", "[core][config]") {
  struct Case {
    const char* text;
    const char* expected;
  };
  const Case cases[] = {
      {"a: 1\nb: 2\na: 3\n",
       "f.yaml:3: a: duplicate key, first given at line 1; allowed: each key once"},
      {"x:\n  y:\n    - {k: 1}\n    - {k: 1, k: 2}\n",
       "f.yaml:4: x.y.1.k: duplicate key, first given at line 4; allowed: each key once"},
      {"a: &name 1\n", "f.yaml:1: anchors (&name) are not supported; allowed: plain values"},
      {"a: 1\nb: &m {c: 1}\n",
       "f.yaml:2: anchors (&name) are not supported; allowed: plain values"},
      {"a: !!int 3\n", "f.yaml:1: tags (!name) are not supported; allowed: plain values"},
      {"a: !thing [1]\n", "f.yaml:1: tags (!name) are not supported; allowed: plain values"},
      {"a: 1\n---\nb: 2\n",
       "f.yaml:3: more text after the end of the document; allowed: one document"},
      {"- a\nb: 1\n", "f.yaml:2: more text after the end of the document; allowed: one document"},
  };
  for (const Case& c : cases) {
    INFO("text: " << c.text);
    CHECK(error_of([&] { parse_config_text(c.text, "f.yaml"); }) == c.expected);
  }
  for (const char* text : {"\n[a, b]: 1\n", "\n{a: 1}: 1\n", "a: 1\n~: 1\n", "\n\"\": 1\n"}) {
    INFO("text: " << text);
    CHECK(error_of([&] { parse_config_text(text, "f.yaml"); }) ==
          "f.yaml:2: a key must be a word, or a bracket is not closed; allowed: KEY: VALUE");
  }
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  CHECK(error_of([&] { parse_config_text(deep, "f.yaml"); }) ==
        "f.yaml:1: nested too deeply; allowed: at most 32 levels");
}

TEST_CASE("malformed YAML names the line", "[core][config]") {
  struct Case {
    const char* text;
    int line;
  };
  const Case cases[] = {{"a: 1\nb: [1, 2\n", 3},
                        {"a: 1\nb: {c: 1\n", 3},
                        {"a: 'open\n", 1},
                        {"a: *unknown\n", 1},
                        {"a: b: c\n", 1},
                        {"a: 1\n  b: 2\n", 2},
                        {"a: 'it''s\n", 1},
                        {"a: 1\nb: \"x\\\"\nc: 2\n", 2},
                        {"a: {b: 1,\n\tc: 2}\nd: [\n", 4}};
  for (const Case& c : cases) {
    const std::string error = error_of([&] { parse_config_text(c.text, "f.yaml"); });
    INFO("text: " << c.text << "\nerror: " << error);
    CHECK(error.starts_with("f.yaml:" + std::to_string(c.line) + ": malformed YAML: "));
    CHECK(error.ends_with("; allowed: YAML 1.2"));
  }
  for (const char* text : {"a:\n\tb: 2\n", "a: 1\n\tb: 2\n", "a:\n  \tb: 2\n", "a:\n\t- b\n"}) {
    INFO("text: " << text);
    CHECK(error_of([&] { parse_config_text(text, "f.yaml"); }) ==
          "f.yaml:2: malformed YAML: tabs cannot indent YAML; allowed: spaces");
  }
  const ConfigNode quotes = parse_config_text("a: 'it''s'\nb: \"\\\\\"\nc: |\n  'x\n", "f.yaml");
  CHECK(quotes.find("a")->scalar == "it's");
  CHECK(quotes.find("b")->scalar == "\\");
  CHECK(quotes.find("c")->scalar == "'x\n");
  CHECK(error_of([] { parse_config_text("a: 1\nb: *a\n", "f.yaml"); }).starts_with("f.yaml:2: "));
}

TEST_CASE("files that cannot be read", "[core][config]") {
  const ScratchFolder folder;
  const std::string missing = folder.path() + "/missing.yaml";
  CHECK(error_of([&] { load_config_file(missing); }) ==
        missing + ": does not exist; allowed: a readable YAML file");
  CHECK(error_of([&] { load_config_file(folder.path()); }) ==
        folder.path() + ": is a folder; allowed: a readable YAML file");
  const std::string file = folder.write("good.yaml", "a: 1\r\nb: 2\r\n");
  CHECK(load_config_file(file).find("b")->scalar == "2");
  CHECK(load_config_file(file).find("b")->where.to_string() == file + ":2");
}

TEST_CASE("mappings merge key by key, everything else replaces", "[core][config]") {
  ConfigNode base = parse_config_text("a: {b: 1, c: [1, 2], d: {e: 5}}\nf: 6\n", "base.yaml");
  merge_into(base, parse_config_text("\n\na: {c: [3], d: {g: 7}, h: 8}\ni: 9\n", "over.yaml"));
  CHECK(base.find("a")->find("b")->scalar == "1");
  CHECK(base.find("a")->find("c")->items.size() == 1);
  CHECK(base.find("a")->find("c")->where.to_string() == "over.yaml:3");
  CHECK(base.find("a")->find("d")->find("e")->scalar == "5");
  CHECK(base.find("a")->find("d")->find("g")->scalar == "7");
  CHECK(base.find("a")->find("h")->scalar == "8");
  CHECK(base.find("f")->where.to_string() == "base.yaml:2");
  CHECK(base.find("i")->scalar == "9");
  merge_into(base, parse_config_text("a: 1\n", "over.yaml"));
  CHECK(base.find("a")->kind == ConfigNode::Kind::Scalar);
}

TEST_CASE("assignments set nested keys, lists and items", "[core][config]") {
  ConfigNode root = parse_config_text("a: {b: 1}\nlist: [1, {x: 2}]\n", "f.yaml");
  apply_assignment(root, "a.b=5");
  CHECK(root.find("a")->find("b")->scalar == "5");
  CHECK(root.find("a")->find("b")->where.to_string() == "--set a.b");
  apply_assignment(root, "a.new.deep=[1, 2, 3]");
  CHECK(root.find("a")->find("new")->find("deep")->items.size() == 3);
  CHECK(root.find("a")->find("new")->find("deep")->items[2].where.to_string() ==
        "--set a.new.deep");
  apply_assignment(root, "list.1.x=y");
  CHECK(root.find("list")->items[1].find("x")->scalar == "y");
  apply_assignment(root, "list.0={k: v}");
  CHECK(root.find("list")->items[0].find("k")->scalar == "v");
  apply_assignment(root, "a={c: 1}");
  CHECK(root.find("a")->find("b") == nullptr);
  apply_assignment(root, "a.c=");
  CHECK(root.find("a")->find("c")->kind == ConfigNode::Kind::Null);
  apply_assignment(root, "a.c='x=y'");
  CHECK(root.find("a")->find("c")->scalar == "x=y");
}

TEST_CASE("assignments that are refused", "[core][config]") {
  struct Case {
    const char* assignment;
    const char* expected;
  };
  const Case cases[] = {
      {"novalue", "--set novalue: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {"=5", "--set =5: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {"a..b=5", "--set a..b=5: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {".a=5", "--set .a=5: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {"a.=5", "--set a.=5: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {"a.b.c=5",
       "--set a.b.c: 'a.b' is '1', which has no keys; allowed: a key of a mapping or a position "
       "in a list"},
      {"list.2=5", "--set list.2: '2' is not a position in the list 'list'; allowed: 0 to 1"},
      {"list.x=5", "--set list.x: 'x' is not a position in the list 'list'; allowed: 0 to 1"},
      {"list.-1=5", "--set list.-1: '-1' is not a position in the list 'list'; allowed: 0 to 1"},
      {"none.0=5",
       "--set none.0: '0' is not a position in the list 'none'; allowed: none, the list is empty"},
      {"a={b: 1, b: 2}", "--set a: b: duplicate key; allowed: each key once"},
  };
  for (const Case& c : cases) {
    ConfigNode root = parse_config_text("a: {b: 1}\nlist: [1, 2]\nnone: []\n", "f.yaml");
    INFO("assignment: " << c.assignment);
    CHECK(error_of([&] { apply_assignment(root, c.assignment); }) == c.expected);
  }
  ConfigNode root = parse_config_text("a: 1\n", "f.yaml");
  CHECK(error_of([&] {
          apply_assignment(root, "a={b: [1}");
        }).starts_with("--set a: malformed YAML: "));
  CHECK(error_of([&] {
          apply_assignment(root, "a=[1");
        }).starts_with("--set a: a key must be a word, or a bracket is not closed; "));
}

TEST_CASE("reading fills what is given and leaves the rest", "[core][config]") {
  const Sample untouched = read("{}");
  CHECK(show(untouched) == show(Sample{}));
  const Sample sample = read(
      "whole: -5\nsmall: 10\nreal: 1\nflag: true\n"
      "inner: {word: 2023, fruit: cherry, deep: {wholes: [0, 9], reals: [1, 2.5e0]}}\n"
      "sized: 8\nlimit: .5\ncount: 0\nendless: .inf\n");
  CHECK(sample.whole == -5);
  CHECK(sample.small == 10);
  CHECK(sample.real == 1.0);
  CHECK(sample.flag);
  CHECK(sample.word == "2023");
  CHECK(sample.fruit == 2);
  CHECK(sample.wholes == std::vector<std::int64_t>{0, 9});
  CHECK(sample.reals == std::vector<double>{1, 2.5});
  CHECK(sample.sized == 8);
  CHECK(sample.limit == 0.5);
  CHECK(sample.count == 0);
  CHECK(sample.endless == std::numeric_limits<double>::infinity());
  CHECK_FALSE(read("sized: auto\n").sized.has_value());
  CHECK_FALSE(read("limit: null\n").limit.has_value());
  CHECK_FALSE(read("count: ~\n").count.has_value());
  CHECK(read("inner: {word: \"\"}\n").word.empty());
}

TEST_CASE("wrong types and ranges of every field type", "[core][config]") {
  Answers answers("config/wrong_types.txt");
  for (const char* text : {"whole: 2.5",
                           "whole: abc",
                           "whole: 1e1",
                           "whole: 1_0",
                           "whole: 0x5",
                           "whole: +5",
                           "whole: \"5\"",
                           "whole: ''",
                           "whole:",
                           "whole: [1]",
                           "whole: {a: 1}",
                           "whole: true",
                           "whole: 101",
                           "whole: -6",
                           "whole: 99999999999999999999",
                           "small: 4294967297",
                           "real: fast",
                           "real: '0.5'",
                           "real: 1.5",
                           "real: -0.1",
                           "real: nan",
                           "real: inf",
                           "real: .inf",
                           "real: 1e999",
                           "real: 0.5s",
                           "endless: nan",
                           "endless: -inf",
                           "flag: yes",
                           "flag: True",
                           "flag: 1",
                           "flag: 'true'",
                           "inner: 5",
                           "inner:",
                           "inner: [a]",
                           "inner: {word: [a]}",
                           "inner: {word: }",
                           "inner: {fruit: bananna}",
                           "inner: {fruit: x}",
                           "inner: {fruit: [apple]}",
                           "inner: {deep: {wholes: 5}}",
                           "inner: {deep: {wholes: [1, x]}}",
                           "inner: {deep: {wholes: [1, 2, 10]}}",
                           "inner: {deep: {reals: {a: 1}}}",
                           "inner: {deep: {reals: [[1]]}}",
                           "sized: 9",
                           "sized: big",
                           "sized:",
                           "limit: x",
                           "limit: 11",
                           "count: 1.0",
                           "count: 11"}) {
    answers.add(text, error_of([&] { read(std::string("\n") + text + "\n"); }));
  }
}

TEST_CASE("unknown keys are found at every depth, with the nearest known one", "[core][config]") {
  Answers answers("config/unknown_keys.txt");
  for (const char* text : {"flog: true\n", "whole: 1\ninner:\n  wrd: x\n",
                           "inner:\n  deep:\n    zzz: x\n", "<<: {whole: 1}\n"}) {
    answers.add(text, error_of([&] { read(text); }));
  }
}

TEST_CASE("a reader of a subtree shows its path and takes keys", "[core][config]") {
  const ConfigNode node = parse_config_text("a: 1\nb: {c: 2}\n", "f.yaml");
  ConfigReader reader(node, "top.sub");
  std::int64_t a = 0;
  reader.integer("a", a, 0, 9, "");
  CHECK(reader.take("b") == node.find("b"));
  CHECK(reader.take("absent") == nullptr);
  CHECK_NOTHROW(reader.finish());
  ConfigReader partial(node, "top.sub");
  partial.integer("a", a, 0, 9, "");
  CHECK(error_of([&] { partial.finish(); }) == "f.yaml:2: top.sub.b: unknown key; allowed: a");
  CHECK(error_of([&] { ConfigReader(*node.find("a"), "top.a"); }) ==
        "f.yaml:1: top.a: must be a mapping, got '1'; allowed: KEY: VALUE");
}

TEST_CASE("a message stays one line whatever the input", "[core][config]") {
  CHECK(error_of([] {
          read("\"a\\nb\\x1b[31m\\t\": 1\n");
        }).starts_with("f.yaml:1: a\\nb\\x1b[31m\\t: unknown key; "));
  const std::string long_word(500, 'x');
  const std::string error = error_of([&] { read("whole: " + long_word + "\n"); });
  CHECK(error == "f.yaml:1: whole: must be an integer, got '" + std::string(60, 'x') +
                     "...'; allowed: -5 to 100");
}

TEST_CASE("an assignment is named once in a message", "[core][config]") {
  const SourceLocation where = assignment_location("variants.a.scheduler.chunk");
  CHECK(error_of([&] { fail_config(where, "scheduler.chunk", "bad"); }) ==
        "--set variants.a.scheduler.chunk: bad");
  CHECK(error_of([&] { fail_config(where, "cheduler.chunk", "bad"); }) ==
        "--set variants.a.scheduler.chunk: cheduler.chunk: bad");
  CHECK(error_of([&] { fail_config(where, "variants.0.scheduler.chunk", "bad"); }) ==
        "--set variants.a.scheduler.chunk: bad");
  CHECK(error_of([&] { fail_config(where, "variants.0.chunk.size", "bad"); }) ==
        "--set variants.a.scheduler.chunk: variants.0.chunk.size: bad");
  CHECK(error_of([&] { fail_config({}, "key", "bad"); }) == "key: bad");
}

TEST_CASE("printable text breaks no line and drives no terminal", "[core][config]") {
  CHECK(printable("plain, \"quoted\" \\ ~") == "plain, \"quoted\" \\ ~");
  CHECK(printable("a\x1b[31m\n\t\r\x7f") == "a\\x1b[31m\\n\\t\\x0d\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  const char* const kWhole[] = {"\xc3\xa9",         "\xe2\x82\xac",     "\xed\x9f\xbf",
                                "\xf0\x9f\x8e\xbc", "\xf4\x8f\xbf\xbf", "\xc2\xa0"};
  for (const char* text : kWhole) CHECK(printable(text) == text);
  CHECK(printable("\xe9t\xe9") == "\\xe9t\\xe9");  // Latin-1
  CHECK(printable("\xc2\x9b"
                  "31m") ==
        "\\xc2\\x9b"
        "31m");                                                    // a control character
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(printable("\xe0\x9f\xbf") == "\\xe0\\x9f\\xbf");           // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");                    // cut off
  CHECK(printable("\xe2\x82 x") == "\\xe2\\x82 x");
}

TEST_CASE("the nearest name is near", "[core][config]") {
  const std::string_view names[] = {"prefill_chunk_size", "policy", "order", "p99"};
  CHECK(nearest_name("polcy", names) == "policy");
  CHECK(nearest_name("prefil_chunk", names).empty());
  CHECK(nearest_name("prefill_chunk", names) == "prefill_chunk_size");
  CHECK(nearest_name("p", names).empty());
  CHECK(nearest_name("prefill_chunk_tokens", names) == "prefill_chunk_size");
  CHECK(nearest_name("p95", names) == "p99");
  CHECK(nearest_name("xyz", names).empty());
  CHECK(nearest_name("POLICY", names) == "policy");
  CHECK(nearest_name("", names).empty());
  // Neighbours exchanged, a kind of a name, and words of other programs.
  const std::string_view commands[] = {"run", "sweep", "tune"};
  CHECK(nearest_name("rnu", commands) == "run");
  CHECK(nearest_name("tuen", commands) == "tune");
  const std::string_view formats[] = {"none", "fp8", "fp8_block", "int4"};
  CHECK(nearest_name("fp8_e4m3", formats) == "fp8");
  CHECK(nearest_name("awq", formats) == "int4");
  CHECK(nearest_name("gptq", formats) == "int4");
  CHECK(nearest_name("FP8", formats) == "fp8");
  CHECK(nearest_name("FP8_E4M3", formats) == "fp8");
  CHECK(nearest_name("bnb", formats) == "int4");
  CHECK(nearest_name("Marlin", formats) == "int4");
  CHECK(nearest_name("w8a8", formats) == "fp8");
  CHECK(nearest_name("fp16", formats) == "none");
  CHECK(nearest_name("int8", formats) == "fp8");
  CHECK(nearest_name("awq", commands).empty());
  // The beginning of one name rather than a slip in another.
  const std::string_view gpus[] = {"h200", "h100-sxm", "a100-80gb"};
  CHECK(nearest_name("a100", gpus) == "a100-80gb");
  CHECK(nearest_name("h100", gpus) == "h100-sxm");
  CHECK(nearest_name("h20", gpus) == "h200");
  CHECK(nearest_name("h1000", gpus) == "h100-sxm");
  CHECK(nearest_name("H200", gpus) == "h200");
  CHECK(nearest_name("a1000", gpus) == "a100-80gb");
}

TEST_CASE("fields are written as JSON in order", "[core][config]") {
  Sample sample;
  sample.word = "a \"quoted\"\nline";
  sample.reals = {0.1, 2};
  sample.endless = std::numeric_limits<double>::infinity();
  sample.limit = 7.25;
  const std::string expected = R"({
  "whole": 3,
  "small": 4,
  "real": 0.5,
  "flag": false,
  "inner": {
    "word": "a \"quoted\"\nline",
    "fruit": "apple",
    "deep": {
      "wholes": [],
      "reals": [
        0.1,
        2.0
      ]
    }
  },
  "sized": "auto",
  "limit": 7.25,
  "count": null,
  "endless": "inf"
})";
  CHECK(show(sample) == expected);
  const std::string without = fields_to_json(
      [&](FieldVisitor& visitor) { visit_fields(visitor, sample); }, {"inner.deep", "whole"});
  const auto json = Json::parse(without);
  CHECK_FALSE(json.contains("whole"));
  CHECK_FALSE(json["inner"].contains("deep"));
  CHECK(json["inner"]["fruit"] == "apple");
}

TEST_CASE("fields as a tree are what a reader of their JSON sees", "[core][config]") {
  for (const char* text : {"{}", "inner: {word: '7', deep: {reals: [1, .5]}}",
                           "{sized: 4, limit: 2.5, count: 3, endless: .inf, flag: true}"}) {
    Sample sample = read(text);
    const ConfigNode root =
        fields_to_node([&](FieldVisitor& visitor) { visit_fields(visitor, sample); });
    ConfigReader reader(root, "");
    Sample again;
    visit_fields(reader, again);
    reader.finish();
    CHECK(show(again) == show(sample));
    CHECK(show(read(show(sample))) == show(sample));
    CHECK(root.find_path("inner.deep.reals")->items.size() == sample.reals.size());
    CHECK(root.find_path("inner.word")->is_quoted);
    CHECK(root.find_path("sized.deeper") == nullptr);
    CHECK(root.find_path("") == &root);
  }
}

TEST_CASE("documented keys can be set to their example and are shown", "[core][config]") {
  Sample defaults;
  const std::vector<DocumentedKey> keys =
      document_fields([&](FieldVisitor& visitor) { visit_fields(visitor, defaults); });
  REQUIRE(keys.size() == 12);
  CHECK(keys[0].key == "whole");
  CHECK(keys[0].type == "integer");
  CHECK(keys[0].allowed == "-5 to 100");
  CHECK(keys[0].default_value == "3");
  CHECK(keys[0].doc == "a whole number");
  CHECK(keys[6].key == "inner.deep.wholes");
  CHECK(keys[8].allowed == "1 to 8, or auto");
  const Json before = Json::parse(show(defaults));
  for (const DocumentedKey& key : keys) {
    INFO("key: " << key.key);
    ConfigNode root;
    apply_assignment(root, key.key + "=" + key.example);
    ConfigReader reader(root, "");
    Sample sample;
    visit_fields(reader, sample);
    reader.finish();
    CHECK(Json::parse(show(sample)) != before);
  }
}

TEST_CASE("a broken invariant names its condition and place", "[core][config]") {
  std::string message;
  try {
    METRONOME_CHECK(1 + 1 == 3, "arithmetic holds");
  } catch (const InvariantError& error) {
    message = error.what();
  }
  CHECK(message.starts_with("internal error: arithmetic holds (1 + 1 == 3 is false at "));
}

}  // namespace
}  // namespace metronome::TEST_FILE
