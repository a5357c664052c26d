// Loads the library of that name, which is searched as the program's own libraries are, and returns NULL, or why it
// cannot be used. Functions of gyre.h may be called after it has returned NULL only.
#pragma once

const char* gyre_load(const char* path);
