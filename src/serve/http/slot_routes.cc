// The slots of llama-server: GET /slots, POST /slots/N?action=save, restore, erase.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/timer.h"
#include "serve/api/completion_fields.h"
#include "serve/api/field_reader.h"
#include "serve/http/client_socket.h"
#include "serve/http/route_context.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxNameBytes = 200;
constexpr std::chrono::milliseconds kBusyPause(50);

bool IsFree(const EngineSnapshot& snapshot, int slot) {
  for (const ConversationView& view : snapshot.conversations) {
    if (view.slot == slot) return false;
  }
  return true;
}

ordered_json SlotJson(const EngineSnapshot& snapshot, int slot) {
  ordered_json json = {
      {"id", slot}, {"n_ctx", snapshot.context}, {"speculative", false}, {"is_processing", false}};
  for (const ConversationView& view : snapshot.conversations) {
    if (view.slot != slot) continue;
    json["is_processing"] = true;
    json["id_task"] = view.id;
    json["n_prompt_tokens"] = view.prompt_tokens;
    json["n_prompt_tokens_processed"] =
        std::min(view.tokens_fed, view.prompt_tokens) - view.cached_tokens;
    json["n_prompt_tokens_cache"] = view.cached_tokens;
    json["next_token"] =
        ordered_json::array({{{"n_decoded", view.generated},
                              {"n_remain", view.limit - view.prompt_tokens - view.generated}}});
  }
  return json;
}

void SendSlots(RouteContext& context, const httplib::Request& request,
               httplib::Response& response) {
  if (!context.options.show_slots) {
    return SendError(response, {501, "not_supported_error", "started with --no-slots", {}});
  }
  const EngineSnapshot snapshot = context.engine.Snapshot();
  ordered_json slots = ordered_json::array();
  bool any_free = false;
  for (int slot = 0; slot < snapshot.num_slots; ++slot) {
    slots.push_back(SlotJson(snapshot, slot));
    any_free = any_free || IsFree(snapshot, slot);
  }
  if (!any_free && request.has_param("fail_on_no_slot")) {
    return SendError(response, {503, "unavailable_error", "no slot is free", {}});
  }
  SendJson(response, slots);
}

// A file of the folder itself: no path, nothing hidden.
ApiError ReadFileName(const httplib::Request& request, const std::string& folder,
                      std::string* name) {
  nlohmann::json body;
  ApiError error = ParseBody(request.body, &body);
  if (!error.ok()) return error;
  FieldReader fields(body);
  fields.Text("filename", name);
  if (!fields.error().ok()) return fields.error();
  const auto is_bad = [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 32;
  };
  const bool is_name = !name->empty() && name->size() <= kMaxNameBytes && name->front() != '.' &&
                       std::none_of(name->begin(), name->end(), is_bad);
  if (!is_name) {
    return InvalidRequest(
        fmt::format("filename: not the name of a file in {}: at most {} bytes, no "
                    "slash, no dot in front",
                    folder, kMaxNameBytes),
        "filename");
  }
  return {};
}

class SlotAction {
 public:
  SlotAction(RouteContext& context, const httplib::Request& request)
      : context_(context), request_(request) {
    const std::string id = request.matches[1];
    std::from_chars(id.data(), id.data() + id.size(), slot_);
    tenant_ = TenantOf(context.options.api_keys.empty() ? "" : KeyOf(request), "");
  }

  void Run(httplib::Response& response) {
    const std::string action = request_.get_param_value("action");
    if (action == "erase") return Erase(response);
    if (action != "save" && action != "restore") {
      return SendError(response, InvalidRequest(fmt::format("action: \"{}\" is not save, restore "
                                                            "or erase",
                                                            action),
                                                "action"));
    }
    const std::string& folder = context_.options.slot_folder;
    if (folder.empty()) {
      return SendError(response,
                       {501, "not_supported_error", "started without --slot-save-path", {}});
    }
    std::string name;
    const ApiError error = ReadFileName(request_, folder, &name);
    if (!error.ok()) return SendError(response, error);
    MoveFile(action == "save", name, response);
  }

 private:
  // On the engine's thread, as soon as the slot is free or nobody wants it any more.
  template <typename Task>
  Status RunWhenFree(const Task& task) {
    const ClientSocket client(request_.remote_addr, request_.remote_port);
    for (;;) {
      Status status = FailedPrecondition("the server is stopping");
      if (!context_.engine.Run([&](BatchEngine& batch) { status = task(batch); })) return status;
      if (status.code() != StatusCode::kFailedPrecondition || client.is_closed()) return status;
      std::this_thread::sleep_for(kBusyPause);
    }
  }

  void MoveFile(bool is_save, const std::string& name, httplib::Response& response) {
    const std::string path = (std::filesystem::path(context_.options.slot_folder) / name).string();
    const Timer timer;
    BatchEngine::SlotFile file;
    const Status status = RunWhenFree([&](BatchEngine& batch) -> Status {
      VARVE_ASSIGN_OR_RETURN(file, is_save ? batch.SaveSlot(slot_, tenant_, path)
                                           : batch.RestoreSlot(slot_, tenant_, path));
      return Status();
    });
    if (!status.ok()) {
      ApiError error = FromStatus(status);
      // What is wrong with a file is the client's matter, as llama-server has it.
      if (!is_save) error.http_status = 400;
      return SendError(response, error);
    }
    ordered_json body = {{"id_slot", slot_}, {"filename", name}};
    body[is_save ? "n_saved" : "n_restored"] = file.num_tokens;
    body[is_save ? "n_written" : "n_read"] = file.num_bytes;
    body["timings"] = {{is_save ? "save_ms" : "restore_ms", timer.us() / 1e3}};
    SendJson(response, body);
  }

  void Erase(httplib::Response& response) {
    int64_t num_erased = 0;
    const Status status = RunWhenFree([&](BatchEngine& batch) -> Status {
      VARVE_ASSIGN_OR_RETURN(num_erased, batch.EraseSlot(slot_, tenant_));
      return Status();
    });
    if (!status.ok()) return SendError(response, FromStatus(status));
    SendJson(response, {{"id_slot", slot_}, {"n_erased", num_erased}});
  }

  RouteContext& context_;
  const httplib::Request& request_;
  int slot_ = -1;
  std::string tenant_;
};

}  // namespace

void AddSlotRoutes(httplib::Server& server, RouteContext& context) {
  server.Get("/slots", [&context](const auto& request, auto& response) {
    SendSlots(context, request, response);
  });
  server.Post(R"(/slots/(\d{1,6}))", [&context](const auto& request, auto& response) {
    SlotAction(context, request).Run(response);
  });
}

}  // namespace varve::serve
