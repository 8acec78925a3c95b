// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from`: runs and CSVs whose times come from a known cost model, and what is
// refused.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "sim/fitted/fitted_file.h"
#include "study/calibrate/calibrate_steps.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/sim/fitted/fitted_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

ModelConfig model() { return find_model("llama-3.2-1b", {}); }

std::string write_known(const ScratchFolder& folder, double host_gap_chunk_ns = 0) {
  FittedModel known = known_model();
  known.host_gap_chunk_ns = host_gap_chunk_ns;
  CostModelFile file;
  file.kind = "fitted";
  file.hardware = "h200";
  file.model = "llama-3.2-1b";
  file.body = std::make_shared<const Json>(fitted_body(known, model()));
  return folder.write("known.json", file.to_json());
}

// Runs both variants of the small scenario under a cost model, with requests close to each other.
CommandResult run_under(const ScratchFolder& folder, const std::string& file,
                        const std::string& out, const std::string& more = "") {
  const std::string scenario =
      folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  return run_metronome("run '" + scenario + "' -q --set workload.arrivals.rate=60 --set " +
                       "workload.num_requests=60 --set cost_model.file='" + file + "' --out '" +
                       folder.path() + "/" + out + "' " + more);
}

Json result_of(const ScratchFolder& folder, const std::string& run) {
  return Json::parse(read_text_file(folder.path() + "/" + run + "/result.json"));
}

std::string csv_of(int num_rows, double slowness = 1) {
  Rng rng(11, "csv");
  const FittedForm form = known_model().form;
  std::ostringstream text;
  text << "seconds,graph,rows,kv,decodes,prefill_chunks,pairs,tokens\n";
  for (int i = 0; i < num_rows; ++i) {
    StepFeatures pass;
    pass.decodes = draw(rng, 0, 30);
    pass.decode_kv = pass.decodes * draw(rng, 10, 3000);
    const bool has_prefill = pass.decodes == 0 || chance(rng, 0.5);
    const double count = has_prefill ? draw(rng, 1, 500) : 0;
    pass.prefill_chunks = has_prefill ? 1 : 0;
    pass.pairs = count * (draw(rng, 0, 2000) + (count + 1) / 2);
    pass.tokens = pass.decodes + count;
    pass.rows = pass.decodes + (chance(rng, 0.5) ? pass.prefill_chunks : 0);
    pass.is_graph = !has_prefill;
    text.precision(12);
    text << form.pass_ns(pass) * slowness / 1e9 << ',' << pass.is_graph << ',' << pass.rows << ','
         << pass.decode_kv << ',' << pass.decodes << ',' << pass.prefill_chunks << ',' << pass.pairs
         << ',' << pass.tokens << '\n';
  }
  return text.str();
}

// The error about a CSV, with `row` behind the right ones.
std::string csv_error(const std::string& row) {
  const ScratchFolder folder;
  const std::string path = folder.write("steps.csv", csv_of(60) + row + "\n");
  const CommandResult result =
      run_metronome("calibrate --from '" + path + "' --model llama-3.2-1b --out '" + folder.path() +
                    "/out.json'");
  CHECK(result.exit_code == 2);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/out.json"));
  INFO(result.err);
  CHECK(contains(result.err, "steps.csv:62: "));
  return result.err;
}

}  // namespace

TEST_CASE("a fit to runs under a known cost model is that cost model", "[calibrate]") {
  const ScratchFolder folder;
  REQUIRE(run_under(folder, write_known(folder), "known").exit_code == 0);
  const std::string fitted = folder.path() + "/fitted.json";
  const CommandResult fit =
      run_metronome("calibrate --from '" + folder.path() + "/known' --out '" + fitted + "'");
  INFO(fit.out << fit.err);
  REQUIRE(fit.exit_code == 0);
  CHECK(contains(fit.out, "no step is faster than h200 allows"));
  CHECK(contains(fit.out, "host gap    120.000 us"));
  CHECK(contains(fit.out, "held out"));
  const Json file = Json::parse(read_text_file(fitted));
  CHECK(file["hardware"] == "h200");
  CHECK(file["model"] == "llama-3.2-1b");
  CHECK(file["engine"] == "metronome sim");
  for (const Json& regime : file["body"]["held_out_errors"]) {
    INFO(regime);
    CHECK(regime["p95_abs_error"].get<double>() < 1e-4);
  }
  const CommandResult again = run_under(folder, fitted, "again");
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  for (const std::string variant : {"whole", "pieces"}) {
    const Json known = result_of(folder, "known/" + variant);
    const Json found = result_of(folder, "again/" + variant);
    for (const char* key : {"mean_ttft_ms", "mean_tpot_ms", "p99_itl_ms"}) {
      INFO(variant << " " << key);
      CHECK(found[key].get<double>() == Approx(known[key].get<double>()).epsilon(2e-3));
    }
    CHECK(found["steps_outside_calibration"] == 0);
  }
  const CommandResult outside =
      run_under(folder, fitted, "outside", "--set workload.prompt_tokens.max=3000 --variant whole");
  CHECK(contains(outside.err, "steps lie outside the measured range of"));
  CHECK(result_of(folder, "outside/whole")["steps_outside_calibration"].get<int>() > 0);
}

TEST_CASE("a run under calibrated noise is the same again, and another with another seed",
          "[calibrate]") {
  const ScratchFolder folder;
  const std::string csv = folder.write("steps.csv", csv_of(400));
  const std::string file = folder.path() + "/noisy.json";
  REQUIRE(run_metronome("calibrate --from '" + csv + "' --model llama-3.2-1b --hardware h200 " +
                        "--out '" + file + "'")
              .exit_code == 0);
  Json noisy = Json::parse(read_text_file(file));
  for (Json& regime : noisy["body"]["scatter"]) {
    for (std::size_t i = 0; i < regime["ratios"].size(); ++i) {
      regime["ratios"][i] = 0.9 + 0.01 * static_cast<double>(i);
    }
  }
  folder.write("noisy.json", noisy.dump());
  const std::string noise = "--variant whole --set cost_model.noise=calibrated ";
  for (const std::string run : {"a", "b"}) {
    REQUIRE(run_under(folder, file, run, noise).exit_code == 0);
  }
  REQUIRE(run_under(folder, file, "exact", "--variant whole").exit_code == 0);
  REQUIRE(run_under(folder, file, "seed", noise + "--seed 4").exit_code == 0);
  const auto steps = [&](const std::string& run) {
    return read_text_file(folder.path() + "/" + run + "/whole/steps.jsonl");
  };
  CHECK(steps("a") == steps("b"));
  CHECK(steps("a") != steps("exact"));
  CHECK(steps("a") != steps("seed"));
}

TEST_CASE("with two steps in flight the host gap is seen where the device waits for it",
          "[calibrate]") {
  const ScratchFolder folder;
  const auto calibrated = [&](const std::string& gap_us) {
    const std::string more =
        "--variant pieces --set engine.async_depth=2 --set "
        "cost_model.host_gap_us=" +
        gap_us;
    REQUIRE(run_under(folder, write_known(folder), "gap" + gap_us, more).exit_code == 0);
    return run_metronome("calibrate --from '" + folder.path() + "/gap" + gap_us + "'").out;
  };
  const std::string longer = calibrated("9000");  // than any step
  INFO(longer);
  CHECK(contains(longer, "host gap    9000.000 us"));
  CHECK(contains(longer, "all "));
  const std::string shorter = calibrated("100");
  INFO(shorter);
  CHECK(contains(shorter, "host gap    not measured"));
}

TEST_CASE("a host gap that grows with the chunks of a step is found, kept and used",
          "[calibrate]") {
  const ScratchFolder folder;
  REQUIRE(run_under(folder, write_known(folder, 25'000), "known").exit_code == 0);
  const std::string fitted = folder.path() + "/fitted.json";
  const CommandResult fit =
      run_metronome("calibrate --from '" + folder.path() + "/known' --out '" + fitted + "'");
  INFO(fit.out << fit.err);
  REQUIRE(fit.exit_code == 0);
  CHECK(contains(fit.out, "host gap    120.000 us + 25.000 us for each chunk of the step"));
  const Json body = Json::parse(read_text_file(fitted))["body"];
  CHECK(body["host_gap_ns"].get<double>() == Approx(120'000).epsilon(1e-4));
  CHECK(body["host_gap_chunk_ns"].get<double>() == Approx(25'000).epsilon(1e-4));
  REQUIRE(run_under(folder, fitted, "again").exit_code == 0);
  for (const std::string variant : {"whole", "pieces"}) {
    for (const char* key : {"mean_ttft_ms", "mean_tpot_ms", "duration"}) {
      INFO(variant << " " << key);
      CHECK(result_of(folder, "again/" + variant)[key].get<double>() ==
            Approx(result_of(folder, "known/" + variant)[key].get<double>()).epsilon(2e-3));
    }
  }
  Json old = Json::parse(read_text_file(fitted));  // of a file that does not know of it
  old["body"].erase("host_gap_chunk_ns");
  REQUIRE(run_under(folder, folder.write("old.json", old.dump()), "old").exit_code == 0);
  CHECK(result_of(folder, "old/whole")["mean_tpot_ms"].get<double>() <
        result_of(folder, "again/whole")["mean_tpot_ms"].get<double>());
}

TEST_CASE("a stored run finds its cost model from the folder where it was run", "[calibrate]") {
  const ScratchFolder folder;
  const std::string file =
      std::filesystem::relative(write_known(folder), source_dir()).generic_string();
  REQUIRE(run_under(folder, file, "run").exit_code == 0);
  const std::string run = "'" + folder.path() + "/run/whole' ";
  const CommandResult judged = run_metronome("validate " + run + run);
  INFO(judged.err);
  CHECK(judged.exit_code == 0);
  CHECK(contains(judged.out, "step times"));
}

TEST_CASE("waiting for requests is no host gap", "[calibrate]") {
  const ScratchFolder folder;
  REQUIRE(run_under(folder, write_known(folder), "idle",
                    "--variant whole --set workload.arrivals.rate=4")
              .exit_code == 0);
  const std::string text = run_metronome("calibrate --from '" + folder.path() + "/idle'").out;
  INFO(text);
  CHECK(contains(text, "host gap    120.000 us"));
  CHECK(contains(text, "gaps; mean error 0.00 %"));
}

TEST_CASE("a fit to a CSV finds the form behind it", "[calibrate]") {
  const ScratchFolder folder;
  const std::string csv = folder.write("steps.csv", csv_of(600));
  const std::string out = folder.path() + "/out.json";
  const std::string command =
      "calibrate --from '" + csv + "' --model llama-3.2-1b --out '" + out + "'";
  const CommandResult result = run_metronome(command);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "floor       not checked"));
  CHECK(contains(result.out, "host gap    not measured"));
  const Json form = Json::parse(read_text_file(out))["body"]["form_ns"];
  CHECK(form["pair"].get<double>() == Approx(2).epsilon(1e-6));
  CHECK(form["decode_kv"].get<double>() == Approx(12).epsilon(1e-6));
  CHECK(form["tokens"][0][2].get<double>() == Approx(9e3).epsilon(1e-5));
  CHECK(form["chunk"].get<double>() + form["eager"].get<double>() ==
        Approx(2.1e6).epsilon(1e-5));  // one chunk a pass: which of them it is, is not told
  // A cost model is replaced, anything else is not.
  CHECK(run_metronome(command).exit_code == 0);
  folder.write("out.json", "{}");
  const CommandResult refused = run_metronome(command);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "is not a cost model"));
  CHECK(read_text_file(out) == "{}");
}

namespace {

// The number behind `word` in the text of a part; `otherwise` if it is not there.
double number_behind(const std::string& text, const std::string& word, double otherwise) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return otherwise;
  std::string digits;
  for (std::size_t i = at + word.size(); i < text.size(); ++i) {
    if (text[i] == ',') continue;
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) break;
    digits += text[i];
  }
  return std::stod(digits);
}

// The microseconds of a pass with one prompt of `tokens` tokens, by the rows that calibrate prints.
double printed_us(const std::string& out, double tokens) {
  std::istringstream lines(out.substr(out.find("\npart ")));
  double sum = 0;
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream words(line);
    std::string part;
    double us = 0;
    words >> part >> us;
    if (part == "pair") us *= tokens * (tokens + 1) / 2;
    if (part == "graph" || part.starts_with("decode")) us = 0;
    if (part == "tokens" && !(tokens > number_behind(line, "more than ", 0))) us = 0;
    if (part == "token") {
      const double beyond = number_behind(line, "beyond ", 0);
      us *= std::max(0.0, std::min(tokens, number_behind(line, "up to ", 1e9)) - beyond);
    }
    sum += us;
  }
  return sum;
}

}  // namespace

TEST_CASE("the printed parts of a pass add up to its time", "[calibrate]") {
  const auto us_of = [](int form, int tokens) {
    if (form == 0) return 2000.0 + 20 * tokens;                                   // a line
    if (form == 1) return 2000.0 + 10'000 * ((tokens + 511) / 512);               // steps
    return 4000.0 + 10 * std::min(tokens, 512) + 40 * std::max(0, tokens - 512);  // a ramp
  };
  for (const int form : {0, 1, 2}) {
    INFO("form " << form);
    std::string csv = "tokens,pairs,prefill_chunks,decodes,kv,rows,graph,seconds\n";
    for (int i = 0; i < 300; ++i) {
      const int tokens = 1 + i * 37 % 2048;
      csv += std::to_string(tokens) + "," + std::to_string(tokens * (tokens + 1) / 2) +
             ",1,0,0,1,0," + std::to_string(us_of(form, tokens) / 1e6) + "\n";
    }
    const ScratchFolder folder;
    const CommandResult result = run_metronome(
        "calibrate --from '" + folder.write("steps.csv", csv) + "' --model llama-3.2-1b");
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    for (const int tokens : {1, 300, 512, 513, 900, 1500, 2000}) {
      INFO(tokens << " tokens");
      CHECK(printed_us(result.out, tokens) == Approx(us_of(form, tokens)).epsilon(2e-3));
    }
  }
}

TEST_CASE("steps that the hardware cannot make as fast are not stored", "[calibrate]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/out.json";
  const auto calibrate = [&](double slowness) {
    const std::string csv = folder.write("steps.csv", csv_of(300, slowness));
    return run_metronome("calibrate --from '" + csv +
                         "' --model llama-3.2-1b --hardware h200 --out '" + out + "'");
  };
  const CommandResult result = calibrate(1e-3);  // milliseconds taken for seconds, the other way
  INFO(result.err);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "steps.csv:2: the fit predicts"));
  CHECK(contains(result.err, "h200 needs at least"));
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK(calibrate(1).exit_code == 0);
  CHECK(std::filesystem::exists(out));
}

TEST_CASE("a row that cannot be a pass is refused with its line", "[calibrate]") {
  //                          seconds,graph,rows,kv,decodes,prefill_chunks,pairs,tokens
  CHECK(contains(csv_error("-0.01,1,1,10,1,0,0,1"), "seconds: '-0.01' is not a number from 0"));
  CHECK(contains(csv_error("0,1,1,10,1,0,0,1"), "seconds: is impossible"));
  CHECK(contains(csv_error("nan,1,1,10,1,0,0,1"), "seconds: "));
  CHECK(contains(csv_error("0.01,1,1,10,1,0,0,1.5"), "tokens: "));
  CHECK(contains(csv_error("0.01,1,1,10,1,0,0,0"), "tokens: is impossible; allowed: 1 or more"));
  CHECK(contains(csv_error("0.01,0,1,10,1,0,0,5"), "prefill_chunks: is impossible"));
  CHECK(contains(csv_error("0.01,0,1,0,0,1,4,5"), "pairs: is impossible"));
  CHECK(contains(csv_error("0.01,1,2,1,2,0,0,2"), "kv: is impossible"));
  CHECK(contains(csv_error("0.01,1,2,1e11,2,0,0,2"), "kv: is impossible"));
  CHECK(contains(csv_error("0.01,1,2,10,2,0,3,2"), "pairs: is impossible"));
  CHECK(contains(csv_error("0.01,0,1,0,0,1,1e13,5"), "pairs: is impossible"));
  CHECK(contains(csv_error("0.01,1,2,10,1,0,0,1"), "rows: is impossible"));
  CHECK(contains(csv_error("0.01,1,1,0,0,1,15,5"), "graph: is impossible"));
  CHECK(contains(csv_error("0.01,1,1,10,1,0,0"), "the line has 7 fields, not 8"));
}

TEST_CASE("what calibrate is given must make sense", "[calibrate]") {
  const ScratchFolder folder;
  const auto error = [&](const std::string& arguments) {
    const CommandResult result = run_metronome("calibrate " + arguments);
    INFO(arguments << ": " << result.out << result.err);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  const std::string csv = folder.write("steps.csv", csv_of(60));
  const std::string few = folder.write("few.csv", csv_of(20));
  const std::string columns = folder.write("columns.csv", "tokens,pairs,seconds\n1,2,3\n");
  const std::string marked = folder.write("marked.csv", "\xef\xbb\xbf" + csv_of(20));
  CHECK(contains(error("--from '" + marked + "' --model llama-3.2-1b"), "got 20 steps"));
  CHECK(contains(error(""), "give either --from, --import or --backend"));
  CHECK(contains(error("--from '" + csv + "'"), "--model NAME"));
  CHECK(contains(error("--from '" + few + "' --model llama-3.2-1b"), "got 20 steps"));
  CHECK(contains(error("--from '" + columns + "' --model llama-3.2-1b"),
                 "columns.csv:1: prefill_chunks: missing column; allowed: tokens,"));
  CHECK(contains(error("--from '" + csv + "' --model llama-3.2-1"), "llama-3.2-1b"));
  CHECK(contains(error("--from '" + csv + "' --model llama-3.2-1b --hardware h201"),
                 "unknown name 'h201'"));
  CHECK(contains(error("--from '" + csv + "' --model llama-3.2-1b --tp 0"), "--tp"));
  CHECK(contains(error("--from '" + csv + "' --model llama-3.2-1b --out '" + folder.path() + "'"),
                 "cannot be written"));
  CHECK(contains(error("--from '" + folder.path() + "/nothing'"), "nothing"));
  CHECK(contains(error("--from '" + csv + "' --model llama-3.2-1b --scenario x.yaml"),
                 "--scenario: has no effect; allowed: with --from of a log"));
  CHECK(run_metronome("calibrate --help").exit_code == 0);
}

TEST_CASE("runs of different models are not fitted together", "[calibrate]") {
  const ScratchFolder folder;
  const std::string scenario = folder.write("small.yaml", kSmallScenario);
  for (const std::string name : {"llama-3.2-1b", "llama-3.2-3b"}) {
    REQUIRE(run_metronome("run '" + scenario + "' -q --set model=" + name + " --out '" +
                          folder.path() + "/" + name + "'")
                .exit_code == 0);
  }
  const CommandResult result =
      run_metronome("calibrate --from '" + folder.path() + "/llama-3.2-1b' --from '" +
                    folder.path() + "/llama-3.2-3b'");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "model: is llama-3.2-3b, not llama-3.2-1b as in"));
}

}  // namespace metronome::testing::TEST_FILE
