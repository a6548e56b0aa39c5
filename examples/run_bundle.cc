// Runs a bundle from C++, without Python, for one float32 input and output:
//
//     run_bundle BUNDLE INPUT.npy OUTPUT.npy
//
// Headers are those of the wheel apache-tvm-ffi (apache-tvm's own runtime headers include one that
// its wheel lacks, tvm/support/io.h), libraries those of both; docs/deploy.md has the command that
// compiles this. It refuses a CPU that lacks instruction sets of the bundle; unlike run.py it verifies
// neither digests nor a signature: check the copy first.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
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

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
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
  DLDataType dtype{static_cast<uint8_t>(type[0] == 'f' ? kDLFloat : kDLInt),
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
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
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

int Run(const std::string& bundle, const std::string& input, const std::string& output) {
  auto manifest = json::Parse(ReadFile(bundle + "/bundle.json")).cast<json::Object>();
  CheckCpu(manifest);
  // TVM reads this when its first parallel kernel runs; alone it takes half of the cores.
  auto threads = std::to_string(manifest[ffi::String("threads")].cast<int64_t>());
  setenv("TVM_NUM_THREADS", threads.c_str(), 1);
  // Its idle threads would keep their cores busy for 0.1 s; this is some 5 ms.
  setenv("TVM_THREAD_POOL_SPIN_COUNT", "10000", 0);
  auto variants = manifest[ffi::String("variants")].cast<json::Array>();
  auto variant = variants[0].cast<json::Object>();

  auto library = variant[ffi::String("library")].cast<ffi::String>();
  auto loaded = ffi::Module::LoadFromFile(bundle + "/" + std::string(library));
  auto machine = (*loaded->GetFunction("vm_load_executable"))().cast<ffi::Module>();
  (*machine->GetFunction("vm_initialization"))(static_cast<int>(kDLCPU), 0, kPooledAllocator);

  auto parameters = FromNpz(ReadFile(bundle + "/params.npz"));
  std::vector<Tensor> tensors{FromNpy(ReadFile(input))};
  for (const auto& name : variant[ffi::String("parameters")].cast<json::Array>()) {
    tensors.push_back(parameters.at(std::string(name.cast<ffi::String>())));
  }
  std::vector<ffi::AnyView> arguments(tensors.begin(), tensors.end());
  ffi::Any result;
  (*machine->GetFunction("main"))
      .CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  if (auto outputs = result.as<ffi::Array<Tensor>>()) result = (*outputs)[0];
  WriteNpy(result.cast<Tensor>(), output);
  return 0;
}

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: run_bundle BUNDLE INPUT.npy OUTPUT.npy\n";
    return 2;
  }
  try {
    return Run(arguments[1], arguments[2], arguments[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
