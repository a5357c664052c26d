package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gyre/orchestrate/serve/host"
)

// Options say where the server listens, whom it answers and how much it takes.
type Options struct {
	Listen         string   // HOST:PORT; port 0 is any free one
	Key            string   // that requests must carry; "" for none
	Cert, CertKey  string   // files of TLS's certificate and its key; "" for plain HTTP
	Insecure       bool     // beyond loopback without TLS
	MaxBody        int64    // bytes of a request
	MaxConnections int      // open at a time
	PublicPaths    []string // answered without the key
	Log            io.Writer
	HeaderTimeout  time.Duration // for headers to arrive; 10 s
	SendTimeout    time.Duration // for a whole request to arrive; 60 s
	ReceiveTimeout time.Duration // for a client to take what it is sent; 30 s
}

// Server is an http.Server around handlers that share a host.
type Server struct {
	Host    *host.Host
	Metrics *Metrics

	options  Options
	mux      *http.ServeMux
	log      *slog.Logger
	keys     []func(key string) bool
	patterns []string
	errors   []ErrorForm

	connections *connections
	mu          sync.Mutex     // guards underWay
	underWay    map[string]int // requests by their keys
}

// New makes a server of checked options.
func New(h *host.Host, o Options) *Server {
	o.HeaderTimeout, o.SendTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second), cmp.Or(o.SendTimeout, time.Minute)
	o.ReceiveTimeout = cmp.Or(o.ReceiveTimeout, 30*time.Second)
	s := &Server{Host: h, options: o, mux: http.NewServeMux(), Metrics: newMetrics(h),
		log: slog.New(slog.NewTextHandler(o.Log, nil)), connections: newConnections(o.MaxConnections),
		underWay: map[string]int{}}
	s.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry, promhttp.HandlerOpts{}))
	for _, pattern := range []string{"GET /healthz", "GET /health"} {
		s.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			Answer(w, http.StatusOK, map[string]string{"status": "ok"})
		}))
	}
	return s
}

// The chat page: one file without anything from the network, which talks to the server's own API. It shows tokens with
// their log-probs, and takes the settings of sampling. Whatever a model or a user says is set as text, never as markup.
//
//go:embed page.html
var page []byte

// policy forbids the page everything but its own script and style, and requests to its own server.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// MountPage mounts the chat page at the root.
func (s *Server) MountPage() {
	s.Handle("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(page) // a client that is gone needs no page
	}))
}

// Check refuses options that are not safe. Beyond loopback, a server needs a key, and TLS unless Insecure says that
// something else protects it.
func (o Options) Check() error {
	address, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("%q is no address to listen on, expected HOST:PORT: %w", o.Listen, err)
	}
	if Loopback(address) {
		return nil
	}
	switch {
	case o.Key == "":
		return fmt.Errorf("listening on %s, others than this machine can reach the server: give it a key (--key-env)",
			o.Listen)
	case o.Cert == "" && !o.Insecure:
		return fmt.Errorf("listening on %s, the key would cross the network as plain text: give a certificate "+
			"(--tls-cert, --tls-key), or --insecure where something else encrypts", o.Listen)
	}
	return nil
}

// Loopback tells whether only this machine reaches an address.
func Loopback(address string) bool {
	ip := net.ParseIP(address)
	return address == "localhost" || ip != nil && ip.IsLoopback()
}

// Handle mounts a handler under a pattern of net/http's ServeMux, before Run.
func (s *Server) Handle(pattern string, h http.Handler) {
	s.patterns = append(s.patterns, pattern)
	s.mux.Handle(pattern, h)
}

// AcceptKey lets requests through whose key good knows, beside the server's own: those of sessions. It comes before
// Run. good compares in constant time.
func (s *Server) AcceptKey(good func(key string) bool) { s.keys = append(s.keys, good) }

// allowed tells whether a key opens the server.
func (s *Server) allowed(key string) bool {
	if s.options.Key == "" {
		return true
	}
	given, own := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(s.options.Key))
	return subtle.ConstantTimeCompare(given[:], own[:]) == 1 ||
		slices.ContainsFunc(s.keys, func(good func(string) bool) bool { return good(key) })
}

// Run listens, calls ready with the server's URL, and answers until ctx ends. Requests that run then are finished.
func (s *Server) Run(ctx context.Context, ready func(url string)) error {
	listener, err := net.Listen("tcp", s.options.Listen)
	if err != nil {
		return err
	}
	address, scheme := s.options.Listen, "http"
	if name, port, err := net.SplitHostPort(address); err == nil && port == "0" { // which one it became
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		address = net.JoinHostPort(name, port)
	}
	server := &http.Server{Handler: s.guard(s.mux), ReadHeaderTimeout: s.options.HeaderTimeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnState:   s.connections.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)} // of clients that break off
	if s.options.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.options.Cert, s.options.CertKey)
		if err != nil {
			return errors.Join(fmt.Errorf("the certificate: %w", err), listener.Close())
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
			MinVersion: tls.VersionTLS12}
		listener, scheme = tls.NewListener(listener, server.TLSConfig), "https"
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Shutdown
	ready(scheme + "://" + address)
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	s.log.Info("draining", "requests", s.Host.Unfinished())
	err = server.Shutdown(context.WithoutCancel(ctx)) // a second signal ends the process
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// KeyFrom reads the key that an environment variable holds.
func KeyFrom(variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	key := os.Getenv(variable)
	if len(key) < 8 {
		return "", fmt.Errorf("the environment variable %s holds a key of %d characters, expected at least 8", variable,
			len(key))
	}
	return key, nil
}
