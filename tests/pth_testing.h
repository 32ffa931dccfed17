// Zips and pickles written by hand, right and wrong ones: what torch.save writes, and what an
// attacker would write.

#ifndef VARVE_TESTS_PTH_TESTING_H_
#define VARVE_TESTS_PTH_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve {

struct ZipPart {
  std::string name;
  std::vector<std::byte> content;
  // Wrong values for the headers.
  std::optional<uint32_t> crc, bytes, packed_bytes, local_bytes;
  std::optional<uint64_t> header_at;
  std::optional<std::string> local_name;
  uint16_t method = 0;
  uint16_t flags = 0;
  bool zip64 = false;  // sizes and place in a zip64 field
};

struct ZipShape {
  bool zip64 = true;  // end record and locator, as PyTorch writes them
  std::string comment;
};

std::vector<std::byte> BuildZip(const std::vector<ZipPart>& parts, const ZipShape& shape = {});

// Opcodes one after the other; protocol 2 and STOP are written by Build.
class PickleBuilder {
 public:
  PickleBuilder& Op(std::string_view bytes);
  PickleBuilder& Global(std::string_view module, std::string_view name);
  PickleBuilder& Text(std::string_view text);
  PickleBuilder& Int(int64_t value);
  PickleBuilder& Ints(const std::vector<int64_t>& values);  // a tuple
  PickleBuilder& Mark() { return Op("("); }
  PickleBuilder& Tuple() { return Op("t"); }
  PickleBuilder& Reduce() { return Op("R"); }
  PickleBuilder& Storage(std::string_view type, std::string_view key, int64_t count);
  PickleBuilder& Tensor(std::string_view type, std::string_view key, int64_t count, int64_t offset,
                        const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
  // Without the protocol and STOP.
  const std::string& body() const { return body_; }
  std::vector<std::byte> Build() const;

 private:
  std::string body_;
};

std::vector<std::byte> ToBytes(std::string_view text);

// A .pth: the pickle, "byteorder" unless empty, and storages data/KEY.
std::vector<std::byte> BuildPth(
    std::span<const std::byte> pickle,
    const std::vector<std::pair<std::string, std::vector<std::byte>>>& storages,
    std::string_view byte_order = "little");

}  // namespace varve

#endif  // VARVE_TESTS_PTH_TESTING_H_
