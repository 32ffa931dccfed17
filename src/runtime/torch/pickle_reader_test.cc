// Pickles: what torch.save needs is read, what could run something is refused by its name.

#include "runtime/torch/pickle_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/pth_testing.h"

namespace varve {
namespace pickle_reader_test {

using namespace std::string_literals;
using namespace std::string_view_literals;
using Bytes = std::vector<std::byte>;

Bytes Raw(std::string_view body) { return PickleBuilder().Op(body).Build(); }

void ExpectRefused(const Bytes& bytes, const std::string& message,
                   StatusCode code = StatusCode::kDataLoss) {
  const Status status = ReadPickle(bytes, "f").status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message(), "f: at " + message);
}

void ExpectForbidden(const Bytes& bytes, const std::string& message) {
  ExpectRefused(bytes, message, StatusCode::kUnimplemented);
}

TEST(PickleReader, ReadsPlainData) {
  PickleBuilder builder;
  builder.Op("}(").Text("list").Op("](K\x05M\x00\x01J\xFF\xFF\xFF\xFF\x8A\x00\x8A\x01\x80"sv);
  builder.Op(
      "G\x3F\xC0\x00\x00\x00\x00\x00\x00"
      "e"sv);
  builder.Text("pair").Op("NK\x07\x86").Text("yes").Op("\x88").Text("pair").Op("\x89u");
  const Bytes bytes = builder.Build();
  const Result<Pickle> pickle = ReadPickle(bytes, "f");
  ASSERT_TRUE(pickle.ok()) << pickle.status().message();
  const PickleValue& root = (*pickle)[pickle->root];
  ASSERT_TRUE(root.is_dict());
  const PickleValue* list = pickle->Find(root, "list");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->items.size(), 6u);
  const int64_t expected[] = {5, 256, -1, 0, -128};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ((*pickle)[list->items[i]].integer, expected[i]) << i;
  EXPECT_EQ((*pickle)[list->items[5]].real, 0.125);
  EXPECT_EQ(pickle->Find(root, "yes")->integer, 1);
  // Of a key that comes twice the last one counts.
  EXPECT_EQ(pickle->Find(root, "pair")->kind, PickleKind::kBool);
  EXPECT_EQ(pickle->Find(root, "none"), nullptr);
}

TEST(PickleReader, ReadsNewerProtocols) {
  // Protocol 4: a frame, short texts, MEMOIZE, STACK_GLOBAL.
  const Bytes bytes = ToBytes(
      "\x80\x04\x95\x29\0\0\0\0\0\0\0\x8C\x0B"
      "collections\x94\x8C\x0BOrderedDict\x94\x93\x94)R\x94(\x8C\x01"
      "ah\x02u."sv);
  const Result<Pickle> pickle = ReadPickle(bytes, "f");
  ASSERT_TRUE(pickle.ok()) << pickle.status().message();
  const PickleValue& root = (*pickle)[pickle->root];
  EXPECT_EQ(root.kind, PickleKind::kOrderedDict);
  EXPECT_EQ(pickle->Find(root, "a")->kind, PickleKind::kFunction);
}

TEST(PickleReader, ReadsTensorsParametersAndStateDicts) {
  PickleBuilder builder;
  builder.Global("collections", "OrderedDict").Op(")R(").Text("w");
  builder.Global("torch._utils", "_rebuild_parameter").Mark();
  builder.Tensor("HalfStorage", "7", 12, 2, {5, 2}, {2, 1}).Op("\x88");
  builder.Global("collections", "OrderedDict").Op(")R").Tuple().Reduce().Op("u");
  builder.Op("}").Text("_metadata").Global("collections", "OrderedDict").Op(")Rsb");
  const Bytes bytes = builder.Build();
  const Result<Pickle> pickle = ReadPickle(bytes, "f");
  ASSERT_TRUE(pickle.ok()) << pickle.status().message();
  const PickleValue* tensor = pickle->Find((*pickle)[pickle->root], "w");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(tensor->kind, PickleKind::kTensor);
  const PickleValue& storage = (*pickle)[tensor->items[0]];
  EXPECT_EQ((*pickle)[storage.items[0]].text, "HalfStorage");
  EXPECT_EQ((*pickle)[storage.items[1]].text, "7");
  EXPECT_EQ((*pickle)[storage.items[2]].integer, 12);
  EXPECT_EQ((*pickle)[tensor->items[1]].integer, 2);
}

TEST(PickleReader, NoNameButTheAllowedOnesIsTaken) {
  const std::string why = " is not allowed: only tensors, dicts, lists, text and numbers are";
  const auto forbidden = [&](std::string_view module, std::string_view name) {
    PickleBuilder builder;
    builder.Global(module, name).Text("touch /tmp/owned").Op("\x85").Reduce();
    ExpectForbidden(builder.Build(), "2: " + std::string(module) + "." + std::string(name) + why);
  };
  forbidden("os", "system");
  forbidden("posix", "system");
  forbidden("builtins", "eval");
  forbidden("__builtin__", "getattr");
  forbidden("subprocess", "Popen");
  forbidden("torch", "load");
  forbidden("torch", "FloatStorag");
  forbidden("torch.storage", "FloatStorage");
  forbidden("torch._utils", "_rebuild_tensor_v3");
  forbidden("torch._utils", "_rebuild_parameter_with_state");
  forbidden("collections", "defaultdict");
  forbidden("collections.OrderedDict", "");
  // By STACK_GLOBAL, too; and names that are no text.
  ExpectForbidden(PickleBuilder().Text("os").Text("system").Op("\x93").Build(),
                  "20: os.system" + why);
  ExpectForbidden(PickleBuilder().Global("os\x1B[31m", "x\xFF").Build(),
                  "2: os\\x1b[31m.x\\xff" + why);
  ExpectRefused(PickleBuilder().Int(1).Int(2).Op("\x93").Build(),
                "22: STACK_GLOBAL of something that is no text");
  ExpectRefused(Raw("cos"), "2: a name without its end");
}

TEST(PickleReader, OpcodesThatMakeObjectsAreRefused) {
  ExpectForbidden(Raw("(ios\nsystem\n"), "3: opcode INST is not allowed");
  ExpectForbidden(Raw("(o"), "3: opcode OBJ is not allowed");
  ExpectForbidden(Raw(")\x81"), "3: opcode NEWOBJ is not allowed");
  ExpectForbidden(Raw("\x92"), "2: opcode NEWOBJ_EX is not allowed");
  ExpectForbidden(Raw("\x82\x01"), "2: opcode EXT1 is not allowed");
  ExpectForbidden(Raw("P0\n"), "2: opcode PERSID is not allowed");
  ExpectForbidden(Raw("I5\n"), "2: opcode INT is not allowed");
  ExpectForbidden(Raw("S'a'\n"), "2: opcode STRING is not allowed");
  ExpectForbidden(Raw("\x97"), "2: opcode NEXT_BUFFER is not allowed");
  ExpectForbidden(Raw("N2"), "3: opcode DUP is not allowed");
  ExpectRefused(Raw("\xFE"), "2: opcode 0xfe is not known");
  ExpectRefused(Raw("\xFF"), "2: opcode 0xff is not known");
}

TEST(PickleReader, AttributesAreOnlyThoseOfStateDicts) {
  ExpectForbidden(Raw("}}b"), "4: BUILD of a dict is not allowed");
  ExpectForbidden(Raw("]}b"), "4: BUILD of a list is not allowed");
  ExpectForbidden(PickleBuilder().Storage("FloatStorage", "0", 1).Op("}b").Build(),
                  "62: BUILD of a storage is not allowed");
  ExpectForbidden(PickleBuilder().Global("collections", "OrderedDict").Op("}b").Build(),
                  "28: BUILD of a function is not allowed");
  ExpectRefused(PickleBuilder().Global("collections", "OrderedDict").Op(")RNb").Build(),
                "30: BUILD with None, not a dict");
  ExpectRefused(Raw("}b"), "3: BUILD of nothing");
}

TEST(PickleReader, CallsAreThoseOfTorchSave) {
  ExpectRefused(Raw("N)R"), "4: REDUCE calls None");
  ExpectRefused(PickleBuilder().Global("torch", "FloatStorage").Op(")R").Build(),
                "23: REDUCE calls a type of storage");
  ExpectRefused(PickleBuilder().Global("collections", "OrderedDict").Op("]R").Build(),
                "28: REDUCE with a list, not a tuple");
  ExpectForbidden(PickleBuilder().Global("collections", "OrderedDict").Op("]\x85R").Build(),
                  "29: OrderedDict with 1 arguments");
  ExpectRefused(PickleBuilder().Global("torch._utils", "_rebuild_parameter").Op(")R").Build(),
                "36: _rebuild_parameter without a tensor");
  const auto tensor = [](std::string_view arguments) {
    return PickleBuilder().Global("torch._utils", "_rebuild_tensor_v2").Op(arguments).Build();
  };
  ExpectRefused(tensor(")R"), "36: tensor of 0 arguments, not 4 … 7");
  ExpectRefused(tensor("(NNNNtR"), "41: tensor without a storage");
  PickleBuilder builder;
  builder.Global("torch._utils", "_rebuild_tensor_v2").Mark().Storage("FloatStorage", "0", 1);
  const std::string storage = builder.body();
  ExpectRefused(Raw(storage + "NNNtR"), "99: tensor without an offset");
  ExpectRefused(Raw(storage + "K\x01NNtR"), "100: tensor without a shape");
  ExpectRefused(Raw(storage + "K\x01(K\x01Nt)tR"), "104: tensor without a shape");
  ExpectRefused(Raw(storage + "K\x01)]tR"), "100: tensor without strides");
}

TEST(PickleReader, StoragesAreOnlyThoseOfTorchSave) {
  const std::string why = "BINPERSID of something that is no storage";
  ExpectRefused(Raw("NQ"), "3: " + why);
  ExpectRefused(Raw(")Q"), "3: " + why);
  PickleBuilder builder;
  builder.Mark().Text("module").Global("torch", "FloatStorage").Text("0").Text("cpu").Int(1);
  ExpectRefused(builder.Tuple().Op("Q").Build(), "59: " + why);
  PickleBuilder wrong;
  wrong.Mark().Text("storage").Text("FloatStorage").Text("0").Text("cpu").Int(1);
  ExpectRefused(wrong.Tuple().Op("Q").Build(), "57: " + why);
}

TEST(PickleReader, TheStackIsGuarded) {
  ExpectRefused(Raw("R"), "2: takes from an empty stack");
  ExpectRefused(Raw("N(\x85"), "4: takes from an empty stack");
  ExpectRefused(Raw("Nt"), "3: takes up to a mark, and there is none");
  ExpectRefused(Raw("Na"), "3: nothing to put items into");
  ExpectRefused(Raw("NNa"), "4: items for None, not a list");
  ExpectRefused(Raw("](Nu"), "5: a key without a value");
  ExpectRefused(Raw("](NNu"), "6: items for a list, not a dict");
  ExpectRefused(Raw("q\0"sv), "2: nothing to memoize");
  ExpectRefused(Raw("h\x05"), "2: memo 5 is empty");
  ExpectRefused(Raw("NN"), "4: STOP with 2 values on the stack, not 1");
  ExpectRefused(Raw("N("), "4: STOP with 1 values on the stack, not 1");
  ExpectRefused(Raw(""), "2: STOP with 0 values on the stack, not 1");
  ExpectRefused(Raw("N.N"), "3: 2 bytes follow STOP");
  ExpectRefused(ToBytes("\x80\x02N"), "3: ends without STOP");
  ExpectRefused({}, "0: ends without STOP");
}

TEST(PickleReader, SizesAreThoseOfTheBytesThatAreThere) {
  ExpectRefused(Raw("X\xFF\xFF\xFF\xFF"), "2: text needs 4294967295 bytes, 1 are left");
  ExpectRefused(Raw("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
                "2: text needs 18446744073709551615 bytes, 1 are left");
  ExpectRefused(Raw("\x8C\x09"), "2: text needs 9 bytes, 1 are left");
  ExpectRefused(Raw("\x8A\x05"), "2: integer needs 5 bytes, 1 are left");
  ExpectForbidden(Raw("\x8A\x09xxxxxxxxx"), "2: integer of 9 bytes > 8");
  ExpectRefused(Raw("G"), "2: float needs 8 bytes, 1 are left");
  ExpectRefused(Raw("J"), "2: integer needs 4 bytes, 1 are left");
  ExpectRefused(Raw("\x95\xFF\0\0\0\0\0\0\0N"sv), "2: frame of 255 bytes, 2 are left");
  ExpectForbidden(ToBytes("\x80\x01N."), "0: protocol 1 is not in 2 … 5");
  ExpectForbidden(ToBytes("\x80\x06N."), "0: protocol 6 is not in 2 … 5");
}

TEST(PickleReader, DepthAndNumbersHaveLimits) {
  ExpectForbidden(Raw(std::string(257, '(')), "258: nests deeper than 256");
  ExpectForbidden(Raw(std::string(kMaxPickleValues + 1, 'N')), "1048578: more than 1048576 values");
  std::string recalls = "Nq\0"s;
  for (size_t i = 0; i <= kMaxPickleStack; ++i) recalls += "h\0"sv;
  EXPECT_NE(ReadPickle(Raw(recalls), "f").status().message().find("on the stack"),
            std::string::npos);
  // As large as allowed.
  EXPECT_TRUE(ReadPickle(Raw("(" + std::string(kMaxPickleValues - 1, 'N') + "t"), "f").ok());
  EXPECT_NE(ReadPickle(Bytes(kMaxPickleBytes + 1), "f").status().message().find(" bytes > "),
            std::string::npos);
}

// Data that contains itself, a tuple of tuples of tuples, and lists that each hold the one before
// twice: 2^200 leaves, if one followed them.
TEST(PickleReader, SharingCostsNothing) {
  EXPECT_TRUE(ReadPickle(Raw("]q\0h\0a"sv), "f").ok());
  EXPECT_TRUE(ReadPickle(Raw("N" + std::string(100000, '\x85')), "f").ok());
  std::string bomb = "]q\0"s;
  for (int i = 1; i <= 200; ++i) {
    const std::string before(1, static_cast<char>(i - 1)), here(1, static_cast<char>(i));
    bomb.append("0]q").append(here).append("(h").append(before).append("h").append(before);
    bomb += "e";
  }
  ExpectForbidden(Raw(bomb), "5: opcode POP is not allowed");
  std::string nested = "]q\0"s;
  for (int i = 1; i <= 200; ++i) {
    const std::string before(1, static_cast<char>(i - 1)), here(1, static_cast<char>(i));
    nested.append("h").append(before).append("\x86q").append(here);
  }
  const Bytes bytes = Raw(nested);
  const Result<Pickle> pickle = ReadPickle(bytes, "f");
  ASSERT_TRUE(pickle.ok()) << pickle.status().message();
  EXPECT_EQ(pickle->values.size(), 201u);
}

TEST(PickleReader, EveryTruncationIsRefusedAndEveryByteMayLie) {
  PickleBuilder builder;
  builder.Op("}").Text("w").Tensor("FloatStorage", "0", 4, 0, {2, 2}, {2, 1}).Op("s");
  const Bytes good = builder.Build();
  ASSERT_TRUE(ReadPickle(good, "f").ok()) << ReadPickle(good, "f").status().message();
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(ReadPickle(bytes, "f").ok()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      (void)ReadPickle(bytes, "f").ok();
    }
  }
}

}  // namespace pickle_reader_test
}  // namespace varve
