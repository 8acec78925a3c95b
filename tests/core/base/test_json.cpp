// SPDX-License-Identifier: Apache-2.0
// JSON values, and their text beside what nlohmann/json makes of it.
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

using Ordered = nlohmann::ordered_json;
using Sorted = nlohmann::json;
using Reason = JsonError::Reason;
using testing::chance;
using testing::draw;

template <class Call>
JsonError error_from(const Call& call) {
  try {
    call();
  } catch (const JsonError& error) {
    return error;
  }
  FAIL("nothing was thrown");
  std::abort();
}

std::string misuse(const std::function<void()>& call) {
  const JsonError error = error_from(call);
  CHECK(error.reason() == Reason::Misuse);
  return error.what();
}

// ---- random documents ----

std::string random_text(Rng& rng) {
  constexpr const char* kParts[] = {
      "a", "key", "\"", "\\", "\n",   "\x01",  "/",           "\x7f", "é", "世", "\xf0\x9f\x98\x80",
      " ", "{}",  "0",  "\t", "\x1f", "x y z", "\xef\xbf\xbd"};
  std::string text;
  for (std::int32_t n = draw(rng, 0, 6); n > 0; --n) {
    text += kParts[draw(rng, 0, std::size(kParts) - 1)];
  }
  return text;
}

double random_double(Rng& rng) {
  switch (draw(rng, 0, 3)) {
    case 0: return rng.uniform();
    case 1: return static_cast<double>(draw(rng, -1000, 1000)) / 8;
    case 2: {
      const int exponent = draw(rng, -1070, 1020);
      return std::ldexp(rng.uniform() - 0.5, exponent);
    }
    default: return std::bit_cast<double>(rng());  // anything, NaN and infinity too
  }
}

Ordered random_value(Rng& rng, int depth) {
  switch (draw(rng, 0, depth > 0 ? 8 : 6)) {
    case 0: return nullptr;
    case 1: return chance(rng, 0.5);
    case 2: return static_cast<std::int64_t>(rng());
    case 3: return rng();
    case 4: return draw(rng, -100, 100);
    case 5: return random_double(rng);
    case 6: return random_text(rng);
    case 7: {
      Ordered list = Ordered::array();
      for (std::int32_t n = draw(rng, 0, 5); n > 0; --n)
        list.push_back(random_value(rng, depth - 1));
      return list;
    }
    default: {
      Ordered object = Ordered::object();
      for (std::int32_t n = draw(rng, 0, chance(rng, 0.1) ? 60 : 5); n > 0; --n) {
        object[random_text(rng)] = random_value(rng, depth - 1);
      }
      return object;
    }
  }
}

// A text with a change that breaks, or nearly breaks, it.
std::string damaged(Rng& rng, std::string text) {
  constexpr std::string_view kBytes = "{}[]:,\"\\ \n0123456789+-.eEtrufalsn/u\x80\xff\xc3\x01";
  for (std::int32_t n = draw(rng, 1, 3); n > 0 && !text.empty(); --n) {
    const auto at = static_cast<std::size_t>(draw(rng, 0, static_cast<int>(text.size()) - 1));
    const char byte = kBytes[static_cast<std::size_t>(draw(rng, 0, kBytes.size() - 1))];
    switch (draw(rng, 0, 3)) {
      case 0: text.erase(at, 1); break;
      case 1: text.insert(at, 1, byte); break;
      case 2: text[at] = byte; break;
      default: text.resize(at); break;
    }
  }
  return text;
}

// Both libraries agree on the text: on its value, or on what is wrong with it and where.
void compare_parsing(const std::string& text) {
  CAPTURE(text);
  try {
    const Ordered expected = Ordered::parse(text);
    REQUIRE(Json::parse(text).dump() == expected.dump());
    REQUIRE(Json::try_parse(text).has_value());
  } catch (const Ordered::exception& expected) {
    const JsonError error = error_from([&] { Json::parse(text); });
    const std::string what = expected.what();
    REQUIRE(error.what() == what.substr(what.find("] ") + 2));
    const auto* syntax = dynamic_cast<const Ordered::parse_error*>(&expected);
    REQUIRE(error.reason() == (syntax == nullptr ? Reason::NumberTooLarge : Reason::NoJson));
    if (syntax != nullptr) REQUIRE(error.byte() == syntax->byte);
    REQUIRE_FALSE(Json::try_parse(text).has_value());
  }
}

class Journal final : public JsonEvents {
 public:
  std::string text;

  void null() override { text += "null "; }
  void boolean(bool value) override { text += value ? "true " : "false "; }
  void integer(std::int64_t value) override { text += "i" + std::to_string(value) + " "; }
  void unsigned_integer(std::uint64_t value) override { text += "u" + std::to_string(value) + " "; }
  void number(double value) override { text += "d" + Json(value).dump() + " "; }
  void string(std::string_view value) override { text.append(value).append(" "); }
  void key(std::string_view name) override { text.append(name).append("="); }
  void begin_object() override { text += "{ "; }
  void end_object() override { text += "} "; }
  void begin_array() override { text += "[ "; }
  void end_array() override { text += "] "; }
};

}  // namespace

TEST_CASE("JSON values know what they are", "[core][json]") {
  CHECK(Json().is_null());
  CHECK(Json(nullptr).is_null());
  CHECK(Json(true).is_boolean());
  CHECK(Json(-1).is_number_integer());
  CHECK_FALSE(Json(1).is_number_unsigned());
  CHECK(Json(1u).is_number_unsigned());
  CHECK(Json(1u).is_number_integer());
  CHECK(Json(1.0).is_number());
  CHECK_FALSE(Json(1.0).is_number_integer());
  CHECK(Json("a").is_string());
  CHECK(Json(std::string_view("a")).string() == "a");
  CHECK(Json(std::vector<int>{1, 2}).dump() == "[1,2]");
  CHECK(Json(std::vector<int>()).dump() == "[]");
  CHECK(Json(2.9).get<int>() == 2);
  CHECK(Json(7).get<double>() == 7);
  CHECK(Json(18446744073709551615u).get<std::uint64_t>() == UINT64_MAX);
  CHECK(Json(18446744073709551615u).get<std::int64_t>() == -1);
  CHECK(Json(1e19).get<std::uint64_t>() == 10'000'000'000'000'000'000u);
  CHECK(Json().empty());
  CHECK(Json(3).size() == 1);
  CHECK(misuse([] { Json("a").get<int>(); }) == "type must be number, but is string");
  CHECK(misuse([] { Json(1).get<bool>(); }) == "type must be boolean, but is number");
  CHECK(misuse([] { Json().string(); }) == "type must be string, but is null");
}

TEST_CASE("JSON lists of pairs that begin with texts are objects", "[core][json]") {
  const Json object = {{"a", 1}, {"b", {1, 2}}, {"c", {{"d", nullptr}}}};
  CHECK(object.dump() == R"({"a":1,"b":[1,2],"c":{"d":null}})");
  const Json list = {"a", 1};
  CHECK(list.dump() == R"(["a",1])");
  CHECK(Json({{"a", 1}, {2, 3}}).dump() == R"([["a",1],[2,3]])");
  CHECK(Json({{"a", 1, 2}}).dump() == R"([["a",1,2]])");
  CHECK(Json::array({{"a", 1}, {"b", 2}}).dump() == R"([["a",1],["b",2]])");
  CHECK(Json({{"a", 1}, {"a", 2}}).dump() == R"({"a":2})");
  CHECK(Json::array().dump() == "[]");
  CHECK(Json::object().dump() == "{}");
}

TEST_CASE("JSON objects keep the order of their keys and find them", "[core][json]") {
  for (const int size : {5, 16, 17, 1000}) {
    Json object;
    const auto key_of = [&](int i) { return std::to_string((i * 7919) % size) + "k"; };
    for (int i = 0; i < size; ++i) object[key_of(i)] = i;
    object[key_of(2)] = "again";
    Json copy = object;
    for (int i = 0; i < size; i += 3) copy.erase(key_of(i));
    copy.erase("never there");
    REQUIRE(object.size() == static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) {
      REQUIRE(object.items()[static_cast<std::size_t>(i)].key == key_of(i));
      REQUIRE(object.at(key_of(i)) == (i == 2 ? Json("again") : Json(i)));
      REQUIRE(copy.contains(key_of(i)) == (i % 3 != 0));
      REQUIRE((copy.find(key_of(i)) == nullptr) == (i % 3 == 0));
    }
    for (int i = 0; i < size; i += 3) copy[key_of(i)] = object[key_of(i)];
    CHECK(copy == object);
    CHECK(copy.items().back().key == key_of((size - 1) / 3 * 3));
    const auto sorted = object.sorted_items();
    for (std::size_t i = 1; i < sorted.size(); ++i) REQUIRE(sorted[i - 1]->key < sorted[i]->key);
    const Json moved = std::move(copy);
    CHECK(moved == object);
  }
}

TEST_CASE("JSON values can be changed in place", "[core][json]") {
  Json json;
  json["a"]["b"].push_back(1);
  json["a"]["b"].push_back({2, "x"});
  json["a"]["b"][0] = json["a"];
  CHECK(json.dump() == R"({"a":{"b":[{"b":[1,[2,"x"]]},[2,"x"]]}})");
  json = json["a"]["b"][1];
  CHECK(json.dump() == R"([2,"x"])");
  json.erase(std::size_t{0});
  CHECK(json.back() == "x");
  for (Json& entry : json) entry = {{"y", 1}};
  json[0].update({{"z", 2}, {"y", 3}});
  CHECK(json.dump() == R"([{"y":3,"z":2}])");
  CHECK(json[0].value("y", 0) == 3);
  CHECK(json[0].value("no", 5) == 5);
  CHECK(Json(1).value("no", 5) == 5);
  CHECK(misuse([&] { json.at(1); }) == "array index 1 is out of range");
  CHECK(misuse([&] { json.at("y"); }) == "type must be object, but is array");
  CHECK(misuse([&] { json[0].at("no"); }) == "key 'no' not found");
  CHECK(misuse([&] { json[0].push_back(1); }) == "type must be array, but is object");
  CHECK(misuse([] { Json("a")["b"] = 1; }) == "type must be object, but is string");
  CHECK(misuse([] { Json().front(); }) == "type must be array, but is null");
  int sum = 0;
  for (const Json& entry : Json::parse("[1,2,3]")) sum += entry.get<int>();
  for (const Json& entry : Json(7)) sum += entry.get<int>();
  for (const auto& [key, value] : Json::parse("[1]").items()) sum += value.get<int>();
  CHECK(sum == 6);
}

TEST_CASE("JSON values are equal by value", "[core][json]") {
  const auto is_equal = [](const char* a, const char* b) {
    return Json::parse(a) == Json::parse(b);
  };
  CHECK(is_equal("1", "1.0"));
  CHECK(is_equal("-1", "-1.0"));
  CHECK(is_equal("18446744073709551615", "18446744073709551615.0"));
  CHECK_FALSE(is_equal("-1", "18446744073709551615"));
  CHECK_FALSE(is_equal("1", "\"1\""));
  CHECK_FALSE(is_equal("1", "true"));
  CHECK_FALSE(is_equal("null", "false"));
  CHECK(is_equal("[1,[2,{}]]", "[1.0,[2,{}]]"));
  CHECK_FALSE(is_equal("[1,2]", "[2,1]"));
  CHECK_FALSE(is_equal("[1]", "[1,1]"));
  CHECK_FALSE(is_equal("[]", "{}"));
  CHECK(is_equal(R"({"a":1,"b":2})", R"({"b":2,"a":1})"));
  CHECK_FALSE(is_equal(R"({"a":1,"b":2})", R"({"a":1,"c":2})"));
  CHECK(Json(3) == 3u);
  CHECK(Json("a") == std::string("a"));
  CHECK(Json(std::nan("")) != std::nan(""));
}

TEST_CASE("JSON numbers keep their kinds and digits", "[core][json]") {
  const auto kind = [](const char* text) {
    const Json json = Json::parse(text);
    return json.is_number_unsigned() ? 'u' : json.is_number_integer() ? 'i' : 'f';
  };
  CHECK(kind("0") == 'u');
  CHECK(kind("18446744073709551615") == 'u');
  CHECK(kind("18446744073709551616") == 'f');
  CHECK(kind("-0") == 'i');
  CHECK(kind("-9223372036854775808") == 'i');
  CHECK(kind("-9223372036854775809") == 'f');
  CHECK(kind("1.0") == 'f');
  CHECK(kind("1e2") == 'f');
  CHECK(Json::parse("[1.0,1e2,1e22,-0.0,0.1,1e-7,123456789.125]").dump() ==
        "[1.0,100.0,1e+22,-0.0,0.1,1e-07,123456789.125]");
  CHECK(Json(0.1f).dump() == "0.10000000149011612");
  CHECK(Json({NAN, HUGE_VAL}).dump() == "[null,null]");
  const JsonError error = error_from([] { Json::parse("[1e999]"); });
  CHECK(error.reason() == Reason::NumberTooLarge);
  CHECK(error.byte() == 6);
  CHECK(std::string(error.what()) == "number overflow parsing '1e999'");
}

TEST_CASE("JSON is written in several styles", "[core][json]") {
  const Json json = {{"b", {1, Json::object(), Json::array()}}, {"a", "\u00e9\n"}};
  CHECK(json.dump() == "{\"b\":[1,{},[]],\"a\":\"\u00e9\\n\"}");
  CHECK(json.dump({.indent = 1, .escapes_non_ascii = true, .sorts_keys = true}) ==
        "{\n \"a\": \"\\u00e9\\n\",\n \"b\": [\n  1,\n  {},\n  []\n ]\n}");
  CHECK(Json("\xc3(").dump({.replaces_bad_utf8 = true}) == "\"\xef\xbf\xbd(\"");
  CHECK(misuse([] { Json("a\xff").dump(); }) == "invalid UTF-8 byte at index 1: 0xFF");
  CHECK(misuse([] { Json({{"\xc3", 1}}).dump(2); }) == "incomplete UTF-8 string; last byte: 0xC3");
  std::ostringstream out;
  out << Json({1, "\xff"});
  CHECK(out.str() == "[1,\"\xef\xbf\xbd\"]");
}

TEST_CASE("JSON that is refused says why and where", "[core][json]") {
  const auto error_in = [](const std::string& text) {
    const JsonError error = error_from([&] { Json::parse(text); });
    CHECK(error.reason() == Reason::NoJson);
    return std::to_string(error.byte()) + ": " + error.what();
  };
  CHECK(error_in("") ==
        "1: parse error at line 1, column 1: syntax error while parsing value - unexpected end of "
        "input; expected '[', '{', or a literal");
  CHECK(error_in("{\"a\":\n}") ==
        "7: parse error at line 2, column 1: syntax error while parsing value - unexpected '}'; "
        "expected '[', '{', or a literal");
  CHECK(error_in("1 2") ==
        "3: parse error at line 1, column 3: syntax error while parsing value - unexpected number "
        "literal; expected end of input");
  CHECK(Json::parse(std::string("[1]\0]", 5)) == Json::array({1}));
  CHECK_FALSE(Json::try_parse("[1,]").has_value());
  CHECK(Json::try_parse("[1]").value() == Json::array({1}));
  for (const char* text : {"[",
                           "[1",
                           "[1,",
                           "{",
                           "{\"a\"",
                           "{\"a\":1,",
                           "{1:2}",
                           "tru",
                           "nul",
                           "-",
                           "01",
                           "1.",
                           "1e",
                           ".5",
                           "+1",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"\t\"",
                           "\"\xff\"",
                           "\"\xc3\"",
                           "\"\xed\xa0\x80\"",
                           "[1]]",
                           "// c\n1",
                           "NaN",
                           "-Infinity",
                           "\xef\xbb\xbf[1]",
                           "\xef\xbb",
                           "\xfe",
                           "[1e400]",
                           "-1e400",
                           "1e-400"}) {
    compare_parsing(text);
  }
}

TEST_CASE("JSON is held to its limits", "[core][json]") {
  const std::string million = std::string(1'000'000, '[');
  const JsonLimits three = {.max_depth = 3};
  CHECK(Json::parse("[[[1]],{\"a\":[2]}]", three).size() == 2);
  for (const std::string& text :
       {std::string("[[[[]]]]"), std::string("[[{\"a\":{}}]]"), million}) {
    const JsonError error = error_from([&] { Json::parse(text, three); });
    CHECK(error.reason() == Reason::TooDeep);
    CHECK(std::string(error.what()) == "arrays and objects are nested more than 3 levels deep");
  }
  // Without a limit depth does no harm.
  CHECK(error_from([&] { Json::parse(million); }).byte() == 1'000'001);
  Json deep = Json::parse(million + "1" + std::string(1'000'000, ']'));
  CHECK(deep.size() == 1);
  deep = nullptr;

  CHECK(Json::parse(R"({"a":1,"b":2,"a":[3]})").dump() == R"({"a":[3],"b":2})");
  const JsonLimits once = {.keys_once = true};
  CHECK(Json::parse(R"([{"a":1,"b":{"a":2}},{"a":3}])", once).size() == 2);
  const JsonError twice = error_from([&] { Json::parse(R"({"b":{"x":1,"\u0078":2}})", once); });
  CHECK(twice.reason() == Reason::KeyTwice);
  CHECK(twice.key() == "b.x");
}

TEST_CASE("JSON events come in the order of the text", "[core][json]") {
  Journal journal;
  parse_json(R"( {"a": [null, true, -1, 1, 1.5, "x\n"], "b": {}} )", journal);
  CHECK(journal.text == "{ a=[ null true i-1 u1 d1.5 x\n ] b={ } } ");
  Journal begun;
  CHECK(error_from([&] { parse_json("[1, [2, x", begun); }).byte() == 9);
  CHECK(begun.text == "[ u1 [ u2 ");
}

TEST_CASE("JSON is read and written as nlohmann/json does it", "[core][json]") {
  constexpr std::uint64_t kSeed = 5;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "documents");
  for (int i = 0; i < 1500; ++i) {
    const Ordered expected = random_value(rng, 4);
    const std::string text = expected.dump(draw(rng, -1, 3));
    CAPTURE(text);
    const Json json = Json::parse(text);
    REQUIRE(json.dump() == Ordered::parse(text).dump());
    const int indent = draw(rng, -1, 4);
    REQUIRE(json.dump(indent) == Ordered::parse(text).dump(indent));
    REQUIRE(json.dump({.indent = indent, .escapes_non_ascii = true, .sorts_keys = true}) ==
            Sorted::parse(text).dump(indent, ' ', true));
    REQUIRE((Json::parse(Sorted::parse(text).dump()) == json));
    compare_parsing(damaged(rng, text));
  }
}

TEST_CASE("JSON numbers and bytes are written as nlohmann/json does it", "[core][json]") {
  constexpr std::uint64_t kSeed = 6;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "values");
  for (int i = 0; i < 20'000; ++i) {
    const double number = random_double(rng);
    CAPTURE(number);
    REQUIRE(Json(number).dump() == Ordered(number).dump());
    std::string bytes = random_text(rng);
    for (std::int32_t n = draw(rng, 0, 3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(draw(rng, 0, static_cast<int>(bytes.size())));
      bytes.insert(at, 1, static_cast<char>(draw(rng, 0, 255)));
    }
    CAPTURE(bytes);
    const bool is_ascii = chance(rng, 0.5);
    const std::string expected =
        Ordered(bytes).dump(-1, ' ', is_ascii, Ordered::error_handler_t::replace);
    const JsonStyle style = {.escapes_non_ascii = is_ascii, .replaces_bad_utf8 = true};
    REQUIRE(Json(bytes).dump(style) == expected);
    std::string strict;
    try {
      strict = Ordered(bytes).dump();
    } catch (const Ordered::type_error&) {
      REQUIRE_THROWS_AS(Json(bytes).dump(), JsonError);
      continue;
    }
    REQUIRE(Json(bytes).dump() == strict);
  }
}

}  // namespace metronome::TEST_FILE
