// Texts that end a generation: "###", "\nUser:". A stream of pieces is shown up to the first of
// them; what may be the beginning of one waits until the next piece tells.

#ifndef VARVE_RUNTIME_STOP_TEXT_H_
#define VARVE_RUNTIME_STOP_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace varve {

class StopText {
 public:
  // Empty texts are left out: they would end everything.
  explicit StopText(std::vector<std::string> stops);

  // What can be shown now. After a stop there is nothing more.
  std::string Next(std::string_view piece);
  // What waited, at the end of the stream; nothing after a stop.
  std::string Finish();

  bool stopped() const { return stopped_; }
  // The text that ended it; empty before.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string waiting_;
  std::string found_;
  bool stopped_ = false;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_STOP_TEXT_H_
