package rollout

import "gyre/torch"

// Sampler decodes replies with continuous batching. Requests are submitted at any time, Step advances all of them, Poll
// takes those that have finished. It is used by one goroutine.
type Sampler interface {
	Submit(torch.Request) error
	Step() (unfinished int, err error)
	Poll() ([]torch.Output, error)
	Abort(id uint64) error
}

var _ Sampler = (*torch.Engine)(nil)
