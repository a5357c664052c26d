package interrupt

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s: nothing happened within 5 s", what)
	}
}

func TestFirstSignalCancelsOrdinaryCommands(t *testing.T) {
	signals := make(chan os.Signal, 2)
	ctx, stop := watch(context.Background(), signals, &bytes.Buffer{}, func(int) { t.Error("exited") })
	defer stop()
	signals <- syscall.SIGTERM
	wait(t, ctx.Done(), "cancellation")
	var cause *Error
	if !errors.As(context.Cause(ctx), &cause) || cause.ExitCode() != 143 {
		t.Fatalf("cause = %v, want SIGTERM with exit code 143", context.Cause(ctx))
	}
}

func TestGracefulCommandsAreAskedFirst(t *testing.T) {
	signals := make(chan os.Signal, 2)
	codes := make(chan int, 1)
	var messages bytes.Buffer
	ctx, stop := watch(context.Background(), signals, &messages, func(code int) { codes <- code })
	requested := Graceful(ctx)
	if Cause(ctx) != nil {
		t.Fatal("a cause before any signal")
	}
	signals <- syscall.SIGINT
	wait(t, requested, "request")
	if ctx.Err() != nil {
		t.Fatal("the first signal cancelled a graceful command")
	}
	if Cause(ctx) == nil {
		t.Fatal("no cause after the signal")
	}
	signals <- syscall.SIGTERM
	select {
	case code := <-codes:
		if code != 130 {
			t.Errorf("exit code %d, want the first signal's 130", code)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the second signal did not exit")
	}
	stop()
	if !strings.Contains(messages.String(), "finishing") {
		t.Errorf("messages %q do not say what happens", messages.String())
	}
}

// timeout(1) signals its child and then the child's group: that is one request, and the command still ends in good
// order.
func TestOneRequestHeardTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		var codes []int
		var messages bytes.Buffer
		ctx, stop := watch(context.Background(), signals, &messages, func(code int) { codes = append(codes, code) })
		Graceful(ctx)
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		synctest.Wait()
		if len(codes) > 0 || strings.Count(messages.String(), "\n") != 1 {
			t.Errorf("the echo of a signal ended the command with %v: %s", codes, messages.String())
		}
		time.Sleep(echo)
		signals <- syscall.SIGTERM
		synctest.Wait()
		if !slices.Equal(codes, []int{143}) {
			t.Errorf("a second request ended with %v, want 143", codes)
		}
		stop()
	})
}

func TestWithoutWatch(t *testing.T) {
	if Graceful(context.Background()) != nil || Cause(context.Background()) != nil {
		t.Error("a plain context reports signals")
	}
}
