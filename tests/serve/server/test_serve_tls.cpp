// SPDX-License-Identifier: Apache-2.0
// The server's TLS against OpenSSL's client, whose bytes the tests deliver in pieces of their own.
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "core/base/command_errors.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/serve/server/http_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* made) const {
    kFree(made);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

template <class Write>
std::string pem(const Write& write) {
  const std::unique_ptr<BIO, Free<BIO_free>> memory(BIO_new(BIO_s_mem()));
  REQUIRE(write(memory.get()) == 1);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<std::size_t>(count)};
}

// A certificate that its own key signs, for an hour.
struct Certificate {
  explicit Certificate(const ScratchFolder& folder, const std::string& name) {
    const std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>> context(
        EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nullptr));
    EVP_PKEY* made = nullptr;
    REQUIRE(EVP_PKEY_keygen_init(context.get()) == 1);
    REQUIRE(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context.get(), NID_X9_62_prime256v1) == 1);
    REQUIRE(EVP_PKEY_keygen(context.get(), &made) == 1);
    const Key key(made);
    const std::unique_ptr<X509, Free<X509_free>> signed_by_itself(X509_new());
    X509* const x = signed_by_itself.get();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME* const subject = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x, subject);
    X509_set_pubkey(x, key.get());
    REQUIRE(X509_sign(x, key.get(), EVP_sha256()) > 0);
    certificate_file = folder.write(
        name + ".cert.pem", pem([&](BIO* memory) { return PEM_write_bio_X509(memory, x); }));
    key_file = folder.write(name + ".key.pem", pem([&](BIO* memory) {
                              return PEM_write_bio_PrivateKey(memory, key.get(), nullptr, nullptr,
                                                              0, nullptr, nullptr);
                            }));
  }

  std::string certificate_file, key_file;
};

class TlsBench {
 public:
  explicit TlsBench(const HttpLimits& limits = {}, double speed = 1000)
      : certificate_(folder_, "server"), bench(limits, speed, {}, [this](HttpServer& server) {
          server.use_tls(certificate_.certificate_file, certificate_.key_file);
        }) {}

 private:
  ScratchFolder folder_;
  Certificate certificate_;

 public:
  HttpBench bench;
};

// A client whose records are sent in pieces of `piece` bytes at most; 0: as they are made.
class TlsWire {
 public:
  explicit TlsWire(const HttpBench& bench, std::size_t piece = 0, int max_version = 0,
                   int receive_buffer = 0)
      : wire(bench, receive_buffer), piece_(piece), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_security_level(context_.get(), 0);  // else this client itself refuses TLS 1.1
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  }

  // False: the server has ended the connection.
  bool handshake() {
    int result = 0;
    while ((result = SSL_connect(ssl_.get())) != 1) {
      if (SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) return false;
      deliver(records());
      if (!fetch()) return false;
    }
    deliver(records());
    return true;
  }
  void send(std::string_view bytes) {
    encrypt(bytes);
    deliver(records());
  }
  void encrypt(std::string_view bytes) {
    REQUIRE(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
            static_cast<int>(bytes.size()));
  }
  // Takes the bytes that this client has made and not delivered.
  std::string records() {
    std::string made(BIO_ctrl_pending(SSL_get_wbio(ssl_.get())), '\0');
    if (!made.empty()) BIO_read(SSL_get_wbio(ssl_.get()), made.data(), int(made.size()));
    return made;
  }
  void deliver(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t count = piece_ == 0 ? bytes.size() : std::min(piece_, bytes.size());
      wire.send(bytes.substr(0, count));
      bytes.remove_prefix(count);
    }
  }
  bool read_until(std::string_view text) {
    while (received.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // Whether the server has said, inside TLS, that the connection ends.
  bool read_to_announced_end() {
    while (read_some()) {
    }
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

  Wire wire;
  std::string received;

 private:
  bool fetch() {
    if (!wire.read_some()) return false;
    BIO_write(SSL_get_rbio(ssl_.get()), wire.received.data(), int(wire.received.size()));
    wire.received.clear();
    return true;
  }
  bool read_some() {
    char bytes[4096];
    while (true) {
      ERR_clear_error();  // the thread's, left by other connections
      const int count = SSL_read(ssl_.get(), bytes, sizeof bytes);
      if (count > 0) received.append(bytes, static_cast<std::size_t>(count));
      if (count > 0) return true;
      if (SSL_get_error(ssl_.get(), count) != SSL_ERROR_WANT_READ || !fetch()) return false;
    }
  }

  std::size_t piece_;
  std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Free<SSL_free>> ssl_;
};

std::string long_prompt(std::size_t count) {
  return post(R"({"prompt": ")" + std::string(count, 'x') + R"("})", {}, "/tokenize");
}

}  // namespace

TEST_CASE("requests come by TLS in pieces of any size, and answers go", "[serve][tls]") {
  TlsBench tls;
  const std::size_t piece = GENERATE(0u, 1u, 7u, 1000u);
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  INFO("pieces of " << piece << ", version " << version);
  TlsWire wire(tls.bench, piece, version);
  REQUIRE(wire.handshake());
  wire.send(completion(R"("max_tokens": 5)"));
  REQUIRE(wire.read_until("\"completion_tokens\":5"));
  // Two at once, in one record.
  wire.received.clear();
  wire.send(completion(R"("max_tokens": 20, "stream": true)") +
            "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
  REQUIRE(wire.read_until("{\"version\":\"1\"}"));
  CHECK(wire.received.find("data: [DONE]") < wire.received.find("{\"version\":\"1\"}"));
  // A body of several records, and an answer of many.
  wire.received.clear();
  const std::size_t length = piece == 1 ? 3'000 : 90'000;
  wire.send(long_prompt(length));
  REQUIRE(wire.read_until("\"count\":" + std::to_string(length)));
}

TEST_CASE("a reader by TLS that is slower than the engine gets all", "[serve][tls]") {
  HttpLimits limits;
  limits.max_unread_bytes = 5'000;
  TlsBench tls(limits, 1e6);
  TlsWire slow(tls.bench, 0, 0, 4096), other(tls.bench);
  REQUIRE(slow.handshake());
  REQUIRE(other.handshake());
  slow.send(completion(R"("max_tokens": 12000, "stream": true)"));
  REQUIRE(slow.read_until("data: "));
  other.send(completion(R"("max_tokens": 3000, "stream": true)"));
  CHECK(other.read_until("data: [DONE]"));
  CHECK(slow.read_until("data: [DONE]\n\n\r\n0\r\n\r\n"));
  CHECK(occurrences(slow.received, "data: {") == 12000);
}

TEST_CASE("the end of a connection is announced by TLS", "[serve][tls]") {
  TlsBench tls;
  TlsWire wire(tls.bench);
  REQUIRE(wire.handshake());
  wire.send(post(R"({"prompt": "ab"})", "Connection: close\r\n", "/tokenize"));
  CHECK(wire.read_to_announced_end());
  CHECK(wire.received.find("\"count\":2") != std::string::npos);
}

TEST_CASE("old TLS, plain HTTP and noise are refused, and others go on", "[serve][tls]") {
  TlsBench tls;
  TlsWire good(tls.bench);
  REQUIRE(good.handshake());
  CHECK_FALSE(TlsWire(tls.bench, 0, TLS1_1_VERSION).handshake());
  const std::uint64_t seed = 5;
  Rng rng(seed, "noise");
  std::string noise;
  for (int i = 0; i < 2000; ++i) noise += static_cast<char>(draw(rng, 0, 255));
  for (const std::string& bytes :
       {std::string("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), noise}) {
    Wire plain(tls.bench);
    plain.send(bytes);
    CHECK(plain.read_to_end());
    CHECK(plain.received.find("HTTP/1.1") == std::string::npos);
  }
  good.send("GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(good.read_until("{\"version\":\"1\"}"));
}

TEST_CASE("a changed record is not executed, and ends its connection", "[serve][tls]") {
  TlsBench tls;
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  INFO("seed " << seed);
  Rng rng(seed, "records");
  TlsWire wire(tls.bench);
  REQUIRE(wire.handshake());
  wire.encrypt("POST /reset_prefix_cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string record = wire.records();
  const auto at = static_cast<std::size_t>(draw(rng, 5, int(record.size()) - 1));  // not its length
  record[at] = static_cast<char>(record[at] ^ (1 << draw(rng, 0, 7)));
  wire.deliver(record);
  wire.read_to_announced_end();
  CHECK(wire.wire.read_to_end());
  CHECK(wire.received.empty());
  CHECK(tls.bench.wait_until([&] { return !tls.bench.server.has_connections(); }));
}

TEST_CASE("a handshake that stops half-way, and a client that leaves, end", "[serve][tls]") {
  HttpLimits limits;
  limits.idle_timeout = std::chrono::milliseconds(200);
  TlsBench impatient(limits);
  TlsWire stalled(impatient.bench);
  stalled.wire.send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  CHECK(stalled.wire.read_to_end());

  TlsBench tls({}, 1);
  TlsWire streams(tls.bench);
  REQUIRE(streams.handshake());
  streams.send(completion(R"("max_tokens": 90000, "stream": true)"));
  REQUIRE(streams.read_until("data: "));
  streams.wire.close();
  CHECK(tls.bench.wait_idle());
  CHECK(tls.bench.wait_until([&] { return !tls.bench.server.has_connections(); }));
}

TEST_CASE("files that are no certificate with its key are refused by their option",
          "[serve][tls]") {
  const ScratchFolder folder;
  const Certificate one(folder, "one"), two(folder, "two");
  const auto error = [](const std::string& certificate, const std::string& key) {
    HttpServer server({});
    return error_of<UsageError>([&] { server.use_tls(certificate, key); });
  };
  CHECK(error(one.certificate_file, one.key_file).empty());
  CHECK(error(folder.path() + "/none", one.key_file)
            .starts_with("--ssl-certfile: " + folder.path() + "/none: does not exist"));
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(error(pipe, one.key_file).starts_with("--ssl-certfile: " + pipe + ": "));
  CHECK(error(one.certificate_file, pipe).starts_with("--ssl-keyfile: " + pipe + ": "));
  CHECK(error(one.key_file, one.key_file).starts_with("--ssl-certfile: "));
  CHECK(error(one.certificate_file, one.certificate_file).starts_with("--ssl-keyfile: "));
  const std::string foreign = error(one.certificate_file, two.key_file);
  CHECK(foreign.starts_with("--ssl-keyfile: " + two.key_file + ": "));
  CHECK(foreign.find("allowed: a PEM file with the private key of --ssl-certfile") !=
        std::string::npos);
}

}  // namespace TEST_FILE
