// Time of work on the device: captured in a CUDA graph, replayed, the median of replays.

#ifndef VARVE_CUDA_TESTING_GRAPH_TIMER_H_
#define VARVE_CUDA_TESTING_GRAPH_TIMER_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "cuda/testing/device_buffer.h"

namespace varve::cuda::testing {

inline constexpr int kReplays = 12;

struct Timing {
  double median_us = 0;
  double min_us = 0;
};

// `calls` work items, one after the other, in one graph.
template <class Work>
Timing TimeGraph(int calls, const Work& work) {
  cudaStream_t stream;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < calls; ++i) work(i, stream);
  Must(cudaStreamEndCapture(stream, &graph), "end of capture");
  Must(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t start, stop;
  Must(cudaEventCreate(&start), "event");
  Must(cudaEventCreate(&stop), "event");
  std::vector<double> times;
  for (int replay = 0; replay < kReplays + 2; ++replay) {
    Must(cudaEventRecord(start, stream), "record");
    Must(cudaGraphLaunch(executable, stream), "replay");
    Must(cudaEventRecord(stop, stream), "record");
    Must(cudaEventSynchronize(stop), "replay");
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, start, stop), "time");
    if (replay >= 2) times.push_back(1000.0 * ms / calls);
  }
  Must(cudaGraphExecDestroy(executable), "graph");
  Must(cudaGraphDestroy(graph), "graph");
  Must(cudaEventDestroy(start), "event");
  Must(cudaEventDestroy(stop), "event");
  Must(cudaStreamDestroy(stream), "stream");
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_GRAPH_TIMER_H_
