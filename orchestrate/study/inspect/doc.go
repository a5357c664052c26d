// Package inspect writes evaluations as logs of Inspect (UK AI Security Institute, https://inspect.aisi.org.uk): a
// .eval file is a zip archive of JSON, with header.json for the whole, a file in samples/ for each episode, and
// summaries.json for lists of them. `inspect view` and inspect_ai's data frames open it; version 2 of the format, as
// inspect_ai 0.3 writes it.
//
// A task (tag and seed) is a sample, its episodes are the sample's epochs. Episodes are tokens, and messages are read
// from them: what stands between special tokens, and a role's name where the chat template writes one.
package inspect
