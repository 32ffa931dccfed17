// Constants of the codebook file: docs/format/codebook.md.

#ifndef VARVE_RUNGS_PQ_CODEBOOK_FORMAT_H_
#define VARVE_RUNGS_PQ_CODEBOOK_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace varve {

inline constexpr std::array<char, 8> kCodebookMagic = {'V', 'C', 'O', 'D', 'E', '\r', '\n', 26};
inline constexpr uint32_t kCodebookVersion = 1;
inline constexpr uint32_t kCodebookByteOrder = 0x01020304;
inline constexpr uint32_t kCodebookHeaderBytes = 64;
inline constexpr uint32_t kTableRecordBytes = 40;
inline constexpr size_t kCodebookAlignment = 8;   // of the table records and of each table
inline constexpr uint32_t kTableHasRotation = 1;  // flag of a table record

// Whether the bytes begin as a codebook file does.
bool IsCodebook(std::span<const std::byte> bytes);

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_CODEBOOK_FORMAT_H_
