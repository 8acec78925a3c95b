// SPDX-License-Identifier: Apache-2.0
// Servers' starts in the forms in which people paste them: which server, of which version, with
// which words.
#include <string>
#include <vector>

#include "core/base/command_errors.h"
#include "engines/command/pasted_command.h"
#include "engines/command/shell_words.h"
#include "engines/sglang/product.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/vllm/product.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Words = std::vector<std::string>;

PastedCommand found(const std::string& text) { return find_command(text, nullptr, "--command"); }

struct Case {
  const char* text;
  const char* policy;
  const char* version;
  Words words;
};

const Words kTwo = {"Qwen/Qwen3-8B", "--max-num-seqs", "8"};
const Words kModelTwo = {"--model", "Qwen/Qwen3-8B", "--max-num-seqs", "8"};

const Case kCases[] = {
    {"vllm serve Qwen/Qwen3-8B --max-num-seqs 8", "vllm", "", kTwo},
    {"$ vllm serve Qwen/Qwen3-8B --max-num-seqs 8 > log.txt 2>&1 &", "vllm", "", kTwo},
    {"# vllm serve Qwen/Qwen3-8B --max-num-seqs 8", "vllm", "", kTwo},
    {"root@gpu-7:/# CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-8B --max-num-seqs 8", "vllm", "",
     kTwo},
    {"  512  source .venv/bin/activate && nohup vllm serve Qwen/Qwen3-8B --max-num-seqs 8 | tee l",
     "vllm", "", kTwo},
    {"vllm serve \\\n  Qwen/Qwen3-8B \\\n  # as advised\n  --max-num-seqs 8\n", "vllm", "", kTwo},
    {"vllm serve \\\r\n  'Qwen/Qwen3-8B' \\ \n  --max-num-seqs \"8\"", "vllm", "", kTwo},
    {"/opt/venv/bin/python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B "
     "--max-num-seqs 8",
     "vllm", "", kModelTwo},
    {"uv run --with vllm vllm serve Qwen/Qwen3-8B --max-num-seqs 8; echo done", "vllm", "", kTwo},
    {"export MODEL=Qwen/Qwen3-8B\nN=8\nvllm serve $MODEL --max-num-seqs ${N}", "vllm", "", kTwo},
    {"vllm serve ${MODEL:-Qwen/Qwen3-8B} --max-num-seqs 8", "vllm", "", kTwo},
    {"docker run --gpus all -v ~/.cache:/root/.cache -p 8000:8000 --ipc=host "
     "vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B --max-num-seqs 8",
     "vllm", "0.11.0", kModelTwo},
    {"docker run --rm ghcr.io/x/vllm/vllm-openai:latest vllm serve Qwen/Qwen3-8B --max-num-seqs 8",
     "vllm", "", kTwo},
    {"FROM vllm/vllm-openai:v0.10.2\nENV A=1\nENTRYPOINT [\"vllm\", \"serve\"]\n"
     "CMD [\"Qwen/Qwen3-8B\", \"--max-num-seqs\", \"8\"]\n",
     "vllm", "0.10.2", kTwo},
    {"FROM ubuntu:22.04\nRUN pip install vllm\nCMD vllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8",
     "vllm", "", kTwo},
    {"services:\n  llm:\n    image: vllm/vllm-openai:v0.9.1\n    command: >\n"
     "      --model Qwen/Qwen3-8B\n      --max-num-seqs 8\n    ports: [\"8000:8000\"]\n",
     "vllm", "0.9.1", kModelTwo},
    {"services:\n  llm:\n    image: vllm/vllm-openai\n    command:\n      - --model\n"
     "      - Qwen/Qwen3-8B\n      - --max-num-seqs\n      - \"8\"\n",
     "vllm", "", kModelTwo},
    {"apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n"
     "      - name: vllm\n        image: vllm/vllm-openai:v0.11.0\n"
     "        command: [\"/bin/sh\", \"-c\"]\n"
     "        args: [\"vllm serve Qwen/Qwen3-8B --max-num-seqs 8\"]\n---\nkind: Service\n",
     "vllm", "0.11.0", kTwo},
    {"command: [\"vllm\", \"serve\"]\nargs:\n- Qwen/Qwen3-8B\n- --max-num-seqs\n- 8\n", "vllm", "",
     kTwo},
    {"image:\n  repository: vllm/vllm-openai\n  tag: v0.11.0\nextraArgs:\n"
     "  - --model=Qwen/Qwen3-8B\n  - --max-num-seqs=8\nresources: {}\n",
     "vllm",
     "0.11.0",
     {"--model=Qwen/Qwen3-8B", "--max-num-seqs=8"}},
    {"servingEngineSpec:\n  modelSpec:\n  - name: q\n    repository: lmcache/vllm/vllm-openai\n"
     "    tag: \"v0.10.2\"\n    modelURL: Qwen/Qwen3-8B\n    vllmConfig:\n      maxNumSeqs: 8\n"
     "      enablePrefixCaching: false\n      extraArgs: [\"--disable-log-requests\"]\n",
     "vllm",
     "0.10.2",
     {"--model", "Qwen/Qwen3-8B", "--max-num-seqs", "8", "--no-enable-prefix-caching",
      "--disable-log-requests"}},
    {"image:\n  repository: vllm/vllm-openai\n  tag: latest\n  command: [vllm, serve, "
     "Qwen/Qwen3-8B, --max-num-seqs, \"8\"]\n",
     "vllm", "", kTwo},
    {"python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-running-requests 8",
     "sglang",
     "",
     {"--model-path", "Qwen/Qwen3-8B", "--max-running-requests", "8"}},
    {"docker run lmsysorg/sglang:v0.5.3-cu129 python3 -m sglang.launch_server --tp 8",
     "sglang",
     "0.5.3",
     {"--tp", "8"}},
    {"mpirun -n 1 trtllm-serve serve nvidia/X --tp_size 4",
     "tensorrt_llm",
     "",
     {"nvidia/X", "--tp_size", "4"}},
    {"trtllm-serve nvidia/X --tp_size 4", "tensorrt_llm", "", {"nvidia/X", "--tp_size", "4"}},
    {"./build/bin/llama-server -m a.gguf -np 4", "llama_cpp", "", {"-m", "a.gguf", "-np", "4"}},
    // Reports lose backslashes, and gain empty lines.
    {"vllm serve Qwen/Qwen3-8B\n--max-num-seqs 8\n", "vllm", "", kTwo},
    {"vllm serve \\\n\n  Qwen/Qwen3-8B \\\n\n  --max-num-seqs 8\n", "vllm", "", kTwo},
    {"vllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8 \\\n\npython bench.py --rate 4\n", "vllm", "",
     kTwo},
    // Variables and lists of the text.
    {"export MODEL=\"Qwen/Qwen3-8B\" \\\nVLLM_X=a \\\n#DEBUG=1 \\\nuv run vllm serve $MODEL "
     "--max-num-seqs 8",
     "vllm", "", kTwo},
    {"export ARGS=\"--max-num-seqs \\\n  ${N:-8} \"\nvllm serve Qwen/Qwen3-8B ${ARGS}\n", "vllm",
     "", kTwo},
    {"ARGS=(\n  Qwen/Qwen3-8B  # the model\n)\nARGS+=(--max-num-seqs 8)\nvllm serve "
     "\"${ARGS[@]}\"\n",
     "vllm", "", kTwo},
    {"A=(Qwen/Qwen3-8B)\nA=(\"${A[@]}\" --max-num-seqs 8)\nvllm serve ${A[@]}\n", "vllm", "", kTwo},
    {"A='--x {\"m\": 1}'\nvllm serve $A", "vllm", "", {"--x", "{\"m\": 1}"}},
    // Windows.
    {"llama-server.exe -m \"C:\\m\\a.gguf\" -np 4",
     "llama_cpp",
     "",
     {"-m", "C:\\m\\a.gguf", "-np", "4"}},
    {"$base = \"C:\\m\"\n.\\bin\\llama-server.exe `\n  -m \"${base}\\a.gguf\" `\n  -np 4\n",
     "llama_cpp",
     "",
     {"-m", "C:\\m\\a.gguf", "-np", "4"}},
    {"set N=4\nllama-server ^\n  -m m\\a.gguf -np $N\n",
     "llama_cpp",
     "",
     {"-m", "m\\a.gguf", "-np", "4"}},
    // Signs of Windows in the text of another shell.
    {"```bash\nvllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8\n```\nThanks", "vllm", "", kTwo},
    {"echo \"done^\"\nX=\"a^\nb\"\nvllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8\n", "vllm", "",
     kTwo},
    {"vllm serve Qwen/Qwen3-8B --worker-cls my.executor.E\\ t --max-num-seqs 8",
     "vllm",
     "",
     {"Qwen/Qwen3-8B", "--worker-cls", "my.executor.E t", "--max-num-seqs", "8"}},
    // Lines in which programs print a command.
    {"creating with command: [vllm serve Qwen/Qwen3-8B --x {\"m\": \"n\"} --max-num-seqs=8], "
     "ports: []",
     "vllm",
     "",
     {"Qwen/Qwen3-8B", "--x", "{\"m\": \"n\"}", "--max-num-seqs=8"}},
    {"Popen(['vllm', 'serve', 'Qwen/Qwen3-8B', '--max-num-seqs', '8'])",
     "vllm",
     "",
     {"Qwen/Qwen3-8B", "--max-num-seqs", "8"}},
    // The only server that has all of these flags.
    {"args:\n  - '--model'\n  - Qwen/Qwen3-8B\n  - '--max-num-seqs'\n  - '8'\n", "vllm", "",
     kModelTwo},
    {"--model-path Qwen/Qwen3-8B --max-running-requests 8",
     "sglang",
     "",
     {"--model-path", "Qwen/Qwen3-8B", "--max-running-requests", "8"}},
    {"spec:\n  predictor:\n    model:\n      args: [--max-num-seqs=8]\n      storageUri: "
     "hf://Qwen/Qwen3-8B\n",
     "vllm",
     "",
     {"--model", "hf://Qwen/Qwen3-8B", "--max-num-seqs=8"}},
    // Images whose tags are no versions of the server.
    {"docker run nvcr.io/nvidia/vllm:26.02-py3 vllm serve Qwen/Qwen3-8B --max-num-seqs 8", "vllm",
     "", kTwo},
};

}  // namespace

TEST_CASE("pasted commands are found in every form", "[engines][command]") {
  for (const Case& one : kCases) {
    INFO(one.text);
    const PastedCommand command = found(one.text);
    CHECK(command.server->policy == one.policy);
    CHECK(command.version == one.version);
    CHECK(command.words == one.words);
  }
}

TEST_CASE("a text without one server is refused", "[engines][command]") {
  const auto refusal = [](const std::string& text) {
    return error_of<UsageError>([&] { (void)found(text); });
  };
  CHECK(refusal("--no-such-flag 8").starts_with("--command: starts no server that is known; "));
  CHECK(refusal("--model x") ==
        "--command: has flags of several servers, and starts none; allowed: with --engine: vllm, "
        "sglang, llama_cpp");
  CHECK(refusal("").starts_with("--command: starts no server that is known; "));
  CHECK(refusal("vllm bench serve --model x").starts_with("--command: starts no server"));
  CHECK(refusal("vllm serve a & vllm serve b") ==
        "--command: starts 2 servers (vLLM, vLLM); allowed: the command of one, or --engine where "
        "they differ");
  CHECK(refusal("vllm serve 'a --tp 2").starts_with("--command: the quote ' in "));
  // Flags alone are those of a server that is known from elsewhere, in YAML, too.
  CHECK(find_command("args:\n  - --model=Qwen/Qwen3-8B\n", &kVllmArguments, "--command").words ==
        Words{"--model=Qwen/Qwen3-8B"});
  CHECK(find_command("--max-num-seqs 8", &kVllmArguments, "--flags").words ==
        Words{"--max-num-seqs", "8"});
}

TEST_CASE("environment variables of a server are told", "[engines][command]") {
  const auto told = [](const std::string& text) {
    const GivenFlags given = flags_of(found(text), "--command");
    return given.not_modelled.empty() ? std::string() : given.not_modelled.front().first;
  };
  CHECK(told("VLLM_USE_V1=0 HF_TOKEN=x vllm serve Qwen/Qwen3-8B") == "VLLM_USE_V1");
  CHECK(told("docker run -e VLLM_USE_V1=0 vllm/vllm-openai --model Qwen/Qwen3-8B") ==
        "VLLM_USE_V1");
  CHECK(told("image: vllm/vllm-openai\nargs: [--model, $(MODEL)]\nenv:\n- {name: MODEL, value: "
             "Qwen/Qwen3-8B}\n") == "");
  CHECK(flags_of(found("image: vllm/vllm-openai\nargs: [--model, $(MODEL)]\nenv:\n- {name: MODEL, "
                       "value: Qwen/Qwen3-8B}\n"),
                 "--command")
            .arguments.at("model") == "Qwen/Qwen3-8B");
}

TEST_CASE("texts that no shell could read end", "[engines][command]") {
  CHECK(found("vllm serve Qwen/Qwen3-8B\f --max-num-seqs 8\v").words == kTwo);
  CHECK(found("ssh gpu7 'vllm serve Qwen/Qwen3-8B --max-num-seqs 8'").words == kTwo);
}

TEST_CASE("the arguments in a log are a command", "[engines][command]") {
  const PastedCommand vllm = found(
      "INFO 07-01 12:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
      "(APIServer pid=9) INFO 07-01 12:00:03 [utils.py:2] non-default args: {'model_tag': "
      "'Qwen/Qwen3-8B', 'max_num_seqs': 8, 'compilation_config': {'cudagraph_mode': 'NONE'}}\n"
      "INFO more\n");
  CHECK((vllm.server == &kVllmArguments && vllm.version == "0.11.0" && vllm.logged.has_value()));
  CHECK(vllm.logged->at("max_num_seqs") == "8");
  const PastedCommand sglang = found(
      "[2026-01-02 03:04:05] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=2, "
      "dtype='auto')\n");
  CHECK(sglang.server == &kSglangArguments);
  CHECK(sglang.logged->at("tp_size") == "2");
}

TEST_CASE("a here-document is the server's file", "[engines][command]") {
  const PastedCommand command = found(
      "cat > /tmp/extra.yml <<EOF\nmax_batch_size: 64\nkv_cache_config:\n  dtype: fp8\nEOF\n"
      "trtllm-serve nvidia/X --extra_llm_api_options /tmp/extra.yml\n");
  CHECK(command.server == &kTensorRtLlmArguments);
  CHECK(command.files.at("/tmp/extra.yml") ==
        "max_batch_size: 64\nkv_cache_config:\n  dtype: fp8\n");
  CHECK(command.words == Words{"nvidia/X", "--extra_llm_api_options", "/tmp/extra.yml"});
}

TEST_CASE("words of a pasted shell text", "[engines][command]") {
  const auto words = [](const std::string& text) {
    return split_shell(text, "--command").commands.at(0);
  };
  CHECK(words(R"(a "b c" 'd "e' f\ g)") == Words{"a", "b c", "d \"e", "f g"});
  CHECK(words(R"(a --x {"m":"n", "k": 2} b)") == Words{"a", "--x", R"({"m":"n", "k": 2})", "b"});
  CHECK(words(R"(a --x '{"m":"n"}')") == Words{"a", "--x", R"({"m":"n"})"});
  CHECK(words(R"(a "{\"m\": 1}")") == Words{"a", R"({"m": 1})"});
  CHECK(words("a 2>&1 --b 1>file c") == Words{"a", "--b", "c"});
  CHECK(words("A=(b > c; d | e & < f)\na \"${A[@]}\"") == Words{"a", "b", "c", "d", "e", "f"});
  CHECK(words("a ${X:---b 32} ${Y:-c} \"${Z:-d e}\"") == Words{"a", "--b", "32", "c", "d e"});
  CHECK(words("X=f\na ${X:---b 32}") == Words{"a", "f"});
  CHECK(words("X=\na ${X:---b 32}") == Words{"a", "--b", "32"});
  CHECK(words("a { {b c} d") == Words{"a", "{", "{b c}", "d"});
  CHECK(words("a $X ${Y}") == Words{"a", "$X", "${Y}"});
  // Texts that grow without end are refused, and many empty lines take no time.
  std::string doubled = "A=(a b)\nB=ab\n";
  for (int i = 0; i < 40; ++i) doubled += "A=(\"${A[@]}\" \"${A[@]}\")\n";
  CHECK(error_of<UsageError>([&] { (void)split_shell(doubled, "--command"); }) ==
        "--command: $A is too long; allowed: values of up to a megabyte");
  doubled = "B=ab\n";
  for (int i = 0; i < 40; ++i) doubled += "B=$B$B\n";
  CHECK(error_of<UsageError>([&] { (void)split_shell(doubled, "--command"); }) ==
        "--command: $B is too long; allowed: values of up to a megabyte");
  std::string many = "A='" + std::string(2, 'b');
  for (int i = 0; i < 50'000; ++i) many += " b";
  many += "'\n";
  for (int i = 0; i < 2'000; ++i) many += "echo $A\n";
  CHECK(error_of<UsageError>([&] { (void)split_shell(many, "--command"); }) ==
        "--command: $A is too long; allowed: values of up to a megabyte");
  CHECK(words("a " + std::string(200'000, '{')).size() == 2);
  CHECK(words("a \\\n" + std::string(1'000'000, '\n') + " b") == Words{"a", "b"});
}

}  // namespace TEST_FILE
