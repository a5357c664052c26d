package serve

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Metrics are the server's, in Prometheus's form. A face of the server registers its own in Registry.
type Metrics struct {
	Registry *prometheus.Registry
	// TokensIn and TokensOut count what was sampled for clients.
	TokensIn, TokensOut prometheus.Counter
	// FirstToken is the time from a request to its first token, in seconds.
	FirstToken prometheus.Histogram
	// MalformedCalls counts calls of tools that could not be read and stayed text.
	MalformedCalls prometheus.Counter

	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(h *host.Host) *Metrics {
	registry := prometheus.NewRegistry()
	of := promauto.With(registry)
	m := &Metrics{
		Registry: registry,
		TokensIn: of.NewCounter(prometheus.CounterOpts{Name: "gyre_prompt_tokens_total",
			Help: "tokens of prompts"}),
		TokensOut: of.NewCounter(prometheus.CounterOpts{Name: "gyre_generated_tokens_total",
			Help: "tokens of replies"}),
		FirstToken: of.NewHistogram(prometheus.HistogramOpts{Name: "gyre_time_to_first_token_seconds",
			Help: "from a request to the first token of its reply", Buckets: prometheus.ExponentialBuckets(0.005, 2,
				14)}),
		MalformedCalls: of.NewCounter(prometheus.CounterOpts{Name: "gyre_malformed_tool_calls_total",
			Help: "calls of tools that could not be read and stayed text"}),
		requests: of.NewCounterVec(prometheus.CounterOpts{Name: "gyre_http_requests_total",
			Help: "requests by what they asked for and how they ended"}, []string{"handler", "status"}),
		seconds: of.NewHistogramVec(prometheus.HistogramOpts{Name: "gyre_http_request_seconds",
			Help: "duration of requests", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"handler"}),
	}
	engine := func(name, help string, read func(torch.EngineStats) int64) {
		m.Gauge("gyre_engine_"+name, help, func() int64 { return read(h.Stats()) })
	}
	engine("running", "requests that are being sampled", func(s torch.EngineStats) int64 { return s.Running })
	engine("waiting", "requests that wait for others", func(s torch.EngineStats) int64 { return s.Waiting })
	engine("blocks", "blocks of keys and values", func(s torch.EngineStats) int64 { return s.BlocksTotal })
	engine("blocks_free", "of them: free", func(s torch.EngineStats) int64 { return s.BlocksFree })
	engine("blocks_cached", "of them: held by the prefix cache alone",
		func(s torch.EngineStats) int64 { return s.BlocksCached })
	engine("steps", "passes so far", func(s torch.EngineStats) int64 { return s.Steps })
	engine("cached_tokens", "prompt tokens found in the prefix cache so far",
		func(s torch.EngineStats) int64 { return s.CachedTokens })
	engine("preemptions", "requests that lost their place to others so far",
		func(s torch.EngineStats) int64 { return s.Preemptions })
	engine("proposed_tokens", "tokens tried by speculation so far",
		func(s torch.EngineStats) int64 { return s.ProposedTokens })
	engine("accepted_tokens", "of them: drawn", func(s torch.EngineStats) int64 { return s.AcceptedTokens })
	return m
}

// Gauge adds a number that is read whenever somebody asks for it.
func (m *Metrics) Gauge(name, help string, read func() int64) {
	promauto.With(m.Registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(read()) })
}

// count adds a request that has ended. The handler is its pattern, of which there are few.
func (m *Metrics) count(pattern string, status int, took time.Duration) {
	if pattern == "" {
		pattern = "none"
	}
	m.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(pattern).Observe(took.Seconds())
}
