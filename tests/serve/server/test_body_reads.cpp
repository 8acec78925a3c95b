// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "models/text/tokenizer.h"
#include "serve/server/body_reads.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/server/serve_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

// Both threads are this one: tasks run when a case says so.
struct Reader {
  std::vector<Work> background;
  std::vector<BodyReads::Task> foreground;
  BodyReads reads{[this](Work work) { background.push_back(std::move(work)); },
                  [this](BodyReads::Task task) { foreground.push_back(std::move(task)); }};
  std::vector<std::string> texts;  // that were parsed
  std::vector<Reply> replies;

  std::shared_ptr<FakeClient> read(const std::string& body) {
    auto client = std::make_shared<FakeClient>();
    reads.read(
        body, client,
        [this](const std::string& text, const std::atomic<bool>&) -> BodyReads::Result {
          texts.push_back(text);
          if (text == "bad") throw ApiError(404, "no such field", "n");
          if (text == "large") throw std::runtime_error("no memory");
          if (text == "left") throw EncodingCancelled();
          return Reply{.body = text};
        },
        [this](BodyReads::Result result, const std::shared_ptr<Client>&) {
          replies.push_back(std::get<Reply>(result));
        });
    return client;
  }
  void run_all() {
    for (const Work& work : background) work.run();
    for (const BodyReads::Task& task : foreground) task();
  }
};

}  // namespace

TEST_CASE("a body has a result, whatever its parse throws", "[serve]") {
  Reader reader;
  for (const char* body : {"good", "bad", "large", "left"}) reader.read(body);
  CHECK(reader.replies.empty());
  reader.run_all();
  REQUIRE(reader.replies.size() == 4);
  CHECK(reader.replies[0].body == "good");
  CHECK(reader.replies[1].status == 404);
  CHECK(contains(reader.replies[1].body, "no such field"));
  CHECK(reader.replies[2].status == 500);
  CHECK(reader.reads.is_empty());
}

TEST_CASE("a client that leaves has no result, and its body is not read", "[serve]") {
  Reader reader;
  const auto early = reader.read("a");
  const auto late = reader.read("b");
  CHECK(reader.reads.leave(early.get()));
  CHECK_FALSE(reader.reads.leave(early.get()));
  for (const Work& work : reader.background) work.run();
  CHECK(reader.reads.leave(late.get()));  // its result is on the way
  CHECK(reader.reads.is_empty());
  for (const BodyReads::Task& task : reader.foreground) task();
  CHECK(reader.texts == std::vector<std::string>{"b"});
  CHECK(reader.replies.empty());
}

TEST_CASE("a small body with a picture counts as long work", "[serve]") {
  Reader reader;
  reader.read(R"({"a": "image_url"})");
  reader.read("abc");
  CHECK(reader.background[0].num_bytes > WorkQueue::kMaxShortBytes);
  CHECK(reader.background[1].num_bytes == 3);
  CHECK(reader.background[1].client == "127.0.0.1");
}

}  // namespace TEST_FILE
