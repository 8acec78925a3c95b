// SPDX-License-Identifier: Apache-2.0
// The rules of the house, checked over every file of the repository; and each rule's checker,
// checked on text that breaks it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/catch.h"
#include "tests/house/tidy.h"
#include "tests/places.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome::testing;

namespace {

constexpr const char* kFolders[] = {"core",      "engines", "models", "sim",     "fleet", "cpu",
                                    "gpu",       "docs",    "python", "reports", "study", "serve",
                                    "scenarios", "system",  "tools",  "tests"};

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Every text file of the repository, in order of path.
const std::vector<SourceFile>& repository() {
  static const std::vector<SourceFile> files = [] {
    const fs::path root = source_dir();
    std::vector<fs::path> paths;
    for (const char* name :
         {"CMakeLists.txt", "CMakePresets.json", "README.md", "ARCHITECTURE.md", ".ci/run"}) {
      paths.push_back(root / name);
    }
    for (const char* folder : kFolders) {
      if (!fs::exists(root / folder)) continue;  // a folder without files is not in a clone
      for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<SourceFile> result;
    for (const fs::path& path : paths) {
      result.push_back({path.lexically_relative(root).generic_string(), read_text(path)});
    }
    return result;
  }();
  return files;
}

bool is_code(const SourceFile& file) {
  const std::string extension = fs::path(file.path).extension().string();
  return extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh" ||
         extension == ".cmake" || extension == ".js" || extension == ".css" ||
         file.path.ends_with("CMakeLists.txt") ||
         (extension.empty() && file.path.starts_with("tools/"));
}

bool is_text(const SourceFile& file) { return file.text.find('\0') == std::string::npos; }

void require_none(const std::vector<Violation>& violations) {
  std::string report;
  for (const Violation& violation : violations) {
    report += violation.path + ":" + std::to_string(violation.line) + ": ";
    report += violation.what + "\n";
  }
  INFO(report);
  CHECK(report.empty());
}

template <class Check>
void require_clean(Check check, bool only_code) {
  std::vector<Violation> violations;
  for (const SourceFile& file : repository()) {
    if (!is_text(file) || (only_code && !is_code(file))) continue;
    for (Violation& violation : check(file)) violations.push_back(std::move(violation));
  }
  require_none(violations);
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

std::size_t count_determinism(const std::string& path, const std::string& text) {
  return check_determinism({path, text}).size();
}

// The faults of two headers of such text.
std::vector<Violation> type_names(const std::string& a, const std::string& b) {
  return check_type_names({{"core/a.h", a}, {"core/b.h", b}});
}

std::size_t count_includes(const std::string& path, const std::string& line) {
  const std::string guard = path.ends_with(".h") ? "#pragma once\n" : "";
  return check_includes({path, guard + line + "\n"}).size();
}

}  // namespace

TEST_CASE("the repository is found", "[tidy]") {
  const auto has = [](const char* path) {
    return std::any_of(repository().begin(), repository().end(),
                       [&](const SourceFile& file) { return file.path == path; });
  };
  CHECK(has("core/base/types.h"));
  CHECK(has("tests/house/test_tidy.cpp"));
  CHECK(has("tools/setup"));
  CHECK(repository().size() > 50);
}

TEST_CASE("functions are at most 70 lines", "[tidy]") {
  require_clean(check_function_lengths, true);
}

TEST_CASE("files are at most 600 lines", "[tidy]") { require_clean(check_file_length, true); }

TEST_CASE("lines are at most 100 columns", "[tidy]") { require_clean(check_columns, true); }

TEST_CASE("includes point inward", "[tidy]") { require_clean(check_includes, true); }

TEST_CASE("core, engines, models and sim use nothing that varies between runs or libraries",
          "[tidy]") {
  require_clean(check_determinism, true);
}

TEST_CASE("a type has one definition", "[tidy]") { require_none(check_type_names(repository())); }

TEST_CASE("a product's name stands in its folder alone", "[tidy]") {
  require_clean(check_product_names, true);
  require_none(check_product_list(repository()));
}

TEST_CASE("the engine sees no YAML", "[tidy]") {
  std::vector<std::string> closure = {"core/engine/kv/kv_cache.h", "core/engine/engine.h",
                                      "core/engine/scheduler.h"};
  for (std::size_t i = 0; i < closure.size(); ++i) {
    INFO(closure[i]);
    CHECK_FALSE(closure[i].starts_with("core/config/"));
    CHECK_FALSE(closure[i].starts_with("core/scenario/"));
    std::istringstream lines(read_text(source_dir() + "/" + closure[i]));
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kInclude = "#include \"";
      if (!line.starts_with(kInclude)) continue;
      const std::string target = line.substr(kInclude.size(), line.size() - kInclude.size() - 1);
      const bool is_new = std::find(closure.begin(), closure.end(), target) == closure.end();
      if (is_new) closure.push_back(target);
    }
  }
  CHECK(closure.size() > 10);
}

TEST_CASE("tools install packages by hash", "[tidy]") {
  require_clean(check_pip, false);
  require_clean(check_requirements, false);
}

TEST_CASE("a source file is in a room, and a header is included", "[tidy]") {
  require_none(check_orphans(repository()));
}

TEST_CASE("nothing is left unfinished", "[tidy]") { require_clean(check_words, false); }

TEST_CASE("a text with numbers is one format string", "[tidy]") {
  require_clean(check_joined_numbers, true);
}

TEST_CASE("a comment says something when it is read alone", "[tidy]") {
  require_clean(check_comments, true);
}

TEST_CASE("every source names its licence", "[tidy]") { require_clean(check_licence, true); }

TEST_CASE("no function hides one of a header", "[tidy]") {
  require_none(check_hidden_functions(repository()));
}

TEST_CASE("a file of tests is a namespace", "[tidy]") { require_clean(check_test_namespace, true); }

TEST_CASE("the top level holds what the layout names", "[tidy]") {
  for (const auto& entry : fs::directory_iterator(source_dir())) {
    for (const Violation& violation : check_top_level_name(entry.path().filename().string())) {
      FAIL_CHECK(violation.path << ": " << violation.what);
    }
  }
}

TEST_CASE("checker: function length", "[tidy][checker]") {
  const auto lengths = [](const std::string& text) {
    return check_function_lengths({"core/x.cpp", text});
  };
  const std::string body_68 = repeated("  f();\n", 68);
  CHECK(lengths("void a() {\n" + body_68 + "}\n").empty());
  const auto free_function = lengths("\nvoid a() {\n" + body_68 + "  f();\n}\n");
  REQUIRE(free_function.size() == 1);
  CHECK(free_function[0].line == 2);
  CHECK(free_function[0].what == "function of 71 lines, at most 70");

  const std::string body = repeated("  if (x) { f({1, 2}); }\n", 70);
  CHECK(lengths("namespace n {\nclass C : B {\n int a() {\n" + body + "}\n};\n}\n").size() == 1);
  CHECK(lengths("C::C(int x)\n    : a_{x}, b_(x) {\n" + body + "}\n").size() == 1);
  CHECK(lengths("template <class T>\nT f(T x = {}) {\n" + body + "}\n").size() == 1);
  CHECK(lengths("TEST_CASE(\"}\", \"[x]\") {\n" + body + "}\n").size() == 1);
  CHECK(lengths("void a() {\n  auto g = [](int y) {\n" + body + "  };\n}\n").size() == 1);
  // Long things that are not functions.
  CHECK(lengths("class C {\n" + repeated("  int f() { return 1; }\n", 90) + "};\n").empty());
  CHECK(lengths("constexpr X kTable[] = {\n" + repeated("  {f(1), 2},\n", 90) + "};\n").empty());
  CHECK(lengths("namespace {\n" + repeated("void f();\n", 90) + "}\n").empty());
}

TEST_CASE("checker: what is code", "[tidy][checker]") {
  CHECK(code_only("a // b\nc") == "a     \nc");
  CHECK(code_only("a /* b\n*/ c") == "a     \n   c");
  CHECK(code_only("f(\"x\\\"{\", '{', 1'000);") == "f(      ,    , 1'000);");
  CHECK(code_only("R\"(a\"{)\" b") == "         b");
  CHECK(code_only("#define A \\\n  {\nb") == "           \n   \nb");
}

TEST_CASE("checker: file length and columns", "[tidy][checker]") {
  CHECK(check_file_length({"core/x.h", repeated("\n", 600)}).empty());
  CHECK(check_file_length({"core/x.h", repeated("\n", 601)}).size() == 1);
  CHECK(check_columns({"core/x.h", repeated("a", 100) + "\n"}).empty());
  const auto wide = check_columns({"core/x.h", "\n" + repeated("a", 101) + "\n"});
  REQUIRE(wide.size() == 1);
  CHECK(wide[0].line == 2);
  CHECK(check_columns({"core/x.h", repeated("\xc3\xa9", 100) + "\n"}).empty());
}

TEST_CASE("checker: includes", "[tidy][checker]") {
  const auto allows = [](const char* path, const std::string& target) {
    return count_includes(path, "#include \"" + target + "\"") == 0;
  };
  CHECK(allows("core/engine/kv/x.h", "core/base/types.h"));
  CHECK(allows("core/engine/kv/x.h", "core/engine/request.h"));
  CHECK(allows("core/engine/x.cpp", "core/config/config_reader.h"));
  CHECK_FALSE(allows("core/engine/x.h", "core/config/config_reader.h"));
  CHECK_FALSE(allows("core/engine/kv/x.h", "core/config/config_reader.h"));
  CHECK_FALSE(allows("core/engine/x.cpp", "core/scenario/scenario.h"));
  CHECK_FALSE(allows("core/base/x.cpp", "core/engine/request.h"));
  CHECK_FALSE(allows("core/run/x.cpp", "sim/cost/cost_model.h"));
  CHECK_FALSE(allows("core/workload/x.cpp", "models/text/tokenizer.h"));
  CHECK_FALSE(allows("sim/x.cpp", "models/weights/model_weights.h"));
  CHECK(allows("sim/x.cpp", "sim/replay/replay_file.h"));
  CHECK_FALSE(allows("sim/cost/x.cpp", "sim/replay/replay_file.h"));
  CHECK_FALSE(allows("sim/x.cpp", "reports/terminal/table.h"));
  CHECK_FALSE(allows("cpu/x.cpp", "gpu/plan/memory_plan.h"));
  CHECK_FALSE(allows("reports/files/x.cpp", "reports/html/report_html.h"));
  CHECK_FALSE(allows("serve/server/x.cpp", "study/run/variant_run.h"));
  CHECK_FALSE(allows("study/tune/x.cpp", "tools/commands/cli.h"));
  CHECK(allows("tools/commands/x.cpp", "study/tune/tune_run.h"));
  CHECK_FALSE(allows("tools/commands/x.cpp", "tests/catch.h"));
  CHECK_FALSE(allows("core/base/x.cpp", "types.h"));
  CHECK_FALSE(allows("core/x.cpp", "core/base/types.h"));  // in no room
  CHECK_FALSE(allows("elsewhere/x.cpp", "core/base/types.h"));
  CHECK(room_cycles().empty());
  CHECK(allows("core/engine/kv/x.h", "core/engine/request.h"));
  CHECK_FALSE(allows("core/engine/kv/x.h", "core/engine/scheduler.h"));
  CHECK_FALSE(allows("core/engine/kv/x.h", "core/engine/policies/registry.h"));
  CHECK(allows("core/engine/policies/x.cpp", "core/engine/scheduler.h"));
  CHECK_FALSE(allows("core/engine/policies/x.cpp", "core/model/model_config.h"));

  CHECK(count_includes("core/x.cpp", "#include <yaml-cpp/yaml.h>") == 0);
  CHECK(count_includes("core/x.h", "#include <yaml-cpp/yaml.h>") == 1);
  CHECK(count_includes("study/x.h", "#include <fmt/core.h>") == 1);
  CHECK(count_includes("core/base/json_io.cpp", "#include <nlohmann/json.hpp>") == 0);
  CHECK(count_includes("tests/core/base/test_json.cpp", "#include <nlohmann/json.hpp>") == 0);
  for (const char* path : {"core/base/json.h", "core/base/math.cpp", "core/base/json_place.cpp",
                           "tools/x.cpp", "tests/test_x.cpp", "tests/x.h"}) {
    INFO(path);
    CHECK(count_includes(path, "#include <nlohmann/json.hpp>") == 1);
    CHECK(count_includes(path, "#include <nlohmann/json_fwd.hpp>") == 1);
  }
  CHECK(count_includes("tools/x.h", "#include <boost/asio.hpp>") == 1);
  CHECK(count_includes("tools/x.cpp", "#include <boost/asio.hpp>") == 0);
  CHECK(count_includes("tools/x.cpp", "#include <boost/program_options.hpp>") == 1);
  CHECK(count_includes("tests/x.cpp", "#include <boost/program_options/parsers.hpp>") == 1);
  CHECK(count_includes("tools/commands/command_options.cpp",
                       "#include <boost/program_options.hpp>") == 0);
  CHECK(count_includes("tests/x.cpp", "#include <catch2/catch.hpp>") == 1);
  CHECK(count_includes("tests/catch.h", "#include <catch2/catch.hpp>") == 0);
  CHECK(count_includes("core/x.h", "#include <vector>") == 0);
  CHECK(count_includes("core/x.h", "#include <Eigen/Dense>") == 1);
  CHECK(count_includes("core/x.h", "#include <unistd.h>") == 1);
  CHECK(count_includes("models/text/x.h", "#include <pcre2.h>") == 1);
  for (const char* header : {"thread", "mutex", "csignal", "sys/mman.h", "signal.h"}) {
    const std::string line = std::string("#include <") + header + ">";
    CHECK(count_includes("core/base/x.cpp", line) == 1);
    CHECK(count_includes("engines/vllm/x.cpp", line) == 1);
    CHECK(count_includes("sim/x.h", line) == 1);
    CHECK(count_includes("system/x.cpp", line) == 0);
    CHECK(count_includes("models/text/x.cpp", line) == 0);
  }
  CHECK(count_includes("sim/x.cpp", "#include <cuda_runtime.h>") == 1);
  CHECK(count_includes("gpu/x.cpp", "#include <cuda_runtime.h>") == 0);
  CHECK(count_includes("tests/x.cpp", "#include <cuda_runtime.h>") == 1);
  CHECK(count_includes("tests/gpu/x.cpp", "#include <cuda_runtime.h>") == 0);
  CHECK(check_includes({"core/x.h", "#include <vector>\n"}).size() == 1);  // no #pragma once
}

TEST_CASE("the README of a room names what the room may include", "[tidy]") {
  for (const SourceFile& file : repository()) {
    if (!file.path.ends_with("README.md")) continue;
    INFO(file.path);
    CHECK(readme_fault(file) == "");
  }
  const auto fault = [](const std::string& text) {
    return readme_fault({"core/metrics/README.md", text});
  };
  CHECK(fault("May include: `core/base`, `core/engine`; `.cpp` files also `core/config`.\n") == "");
  const std::string others =
      "\"May include:\" names other folders than tests/house/tidy_rooms.cpp: `core/base` "
      "`core/config` `core/engine`";
  CHECK(fault("May include: `core/base`, `core/engine`.\n") == others);
  CHECK(fault("May include: `core/base`, `core/config`, `core/engine`, `core/run`.\n") == others);
  CHECK(fault("Says nothing.\n") == "does not say what the room \"May include:\"");
  CHECK(readme_fault({"docs/README.md", "no room"}) == "");
}

TEST_CASE("checker: packages by hash", "[tidy][checker]") {
  const std::string options = "\n    \"-q\",";
  const auto pips = [](const std::string& text) { return check_pip({"tools/x", text}).size(); };
  CHECK(pips("run([python, \"-m\", \"pip\", \"install\"," + options + " \"a==1\"])\n") == 1);
  CHECK(pips("bin/pip download a==1\n") == 1);
  CHECK(pips("run([\"-m\", \"pip\", verb," + options + " \"--require-hashes\"])\n") == 0);
  CHECK(pips("bin/pip install --require-hashes -r x.txt\n") == 0);
  CHECK(pips("exit(\"needs: pip install torch\")\n") == 0);  // for people
  CHECK(check_pip({"docs/x.md", "bin/pip install a\n"}).empty());

  const auto requirements = [](const std::string& text) {
    return check_requirements({"tools/requirements/x.txt", text}).size();
  };
  const std::string hash = "--hash=sha256:" + std::string(64, 'a');
  CHECK(requirements("a==1 \\\n    " + hash + " \\\n    " + hash + "\nb==2 " + hash + "\n") == 0);
  CHECK(requirements("a==1\n") == 1);
  CHECK(requirements("a==1 \\\n    " + hash + "\nb==2\n") == 1);
  CHECK(requirements("a>=1 " + hash + "\n") == 1);
  CHECK(requirements("--index-url https://x\na==1 " + hash + "\n") == 1);
}

TEST_CASE("checker: names of products", "[tidy][checker]") {
  const auto faults = [](const std::string& path, const std::string& text) {
    return check_product_names({path, text}).size();
  };
  for (const char* code :
       {"int vllm_minor;", "VllmConfig c;", "constexpr int kSglangKeys;", "f(\"vllm\");",
        "#include \"core/scenario/sglang_memory.h\"", "bool is_trtllm;", "x = \"llama.cpp\";",
        "NanoVllmConfig x;", "nano_vllm()", "kOrca", "enum E { TensorRtLlm };", "make_sarathi();",
        "R\"(FastGen)\""}) {
    INFO(code);
    CHECK(faults("core/x.cpp", code) == 1);
    CHECK(faults("sim/x.h", code) == 1);
    CHECK(faults("tools/commands/x.cpp", code) == 1);
    CHECK(faults("engines/vllm/x.cpp", code) == 0);
    CHECK(faults("core/README.md", code) == 0);
    CHECK(faults("core/x.cpp", std::string("f(\"//\");  // ") + code) == 0);
  }
  CHECK(faults("core/x.cpp", "LlamaForCausalLM forCall; /* vLLM 0.33 */ llama; \"gguf\"") == 0);
  CHECK(check_product_names({"core/x.cpp", "int a;\nint vllm, sglang;\n"})[0].line == 2);
  CHECK(faults("study/x.cpp", "if (config.policy == \"static\") return;") == 1);
  CHECK(faults("study/x.cpp", "if (policy->name != \"slo\") return;") == 1);
  CHECK(faults("study/x.cpp", "if (a.policy == b.policy) return \"static\";") == 0);
  CHECK(check_product_list({}).size() > 0);
}

TEST_CASE("checker: orphans", "[tidy][checker]") {
  const SourceFile header{"core/base/x.h", "#pragma once\n"};
  const SourceFile own{"core/base/x.cpp", "#include \"core/base/x.h\"\n"};
  CHECK(check_orphans({header, own}).size() == 1);
  CHECK(check_orphans({header, own, {"core/base/y.cpp", own.text}}).empty());
  CHECK(check_orphans({{"core/x.cpp", ""}}).size() == 1);
  CHECK(check_orphans({{"elsewhere/x.cu", ""}}).size() == 1);
}

TEST_CASE("checker: determinism", "[tidy][checker]") {
  CHECK(count_determinism("core/x.cpp", "std::unordered_map<int, int> m;") == 1);
  CHECK(count_determinism("sim/x.cpp", "auto t = std::chrono::steady_clock::now();") == 1);
  CHECK(count_determinism("core/x.cpp", "int x = rand();") == 1);
  CHECK(count_determinism("core/x.cpp", "int x = operand();") == 0);
  CHECK(count_determinism("core/x.cpp", "const char* x = std::getenv(name);") == 1);
  CHECK(count_determinism("core/x.cpp", "std::mt19937 g;") == 1);
  CHECK(count_determinism("core/x.cpp", "std::normal_distribution<double> d;") == 1);
  CHECK(count_determinism("core/x.cpp", "boost::random::normal_distribution<double> d;") == 1);
  CHECK(count_determinism("core/x.cpp", "const double y = std::exp(x);") == 1);
  CHECK(count_determinism("sim/x.cpp", "float y = logf(x) + powl(x, 2);") == 1);
  CHECK(count_determinism("sim/x.cpp", "std::transform(a, b, c, std::log1p);") == 1);
  CHECK(count_determinism("core/x.cpp", "std::sqrt(exp_of(x)) + expected(x) + exponential(1);") ==
        0);
  CHECK(count_determinism("cpu/x.cpp", "const double y = std::exp(x);") == 0);
  CHECK(count_determinism("sim/x.cpp", "auto t = time(nullptr);") == 1);
  CHECK(count_determinism("sim/x.cpp", "auto h = std::hash<int>{}(1);") == 1);
  CHECK(count_determinism("sim/x.cpp", "// rand() would be wrong here") == 0);
  CHECK(count_determinism("sim/x.cpp", "std::from_chars(begin, end, x);") == 1);
  CHECK(count_determinism("core/x.cpp", "const auto x = std::bit_cast<int>(y);") == 1);
  CHECK(count_determinism("core/base/number_chars.h", "std::to_chars(begin, end, x);") == 0);
  CHECK(count_determinism("tools/x.cpp", "auto t = std::chrono::steady_clock::now();") == 0);
}

TEST_CASE("checker: type names", "[tidy][checker]") {
  const std::string x = "namespace m {\nstruct X {};\n}\n";
  const std::vector<Violation> twice = type_names(x, "\n\n" + x);
  REQUIRE(twice.size() == 1);
  CHECK(twice[0].path == "core/b.h");
  CHECK(twice[0].line == 4);
  CHECK(twice[0].what == "m::X is also defined in core/a.h");
  for (const char* other :
       {"class X final : public B {\n int f() { return 1; }\n};", "enum class X : int { A };",
        "template <class T, class = U<T>>\nstruct X {};", "union X { int i; };",
        "struct alignas(16) X {};", "class [[nodiscard]] X {};", "enum X { A };"}) {
    INFO(other);
    CHECK(type_names(x, "namespace m {\n" + std::string(other) + "\n}\n").size() == 1);
  }
  for (const char* other : {"struct X;", "enum class X : int;", "namespace n {\nstruct X {};\n}",
                            "namespace {\nstruct X {};\n}", "struct Y {\n  struct X {};\n};",
                            "void f() {\n  struct X {};\n}", "X f(struct X x = {}) { return x; }",
                            "X x{1};", "struct X y{1};", "template <>\nstruct X<int> {};",
                            "struct X::Y {};", "enum { kX };", "// struct X {};"}) {
    INFO(other);
    CHECK(type_names(x, "namespace m {\n" + std::string(other) + "\n}\n").empty());
  }
  CHECK(type_names("struct A::B {};", "struct A::B {};").size() == 1);
  CHECK(type_names("extern \"C\" {\nstruct C {};\n}\n", "struct C {};").size() == 1);
  CHECK(type_names("#if A\nstruct D {};\n#else\nstruct D { int i; };\n#endif\n", "").empty());
}

TEST_CASE("checker: licence", "[tidy][checker]") {
  const std::string line = "// " + std::string(kLicenceLine) + "\n";
  CHECK(check_licence({"a.cpp", line + "int a;\n"}).empty());
  CHECK(check_licence({"a", "#!/bin/sh\n" + line}).empty());
  CHECK(check_licence({"a.cpp", "int a;\n\n" + line}).size() == 1);
  CHECK(check_licence({"a.cpp", ""}).size() == 1);
}

TEST_CASE("checker: hidden functions", "[tidy][checker]") {
  const auto count = [](const std::string& header, const std::string& anonymous) {
    return check_hidden_functions(
               {{header, "std::string shown(int a);\nint other(int a);\n"},
                {"sim/x/a.cpp", "namespace {\n\n" + anonymous + "\n}  // namespace\n"}})
        .size();
  };
  CHECK(count("sim/x/b.h", "std::string shown(double a) {") == 1);
  CHECK(count("core/base/b.h", "std::string shown(double a) {") == 1);
  CHECK(count("sim/y/b.h", "std::string shown(double a) {") == 0);
  CHECK(count("sim/x/b.h", "std::string is_shown(double a) {") == 0);
  CHECK(count("sim/x/b.h", "  shown(1);") == 0);
}

TEST_CASE("checker: namespaces of tests", "[tidy][checker]") {
  CHECK(check_test_namespace({"tests/a/test_b.cpp", "namespace x::TEST_FILE {\n"}).empty());
  CHECK(check_test_namespace({"tests/a/test_b.cpp", "namespace {\n"}).size() == 1);
  CHECK(check_test_namespace({"tests/a/lab.cpp", "namespace {\n"}).empty());
}

TEST_CASE("checker: comments", "[tidy][checker]") {
  const auto faults = [](const std::string& text) {
    return check_comments({"core/x.h", text}).size();
  };
  for (const char* comment :
       {"The same.", "The same", "The same, but later.", "The same for a text.",
        "The same as f() does.", "Of this plan.", "Of one request.", "Of the same step.",
        "Those of a run.", "As above.", "Both.", "the same", "Likewise."}) {
    INFO(comment);
    const std::string line = "// " + std::string(comment);
    CHECK(faults(line + "\nint a;\n") == 1);
    CHECK(faults("int a;  " + line + "\n") == 1);
    CHECK(faults("int a;\n  //< " + std::string(comment) + "\n") == 1);
    CHECK(faults("// A sentence that goes on:\n" + line + "\n") == 0);
    CHECK(faults("f(\"" + line + "\");\n") == 0);
    CHECK(check_comments({"docs/x.md", line}).empty());
    CHECK(check_comments({"reports/x.js", "let a; " + line}).size() == 1);
  }
  for (const char* comment :
       {"The same seed gives the same digest.", "The same steps, in two passes.", "Both are read.",
        "Of equal matches the first one counts.", "the same shape", "of this plan", "Thosely"}) {
    INFO(comment);
    CHECK(faults("// " + std::string(comment) + "\n") == 0);
  }
  CHECK(check_comments({"core/x.h", "int a;  // fine\n\n// Of it.\n"}).at(0).line == 3);
  CHECK(faults("int a;  // fine\n// Of it.\n") == 1);  // a comment of its own
}

TEST_CASE("checker: numbers in texts", "[tidy][checker]") {
  const auto faults = [](const char* text) {
    return check_joined_numbers({"core/x.cpp", text}).size();
  };
  CHECK(faults("f(\"a \" + std::to_string(b));") == 1);
  CHECK(faults("f(std::to_string(g(b)) +\n  \" a\");") == 1);
  CHECK(faults("f(a + std::to_string(b) + std::to_string(c));") == 2);
  CHECK(faults("\nf(a +\n  std::to_string(b));") == 1);
  CHECK(check_joined_numbers({"sim/x.cpp", "\nf(a +\n  std::to_string(b));"}).at(0).line == 3);
  for (const char* text : {"f(std::to_string(a + b));", "a += std::to_string(b);", "f(\"+\", a);",
                           "f(std::to_string(b), \"+\" + a);", "// a + std::to_string(b)"}) {
    INFO(text);
    CHECK(faults(text) == 0);
  }
  for (const char* path : {"core/x.h", "gpu/plan/x.cpp", "tests/x.cpp"}) {
    CHECK(check_joined_numbers({path, "a + std::to_string(b)"}).empty());
  }
}

TEST_CASE("checker: words and layout", "[tidy][checker]") {
  CHECK(check_words({"core/x.h", "// fine\n"}).empty());
  const auto found = check_words({"core/x.h",
                                  "\n// TO"
                                  "DO: later\n"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].line == 2);
  CHECK(check_words({"README.md",
                     "not "
                     "implemented"})
            .size() == 1);
  CHECK(check_top_level_name("core").empty());
  CHECK(check_top_level_name(".git").empty());
  CHECK(check_top_level_name("src").size() == 1);
}

}  // namespace TEST_FILE
