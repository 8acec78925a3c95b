// SPDX-License-Identifier: Apache-2.0
#include "serve/client/server_probe.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <stdexcept>

#include "core/base/json.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// Runs the started operations; calls `poll` in between.
void run(asio::io_context& loop, const std::function<void()>& poll) {
  while (loop.run_for(std::chrono::milliseconds(50)) > 0 || !loop.stopped()) poll();
}

std::string reason_text(const ErrorCode& error) {
  return error == beast::error::timeout ? "no answer in time" : error.message();
}

}  // namespace

ServerAddress reach_server(const ServerUrl& url, TimeNs timeout_ns,
                           const std::function<void()>& poll) {
  asio::io_context loop;
  tcp::resolver resolver(loop);
  ErrorCode error;
  const auto found = resolver.resolve(url.host, std::to_string(url.port), error);
  if (error) {
    throw std::runtime_error(url.text() + ": cannot find the host: " + error.message());
  }
  beast::tcp_stream stream(loop);
  stream.expires_after(std::chrono::nanoseconds(timeout_ns));
  tcp::endpoint reached;
  stream.async_connect(found, [&](const ErrorCode& result, const tcp::endpoint& endpoint) {
    error = result;
    reached = endpoint;
  });
  run(loop, poll);
  if (error) {
    throw std::runtime_error(url.text() + ": cannot connect: " + reason_text(error) +
                             "; allowed: the address of a server that runs");
  }
  return {reached.address().to_string(), reached.port()};
}

HttpAnswer http_get(const ServerUrl& url, const ServerAddress& address, std::string_view path,
                    const std::vector<std::string>& headers, TimeNs timeout_ns,
                    const std::function<void()>& poll) {
  asio::io_context loop;
  beast::tcp_stream stream(loop);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  std::string request = "GET " + url.prefix + std::string(path) +
                        " HTTP/1.1\r\nHost: " + url.authority() + "\r\nConnection: close\r\n";
  for (const std::string& header : headers) request += header + "\r\n";
  request += "\r\n";
  parser.body_limit(kMostAnswerBytes);
  ErrorCode error;
  const auto on_read = [&](const ErrorCode& result, std::size_t) { error = result; };
  const auto on_write = [&](const ErrorCode& result, std::size_t) {
    error = result;
    if (!error) http::async_read(stream, buffer, parser, on_read);
  };
  stream.expires_after(std::chrono::nanoseconds(timeout_ns));
  const tcp::endpoint endpoint(asio::ip::make_address(address.ip), address.port);
  stream.async_connect(endpoint, [&](const ErrorCode& result) {
    error = result;
    if (!error) asio::async_write(stream, asio::buffer(request), on_write);
  });
  run(loop, poll);
  if (error) {
    throw std::runtime_error(url.text() + std::string(path) + ": " + reason_text(error));
  }
  return {static_cast<std::int32_t>(parser.get().result_int()), parser.get().body(),
          std::string(parser.get()[http::field::content_type])};
}

std::string first_model(const HttpAnswer& answer) {
  const Json json = Json::try_parse(answer.body).value_or(Json());
  const Json* data = json.find("data");
  if (answer.status != 200 || data == nullptr || !data->is_array() || data->empty()) return {};
  const Json* id = data->front().find("id");
  return id != nullptr && id->is_string() ? id->string() : "";
}

std::string server_version(const HttpAnswer& answer) {
  const Json json = Json::try_parse(answer.body).value_or(Json());
  const Json* version = json.find("version");
  if (answer.status != 200 || version == nullptr || !version->is_string()) return {};
  return version->string();
}

}  // namespace metronome
