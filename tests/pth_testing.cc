#include "tests/pth_testing.h"

#include <cstring>

#include "base/byte_io.h"
#include "runtime/torch/zip_reader.h"

namespace varve {
namespace {

void AppendText(std::vector<std::byte>& out, std::string_view text) {
  AppendBytes(out, std::as_bytes(std::span(text)));
}

template <typename T>
void AppendTo(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendLocal(std::vector<std::byte>& out, const ZipPart& part) {
  const std::string& name = part.local_name.value_or(part.name);
  const auto size = part.local_bytes.value_or(static_cast<uint32_t>(part.content.size()));
  AppendNumber(out, uint32_t{0x04034B50});
  AppendNumber(out, uint16_t{0});
  AppendNumber(out, part.flags);
  AppendNumber(out, part.method);
  AppendNumber(out, uint32_t{0});
  AppendNumber(out, part.crc.value_or(ZipCrc(part.content)));
  AppendNumber(out, size);
  AppendNumber(out, size);
  AppendNumber(out, static_cast<uint16_t>(name.size()));
  AppendNumber(out, uint16_t{0});
  AppendText(out, name);
  AppendBytes(out, part.content);
}

void AppendEntry(std::vector<std::byte>& out, const ZipPart& part, uint64_t local_at) {
  const auto true_bytes = static_cast<uint32_t>(part.content.size());
  const uint32_t bytes = part.bytes.value_or(true_bytes);
  const uint32_t packed_bytes = part.packed_bytes.value_or(bytes);
  const uint64_t header_at = part.header_at.value_or(local_at);
  AppendNumber(out, uint32_t{0x02014B50});
  AppendNumber(out, uint16_t{0});
  AppendNumber(out, uint16_t{0});
  AppendNumber(out, part.flags);
  AppendNumber(out, part.method);
  AppendNumber(out, uint32_t{0});
  AppendNumber(out, part.crc.value_or(ZipCrc(part.content)));
  AppendNumber(out, part.zip64 ? uint32_t{0xFFFFFFFF} : packed_bytes);
  AppendNumber(out, part.zip64 ? uint32_t{0xFFFFFFFF} : bytes);
  AppendNumber(out, static_cast<uint16_t>(part.name.size()));
  AppendNumber(out, static_cast<uint16_t>(part.zip64 ? 28 : 0));
  AppendNumber(out, uint16_t{0});
  AppendNumber(out, uint64_t{0});
  AppendNumber(out, part.zip64 ? uint32_t{0xFFFFFFFF} : static_cast<uint32_t>(header_at));
  AppendText(out, part.name);
  if (!part.zip64) return;
  AppendNumber(out, uint16_t{1});
  AppendNumber(out, uint16_t{24});
  AppendNumber(out, uint64_t{bytes});
  AppendNumber(out, uint64_t{packed_bytes});
  AppendNumber(out, header_at);
}

}  // namespace

std::vector<std::byte> BuildZip(const std::vector<ZipPart>& parts, const ZipShape& shape) {
  std::vector<std::byte> out;
  std::vector<uint64_t> places;
  for (const ZipPart& part : parts) {
    places.push_back(out.size());
    AppendLocal(out, part);
  }
  const uint64_t directory_at = out.size();
  for (size_t i = 0; i < parts.size(); ++i) AppendEntry(out, parts[i], places[i]);
  const uint64_t directory_bytes = out.size() - directory_at;
  const uint64_t zip64_at = out.size();
  if (shape.zip64) {
    AppendNumber(out, uint32_t{0x06064B50});
    AppendNumber(out, uint64_t{44});
    AppendNumber(out, uint32_t{0});
    AppendNumber(out, uint64_t{0});
    AppendNumber(out, uint64_t{parts.size()});
    AppendNumber(out, uint64_t{parts.size()});
    AppendNumber(out, directory_bytes);
    AppendNumber(out, directory_at);
    AppendNumber(out, uint32_t{0x07064B50});
    AppendNumber(out, uint32_t{0});
    AppendNumber(out, zip64_at);
    AppendNumber(out, uint32_t{1});
  }
  AppendNumber(out, uint32_t{0x06054B50});
  AppendNumber(out, uint32_t{0});
  AppendNumber(out, static_cast<uint16_t>(parts.size()));
  AppendNumber(out, static_cast<uint16_t>(parts.size()));
  AppendNumber(out, static_cast<uint32_t>(directory_bytes));
  AppendNumber(out, static_cast<uint32_t>(directory_at));
  AppendNumber(out, static_cast<uint16_t>(shape.comment.size()));
  AppendText(out, shape.comment);
  return out;
}

PickleBuilder& PickleBuilder::Op(std::string_view bytes) {
  body_ += bytes;
  return *this;
}

PickleBuilder& PickleBuilder::Global(std::string_view module, std::string_view name) {
  body_ += 'c';
  body_.append(module).append("\n").append(name).append("\n");
  return *this;
}

PickleBuilder& PickleBuilder::Text(std::string_view text) {
  body_ += 'X';
  AppendTo(body_, static_cast<uint32_t>(text.size()));
  body_ += text;
  return *this;
}

PickleBuilder& PickleBuilder::Int(int64_t value) {
  body_ += "\x8A\x08";
  AppendTo(body_, value);
  return *this;
}

PickleBuilder& PickleBuilder::Ints(const std::vector<int64_t>& values) {
  Mark();
  for (const int64_t value : values) Int(value);
  return Tuple();
}

PickleBuilder& PickleBuilder::Storage(std::string_view type, std::string_view key, int64_t count) {
  return Mark()
      .Text("storage")
      .Global("torch", type)
      .Text(key)
      .Text("cpu")
      .Int(count)
      .Tuple()
      .Op("Q");
}

PickleBuilder& PickleBuilder::Tensor(std::string_view type, std::string_view key, int64_t count,
                                     int64_t offset, const std::vector<int64_t>& shape,
                                     const std::vector<int64_t>& strides) {
  Global("torch._utils", "_rebuild_tensor_v2").Mark().Storage(type, key, count);
  Int(offset).Ints(shape).Ints(strides);
  return Op("\x89").Global("collections", "OrderedDict").Op(")R").Tuple().Reduce();
}

std::vector<std::byte> PickleBuilder::Build() const { return ToBytes("\x80\x02" + body_ + "."); }

std::vector<std::byte> ToBytes(std::string_view text) {
  std::vector<std::byte> bytes;
  AppendText(bytes, text);
  return bytes;
}

std::vector<std::byte> BuildPth(
    std::span<const std::byte> pickle,
    const std::vector<std::pair<std::string, std::vector<std::byte>>>& storages,
    std::string_view byte_order) {
  std::vector<ZipPart> parts(1);
  parts[0].name = "a/data.pkl";
  parts[0].content.assign(pickle.begin(), pickle.end());
  if (!byte_order.empty()) {
    parts.emplace_back();
    parts.back().name = "a/byteorder";
    parts.back().content = ToBytes(byte_order);
  }
  for (const auto& [key, content] : storages) {
    parts.emplace_back();
    parts.back().name = "a/data/" + key;
    parts.back().content = content;
  }
  return BuildZip(parts);
}

}  // namespace varve
