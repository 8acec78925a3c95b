// SPDX-License-Identifier: Apache-2.0
// The GGUF format: files that are right, and one test for each way of being wrong.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/model/model_file.h"
#include "models/gguf/gguf_file.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;
using namespace metronome::testing::gguf_type;

constexpr const char* kWholeFile = "; allowed: a whole file in the GGUF format";

std::string parse_error(const std::string& file) {
  return error_of([&] { GgufFile(bytes_of_text(file), "m.gguf"); });
}
std::string parse_error(const GgufBytes& file) { return parse_error(file.bytes()); }

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST_CASE("a file of every type of value", "[core][gguf]") {
  GgufBytes bytes;
  bytes.add("u8", kUint8, low_bytes(255, 1)).add("i8", kInt8, low_bytes(0xfe, 1));
  bytes.add("u16", kUint16, low_bytes(65535, 2)).add("i16", kInt16, low_bytes(0x8000, 2));
  bytes.u32("u32", 4294967295).add("i32", kInt32, low_bytes(0xffffffff, 4));
  bytes.add("u64", kUint64, low_bytes(INT64_MAX, 8));
  bytes.add("i64", kInt64, low_bytes(1ULL << 63, 8));
  bytes.add("huge", kUint64, low_bytes(1ULL << 63, 8));
  bytes.f32("f32", 0.5f).add("f64", kFloat64, low_bytes(0x3fd0000000000000, 8));
  bytes.truth("yes", true).truth("no", false).text("text", "h\xc3\xa9llo");
  bytes.texts("texts", {"a", "", "ccc"}).floats("floats", {1.0f, -2.0f});
  bytes.i32s("ints", {-1, 2}).array("bools", kBool, 3, std::string("\x01\x00\x01", 3));
  bytes.array("empty", kArray, 0, "");
  for (const std::uint32_t version : {2U, 3U}) {
    bytes.version = version;
    const std::string stored = bytes.bytes();
    const GgufFile file(bytes_of_text(stored), "m.gguf");
    CHECK(file.integer("u8") == 255);
    CHECK(file.integer("i8") == -2);
    CHECK(file.integer("u16") == 65535);
    CHECK(file.integer("i16") == -32768);
    CHECK(file.integer("u32") == 4294967295);
    CHECK(file.integer("i32") == -1);
    CHECK(file.integer("u64") == INT64_MAX);
    CHECK(file.integer("i64") == INT64_MIN);
    CHECK(file.number("f32") == 0.5);
    CHECK(file.number("f64") == 0.25);
    CHECK(file.number("u8") == 255.0);
    CHECK(file.boolean("yes") == true);
    CHECK(file.boolean("no") == false);
    CHECK(file.text("text") == "h\xc3\xa9llo");
    CHECK(file.texts("texts") == std::vector<std::string_view>{"a", "", "ccc"});
    CHECK(file.floats("floats") == std::vector<float>{1.0f, -2.0f});
    CHECK(file.integers("ints") == std::vector<std::int64_t>{-1, 2});
    CHECK(file.booleans("bools") == std::vector<bool>{true, false, true});
    CHECK(!file.integer("absent"));
    CHECK(!file.text("absent"));
    CHECK(file.texts("absent").empty());
    CHECK(file.tensors().empty());
  }
}

TEST_CASE("values of another type are refused with the key", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("text", "x").u32("n", 1).floats("floats", {1}).truth("yes", true);
  bytes.add("huge", kUint64, low_bytes(1ULL << 63, 8));
  const std::string stored = bytes.bytes();
  const GgufFile file(bytes_of_text(stored), "m.gguf");
  CHECK(error_of([&] { file.integer("text"); }) ==
        "m.gguf: text: is a STRING; allowed: an integer");
  CHECK(error_of([&] { file.integer("floats"); }) ==
        "m.gguf: floats: is an array of 1 FLOAT32; allowed: an integer");
  CHECK(error_of([&] { file.integer("huge"); }) ==
        "m.gguf: huge: is above 2^63 - 1; allowed: an integer up to it");
  CHECK(error_of([&] { file.number("yes"); }) == "m.gguf: yes: is a BOOL; allowed: a number");
  CHECK(error_of([&] { file.boolean("n"); }) == "m.gguf: n: is a UINT32; allowed: a BOOL");
  CHECK(error_of([&] { file.text("n"); }) == "m.gguf: n: is a UINT32; allowed: a STRING");
  CHECK(error_of([&] { file.texts("floats"); }) ==
        "m.gguf: floats: is an array of 1 FLOAT32; allowed: an array of STRING");
  CHECK(error_of([&] { file.texts("text"); }) ==
        "m.gguf: text: is a STRING; allowed: an array of STRING");
  CHECK(error_of([&] { file.integers("floats"); }) ==
        "m.gguf: floats: is an array of 1 FLOAT32; allowed: an array of integers");
  CHECK(error_of([&] { file.floats("n"); }) ==
        "m.gguf: n: is a UINT32; allowed: an array of FLOAT32");
}

TEST_CASE("tensors have their bytes", "[core][gguf]") {
  GgufBytes bytes;
  bytes.tensor("w", 0, {2, 3}, std::string(24, 'w')).tensor("b", 1, {3}, "bbbbbb");
  bytes.tensor("q", 12, {256, 2}, std::string(288, 'q')).tensor("s", 0, {}, "ssss");
  const std::string stored = bytes.bytes();
  const GgufFile file(bytes_of_text(stored), "m.gguf");
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].name == "b");
  const GgufTensor* w = file.find_tensor("w");
  REQUIRE(w != nullptr);
  CHECK(w->type->name == "F32");
  CHECK(w->shape == std::vector<std::int64_t>{3, 2});
  CHECK(text_of(w->bytes) == std::string(24, 'w'));
  CHECK(text_of(file.find_tensor("b")->bytes) == "bbbbbb");
  CHECK(file.find_tensor("q")->type->name == "Q4_K");
  CHECK(text_of(file.find_tensor("q")->bytes) == std::string(288, 'q'));
  CHECK(file.find_tensor("s")->shape.empty());
  CHECK(text_of(file.find_tensor("s")->bytes) == "ssss");
  CHECK(file.find_tensor("absent") == nullptr);
}

TEST_CASE("the alignment is the file's", "[core][gguf]") {
  GgufBytes bytes;
  bytes.alignment = 64;
  bytes.u32("general.alignment", 64).tensor("a", 0, {1}, "aaaa").tensor("b", 0, {1}, "bbbb");
  const std::string stored = bytes.bytes();
  const GgufFile file(bytes_of_text(stored), "m.gguf");
  CHECK(text_of(file.find_tensor("b")->bytes) == "bbbb");
  const std::string allowed = "; allowed: a UINT32 that is a power of two, at most 1048576";
  for (const std::uint32_t wrong : {0U, 3U, 48U, 1U << 21}) {
    CHECK(parse_error(GgufBytes().u32("general.alignment", wrong)) ==
          "m.gguf: general.alignment: is " + std::to_string(wrong) + allowed);
  }
  CHECK(parse_error(GgufBytes().text("general.alignment", "32")) ==
        "m.gguf: general.alignment: is a STRING" + allowed);
}

TEST_CASE("files that are no GGUF", "[core][gguf]") {
  CHECK(parse_error(std::string()) ==
        std::string("m.gguf: header: does not begin with GGUF") + kWholeFile);
  CHECK(parse_error(std::string("GGML\x01\x00", 6)) ==
        std::string("m.gguf: header: does not begin with GGUF") + kWholeFile);
  CHECK(parse_error(std::string("version https://git-lfs.github.com/spec/v1\n")) ==
        "m.gguf: header: is a Git LFS pointer; allowed: the file that `git lfs pull` downloads");
  GgufBytes bytes;
  bytes.version = 1;
  CHECK(parse_error(bytes) == "m.gguf: version: is 1; allowed: 2, 3");
  bytes.version = 4;
  CHECK(parse_error(bytes) == "m.gguf: version: is 4; allowed: 2, 3");
  bytes.version = 3U << 24;
  CHECK(parse_error(bytes) ==
        "m.gguf: version: is big-endian; allowed: a little-endian file of version 2 or 3");
  CHECK(parse_error(std::string("GGUF\x03\x00", 6)) ==
        std::string("m.gguf: version: needs 4 bytes at byte 4 of 6") + kWholeFile);
}

TEST_CASE("a file that is cut anywhere is refused in one line", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("text", "abc").texts("texts", {"a", "bb"}).i32s("ints", {1, 2}).truth("yes", true);
  bytes.array("nested", kArray, 1, low_bytes(kString, 4) + low_bytes(1, 8) + gguf_string("inner"));
  bytes.tensor("w", 0, {2, 3}, std::string(24, 'w')).tensor("b", 1, {3}, "bbbbbb");
  const std::string whole = bytes.bytes();
  CHECK(parse_error(whole).empty());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    // A copy of exactly its size, so that a sanitizer sees reads behind the end.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string error = error_of(
        [&] { GgufFile(std::as_bytes(std::span<const char>(cut.data(), size)), "m.gguf"); });
    CHECK(error.starts_with("m.gguf: "));
    CHECK(error.find("; allowed: ") != error.npos);
    CHECK(error.find('\n') == error.npos);
  }
}

TEST_CASE("counts that the file has no room for", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("a", "b");
  for (const std::int64_t extra : {std::int64_t{1}, std::int64_t{1} << 40, INT64_MAX - 1}) {
    bytes.extra_values = extra;
    CHECK(parse_error(bytes).starts_with("m.gguf: metadata count: is "));
    bytes.extra_values = 0;
    bytes.extra_tensors = extra;
    const std::string error = parse_error(bytes);
    CHECK((error.starts_with("m.gguf: tensor count: is ") ||
           error.starts_with("m.gguf: tensor 0: needs ")));
    bytes.extra_tensors = 0;
  }
  CHECK(parse_error(GgufBytes().array("a", kUint64, 1ULL << 61, "")) ==
        std::string("m.gguf: 'a': has 2305843009213693952 elements, and the file has room for 0") +
            kWholeFile);
  CHECK(parse_error(GgufBytes().array("a", kString, ~0ULL, std::string(16, 'x'))) ==
        std::string("m.gguf: 'a': has 18446744073709551615 elements, and the file has room for "
                    "2") +
            kWholeFile);
  CHECK(parse_error(GgufBytes().add("a", kString, low_bytes(~0ULL, 8))) ==
        std::string("m.gguf: 'a': needs 18446744073709551615 bytes at byte 45 of 45") + kWholeFile);
}

TEST_CASE("arrays nest four deep", "[core][gguf]") {
  const auto nested = [](int depth) {
    std::string elements;
    for (int i = 1; i < depth; ++i) {
      elements += low_bytes(i + 1 < depth ? kArray : kUint8, 4) + low_bytes(1, 8);
    }
    return GgufBytes().array("a", depth == 1 ? kUint8 : kArray, 1, elements + low_bytes(7, 1));
  };
  for (const int depth : {1, 2, 3, 4}) CHECK(parse_error(nested(depth)).empty());
  CHECK(parse_error(nested(5)) == "m.gguf: 'a': nests arrays too deeply; allowed: 4 levels");
  CHECK(parse_error(nested(100000)) == "m.gguf: 'a': nests arrays too deeply; allowed: 4 levels");
}

TEST_CASE("values that are not of the format", "[core][gguf]") {
  CHECK(parse_error(GgufBytes().add("a", 13, "four")) ==
        "m.gguf: 'a': has a value of type 13, which is not known; allowed: 0 to 12");
  CHECK(parse_error(GgufBytes().array("a", 99, 0, "")) ==
        "m.gguf: 'a': has a value of type 99, which is not known; allowed: 0 to 12");
  CHECK(parse_error(GgufBytes().add("a", kBool, "\x02")) ==
        "m.gguf: 'a': has a BOOL of 2; allowed: 0, 1");
  CHECK(parse_error(GgufBytes().array("a", kBool, 2, "\x01\x05")) ==
        "m.gguf: 'a': has a BOOL of 5; allowed: 0, 1");
  CHECK(parse_error(GgufBytes().u32("", 1)) ==
        "m.gguf: key 0: has a name of 0 bytes; allowed: 1 to 65535");
  CHECK(parse_error(GgufBytes().u32(std::string(65536, 'k'), 1)) ==
        "m.gguf: key 0: has a name of 65536 bytes; allowed: 1 to 65535");
  CHECK(parse_error(GgufBytes().u32("a", 1).u32("b", 2).u32("a", 1)) ==
        "m.gguf: key 'a': appears twice; allowed: once");
}

TEST_CASE("tensors that are not of the format", "[core][gguf]") {
  const std::string four = "abcd";
  CHECK(parse_error(GgufBytes().tensor("a", 0, {1}, four).tensor("a", 0, {1}, four)) ==
        "m.gguf: tensor 'a': appears twice; allowed: once");
  CHECK(parse_error(GgufBytes().tensor("a", 99, {1}, four))
            .starts_with(
                "m.gguf: tensor 'a': has type 99, which is not known; allowed: F32, F16, Q4_0, "));
  CHECK(
      parse_error(GgufBytes().tensor("a", 4, {1}, four))
          .starts_with(
              "m.gguf: tensor 'a': has type 4, which is not known"));  // Q4_2, which was taken out
  CHECK(parse_error(GgufBytes().tensor("a", 0, {1, 1, 1, 1, 1}, four)) ==
        "m.gguf: tensor 'a': has 5 dimensions; allowed: at most 4");
  const std::string dims = "; allowed: at least 1, and 2^63 - 1 elements in all";
  CHECK(parse_error(GgufBytes().tensor("a", 0, {0}, "")) ==
        "m.gguf: tensor 'a': has a dimension of 0" + dims);
  CHECK(parse_error(GgufBytes().tensor("a", 0, {1ULL << 32, 1ULL << 32}, "")) ==
        "m.gguf: tensor 'a': has a dimension of 4294967296" + dims);
  CHECK(parse_error(GgufBytes().tensor("a", 0, {~0ULL}, "")) ==
        "m.gguf: tensor 'a': has a dimension of 18446744073709551615" + dims);
  CHECK(parse_error(GgufBytes().tensor("a", 0, {1ULL << 62}, "")) ==
        std::string("m.gguf: tensor 'a': has more than 2^64 bytes") + kWholeFile);
  CHECK(parse_error(GgufBytes().tensor("a", 2, {33}, std::string(36, 'x'))) ==
        "m.gguf: tensor 'a': has rows of 33 elements of Q4_0; allowed: multiples of 32");
}

TEST_CASE("tensors that do not lie in the file", "[core][gguf]") {
  const std::string four = "abcd";
  CHECK(parse_error(GgufBytes().tensor_at("a", 0, {1}, 4, four + four)) ==
        "m.gguf: tensor 'a': begins at byte 4 of the data; allowed: multiples of 32");
  CHECK(parse_error(GgufBytes()
                        .tensor_at("a", 0, {9}, 0, std::string(36, 'x'))
                        .tensor_at("b", 0, {1}, 32, "")) ==
        "m.gguf: tensor 'b': begins at byte 32 of the data, inside the previous tensor, which ends "
        "at 36; allowed: tensors that share no byte");
  CHECK(parse_error(GgufBytes().tensor_at("a", 0, {2}, 0, four)) ==
        std::string("m.gguf: tensor 'a': begins at byte 0 of the data and has 8 of 4") +
            kWholeFile);
  CHECK(parse_error(GgufBytes().tensor_at("a", 0, {1}, ~0ULL - 31, four)) ==
        std::string("m.gguf: tensor 'a': begins at byte 18446744073709551584 of the data and has 4 "
                    "of 4") +
            kWholeFile);
}

TEST_CASE("any change of a file parses, or is refused in one line", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("text", "abc").texts("texts", {"a", "bb"}).i32s("ints", {1, 2}).truth("yes", true);
  bytes.tensor("w", 0, {2, 3}, std::string(24, 'w')).tensor("b", 1, {3}, "bbbbbb");
  const std::string whole = bytes.bytes();
  const std::uint64_t seed = 20;
  CAPTURE(seed);
  Rng rng(seed, "gguf");
  for (int i = 0; i < 5000; ++i) {
    std::string changed = whole;
    for (std::int32_t n = draw(rng, 1, 4); n > 0; --n) {
      const auto at =
          static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(changed.size()) - 1));
      changed[at] = static_cast<char>(chance(rng, 0.3) ? 0xff : draw(rng, 0, 255));
    }
    const std::string error = parse_error(changed);
    const bool is_fine = error.empty() || (error.starts_with("m.gguf: ") && error.size() < 1000 &&
                                           error.find('\n') == error.npos &&
                                           error.find("; allowed: ") != error.npos);
    if (!is_fine) FAIL(error);
  }
}

TEST_CASE("messages about GGUF files are one short line whatever a name holds", "[core][gguf]") {
  const std::string error =
      parse_error(GgufBytes().add(std::string("a\n\x1b") + std::string(1000, 'k'), 13, "four"));
  CAPTURE(error);
  CHECK(error.starts_with("m.gguf: 'a\\n\\x1bkkk"));
  CHECK(error.size() < 300);
}

TEST_CASE("a GGUF file is known by its ending or its first bytes", "[core][gguf]") {
  const ScratchFolder folder;
  folder.write("a.gguf", "x");
  folder.write("b.GGUF", "");
  folder.write("c", GgufBytes().text("a", "b").bytes());
  folder.write("d.bin", "GGU");
  folder.write("gguf", "");
  CHECK(is_gguf_file(folder.path() + "/a.gguf"));
  CHECK(is_gguf_file(folder.path() + "/b.GGUF"));
  CHECK(is_gguf_file(folder.path() + "/c"));
  CHECK(!is_gguf_file(folder.path() + "/d.bin"));
  CHECK(!is_gguf_file(folder.path() + "/gguf"));
  CHECK(!is_gguf_file(folder.path() + "/none.gguf"));
  CHECK(!is_gguf_file(folder.path()));
  CHECK(GgufFile(folder.path() + "/c").text("a") == "b");
  const std::string empty = folder.path() + "/b.GGUF";
  CHECK(error_of([&] { GgufFile{empty}; }) ==
        empty + ": is empty; allowed: a readable file in the GGUF format");
}

}  // namespace
}  // namespace metronome::TEST_FILE
