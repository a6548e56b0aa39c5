// Runs a bundle from C++, without Python:
//
//     run_bundle BUNDLE INPUT.npy OUTPUT.npy [SHA256]
//     run_bundle BUNDLE INPUT.npy INPUT.npy ... OUTPUT [SHA256]
//
// Of several outputs, OUTPUT becomes a folder with output_0.npy and so on, in the order of the
// manifest's `outputs`. Headers are those of the wheel apache-tvm-ffi (apache-tvm's own runtime
// headers include one that its wheel lacks, tvm/support/io.h), libraries those of both;
// docs/deploy.md has the command that compiles this.
//
// It refuses a CPU that lacks instruction sets of the bundle, and a library or parameters of another
// SHA-256 than the manifest says: each is opened once, by no link, and hashed as it is copied into
// memory, from where it is loaded. SHA256 is the manifest's own digest; a signature is not verified.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;
using ffi::Tensor;

constexpr int kPooledAllocator = 2;
constexpr size_t kAlignment = 64;  // what compiled code assumes

struct Memory {
  void AllocData(DLTensor* tensor) {
    size_t size = (ffi::GetDataSize(*tensor) + kAlignment - 1) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, size);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

// SHA-256 of FIPS 180-4, in hexadecimal digits.
std::string Sha256(const std::string& message) {
  // Fractions of roots of the first primes: cube roots for the rounds, square roots to begin with.
  static const auto kRounds = [] {
    std::array<uint32_t, 64> found{};
    int count = 0;
    for (int n = 2; count < 64; ++n) {
      bool prime = true;
      for (int by = 2; by * by <= n; ++by) prime = prime && n % by;
      if (!prime) continue;
      long double root = cbrtl(n);
      found[count++] = static_cast<uint32_t>((root - floorl(root)) * 4294967296.0L);
    }
    return found;
  }();
  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  auto turned = [](uint32_t value, int by) { return value >> by | value << (32 - by); };
  auto take_in = [&](const char* block) {
    std::array<uint32_t, 64> word{};
    for (int i = 0; i < 64; ++i) word[i / 4] = word[i / 4] << 8 | static_cast<uint8_t>(block[i]);
    for (int i = 16; i < 64; ++i) {
      uint32_t a = word[i - 15], b = word[i - 2];
      word[i] = word[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + word[i - 7] +
                (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    auto v = state;
    for (int i = 0; i < 64; ++i) {
      uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) +
                     ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRounds[i] + word[i];
      uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) +
                     ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {one + two, v[0], v[1], v[2], v[3] + one, v[4], v[5], v[6]};
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  };
  size_t whole = message.size() / 64 * 64;
  std::string rest = message.substr(whole) + '\x80';
  rest.resize((rest.size() + 8 + 63) / 64 * 64 - 8);
  uint64_t bits = 8 * static_cast<uint64_t>(message.size());
  for (int shift = 56; shift >= 0; shift -= 8) rest += static_cast<char>(bits >> shift);
  for (size_t at = 0; at < whole; at += 64) take_in(message.data() + at);
  for (size_t at = 0; at < rest.size(); at += 64) take_in(rest.data() + at);
  std::ostringstream text;
  for (uint32_t value : state) text << std::hex << std::setw(8) << std::setfill('0') << value;
  return text.str();
}

// A plain file of a bundle, opened by no link and read once; with a digest, no other bytes pass.
std::string ReadVerified(const std::string& bundle, const std::string& name,
                         const std::string& digest) {
  std::string path = bundle + "/" + name, content;
  int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat found {};
  if (file < 0 || fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) {
    if (file >= 0) close(file);
    throw std::runtime_error("a bundle without a proper file " + name + "; copy it again");
  }
  content.resize(found.st_size);
  size_t size = 0;
  for (ssize_t part = 1; part > 0 && size < content.size(); size += std::max<ssize_t>(part, 0)) {
    part = read(file, &content[size], content.size() - size);
  }
  close(file);
  content.resize(size);
  if (!digest.empty() && Sha256(content) != digest) {
    throw std::runtime_error("a bundle whose file " + name + " has changed; expected SHA-256 " +
                             digest.substr(0, 12) + "...; copy it again, or deploy anew");
  }
  return content;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A library from these bytes in memory, by a link with the suffix that tells TVM how to load it.
ffi::Module LoadLibrary(const std::string& content) {
  int memory = memfd_create("library", MFD_CLOEXEC);
  bool copied = memory >= 0;
  for (size_t at = 0; copied && at < content.size();) {
    ssize_t part = write(memory, content.data() + at, content.size() - at);
    copied = part > 0;
    at += copied ? part : 0;
  }
  char folder[] = "/tmp/bundle-XXXXXX";
  if (!copied || mkdtemp(folder) == nullptr) throw std::runtime_error("no memory, or no room in /tmp");
  std::string link = std::string(folder) + "/library.so";
  std::string goal = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory);
  bool linked = symlink(goal.c_str(), link.c_str()) == 0;
  auto remove = [&] {
    unlink(link.c_str());
    rmdir(folder);
    close(memory);
  };
  try {
    if (!linked) throw std::runtime_error("no link in /tmp");
    auto loaded = ffi::Module::LoadFromFile(link);
    remove();
    return loaded;
  } catch (...) {
    remove();
    throw;
  }
}

template <typename Number>
Number At(const std::string& bytes, size_t offset) {
  Number value;
  if (offset + sizeof(value) > bytes.size()) throw std::runtime_error("a file that ends early");
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// A .npy file of format 1, little-endian and in C order, as run.py and numpy.save write it.
Tensor FromNpy(const std::string& bytes) {
  size_t header_size = At<uint16_t>(bytes, 8);
  std::string header = bytes.substr(10, header_size);
  std::string type = header.substr(header.find("'descr': '") + 11, 2);
  const std::map<char, DLDataTypeCode> codes{
      {'f', kDLFloat}, {'i', kDLInt}, {'u', kDLUInt}, {'b', kDLBool}};
  DLDataType dtype{static_cast<uint8_t>(codes.at(type[0])),
                   static_cast<uint8_t>(8 * (type[1] - '0')), 1};
  std::vector<int64_t> shape;
  const char* at = header.c_str() + header.find("'shape': (") + 10;
  while (*at != ')') {
    char* end;
    shape.push_back(std::strtoll(at, &end, 10));
    at = end + std::strspn(end, ", ");
  }
  auto tensor = Tensor::FromNDAlloc(Memory(), ffi::Shape(shape), dtype, DLDevice{kDLCPU, 0});
  if (ffi::GetDataSize(tensor) != bytes.size() - 10 - header_size) {
    throw std::runtime_error("a .npy file of another size than its header says");
  }
  std::memcpy(tensor.data_ptr(), bytes.data() + 10 + header_size, ffi::GetDataSize(tensor));
  return tensor;
}

// The arrays of an .npz file that is not compressed: a zip archive of .npy files.
std::map<std::string, Tensor> FromNpz(const std::string& bytes) {
  std::map<std::string, Tensor> arrays;
  size_t at = 0;
  while (At<uint32_t>(bytes, at) == 0x04034b50) {
    uint64_t size = At<uint32_t>(bytes, at + 18);
    size_t name_size = At<uint16_t>(bytes, at + 26), extra_size = At<uint16_t>(bytes, at + 28);
    // NumPy writes sizes of 64 bits: the packed one is the second number of the extra field.
    if (size == 0xffffffff) size = At<uint64_t>(bytes, at + 30 + name_size + 4 + 8);
    std::string name = bytes.substr(at + 30, name_size);
    at += 30 + name_size + extra_size;
    arrays[name.substr(0, name.rfind(".npy"))] = FromNpy(bytes.substr(at, size));
    at += size;
  }
  return arrays;
}

void WriteNpy(const Tensor& tensor, const std::string& path) {
  std::string shape;
  for (int64_t extent : tensor.shape()) shape += std::to_string(extent) + ",";
  const std::map<int, std::string> codes{
      {kDLFloat, "<f"}, {kDLInt, "<i"}, {kDLUInt, "<u"}, {kDLBool, "|b"}};
  std::string type = codes.at(tensor.dtype().code) + std::to_string(tensor.dtype().bits / 8);
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  uint16_t header_size = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char*>(&header_size), sizeof(header_size));
  file << header;
  file.write(static_cast<const char*>(tensor.data_ptr()), ffi::GetDataSize(tensor));
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::string Without(std::string text, const std::string& characters) {
  auto is_one = [&](char c) { return characters.find(c) != std::string::npos; };
  text.erase(std::remove_if(text.begin(), text.end(), is_one), text.end());
  return text;
}

// Names of CPU features by LLVM where Linux has others; those of run.py.
const std::map<std::string, std::string> kCpuFlags = {
    {"sse3", "pni"}, {"lzcnt", "abm"}, {"bmi", "bmi1"}, {"neon", "asimd"}, {"dotprod", "asimddp"},
    {"fullfp16", "asimdhp"}, {"sve2aes", "sveaes"}, {"sve2bitperm", "svebitperm"},
    {"sve2sha3", "svesha3"}, {"sve2sm4", "svesm4"}};

// Throws where this CPU would end in an illegal instruction: the library must not be opened then.
void CheckCpu(const json::Object& manifest) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; flags.empty() && std::getline(cpuinfo, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(Without(word, "_"));
  }
  std::string missing;
  for (const auto& feature : manifest[ffi::String("code_features")].cast<json::Array>()) {
    std::string name(feature.cast<ffi::String>());
    std::string flag = Without(name, ".-");
    auto known = kCpuFlags.find(flag);
    if (!flags.count(known == kCpuFlags.end() ? flag : known->second)) missing += " " + name;
  }
  if (!missing.empty()) {
    throw std::runtime_error("a bundle for a CPU with instruction sets that this one lacks:" +
                             missing + "; deploy the network to this device");
  }
}

// What compiled code returns: a tensor, or several in arrays.
void Append(const ffi::Any& output, std::vector<Tensor>* tensors) {
  if (auto several = output.as<ffi::Array<ffi::Any>>()) {
    for (const auto& part : *several) Append(part, tensors);
  } else {
    tensors->push_back(output.cast<Tensor>());
  }
}

int Run(const std::string& bundle, const std::vector<std::string>& inputs, const std::string& output,
        const std::string& digest) {
  auto manifest =
      json::Parse(ReadVerified(bundle, "bundle.json", digest)).cast<json::Object>();
  auto wanted = manifest[ffi::String("inputs")].cast<json::Array>().size();
  if (wanted != inputs.size()) {
    throw std::runtime_error(std::to_string(inputs.size()) + " inputs; expected " +
                             std::to_string(wanted) + "; name one file for each");
  }
  CheckCpu(manifest);
  auto digests = manifest[ffi::String("files")].cast<json::Object>();
  auto verified = [&](const std::string& name) {
    auto found = digests.find(ffi::String(name));
    if (found == digests.end() || name.find('/') != std::string::npos) {
      throw std::runtime_error("a manifest without the digest of " + name + "; copy it again");
    }
    return ReadVerified(bundle, name, (*found).second.cast<ffi::String>());
  };
  auto variants = manifest[ffi::String("variants")].cast<json::Array>();
  auto variant = variants[0].cast<json::Object>();
  auto parameters = FromNpz(verified("params.npz"));
  auto library = verified(variant[ffi::String("library")].cast<ffi::String>());

  // TVM reads this when its first parallel kernel runs; alone it takes half of the cores.
  auto threads = std::to_string(manifest[ffi::String("threads")].cast<int64_t>());
  setenv("TVM_NUM_THREADS", threads.c_str(), 1);
  // Its idle threads would keep their cores busy for 0.1 s; this is some 5 ms.
  setenv("TVM_THREAD_POOL_SPIN_COUNT", "10000", 0);
  auto loaded = LoadLibrary(library);
  auto machine = (*loaded->GetFunction("vm_load_executable"))().cast<ffi::Module>();
  (*machine->GetFunction("vm_initialization"))(static_cast<int>(kDLCPU), 0, kPooledAllocator);

  std::vector<Tensor> tensors;
  for (const auto& input : inputs) tensors.push_back(FromNpy(ReadFile(input)));
  for (const auto& name : variant[ffi::String("parameters")].cast<json::Array>()) {
    tensors.push_back(parameters.at(std::string(name.cast<ffi::String>())));
  }
  std::vector<ffi::AnyView> arguments(tensors.begin(), tensors.end());
  ffi::Any result;
  (*machine->GetFunction("main"))
      .CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  std::vector<Tensor> outputs;
  Append(result, &outputs);
  if (outputs.size() == 1) {
    WriteNpy(outputs[0], output);
    return 0;
  }
  mkdir(output.c_str(), 0777);  // what cannot be written to is told by the first file
  for (size_t place = 0; place < outputs.size(); ++place) {
    WriteNpy(outputs[place], output + "/output_" + std::to_string(place) + ".npy");
  }
  return 0;
}

bool IsDigest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

int main(int count, char** arguments) {
  std::vector<std::string> given(arguments + 1, arguments + count);
  std::string digest;
  if (given.size() > 3 && IsDigest(given.back())) {
    digest = given.back();
    given.pop_back();
  }
  if (given.size() < 3) {
    std::cerr << "usage: run_bundle BUNDLE INPUT.npy ... OUTPUT [SHA256 of BUNDLE/bundle.json]\n";
    return 2;
  }
  try {
    return Run(given[0], {given.begin() + 1, given.end() - 1}, given.back(), digest);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
