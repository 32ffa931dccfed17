// The opcodes of Python's pickle, protocols 0 to 5, and their names for messages.

#ifndef VARVE_RUNTIME_TORCH_PICKLE_OPCODES_H_
#define VARVE_RUNTIME_TORCH_PICKLE_OPCODES_H_

#include <cstdint>

namespace varve {

// Those that the reader follows.
enum class PickleOp : uint8_t {
  kMark = '(',
  kStop = '.',
  kEmptyTuple = ')',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kAppend = 'a',
  kAppends = 'e',
  kBuild = 'b',
  kGlobal = 'c',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinPersId = 'Q',
  kReduce = 'R',
  kSetItem = 's',
  kSetItems = 'u',
  kTuple = 't',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct PickleOpName {
  uint8_t code;
  const char* name;
};
// All that Python has and the reader does not follow.
inline constexpr PickleOpName kRefusedPickleOps[] = {
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {'d', "DICT"},
    {'g', "GET"},
    {'i', "INST"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x8B, "LONG4"},
    {0x8E, "BINBYTES8"},
    {0x8F, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
};

// "INST", "NEWOBJ" …, of one that is refused; null of any other.
inline const char* RefusedPickleOpName(uint8_t code) {
  for (const PickleOpName& op : kRefusedPickleOps) {
    if (op.code == code) return op.name;
  }
  return nullptr;
}

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_PICKLE_OPCODES_H_
