// Package serve is the HTTP server that the faces of `gyre serve` are mounted on: OpenAI's API (package openai),
// Anthropic's (package anthropic) and whatever else answers under a path of its own.
//
//	server := serve.New(h, serve.Options{Listen: "127.0.0.1:8080", MaxBody: 1 << 26, MaxConnections: 100})
//	server.Handle("POST /v1/chat/completions", handler) // patterns of net/http
//	err = server.Run(ctx, func(url string) { fmt.Println(url) })
//
// The server does for every handler what no client may get around: the key, the size of bodies, the time that sending
// one and reading an answer may take, the number of connections, a log line and the metrics of each request. Errors are
// OpenAI's: {"error": {"message", "type", "param", "code"}} ([Fail]), or as another face writes them for its clients
// ([ErrorForm]), and [Decode] reads bodies. The end of Run's context drains: no new connections, requests that run are
// finished, then Run returns.
package serve
