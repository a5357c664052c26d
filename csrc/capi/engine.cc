// gyre_engine_*: plain translation between the C structs of gyre.h and the engine's own.
#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/boundary.h"
#include "gyre.h"

using gyre::capi::deref;
using gyre::capi::guard;

struct gyre_engine {
  gyre_engine(gyre::Decoder& decoder, const gyre_engine_config& config) : engine(decoder, config) {}
  gyre::Engine engine;
};

namespace {

template <typename T>
void need_array(const T* data, int64_t count, const char* name) {
  if (count < 0) throw std::invalid_argument(std::string(name) + ": negative length " + std::to_string(count));
  if (count > 0 && data == nullptr) throw std::invalid_argument(std::string(name) + " is NULL");
}

gyre::Request to_request(const gyre_request& r) {
  need_array(r.prompt, r.prompt_len, "prompt");
  need_array(r.stop_ids, r.num_stop_ids, "stop_ids");
  need_array(r.stop_strings, r.num_stop_strings, "stop_strings");
  need_array(r.stop_string_lens, r.num_stop_strings, "stop_string_lens");
  gyre::Request request;
  request.id = r.id;
  request.prompt.assign(r.prompt, r.prompt + r.prompt_len);
  request.sampling = r.sampling;
  request.stop_ids.assign(r.stop_ids, r.stop_ids + r.num_stop_ids);
  for (int64_t i = 0; i < r.num_stop_strings; ++i) {
    need_array(r.stop_strings[i], r.stop_string_lens[i], "a stop string");
    request.stop_strings.emplace_back(r.stop_strings[i], static_cast<size_t>(r.stop_string_lens[i]));
  }
  return request;
}

// The caller's arrays that outputs are laid into, one after another.
class OutputArrays {
 public:
  OutputArrays(gyre_output* outputs, int64_t max_outputs, int32_t* tokens, float* logprobs, float* sampling_logprobs,
               int64_t max_tokens)
      : next_(outputs), tokens_(tokens), logprobs_(logprobs), sampling_logprobs_(sampling_logprobs), max_(max_tokens) {
    need_array(outputs, max_outputs, "outputs");
    need_array(tokens, max_tokens, "tokens");
    need_array(logprobs, max_tokens, "logprobs");
    need_array(sampling_logprobs, max_tokens, "sampling_logprobs");
  }
  int64_t room() const { return max_ - used_; }  // tokens
  void add(const gyre::Output& output) {
    std::ranges::copy(output.tokens, tokens_ + used_);
    std::ranges::copy(output.logprobs, logprobs_ + used_);
    std::ranges::copy(output.sampling_logprobs, sampling_logprobs_ + used_);
    const auto length = static_cast<int64_t>(output.tokens.size());
    *next_++ = {.id = output.id,
                .finish = output.finish,
                .position = output.position,
                .num_tokens = length,
                .cached_tokens = output.cached_tokens,
                .token_offset = used_,
                .stop_index = output.stop_index};
    used_ += length;
  }

 private:
  gyre_output* next_;
  int32_t* tokens_;
  float *logprobs_, *sampling_logprobs_;
  int64_t max_, used_ = 0;
};

}  // namespace

gyre_status gyre_engine_new(gyre_model* model, const gyre_engine_config* config, gyre_engine** out, gyre_error* err) {
  return guard(err,
               [&] { deref(out, "out") = new gyre_engine(deref(model, "model").decoder, deref(config, "config")); });
}

void gyre_engine_free(gyre_engine* engine) { delete engine; }

gyre_status gyre_engine_set_vocabulary(gyre_engine* engine, const uint8_t* data, const int64_t* offsets, int64_t count,
                                       gyre_error* err) {
  return guard(err, [&] {
    if (count < 1)
      throw std::invalid_argument("vocabulary: it must have at least one token, got " + std::to_string(count));
    need_array(offsets, count + 1, "offsets");
    const int64_t bytes = offsets[count];
    need_array(data, bytes, "data");
    deref(engine, "engine")
        .engine.set_vocabulary({reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)},
                               {offsets, offsets + count + 1});
  });
}

gyre_status gyre_engine_submit(gyre_engine* engine, const gyre_request* request, gyre_error* err) {
  return guard(err, [&] { deref(engine, "engine").engine.submit(to_request(deref(request, "request"))); });
}

gyre_status gyre_engine_step(gyre_engine* engine, int64_t* unfinished, gyre_error* err) {
  return guard(err, [&] {
    int64_t& out = deref(unfinished, "unfinished");
    out = deref(engine, "engine").engine.step();
  });
}

gyre_status gyre_engine_poll(gyre_engine* engine, bool unfinished, gyre_output* outputs, int64_t max_outputs,
                             int32_t* tokens, float* logprobs, float* sampling_logprobs, int64_t max_tokens,
                             int64_t* count, gyre_error* err) {
  return guard(err, [&] {
    OutputArrays arrays(outputs, max_outputs, tokens, logprobs, sampling_logprobs, max_tokens);
    gyre::Engine& from = deref(engine, "engine").engine;
    int64_t& taken = deref(count, "count");
    taken = 0;
    if (unfinished) {
      for (const gyre::Output& output : from.progress(max_outputs, max_tokens)) arrays.add(output), ++taken;
      return;
    }
    for (; taken < max_outputs; ++taken) {
      const auto output = from.poll(arrays.room());
      if (!output) break;
      arrays.add(*output);
    }
  });
}

gyre_status gyre_engine_abort(gyre_engine* engine, uint64_t id, gyre_error* err) {
  return guard(err, [&] { deref(engine, "engine").engine.abort(id); });
}

gyre_status gyre_engine_sleep(gyre_engine* engine, gyre_error* err) {
  return guard(err, [&] { deref(engine, "engine").engine.sleep(); });
}

gyre_status gyre_engine_stats(const gyre_engine* engine, gyre_engine_stats_t* out, gyre_error* err) {
  return guard(err, [&] { deref(out, "out") = deref(engine, "engine").engine.stats(); });
}

gyre_status gyre_engine_follow(gyre_engine* engine, int32_t* more, gyre_error* err) {
  return guard(err, [&] {
    int32_t& out = deref(more, "more");
    out = deref(engine, "engine").engine.follow() ? 1 : 0;
  });
}

gyre_status gyre_engine_dismiss(gyre_engine* engine, gyre_error* err) {
  return guard(err, [&] { deref(engine, "engine").engine.dismiss(); });
}
