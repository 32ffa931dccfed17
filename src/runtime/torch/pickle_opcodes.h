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

// "INST", "NEWOBJ" …, of all opcodes that Python has and the reader does not follow; or null.
inline const char* RefusedPickleOpName(uint8_t code) {
  switch (code) {
    case '0':
      return "POP";
    case '1':
      return "POP_MARK";
    case '2':
      return "DUP";
    case 'F':
      return "FLOAT";
    case 'I':
      return "INT";
    case 'L':
      return "LONG";
    case 'P':
      return "PERSID";
    case 'S':
      return "STRING";
    case 'T':
      return "BINSTRING";
    case 'U':
      return "SHORT_BINSTRING";
    case 'V':
      return "UNICODE";
    case 'd':
      return "DICT";
    case 'g':
      return "GET";
    case 'i':
      return "INST";
    case 'l':
      return "LIST";
    case 'o':
      return "OBJ";
    case 'p':
      return "PUT";
    case 'B':
      return "BINBYTES";
    case 'C':
      return "SHORT_BINBYTES";
    case 0x81:
      return "NEWOBJ";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x8B:
      return "LONG4";
    case 0x8E:
      return "BINBYTES8";
    case 0x8F:
      return "EMPTY_SET";
    case 0x90:
      return "ADDITEMS";
    case 0x91:
      return "FROZENSET";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x96:
      return "BYTEARRAY8";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return nullptr;
  }
}

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_PICKLE_OPCODES_H_
