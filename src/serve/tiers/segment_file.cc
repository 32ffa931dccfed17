#include "serve/tiers/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace varve::serve {
namespace {

constexpr std::array<char, kSegmentHeadBytes> kSegmentMagic = {'V', 'A', 'R', 'V',
                                                               'E', 'S', 'G', '1'};

}  // namespace

// A full disk is no fault of the disk.
Status SegmentFile::Error(const char* what) const {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return Status(full ? StatusCode::kOutOfMemory : StatusCode::kIoError,
                fmt::format("{}: {}: {}", path_, what, std::generic_category().message(errno)));
}

Status SegmentFile::WriteAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ops_->Write(write_file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status();
}

Status SegmentFile::ReadAll(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t read = pread(read_file_, to.data(), to.size(), static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Error("read");
    if (read == 0) return DataLoss(fmt::format("{}: ends at {}", path_, offset));
    to = to.subspan(static_cast<size_t>(read));
    offset += static_cast<uint64_t>(read);
  }
  return Status();
}

Result<std::shared_ptr<SegmentFile>> SegmentFile::Create(const std::string& path, FileOps* ops) {
  std::shared_ptr<SegmentFile> file(new SegmentFile(path, ops));
  file->write_file_ = ops->Create(path);
  if (file->write_file_ < 0) return file->Error("create");
  file->read_file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Status status = file->read_file_ < 0 ? file->Error("open")
                                       : file->WriteAll(std::as_bytes(std::span(kSegmentMagic)));
  if (!status.ok()) {
    file->Remove();
    return status;
  }
  file->size_ = kSegmentHeadBytes;
  return file;
}

Result<SegmentFile::Opened> SegmentFile::Open(const std::string& path, FileOps* ops) {
  Opened opened;
  opened.file.reset(new SegmentFile(path, ops));
  SegmentFile& file = *opened.file;
  file.read_file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (file.read_file_ < 0 || fstat(file.read_file_, &info) != 0) return file.Error("open");
  const auto size = static_cast<uint64_t>(info.st_size);
  std::array<char, kSegmentHeadBytes> magic = {};
  if (size < magic.size()) return DataLoss(fmt::format("{}: {} bytes", path, size));
  VARVE_RETURN_IF_ERROR(file.ReadAll(0, std::as_writable_bytes(std::span(magic))));
  if (magic != kSegmentMagic) return DataLoss(fmt::format("{}: is not a segment", path));
  uint64_t offset = kSegmentHeadBytes;
  while (size - offset >= kRecordHeaderBytes) {
    RecordHeaderBytes bytes;
    VARVE_RETURN_IF_ERROR(file.ReadAll(offset, bytes));
    const Result<RecordHeader> header = ReadRecordHeader(bytes);
    if (!header.ok() || header->RecordBytes() > size - offset) break;
    opened.records.push_back({*header, offset});
    offset += header->RecordBytes();
  }
  opened.bytes_cut = size - offset;
  file.size_ = offset;
  if (opened.bytes_cut > 0 && truncate(path.c_str(), static_cast<off_t>(offset)) != 0)
    return file.Error("truncate");
  return opened;
}

SegmentFile::~SegmentFile() {
  CloseForWriting();
  if (read_file_ >= 0) close(read_file_);
}

void SegmentFile::CloseForWriting() {
  if (write_file_ >= 0) ops_->Close(write_file_);
  write_file_ = -1;
}

Result<uint64_t> SegmentFile::Append(const RecordHeader& header, std::span<const std::byte> image) {
  if (!can_append()) return FailedPrecondition(fmt::format("{}: takes no more records", path_));
  const uint64_t offset = size_;
  const RecordHeaderBytes head = WriteRecordHeader(header);
  Status status = WriteAll(head);
  if (status.ok()) status = WriteAll(image);
  if (status.ok()) {
    size_ += header.RecordBytes();
    return offset;
  }
  // What follows a part of a record would not be found again.
  const auto end = static_cast<off_t>(offset);
  if (ftruncate(write_file_, end) != 0 || lseek(write_file_, end, SEEK_SET) != end)
    CloseForWriting();
  return status;
}

Result<std::vector<std::byte>> SegmentFile::Read(uint64_t offset, const PageKey& key) const {
  RecordHeaderBytes bytes;
  VARVE_RETURN_IF_ERROR(ReadAll(offset, bytes));
  VARVE_ASSIGN_OR_RETURN(const RecordHeader header, ReadRecordHeader(bytes));
  std::vector<std::byte> image(header.image_bytes);
  VARVE_RETURN_IF_ERROR(ReadAll(offset + kRecordHeaderBytes, image));
  VARVE_RETURN_IF_ERROR(CheckRecordImage(header, key, image));
  return image;
}

void SegmentFile::Remove() {
  CloseForWriting();
  ops_->Remove(path_);
}

}  // namespace varve::serve
