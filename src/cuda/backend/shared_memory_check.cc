#include "cuda/backend/shared_memory_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/device_encode.h"

namespace varve::cuda {
namespace {

// Of one page, or of all pages that a call of Attend meets.
struct RungsMet {
  uint32_t keys = 0;  // bits of DeviceRung
  uint32_t values = 0;
  bool pure = true;  // as DeviceAttention::pure_pages

  bool operator<(const RungsMet& other) const {
    return std::tie(keys, values, pure) < std::tie(other.keys, other.values, other.pure);
  }
};

// K and V of the pages that a layer may have; the first is the open page.
struct LayerRungs {
  std::vector<const Rung*> keys;
  std::vector<const Rung*> values;
};

DeviceRung IdOf(const Rung& rung) { return static_cast<DeviceRung>(rung.descriptor().id); }

std::vector<LayerRungs> LayersOf(const DeviceSetup& setup) {
  std::vector<LayerRungs> layers(static_cast<size_t>(setup.shape.num_layers));
  for (const RungUse& use : setup.rungs) {
    LayerRungs& layer = layers[static_cast<size_t>(use.layer)];
    (use.part == Part::kKey ? layer.keys : layer.values).push_back(use.rung);
  }
  return layers;
}

// All mixtures of a layer's pages.
std::set<RungsMet> MixturesOf(const LayerRungs& layer) {
  std::set<RungsMet> mixtures;
  for (size_t i = 0; i < std::min(layer.keys.size(), layer.values.size()); ++i) {
    const DeviceRung key = IdOf(*layer.keys[i]), value = IdOf(*layer.values[i]);
    const RungsMet page = {RungBit(key), RungBit(value), IsFloat(key) == IsFloat(value)};
    std::vector<RungsMet> more = {page};
    for (const RungsMet& other : mixtures) {
      more.push_back({other.keys | page.keys, other.values | page.values, other.pure && page.pure});
    }
    mixtures.insert(more.begin(), more.end());
  }
  return mixtures;
}

std::string NamesOf(const LayerRungs& layer, const RungsMet& met) {
  std::set<std::string> names;
  for (const Rung* rung : layer.keys) {
    if ((met.keys & RungBit(IdOf(*rung))) != 0) names.emplace(rung->name());
  }
  for (const Rung* rung : layer.values) {
    if ((met.values & RungBit(IdOf(*rung))) != 0) names.emplace(rung->name());
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

// The most that a block would have: what is chosen depends on the number of pages, too.
size_t SharedBytesOf(const RungsMet& met, const CacheShape& cache, const PageShape& shape,
                     const DeviceLimits& limits) {
  DeviceAttention call;
  call.shape = shape;
  call.num_sequences = 1;
  call.query_heads = cache.num_kv_heads * cache.group_size;
  call.key_rungs = met.keys;
  call.value_rungs = met.values;
  call.pure_pages = met.pure;
  size_t most = 0;
  for (const int max_pages : {1, 1 << 20}) {
    call.max_pages = max_pages;
    most = std::max(most, AttentionSharedBytes(call, limits));
  }
  return most;
}

Status TooMuch(size_t layer, const std::string& what, size_t bytes, const DeviceLimits& limits) {
  return Unimplemented("CUDA: layer " + std::to_string(layer) + ": " + what +
                       " needs shared memory of " + std::to_string(bytes) + " bytes a block > " +
                       std::to_string(limits.shared_per_block));
}

// Pages go from the open rungs, or from those between, to each of the others.
Status CheckEncode(const LayerRungs& rungs, size_t layer, const PageShape& shape,
                   const DeviceLimits& limits) {
  const auto differs = [](const std::vector<const Rung*>& part) {
    return std::any_of(part.begin(), part.end(),
                       [&](const Rung* rung) { return IdOf(*rung) != IdOf(*part[0]); });
  };
  if (!differs(rungs.keys) && !differs(rungs.values)) return Status();
  const size_t bytes = EncodeSharedBytes(shape);
  if (bytes <= limits.shared_per_block) return Status();
  return TooMuch(layer,
                 "encoding pages with head_dim " + std::to_string(shape.head_dim) +
                     " and page_tokens " + std::to_string(shape.page_tokens),
                 bytes, limits);
}

}  // namespace

Status CheckSharedMemory(const DeviceSetup& setup, const PageShape& shape,
                         const DeviceLimits& limits) {
  const std::vector<LayerRungs> layers = LayersOf(setup);
  std::set<RungsMet> fitting;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    VARVE_RETURN_IF_ERROR(CheckEncode(layers[layer], layer, shape, limits));
    for (const RungsMet& met : MixturesOf(layers[layer])) {
      if (!fitting.insert(met).second) continue;
      const size_t bytes = SharedBytesOf(met, setup.shape, shape, limits);
      if (bytes <= limits.shared_per_block) continue;
      return TooMuch(layer,
                     "attention with group_size " + std::to_string(setup.shape.group_size) +
                         " over pages in " + NamesOf(layers[layer], met),
                     bytes, limits);
    }
  }
  return Status();
}

}  // namespace varve::cuda
