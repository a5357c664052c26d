package ranks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A connection begins with the server's challenge (magic, nonce). The client answers with magic and HMAC-SHA256(token, "rank" nonce), the server
// with HMAC-SHA256(token, "server" nonce): the token itself never travels, and an answer that was overheard opens nothing. Everything after
// that is a frame: four bytes of length, then JSON.
const (
	magic        = "gyre-rv1"
	nonceBytes   = 16
	handshake    = 5 * time.Second // in which a connection must have proved itself
	mostOpen     = 64              // connections that have not: of more, the oldest goes
	mostFrame    = 1 << 20
	mostStored   = 1 << 16 // keys of the store
	writeTimeout = 10 * time.Second
)

// NewToken makes the secret of one run.
func NewToken() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return hex.EncodeToString(secret)
}

var errToken = errors.New("the other side does not know this run's token")

func proof(token, who string, nonce []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(who))
	mac.Write(nonce)
	return mac.Sum(nil)
}

// admit is the server's half of a handshake.
func admit(c net.Conn, token string) error {
	c.SetDeadline(time.Now().Add(handshake))
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	if _, err := c.Write(append([]byte(magic), nonce...)); err != nil {
		return err
	}
	answer := make([]byte, len(magic)+sha256.Size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	want := append([]byte(magic), proof(token, "rank", nonce)...)
	if subtle.ConstantTimeCompare(answer, want) != 1 {
		c.Write(make([]byte, sha256.Size)) // so that a rank with the wrong token learns it; one that is merely crowded out tries again
		return errToken
	}
	if _, err := c.Write(proof(token, "server", nonce)); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// enter is the client's half.
func enter(c net.Conn, token string) error {
	c.SetDeadline(time.Now().Add(handshake))
	challenge := make([]byte, len(magic)+nonceBytes)
	if _, err := io.ReadFull(c, challenge); err != nil {
		return err
	}
	nonce := challenge[len(magic):]
	if string(challenge[:len(magic)]) != magic {
		return errors.New("what answers there is not a rendezvous of this version of Gyre")
	}
	if _, err := c.Write(append([]byte(magic), proof(token, "rank", nonce)...)); err != nil {
		return err
	}
	answer := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(answer, proof(token, "server", nonce)) != 1 {
		return errToken
	}
	return c.SetDeadline(time.Time{})
}

// message is a frame's content, in both directions.
type message struct {
	Op       string    `json:"op"`
	ID       uint64    `json:"id,omitempty"` // of a request, and of its reply
	Key      string    `json:"key,omitempty"`
	Value    []byte    `json:"value,omitempty"`
	N        int64     `json:"n,omitempty"`
	Error    string    `json:"error,omitempty"`
	Identity *Identity `json:"identity,omitempty"`
	Failure  *Failure  `json:"failure,omitempty"`
	Phase    string    `json:"phase,omitempty"` // what a rank is busy with
	Share    float64   `json:"share,omitempty"` // how much of it is done; to a rank: by the slowest
}

// What messages are for. Requests are answered with opReply.
const (
	opJoin  = "join"
	opSet   = "set"
	opGet   = "get"
	opAdd   = "add"
	opBeat  = "beat"
	opFail  = "fail"
	opBye   = "bye"
	opReply = "reply"
	opEnd   = "end" // the run has failed
)

func send(c net.Conn, m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > mostFrame {
		return fmt.Errorf("a message of %d bytes: at most %d go over the rendezvous", len(data), mostFrame)
	}
	c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

func receive(r io.Reader) (m message, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > mostFrame {
		return m, fmt.Errorf("a frame of %d bytes: at most %d are read", n, mostFrame)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}
