// SPDX-License-Identifier: Apache-2.0
// A decision log that is not one is refused with one clear error.
#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"
#include "tests/study/decisions/small_case.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

// A part of a text, and what takes its place.
struct Change {
  const char* part;
  const char* by;
};

// The answer to `whole` after each change, by a file with the case that `case_of` makes of it.
template <class CaseOf>
void add_complaints(Answers& answers, const std::string& whole, const std::vector<Change>& changes,
                    const CaseOf& case_of, const std::string& engine = "vllm") {
  for (const auto& [part, by] : changes) {
    answers.add(change_text(part, by), complaint(case_of(replaced(whole, part, by)), engine));
  }
}

}  // namespace

TEST_CASE("a config that makes no sense is refused", "[decisions]") {
  Answers answers("decisions/config.txt");
  add_complaints(answers, kConfig,
                 {{"block_size", "block_sise"},
                  {R"("policy":"fcfs",)", ""},
                  {R"("block_size":4)", R"("block_size":0)"},
                  {R"("block_size":4)", R"("block_size":"4")"},
                  {R"("block_size":4)", R"("block_size":2.5)"},
                  {R"("num_blocks":6)", R"("num_blocks":null)"},
                  {"true", "1"},
                  {"fcfs", "prio"},
                  {R"("policy")", R"("async_depth":3,"policy")"},
                  {R"("policy")", R"("watermark":1.5,"policy")"}},
                 [](const std::string& config) { return case_text(config, kRequests); });
  answers.add("[]", complaint(case_text("[]", kRequests)));
}

TEST_CASE("drafts and states that make no sense are refused", "[decisions]") {
  Answers answers("decisions/drafts_and_states.txt");
  const std::string config =
      replaced(replaced(kConfig, "false", "true"), R"("policy")", R"("version":"0.33","policy")");
  const auto with = [&](const std::string& keys) {
    return replaced(config, R"("policy")", keys + R"(,"policy")");
  };
  const std::string drafts = R"("spec_method":"mtp","num_speculative_tokens":2)";
  const std::string of_ngram = R"("spec_method":"ngram","num_speculative_tokens":2)";
  for (const std::string& keys :
       {std::string(R"("spec_method":"mtp")"), std::string(R"("num_speculative_tokens":2)"),
        std::string(R"("spec_method":"medusa","num_speculative_tokens":2)"),
        std::string(R"("spec_method":"mtp","num_speculative_tokens":0)"), drafts,
        std::string(R"("mamba":{})"), std::string(R"("mamba":{"cache_mode":"all"})"),
        std::string(R"("mamba":{"cache_mode":"none"})"),
        std::string(R"("mamba":{"cache_mode":"align","prefix_match_unit":3})"),
        std::string(R"("mamba":{"cache_mode":"align"},"num_groups_before_full":2)"),
        std::string(R"("mamba":{"cache_mode":"align"},"states_before_windows":1)")}) {
    answers.add(keys, complaint(case_text(with(keys), kRequests)));
  }
  answers.add("another version",
              complaint(case_text(replaced(with(drafts), "0.33", "0.25"), kRequests)));
  const auto requests = [](const std::string& keys) {
    return replaced(kRequests, R"("max_tokens":1)", R"("max_tokens":1,)" + keys);
  };
  for (const char* keys :
       {R"("accepted":[])", R"("accepted":[3])", R"("accepted":[1],"proposed":[1])"}) {
    answers.add(keys, complaint(case_text(with(drafts), requests(keys))));
  }
  answers.add("ngram", complaint(case_text(with(of_ngram), requests(R"("accepted":[1])"))));
  answers.add("no drafts", complaint(case_text(config, requests(R"("accepted":[1])"))));
}

TEST_CASE("images that make no sense are refused", "[decisions]") {
  Answers answers("decisions/images.txt");
  const auto with = [](const std::string& images, const std::string& version = "0.33") {
    return replaced(kConfig, R"("policy")",
                    R"("version":")" + version + R"(","images":)" + images + R"(,"policy")");
  };
  for (const char* images : {R"({})", R"({"max_embeddings":0})",
                             R"({"max_embeddings":4,"disable_chunked_mm_input":1})"}) {
    answers.add(images, complaint(case_text(with(images), kRequests)));
  }
  const std::string config = with(R"({"max_embeddings":4})");
  answers.add("another version",
              complaint(case_text(with(R"({"max_embeddings":4})", "0.25"), kRequests)));
  const auto requests = [](const std::string& images) {
    return replaced(kRequests, R"("max_tokens":2)", R"("max_tokens":2,"images":)" + images);
  };
  answers.add("no images", complaint(case_text(kConfig, requests("[]"))));
  for (const char* images :
       {R"({})", R"([{"id":"x","offset":0}])", R"([{"id":"x","offset":0,"length":99}])",
        R"([{"id":"x","offset":0,"length":2},{"id":"y","offset":1,"length":1}])",
        R"([{"id":"x","offset":0,"length":2,"embeddings":[1,2]}])",
        R"([{"id":"x","offset":0,"length":1},{"id":"x","offset":1,"length":2}])"}) {
    answers.add(images, complaint(case_text(config, requests(images))));
  }
}

TEST_CASE("a config of another engine is refused", "[decisions]") {
  Answers answers("decisions/config_of_engine.txt");
  answers.add("vLLM's for nano-vllm", complaint(case_text(kConfig, kRequests), "nano_vllm"));
  const std::string requests =
      R"([{"id":"a","arrival_step":0,"max_tokens":1,"prompt_len":3,"priority":1}])";
  const std::string config =
      R"({"scheduler":"sarathi","block_size":4,"max_num_seqs":2,"chunk_size":32,"dynamic":false,)"
      R"("max_model_len":16,"num_blocks":6,"max_batched_tokens":64})";
  add_complaints(
      answers, config,
      {{R"(:"sarathi")", R"(:"vllm1")"},
       {R"("dynamic":false)", R"("dynamic":true,"high":64)"},
       {R"("dynamic":false)", R"("dynamic":false,"low":32)"}},
      [&](const std::string& changed) { return case_text(changed, requests); }, "sarathi");
  answers.add("vLLM's requests for Sarathi-Serve",
              complaint(case_text(config, requests), "sarathi"));
  const std::string log = read_text_file(golden_path("sglang_0.5.23.jsonl"));
  const std::string sglang = Json::parse(log.substr(0, log.find('\n'))).at("config").dump();
  add_complaints(
      answers, sglang,
      {{R"("page_size":1,)", R"("page_size":5,)"},
       {R"("schedule_policy":"fcfs")", R"("schedule_policy":"random")"},
       {R"("schedule_policy":"fcfs")", R"("schedule_policy":"shortest-prefill-first")"},
       {R"("req_pool_size":)", R"("req_pool_size":9)"}},
      [&](const std::string& changed) { return case_text(changed, kRequests); }, "sglang");
}

TEST_CASE("requests that make no sense are refused", "[decisions]") {
  Answers answers("decisions/requests.txt");
  add_complaints(answers, kRequests,
                 {{"arrival_step", "arival_step"},
                  {R"(,"max_tokens":2)", ""},
                  {R"("b")", R"("a")"},
                  {R"("b")", "3"},
                  {R"("arrival_step":1)", R"("arrival_step":-1)"},
                  {"[7]", "[]"},
                  {"[7]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"},
                  {"[7]", "[-7]"},
                  {R"("max_tokens":1)", R"("max_tokens":0)"}},
                 [](const std::string& requests) { return case_text(kConfig, requests); });
  for (const char* requests : {"[]", "{}"}) {
    answers.add(requests, complaint(case_text(kConfig, requests)));
  }
}

TEST_CASE("a log that cannot be read is refused", "[decisions]") {
  const std::string good = case_text(kConfig, kRequests);
  const std::string deep = std::string(30, '[') + std::string(30, ']');
  Answers answers("decisions/log.txt");
  for (const std::string& text :
       {good + "\n{\"seed\":", good + "{\"seed\":}", std::string("7\n"), deep,
        replaced(good, R"("seed":7)", R"("seed":7,"seed":8)"), replaced(good, R"("seed":7,)", ""),
        replaced(good, R"("seed":7)", R"("seed":7,"step":[])"), case_text(kConfig, kRequests, "{}"),
        case_text(kConfig, kRequests, "[{},3]"), std::string("\n")}) {
    const std::string shown = with_name_for(kConfig, "CONFIG", text);
    answers.add(with_name_for(kRequests, "REQUESTS", shown), complaint(text));
  }

  const ScratchFolder folder;
  const auto add = [&](const std::string& engine, const std::string& path) {
    const std::string error = error_of([&] { check_decisions(engine, path); });
    answers.add(engine + " " + with_name_for(folder.path(), "FOLDER", path),
                with_name_for(folder.path(), "FOLDER", error));
  };
  const std::string path = folder.write("case.jsonl", good);
  add("vllm", folder.path() + "/none.jsonl");
  add("vllm", folder.path());
  add("vllm", path);
  add("vlm", path);
}

}  // namespace TEST_FILE
