// SPDX-License-Identifier: Apache-2.0
// The store of matrix product choices: its file, and what it makes of files that are not its own.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/base/json.h"
#include "gpu/plan/gemm_store.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

GemmKey random_key(Rng& rng) {
  GemmKey key;
  key.n = draw(rng, 1, 1 << 20);
  key.k = draw(rng, 1, 1 << 20);
  key.rows = draw(rng, 1, 3);
  key.adds_output = chance(rng, 0.5);
  key.has_float_output = chance(rng, 0.5);
  key.is_invariant = chance(rng, 0.5);
  return key;
}

GemmChoice random_choice(Rng& rng) {
  GemmChoice choice;
  for (std::uint64_t& word : choice.algorithm) {
    word = chance(rng, 0.2) ? std::numeric_limits<std::uint64_t>::max() : rng();
    if (chance(rng, 0.2)) word = 0;
  }
  choice.microseconds = chance(rng, 0.1) ? 0 : rng.uniform() * 1e4;
  choice.name = "algo " + std::to_string(draw(rng, 0, 99)) + ", \"tile\" 4";
  return choice;
}

GemmStore random_store(Rng& rng, const std::string& machine) {
  GemmStore store(machine);
  for (std::int32_t i = draw(rng, 0, 30); i > 0; --i)
    store.put(random_key(rng), random_choice(rng));
  return store;
}

GemmStore read_store(const std::string& machine, const std::string& path) {
  GemmStore store(machine);
  store.read(path);
  return store;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::size_t num_files(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

constexpr const char* kChoice =
    R"({"n": 8, "k": 16, "rows": 32, "adds_output": true, "has_float_output": false,
        "is_invariant": true, "algorithm": ["0000000000000001", "0000000000000002",
        "0000000000000003", "0000000000000004", "0000000000000005", "0000000000000006",
        "0000000000000007", "ffffffffffffffff"], "microseconds": 1.5, "name": "algo 66"})";

std::string file_with(const std::string& choices) {
  return R"({"version": 1, "machines": {"gpu": [)" + choices + "]}}";
}

// The choice with one of its fields replaced, or taken out where `value` is empty.
std::string choice_with(const std::string& key, const std::string& value) {
  Json choice = Json::parse(kChoice);
  choice.erase(key);
  if (!value.empty()) choice[key] = Json::parse(value);
  return choice.dump();
}

}  // namespace

TEST_CASE("a store reads back what it wrote", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/gemm.json";
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "gemm_store");
    const GemmStore store = random_store(rng, "gpu");
    store.write(path);
    const GemmStore read = read_store("gpu", path);
    CHECK(read.choices() == store.choices());
    CHECK_FALSE(read.has_changed());
  }
  CHECK(num_files(folder.path()) == 1);
}

TEST_CASE("the layout of a store's file", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.write("gemm.json", file_with(kChoice));
  const GemmStore store = read_store("gpu", path);
  const GemmKey key{8, 16, 32, true, false, true};
  REQUIRE(store.find(key) != nullptr);
  CHECK(*store.find(key) == GemmChoice{{1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}, 1.5, "algo 66"});
  store.write(path);
  CHECK(Json::parse(read_text(path)) == Json::parse(file_with(kChoice)));
}

TEST_CASE("every field of a key tells choices apart", "[gemm]") {
  const GemmKey key{8, 16, 32, false, false, false};
  GemmStore store("gpu");
  store.put(key, {{1}, 1, "one"});
  for (const GemmKey& other :
       {GemmKey{9, 16, 32, false, false, false}, GemmKey{8, 17, 32, false, false, false},
        GemmKey{8, 16, 33, false, false, false}, GemmKey{8, 16, 32, true, false, false},
        GemmKey{8, 16, 32, false, true, false}, GemmKey{8, 16, 32, false, false, true}}) {
    CHECK(store.find(other) == nullptr);
  }
  REQUIRE(store.find(key) != nullptr);
  CHECK(store.find(key)->name == "one");
  store.put(key, {{2}, 1, "two"});
  CHECK(store.find(key)->name == "two");
  CHECK(store.choices().size() == 1);
}

TEST_CASE("a store knows whether it changed", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.write("gemm.json", file_with(kChoice));
  GemmStore store("gpu");
  CHECK_FALSE(store.has_changed());
  const GemmKey key{1, 2, 3, false, false, false};
  store.put(key, {});
  CHECK(store.has_changed());
  store.read(path);
  CHECK_FALSE(store.has_changed());
  CHECK(store.choices().size() == 2);
  store.erase({4, 5, 6, false, false, false});
  CHECK_FALSE(store.has_changed());
  store.erase(key);
  CHECK(store.has_changed());
  CHECK(store.choices().size() == 1);
}

TEST_CASE("what is read stands before what was there", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.write("gemm.json", file_with(kChoice));
  const GemmKey key{8, 16, 32, true, false, true};
  GemmStore store("gpu");
  store.put(key, {{}, 9, "old"});
  store.read(path);
  CHECK(store.find(key)->name == "algo 66");
}

TEST_CASE("machines share a file", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/gemm.json";
  Rng rng(7, "gemm_store");
  const GemmStore one = random_store(rng, "one, \"quoted\"");
  const GemmStore two = random_store(rng, "two");
  one.write(path);
  two.write(path);
  CHECK(read_store("one, \"quoted\"", path).choices() == one.choices());
  CHECK(read_store("two", path).choices() == two.choices());
  CHECK(read_store("three", path).choices().empty());
  GemmStore("two").write(path);  // its own are replaced
  CHECK(read_store("two", path).choices().empty());
  CHECK(read_store("one, \"quoted\"", path).choices() == one.choices());
}

TEST_CASE("no file and files of another version give no choices", "[gemm]") {
  const ScratchFolder folder;
  CHECK(read_store("gpu", folder.path() + "/missing.json").choices().empty());
  CHECK(read_store("gpu", "").choices().empty());
  GemmStore("gpu").write("");
  const std::string newer =
      folder.write("newer.json", R"({"version": 2, "machines": "of another kind"})");
  CHECK(read_store("gpu", newer).choices().empty());
  Rng rng(8, "gemm_store");
  const GemmStore store = random_store(rng, "gpu");
  store.write(newer);
  CHECK(read_store("gpu", newer).choices() == store.choices());
}

TEST_CASE("malformed files are errors that name file and key", "[gemm]") {
  const ScratchFolder folder;
  const auto message_of = [&](const std::string& text) {
    const std::string path = folder.write("gemm.json", text);
    GemmStore store("gpu");
    store.put({1, 2, 3, false, false, false}, {});
    std::string message = error_of([&] { store.read(path); });
    CHECK(store.choices().size() == 1);
    CHECK(message.find(path + ": ") == 0);
    CHECK(message.find("; allowed: a file that Metronome wrote") != std::string::npos);
    // Nor is such a file replaced: what it says of other machines would be lost.
    if (message.find("choice ") == std::string::npos) {
      CHECK(error_of([&] { store.write(path); }) == message);
      CHECK(read_text(path) == text);
    }
    return message;
  };
  struct Case {
    std::string text;
    std::string said;
  };
  const Case cases[] = {
      {"", "is not JSON"},
      {"{", "is not JSON"},
      {std::string("{}\0", 3), "is not JSON"},
      {R"({"version": 1e999})", "is not JSON"},
      {"[]", "must be an object"},
      {"{}", "version: is missing"},
      {R"({"version": "1"})", "version: must be a number"},
      {R"({"version": 1})", "machines: is missing"},
      {R"({"version": 1, "machines": []})", "machines: must be an object"},
      {R"({"version": 1, "machines": {"other": 1}})", "machines: 'other' must be an array"},
      {file_with("1"), "choice 0 of 'gpu': must be an object"},
      {file_with(std::string(kChoice) + "," + kChoice), "choice 1 of 'gpu': rows: appears twice"},
      {file_with(choice_with("n", "")), "choice 0 of 'gpu': n: is missing"},
      {file_with(choice_with("n", "0")), "n: must be a count"},
      {file_with(choice_with("k", "-1")), "k: must be a count"},
      {file_with(choice_with("rows", "1.5")), "rows: must be a count"},
      {file_with(choice_with("rows", "18446744073709551615")), "rows: must be a count"},
      {file_with(choice_with("adds_output", "1")), "adds_output: must be true or false"},
      {file_with(choice_with("has_float_output", "null")), "has_float_output: must be true"},
      {file_with(choice_with("is_invariant", "")), "is_invariant: is missing"},
      {file_with(choice_with("algorithm", "8")), "algorithm: must be 8 words"},
      {file_with(choice_with("algorithm", R"(["0000000000000001"])")), "algorithm: must be 8"},
      {file_with(choice_with("algorithm", "[1,2,3,4,5,6,7,8]")), "algorithm: must be 8 words"},
      {file_with(choice_with("algorithm", R"(["1","2","3","4","5","6","7","8"])")),
       "algorithm: must be 8 words"},
      {file_with(choice_with("algorithm", R"(["000000000000000g","0000000000000002",
        "0000000000000003","0000000000000004","0000000000000005","0000000000000006",
        "0000000000000007","0000000000000008"])")),
       "algorithm: must be 8 words"},
      {file_with(choice_with("microseconds", "-1")), "microseconds: must be a number"},
      {file_with(choice_with("microseconds", "\"1\"")), "microseconds: must be a number"},
      {file_with(choice_with("name", "1")), "name: must be a string"},
  };
  for (const Case& malformed : cases) {
    CAPTURE(malformed.text);
    const std::string message = message_of(malformed.text);
    CAPTURE(message);
    CHECK(message.find(malformed.said) != std::string::npos);
  }
}

TEST_CASE("files that cannot be read or written are errors", "[gemm]") {
  const ScratchFolder folder;
  GemmStore store("gpu");
  CHECK(error_of([&] { store.read(folder.path()); }) ==
        folder.path() + ": is a folder; allowed: a file that Metronome wrote");
  const std::string nowhere = folder.path() + "/missing/gemm.json";
  const std::string message = error_of([&] { store.write(nowhere); });
  CHECK(message.find(nowhere + ": cannot be written: ") == 0);
  CHECK(num_files(folder.path()) == 0);
}

TEST_CASE("a write that fails leaves what was there", "[gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.write("gemm.json", file_with(kChoice));
  const std::string before = read_text(path);
  Rng rng(9, "gemm_store");
  GemmStore store("gpu");
  for (int i = 0; i < 50; ++i) store.put(random_key(rng), random_choice(rng));
  struct rlimit unlimited;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  struct rlimit limited = unlimited;
  limited.rlim_cur = 1000;  // bytes: the file is longer
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  const std::string message = error_of([&] { store.write(path); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(message.find(path + ": cannot be written: ") == 0);
  CHECK(read_text(path) == before);
  CHECK(num_files(folder.path()) == 1);
  store.write(path);
  CHECK(read_store("gpu", path).choices() == store.choices());
}

TEST_CASE("choices for people", "[gemm]") {
  GemmStore store("gpu");
  store.put({8, 16, 32, true, false, true}, {{}, 12.34, "algo 66, tile 1"});
  store.put({8, 16, 16, true, false, false}, {{}, 1234.5, "algo 24"});
  store.put({8, 16, 16, false, true, false}, {{}, 1, "algo 6"});
  CHECK(describe_gemm_choices(store) ==
        "n 8, k 16, float32 out\n"
        "      16 rows fastest         1.0 us  algo 6\n"
        "n 8, k 16, bfloat16 out, added\n"
        "      16 rows fastest      1234.5 us  algo 24\n"
        "      32 rows invariant      12.3 us  algo 66, tile 1\n");
  CHECK(describe_gemm_choices(GemmStore("gpu")).empty());
}

}  // namespace TEST_FILE
