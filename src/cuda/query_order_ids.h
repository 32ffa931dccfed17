// The orders in which kernels take the channels of queries (query_orders.cuh), by number: the host
// says which of them a call needs.

#ifndef VARVE_CUDA_QUERY_ORDER_IDS_H_
#define VARVE_CUDA_QUERY_ORDER_IDS_H_

namespace varve::cuda {

enum QueryOrder : int {
  kOrderF16 = 0,       // plain
  kOrderBF16High = 1,  // plain, as the sum of two bf16
  kOrderBF16Low = 2,
  kOrderBlock = 3,  // plain
  kOrderBlockTurned = 4,
  kOrderT4 = 5,  // turned, bytes
  kOrderT3 = 6,
  kOrderT2 = 7,
  kOrderMean = 8,  // plain: for the mean of a page
  kOrderPq = 9,    // turned and scaled as the codebook says
  kNumQueryOrders = 10,
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_ORDER_IDS_H_
