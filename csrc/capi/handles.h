// What the opaque handles of gyre.h point to.
#pragma once

#include "gyre.h"
#include "model/decoder.h"

struct gyre_model {
  explicit gyre_model(const gyre::ModelConfig& config) : decoder(config) {}
  gyre::Decoder decoder;
};
