// SPDX-License-Identifier: Apache-2.0
#include "serve/server/body_reads.h"

#include <exception>
#include <string_view>
#include <utility>

#include "models/text/tokenizer.h"

namespace metronome {
namespace {

// A measure of how long a body takes to read. A small picture may have many pixels: it is long
// work.
std::size_t work_bytes(std::string_view body) {
  constexpr std::size_t kPicture = std::size_t{1} << 20;
  const bool has_pictures =
      body.size() <= WorkQueue::kMaxShortBytes && body.find("image_url") != std::string_view::npos;
  return body.size() + (has_pictures ? kPicture : 0);
}

}  // namespace

BodyReads::Result BodyReads::parse_safely(Reading& reading, const Parse& parse) {
  try {
    Result result = parse(reading.body, reading.has_left);
    reading.body = {};
    return result;
  } catch (const ApiError& error) {
    return error_reply(error.status, error.what(), error.param);
  } catch (const EncodingCancelled&) {
    return Reply();
  } catch (const std::exception& error) {  // for example out of memory
    return error_reply(500, error.what());
  }
}

void BodyReads::read(std::string body, std::shared_ptr<Client> client, Parse parse, Done done) {
  const auto reading = std::make_shared<Reading>();
  reading->body = std::move(body);
  reading_.emplace(client.get(), reading);
  std::string address = client->address();
  background_({.client = std::move(address),
               .num_bytes = work_bytes(reading->body),
               .run = [this, reading, parse = std::move(parse), done = std::move(done),
                       client = std::move(client)]() mutable {
                 if (!reading->claim()) return;
                 foreground_([this, result = parse_safely(*reading, parse), done = std::move(done),
                              client = std::move(client)]() mutable {
                   if (reading_.erase(client.get()) > 0) done(std::move(result), client);
                 });
               }});
}

bool BodyReads::leave(const Client* client) {
  const auto found = reading_.find(client);
  if (found == reading_.end()) return false;
  found->second->has_left = true;
  if (found->second->claim()) found->second->body = {};
  reading_.erase(found);
  return true;
}

}  // namespace metronome
