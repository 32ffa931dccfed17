// The heads that OpenAI found to follow the speech, model by model (openai-whisper's
// _ALIGNMENT_HEADS). Models are told apart by their sizes; large-v1 and -v2 have the same, and v2's
// are used for both.

#include <span>

#include "runtime/whisper/word_times.h"

namespace varve {
namespace {

constexpr AlignmentHead kTinyEn[] = {{1, 0}, {2, 0}, {2, 5}, {3, 0},
                                     {3, 1}, {3, 2}, {3, 3}, {3, 4}};
constexpr AlignmentHead kTiny[] = {{2, 2}, {3, 0}, {3, 2}, {3, 3}, {3, 4}, {3, 5}};
constexpr AlignmentHead kBaseEn[] = {{3, 3}, {4, 7}, {5, 1}, {5, 5}, {5, 7}};
constexpr AlignmentHead kBase[] = {{3, 1}, {4, 2}, {4, 3}, {4, 7}, {5, 1}, {5, 2}, {5, 4}, {5, 6}};
constexpr AlignmentHead kSmallEn[] = {
    {6, 6},  {7, 0},  {7, 3},  {7, 8},  {8, 2},  {8, 5},  {8, 7},   {9, 0},  {9, 4}, {9, 8},
    {9, 10}, {10, 0}, {10, 1}, {10, 2}, {10, 3}, {10, 6}, {10, 11}, {11, 2}, {11, 4}};
constexpr AlignmentHead kSmall[] = {{5, 3}, {5, 9}, {8, 0}, {8, 4}, {8, 7},
                                    {8, 8}, {9, 0}, {9, 7}, {9, 9}, {10, 5}};
constexpr AlignmentHead kMediumEn[] = {{11, 4},  {14, 1}, {14, 12}, {14, 14}, {15, 4},  {16, 0},
                                       {16, 4},  {16, 9}, {17, 12}, {17, 14}, {18, 7},  {18, 10},
                                       {18, 15}, {20, 0}, {20, 3},  {20, 9},  {20, 14}, {21, 12}};
constexpr AlignmentHead kMedium[] = {{13, 15}, {15, 4}, {15, 15}, {16, 1}, {20, 0}, {23, 4}};
constexpr AlignmentHead kLarge2[] = {{10, 12}, {13, 17}, {16, 11}, {16, 12}, {16, 13}, {17, 15},
                                     {17, 16}, {18, 4},  {18, 11}, {18, 19}, {19, 11}, {21, 2},
                                     {21, 3},  {22, 3},  {22, 9},  {22, 12}, {23, 5},  {23, 7},
                                     {23, 13}, {25, 5},  {26, 1},  {26, 12}, {27, 15}};
constexpr AlignmentHead kLarge3[] = {{7, 0},   {10, 17}, {12, 18}, {13, 12}, {16, 1},
                                     {17, 14}, {19, 11}, {21, 4},  {24, 1},  {25, 6}};
constexpr AlignmentHead kTurbo[] = {{2, 4}, {2, 11}, {3, 3}, {3, 6}, {3, 11}, {3, 14}};

struct KnownModel {
  int layers;
  int state;
  int vocab;
  std::span<const AlignmentHead> heads;
};
constexpr KnownModel kKnown[] = {
    {4, 384, 51864, kTinyEn},     {4, 384, 51865, kTiny},     {6, 512, 51864, kBaseEn},
    {6, 512, 51865, kBase},       {12, 768, 51864, kSmallEn}, {12, 768, 51865, kSmall},
    {24, 1024, 51864, kMediumEn}, {24, 1024, 51865, kMedium}, {32, 1280, 51865, kLarge2},
    {32, 1280, 51866, kLarge3},   {4, 1280, 51866, kTurbo},
};

}  // namespace

std::vector<AlignmentHead> AlignmentHeads(const WhisperConfig& config) {
  for (const KnownModel& known : kKnown) {
    if (known.layers == config.text_layers && known.state == config.text_state &&
        known.vocab == config.vocab) {
      return {known.heads.begin(), known.heads.end()};
    }
  }
  std::vector<AlignmentHead> upper;
  for (int layer = config.text_layers / 2; layer < config.text_layers; ++layer) {
    for (int head = 0; head < config.text_heads; ++head) upper.emplace_back(layer, head);
  }
  return upper;
}

}  // namespace varve
