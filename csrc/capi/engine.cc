// gyre_engine_*: plain translation between the C structs of gyre.h and the engine's own.
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "capi/boundary.h"
#include "gyre_engine.h"

using gyre::capi::guard;
using gyre::capi::guard_to;

struct gyre_engine : gyre::capi::OfModel, gyre::Engine {
  gyre_engine(gyre_model& of, const gyre_engine_config& config) : OfModel{of.own}, Engine(of.decoder, config) {}
};

gyre_status gyre_engine_new(gyre_model* model, const gyre_engine_config* config, gyre_engine** out) {
  return guard([&] { *out = new gyre_engine(*model, *config); });
}

void gyre_engine_free(gyre_engine* engine) { delete engine; }

gyre_status gyre_engine_set_vocabulary(gyre_engine* engine, const uint8_t* data, const int64_t* offsets,
                                       int64_t count) {
  return guard([&] {
    engine->set_vocabulary({reinterpret_cast<const char*>(data), static_cast<size_t>(offsets[count])},
                           {offsets, offsets + count + 1});
  });
}

gyre_status gyre_engine_submit(gyre_engine* engine, const gyre_request* r) {
  return guard([&] {
    gyre::Request request{.id = r->id,
                          .prompt = {r->prompt, r->prompt + r->prompt_len},
                          .sampling = r->sampling,
                          .stop_ids = {r->stop_ids, r->stop_ids + r->num_stop_ids},
                          .drawn = r->drawn,
                          .keep = static_cast<gyre_keep>(r->keep),
                          .kept = r->kept};
    for (int64_t i = 0; i < r->num_stop_strings; ++i) {
      request.stop_strings.emplace_back(r->stop_strings[i], static_cast<size_t>(r->stop_string_lens[i]));
    }
    if (r->policy != nullptr) request.policy = {r->policy->own, &r->policy->decoder};
    engine->submit(std::move(request));
  });
}

gyre_status gyre_engine_step(gyre_engine* engine, int64_t* unfinished) {
  return guard_to(unfinished, &gyre_engine::step, engine);
}

gyre_status gyre_engine_poll(gyre_engine* engine, bool unfinished, gyre_output* outputs, int64_t max_outputs,
                             int32_t* tokens, float* logprobs, float* sampling_logprobs, gyre_alternative* alternatives,
                             int64_t max_tokens, int64_t* count) {
  return guard([&] {
    int64_t used = 0;  // of the arrays of tokens
    *count = 0;
    const auto add = [&](const gyre::Output& output) {
      std::ranges::copy(output.tokens, tokens + used);
      std::ranges::copy(output.logprobs, logprobs + used);
      std::ranges::copy(output.sampling_logprobs, sampling_logprobs + used);
      const auto length = static_cast<int64_t>(output.tokens.size());
      const int64_t top = length == 0 ? 0 : static_cast<int64_t>(output.alternatives.size()) / length;
      for (int64_t i = 0; alternatives != nullptr && i < length; ++i) {
        std::copy_n(output.alternatives.begin() + i * top, top, alternatives + (used + i) * GYRE_MAX_ALTERNATIVES);
      }
      outputs[(*count)++] = {.id = output.id,
                             .finish = output.finish,
                             .position = output.position,
                             .num_tokens = length,
                             .cached_tokens = output.cached_tokens,
                             .token_offset = used,
                             .alternatives = top,
                             .kept = output.kept};
      used += length;
    };
    if (unfinished) {
      std::ranges::for_each(engine->progress(max_outputs, max_tokens), add);
      return;
    }
    while (*count < max_outputs) {
      const auto output = engine->poll(max_tokens - used);
      if (!output) break;
      add(*output);
    }
  });
}

gyre_status gyre_engine_abort(gyre_engine* engine, uint64_t id) { return guard(&gyre_engine::abort, engine, id); }

gyre_status gyre_engine_forget(gyre_engine* engine) { return guard(&gyre_engine::forget, engine); }

gyre_status gyre_engine_sleep(gyre_engine* engine) { return guard(&gyre_engine::sleep, engine); }

void gyre_engine_stats(const gyre_engine* engine, gyre_engine_stats_t* out) { *out = engine->stats(); }

gyre_status gyre_engine_follow(gyre_engine* engine, bool* more) { return guard_to(more, &gyre_engine::follow, engine); }

gyre_status gyre_engine_dismiss(gyre_engine* engine) { return guard(&gyre_engine::dismiss, engine); }
