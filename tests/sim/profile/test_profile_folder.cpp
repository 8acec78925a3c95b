// SPDX-License-Identifier: Apache-2.0
// Folders of kernel times: what a formula wrote is read back, and whatever is wrong is refused.
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "sim/profile/profile_folder.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"
#include "tests/sim/profile/profile_lab.h"

namespace metronome::TEST_FILE {
namespace {

using testing::draw;
using testing::error_of;
using testing::powers;
using testing::ScratchFolder;
using testing::SyntheticProfile;

ProfileTables read(const SyntheticProfile& profile, const ScratchFolder& folder) {
  const std::string path = profile.write(folder);
  return read_profile_tables(path, read_profile_meta(path), profile.times.tp, profile.times.model,
                             profile.times.hardware);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// The message for a profile of which one file is changed, without the folder in front.
template <class Change>
std::string refusal(SyntheticProfile profile, const std::string& name, const Change& change) {
  std::string& file = profile.files.at(name);
  std::vector<std::string> lines = lines_of(file);
  change(lines);
  file = text_of(lines);
  const ScratchFolder folder;
  const std::string message = error_of([&] { read(profile, folder); });
  const std::size_t begin = message.find(name);
  return begin == std::string::npos ? message : message.substr(begin);
}

void replace_field(std::string& line, std::size_t field, const std::string& value) {
  std::size_t begin = 0;
  for (; field > 0; --field) begin = line.find(',', begin) + 1;
  line.replace(begin, line.find(',', begin) - begin, value);
}

bool begins(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// Of a time that is the last field.
double time_of(const std::string& line) { return std::stod(line.substr(line.rfind(',') + 1)); }

void set_time(std::string& line, const std::string& value) {
  line = line.substr(0, line.rfind(',') + 1) + value;
}

}  // namespace

TEST_CASE("a folder is read back as it was measured", "[profile]") {
  for (const std::int64_t tp : {1, 2}) {
    for (const char* model : {"llama-3.1-8b", "mixtral-8x7b"}) {
      INFO(model << " on " << tp);
      const SyntheticProfile profile(model, tp);
      const ScratchFolder folder;
      const ProfileTables tables = read(profile, folder);
      bool outside = false;
      for (const double tokens : powers(1, 2048)) {
        for (const std::string& layer : profile.times.dense_layers()) {
          CHECK(tables.find_dense(layer)->at(tokens, outside) ==
                Approx(profile.times.dense(layer, tokens)).epsilon(1e-10));
        }
      }
      CHECK(tables.find_per_sequence("lm_head")->at(64, outside) ==
            Approx(profile.times.per_sequence("lm_head", 64)).epsilon(1e-10));
      const AttentionTable& attention = tables.attention;
      const std::size_t num_rows = attention.decode.rows.size();
      for (const double context : {16., 100., 4096., 8192.}) {
        CHECK(attention.decode_us(24, context, 0, num_rows, outside) ==
              Approx(profile.times.attention(0, 0, 24, context)).epsilon(1e-10));
        CHECK(attention.mixed_us(512, 300, 24, context, outside) ==
              Approx(profile.times.attention(512, 300, 24, context)).epsilon(1e-10));
      }
      CHECK(attention.prefill_us(2048, 5000, outside) ==
            Approx(profile.times.attention(2048, 5000, 0, 0)).epsilon(1e-10));
      // Between chunks the triangle is cut by a chord.
      const double exact = profile.times.attention(1536, 0, 0, 0);
      const double chord = attention.prefill_us(1536, 0, outside);
      CHECK(chord >= exact);
      CHECK(chord < exact * 1.13);
      if (profile.times.model.n_experts > 0) {
        CHECK(tables.experts_us(64, 7, outside) ==
              Approx(profile.times.experts(64, 7)).epsilon(1e-10));
      }
      CHECK_FALSE(outside);
    }
  }
}

TEST_CASE("what every device computes whole may be measured on one", "[profile]") {
  SyntheticProfile profile("llama-3.1-8b", 2);
  const SyntheticProfile one;
  profile.files[one.file("dense.csv")] = one.files.at(one.file("dense.csv"));
  profile.files[one.file("per_sequence.csv")] = one.files.at(one.file("per_sequence.csv"));
  for (const char* name : {"dense.csv", "per_sequence.csv"}) {
    std::vector<std::string> lines = lines_of(profile.files.at(profile.file(name)));
    std::erase_if(lines, [](const std::string& line) {
      return begins(line, "layernorm,") || begins(line, "final_layernorm,") ||
             begins(line, "sampler,");
    });
    profile.files.at(profile.file(name)) = text_of(lines);
  }
  const ScratchFolder folder;
  const ProfileTables tables = read(profile, folder);
  bool outside = false;
  REQUIRE(tables.find_dense("layernorm") != nullptr);
  CHECK(tables.find_dense("layernorm")->at(64, outside) ==
        Approx(one.times.dense("layernorm", 64)).epsilon(1e-10));
  CHECK(tables.find_per_sequence("sampler") != nullptr);
  CHECK(tables.find_dense("o_proj")->at(64, outside) ==
        Approx(profile.times.dense("o_proj", 64)).epsilon(1e-10));
}

TEST_CASE("columns may stand in any order and beside others", "[profile]") {
  SyntheticProfile profile;
  std::string& dense = profile.files.at(profile.file("dense.csv"));
  std::vector<std::string> lines = lines_of(dense);
  for (std::string& line : lines) {
    const std::size_t comma = line.find(',');
    line = line.substr(comma + 1) + ",\"a, b\"," + line.substr(0, comma);
  }
  lines.front() = "tokens,time_us,notes,layer";
  dense = text_of(lines);
  const ScratchFolder folder;
  CHECK(read(profile, folder).dense.size() == 9);
}

TEST_CASE("attention by the middle of a chunk is that by its history", "[profile]") {
  SyntheticProfile profile;
  std::string& attention = profile.files.at(profile.file("attention.csv"));
  std::vector<std::string> lines = lines_of(attention);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    double chunk = 0, history = 0;
    char comma = 0;
    std::istringstream(lines[i]) >> chunk >> comma >> history;
    replace_field(lines[i], 1, std::to_string(history + chunk / 2));
    lines[i] += ",decoder,1";
  }
  lines.front() = "prefill_chunk,prefill_key,n_decode,kv_decode,time_us,layer,decode_q_len";
  attention = text_of(lines);
  const ScratchFolder folder;
  bool outside = false;
  CHECK(read(profile, folder).attention.prefill_us(256, 1000, outside) ==
        Approx(profile.times.attention(256, 1000, 0, 0)).epsilon(1e-10));
}

TEST_CASE("what is wrong with a profile is told with its line", "[profile]") {
  const SyntheticProfile profile;
  const auto dense = [&](const auto& change) { return refusal(profile, "tp1/dense.csv", change); };
  using Lines = std::vector<std::string>;
  CHECK(dense([](Lines& lines) { lines.front() = "layer,tokens,time_ms"; }) ==
        "tp1/dense.csv:1: time_us: missing column; allowed: a table of layer, tokens, time_us");
  CHECK(dense([](Lines& lines) { set_time(lines[4], "-3"); }) ==
        "tp1/dense.csv:5: time_us: '-3' is not a duration; allowed: above 0, at most 1e9");
  CHECK(begins(dense([](Lines& lines) { set_time(lines[4], "0"); }), "tp1/dense.csv:5: time_us"));
  for (const char* text : {"nan", "inf", "", "12us", "1e999"}) {
    CHECK(begins(dense([&](Lines& lines) { set_time(lines[6], text); }),
                 "tp1/dense.csv:7: time_us: '" + std::string(text) + "' is not a number"));
  }
  CHECK(begins(dense([](Lines& lines) { replace_field(lines[3], 1, "2.5"); }),
               "tp1/dense.csv:4: tokens: '2.5' is not a count"));
  CHECK(begins(dense([](Lines& lines) { lines[3] += ",1"; }),
               "tp1/dense.csv:4: columns: the line has 4 fields"));
  CHECK(dense([](Lines& lines) { lines[3] = lines[2]; }) ==
        "tp1/dense.csv:4: tokens: embedding, tokens 2 is also in line 3; allowed: once");
  CHECK(begins(dense([](Lines& lines) { lines.erase(lines.begin() + 5); }),
               "tp1/dense.csv:5: tokens: a gap in the grid: embedding, tokens 16 is missing"));
  CHECK(begins(dense([](Lines& lines) { lines.resize(1); }), "tp1/dense.csv: has no rows"));
  CHECK(begins(dense([](Lines& lines) { lines.clear(); }), "tp1/dense.csv: is empty"));

  const auto attention = [&](const auto& change) {
    return refusal(profile, "tp1/attention.csv", change);
  };
  CHECK(attention([](Lines& lines) { lines.erase(lines.begin() + 13); }) ==
        "tp1/attention.csv:13: kv_decode: a gap in the grid: prefill_chunk 0, kv_prefill 0, "
        "n_decode 2, kv_decode 64 is missing; allowed: every combination");
  CHECK(attention([](Lines& lines) {
          std::erase_if(lines, [](const std::string& line) { return begins(line, "0,0,16,"); });
        }) ==
        "tp1/attention.csv:42: n_decode: a gap in the grid: 32 follows 8 (prefill_chunk 0, "
        "kv_prefill 0, n_decode 32, kv_decode 16); allowed: at most times 2");
  CHECK(attention([](Lines& lines) {
          std::erase_if(lines,
                        [](const std::string& line) { return begins(line, "64,8192,0,0,"); });
        })
            .find("kv_prefill 8192, n_decode 0, kv_decode 0 is missing; allowed: every chunk also "
                  "without decodes") != std::string::npos);
}

TEST_CASE("times in another unit are refused", "[profile]") {
  const SyntheticProfile profile;
  for (const double factor : {1e-3, 1e3}) {
    for (const char* name : {"dense.csv", "attention.csv", "per_sequence.csv"}) {
      const std::string message =
          refusal(profile, profile.file(name), [&](std::vector<std::string>& lines) {
            for (std::size_t i = 1; i < lines.size(); ++i) {
              set_time(lines[i], std::to_string(time_of(lines[i]) * factor));
            }
          });
      INFO(message);
      CHECK(begins(message, profile.file(name) + ":"));
      CHECK(message.find("the time that the hardware needs") != std::string::npos);
      CHECK(message.find("allowed: microseconds") != std::string::npos);
    }
  }
}

TEST_CASE("one row in another unit is refused with its line", "[profile]") {
  const SyntheticProfile profile;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Rng rng(seed, "unit");
    const std::string name = profile.file(draw(rng, 0, 1) == 0 ? "dense.csv" : "attention.csv");
    const auto num_lines = static_cast<int>(lines_of(profile.files.at(name)).size());
    const int line = draw(rng, 1, num_lines - 1);
    const double factor = draw(rng, 0, 1) == 0 ? 1e-3 : 1e3;
    const std::string message = refusal(profile, name, [&](std::vector<std::string>& lines) {
      std::string& text = lines[static_cast<std::size_t>(line)];
      set_time(text, std::to_string(time_of(text) * factor));
    });
    INFO("seed " << seed << ", line " << line + 1 << ": " << message);
    CHECK(begins(message, name + ":" + std::to_string(line + 1) + ": time_us: "));
  }
}

TEST_CASE("a folder without a profile is refused", "[profile]") {
  const ScratchFolder folder;
  CHECK(error_of([&] { read_profile_meta(folder.path()); }).find("contains no profile") !=
        std::string::npos);
  CHECK(error_of([&] { read_profile_meta(folder.path() + "/none"); }).find("is not a folder") !=
        std::string::npos);
  const SyntheticProfile profile;
  const std::string path = profile.write(folder);
  CHECK(error_of([&] {
          read_profile_tables(path, read_profile_meta(path), 4, profile.times.model,
                              profile.times.hardware);
        }).find("/tp4/: does not exist") != std::string::npos);
}

}  // namespace metronome::TEST_FILE
