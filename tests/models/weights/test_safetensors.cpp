// SPDX-License-Identifier: Apache-2.0
// The safetensors format: files that are right, and one test for each way of being wrong.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "models/weights/float16.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/weights/safetensors_bytes.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

std::string parse_error(const std::string& file) {
  return error_of([&] { parse_safetensors(as_bytes(file), "m.safetensors"); });
}

std::string error(const std::string& header, const std::string& data = "") {
  return parse_error(safetensors_bytes(header, data));
}

// The error of a file of one tensor 'a' of these fields.
std::string entry_error(const std::string& fields, const std::string& data = "abcd") {
  return error("{\"a\":{" + fields + "}}", data);
}

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

constexpr const char* kWholeFile = "; allowed: a whole file in the safetensors format";
constexpr const char* kNoGap = "; allowed: consecutive tensors, without gap or overlap";

TEST_CASE("a file of two tensors, byte by byte", "[core][safetensors]") {
  const std::string header = R"({"__metadata__":{"format":"pt"},)" +
                             header_entry("w", "F32", "[1,2]", 2, 10) + "," +
                             header_entry("b", "BF16", "[1]", 0, 2) + "}  ";
  // bfloat16 1.5, then floats 1 and -2.
  const std::string data("\xc0\x3f\x00\x00\x80\x3f\x00\x00\x00\xc0", 10);
  const std::string file = safetensors_bytes(header, data);
  const std::vector<Tensor> tensors = parse_safetensors(as_bytes(file), "m.safetensors");
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "b");
  CHECK(tensors[0].type == TensorType::BFloat16);
  CHECK(tensors[0].type_name == "BF16");
  CHECK(tensors[0].shape == std::vector<std::int64_t>{1});
  CHECK(text_of(tensors[0].bytes) == data.substr(0, 2));
  CHECK(tensors[1].name == "w");
  CHECK(tensors[1].type == TensorType::Float32);
  CHECK(tensors[1].shape == std::vector<std::int64_t>{1, 2});
  CHECK(tensors[1].num_elements() == 2);
  CHECK(text_of(tensors[1].bytes) == data.substr(2));
}

TEST_CASE("every dtype has its size", "[core][safetensors]") {
  struct Case {
    const char* name;
    std::uint64_t num_bytes;
    TensorType type;
  };
  constexpr TensorType kOther = TensorType::Other;
  const Case cases[] = {
      {"BOOL", 1, kOther},       {"U8", 1, kOther},      {"I8", 1, kOther},
      {"F8_E4M3", 1, kOther},    {"F8_E5M2", 1, kOther}, {"F8_E8M0", 1, kOther},
      {"I16", 2, kOther},        {"U16", 2, kOther},     {"F16", 2, TensorType::Float16},
      {"I32", 4, kOther},        {"U32", 4, kOther},     {"BF16", 2, TensorType::BFloat16},
      {"F64", 8, kOther},        {"I64", 8, kOther},     {"F32", 4, TensorType::Float32},
      {"U64", 8, kOther},        {"C64", 8, kOther},     {"F8_E4M3FNUZ", 1, kOther},
      {"F8_E5M2FNUZ", 1, kOther}};
  for (const Case& known : cases) {
    INFO(known.name);
    const std::uint64_t size = 3 * known.num_bytes;
    const std::string header = "{" + header_entry("a", known.name, "[3]", 0, size) + "}";
    const std::string file = safetensors_bytes(header, std::string(size, 'x'));
    const std::vector<Tensor> tensors = parse_safetensors(as_bytes(file), "m.safetensors");
    REQUIRE(tensors.size() == 1);
    CHECK(tensors[0].type == known.type);
    CHECK(tensors[0].type_name == known.name);
    CHECK_FALSE(parse_error(file + "x").empty());
  }
}

TEST_CASE("scalars, tensors without elements and files without tensors", "[core][safetensors]") {
  CHECK(error("{}") == "");
  CHECK(error("{} \n ") == "");
  CHECK(error(R"({"__metadata__":{}})") == "");
  const std::string header = "{" + header_entry("scalar", "F32", "[]", 0, 4) + "," +
                             header_entry("front", "F32", "[0]", 0, 0) + "," +
                             header_entry("end", "F32", "[7,0]", 4, 4) + "," +
                             // No overflow: the product is zero before it could be too large.
                             header_entry("wide", "F32", "[0,9223372036854775807,8]", 4, 4) + "}";
  const std::string file = safetensors_bytes(header, "abcd");
  const std::vector<Tensor> tensors = parse_safetensors(as_bytes(file), "m.safetensors");
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[2].name == "scalar");
  CHECK(tensors[2].shape.empty());
  CHECK(tensors[2].num_elements() == 1);
  CHECK(tensors[2].bytes.size() == 4);
  CHECK(tensors[3].name == "wide");
  CHECK(tensors[3].num_elements() == 0);
  CHECK(tensors[3].bytes.empty());
}

TEST_CASE("files without a whole header", "[core][safetensors]") {
  CHECK(parse_error("") ==
        std::string("m.safetensors: is 0 bytes long, too short for a header") + kWholeFile);
  CHECK(parse_error("\x02\0\0\0\0\0\0").starts_with("m.safetensors: is 1 bytes long, too short"));
  CHECK(parse_error(little_endian(3, 8) + "{}") ==
        std::string("m.safetensors: its header is 3 bytes long, but the file only 10") +
            kWholeFile);
  CHECK(
      parse_error(little_endian(100'000'000, 8) + "{}")
          .starts_with("m.safetensors: its header is 100000000 bytes long, but the file only 10"));
  CHECK(parse_error(little_endian(100'000'001, 8) + "{}") ==
        "m.safetensors: its header is 100000001 bytes long, or this is another format; "
        "allowed: at most 100000000");
  // As a length this overflows when eight is added.
  CHECK(parse_error(std::string(8, '\xff') + "{}")
            .starts_with("m.safetensors: its header is 18446744073709551615 bytes long, or"));
  CHECK(parse_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n") ==
        "m.safetensors: is a Git LFS pointer; allowed: the file itself, which `git lfs pull` "
        "downloads");
}

TEST_CASE("headers that are not a JSON object", "[core][safetensors]") {
  const std::string brace =
      "m.safetensors: its header does not begin with a brace; allowed: a JSON object";
  CHECK(error("") == brace);
  CHECK(error(" {}") == brace);
  CHECK(error("[]") == brace);
  CHECK(error("\xef\xbb\xbf{}") == brace);
  CHECK(error("{") == "m.safetensors: header: is not JSON at byte 2; allowed: JSON");
  CHECK(error("{} x").starts_with("m.safetensors: header: is not JSON at byte 4"));
  CHECK(error("{'a':1}").starts_with("m.safetensors: header: is not JSON at byte 2"));
  CHECK(error("{\"\xff\":1}").starts_with("m.safetensors: header: is not JSON at byte 3"));
  // A parser that takes NUL for the end of the text would let anything stand behind it.
  CHECK(error(std::string("{}\0garbage", 10)) ==
        "m.safetensors: header: is not JSON, byte 2 is NUL; allowed: JSON");
  CHECK(entry_error(R"("dtype":"F32","shape":[1e999],"data_offsets":[0,4])") ==
        "m.safetensors: header: contains a number that is too large for JSON; allowed: JSON");
}

TEST_CASE("headers that nest without end", "[core][safetensors]") {
  const std::string deep =
      "m.safetensors: header: is nested too deeply; allowed: 2 levels below "
      "the outermost";
  CHECK(entry_error(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])") == deep);
  CHECK(entry_error(R"("dtype":"F32","shape":[{"b":1}],"data_offsets":[0,4])") == deep);
  CHECK(error("{\"a\":" + std::string(1'000'000, '[')) == deep);
}

TEST_CASE("names given twice", "[core][safetensors]") {
  const std::string a = header_entry("a", "F32", "[1]", 0, 4);
  CHECK(error("{" + a + "," + a + "}", "abcd") ==
        "m.safetensors: header: contains 'a' twice; allowed: every key once");
  CHECK(error("{" + header_entry("\\u0061", "F32", "[1]", 0, 4) + "," + a + "}", "abcd") ==
        "m.safetensors: header: contains 'a' twice; allowed: every key once");
  CHECK(entry_error(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])") ==
        "m.safetensors: header: contains 'a.dtype' twice; allowed: every key once");
  CHECK(error(R"({"__metadata__":{"k":"1","k":"2"}})") ==
        "m.safetensors: header: contains '__metadata__.k' twice; allowed: every key once");
  // The same key in two objects is no repetition.
  CHECK(error("{" + a + "," + header_entry("dtype", "F32", "[1]", 4, 8) + "}", "abcdefgh") == "");
}

TEST_CASE("metadata that are not texts", "[core][safetensors]") {
  CHECK(error(R"({"__metadata__":[1]})") ==
        "m.safetensors: __metadata__: must be an object, got [1]; allowed: an object of strings");
  CHECK(error(R"({"__metadata__":{"k":1}})") ==
        "m.safetensors: __metadata__: 'k' must be a string, got 1; allowed: an object of strings");
}

TEST_CASE("entries that lack or add something", "[core][safetensors]") {
  const std::string keys = "; allowed: dtype, shape, data_offsets";
  CHECK(error(R"({"a":7})") == "m.safetensors: tensor 'a': must be an object, got 7" + keys);
  CHECK(entry_error(R"("shape":[1],"data_offsets":[0,4])") ==
        "m.safetensors: tensor 'a': dtype is missing" + keys);
  CHECK(entry_error(R"("dtype":"F32","data_offsets":[0,4])") ==
        "m.safetensors: tensor 'a': shape is missing" + keys);
  CHECK(entry_error(R"("dtype":"F32","shape":[1])") ==
        "m.safetensors: tensor 'a': data_offsets is missing" + keys);
  CHECK(entry_error(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":0)") ==
        "m.safetensors: tensor 'a': unknown key 'x'" + keys);
}

TEST_CASE("dtypes that are not known", "[core][safetensors]") {
  const std::string names =
      " is not known; allowed: BOOL, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, "
      "F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64, C64";
  for (const std::string dtype : {"\"f32\"", "\"F4\"", "\"\"", "32", "null"}) {
    CHECK(entry_error("\"dtype\":" + dtype + R"(,"shape":[1],"data_offsets":[0,4])") ==
          "m.safetensors: tensor 'a': dtype " + dtype + names);
  }
}

TEST_CASE("shapes that are no counts", "[core][safetensors]") {
  const std::string allowed = "; allowed: a list of integers from 0 to 2^63 - 1";
  const auto shape_error = [](const std::string& shape) {
    return entry_error(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4])");
  };
  CHECK(shape_error("1") == "m.safetensors: tensor 'a': shape must be a list, got 1" + allowed);
  for (const std::string dim :
       {"-1", "1.0", "\"1\"", "true", "null", "9223372036854775808", "36893488147419103232"}) {
    INFO(dim);
    CHECK(shape_error("[1," + dim + "]")
              .starts_with("m.safetensors: tensor 'a': shape has the entry "));
  }
  CHECK(shape_error("[-1]") == "m.safetensors: tensor 'a': shape has the entry -1" + allowed);
  // Each product is a multiple of 2^64, which wraps to the right size with unchecked arithmetic.
  for (const std::string shape :
       {"[4294967296, 4294967296]", "[4611686018427387904]", "[4294967296, 4294967296, 0]"}) {
    CHECK(entry_error(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0])", "") ==
          "m.safetensors: tensor 'a': shape " + shape +
              " overflows; allowed: at most 2^63 - 1 "
              "bytes");
  }
}

TEST_CASE("offsets that are no range", "[core][safetensors]") {
  const std::string allowed = "; allowed: [begin, end] with 0 <= begin <= end";
  for (const std::string offsets : {"[4,0]", "[0]", "[0,2,4]", "[-4,0]", "[0.0,4]", "\"0,4\"", "[]",
                                    "[0,9223372036854775808]"}) {
    INFO(offsets);
    CHECK(entry_error(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets) ==
          "m.safetensors: tensor 'a': data_offsets are " + offsets + allowed);
  }
}

TEST_CASE("offsets that do not span the shape", "[core][safetensors]") {
  CHECK(error("{" + header_entry("a", "F16", "[2,3]", 0, 13) + "}", std::string(13, 'x')) ==
        "m.safetensors: tensor 'a': data_offsets span 13 bytes; allowed: 12, as F16 of shape "
        "[2, 3] needs");
  CHECK(error("{" + header_entry("a", "F32", "[]", 0, 0) + "}") ==
        "m.safetensors: tensor 'a': data_offsets span 0 bytes; allowed: 4, as F32 of shape [] "
        "needs");
}

TEST_CASE("tensors that do not tile the file", "[core][safetensors]") {
  const auto two = [](std::uint64_t begin, std::uint64_t end, std::size_t size) {
    return error("{" + header_entry("a", "U8", "[4]", 0, 4) + "," +
                     header_entry("b", "U8", "[" + std::to_string(end - begin) + "]", begin, end) +
                     "}",
                 std::string(size, 'x'));
  };
  CHECK(two(4, 8, 8) == "");
  // A download that was cut short.
  CHECK(two(4, 8, 7) ==
        std::string("m.safetensors: tensor 'b': data_offsets end at byte 8 of 7") + kWholeFile);
  CHECK(
      two(9223372036854775803u, 9223372036854775807u, 8) ==
      std::string("m.safetensors: tensor 'b': data_offsets end at byte 9223372036854775807 of 8") +
          kWholeFile);
  CHECK(two(3, 8, 8) == std::string("m.safetensors: tensor 'b': data_offsets begin at byte 3, "
                                    "inside the previous tensor, which ends at 4") +
                            kNoGap);
  CHECK(
      two(0, 4, 4).starts_with("m.safetensors: tensor 'b': data_offsets begin at byte 0, inside"));
  CHECK(
      two(2, 2, 4).starts_with("m.safetensors: tensor 'b': data_offsets begin at byte 2, inside"));
  CHECK(two(5, 8, 8) == std::string("m.safetensors: tensor 'b': data_offsets begin at byte 5, "
                                    "after a gap behind the previous tensor, which ends at 4") +
                            kNoGap);
  CHECK(two(4, 8, 9) ==
        std::string("m.safetensors: its tensors end at byte 8 of 9 after the header") + kNoGap);
  CHECK(error("{}", "x").starts_with("m.safetensors: its tensors end at byte 0 of 1"));
  CHECK(error("{" + header_entry("a", "U8", "[1]", 1, 2) + "}", "xx")
            .starts_with("m.safetensors: tensor 'a': data_offsets begin at byte 1, after a gap"));
}

TEST_CASE("messages are one short line whatever a name holds", "[core][safetensors]") {
  const std::string escape = error(R"({"a\n\u001b[31m":7})");
  CHECK(escape.starts_with("m.safetensors: tensor 'a\\n\\x1b[31m': must be an object"));
  const std::string long_name = error("{\"" + std::string(100'000, 'n') + "\":7}");
  CHECK(long_name.size() < 400);
  const std::string digits(100'000, '1');
  const std::string long_shape =
      entry_error(R"("dtype":"F32","shape":")" + digits + R"(","data_offsets":[0,4])");
  CHECK(long_shape.starts_with("m.safetensors: tensor 'a': shape must be a list, got \"111"));
  CHECK(long_shape.size() < 400);
}

TEST_CASE("an index leads from tensors to files", "[core][safetensors]") {
  const auto index_error = [](const std::string& json) {
    return error_of([&] { parse_safetensors_index(json, "i.json"); });
  };
  const auto files = parse_safetensors_index(
      R"({"metadata":{"total_size":8,"deep":{"er":[1]}},"weight_map":{"b":"2.st","a":"x/1.st"}})",
      "i.json");
  CHECK(files == std::map<std::string, std::string>{{"a", "x/1.st"}, {"b", "2.st"}});

  const std::string missing =
      "i.json: weight_map: is missing; allowed: an object from tensors to "
      "files";
  CHECK(index_error("{}") == missing);
  CHECK(index_error("[]") == missing);
  CHECK(index_error(R"({"weight_map":[]})") == missing);
  CHECK(index_error("") == "i.json: index: is not JSON at byte 1; allowed: JSON");
  CHECK(index_error(R"({"weight_map":{"a":"1","a":"2"}})") ==
        "i.json: index: contains 'weight_map.a' twice; allowed: every key once");
  CHECK(index_error("{\"x\":" + std::string(100'000, '[') + "}") ==
        "i.json: index: is nested too deeply; allowed: 16 levels below the outermost");
  for (const std::string file : {"\"\"", "\"/etc/passwd\"", "\"..\"", "\"../x.st\"",
                                 "\"a/../../x\"", "\"a/..\"", "\"a\\u0000b\"", "7", "null"}) {
    INFO(file);
    CHECK(index_error(R"({"weight_map":{"a":)" + file + "}}") ==
          "i.json: tensor 'a': cannot be in " + file +
              "; allowed: the name of a file in the same folder");
  }
  CHECK(index_error(R"({"weight_map":{"a":"..x"}})") == "");
}

TEST_CASE("a file is mapped, and stays so when it moves", "[core][safetensors]") {
  const ScratchFolder folder;
  const std::string path = folder.write(
      "m.safetensors", safetensors_bytes("{" + header_entry("b", "U8", "[2]", 0, 2) + "," +
                                             header_entry("d", "U8", "[1]", 2, 3) + "}",
                                         "xyz"));
  SafetensorsFile opened(path);
  const SafetensorsFile file = std::move(opened);
  CHECK(file.path() == path);
  CHECK(file.tensors().size() == 2);
  for (const char* name : {"", "a", "c", "e"}) CHECK(file.find(name) == nullptr);
  REQUIRE(file.find("b") != nullptr);
  CHECK(text_of(file.find("b")->bytes) == "xy");
  REQUIRE(file.find("d") != nullptr);
  CHECK(text_of(file.find("d")->bytes) == "z");
}

TEST_CASE("files that cannot be mapped", "[core][safetensors]") {
  const ScratchFolder folder;
  const auto open_error = [](const std::string& path) {
    return error_of([&] { SafetensorsFile file(path); });
  };
  const std::string allowed = "; allowed: a readable file in the safetensors format";
  const std::string absent = folder.path() + "/absent";
  CHECK(open_error(absent) == absent + ": cannot be read: No such file or directory" + allowed);
  CHECK(open_error(folder.path()) == folder.path() + ": is a folder" + allowed);
  CHECK(open_error("/dev/null") == "/dev/null: is not a file" + allowed);
  const std::string empty = folder.write("empty", "");
  CHECK(open_error(empty) == empty + ": is empty" + allowed);
  const std::string malformed = folder.write("malformed", "0123456");
  CHECK(open_error(malformed) ==
        malformed + ": is 7 bytes long, too short for a header" + kWholeFile);
}

TEST_CASE("halves are exact", "[core][float16]") {
  CHECK(float_of_half(0x0000) == 0.0f);
  CHECK_FALSE(std::signbit(float_of_half(0x0000)));
  CHECK(float_of_half(0x8000) == 0.0f);
  CHECK(std::signbit(float_of_half(0x8000)));
  CHECK(float_of_half(0x3c00) == 1.0f);
  CHECK(float_of_half(0xc000) == -2.0f);
  CHECK(float_of_half(0x3555) == 0x1.554p-2f);  // the half nearest to a third
  CHECK(float_of_half(0x7bff) == 65504.0f);
  CHECK(float_of_half(0x0400) == 0x1p-14f);      // smallest normal number
  CHECK(float_of_half(0x03ff) == 0x1.ff8p-15f);  // largest subnormal one
  CHECK(float_of_half(0x8001) == -0x1p-24f);
  CHECK(float_of_half(0x7c00) == std::numeric_limits<float>::infinity());
  CHECK(float_of_half(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(float_of_half(0x7c01)));
  CHECK(std::isnan(float_of_half(0xfe00)));
  // Every finite half, by the definition of the format.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>((bits >> 10) & 0x1fu);
    if (exponent == 0x1f) continue;
    const int mantissa = static_cast<int>(bits & 0x3ffu) + (exponent > 0 ? 1024 : 0);
    const double magnitude = std::ldexp(mantissa, std::max(exponent, 1) - 25);
    const double expected = (bits & 0x8000u) != 0 ? -magnitude : magnitude;
    if (static_cast<double>(float_of_half(static_cast<std::uint16_t>(bits))) != expected) {
      FAIL("half " << bits);
    }
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even", "[core][float16]") {
  CHECK(float_of_bf16(0x3fc0) == 1.5f);
  CHECK(bf16_of_float(1.5f) == 0x3fc0);
  CHECK(bf16_of_float(0x1.01p0f) == 0x3f80);        // a tie, down to even
  CHECK(bf16_of_float(0x1.03p0f) == 0x3f82);        // a tie, up to even
  CHECK(bf16_of_float(0x1.010002p0f) == 0x3f81);    // just above a tie
  CHECK(bf16_of_float(-0x1.00fffep0f) == 0xbf80);   // just below
  CHECK(bf16_of_float(0x1.fffffep127f) == 0x7f80);  // beyond the largest: infinity
  CHECK(bf16_of_float(std::numeric_limits<float>::infinity()) == 0x7f80);
  CHECK(std::isnan(float_of_bf16(bf16_of_float(std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose mantissa has low bits only must not become an infinity.
  CHECK(bf16_of_float(std::bit_cast<float>(0x7f800001u)) == 0x7fc0);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float_of_bf16(half)) && bf16_of_float(float_of_bf16(half)) != half) {
      FAIL("bfloat16 " << bits);
    }
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
